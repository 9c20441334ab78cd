"""Python interface to document translation."""

import dataclasses
import difflib
import inspect
import os
from typing import Callable, Iterable, List, NamedTuple, Sequence

from fairseq import hub_utils, registry, tasks
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceConfig

from fairseq_docmt.checkpoint_file import CheckpointFile, read_checkpoint
from fairseq_docmt.data.text_form import SentencePieces, read_text_forms
from fairseq_docmt.errors import UserError


class _Conversion(NamedTuple):
    """Tokenizer or BPE in the form that the hub interface calls."""

    encode: Callable[[str], str]
    decode: Callable[[str], str]


class DocumentTranslator:
    """Translator of documents, given as lists of sentences, with a checkpoint.

    It wraps the stock hub interface of fairseq; the output is that of ``fairseq-generate`` with the
    same options.

    Args:
        hub: stock hub interface with a model of a document task.
    """

    def __init__(self, hub: hub_utils.GeneratorHubInterface):
        self.hub = hub

    @classmethod
    def from_pretrained(cls, checkpoint: str, data: str = "", **options) -> "DocumentTranslator":
        """Load a checkpoint, or several joined by ``:`` as an ensemble.

        Args:
            checkpoint: path of the checkpoint file.
            data: directory with the dictionaries; by default the one of training.
            **options: options of the task and of text processing, such as ``decoding="window"``,
                ``tokenizer="moses"``, ``source_lang="de"``, ``bpe="subword_nmt"``,
                ``bpe_codes="codes"`` or ``bpe="sentencepiece"``,
                ``sentencepiece_model="sentencepiece.model"``.  By default ``translate`` takes and
                returns raw text if ``data`` was made by data_prep/prepare.py; with
                ``tokenizer=None, bpe=None``, and for other data, text in the form of the input of
                ``fairseq-preprocess``.

        Raises:
            UserError: a file is missing, or an option is unknown or contradicts the checkpoint.
        """
        paths = checkpoint.split(os.pathsep)
        files = [read_checkpoint(path) for path in paths]
        _refuse_unknown(options, _options_of(files[0]))
        data = data or files[0].settings["task"]["data"]
        if not os.path.isdir(data):
            raise UserError(f"data directory {data} not found; give the one with the dictionaries")
        codes = options.get("bpe_codes")
        if codes and not os.path.isfile(codes):
            raise UserError(f"BPE codes {codes} not found")
        pieces = options.get("sentencepiece_model")
        if pieces:
            SentencePieces(SentencepieceConfig(sentencepiece_model=pieces))  # raises if it is none
        # fairseq resolves a relative path from the directory of the checkpoint.
        loaded = hub_utils.from_pretrained(
            os.path.dirname(os.path.abspath(paths[0])),
            os.pathsep.join(os.path.abspath(path) for path in paths),
            os.path.abspath(data),
            **{"no_progress_bar": True, **options},
        )
        hub = hub_utils.GeneratorHubInterface(loaded["args"], loaded["task"], loaded["models"])
        # These refuse what contradicts the checkpoint.
        hub.tokenizer = hub.task.build_tokenizer(hub.cfg.tokenizer)
        hub.bpe = hub.task.build_bpe(hub.cfg.bpe)
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
        return cls(hub)

    def translate(
        self, documents: Sequence[Sequence[str]], beam: int = 5, **options
    ) -> List[List[str]]:
        """Translate documents.

        Args:
            documents: lists of sentences.
            beam: beam size.
            **options: generation options, such as ``lenpen=0.6`` or ``max_len_b=100``.

        Returns:
            For each document a list with as many sentences.

        Raises:
            UserError: the documents are not lists of sentences, a sentence is empty (blank lines
                are reserved for document boundaries), or an option is unknown.
        """
        stock = inspect.signature(self.hub.generate).parameters
        _refuse_unknown(options, {*self.hub.cfg.generation, *stock})
        documents = _as_lists(documents)
        lines = [line for document in documents for line in (*document, "")]
        if not lines:
            return []
        translated = self.hub.translate(lines, beam=beam, **options)
        results, start = [], 0
        for document in documents:
            results.append(translated[start : start + len(document)])
            start += len(document) + 1
        return results


def _as_lists(documents: Iterable[Iterable[str]]) -> List[List[str]]:
    """Return documents as lists of sentences.

    Raises:
        UserError: they are something else, or a sentence is empty.
    """
    if isinstance(documents, str):
        raise UserError("give a list of documents, each a list of sentences, not a single string")
    found = []
    for number, document in enumerate(documents, start=1):
        if isinstance(document, str) or not isinstance(document, Iterable):
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
    """Return the names of all options that can be given for a checkpoint."""
    names = {"user_dir", "generation_args", *file.settings}
    names.update(*file.settings.values())
    classes = [tasks.TASK_DATACLASS_REGISTRY.get(file.task)]
    for kind in ("tokenizer", "bpe"):
        classes += registry.REGISTRIES[kind]["dataclass_registry"].values()
    names.update(field.name for one in filter(None, classes) for field in dataclasses.fields(one))
    return names


def _refuse_unknown(options: dict, known: set) -> None:
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            fix = f"do you mean {close[0]}?" if close else "leave it out"
            raise UserError(f"unknown option {name}; {fix}")
