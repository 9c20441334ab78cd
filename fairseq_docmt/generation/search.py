"""Base class of the searches: builds encoder input, scores references, shows progress."""

import logging
import sys
from collections import Counter
from dataclasses import replace
from typing import List, NamedTuple, Optional, Sequence

import numpy as np
import torch
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor, nn
from tqdm import tqdm

from fairseq_docmt.data import Cut, DocumentIndex, Formats, pad_rows, window_spans
from fairseq_docmt.data.decoding_units import DecodingUnit
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.hypotheses import (
    Hypothesis,
    best_tokens,
    empty_hypothesis,
    split_hypothesis,
)
from fairseq_docmt.symbols import SENTENCE_SEPARATOR

logger = logging.getLogger(__name__)

#: messages about what lost context, ended early or came out empty, and why
_SHORT_WINDOWS = (
    "windows that were read with less source context or none, because they would exceed the source "
    "positions of the model (--max-source-positions)"
)
_SHORT_REFERENCES = (
    "references that were scored with less context or none, because those before them fill the "
    "target positions of the model"
)

_AT_LIMIT = (
    "translations that end because they reached the length limit (--max-len-a, --max-len-b) or the "
    "last target position of the model"
)

_EMPTY = "sentences with an empty translation"
_EMPTY_OF_JOINT = (
    f"{_EMPTY} (the length limit, --max-len-b, holds for all sentences of an output together, so "
    "the last ones may lack room)"
)

#: seconds before a bar appears
DELAY = 5
#: seconds between two updates on a terminal, and in a log file
INTERVALS = (0.5, 30)


class DecodingProgress:
    """Progress bar over the sentences of a decoding run.

    It can also advance before a batch is finished, because batches of long documents are slow.

    Args:
        sentences: number of sentences of the run.
        hidden: whether no bar is shown (``--no-progress-bar``).
    """

    def __init__(self, sentences: int = 0, hidden: bool = True):
        is_terminal = sys.stderr.isatty()
        self._in_batch = 0
        self._bar = tqdm(
            total=sentences,
            desc="translating",
            unit=" sentences",
            mininterval=INTERVALS[0 if is_terminal else 1],
            delay=DELAY,
            leave=not is_terminal,
            disable=hidden,
        )

    def advance(self, sentences: int) -> None:
        """Count ``sentences`` more sentences as translated, before their batch is finished."""
        self._in_batch += sentences
        self._bar.update(sentences)

    def finish_batch(self, sentences: int) -> None:
        """Count the sentences of a finished batch, except those that :meth:`advance` has counted.

        ``sentences`` is the number of all sentences of the batch.
        """
        self._bar.update(max(sentences - self._in_batch, 0))
        self._in_batch = 0

    def close(self) -> None:
        """Close the progress bar."""
        self._bar.close()


#: n-best list of each sentence to translate, best hypothesis first
NBestLists = List[List[Hypothesis]]


class EncoderInput(NamedTuple):
    """Encoder input of several decoding units, with one row per unit.

    Attributes:
        order: index of the unit in each row.  The longest sources come first, as recurrent encoders
            require.
        net_input: ``src_tokens`` (bsz, S) and ``src_lengths`` (bsz,).
    """

    order: List[int]
    net_input: dict

    @property
    def device(self) -> torch.device:
        """Device of the batch."""
        return self.net_input["src_tokens"].device

    def in_order_of_units(self, found: Sequence) -> list:
        """Put results, which are in the order of the batch rows, into the order of the units."""
        results: list = [None] * len(self.order)
        for number, of_row in zip(self.order, found):
            results[number] = of_row
        return results


class _WithoutAttention(nn.Module):
    """Model wrapper that hides attention weights from fairseq's scorer.

    It is used for ensembles, because not all models return attention weights.
    """

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, **net_input):
        logits, extra, *rest = self.model(**net_input)
        extra = {**extra, "attn": None} if isinstance(extra, dict) else extra
        return (logits, extra, *rest)

    def get_normalized_probs(self, *args, **kwargs):
        return self.model.get_normalized_probs(*args, **kwargs)


