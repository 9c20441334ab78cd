"""Python interface for translating documents with a checkpoint."""

import dataclasses
import inspect
import math
import os
import threading
from enum import Enum
from itertools import islice
from typing import (
    AbstractSet,
    Callable,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
    get_args,
)

import torch
from fairseq import checkpoint_utils, hub_utils, registry, tasks, utils
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceConfig
from fairseq.dataclass.configs import (
    CheckpointConfig,
    CommonConfig,
    CommonEvalConfig,
    DatasetConfig,
    DistributedTrainingConfig,
    EMAConfig,
    FairseqBMUFConfig,
    FairseqConfig,
    GenerationConfig,
    InteractiveConfig,
    OptimizationConfig,
)
from omegaconf import MissingMandatoryValue, OmegaConf, ValidationError
from torch import Tensor

from fairseq_docmt.checkpoint_file import CheckpointFile, read_translation_model
from fairseq_docmt.data.sequence_format import MBART25_TASKS, MULTILINGUAL_TASK
from fairseq_docmt.data.text_checks import Symbols, check_unicode
from fairseq_docmt.data.tokenizers import SentencePieces
from fairseq_docmt.document_index import BLANK_SIZE
from fairseq_docmt.errors import UserError, reason_of, refuse_unknown
from fairseq_docmt.text_form import TextForm, read_text_forms

#: type of an option -> what a message calls it
_WANTED = {
    int: "a whole number",
    Optional[int]: "a whole number",
    float: "a number",
    Optional[float]: "a number",
    bool: "True or False",
}


#: number of tokens that tags and marks may add to a sentence
_MARKS = 4
#: name of a precision -> numbers
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Translation(NamedTuple):
    """One translation of a sentence, an entry of its n-best list.

    Attributes:
        text: the translation.
        score: score of the translation, in base 2 as printed by ``fairseq-generate``.
        token_scores: scores of the subwords and of the end of the sentence, in base 2.
        alignment: with ``print_alignment="hard"``, the aligned pairs (source position, target
            position) of subwords, counted from 0; None if there are none.
    """

    text: str
    score: float
    token_scores: List[float]
    alignment: Optional[List[Tuple[int, int]]]


class _Conversion(NamedTuple):
    """Tokenizer or BPE made of two functions, for fairseq's hub interface, which calls them."""

    encode: Callable[[str], str]
    decode: Callable[[str], str]


#: option of a BPE -> what a message calls it
FILES_OF_BPE = {
    "bpe_codes": "the file of its merges",
    "sentencepiece_model": "the file of its model",
}
#: options of commands and of training, which have no effect here apart from ``_WITH_EFFECT``
_ELSEWHERE = (
    *(CheckpointConfig, CommonConfig, CommonEvalConfig, DatasetConfig, DistributedTrainingConfig),
    *(EMAConfig, FairseqBMUFConfig, InteractiveConfig, OptimizationConfig),
)
_WITH_EFFECT = ("max_tokens", "batch_size", "required_batch_size_multiple", "user_dir")
_WITH_EFFECT += ("tokenizer", "bpe")
#: option without effect -> what to give in its place
_IN_PLACE = {
    "nbest": "give it to translate_nbest",
    "skip_invalid_size_inputs_valid_test": "give skip_invalid_size_inputs=True to translate",
    "model_overrides": 'give options of the model themselves, such as alignment="linear"',
    "cpu": "give the device cpu",
    "fp16": "give the precision fp16",
    "bf16": "give the precision bf16",
    "seed": "in Python, call torch.manual_seed",
    "drafts": "they are translations of a binarised corpus; use fairseq-generate",
    "gold_drafts": "they are references of training; leave it out",
    "task": "it is the task of training; leave it out",
}
#: options of the search that take effect when a model is loaded
OF_LOADING = ("retain_dropout", "retain_dropout_modules")


