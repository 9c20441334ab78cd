"""Translation sentence by sentence, given the previous translations (``--decoding sequential``)."""

from typing import Callable, Dict, List, Optional

import torch
from torch import Tensor

from fairseq_docmt.data import pad_rows
from fairseq_docmt.data.decoding_units import DecodingUnit
from fairseq_docmt.generation.ensembles import PrefixEnsemble
from fairseq_docmt.generation.hypotheses import Hypothesis, cut_alignment
from fairseq_docmt.generation.search import DocumentSearch, NBestLists, stacked
from fairseq_docmt.generation.sequence_generator import RowLimits

_SHORT_SENTENCES = (
    "sentences that were translated with less context or none, because the translations before "
    "them fill the target positions of the model"
)


class SequentialSearch(DocumentSearch):
    """Search that translates one sentence at a time, after reading its target context.

    A unit is a window, a document or a part of a document.  In a window only the last sentence is
    translated; its target context was translated in earlier batches.  In a document or part, all
    sentences are translated in turn.

    The translations before a sentence may leave too few target positions for it.  A window then
    loses its oldest sentences, while a document continues with a new unit without context.
    """

    decoding = "sequential"
    description = (
        "translate sentence by sentence, given the previous translations and the source up to the "
        "sentence"
    )
    by_windows = one_by_one = reads_prefix = True

    def __init__(self, task):
        super().__init__(task)
        #: last translations of each open document
        self.translated: Dict[int, List[Tensor]] = {}

    @property
    def keeps_order(self) -> bool:
        """Whether units have to be decoded in order.

        This is so for windows with context, whose translation comes from earlier windows.
        """
        return self.window is not None and self.window > 1

    def forget(self) -> None:
        """Forget the translations of documents that have not ended."""
        self.translated = {}

    def ensemble_of(self, models, lm_model=None) -> PrefixEnsemble:
        """Return an ensemble whose decoders read target context before the search.

        Args:
            models: models of the ensemble.
            lm_model: language model for shallow fusion, or None.
        """
        score_prefix = self.task.cfg.normalize_with_context
        symbols = self.eos, self.formats.target.separator, self.pad
        return PrefixEnsemble(models, *symbols, score_prefix, lm_model)

    def translate(self, generator, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Translate the sentences of each unit one by one, and return their n-best lists."""
        units = [self._with_room(generator, unit) for unit in units]
        results: List[NBestLists] = [[] for _ in units]
        waiting = list(range(len(units)))
        while waiting:
            rest = [
                units[i].starting_at(len(results[i])) if results[i] else units[i] for i in waiting
            ]
            for i, found in zip(waiting, self._translate_as_far_as_possible(generator, rest)):
                results[i] += found
            waiting = [i for i in waiting if len(results[i]) < units[i].num_rows]
            self.shortened[_SHORT_SENTENCES] += len(waiting)
        self._forget_finished(units)
        return results

    def _with_room(self, generator, unit: DecodingUnit) -> DecodingUnit:
        """Shorten the context of a unit until its first sentence has room for a translation.

        The oldest context sentences are dropped first.  The shortened unit is returned.
        """
        shorter = unit
        while shorter.num_context and not self._has_room(
            generator, shorter, 0, self._context(shorter)
        ):
            shorter = shorter.without_oldest()
        self.shortened[_SHORT_SENTENCES] += shorter is not unit
        return shorter

    def _translate_as_far_as_possible(self, generator, units) -> List[NBestLists]:
        """Translate the sentences of each unit until the decoder runs out of target positions.

        The first sentence of a unit is always translated.  The translation of a unit stops before
        the first later sentence for which :meth:`_has_room` is False.

        Returns:
            For each unit, the n-best lists of the sentences that have been translated.
        """
        generator.model.begin_documents()
        return self._without_future(
            units,
            lambda shown, growing: self._translate(generator, shown, growing),
            lambda *given: self._has_room(generator, *given),
        )

    def _has_room(self, generator, unit: DecodingUnit, row: int, before: List[Tensor]) -> bool:
        """Return whether the models have target positions left for a sentence after its context.

        A sentence is assumed to need its length limit, but at most 2 n + 10 tokens for n source
        tokens, as few translations are longer.

        Args:
            generator: generator, which determines the length limit and the target positions.
            unit: unit with the sentence.
            row: number of the sentence among the sentences that the unit translates.
            before: previous target sentences, without ``</s>``.
        """
        size = len(unit.source[unit.num_context + row])
        read = self.formats.target.prefix_size(before, unit.at_start)
        wanted = min(generator.most_tokens(size, 1), 2 * size + 10)
        return generator.max_len - 1 - read >= wanted

    def score(self, scorer, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Score the reference of each sentence, given the source up to this sentence.

        This is the same source that is read when the sentence is translated.
        """
        return self._without_future(units, lambda shown, _: self.score_spans(scorer, models, shown))

    def _without_future(
        self,
        units: List[DecodingUnit],
        decode: Callable[..., List[NBestLists]],
        has_room: Callable[..., bool] = lambda *given: True,
    ) -> List[NBestLists]:
        """Decode units sentence by sentence, each given the source up to this sentence.

        This follows Herold and Ney (2023), section 3.4.  The source grows with each sentence and is
        encoded again each time, apart from states that ``decode`` can reuse.

        Args:
            units: units to decode.
            decode: function that decodes one sentence of each unit and returns n-best lists.  It
                gets shortened units, which end with the sentence to decode, and their indices in
                ``units``.  If every unit has only one sentence to decode, it gets ``units`` and
                None.
            has_room: function that returns whether another sentence can be decoded, given the unit,
                the number of the sentence and its target context.  If not, the rest of the unit is
                left out.

        Returns:
            For each unit, the n-best lists of the sentences that have been decoded.
        """
        if all(unit.num_rows == 1 for unit in units):
            return decode(units, None)
        results: List[NBestLists] = [[] for _ in units]
        contexts = [list(unit.target_context or ()) for unit in units]
        active = list(range(len(units)))
        for row in range(max(unit.num_rows for unit in units)):
            active = [
                i
                for i in active
                if row < units[i].num_rows and (row == 0 or has_room(units[i], row, contexts[i]))
            ]
            if not active:
                break
            found = decode([units[i].ending_at(row, contexts[i]) for i in active], active)
            for i, (hypotheses,) in zip(active, found):
                results[i].append(hypotheses)
                tokens = self.context_tokens(units[i], row, hypotheses)
                contexts[i] = [*contexts[i], tokens]
        return results

    # ---- search --------------------------------------------------------------------------------

    def _translate(
        self, generator, units: List[DecodingUnit], growing: Optional[List[int]] = None
    ) -> List[NBestLists]:
        """Translate the sentences of each unit in turn, and return their n-best lists.

        All units are in one batch if the decoders can read prefixes of different lengths in
        parallel.  Otherwise each unit is translated by itself.

        A document may be translated in several calls, each with one sentence more.  If ``growing``
        is given, the states of the previous call are reused where the models allow it.

        Args:
            generator: generator of this package.
            units: units to translate.
            growing: number of each unit's document, the same in all calls; None to reuse no states.
        """
        ensemble: PrefixEnsemble = generator.model
        if not ensemble.side_by_side and len(units) > 1:
            return [self._translate(generator, [unit])[0] for unit in units]
        batch = self.encoder_input(units, ensemble.models)
        in_batch = [units[i] for i in batch.order]
        tokens = self._first_tokens(in_batch).to(batch.device)
        if ensemble.grows and growing is not None:
            documents = [growing[i] for i in batch.order]
            ensemble.extend_documents(batch.net_input, tokens, documents)
        else:
            ensemble.encode(batch.net_input)
            ensemble.read(tokens)
        return batch.in_order_of_units(self._write(generator, in_batch, batch.net_input))

    def _write(self, generator, units: List[DecodingUnit], net_input: dict) -> List[NBestLists]:
        """Translate sentence by sentence, and let the decoders read each translation.

        The translation of a unit ends early if there is no room for its next sentence.

        Args:
            generator: generator whose ensemble has read the target context of each unit.
            units: units to translate.
            net_input: encoder input, with a row for each unit.

        Returns:
            For each unit, the n-best lists of the sentences that have been translated.
        """
        ensemble, device = generator.model, net_input["src_tokens"].device
        results: List[NBestLists] = [[] for _ in units]
        before = [list(self._context(unit)) for unit in units]
        active = list(range(len(units)))
        while True:
            current = [(units[i], len(results[i])) for i in active]
            written = [before[i] for i in active]
            found = self._write_sentence(generator, current, written, net_input)
            self.progress.advance(len(active))
            chunks = []
            for i, (unit, row), hypotheses in zip(active, current, found):
                results[i].append(hypotheses)
                tokens = self.context_tokens(unit, row, hypotheses)
                before[i].append(tokens)
                self._keep_context(unit, tokens)
                chunks.append(self.formats.target.continued(tokens))
            going_on = [
                at
                for at, (unit, row) in enumerate(current)
                if row + 1 < unit.num_rows
                and self._has_room(generator, unit, row + 1, before[active[at]])
            ]
            if not going_on:
                return results
            if len(going_on) < len(active):
                rows = torch.tensor(going_on, device=device)
                ensemble.keep_rows(rows)
                net_input = {key: value[rows] for key, value in net_input.items()}
            chunk = pad_rows([chunks[at] for at in going_on], self.task.target_dictionary)
            ensemble.read(chunk.to(device))
            active = [active[at] for at in going_on]

    def _write_sentence(
        self, generator, current, before: List[List[Tensor]], net_input: dict
    ) -> List[List[Hypothesis]]:
        """Translate one sentence of each unit, and return its hypotheses.

        Args:
            generator: generator whose ensemble has read the target context.
            current: for each unit, a pair of the unit itself and the number of the sentence to
                translate now, from 0.  Context sentences of the unit are not counted.
            before: previous target sentences of each unit.
            net_input: encoder input, with a row for each unit.
        """
        ensemble = generator.model
        read = ensemble.prefixes[0].tokens.ne(self.pad).sum(1).tolist()
        limits = [
            self._most_tokens(generator, unit, row, already)
            for (unit, row), already in zip(current, read)
        ]
        context = None
        if ensemble.score_prefix:
            # The first token of the decoder does not count.
            lengths = torch.tensor(read, device=ensemble.prefix_scores.device) - 1
            context = ensemble.prefix_scores, lengths
        with ensemble.writing([row + 1 < unit.num_rows for unit, row in current]):
            found = generator.generate(
                list(ensemble.models),
                {"net_input": net_input},
                limits=RowLimits(limits, context=context, before=before),
                prefix_tokens=_of_rows([(unit.prefixes, row) for unit, row in current]),
                constraints=_of_rows([(unit.constraints, row) for unit, row in current]),
            )
        return [
            [self._aligned(hypothesis, unit, row) for hypothesis in hypotheses]
            for (unit, row), hypotheses in zip(current, found)
        ]

    def _most_tokens(self, generator, unit: DecodingUnit, row: int, read: int) -> int:
        left = generator.max_len - 1 - read
        return min(generator.most_tokens(len(unit.source[unit.num_context + row]), 1), left)

    def _aligned(self, hypothesis: Hypothesis, unit: DecodingUnit, row: int) -> Hypothesis:
        """Return a hypothesis with its alignment restricted to its own source sentence.

        Source positions are then counted from the first token of this sentence, which has the
        number ``row`` among the sentences of the unit without its context.
        """
        places = self.formats.source.places(map(len, unit.source), unit.at_start)
        own = places[unit.num_context + row]
        alignment = cut_alignment(hypothesis["alignment"], *own, 0, len(hypothesis["tokens"]))
        return {**hypothesis, "alignment": alignment, "attention": None}

    # ---- target context ------------------------------------------------------------------------

    def _first_tokens(self, units: List[DecodingUnit]) -> Tensor:
        """Return the (bsz, n) padded tokens that the decoders read before the first search.

        These are the marks at the beginning and the target context, such as ``</s> s1 <sep> s2
        <sep>``.
        """
        target = self.formats.target
        rows = [target.prefix(self._context(unit), unit.at_start) for unit in units]
        return pad_rows(rows, target.dictionary)

    def _context(self, unit: DecodingUnit) -> List[Tensor]:
        """Return the translations of a unit's context sentences, without ``</s>``.

        Raises:
            RuntimeError: the context has not been translated yet.
        """
        if unit.target_context is not None:
            return unit.target_context
        wanted = unit.num_context
        known = self.translated.get(unit.document, [])
        if unit.position == 0 or wanted == 0:
            return []
        if len(known) < wanted:
            raise RuntimeError(
                f"sentence {unit.position + 1} of document {unit.document + 1} came before "
                "its predecessor was translated"
            )
        return known[-wanted:]

    def _keep_context(self, unit: DecodingUnit, tokens: Tensor) -> None:
        """Keep a translation as target context for the next windows of its document.

        Nothing is kept if units are not windows with context, or if the unit has a target context
        of its own.
        """
        if not self.keeps_order or unit.target_context is not None:
            return
        known = self.translated.get(unit.document, []) if unit.position > 0 else []
        self.translated[unit.document] = (known + [tokens])[1 - self.window :]

    def _forget_finished(self, units: List[DecodingUnit]) -> None:
        """Forget the translations of documents that have no sentence in this sample.

        Documents are decoded side by side from beginning to end, so these documents have ended.
        Only the document with the highest number is kept longer, because interactive input may
        continue it.
        """
        kept = {unit.document for unit in units}
        if self.translated:
            kept.add(max(self.translated))
        self.translated = {d: texts for d, texts in self.translated.items() if d in kept}


class FullSourceSearch(SequentialSearch):
    """Search that translates one sentence at a time, given the source of the whole document.

    If a document is divided into parts, a sentence is translated given the source of its part.
    """

    decoding = "sequential-full-source"
    description = "the same as sequential, given the source of the whole document or part"

    def score(self, scorer, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Score the references of each unit in one pass, given the whole source of the unit."""
        return self.score_spans(scorer, models, units)

    def _translate_as_far_as_possible(self, generator, units) -> List[NBestLists]:
        return self._translate(generator, units)


def _of_rows(given):
    """Stack ``tensor[row]`` of all pairs (tensor, row); return None if the tensors are None.

    The tensors are prefixes or constraints of units, and the rows are numbers of sentences.
    """
    return stacked([None if rows is None else rows[row] for rows, row in given])