class DocumentSearch:
    """Base class of the searches, which translate or score decoding units.

    A decoding unit is a span of sentences to translate, with their context.  A subclass implements
    one value of ``--decoding``: it sets the class attributes and defines :meth:`translate`.

    Args:
        task: document task.
    """

    #: value of ``--decoding``
    decoding: str
    #: what the decoding does, for the help of ``--decoding``
    description: str
    #: whether units are windows, of which only the last sentence is translated, if the task has any
    by_windows = False
    #: whether an output may have several sentences
    joint = False
    #: whether each sentence is translated after those before it in its document
    one_by_one = False
    #: whether the decoder reads the target context before the search
    reads_prefix = False
    #: whether it is for models with memories of whole documents
    reads_memories = False

    def __init__(self, task):
        self.task = task
        self.eos, self.pad = task.target_dictionary.eos(), task.target_dictionary.pad()
        self._units_left = 0
        #: message about what lost context or words in this run -> how often
        self.shortened: Counter = Counter()
        self.progress = DecodingProgress()

    # ---- defined by subclasses -----------------------------------------------------------------

    @property
    def window(self) -> Optional[int]:
        """Window size, if only the last sentence of each window is translated; otherwise None."""
        return self.task.options.get("window_size") if self.by_windows else None

    @property
    def single(self) -> bool:
        """Whether each sentence is a sequence of its own, without previous sentences."""
        return self.window == 1

    @property
    def keeps_order(self) -> bool:
        """Whether a unit can be decoded only after the earlier units of its document."""
        return False

    def spans(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        """Divide a corpus into decoding units, and return their spans of sentence numbers.

        Args:
            index: sentences and documents.
            src_sizes: (sentences,) number of source tokens.

        Returns:
            (units, 2) first sentence of each unit, context included, and the sentence after its
            last.
        """
        if self.window is None:
            return self.task.parts(index, src_sizes)
        return window_spans(index, self.window, self.task.limits(src_sizes))

    def cut(self, index: DocumentIndex, src_sizes: np.ndarray) -> Cut:
        """Divide a corpus into decoding units, and return everything needed to build them.

        The result contains the spans of the units; the end of the source of each unit, if sources
        extend beyond the spans; the window size; and the maximum number of source tokens per unit.

        Args:
            index, src_sizes: see :meth:`spans`.
        """
        spans, with_more = self.spans(index, src_sizes), self.task.source_spans(index, src_sizes)
        ends = None if with_more is None else with_more(spans)[:, 1]
        return Cut(index, spans, ends, self.window, self.task.most_tokens[0])

    def count_short_windows(self, units: List[DecodingUnit]) -> int:
        """Return how many windows of the units lost source sentences to the model's positions."""
        if self.window is None:
            return 0
        wanted = [min(self.window, unit.position + unit.num_rows) for unit in units]
        return sum(len(unit.source) < most for unit, most in zip(units, wanted))

    def end(self) -> None:
        """Log statistics after the last unit of a run; the base class logs none."""

    def forget(self) -> None:
        """Discard what is stored about unfinished documents; the base class stores nothing."""

    def ensemble_of(self, models, lm_model=None):
        """Return the ensemble that the generator decodes with, or None for fairseq's own.

        Args:
            models: models of the ensemble.
            lm_model: language model for shallow fusion, or None.
        """
        return None

    def translate(self, generator, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Translate each unit, and return the n-best lists of the sentences that it translates."""
        raise NotImplementedError

    def score(self, scorer, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Score the references of units instead of translating.

        The result has the form of :meth:`translate`, with one hypothesis per sentence: its
        reference with the score.
        """
        return self.score_spans(scorer, models, units)

    # ---- called by tasks -----------------------------------------------------------------------

    def begin(self, units: int) -> None:
        """Start a run over ``units`` decoding units, and reset the statistics of the search."""
        self._units_left = units
        self.shortened.clear()

    @torch.no_grad()
    def decode(self, generator, models, units, prefixes=None, constraints=None) -> NBestLists:
        """Translate or score all sentences of a sample.

        Each sentence to translate is a row of the sample.

        Args:
            generator: generator of this package, or a scorer of references.
            models: models of the ensemble.
            units: decoding units that make up the sample.
            prefixes: (rows, n) tokens with which the translations must begin, or None.
            constraints: (rows, n) target constraints, as packed by fairseq; or None.

        Returns:
            Hypotheses of each row, best first.

        Raises:
            UserError: there are no references to score, or a reference exceeds the model's
                positions.
        """
        units = _with_forced_tokens(units, prefixes, constraints)
        full = [unit for unit in units if unit.source]
        self.shortened[_SHORT_WINDOWS] += self.count_short_windows(full)
        scores = isinstance(generator, SequenceScorer)
        if not scores:
            found = iter(self.translate(generator, models, full) if full else ())
        elif any(unit.target is None for unit in full):
            raise UserError("--score-reference needs references; this input has no target side")
        else:
            found = iter(self._score_within_positions(generator, models, full) if full else ())
        results: NBestLists = []
        for unit in units:
            if not unit.source:
                results += [[empty_hypothesis(self.eos)] for _ in unit.line_ids]
                continue
            lists = next(found)
            if not scores:
                empty = _EMPTY_OF_JOINT if self.joint else _EMPTY
                self.shortened[empty] += sum(len(best["tokens"]) < 2 for best, *_ in lists)
                self.shortened[_AT_LIMIT] += sum(bool(best["at_limit"]) for best, *_ in lists)
            results += lists
        self.progress.finish_batch(len(results))
        self._units_left -= len(units)
        if self._units_left == 0:
            self.progress.close()
            self.end()
            for what, number in (+self.shortened).items():
                logger.warning("%s: %d", what, number)
        return results

    # ---- inputs --------------------------------------------------------------------------------

    @property
    def formats(self) -> Formats:
        """Sequence formats of source and target: their tags, separators and end symbols."""
        return self.task.formats

    @property
    def forbidden(self) -> List[int]:
        """Indices of symbols that no translation may contain, such as language tags."""
        symbols = (s for s in self.task.added_symbols if s != SENTENCE_SEPARATOR)
        return [self.task.target_dictionary.index(symbol) for symbol in symbols]

    def joined_source(self, unit: DecodingUnit) -> Tensor:
        """Join the source sentences of a unit and the context after them into one sequence."""
        return self.formats.source.join([*unit.source, *unit.following], unit.at_start)

    def joined_target(self, unit: DecodingUnit) -> Tensor:
        """Return the references of a unit as one sequence."""
        return self.formats.target.join(unit.target, unit.at_start)

    def decoder_input(self, units: Sequence[DecodingUnit], texts: Sequence[Tensor]) -> Tensor:
        """Return the decoder input that training would use for translations of single sentences.

        Args:
            units: units of one sentence each.
            texts: translations of the units, without ``</s>``.

        Returns:
            (units, tokens) decoder input, right-padded.
        """
        end, target = torch.tensor([self.eos]), self.formats.target
        ended = [torch.cat([text, end]) for text in texts]
        return target.decoder_input([target.join([s], u.at_start) for u, s in zip(units, ended)])

    def encoder_input(self, units: List[DecodingUnit], models) -> EncoderInput:
        """Collate the sources of decoding units into a padded batch, the longest source first."""
        device = device_of(models)
        sources = [self.joined_source(unit) for unit in units]
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        rows = [sources[i] for i in order]
        padded = pad_rows(rows, self.task.source_dictionary, self.task.cfg.left_pad_source)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        return EncoderInput(order, {"src_tokens": padded.to(device), "src_lengths": lengths})

    def context_tokens(self, unit: DecodingUnit, row: int, hypotheses: List[Hypothesis]) -> Tensor:
        """Return the target tokens that a sentence adds to the context of later sentences.

        These are the best hypothesis or, with ``--gold-context``, the reference, without ``</s>``.

        Args:
            unit: unit with the sentence.
            row: number of the sentence among the sentences that the unit translates.
            hypotheses: hypotheses of the sentence, best first.

        Raises:
            UserError: ``--gold-context`` is given, but there are no references.
        """
        if not self.task.cfg.gold_context:
            return best_tokens(hypotheses, self.pad)
        if unit.target is None:
            raise UserError("--gold-context needs references; this input has no target side")
        return unit.target[unit.num_context + row][:-1]

    def split_sentences(self, hypothesis: Hypothesis, unit: DecodingUnit, generator):
        """Split a hypothesis for a whole unit into one hypothesis per sentence.

        The result also has hypotheses of the context sentences that are in the output.
        """
        source, target = self.formats
        of_source = source.places(map(len, unit.source), unit.at_start)
        of_target = target.find(hypothesis["tokens"], unit.at_start)
        return split_hypothesis(hypothesis, of_source, of_target, generator)

    # ---- references ----------------------------------------------------------------------------

    def _score_within_positions(self, scorer, models, units) -> List[NBestLists]:
        """Score the references of units, even if a unit exceeds the models' target positions.

        Such units are shortened or divided for scoring, see :meth:`parts_within`.  The result has
        one entry per original unit, as in :meth:`score`.
        """
        most = min(model.max_decoder_positions() for model in models)
        parts = [self.parts_within(unit, most) for unit in units]
        found = iter(self.score(scorer, models, [part for cut in parts for part in cut]))
        return [[row for _ in cut for row in next(found)] for cut in parts]

    def parts_within(self, unit: DecodingUnit, most: int) -> List[DecodingUnit]:
        """Divide a unit into units whose joined references have at most ``most`` tokens.

        First, the oldest context sentences are dropped.  If this is not enough, the unit is divided
        wherever the next reference no longer fits, and each further unit begins without context.

        Raises:
            UserError: a single reference has more than ``most`` tokens.
        """

        def fits(given):
            return len(self.joined_target(given)) <= most

        parts, rest = [], unit
        while rest.num_context > 0 and not fits(rest):
            rest = rest.without_oldest()
        self.shortened[_SHORT_REFERENCES] += rest is not unit
        while not fits(rest):
            rows = 0
            while fits(self._first_rows(rest, rows + 1)):
                rows += 1
            if rows == 0:
                raise UserError(
                    f"the reference of line {rest.line_ids[0] + 1} has more tokens than the "
                    f"model's {most} target positions; shorten it, or leave out the line on both "
                    "sides"
                )
            parts.append(self._first_rows(rest, rows))
            rest = rest.starting_at(rows)
        self.shortened[_SHORT_REFERENCES] += len(parts)
        return [*parts, rest]

    def _first_rows(self, unit: DecodingUnit, rows: int) -> DecodingUnit:
        """Return a unit with only the first ``rows`` sentences of ``unit``.

        ``unit`` must have no context.
        """
        number = self.task.options.get("next_sentences", 0)
        return replace(
            unit,
            line_ids=unit.line_ids[:rows],
            source=unit.source[:rows],
            following=[*unit.source[rows:], *unit.following][:number],
            target=unit.target[:rows],
        )

    def score_spans(self, scorer, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Score each unit's references as one sequence, and return the results by sentence.

        The result has the form of :meth:`score`.  Context sentences are left out of it.
        """
        batch = self.encoder_input(units, models)
        targets = [self.joined_target(units[i]) for i in batch.order]
        target = pad_rows(targets, self.task.target_dictionary).to(batch.device)
        previous = self.formats.target.decoder_input(targets)
        net_input = {**batch.net_input, "prev_output_tokens": previous.to(batch.device)}
        if len(models) > 1 and not scorer.compute_alignment:
            models = [_WithoutAttention(model) for model in models]
        found = scorer.generate(models, {"net_input": net_input, "target": target})
        scored = []
        for number, hypotheses in zip(batch.order, found):
            unit = units[number]
            sentences = self.split_sentences(hypotheses[0], unit, scorer)
            scored.append([[sentence] for sentence in sentences[unit.num_context :]])
        return batch.in_order_of_units(scored)


def device_of(models) -> torch.device:
    """Return the device that holds the models of an ensemble."""
    return next(models[0].parameters()).device


def _with_forced_tokens(units, prefixes, constraints) -> List[DecodingUnit]:
    """Return the units with the prefixes and constraints of their sentences added.

    Args:
        units: decoding units of a sample.
        prefixes, constraints: see :meth:`DocumentSearch.decode`.
    """
    if prefixes is None and constraints is None:
        return units
    sizes = [unit.num_rows for unit in units]
    parts = [
        [None] * len(units) if rows is None else rows.split(sizes)
        for rows in (prefixes, constraints)
    ]
    return [
        replace(unit, prefixes=prefix, constraints=constraint)
        for unit, prefix, constraint in zip(units, *parts)
    ]


def stacked(given: Sequence[Optional[Tensor]]) -> Optional[Tensor]:
    """Stack one tensor per row; return None if the entries are None.

    Either all entries are tensors, or all are None.
    """
    return None if given[0] is None else torch.stack(list(given))
