"""Scores of reference translations: log-probabilities of their tokens in forced decoding.

Documents are scored as by ``fairseq-generate --score-reference``, so that each task and
architecture sees the same context as in its own decoding.  The candidates of contrastive test sets
are scored like references of short documents.
"""

import contextlib
import copy
import logging
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import LanguagePairDataset
from omegaconf import open_dict
from torch import Tensor, nn
from tqdm import tqdm

from fairseq_docmt.data import DecodingUnits, DocumentIndex, Lines
from fairseq_docmt.data.text_checks import Symbols, tokens_of
from fairseq_docmt.errors import UserError
from fairseq_docmt.models.interface import reads_documents, sentences_back
from fairseq_docmt.scoring.contrastive.items import Item
from fairseq_docmt.tasks._base import DocumentTranslationTask

logger = logging.getLogger(__name__)

#: Label smoothing of the loss by which Voita et al. (2019) rank candidates.
VOITA_SMOOTHING = 0.1

Sentences = Tuple[Tensor, ...]
#: Above this proportion of unknown tokens, the text probably differs from the training data in its
#: tokenizer or BPE.
MANY_UNKNOWN = 0.1


class Protocol(NamedTuple):
    """Method of scoring the candidates of contrastive items.

    Attributes:
        whole_window: if True, the score is the mean log-probability of all target tokens in the
            model's window, including the context.  If False, it is the sum over the tokens of the
            current sentence, including its end symbol.
        smoothing: label smoothing of the log-probabilities, 0 for none.
        equal: how candidates with the same text are judged, see
            :func:`~fairseq_docmt.scoring.contrastive.accuracy.judge`.
    """

    whole_window: bool = False
    smoothing: float = 0.0
    equal: str = "merged"


PROTOCOLS = {
    "plain": Protocol(),
    "voita": Protocol(smoothing=VOITA_SMOOTHING, equal="first"),
    "wu": Protocol(whole_window=True),
    "contrapro": Protocol(equal="wrong"),
}


class Scored(NamedTuple):
    """Scores of the candidates of contrastive items.

    Attributes:
        scores: for each item, the score of each candidate; higher is better.
        unknown: proportion, from 0 to 1, of target tokens that are not in the dictionary.  Only the
            current sentence of each candidate counts.
        window: number of sentences of a window of the model, 1 for a sentence-level model; None if
            the model does not read windows.
        room: largest number of previous sentences that the model reads; None for no limit.
    """

    scores: List[List[float]]
    unknown: float
    window: Optional[int] = None
    room: Optional[int] = None