class DocumentTranslator:
    """Translator that applies a trained model to documents, each a list of sentences.

    It wraps fairseq's hub interface and gives the same output as ``fairseq-generate`` with the same
    options.  Threads can share a translator; their calls then run one after another.

    >>> documents = [["w1 w2", "w3 w4 w5"], ["w6"]]
    >>> [len(document) for document in translator.translate(documents, beam=2)]
    [2, 1]
    >>> for document in translator.translate_stream(documents):
    ...     print(len(document), "sentences")
    2 sentences
    1 sentences
    >>> (first, second), _ = translator.translate_nbest(documents, nbest=3)
    >>> len(first), first[0].score >= first[1].score
    (3, True)

    Args:
        hub: fairseq's hub interface with a model of a document task; :meth:`from_pretrained`
            creates it.
    """

    def __init__(self, hub: hub_utils.GeneratorHubInterface):
        self.hub = hub
        # The search has the state of the documents that it translates.
        self._lock = threading.Lock()

    def __reduce__(self):
        """Refuse to be copied or pickled, as fairseq's models do not support this.

        Raises:
            UserError: always.
        """
        raise UserError(
            "a DocumentTranslator cannot be copied or pickled; load it in each process with "
            "from_pretrained, or share it between threads"
        )

    @classmethod
    def from_pretrained(
        cls,
        checkpoint: Union[str, os.PathLike],
        data: str = "",
        device: str = "cpu",
        precision: str = "fp32",
        **options,
    ) -> "DocumentTranslator":
        """Load a checkpoint, or several joined by ``:`` as an ensemble.

        By default, the translator takes and returns raw text if ``data`` was made by
        data_prep/prepare.py.  Otherwise it takes and returns text in the form that was given to
        ``fairseq-preprocess``.  With ``tokenizer=None, bpe=None`` it always does the latter.

        Args:
            checkpoint: path of the checkpoint file.
            data: directory with the dictionaries; by default the directory used in training.
            device: where to translate, such as ``cuda`` or ``cuda:1``.
            precision: ``fp32``, ``bf16``, or ``fp16``, which is meant for GPUs.
            **options: options of the task, of text processing and of the search, such as
                ``decoding="window"``, ``lenpen=0.6``, ``tokenizer="moses"``, ``source_lang="de"``,
                ``bpe="subword_nmt"``, ``bpe_codes="codes"`` or ``bpe="sentencepiece"``,
                ``sentencepiece_model="sentencepiece.model"``.

        Raises:
            UserError: a file is missing, an option is unknown or contradicts the checkpoint, or the
                checkpoint is from one of fairseq's multilingual tasks.
        """
        if not isinstance(checkpoint, (str, os.PathLike)):
            raise UserError(f"give the path of a checkpoint, not {checkpoint!r:.40}")
        paths = os.fspath(checkpoint).split(os.pathsep)
        files = [read_translation_model(path) for path in paths]
        _refuse_multilingual(files)
        _refuse_sentence_task_first(files)
        refuse_unknown(options, _options_of(files[0]))
        _refuse_without_effect(options)
        _check_types(options)
        user_dir = options.get("user_dir")
        if user_dir is not None and not os.path.isdir(user_dir):
            raise UserError(f"user_dir {user_dir} not found; give the folder of the package")
        # Training may have read several folders, whose dictionaries are the same.
        data = utils.split_paths(data or files[0].settings["task"]["data"])[0]
        if not os.path.isdir(data):
            raise UserError(f"data directory {data} not found; give the one with the dictionaries")
        TextForm(bpe_codes=options.get("bpe_codes")).check_files()
        pieces = options.get("sentencepiece_model")
        if pieces:
            SentencePieces(SentencepieceConfig(sentencepiece_model=pieces))  # raises if it is none
        try:
            # fairseq resolves a relative path from the directory of the checkpoint.
            loaded = _loaded(files, os.path.abspath(data), options)
        except ValidationError as error:  # of omegaconf
            raise UserError(f"{error.key}: {str(error).splitlines()[0]}") from None
        except RuntimeError as error:
            reason = reason_of(error)
            if reason is None:
                raise
            raise UserError(reason) from None
        for file in files:  # fairseq takes the options of the first
            file.limit_positions(loaded["task"].cfg)
        try:
            hub = hub_utils.GeneratorHubInterface(loaded["args"], loaded["task"], loaded["models"])
            # These refuse what contradicts the checkpoint.
            hub.tokenizer = hub.task.build_tokenizer(hub.cfg.tokenizer)
            hub.bpe = hub.task.build_bpe(hub.cfg.bpe)
        except MissingMandatoryValue as error:  # of omegaconf
            what = FILES_OF_BPE.get(error.key, "a file")
            raise UserError(
                f'bpe="{options.get("bpe")}" needs {error.key}, {what}; give both or neither'
            ) from None
        except OSError as error:  # of --replace-unk, or of a BPE that fairseq downloads
            reason = str(error).splitlines()[0]
            raise UserError(
                f"a file cannot be read ({reason}); check replace_unk and bpe"
            ) from None
        languages = (hub.task.cfg.source_lang, hub.task.cfg.target_lang)
        forms = read_text_forms(data)
        if all(language in forms for language in languages):
            source, target = (forms[language] for language in languages)
            if "tokenizer" not in options:
                hub.tokenizer = _Conversion(
                    source.tokenize(languages[0]), target.detokenize(languages[1])
                )
            if "bpe" not in options:
                hub.bpe = _Conversion(source.segment(), target.join())
        elif not {"tokenizer", "bpe"} & set(options) and hasattr(hub.task, "training_text"):
            hub.task.report_missing_options(None, None)
        return cls(_placed(hub, device, precision))

    def translate(
        self, documents: Iterable[Iterable[str]], beam: Optional[int] = None, **options
    ) -> List[List[str]]:
        """Translate documents.

        Args:
            documents: lists of sentences.
            beam: beam size; by default the size given to :meth:`from_pretrained`, or 5.
            **options: options of the search, such as ``lenpen=0.6`` or ``max_len_b=100``.

        Returns:
            For each document the list of its translated sentences.

        Raises:
            UserError: the documents are not lists of sentences, a sentence is empty (blank lines
                are reserved for document boundaries), or an option is unknown.
        """
        if "nbest" in options:
            raise UserError("translate gives one translation of a sentence; use translate_nbest")
        found = self.translate_nbest(documents, 1, beam, **options)
        return [[best.text for (best, *_) in document] for document in found]

    def translate_nbest(
        self,
        documents: Iterable[Iterable[str]],
        nbest: int,
        beam: Optional[int] = None,
        **options,
    ) -> List[List[List[Translation]]]:
        """Translate documents, and return the best translations of each sentence.

        Args:
            documents, beam, **options: see :meth:`translate`.
            nbest: number of translations per sentence.  If several sentences are translated in one
                output, there can be fewer, as outputs may differ only in the other sentences.

        Returns:
            For each document, a list with the translations of each sentence, the best first.

        Raises:
            UserError: see :meth:`translate`.
        """
        beam = self.hub.cfg.generation.beam if beam is None else beam
        _check_types({"beam": beam, "nbest": nbest})
        if beam >= 1 and not 1 <= nbest <= beam:  # other beams are refused by the task
            raise UserError(f"nbest must be from 1 to the beam size {beam}, got {nbest}")
        self._check_options(options)
        documents = _as_lists(documents)
        if not documents:
            return []
        with self._lock:
            return self._found(documents, beam, nbest, options)

    def _check_options(self, options: dict) -> None:
        """Check the options that are given for a search.

        Raises:
            UserError: an option is unknown, belongs to :meth:`from_pretrained`, or has a value of
                the wrong type.
        """
        cfg = self.hub.cfg
        stock = inspect.signature(self.hub.generate).parameters
        known = {*cfg.generation, *stock}
        for name in options:
            other = name not in known and (name in self.hub.task.cfg or name in cfg.dataset)
            if other and name in _IN_PLACE:
                raise _without_effect(name)
            if other or name in OF_LOADING:
                raise UserError(f"{name} is an option of from_pretrained; give it there")
        refuse_unknown(options, known)
        _check_types(options)

    def _found(self, documents: List[List[str]], beam: int, nbest: int, options: dict) -> list:
        lines = self._tokens_of_lines(documents)
        searched = iter(self.hub.generate(lines, beam=beam, nbest=nbest, **options))
        found = []
        for document in documents:
            hypotheses = islice(searched, len(document))
            found.append([[self._translation(h) for h in best[:nbest]] for best in hypotheses])
            next(searched)  # of the blank line
        return found

    def translate_stream(
        self,
        documents: Iterable[Iterable[str]],
        beam: Optional[int] = None,
        at_once: int = 1,
        **options,
    ) -> Iterator[List[str]]:
        """Translate documents one after another, and yield each of them when it is done.

        Documents are read as they are needed.  For a progress bar, wrap the result in ``tqdm``.

        Args:
            documents, beam, **options: see :meth:`translate`.
            at_once: number of documents to translate side by side; a higher number is faster.

        Yields:
            The list of translated sentences of each document, in the order of the documents.

        Raises:
            UserError: see :meth:`translate`; documents are checked as they are read.
        """
        if not _is_of(at_once, int) or at_once < 1:
            raise UserError(f"at_once must be at least 1 document, got {at_once}")
        remaining = iter(documents)
        while some := list(islice(remaining, at_once)):
            yield from self.translate(some, beam, **options)

    @property
    def target_language(self) -> str:
        """Language of the translations, as named by ``--target-lang``."""
        return self.hub.task.cfg.target_lang

    def fits(self, sentence: str) -> bool:
        """Return whether a sentence is short enough for the model, tags and marks included."""
        return len(self.hub.encode(sentence)) <= min(self.hub.max_positions) - _MARKS

    def tokens_of(self, sentence: str, place: str) -> Tensor:
        """Return the token indices of a sentence as a 1-D tensor that ends in ``</s>``.

        Args:
            sentence: the text.
            place: where the sentence stands, as a phrase for error messages.

        Raises:
            UserError: the sentence has no words after tokenization, is not valid Unicode, or has a
                special symbol of the model as a word.
        """
        check_unicode(sentence, place)
        tokens = self.hub.encode(sentence)
        Symbols.of_task(self.hub.task, self.hub.src_dict).check(tokens[:-1], place)
        if len(tokens) <= BLANK_SIZE:
            raise UserError(
                f"{place} ({sentence!r:.40}) has no words after tokenization; leave it out"
            )
        return tokens

    def _tokens_of_lines(self, documents: List[List[str]]) -> List[Tensor]:
        """Return the token indices of all sentences, with a blank line after each document.

        A blank line is ``</s>`` alone.

        Raises:
            UserError: see :meth:`tokens_of`.
        """
        tokens = []
        for number, document in enumerate(documents, start=1):
            for position, sentence in enumerate(document, start=1):
                place = f"document {number}, sentence {position}"
                tokens.append(self.tokens_of(sentence, place))
            tokens.append(self.hub.encode(""))
        return tokens

    def _translation(self, hypothesis: dict) -> Translation:
        pairs = hypothesis.get("alignment")
        is_hard = pairs is not None and len(pairs) > 0 and isinstance(pairs[0], tuple)
        return Translation(
            self.hub.decode(hypothesis["tokens"]),
            float(hypothesis["score"]) / math.log(2),
            (hypothesis["positional_scores"] / math.log(2)).tolist(),
            [(int(i), int(j)) for i, j in pairs] if is_hard else None,
        )


