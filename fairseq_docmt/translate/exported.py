"""Translation with CTranslate2, using a model written by ``export-ctranslate2``."""

import logging
import math
import os
from dataclasses import dataclass, field
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.errors import UserError, flag, refuse_unknown
from fairseq_docmt.readers.files import read_text
from fairseq_docmt.readers.record_files import parsed_json
from fairseq_docmt.spans import part_spans
from fairseq_docmt.symbols import BEGIN_OF_DOCUMENT, complaint, first_reserved
from fairseq_docmt.text_form import FILE, TextForm, checksum, read_text_forms

logger = logging.getLogger(__name__)

#: file of an exported model
INFO = "document_model.json"
#: option of fairseq -> option of the engine
SEARCH = {"lenpen": "length_penalty", "no_repeat_ngram_size": "no_repeat_ngram_size"}
SEARCH = {**SEARCH, "max_len_b": "max_decoding_length"}
#: options that are whole numbers -> the least value
LEAST = {"beam": 1, "nbest": 1, "max_len_b": 1, "no_repeat_ngram_size": 0}
#: decodings of models of windows and of documents, the default first
OF_WINDOWS, OF_DOCUMENTS = ("sequential", "window"), ("segment", "sequential")
END, PADDING = "</s>", "<blank>"


def ctranslate2():
    """Return the module ctranslate2, an optional dependency that is imported only when needed.

    Raises:
        UserError: it is not installed.
    """
    try:
        import ctranslate2 as engine
    except ImportError as error:
        raise UserError(
            f"exported models need ctranslate2 ({error}); pip install 'fairseq-docmt[ctranslate2]'"
        ) from None
    return engine


@dataclass
class ExportedModel:
    """Languages, window sizes, special words and length limits of an exported model.

    Attributes:
        source_lang, target_lang: languages of source and translation.
        window_size, next_sentences: values of ``--window-size`` and ``--next-sentences`` in
            training; ``window_size`` is None for a model trained on whole documents.
        separator: word between sentences.
        document_start: word before the first sentence of a document; None if the model has none.
        max_tokens: maximum number of tokens that the model can read or write.
        max_document_tokens: number of target tokens above which a document is cut into parts; None
            for a model of windows.
        target_ratio: target tokens per source token, by which target lengths are estimated.
        has_text_form: whether the folder says how raw text becomes words.
        checksums: file of the folder -> its checksum; the parameters have none.
    """

    source_lang: str
    target_lang: str
    window_size: Optional[int]
    next_sentences: int
    separator: str
    document_start: Optional[str]
    max_tokens: int
    max_document_tokens: Optional[int] = None
    target_ratio: float = 1.0
    has_text_form: bool = False
    checksums: Dict[str, str] = field(default_factory=dict)


def has_gpu() -> bool:
    """Return whether CTranslate2 finds a GPU."""
    return ctranslate2().get_cuda_device_count() > 0


class Found(NamedTuple):
    """A translation of a sentence.

    Attributes:
        text: the translation.
        score: log-probability to base 2, normalised for length.  If several sentences are
            translated as one sequence, it is that of the sequence.
    """

    text: str
    score: float


def is_exported(path: str) -> bool:
    """Return whether a path is the folder of an exported model."""
    return os.path.isfile(os.path.join(path, INFO))


def read_info(folder: str) -> ExportedModel:
    """Read the description of an exported model from its folder, and check the other files.

    Raises:
        UserError: the description is damaged, or a file has changed.
    """
    path = os.path.join(folder, INFO)
    try:
        info = ExportedModel(**parsed_json(read_text(path), path))
        checksums = dict(info.checksums)
    except (TypeError, ValueError):
        raise UserError(f"{path} is damaged; export the model again") from None
    for name, wanted in checksums.items():
        path = os.path.join(folder, name)
        if os.path.isfile(path) and checksum(path) != wanted:  # missing files are named later
            raise UserError(f"{path} is not as it was exported; export the model again")
    return info


