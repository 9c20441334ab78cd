"""Translates units of documents with a stock generator (``inference_step`` of the tasks)."""

import logging
from typing import Callable, Dict, List, Optional

import torch
from fairseq.data import data_utils
from fairseq.sequence_scorer import SequenceScorer
from torch import Tensor

from fairseq_docmt.data import join_sentences, pad_rows
from fairseq_docmt.data.symbols import BEGIN_OF_DOCUMENT, SENTENCE_SEPARATOR
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.hypotheses import (
    JointHypothesis,
    best_tokens,
    empty_hypothesis,
    nbest_of_sentences,
    split_hypothesis,
)
from fairseq_docmt.generation.prefix_ensemble import PrefixEnsemble

logger = logging.getLogger(__name__)


class DocumentDecoder:
    """Decodes the units of samples (see :mod:`fairseq_docmt.data.decoding_units`).

    What it remembers from one sample to the next is the translation of open documents, for
    windows decoded sequentially; samples then have to come in the order of their documents.

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
        self.translated: Dict[int, List[Tensor]] = {}
        #: units of the latest batch, as :meth:`_without_future` numbers them
        self._growing: List[int] = []
        self._units_left = 0
        self._joint_units = 0
        self._wrong_counts = 0

    # ---- life of a run -------------------------------------------------------------------------

    def begin(self, units: int, forget: bool) -> None:
        """Get ready for ``units`` units, of new documents if ``forget``."""
        if forget:
            self.forget()
        self._units_left = units
        self._joint_units = self._wrong_counts = 0

    def forget(self) -> None:
        """Forget open documents."""
        self.translated = {}

    def ensemble_of(self, models):
        """Models as the generator is to see them, None for the stock way."""
        if self.task.sequential:
            score_prefix = self.task.cfg.normalize_with_context
            return PrefixEnsemble(models, self.eos, self.separator, self.pad, score_prefix)
        return None

    @torch.no_grad()
    def decode(self, generator, models, sample, prefix_tokens=None, constraints=None) -> list:
        """Hypotheses for each row of the sample.

        Args:
            sample: with ``units``.
            prefix_tokens, constraints: (rows, n) of the stock commands, or None.
        """
        units = sample["units"]
        for unit, first in zip(units, _first_rows(units)):
            rows = slice(first, first + unit["rows"])
            unit["prefix"] = None if prefix_tokens is None else prefix_tokens[rows]
            unit["constraints"] = None if constraints is None else constraints[rows]
        full = [unit for unit in units if unit["source"]]
        if isinstance(generator, SequenceScorer):
            decoded = self.score_units(generator, models, full)
        else:
            decoded = self.translate_units(generator, models, full)
        self._count_down(len(units))
        results, decoded = [], iter(decoded)
        for unit in units:
            if unit["source"]:
                results.extend(next(decoded))
            else:
                results.extend([empty_hypothesis(self.eos)] for _ in range(unit["rows"]))
        return results

    def translate_units(self, generator, models, units) -> List[list]:
        """Hypotheses for each row of each unit, by search."""
        if self.task.decoding == "sequential":
            return self._without_future(units, lambda shown: self._sequential(generator, shown))
        if self.task.sequential:
            return self._sequential(generator, units)
        return self._jointly(generator, models, units)

    def _count_down(self, units: int) -> None:
        self._units_left -= units
        if self._units_left == 0 and self._joint_units > 0:
            kept = self.task.cfg.wrong_sentence_count == "keep"
            logger.info(
                "sentence counts: %d of %d outputs of several sentences had a wrong number of "
                "sentences and were %s",
                self._wrong_counts,
                self._joint_units,
                "kept" if kept else "decoded again with the right one",
            )

    # ---- several sentences in one output -------------------------------------------------------

    def _jointly(self, generator, models, units) -> List[list]:
        """Window and segment decoding: whole spans at once, split at ``<sep>``."""
        if not units:
            return []
        counts = [len(unit["source"]) for unit in units]
        forced = [c if c == 1 or self.task.cfg.force_sentence_count else 0 for c in counts]
        found = self._search_spans(generator, models, units, forced)
        self._joint_units += sum(count > 1 for count in counts)
        wrong = [len(outputs[0].sentences) != count for outputs, count in zip(found, counts)]
        self._wrong_counts += sum(wrong)
        if self.task.cfg.wrong_sentence_count == "keep":
            found = [[o.matched(c, self.eos) for o in f] for f, c in zip(found, counts)]
        else:
            found = self._repaired(generator, models, units, found, wrong)
        return [
            nbest_of_sentences(outputs, generator.nbest)[-unit["rows"] :]
            for unit, outputs in zip(units, found)
        ]

    def _repaired(self, generator, models, units, found, wrong) -> List[List[JointHypothesis]]:
        """Hypotheses with the right number of sentences alone, found by a second search if need be.

        Args:
            found: for each unit its hypotheses, best first.
            wrong: for each unit whether the best has a wrong number of sentences.
        """
        counts = [len(unit["source"]) for unit in units]
        found = [[o for o in f if len(o.sentences) == c] for f, c in zip(found, counts)]
        again = [i for i, f in enumerate(found) if wrong[i] or len(f) < generator.nbest]
        if not again:
            return found
        repaired = self._search_spans(
            generator, models, [units[i] for i in again], [counts[i] for i in again]
        )
        for i, outputs in zip(again, repaired):
            outputs = [o.matched(counts[i], self.eos) for o in outputs]
            found[i] = sorted(found[i] + outputs, key=lambda o: -o.score)
        return found

    def _search_spans(self, generator, models, units, counts) -> List[List[JointHypothesis]]:
        """For each unit its hypotheses, best first."""
        sources = [self._source(unit) for unit in units]
        order, net_input = self._net_input(sources, models)
        lengths = [
            self._most_tokens(generator, len(s), len(u["source"])) for s, u in zip(sources, units)
        ]
        marks = [self._marks(units[i]) for i in order]
        self._restrict(generator, [lengths[i] for i in order], [counts[i] for i in order], marks)
        prefixes, constraints = self._forced(units, order)
        found = generator.generate(
            models, {"net_input": net_input}, prefix_tokens=prefixes, constraints=constraints
        )
        results: List[Optional[list]] = [None] * len(units)
        for i, hypotheses in zip(order, found):
            sizes = [len(s) for s in units[i]["source"]]
            marks = self._marks(units[i])
            results[i] = [
                JointHypothesis(
                    float(h["score"]),
                    split_hypothesis(h, sizes, self.separator, marks, generator),
                )
                for h in hypotheses
            ]
        return results

    def _forced(self, units, order):
        """Prefix and constraints of single sentences, behind ``<bod>`` where that is written."""
        rows = []
        for i in order:
            row = [self.tgt_mark] if self._marks(units[i]) else []
            if units[i]["prefix"] is not None:
                row.append(units[i]["prefix"][0].cpu())
            rows.append(torch.cat(row) if row else self.tgt_mark[:0])
        prefixes = pad_rows(rows, self.task.target_dictionary) if any(map(len, rows)) else None
        return (
            None if prefixes is None else prefixes.to(self._device),
            _stacked([units[i]["constraints"] for i in order], [0] * len(order)),
        )

    # ---- sentence by sentence ------------------------------------------------------------------

    def _without_future(self, units, decode: Callable[[list], List[list]]) -> List[list]:
        """Decode units by their sentences, each of which sees the source up to itself alone.

        Herold and Ney (2023), section 3.4.  The source grows with each sentence, so what was read
        before is read again, but for what the new sentence cannot change.

        Args:
            decode: gives the rows of units that translate the last sentence of their source.
        """
        if all(unit["rows"] == 1 for unit in units):
            return decode(units)
        results: List[list] = [[] for _ in units]
        self._growing = []
        histories = [list(unit.get("history", ())) for unit in units]
        for row in range(max(unit["rows"] for unit in units)):
            active = [i for i, unit in enumerate(units) if row < unit["rows"]]
            shown = [_up_to(units[i], row, histories[i]) for i in active]
            for unit, i in zip(shown, active):
                unit["growing"] = i
            found = decode(shown)
            for i, (hypotheses,) in zip(active, found):
                results[i].append(hypotheses)
                histories[i] = [*histories[i], self._said(units[i], row, hypotheses)]
        return results

    def _sequential(self, generator, units) -> List[list]:
        if not units:
            return []
        ensemble: PrefixEnsemble = generator.model
        if not ensemble.side_by_side and len(units) > 1:
            return [self._sequential(generator, [unit])[0] for unit in units]
        order, net_input = self._net_input([self._source(u) for u in units], ensemble.models)
        units_in_order = [units[i] for i in order]
        tokens = self._first_tokens(units_in_order)
        if ensemble.grows and "growing" in units[0]:
            ensemble.go_on(net_input, tokens, self._known_rows(units_in_order))
        else:
            ensemble.encode(net_input)
            ensemble.read(tokens)
        results: List[Optional[list]] = [None] * len(units)
        for i, rows in zip(order, self._write(generator, units_in_order, net_input)):
            results[i] = rows
        return results

    def _known_rows(self, units) -> Optional[List[int]]:
        """For each unit its row in the batch of the sentence before, None at the first sentence."""
        before, self._growing = self._growing, [unit["growing"] for unit in units]
        return [before.index(number) for number in self._growing] if before else None

    def _write(self, generator, units, net_input) -> List[list]:
        """Translate the rows of each unit one after the other, reading each when it is done."""
        ensemble = generator.model
        results: List[list] = [[] for _ in units]
        active = list(range(len(units)))
        while True:
            found = self._write_sentence(
                generator, [units[i] for i in active], net_input, results, active
            )
            chunks = []
            for i, hypotheses in zip(active, found):
                said = self._said(units[i], len(results[i]), hypotheses)
                results[i].append(hypotheses)
                self._remember(units[i], said)
                chunks.append(torch.cat([said, torch.tensor([self.separator])]))
            going_on = [at for at, i in enumerate(active) if len(results[i]) < units[i]["rows"]]
            if not going_on:
                return results
            if len(going_on) < len(active):
                rows = torch.tensor(going_on, device=self._device)
                ensemble.keep_rows(rows)
                net_input = {key: value[rows] for key, value in net_input.items()}
            chunk = pad_rows([chunks[at] for at in going_on], self.task.target_dictionary)
            ensemble.read(chunk.to(self._device))
            active = [active[at] for at in going_on]

    def _write_sentence(self, generator, units, net_input, results, active) -> List[list]:
        ensemble = generator.model
        read = ensemble.prefixes[0].tokens.ne(self.pad).sum(1).tolist()
        limits = []
        for unit, i, already in zip(units, active, read):
            current = len(unit["source"]) - unit["rows"] + len(results[i])
            most = self._most_tokens(generator, len(unit["source"][current]), 1)
            left = generator.max_len - 1 - already
            if left < 1:
                raise UserError(
                    f"the context of document {unit['document'] + 1} fills all "
                    f"{generator.max_len} target positions of the model; decode with "
                    "a smaller window, or train with a smaller --max-document-tokens"
                )
            limits.append(min(most, left))
        context = None
        if ensemble.score_prefix:
            # The first token is </s>, which stands for no word.
            context = ensemble.prefix_scores, torch.tensor(read, device=self._device) - 1
        self._restrict(generator, limits, context=context)
        current_rows = [len(results[i]) for i in active]
        inside = [row + 1 < unit["rows"] for row, unit in zip(current_rows, units)]
        with ensemble.writing(inside):
            found = generator.generate(
                list(ensemble.models),
                {"net_input": net_input},
                prefix_tokens=_stacked([unit["prefix"] for unit in units], current_rows),
                constraints=_stacked([unit["constraints"] for unit in units], current_rows),
            )
        for unit, i, hypotheses in zip(units, active, found):
            sizes = [len(s) for s in unit["source"]]
            current = len(sizes) - unit["rows"] + len(results[i])
            start = self._marks(unit) + sum(sizes[:current])
            for hypothesis in hypotheses:
                self._align_to_sentence(hypothesis, start, start + sizes[current])
        return found

    @staticmethod
    def _align_to_sentence(hypothesis, start: int, end: int) -> None:
        alignment = hypothesis["alignment"]
        if not isinstance(alignment, Tensor):
            kept = [(s - start, t) for s, t in alignment if start <= s < end - 1]
            hypothesis["alignment"] = kept
        hypothesis["attention"] = None

    def _first_tokens(self, units) -> Tensor:
        """(bsz, n) what each row has been translated to before: ``</s> s1 <sep> s2 <sep>``."""
        rows = []
        for unit in units:
            row = [torch.tensor([self.eos])]
            if self._marks(unit):
                row.append(self.tgt_mark)
            context = unit.get("history")
            if context is None:
                context = self._history(unit)
            for sentence in context:
                row += [sentence, torch.tensor([self.separator])]
            rows.append(torch.cat(row))
        return pad_rows(rows, self.task.target_dictionary).to(self._device)

    def _history(self, unit) -> List[Tensor]:
        """Own translations of the source context of a unit."""
        wanted = len(unit["source"]) - unit["rows"]
        known = self.translated.get(unit["document"], [])
        if unit["position"] == 0 or wanted == 0:
            return []
        if len(known) < wanted:
            raise RuntimeError(
                f"sentence {unit['position'] + 1} of document {unit['document'] + 1} came before "
                "its predecessor was translated"
            )
        return known[-wanted:]

    def _said(self, unit, row: int, hypotheses) -> Tensor:
        """What the sentences after one find as its translation, without the symbol that ends it.

        Args:
            unit: that it belongs to.
            row: its number among the sentences that the unit translates.
            hypotheses: best first.
        """
        if not self.task.cfg.gold_context:
            return best_tokens(hypotheses, self.pad)
        if unit["target"] is None:
            raise UserError("--gold-context needs references; this input has no target side")
        return unit["target"][row - unit["rows"]][:-1].cpu()

    def _remember(self, unit, tokens: Tensor) -> None:
        window = self.task.window_to_decode()
        if window < 2 or "history" in unit:
            return
        known = self.translated.get(unit["document"], []) if unit["position"] > 0 else []
        self.translated[unit["document"]] = (known + [tokens])[1 - window :]

    # ---- references ----------------------------------------------------------------------------

    def score_units(self, scorer, models, units) -> List[list]:
        """Stock scorer on joined references; each sentence has the score of its own tokens."""
        if any(unit["target"] is None for unit in units):
            raise UserError("--score-reference needs references; this input has no target side")
        if self.task.decoding == "sequential":
            return self._without_future(units, lambda u: self._score_jointly(scorer, models, u))
        return self._score_jointly(scorer, models, units)

    def _score_jointly(self, scorer, models, units) -> List[list]:
        sources = [self._source(unit) for unit in units]
        order, net_input = self._net_input(sources, models)
        targets = []
        for i in order:
            joined = join_sentences([t.cpu() for t in units[i]["target"]], self.separator)
            targets.append(torch.cat([self.tgt_mark, joined]) if self._marks(units[i]) else joined)
        target = pad_rows(targets, self.task.target_dictionary).to(self._device)
        net_input["prev_output_tokens"] = data_utils.collate_tokens(
            targets, self.pad, self.eos, move_eos_to_beginning=True
        ).to(self._device)
        found = scorer.generate(models, {"net_input": net_input, "target": target})
        results: List[Optional[list]] = [None] * len(units)
        for i, hypotheses in zip(order, found):
            unit = units[i]
            sizes = [len(s) for s in unit["source"]]
            sentences = split_hypothesis(
                hypotheses[0], sizes, self.separator, self._marks(unit), scorer
            )
            results[i] = [[sentence] for sentence in sentences[-unit["rows"] :]]
        return results

    # ---- shared --------------------------------------------------------------------------------

    def _marks(self, unit) -> int:
        """Number of ``<bod>`` symbols in front of a unit."""
        return int(self.task.options["mark_document_start"] and unit["at_start"])

    def _source(self, unit) -> Tensor:
        joined = join_sentences([s.cpu() for s in unit["source"]], self.src_separator)
        return torch.cat([self.src_mark, joined]) if self._marks(unit) else joined

    def _net_input(self, sources: List[Tensor], models):
        """Order of the rows, longest first as recurrent encoders want it, and encoder input."""
        self._device = next(models[0].parameters()).device
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        rows = [sources[i] for i in order]
        left_pad = self.task.cfg.left_pad_source
        net_input = {
            "src_tokens": pad_rows(rows, self.task.source_dictionary, left_pad).to(self._device),
            "src_lengths": torch.tensor([len(row) for row in rows], device=self._device),
        }
        return order, net_input

    @staticmethod
    def _most_tokens(generator, source_tokens: int, sentences: int) -> int:
        """Stock limit ``a * source + b``, with b granted to each sentence of a span."""
        return int(generator.most_tokens_a * source_tokens + generator.most_tokens_b * sentences)

    def _restrict(
        self, generator, limits: List[int], counts=None, marks=None, context=None
    ) -> None:
        """Limits of each row; ``marks`` stand before its sentences and do not count as tokens."""
        most = generator.max_len - 1
        limits = [min(limit, most) for limit in limits]
        generator.max_len_a, generator.max_len_b = 0, max(limits)
        nothing = [0] * len(limits)
        least = [generator.min_len + n for n in marks or nothing]
        values = (torch.tensor(x, device=self._device) for x in (limits, counts or nothing, least))
        generator.search.restrict(*values, context)


def _up_to(unit: dict, row: int, history: List[Tensor]) -> dict:
    """A unit that ends with one of the rows of another and translates this alone.

    Args:
        row: number of the row in the unit.
        history: translations of the sentences before it.
    """
    end = len(unit["source"]) - unit["rows"] + row + 1
    given = {key: unit[key] for key in ("prefix", "constraints") if unit.get(key) is not None}
    return {
        **unit,
        "source": unit["source"][:end],
        "target": None if unit["target"] is None else unit["target"][:end],
        "rows": 1,
        "history": history,
        **{key: rows[row : row + 1] for key, rows in given.items()},
    }


def _stacked(given: List[Optional[Tensor]], rows: List[int]) -> Optional[Tensor]:
    """(units, n) one row of what each unit was given, None if nothing was."""
    if given[0] is None:
        return None
    return torch.stack([tensor[row] for tensor, row in zip(given, rows)])


def _first_rows(units) -> List[int]:
    firsts, row = [], 0
    for unit in units:
        firsts.append(row)
        row += unit["rows"]
    return firsts
