"""Translation by CTranslate2 with a model that ``export-ctranslate2`` has written."""

import json
import math
import os
from dataclasses import dataclass
from typing import List, NamedTuple, Optional

from fairseq_docmt.errors import UserError, refuse_unknown
from fairseq_docmt.symbols import BEGIN_OF_DOCUMENT, complaint, first_reserved
from fairseq_docmt.text_form import TextForm, read_text_forms

#: file of an exported model
INFO = "document_model.json"
#: option of fairseq -> option of the engine
SEARCH = {"lenpen": "length_penalty", "no_repeat_ngram_size": "no_repeat_ngram_size"}
SEARCH = {**SEARCH, "max_len_b": "max_decoding_length"}
DECODINGS = ("sequential", "window")
END = "</s>"


def ctranslate2():
    """Return the engine.

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
    """What translation has to know of a model.

    Attributes:
        source_lang, target_lang: its languages.
        window_size, next_sentences: sentences that it reads, see ``--window-size`` and
            ``--next-sentences``.
        separator: word between sentences.
        document_start: word before the first sentence of a document, or None.
        max_tokens: tokens that it can read or write.
    """

    source_lang: str
    target_lang: str
    window_size: int
    next_sentences: int
    separator: str
    document_start: Optional[str]
    max_tokens: int


def has_gpu() -> bool:
    """Return whether the engine has a GPU."""
    return ctranslate2().get_cuda_device_count() > 0


class Found(NamedTuple):
    """A translation of a sentence, with its score in base 2."""

    text: str
    score: float


def is_exported(path: str) -> bool:
    """Return whether a path is the folder of an exported model."""
    return os.path.isfile(os.path.join(path, INFO))


def read_info(folder: str) -> ExportedModel:
    """Return what translation has to know of the model in a folder."""
    with open(os.path.join(folder, INFO), encoding="utf-8") as stream:
        return ExportedModel(**json.load(stream))


class ExportedTranslator:
    """Translator of documents with an exported model.

    Args:
        folder: folder of the model.
        decoding: ``sequential`` or ``window``; default: ``sequential``.
        device: ``cpu`` or ``cuda``.
        precision: numbers of the computation, see ``compute_type`` of CTranslate2; ``fp32``: those
            of the export.
        batch_size, max_tokens: sentences, or else tokens of sources, of a batch.
        data: no use; the folder has the vocabularies.
        **others: options that exported models do not have.

    Raises:
        UserError: the folder or an option is not what it should be.
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
        **others,
    ):
        refuse_unknown(others, ("decoding", *SEARCH), " with an exported model")
        if data:
            raise UserError("--data is of no use with an exported model; leave it out")
        if decoding not in (None, *DECODINGS):
            raise UserError(
                f"--decoding {decoding} cannot be had of an exported model; give "
                f"{' or '.join(DECODINGS)}"
            )
        self._decoding = decoding or DECODINGS[0]
        self._model = read_info(folder)
        index = int(device.partition(":")[2] or 0)
        types = {"fp32": "default", "fp16": "float16", "bf16": "bfloat16"}
        self._engine = ctranslate2().Translator(
            folder, *device.split(":")[:1], compute_type=types[precision], device_index=index
        )
        #: words that no translation has
        self._never = [[BEGIN_OF_DOCUMENT]]
        self._batch = {"max_batch_size": batch_size or max_tokens}
        self._batch["batch_type"] = "examples" if batch_size else "tokens"
        forms = read_text_forms(folder)
        source, target = (
            forms.get(language, TextForm())
            for language in (self._model.source_lang, self._model.target_lang)
        )
        self._encode = source.encoder(self._model.source_lang)
        detokenize, join = target.detokenize(self._model.target_lang), target.join()
        self._decode = lambda words: detokenize(join(" ".join(words)))

    @property
    def target_language(self) -> str:
        """Language of the translations."""
        return self._model.target_lang

    def words_of(self, sentence: str) -> List[str]:
        """Return the subwords of a sentence."""
        return self._encode(sentence).split()

    def tokens_of(self, sentence: str, place: str) -> List[str]:
        """Return the subwords of a sentence.

        Args:
            sentence: the text.
            place: where it stands, for messages.

        Raises:
            UserError: the tokenizer leaves nothing of the sentence, or it has a symbol of the model
                as a word.
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
        """Translate documents, as :meth:`DocumentTranslator.translate_nbest`.

        Raises:
            UserError: an option is not one of an exported model.
        """
        refuse_unknown(options, SEARCH, " with an exported model")
        search = {SEARCH[name]: value for name, value in options.items()}
        search = {"max_decoding_length": 200, **search, **self._batch}
        search.update(beam_size=beam or 5, num_hypotheses=nbest, return_scores=True)
        words = [[self.words_of(sentence) for sentence in document] for document in documents]
        decode = self._sequential if self._decoding == "sequential" else self._windows
        return decode(words, search)

    # ---- windows -------------------------------------------------------------------------------

    def _source(self, document: List[List[str]], first: int, place: int) -> List[str]:
        """Return the subwords of a window: sentences ``first`` to ``place``, and those after."""
        end = place + 1 + self._model.next_sentences
        joined: List[str] = []
        for sentence in document[first:end]:
            joined += [self._model.separator, *sentence] if joined else sentence
        return [*self._start(first), *joined]

    def _start(self, first: int) -> List[str]:
        """Return the words before the first sentence of a window, on both sides."""
        return [self._model.document_start] if self._model.document_start and first == 0 else []

    def _first(self, document: List[List[str]], place: int) -> int:
        """Return the first sentence of the window of a sentence, which has to fit the model."""
        first = max(0, place + 1 - self._model.window_size)
        while first < place and len(self._source(document, first, place)) >= self._model.max_tokens:
            first += 1
        return first

    def _windows(self, documents, search: dict) -> List[List[List[Found]]]:
        """Translate the window of each sentence, and keep its last sentence."""
        places = [(d, p) for d, document in enumerate(documents) for p in range(len(document))]
        firsts = [self._first(documents[d], p) for d, p in places]
        sources = [self._source(documents[d], f, p) for (d, p), f in zip(places, firsts)]
        starts = [self._start(first) for first in firsts]
        results = self._engine.translate_batch(
            sources, target_prefix=starts, suppress_sequences=self._never, **search
        )
        found: List[list] = [[[] for _ in document] for document in documents]
        again = []
        for (d, p), first, start, result in zip(places, firsts, starts, results):
            outputs = [
                (_split(words[len(start) :], self._model.separator), score)
                for words, score in zip(result.hypotheses, result.scores)
            ]
            if len(outputs[0][0]) != p + 1 - first:
                again.append((d, p))
            found[d][p] = [
                self._found(sentences[-1], score)
                for sentences, score in outputs
                if len(sentences) == p + 1 - first
            ]
        for (d, p), best in zip(again, self._forced(documents, again, search)):
            found[d][p] = best
        return found

    def _forced(self, documents, places: list, search: dict) -> List[List[Found]]:
        """Translate windows sentence by sentence, as their outputs had another number of them.

        Args:
            documents: subwords of all sentences.
            places: document and sentence of the end of each window.

        Returns:
            The translations of the last sentence of each window.
        """
        firsts = [self._first(documents[d], p) for d, p in places]
        sources = [self._source(documents[d], f, p) for (d, p), f in zip(places, firsts)]
        counts = [p + 1 - f for (_, p), f in zip(places, firsts)]
        written: List[list] = [[] for _ in places]
        results: List[list] = [[] for _ in places]
        for number in range(1, max(counts, default=0) + 1):
            for is_last in (False, True):
                active = [
                    i
                    for i, count in enumerate(counts)
                    if number <= count and (number == count) == is_last
                ]
                prefixes = [self._prefix(firsts[i], written[i]) for i in active]
                some = [sources[i] for i in active]
                for i, best in zip(active, self._sentences(some, prefixes, is_last, search)):
                    written[i].append(best[0][0])
                    results[i] = [self._found(*each) for each in best]
        return results

    def _sequential(self, documents, search: dict) -> List[List[List[Found]]]:
        """Translate sentence by sentence, after the translations of the sentences before."""
        found: List[list] = [[] for _ in documents]
        written: List[list] = [[] for _ in documents]
        for place in range(max(map(len, documents), default=0)):
            active = [d for d, document in enumerate(documents) if place < len(document)]
            firsts = [self._first(documents[d], place) for d in active]
            sources = [self._source(documents[d], f, place) for d, f in zip(active, firsts)]
            prefixes = [self._prefix(f, written[d][f:]) for d, f in zip(active, firsts)]
            for d, best in zip(active, self._sentences(sources, prefixes, True, search)):
                written[d].append(best[0][0])
                found[d].append([self._found(*each) for each in best])
        return found

    def _sentences(self, sources, prefixes, is_last: bool, search: dict) -> List[list]:
        """Translate one sentence of each source after a prefix.

        Args:
            sources: subwords of windows.
            prefixes: subwords that their translations begin with.
            is_last: whether the sentence is the last of its window, and ends with ``</s>``.
            search: options of the engine.

        Returns:
            Subwords and scores of the translations of each sentence, the best first.
        """
        end, other = END, self._model.separator
        if not is_last:
            end, other = other, end
        longest = max(map(len, prefixes), default=0)
        search = {**search, "max_decoding_length": search["max_decoding_length"] + longest}
        results = self._engine.translate_batch(
            sources,
            target_prefix=prefixes,
            end_token=end,
            # The engine counts the prefix as words, so that the first one could be the end.
            suppress_sequences=[[other], [self._model.separator, end], *self._never],
            # With the prefix in their lengths, the first finished hypotheses need not be the best.
            patience=2,
            **{**search, "num_hypotheses": search["beam_size"]},
        )
        return [
            self._ranked(result, len(prefix), search) for prefix, result in zip(prefixes, results)
        ]

    @staticmethod
    def _ranked(result, prefix: int, search: dict) -> list:
        """Rank hypotheses by their scores without the prefix, which the engine takes for words."""
        power, ranked = search.get("length_penalty", 1), []
        for words, score in zip(result.hypotheses, result.scores):
            length = len(words) + 1
            score *= (length / (length - prefix)) ** power
            ranked.append((words[prefix:], score))
        return sorted(ranked, key=lambda each: -each[1])[: search["num_hypotheses"]]

    def _prefix(self, first: int, sentences: List[List[str]]) -> List[str]:
        """Return the words before the next sentence of a window that begins at ``first``."""
        words = (word for sentence in sentences for word in (*sentence, self._model.separator))
        return [*self._start(first), *words]

    def _found(self, words: List[str], score: float) -> Found:
        return Found(self._decode(words), score / math.log(2))


def _split(words: List[str], separator: str) -> List[List[str]]:
    sentences: List[List[str]] = [[]]
    for word in words:
        if word == separator:
            sentences.append([])
        else:
            sentences[-1].append(word)
    return sentences
