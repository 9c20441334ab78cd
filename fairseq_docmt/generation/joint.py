"""Translation of several sentences in one output (``--decoding window`` and ``segment``)."""

import logging
from typing import List, Optional

import torch
from torch import Tensor

from fairseq_docmt.data import pad_rows
from fairseq_docmt.data.decoding_units import DecodingUnit
from fairseq_docmt.generation.hypotheses import (
    JointHypothesis,
    nbest_of_sentences,
)
from fairseq_docmt.generation.search import DocumentSearch, EncoderInput, NBestLists, stacked
from fairseq_docmt.generation.sequence_generator import RowLimits

logger = logging.getLogger(__name__)


class JointSearch(DocumentSearch):
    """Search that translates all sentences of a unit in one output and splits it at ``<sep>``.

    If an output has the wrong number of sentences, ``--wrong-sentence-count`` determines whether
    the unit is decoded again with the right number forced, or the output is kept.
    """

    def __init__(self, task):
        super().__init__(task)
        #: number of outputs of several sentences in this run, and of those with a wrong number
        self._joint_outputs = self._wrong_counts = 0

    def begin(self, units: int) -> None:
        """Start a run over ``units`` decoding units; reset the counts that :meth:`end` logs."""
        super().begin(units)
        self._joint_outputs = self._wrong_counts = 0

    def end(self) -> None:
        """Log how many outputs had the wrong number of sentences."""
        if self._joint_outputs > 0:
            kept = self.task.cfg.wrong_sentence_count == "keep"
            logger.info(
                "sentence counts: %d of %d outputs of several sentences had a wrong number of "
                "sentences and were %s",
                self._wrong_counts,
                self._joint_outputs,
                "kept" if kept else "decoded again with the right one",
            )

    def translate(self, generator, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Translate each unit as one output sequence; return the n-best lists of its sentences."""
        return self.translate_spans(generator, models, units)

    def translate_spans(
        self, generator, models, units: List[DecodingUnit], encoder_context: Optional[dict] = None
    ) -> List[NBestLists]:
        """Translate each unit as one output sequence; return the n-best lists of its sentences.

        Lists are returned only for the sentences to translate, not for context sentences.

        Args:
            generator: generator of this package.
            models: models of the ensemble.
            units: units to translate.
            encoder_context: additional entries of ``net_input``, such as document states or memory
                readings, with one row per unit.  The units must then be single sentences, sorted by
                source length, the longest first.
        """
        counts = [len(unit.source) for unit in units]
        force = self.task.cfg.force_sentence_count
        forced = [count if count == 1 or force else 0 for count in counts]
        found = self._search(generator, models, units, forced, encoder_context)
        wrong = [len(outputs[0].sentences) != count for outputs, count in zip(found, counts)]
        self._joint_outputs += sum(count > 1 for count in counts)
        self._wrong_counts += sum(wrong)
        if self.task.cfg.wrong_sentence_count == "repair":
            free = [i for i, number in enumerate(forced) if number == 0]
            repaired = self._repaired(
                generator, models, [units[i] for i in free], [found[i] for i in free]
            )
            for i, outputs in zip(free, repaired):
                found[i] = outputs
        found = [[o.matched(count, self.eos) for o in f] for f, count in zip(found, counts)]
        return [
            nbest_of_sentences(outputs, generator.nbest, not generator.samples)[unit.num_context :]
            for unit, outputs in zip(units, found)
        ]

    def _repaired(self, generator, models, units, found) -> List[List[JointHypothesis]]:
        """Decode units again, forcing the number of sentences, where outputs have the wrong number.

        A unit is decoded again if its best output has the wrong number of sentences, or if fewer
        than ``nbest`` of its outputs have the right number.

        Args:
            generator: generator of this package.
            models: models of the ensemble.
            units: units that were decoded without forcing the number of sentences.
            found: hypotheses of each unit, best first.

        Returns:
            For each unit, the hypotheses with the right number of sentences from both decodings,
            best first.
        """
        counts = [len(unit.source) for unit in units]
        right = [[o for o in f if len(o.sentences) == c] for f, c in zip(found, counts)]
        again = [
            i
            for i, outputs in enumerate(right)
            if len(found[i][0].sentences) != counts[i] or len(outputs) < generator.nbest
        ]
        if not again:
            return right
        repaired = self._search(
            generator, models, [units[i] for i in again], [counts[i] for i in again]
        )
        for i, outputs in zip(again, repaired):
            outputs = right[i] + outputs
            if generator.samples:  # not the best of too many
                outputs = outputs[: generator.nbest]
            right[i] = sorted(outputs, key=lambda output: -output.score)
        return right

    def _search(
        self, generator, models, units, counts, encoder_context=None
    ) -> List[List[JointHypothesis]]:
        """Run the generator on units, and split each output into sentences.

        Args:
            generator: generator of this package.
            models: models of the ensemble.
            units: units to translate.
            counts: number of sentences that the output of each unit must have; 0 for any number.
            encoder_context: see :meth:`translate_spans`.

        Returns:
            For each unit, its outputs split into sentences, best first.
        """
        batch = self.encoder_input(units, models)
        in_batch = [units[i] for i in batch.order]
        limits = RowLimits(
            most=[self._most_tokens(generator, unit) for unit in in_batch],
            sentences=[
                [len(sentence) for sentence in units[i].source] if counts[i] else []
                for i in batch.order
            ],
            marks=[len(self.formats.target.start(unit.at_start)) for unit in in_batch],
            before=[unit.target_context or [] for unit in in_batch],
        )
        found = generator.generate(
            models,
            {"net_input": {**batch.net_input, **(encoder_context or {})}},
            limits=limits,
            prefix_tokens=self._prefixes(in_batch, batch),
            constraints=_constraints(in_batch),
            bos_token=self.formats.target.first_token,
        )
        outputs = [
            [
                JointHypothesis(float(h["score"]), self.split_sentences(h, unit, generator))
                for h in hypotheses
            ]
            for unit, hypotheses in zip(in_batch, found)
        ]
        return batch.in_order_of_units(outputs)

    def _most_tokens(self, generator, unit: DecodingUnit) -> int:
        source = self.formats.source
        tokens = sum(len(sentence) for sentence in unit.source)
        tokens += len(source.start(unit.at_start)) + len(source.after)
        return generator.most_tokens(tokens, len(unit.source))

    def _prefixes(self, units, batch: EncoderInput) -> Optional[Tensor]:
        """Return the (bsz, n) padded tokens with which the output of each row must begin.

        These are the language tag, ``<bod>`` and the tokens of ``--prefix-size``.  If no row has
        any, None is returned.
        """
        rows = []
        for unit in units:
            row = torch.tensor(self.formats.target.start(unit.at_start), dtype=torch.long)
            rows.append(row if unit.prefixes is None else torch.cat([row, unit.prefixes[0].cpu()]))
        if not any(map(len, rows)):
            return None
        return pad_rows(rows, self.task.target_dictionary).to(batch.device)


class WindowSearch(JointSearch):
    """Search that translates a window for each sentence; only the window's last sentence is kept.

    The other sentences of a window are context.
    """

    decoding = "window"
    description = "translate a window for each sentence and keep only its last sentence"
    by_windows = joint = True


class SegmentSearch(JointSearch):
    """Search that translates consecutive windows or parts of documents, each as one output.

    All sentences of an output are kept, not only the last one.
    """

    decoding = "segment"
    description = "translate a window or part of a document as one output and split it at <sep>"
    joint = True


def _constraints(units) -> Optional[Tensor]:
    return stacked([None if u.constraints is None else u.constraints[0] for u in units])