class ReferenceScorer:
    """Scorer of reference translations with one model or an ensemble.

    Args:
        hub: fairseq's hub interface with one or more models, as in
            :class:`~fairseq_docmt.generation.DocumentTranslator`.
        encode_source, encode_target: functions that apply tokenizer, truecasing and BPE to a
            sentence, as was done with the training data before ``fairseq-preprocess``.
        max_tokens: maximum number of source tokens in a batch, with padding.
        batch_size: maximum number of rows in a batch, such as candidates; None for no limit.

    Raises:
        UserError: the model needs following sentences as context (``--next-sentences``).
    """

    def __init__(
        self,
        hub,
        encode_source: Callable[[str], str] = str,
        encode_target: Callable[[str], str] = str,
        max_tokens: int = 4096,
        batch_size: Optional[int] = None,
    ):
        self.hub, self.task = hub, hub.task
        self._is_document_task = isinstance(hub.task, DocumentTranslationTask)
        following = self._is_document_task and hub.task.options.get("next_sentences")
        if following:
            raise UserError(
                f"the model reads {following} sentences after each window (--next-sentences), "
                "which this command does not give it; fairseq-generate --score-reference does"
            )
        self.encode_source, self.encode_target = encode_source, encode_target
        self.max_tokens, self.batch_size = max_tokens, batch_size
        words = (hub.task.target_dictionary, hub.task.source_dictionary)
        self._symbols = [Symbols.of_task(hub.task, dictionary) for dictionary in words]
        self._known: Dict[Tuple[str, bool], Tensor] = {}

    @property
    def window(self) -> Optional[int]:
        """Number of sentences of a window of the model, 1 for a sentence-level model.

        None if the model does not read windows.
        """
        return self.task.options.get("window_size") if self._is_document_task else 1

    def room(self, following: int = 0) -> Optional[int]:
        """Return the largest number of previous sentences that the model reads; None for no limit.

        Args:
            following: number of sentences after the scored one, which are in its window.
        """
        if self.window is not None:
            return max(0, self.window - 1 - following)
        limits = [sentences_back(model) for model in self.hub.models]
        return None if None in limits else max(limits)

    def score(self, items: Sequence[Item], protocol: Protocol = PROTOCOLS["plain"]) -> Scored:
        """Score all candidates of contrastive items.

        Args:
            items: source documents with candidate translations.
            protocol: how the score of a candidate is computed.

        Raises:
            UserError: a candidate is too long for the model; the model's window is too short for
                the sentences after the current one; a sentence contains a special symbol of the
                model as a word; or the protocol is for a single model, but there are several.
        """
        if protocol.smoothing and len(self.hub.models) > 1:
            raise UserError("--protocol voita is defined for one model; give a single checkpoint")
        is_stream = self.task.cfg._name == "sentence_stream_translation"
        if (is_stream or not self._is_document_task) and any(item.after for item in items):
            logger.warning(
                "the model reads no sentence after the one that it translates, so that "
                "--context-after has no effect"
            )
        if not self._is_document_task:  # a sentence-level model sees no following sentences
            items = [item.with_context(None) for item in items]
        pairs = [
            (self._encoded(item.source, True), self._encoded(candidate, False))
            for item in items
            for candidate in item.candidates
        ]
        current = [-1 - item.after for item in items for _ in item.candidates]
        # Score equal candidates once: rounding in different batches must not break ties.
        keys = [
            (place, *(tuple(s.tolist()) for side in pair for s in side))
            for place, pair in zip(current, pairs)
        ]
        distinct = dict(zip(keys, pairs))
        found = self._sentences(list(distinct.values()), protocol.smoothing, last_only=True)
        sums = [
            _score([scores for scores, _ in sentences], key[0], protocol)
            for key, sentences in zip(distinct, found)
        ]
        found = dict(zip(distinct, sums))
        scores = iter(found[key] for key in keys)
        return Scored(
            [[next(scores) for _ in item.candidates] for item in items],
            self._unknown([target[place] for place, (_, target) in zip(current, pairs)], False),
            self.window,
            self.room(max((item.after for item in items), default=0)),
        )

    def sentence_scores(
        self, documents: Sequence[Tuple[List[str], List[str]]], last_only: bool = False
    ) -> List[List[Tuple[Tensor, Tensor]]]:
        """Score the references of documents, sentence by sentence.

        Args:
            documents: source sentences and target sentences of each document, which must be equal
                in number.
            last_only: if True, score only the last sentence of each document.

        Returns:
            For each document, a list with a pair for each scored sentence: the ids of its n target
            tokens, (n,), and their natural log-probabilities, (n,).  The last token is the end
            symbol that was scored: ``</s>``, or ``<sep>`` before a further sentence of a sequence.

        Raises:
            UserError: a sentence is too long for the model, or contains one of its special symbols.
        """
        pairs = [
            (self._encoded(source, True), self._encoded(target, False))
            for source, target in documents
        ]
        found = self._sentences(pairs, smoothing=0.0, last_only=last_only)
        kept = slice(-1, None) if last_only else slice(None)
        return [
            [
                (torch.cat([tokens[:-1], tokens.new_tensor([end])]), scores)
                for tokens, (scores, end) in zip(target[kept], sentences[kept])
            ]
            for (_, target), sentences in zip(pairs, found)
        ]

    def unknown_words(self, sentences: Sequence[str], is_source: bool) -> float:
        """Return the proportion of tokens that are not in the dictionary.

        Args:
            sentences: sentences before preprocessing.
            is_source: whether they are source sentences; otherwise they are target sentences.
        """
        return self._unknown(self._encoded(sentences, is_source), is_source)

    def _encoded(self, sentences: Sequence[str], is_source: bool) -> Sentences:
        for text in sentences:
            if (text, is_source) not in self._known:
                encode = self.encode_source if is_source else self.encode_target
                self._known[text, is_source] = tokens_of(text, encode, self._symbols[is_source])
        return tuple(self._known[text, is_source] for text in sentences)

    def _unknown(self, sentences: Sequence[Tensor], is_source: bool) -> float:
        sides = (self.task.target_dictionary, self.task.source_dictionary)
        return float(torch.cat(list(sentences)).eq(sides[is_source].unk()).double().mean())

    def _sentences(
        self, pairs: Sequence[Tuple[Sentences, Sentences]], smoothing: float, last_only: bool
    ) -> List[List[Tuple[Tensor, int]]]:
        """Compute the log-probabilities of the target tokens of documents, sentence by sentence.

        Args:
            pairs: documents, each as the token ids of its source sentences and of its target
                sentences.
            smoothing: label smoothing of the log-probabilities, 0 for none.
            last_only: whether only the last sentence of each document needs scores.  The scores of
                earlier sentences may then be missing.

        Returns:
            For each document, a pair for each scored sentence: the log-probabilities of its n
            tokens, (n,), and its end symbol.
        """
        if self._is_document_task:
            batches = self._document_batches(pairs, last_only)
        else:
            batches = self._sentence_batches(pairs, last_only)
        models = list(self.hub.models)
        if smoothing:
            models = [_Smoothed(model, smoothing) for model in models]
        generation = copy.deepcopy(self.hub.cfg.generation)
        with open_dict(generation):
            generation.score_reference = True
        scorer = self.task.build_generator(list(self.hub.models), generation)
        found: List[Dict[int, Tuple[Tensor, int]]] = [{} for _ in pairs]
        eos = self.task.target_dictionary.eos()
        with self._any_order():
            for sample, documents in batches:
                rows = self.task.inference_step(scorer, models, sample)
                for row, document, hypotheses in zip(sample["id"].tolist(), documents, rows):
                    best = hypotheses[0]
                    scores = best["positional_scores"].cpu().double()
                    found[document][row] = scores, best.get("end", eos)
        return [[scores[row] for row in sorted(scores)] for scores in found]

    def _any_order(self):
        """Return a context manager within which the task can score references in any order.

        The sliding-window task switches to ``--decoding window``; other tasks keep their decoding.
        Nothing changes for the tasks of fairseq itself.
        """
        if self._is_document_task:
            return self.task.scoring_references()
        return contextlib.nullcontext()

    def _document_batches(self, pairs, last_only: bool):
        """Yield batches for a document-level task, in the order in which it decodes them.

        Args:
            pairs: documents, each as the token ids of its source sentences and of its target
                sentences.
            last_only: whether only the last sentence of each document needs scores.

        Yields:
            A batch, and a list with the index of the document of each batch row.
        """
        task = self.task
        starts = np.concatenate([[0], np.cumsum([len(source) for source, _ in pairs])])
        index = DocumentIndex(np.arange(starts[-1]), starts)
        src = [sentence for source, _ in pairs for sentence in source]
        tgt = [sentence for _, target in pairs for sentence in target]
        sizes = np.array([len(sentence) for sentence in src])
        cut, left_pad = task.search.cut(index, sizes), task.cfg.left_pad_source
        if last_only:
            cut = cut._replace(window=None)
        if last_only and not task.search.keeps_order:  # windows that end with the last sentence
            cut = cut._replace(spans=cut.spans[np.isin(cut.spans[:, 1], starts)])
            if not task.search.window:  # the search warns of shortened windows
                self._report_cut(cut.spans, np.diff(starts))
        self._check_lengths(self._rows_of(cut.spans), src, tgt, task.added_tokens)
        lines = Lines(src, sizes, task.source_dictionary, tgt, left_pad=left_pad)
        units = DecodingUnits(lines, cut)
        batches = units.batches(self.max_tokens, self.batch_size, task.search.keeps_order, shards=1)
        task.search.forget()
        task.search.begin(len(units))
        for batch in tqdm(batches, unit="batch", disable=None):
            sample = units.collater([units[unit] for unit in batch])
            yield sample, index.document[sample["id"].numpy()].tolist()

    def _sentence_batches(self, pairs, last_only: bool):
        """Yield batches of independent sentences, sorted by length, for a sentence-level task.

        Args:
            pairs: documents, each as the token ids of its source sentences and of its target
                sentences.
            last_only: whether to leave out all but the last sentence of each document.

        Yields:
            A batch, and a list with the index of the document of each batch row.
        """
        kept = slice(-1, None) if last_only else slice(None)
        src = [sentence for source, _ in pairs for sentence in source[kept]]
        tgt = [sentence for _, target in pairs for sentence in target[kept]]
        document = [number for number, (source, _) in enumerate(pairs) for _ in source[kept]]
        sizes = [np.array([len(sentence) for sentence in side]) for side in (src, tgt)]
        numbers = np.arange(len(src))
        self._check_lengths(np.stack([numbers, numbers + 1], axis=1), src, tgt)
        words = (self.task.source_dictionary, self.task.target_dictionary)
        options = {"left_pad_source": self.task.cfg.left_pad_source, "shuffle": False}
        rows = LanguagePairDataset(src, sizes[0], words[0], tgt, sizes[1], words[1], **options)
        batches = rows.batch_by_size(
            np.argsort(-sizes[0], kind="stable"), self.max_tokens, self.batch_size
        )
        device = next(self.hub.models[0].parameters()).device
        for batch in tqdm(batches, unit="batch", disable=None):
            sample = rows.collater([rows[row] for row in batch])
            documents = [document[row] for row in sample["id"].tolist()]
            sample["net_input"] = {k: v.to(device) for k, v in sample["net_input"].items()}
            sample["target"] = sample["target"].to(device)
            yield sample, documents

    def _rows_of(self, spans: np.ndarray) -> np.ndarray:
        """Return the spans of sentences that the model reads as one sequence each.

        These are ``spans``, unless a model reads a document as a batch with one sentence per row.
        In this case each sentence is a span of its own.

        Args:
            spans: (units, 2) first sentence of each decoding unit, and the sentence after its last.

        Returns:
            (n, 2) first sentence of each sequence, and the sentence after its last.
        """
        if not any(reads_documents(model) for model in self.hub.models):
            return spans
        return np.concatenate(
            [np.stack([np.arange(a, b), np.arange(a, b) + 1], 1) for a, b in spans]
        )

    def _report_cut(self, spans, lengths) -> None:
        cut = int((spans[:, 1] - spans[:, 0] < lengths).sum())
        if cut > 0:
            logger.warning(
                "%d of %d candidates exceed the model's maximum length and lose the beginning of "
                "their context; reduce it with --context",
                cut,
                len(lengths),
            )

    def _check_lengths(self, spans, src, tgt, added=(0, 0)) -> None:
        limits = self.hub.max_positions
        sides = zip(("source", "target"), (src, tgt), limits, added)
        for side, sentences, most, marks in sides:
            ends = np.concatenate([[0], np.cumsum([len(s) for s in sentences])])
            lengths = ends[spans[:, 1]] - ends[spans[:, 0]] + marks
            longest = int(lengths.argmax())
            if lengths[longest] > most:
                last = sentences[spans[longest, 1] - 1]
                text = next(text for (text, _), ids in self._known.items() if ids is last)
                alone = len(last) + marks > most
                fix = "leave it out" if alone else "reduce the context with --context"
                raise UserError(
                    f"the {side} {text[:60]!r} has {lengths[longest]} tokens with its context, but "
                    f"the model has only {most} positions; {fix}"
                )


