"""Python interface for translating documents with a checkpoint."""

import inspect
import math
import os
import threading
from itertools import islice
from typing import (
    AbstractSet,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
    Union,
)

from fairseq import hub_utils
from torch import Tensor

from fairseq_docmt.data.text_checks import Symbols, check_unicode
from fairseq_docmt.document_index import BLANK_SIZE
from fairseq_docmt.errors import UserError, refuse_unknown
from fairseq_docmt.generation.hub import IN_PLACE, check_types, is_of, load_hub, without_effect

#: number of tokens that tags and marks may add to a sentence
_MARKS = 4


class Translation(NamedTuple):
    """One translation of a sentence, an entry of its n-best list.

    Attributes:
        text: the translation.
        score: score of the translation, in base 2 as printed by ``fairseq-generate``.
        token_scores: scores of the subwords and of the end of the sentence, in base 2.
        alignment: with ``print_alignment="hard"``, the aligned pairs (source position, target
            position) of subwords, counted from 0; None if there are none.  Words that attend most
            to another sentence have no link.
    """

    text: str
    score: float
    token_scores: List[float]
    alignment: Optional[List[Tuple[int, int]]]


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
        data: Union[str, os.PathLike] = "",
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
        return cls(load_hub(checkpoint, data, device, precision, options))

    def translate(
        self, documents: Iterable[Iterable[str]], beam: Optional[int] = None, **options
    ) -> List[List[str]]:
        """Translate documents.

        Args:
            documents: lists of sentences.
            beam: beam size; by default the size given to :meth:`from_pretrained`, or 5.  With
                ``sampling`` it is the number of samples, of which all are returned, so that it
                must be 1 here, its default then.
            **options: options of the search, such as ``lenpen=0.6`` or ``max_len_b=100``.

        Returns:
            For each document the list of its translated sentences.

        Raises:
            UserError: the documents are not lists of sentences, a sentence is empty (blank lines
                are reserved for document boundaries), or an option is unknown.
        """
        return self._best(documents, beam, options)

    def _best(self, documents, beam: Optional[int], options: dict, first: int = 1):
        """Return the best translations of documents; see :meth:`_nbest`."""
        if "nbest" in options:
            raise UserError("translate gives one translation of a sentence; use translate_nbest")
        if options.get("print_alignment") in ("hard", "soft"):
            raise UserError("translate gives no alignments; use translate_nbest")
        found = self._nbest(documents, 1, beam, options, first)
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
        return self._nbest(documents, nbest, beam, options)

    def _nbest(self, documents, nbest: int, beam: Optional[int], options: dict, first: int = 1):
        """Translate documents, of which the first has the number ``first`` in messages."""
        generation = self.hub.cfg.generation
        samples = options.get("sampling", generation.sampling)
        if beam is None:
            beam = nbest if samples else generation.beam
        check_types({"beam": beam, "nbest": nbest})
        if samples and beam != nbest:
            raise UserError(
                f"sampling draws as many translations as the beam size, {beam}, and keeps the "
                f"likeliest {nbest}; give both numbers equal, or no beam size"
            )
        if beam >= 1 and not 1 <= nbest <= beam:  # other beams are refused by the task
            raise UserError(f"nbest must be from 1 to the beam size {beam}, got {nbest}")
        self._check_options(options)
        documents = _as_lists(documents, first)
        if not documents:
            return []
        with self._lock:
            lines = self._tokens_of_lines(documents, first)
            searched = iter(self.hub.generate(lines, beam=beam, nbest=nbest, **options))
            found = []
            for document in documents:
                hypotheses = islice(searched, len(document))
                found.append([[self._translation(h) for h in best[:nbest]] for best in hypotheses])
                next(searched)  # of the blank line
        return found

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
            if other and name in IN_PLACE:
                raise without_effect(name)
            if other or name in OF_LOADING:
                raise UserError(f"{name} is an option of from_pretrained; give it there")
        refuse_unknown(options, known)
        check_types(options)
        if options.get("print_alignment") == "soft":
            raise UserError('print_alignment must be "hard" here, as translations have no weights')

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
        if not is_of(at_once, int) or at_once < 1:
            raise UserError(f"at_once must be a whole number from 1, got {at_once!r}")
        remaining, first = iter(documents), 1
        while some := list(islice(remaining, at_once)):
            yield from self._best(some, beam, options, first)
            first += len(some)

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

    def _tokens_of_lines(self, documents: List[List[str]], first: int) -> List[Tensor]:
        """Return the token indices of all sentences, with a blank line after each document.

        A blank line is ``</s>`` alone.

        Args:
            documents: lists of sentences.
            first: number of the first document, for error messages.

        Raises:
            UserError: see :meth:`tokens_of`.
        """
        tokens = []
        for number, document in enumerate(documents, start=first):
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


def _as_lists(documents: Iterable[Iterable[str]], first: int) -> List[List[str]]:
    """Return documents as lists of sentences.

    Args:
        documents: documents, as the user gave them.
        first: number of the first document, for error messages.

    Raises:
        UserError: the input is not a collection of documents, a document is not a collection of
            strings, or a sentence is empty.
    """
    if isinstance(documents, (str, Mapping, AbstractSet)) or not isinstance(documents, Iterable):
        raise UserError(
            f"give a list of documents, each a list of sentences, not {documents!r:.40}"
        )
    found = []
    for number, document in enumerate(documents, start=first):
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