def _check_types(options: dict) -> None:
    """Check that the value of each option has the right type or is one of the option's choices.

    Raises:
        UserError: a value is invalid; the message names its option.
    """
    configs = GenerationConfig, DatasetConfig, CommonConfig
    types = {field.name: field.type for one in configs for field in dataclasses.fields(one)}
    registered = {
        kind: sorted(registry.REGISTRIES[kind]["registry"]) for kind in ("tokenizer", "bpe")
    }
    for name, value in options.items():
        choices = registered.get(name) or _choices_of(types.get(name))
        if choices and value is not None and value not in choices:
            known = " or ".join(f'"{choice}"' for choice in choices)
            raise UserError(f"{name} must be {known}, got {value!r}")
        wanted = _WANTED.get(types.get(name))
        if wanted and not _is_of(value, types[name]):
            raise UserError(f"{name} must be {wanted}, got {value!r}")


def _choices_of(kind) -> List[str]:
    """Return the choices of an option whose type is an ``Optional`` enumeration.

    For any other type, the list is empty.
    """
    types = (each for each in get_args(kind) if isinstance(each, type) and issubclass(each, Enum))
    return [choice.value for each in types for choice in each]


def _is_of(value, kind) -> bool:
    """Return whether a value is of the type ``kind`` of an option; an int is also a float."""
    if kind is bool:
        return isinstance(value, bool)
    if value is None:
        return kind in (Optional[int], Optional[float])
    numbers = (int,) if kind in (int, Optional[int]) else (int, float)
    return isinstance(value, numbers) and not isinstance(value, bool)