def _score(sentences: List[Tensor], current: int, protocol: Protocol) -> float:
    """Compute the score of a candidate from the log-probabilities of its tokens.

    Args:
        sentences: log-probabilities of the tokens of each sentence in the model's window, which
            ends with the last sentence of the document.
        current: index of the current sentence, counted from the end: -1 is the last one.
        protocol: how the score is computed.

    Raises:
        UserError: the window is too short to include the current sentence.
    """
    if -current > len(sentences):
        raise UserError(
            f"the model sees {len(sentences)} sentences at once, too few for the current one and "
            f"{-1 - current} after it; reduce --context-after"
        )
    return float(torch.cat(sentences).mean() if protocol.whole_window else sentences[current].sum())


class _Smoothed(nn.Module):
    """Wrapper of a model that turns its log-probabilities into negative label-smoothed losses.

    The loss is ``LossXent`` in the code of Voita et al. (2019): the cross-entropy with a
    distribution that gives ``1 - smoothing`` to the reference token and ``smoothing`` in equal
    parts to all other tokens, minus the entropy of that distribution.
    """

    def __init__(self, model, smoothing: float):
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def __getattr__(self, name):
        # Searches access the encoder and decoder of the model, e.g. to fill a document memory.
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("model"), name)

    def forward(self, **net_input):
        return self.model(**net_input)

    def get_normalized_probs(self, net_output, log_probs, sample=None):
        scores = self.model.get_normalized_probs(net_output, log_probs, sample).float()
        words = scores.size(-1)
        own, other = 1 - self.smoothing, self.smoothing / (words - 1)
        entropy = -(own * np.log(own) + (words - 1) * other * np.log(other))
        return (own - other) * scores + other * scores.sum(-1, keepdim=True) + entropy
