"""Common part of all decodings: inputs, limits, references and results (``inference_step``)."""

from dataclasses import replace
from typing import List, NamedTuple, Optional, Sequence

import torch
from fairseq.data import data_utils
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor

from fairseq_docmt.data import join_sentences, pad_rows
from fairseq_docmt.data.decoding_units import DecodingUnit
from fairseq_docmt.data.symbols import BEGIN_OF_DOCUMENT, SENTENCE_SEPARATOR
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.hypotheses import (
    Hypothesis,
    best_tokens,
    empty_hypothesis,
    split_hypothesis,
)

#: for each row to translate its hypotheses, best first
Rows = List[List[Hypothesis]]


class EncoderInput(NamedTuple):
    """Sources of some units as a batch.

    Attributes:
        order: number of the unit in each row; the longest come first, as recurrent encoders
            want it.
        net_input: ``src_tokens`` (bsz, S) and ``src_lengths`` (bsz,).
    """

    order: List[int]
    net_input: dict

    @property
    def device(self) -> torch.device:
        """Device of the batch."""
        return self.net_input["src_tokens"].device

    def in_order_of_units(self, found: Sequence) -> list:
        """Sort what was found for each row by the units."""
        results: list = [None] * len(self.order)
        for number, of_row in zip(self.order, found):
            results[number] = of_row
        return results


class DocumentSearch:
    """Base of the decodings: hypotheses for the rows of decoding units.

    A decoding defines :meth:`translate`.  It may keep translations from one sample to the next;
    samples then have to come in the order of their documents.

    Args:
        task: document task with dictionaries, ``decoding`` and ``options``.
    """

    def __init__(self, task):
        self.task = task
        tgt_dict, src_dict = task.target_dictionary, task.source_dictionary
        self.eos, self.pad = tgt_dict.eos(), tgt_dict.pad()
        self.separator = tgt_dict.index(SENTENCE_SEPARATOR)
        self.src_separator = src_dict.index(SENTENCE_SEPARATOR)
        self.tgt_mark = torch.tensor([tgt_dict.index(BEGIN_OF_DOCUMENT)])
        self.src_mark = torch.tensor([src_dict.index(BEGIN_OF_DOCUMENT)])
        self._units_left = 0

    # ---- defined by decodings ------------------------------------------------------------------

    def end(self) -> None:
        """Report on a run whose last unit has been decoded."""

    def forget(self) -> None:
        """Forget the translations of open documents."""

    def ensemble_of(self, models):
        """Return the ensemble that the generator runs, None for that of fairseq."""
        return None

    def translate(self, generator, models, units: List[DecodingUnit]) -> List[Rows]:
        """Search for translations of the rows of each unit."""
        raise NotImplementedError

    def score(self, scorer, models, units: List[DecodingUnit]) -> List[Rows]:
        """Score the references of the rows of each unit."""
        return self.score_spans(scorer, models, units)

    # ---- called by tasks -----------------------------------------------------------------------

    def begin(self, units: int) -> None:
        """Prepare for a run over a number of units."""
        self._units_left = units

    @torch.no_grad()
    def decode(self, generator, models, units, prefixes=None, constraints=None) -> Rows:
        """Translate or score the rows of a sample.

        Args:
            generator: stock generator of this suite, or a scorer of references.
            models: ensemble.
            units: of the sample.
            prefixes, constraints: (rows, n) of the stock commands, or None.

        Returns:
            For each row its hypotheses, best first.

        Raises:
            UserError: references are to be scored and there are none.
        """
        units = _with_forced_tokens(units, prefixes, constraints)
        full = [unit for unit in units if unit.source]
        if not isinstance(generator, SequenceScorer):
            found = iter(self.translate(generator, models, full) if full else ())
        elif any(unit.target is None for unit in full):
            raise UserError("--score-reference needs references; this input has no target side")
        else:
            found = iter(self.score(generator, models, full) if full else ())
        results: Rows = []
        for unit in units:
            nothing = [[empty_hypothesis(self.eos)] for _ in unit.lines]
            results += next(found) if unit.source else nothing
        self._units_left -= len(units)
        if self._units_left == 0:
            self.end()
        return results

    # ---- inputs --------------------------------------------------------------------------------

    def marks(self, unit: DecodingUnit) -> int:
        """Return the number of ``<bod>`` symbols in front of a unit."""
        return int(self.task.options["mark_document_start"] and unit.at_start)

    def joined_source(self, unit: DecodingUnit) -> Tensor:
        """Return the source of a unit as one sequence."""
        joined = join_sentences(unit.source, self.src_separator)
        return torch.cat([self.src_mark, joined]) if self.marks(unit) else joined

    def joined_target(self, unit: DecodingUnit) -> Tensor:
        """Return the references of a unit as one sequence."""
        joined = join_sentences(unit.target, self.separator)
        return torch.cat([self.tgt_mark, joined]) if self.marks(unit) else joined

    def encoder_input(self, units: List[DecodingUnit], models) -> EncoderInput:
        """Collate the sources of units."""
        device = next(models[0].parameters()).device
        sources = [self.joined_source(unit) for unit in units]
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        rows = [sources[i] for i in order]
        padded = pad_rows(rows, self.task.source_dictionary, self.task.cfg.left_pad_source)
        lengths = torch.tensor([len(row) for row in rows], device=device)
        return EncoderInput(order, {"src_tokens": padded.to(device), "src_lengths": lengths})

    def context_tokens(self, unit: DecodingUnit, row: int, hypotheses: List[Hypothesis]) -> Tensor:
        """Return what later sentences see as the translation of a row, without its end symbol.

        It is the best hypothesis, or with ``--gold-context`` the reference.
        """
        if not self.task.cfg.gold_context:
            return best_tokens(hypotheses, self.pad)
        if unit.target is None:
            raise UserError("--gold-context needs references; this input has no target side")
        return unit.target[unit.num_context + row][:-1]

    # ---- references ----------------------------------------------------------------------------

    def score_spans(self, scorer, models, units: List[DecodingUnit]) -> List[Rows]:
        """Score joined references by the stock scorer; a sentence gets that of its own tokens."""
        batch = self.encoder_input(units, models)
        targets = [self.joined_target(units[i]) for i in batch.order]
        target = pad_rows(targets, self.task.target_dictionary).to(batch.device)
        previous = data_utils.collate_tokens(
            targets, self.pad, self.eos, move_eos_to_beginning=True
        )
        net_input = {**batch.net_input, "prev_output_tokens": previous.to(batch.device)}
        found = scorer.generate(models, {"net_input": net_input, "target": target})
        scored = []
        for number, hypotheses in zip(batch.order, found):
            unit = units[number]
            sentences = split_hypothesis(
                hypotheses[0],
                [len(sentence) for sentence in unit.source],
                self.separator,
                self.marks(unit),
                scorer,
            )
            scored.append([[sentence] for sentence in sentences[unit.num_context :]])
        return batch.in_order_of_units(scored)


def _with_forced_tokens(units, prefixes, constraints) -> List[DecodingUnit]:
    """Give each unit its rows of the prefixes and constraints of a sample."""
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
    """Stack what each row was given, None if nothing was."""
    return None if given[0] is None else torch.stack(list(given))