class ExportedTranslator:
    """Translator of documents with an exported model, without fairseq and torch.

    Args:
        folder: folder of the model.
        decoding: ``sequential`` (default) or ``window``; for a model of whole documents,
            ``segment`` (default) or ``sequential``.
        device: ``cpu``, ``cuda``, or a specific GPU, such as ``cuda:1``.
        precision: number format of the computation (``compute_type`` of CTranslate2): ``fp16``,
            ``bf16``, or ``fp32`` for the format in which the model was exported.
        batch_size: maximum number of model inputs in a batch; None to limit their tokens instead.
        max_tokens: maximum number of source tokens in a batch, used if ``batch_size`` is None.
        data: must be empty, as the folder has the vocabularies.
        **search: options of the search for all translations; see :meth:`translate_nbest`.

    Raises:
        UserError: an option is unknown or does not suit the model, or ctranslate2 is missing.
    """

    def __init__(
        self,
        folder: str,
        decoding: Optional[str] = None,
        device: str = "cpu",
        precision: str = "fp32",
        batch_size: Optional[int] = None,
        max_tokens: int = 4000,
        data: str = "",
        **search,
    ):
        refuse_unknown(search, ("decoding", *SEARCH), " with an exported model")
        if data:
            raise UserError("--data is of no use with an exported model; leave it out")
        for name, value in (("batch-size", batch_size), ("max-tokens", max_tokens)):
            if value is not None and value < 1:
                raise UserError(f"--{name} must be at least 1, got {value}")
        self._model = read_info(folder)
        decodings = OF_DOCUMENTS if self._model.window_size is None else OF_WINDOWS
        if decoding not in (None, *decodings):
            raise UserError(
                f"--decoding {decoding} cannot be had of this exported model; give "
                f"{' or '.join(decodings)}"
            )
        self._decoding = decoding or decodings[0]
        self._refuse_blocking(search)
        self._search = search
        self._engine = _engine(folder, device, precision)
        #: number of translations in the latest call that have reached their length limit
        self._at_limit = 0
        #: words that no translation has
        self._never = [[BEGIN_OF_DOCUMENT]]
        self._batch = {"max_batch_size": batch_size or max_tokens}
        self._batch["batch_type"] = "examples" if batch_size else "tokens"
        forms = read_text_forms(folder)
        if self._model.has_text_form and not forms:
            raise UserError(f"{os.path.join(folder, FILE)} not found; export the model again")
        source, target = (
            forms.get(language, TextForm())
            for language in (self._model.source_lang, self._model.target_lang)
        )
        self._encode = source.encoder(self._model.source_lang)
        detokenize, join = target.detokenize(self._model.target_lang), target.join()
        self._decode = lambda words: detokenize(join(" ".join(words)))

    @property
    def target_language(self) -> str:
        """Code of the target language, such as ``de``."""
        return self._model.target_lang

    def words_of(self, sentence: str) -> List[str]:
        """Return the subwords of a raw sentence; an empty list if tokenization leaves nothing.

        A word with the name of CTranslate2's padding is unknown to the model.
        """
        words = self._encode(sentence).split()
        return ["<unk>" if word == PADDING else word for word in words]

    def tokens_of(self, sentence: str, place: str) -> List[str]:
        """Return the subwords of a raw sentence, after checking that it can be translated.

        Args:
            sentence: raw sentence.
            place: location of the sentence, for error messages.

        Raises:
            UserError: the sentence has no words after tokenization, or one of its words is a
                special symbol of the model.
        """
        words = self.words_of(sentence)
        if not words:
            raise UserError(
                f"{place} ({sentence!r:.40}) has no words after tokenization; leave it out"
            )
        reserved = first_reserved(words)
        if reserved is not None:
            raise UserError(f"{complaint(place, reserved)}; write it differently")
        return words

    def fits(self, sentence: str) -> bool:
        """Return whether a sentence is short enough for the model."""
        return len(self.words_of(sentence)) + 2 <= self._model.max_tokens

    def translate_nbest(
        self, documents: List[List[str]], nbest: int, beam: Optional[int] = None, **options
    ) -> List[List[List[Found]]]:
        """Translate documents, and return the best translations of each sentence.

        The interface is that of :meth:`DocumentTranslator.translate_nbest`.

        Args:
            documents: lists of sentences.
            nbest: number of translations of a sentence.
            beam: beam size, 5 by default.
            **options: options of the search: ``lenpen``, ``no_repeat_ngram_size``, ``max_len_b``.

        Returns:
            For each sentence of each document, up to ``nbest`` translations, the best first.

        Raises:
            UserError: an option is given that exported models do not have, or has an impossible
                value.
        """
        refuse_unknown(options, SEARCH, " with an exported model")
        self._refuse_blocking(options)
        beam = 5 if beam is None else beam
        _check_values({**self._search, **options, "beam": beam, "nbest": nbest})
        search = {SEARCH[name]: value for name, value in {**self._search, **options}.items()}
        search = {"max_decoding_length": 200, **search, **self._batch}
        search.update(beam_size=beam, num_hypotheses=nbest, return_scores=True)
        words = [[self.words_of(sentence) for sentence in document] for document in documents]
        decode = self._sequential if self._decoding == "sequential" else self._jointly
        self._at_limit = 0
        found = decode(words, search)
        if self._at_limit:
            logger.warning(
                "translations that end because they reached the length limit (--max-len-b) or the "
                "last target position of the model: %d",
                self._at_limit,
            )
        return found

    def _refuse_blocking(self, options: dict) -> None:
        """Refuse ``no_repeat_ngram_size`` if the model reads several sentences as one sequence.

        CTranslate2 would then also forbid n-grams of the other sentences of a window or document.

        Raises:
            UserError: the option is given to such a model.
        """
        if options.get("no_repeat_ngram_size") and self._model.window_size != 1:
            raise UserError(
                "--no-repeat-ngram-size would also forbid what other sentences say, because this "
                "exported model reads several; leave it out, or translate with the checkpoint"
            )

    # ---- spans ---------------------------------------------------------------------------------

    def _source(self, document: List[List[str]], first: int, place: int) -> List[str]:
        """Return the model input for consecutive sentences of a document, as one list of subwords.

        Sentences ``first`` to ``place`` (inclusive), and those of the ``next_sentences`` after them
        that fit the model, are joined by separators.  At the start of a document, ``<bod>`` is
        prepended if the model has it.
        """
        end = min(place + 1 + self._model.next_sentences, len(document))
        while end > place + 1 and not self._has_room(document, first, end):
            end -= 1
        return self._joined(document, first, end)

    def _has_room(self, document: List[List[str]], first: int, end: int) -> bool:
        return len(self._joined(document, first, end)) < self._model.max_tokens

    def _joined(self, document: List[List[str]], first: int, end: int) -> List[str]:
        joined: List[str] = []
        for sentence in document[first:end]:
            joined += [self._model.separator, *sentence] if joined else sentence
        return [*self._start(first), *joined]

    def _start(self, first: int) -> List[str]:
        """Return ``['<bod>']`` if sentence ``first`` begins the document, else ``[]``.

        The list is always empty if the model does not have this word.
        """
        return [self._model.document_start] if self._model.document_start and first == 0 else []

    def _spans(self, document: List[List[str]]) -> List[Tuple[int, int]]:
        """Return the spans of sentences of a document that are translated as one sequence each.

        For a window model, there is one window per sentence, which ends with that sentence.  For a
        whole-document model, a document is one sequence, or is cut into parts if it is too long.

        Returns:
            (first, end) of each window or part: the index of its first sentence and its exclusive
            end.
        """
        if self._model.window_size is not None:
            return [(self._first(document, place), place + 1) for place in range(len(document))]
        sizes = np.array([len(sentence) + 1 for sentence in document])
        index = DocumentIndex.from_sizes(sizes)
        length = (sizes * self._model.target_ratio, self._model.max_document_tokens)
        most = self._model.max_tokens - bool(self._model.document_start)
        return [(int(a), int(b)) for a, b in part_spans(index, length, [(sizes, most)])]

    def _first(self, document: List[List[str]], place: int) -> int:
        """Return the index of the sentence at which the window of sentence ``place`` begins.

        The window ends with this sentence.  It is the longest one that fits the model and has at
        most ``window_size`` sentences.
        """
        first = max(0, place + 1 - self._model.window_size)
        while first < place and not self._has_room(document, first, place + 1):
            first += 1
        return first

    def _begins(self, document: List[List[str]]) -> List[int]:
        """Return, for each sentence, the index of the first sentence of its window or part."""
        spans = self._spans(document)
        if self._model.window_size is not None:
            return [first for first, _ in spans]
        return [first for first, end in spans for _ in range(first, end)]

    # ---- decodings -----------------------------------------------------------------------------

    def _jointly(self, documents, search: dict) -> List[List[List[Found]]]:
        """Translate each window or part of a document as one sequence.

        Of a window, only the translation of the last sentence is kept; of a part of a document, all
        are kept.  If the best output has the wrong number of sentences, the window or part is
        translated again, sentence by sentence.

        Args:
            documents: subwords of all sentences.
            search: arguments for CTranslate2's ``translate_batch``.

        Returns:
            For each sentence of each document, its translations, the best first.
        """
        keeps_last = self._model.window_size is not None
        spans = [(d, *span) for d, words in enumerate(documents) for span in self._spans(words)]
        sources = [self._source(documents[d], first, end - 1) for d, first, end in spans]
        starts = [self._start(first) for _, first, _ in spans]
        # Of a long output, worse and shorter hypotheses are finished first.
        patience = 1 if keeps_last else 2

        def translate(rows: List[int], limit: int) -> list:
            return self._engine.translate_batch(
                [sources[row] for row in rows],
                target_prefix=[starts[row] for row in rows],
                suppress_sequences=self._never,
                patience=patience,
                **{**search, "max_decoding_length": limit},
            )

        # As in fairseq, the limit of the search is that of a single sentence.
        limits = [
            min(
                len(start) + search["max_decoding_length"] * (end - first),
                self._model.max_tokens - 1,
            )
            for start, (_, first, end) in zip(starts, spans)
        ]
        results = self._within_limits(translate, limits)
        found: List[list] = [[[] for _ in document] for document in documents]
        again = []
        for span, start, limit, result in zip(spans, starts, limits, results):
            d, first, end = span
            outputs = [
                (_split(words[len(start) :], self._model.separator), score)
                for words, score in zip(result.hypotheses, result.scores)
            ]
            if len(outputs[0][0]) != end - first:
                again.append(span)
                continue
            self._at_limit += len(result.hypotheses[0]) >= limit
            for place in range(end - 1 if keeps_last else first, end):
                found[d][place] = self._different(
                    (sentences[place - first], score)
                    for sentences, score in outputs
                    if len(sentences) == end - first
                )
        for (d, first, end), best in zip(again, self._forced(documents, again, search)):
            for place in range(end - 1 if keeps_last else first, end):
                found[d][place] = best[place - first]
        return found

    def _different(self, outputs) -> List[Found]:
        """Return the translations of a sentence without duplicates, in the given order.

        Args:
            outputs: pairs of the subwords of a translation and its score, the best first.
        """
        best = {}
        for words, score in outputs:
            best.setdefault(tuple(words), score)
        return [self._found(list(words), score) for words, score in best.items()]

    def _forced(self, documents, spans: list, search: dict) -> List[List[List[Found]]]:
        """Translate windows or parts sentence by sentence, so that no sentence lacks a translation.

        This is done where the output for a window or part of a document had a wrong number of
        sentences.

        Args:
            documents: subwords of all sentences.
            spans: document index, first sentence and (exclusive) end of each window or part.
            search: arguments for CTranslate2's ``translate_batch``.

        Returns:
            For each window or part, the translations of each of its sentences, the best first.
        """
        sources = [self._source(documents[d], first, end - 1) for d, first, end in spans]
        counts = [end - first for _, first, end in spans]
        written: List[list] = [[] for _ in spans]
        results: List[list] = [[] for _ in spans]
        for number in range(1, max(counts, default=0) + 1):
            for is_last in (False, True):
                active = [
                    i
                    for i, count in enumerate(counts)
                    if number <= count and (number == count) == is_last
                ]
                prefixes = [self._prefix(spans[i][1], written[i]) for i in active]
                left = [
                    max(1, self._room(prefix) // (counts[i] - number + 1))
                    for i, prefix in zip(active, prefixes)
                ]
                some = [sources[i] for i in active]
                for i, best in zip(active, self._sentences(some, prefixes, left, is_last, search)):
                    written[i].append(best[0][0])
                    results[i].append([self._found(*each) for each in best])
        return results

    def _sequential(self, documents, search: dict) -> List[List[List[Found]]]:
        """Translate documents sentence by sentence, with the earlier translations as prefix.

        Args:
            documents: subwords of all sentences.
            search: arguments for CTranslate2's ``translate_batch``.

        Returns:
            For each sentence of each document, its translations, the best first.
        """
        found: List[list] = [[] for _ in documents]
        written: List[list] = [[] for _ in documents]
        begins = [self._begins(document) for document in documents]
        for place in range(max(map(len, documents), default=0)):
            active = [d for d, document in enumerate(documents) if place < len(document)]
            for d in active:
                self._make_room(documents[d], written[d], begins[d], place, search)
            firsts = [begins[d][place] for d in active]
            sources = [self._source(documents[d], f, place) for d, f in zip(active, firsts)]
            prefixes = [self._prefix(f, written[d][f:]) for d, f in zip(active, firsts)]
            left = [self._room(prefix) for prefix in prefixes]
            for d, best in zip(active, self._sentences(sources, prefixes, left, True, search)):
                written[d].append(best[0][0])
                found[d].append([self._found(*each) for each in best])
        return found

    def _room(self, prefix: List[str]) -> int:
        """Return the number of words that the model can write after a prefix, at least 1."""
        return max(1, self._model.max_tokens - 1 - len(prefix))

    def _make_room(self, document, written, begins: List[int], place: int, search: dict) -> None:
        """Shorten the context of a sentence if too little room is left for its translation.

        As in fairseq, a window loses its oldest sentences, and in a document a new part begins.

        Args:
            document: subwords of its sentences.
            written: translations of the preceding sentences, as subwords.
            begins: first sentence of the window or part of each sentence; changed in place.
            place: index of the sentence.
            search: arguments for CTranslate2's ``translate_batch``.
        """
        # Few translations are longer.
        wanted = min(search["max_decoding_length"], 2 * len(document[place]) + 10)
        first = old = begins[place]
        while first < place and self._room(self._prefix(first, written[first:])) < wanted:
            first = first + 1 if self._model.window_size is not None else place
        if first != old and self._model.window_size is None:
            begins[place:] = [first if begin == old else begin for begin in begins[place:]]
        begins[place] = first

    def _sentences(self, sources, prefixes, left, is_last: bool, search: dict) -> List[list]:
        """Translate the next sentence of each source, continuing the translation so far.

        Args:
            sources: subwords of windows or parts of documents.
            prefixes: subwords of the translations so far.
            left: for each source, maximum number of words of the sentence; the limit in ``search``
                applies as well.
            is_last: True if the sentences are the last of their sources, so that their translations
                end with ``</s>``; False if they end with a separator.
            search: arguments for CTranslate2's ``translate_batch``.

        Returns:
            For each source, the translations of the sentence as (subwords, score), the best first.
        """
        end, other = END, self._model.separator
        if not is_last:
            end, other = other, end

        def translate(rows: List[int], limit: int) -> list:
            return self._engine.translate_batch(
                [sources[row] for row in rows],
                target_prefix=[prefixes[row] for row in rows],
                end_token=end,
                # The engine counts the prefix as words, so that the first one could be the end.
                suppress_sequences=[[other], [self._model.separator, end], *self._never],
                # With the prefix in their lengths, the first finished hypotheses need not be the
                # best.
                patience=2,
                **{
                    **search,
                    "num_hypotheses": search["beam_size"],
                    "max_decoding_length": limit,
                },
            )

        most = search["max_decoding_length"]
        limits = [
            min(len(prefix) + min(most, room), self._model.max_tokens - 1)
            for prefix, room in zip(prefixes, left)
        ]
        results = self._within_limits(translate, limits)
        ranked = [
            self._ranked(result, len(prefix), search) for prefix, result in zip(prefixes, results)
        ]
        if is_last or self._model.window_size is None:  # earlier sentences of windows are context
            self._at_limit += sum(
                len(prefix) + len(best[0][0]) >= limit
                for prefix, best, limit in zip(prefixes, ranked, limits)
            )
        return ranked

    def _within_limits(self, translate: Callable, limits: List[int]) -> list:
        """Translate rows, each within its own length limit.

        CTranslate2 has one limit for all rows, so the largest is used first.  Rows that exceed
        their own limit are translated again with it.

        Args:
            translate: function from indices of rows and a length limit to their results.
            limits: maximum number of words of each row, fewer than the positions of the model.
        """
        if not limits:
            return []
        results = translate([*range(len(limits))], max(limits))
        beyond: Dict[int, List[int]] = {}
        for row, (limit, result) in enumerate(zip(limits, results)):
            if max(map(len, result.hypotheses)) > limit:
                beyond.setdefault(limit, []).append(row)
        for limit, rows in beyond.items():
            for row, result in zip(rows, translate(rows, limit)):
                results[row] = result
        return results

    @staticmethod
    def _ranked(result, prefix: int, search: dict) -> list:
        """Remove the prefix from the hypotheses of a sentence, and rank them by corrected scores.

        CTranslate2 normalises a score by a length that includes the prefix; the corrected score is
        normalised by the length of the sentence alone.

        Args:
            result: result of CTranslate2 for one source.
            prefix: number of subwords in the prefix.
            search: arguments for CTranslate2's ``translate_batch``.

        Returns:
            The best hypotheses as (subwords, score), at most ``num_hypotheses``.
        """
        power, ranked = search.get("length_penalty", 1), []
        for words, score in zip(result.hypotheses, result.scores):
            length = len(words) + 1
            score *= (length / (length - prefix)) ** power
            ranked.append((words[prefix:], score))
        return sorted(ranked, key=lambda each: -each[1])[: search["num_hypotheses"]]

    def _prefix(self, first: int, sentences: List[List[str]]) -> List[str]:
        """Return the subwords that the decoder is given before it translates the next sentence.

        These are the earlier translations, each followed by a separator.  ``<bod>`` precedes them
        if the model has it and they begin a document.

        Args:
            first: index of the first sentence of the window or part.
            sentences: translations of its sentences so far, as subwords.
        """
        words = (word for sentence in sentences for word in (*sentence, self._model.separator))
        return [*self._start(first), *words]

    def _found(self, words: List[str], score: float) -> Found:
        return Found(self._decode(words), score / math.log(2))


def _engine(folder: str, device: str, precision: str):
    """Load an exported model with CTranslate2, and return its ``Translator``.

    Args:
        folder, device, precision: see :class:`ExportedTranslator`.

    Raises:
        UserError: ctranslate2 is missing, or the model cannot be loaded.
    """
    kind, _, number = device.partition(":")
    types = {"fp32": "default", "fp16": "float16", "bf16": "bfloat16"}
    try:
        return ctranslate2().Translator(
            folder, kind, compute_type=types[precision], device_index=int(number or 0)
        )
    except (ValueError, RuntimeError) as error:
        if (precision, device) == ("fp32", "cpu"):
            raise UserError(
                f"{folder} cannot be loaded ({error}); export the model again"
            ) from None
        raise UserError(
            f"{folder} cannot be loaded with --precision {precision} on {device}: {error}"
        ) from None


def _check_values(options: dict) -> None:
    """Raise a UserError if an option of the search has a value that no search can have."""
    for name, least in LEAST.items():
        value = options.get(name, least)
        if type(value) is not int or value < least:
            raise UserError(f"{flag(name)} must be a whole number from {least}, got {value}")
    if options["nbest"] > options["beam"]:
        raise UserError(
            f"--nbest {options['nbest']} is more than --beam {options['beam']}; give a wider beam"
        )
    lenpen = options.get("lenpen", 1.0)
    if type(lenpen) not in (int, float) or not abs(lenpen) <= 10:  # as in other commands
        raise UserError(f"--lenpen must be from -10 to 10, got {lenpen}")


def _split(words: List[str], separator: str) -> List[List[str]]:
    sentences: List[List[str]] = [[]]
    for word in words:
        if word == separator:
            sentences.append([])
        else:
            sentences[-1].append(word)
    return sentences