def _loaded(files: List[CheckpointFile], data: str, options: dict) -> dict:
    """Load checkpoints as an ensemble, as fairseq does.

    Args:
        files: checkpoints of the ensemble.
        data: directory with the dictionaries.
        options: options that replace the options of training.

    Returns:
        A dict with ``args``, ``task`` and ``models``, as from fairseq's hub.
    """
    paths = [os.path.abspath(file.path) for file in files]
    options = {"no_progress_bar": True, **options}
    trained = files[0].settings["task"]
    if "drafts" in trained:  # of the training text
        options.update(drafts=None, gold_drafts=False)
    if files[0].task == trained["_name"]:
        return hub_utils.from_pretrained(
            os.path.dirname(paths[0]), os.pathsep.join(paths), data, **options
        )
    options["data"] = data
    known = {name: value for name, value in options.items() if name in trained}
    # With the other groups of options, because task options take values from them.
    whole = OmegaConf.structured(FairseqConfig)
    whole.task = {**trained, **known, "_name": files[0].task}
    task = tasks.setup_task(whole.task, from_checkpoint=True)
    models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(paths, options, task)
    return {"args": cfg, "task": task, "models": models}


def _placed(hub, device: str, precision: str):
    """Move a hub interface to a device and convert it to the given precision.

    Raises:
        UserError: there is no such device or precision.
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision must be {' or '.join(PRECISIONS)}, got {precision!r}")
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("tensors have no values there")
        return hub.to(torch.device(device), PRECISIONS[precision])
    except (RuntimeError, AssertionError) as error:
        raise UserError(
            f"device {device} cannot be used ({str(error).splitlines()[0]}); give cpu, or cuda "
            "where torch has a GPU"
        ) from None


def _as_lists(documents: Iterable[Iterable[str]]) -> List[List[str]]:
    """Return documents as lists of sentences.

    Raises:
        UserError: the input is not a collection of documents, a document is not a collection of
            strings, or a sentence is empty.
    """
    if isinstance(documents, (str, Mapping, AbstractSet)) or not isinstance(documents, Iterable):
        raise UserError(
            f"give a list of documents, each a list of sentences, not {documents!r:.40}"
        )
    found = []
    for number, document in enumerate(documents, start=1):
        if isinstance(document, (str, Mapping, AbstractSet)) or not isinstance(document, Iterable):
            raise UserError(
                f"document {number} is {document!r:.40}; a document is a list of sentences, so "
                "translate a single one as [[sentence, sentence]]"
            )
        found.append(list(document))
        for position, sentence in enumerate(found[-1], start=1):
            place = f"document {number}, sentence {position}"
            if not isinstance(sentence, str):
                raise UserError(f"{place} is {sentence!r:.40}; give a string")
            if not sentence.strip():
                raise UserError(f"{place} is empty; leave it out")
    return found


def _options_of(file: CheckpointFile) -> set:
    """Return the names of all options that :meth:`DocumentTranslator.from_pretrained` takes.

    They depend on the task of the checkpoint and on the options stored in it.
    """
    names = {*_WITH_EFFECT, "generation_args", *file.settings}
    names.update(*file.settings.values())
    classes = [tasks.TASK_DATACLASS_REGISTRY.get(file.task)]
    for kind in ("tokenizer", "bpe"):
        names.add(kind)
        classes += registry.REGISTRIES[kind]["dataclass_registry"].values()
    names.update(field.name for one in filter(None, classes) for field in dataclasses.fields(one))
    return names


def _refuse_without_effect(options: Iterable[str]) -> None:
    """Refuse options of training and of fairseq's commands, which have no effect in Python.

    Raises:
        UserError: an option has no effect; the message says what to use instead.
    """
    configs = (*_ELSEWHERE, FairseqConfig)
    names = {field.name for config in configs for field in dataclasses.fields(config)}
    names = {*names, "arch", *_IN_PLACE} - {*_WITH_EFFECT}
    for name in options:
        if name == "max_target_positions":  # fairseq would change the model
            raise UserError(
                f"{name} is that of training and has no effect here; to limit translations give "
                "max_len_b"
            )
        if name in names:
            raise _without_effect(name)


def _without_effect(name: str) -> UserError:
    fix = _IN_PLACE.get(name, "leave it out")
    return UserError(f"{name} is for the commands and has no effect here; {fix}")


def _refuse_multilingual(files: List[CheckpointFile]) -> None:
    for file in files:
        if file.task in (*MBART25_TASKS, MULTILINGUAL_TASK):
            raise UserError(
                f"{file.path} was trained with --task {file.task}, whose language tags are not "
                "known here; finetune it first (--finetune-from-model), or give it to "
                "fairseq-generate --task sliding_window_translation --window-size 1, which can "
                "also score references (--score-reference)"
            )


def _refuse_sentence_task_first(files: List[CheckpointFile]) -> None:
    # The first checkpoint's task translates.
    for number, file in enumerate(files, start=1):
        if files[0].task == "translation" != file.task:
            raise UserError(
                "checkpoints of one ensemble must agree in --task: number 1 was trained with "
                f"translation, number {number} with {file.task}; give number {number} first, or "
                "leave one out"
            )
