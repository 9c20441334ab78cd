"""Translates sentences knowing how the rest of their document is translated (``iterative``).

Block coordinate descent of Maruf and Haffari (2018), section 3: first translations that know of no
others; then every sentence is translated again, given those of the others.  The first ones have the
source memory where there is one, as in the authors' code; those of the paper (footnote 7) come from
the base model, as ``--drafts`` can.  A source memory alone reads no translations: one search is
enough.
"""

import logging
from typing import Iterator, List, Optional

import torch
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor, nn

from fairseq_docmt.data import pad_rows
from fairseq_docmt.data.rows_view import previous_tokens
from fairseq_docmt.generation.document_decoder import DocumentDecoder
from fairseq_docmt.generation.hypotheses import best_tokens

logger = logging.getLogger(__name__)

#: all sentences of a document at once, or one after the other with the newest translations
ORDERS = ("together", "in-turn")


class MemnetEnsemble(EnsembleModel):
    """Models that find what was read from memories when the generator encodes a batch."""

    def __init__(self, models):
        super().__init__(models)
        #: for each model (rows, r); None for nothing
        self.readings: Optional[List[Tensor]] = None

    def forward_encoder(self, net_input):
        encoder_outs = [model.encoder.forward_torchscript(net_input) for model in self.models]
        if self.readings is None:
            return encoder_outs
        return [{**out, "readings": [r]} for out, r in zip(encoder_outs, self.readings)]


class _WithReadings(nn.Module):
    """A model as a scorer sees it, with what was read for its rows."""

    def __init__(self, model, readings: Tensor):
        super().__init__()
        self.model, self.readings = model, readings

    def forward(self, src_tokens, src_lengths, prev_output_tokens, **_):
        encoder_out = self.model.encoder(src_tokens, src_lengths=src_lengths)
        encoder_out = {**encoder_out, "readings": [self.readings]}
        return self.model.decoder(prev_output_tokens, encoder_out=encoder_out)

    def get_normalized_probs(self, *args, **kwargs):
        return self.model.get_normalized_probs(*args, **kwargs)


class _Memories:
    """What the models of an ensemble remember of some documents.

    Args:
        models: the ensemble.
        src_tokens: (R, S) their sentences, those of a document one after the other.
        documents: (R,) number of the document of each.
    """

    def __init__(self, models, src_tokens: Tensor, documents: Tensor, padding_idx: int):
        lengths = src_tokens.ne(padding_idx).sum(dim=1)
        self.models, self.documents = models, documents
        self.encoded = [
            model.encoder(src_tokens, src_lengths=lengths, documents=documents) for model in models
        ]
        self.cells: List[Optional[Tensor]] = [None for _ in models]
        #: for each model (R, s) what the source memory gives, None without one
        self.of_source = [
            model.decoder.recall_source(encoded, documents)
            for model, encoded in zip(models, self.encoded)
        ]

    @property
    def hold_translations(self) -> bool:
        """Whether any model has a target memory."""
        return any(model.remembers_translations for model in self.models)

    def translate(self, rows: Tensor, previous: Tensor) -> None:
        """Remember (n, T) tokens, as a decoder reads them, as the translations of some rows."""
        parts = zip(self.models, self.encoded, self.of_source)
        for i, (model, encoded, of_source) in enumerate(parts):
            if not model.remembers_translations:
                continue
            some = model.encoder.reorder_encoder_out(encoded, rows)
            readings = None if of_source is None else of_source.index_select(0, rows)
            new = model.decoder.target_cells(previous, some, readings)
            if self.cells[i] is None:
                self.cells[i] = new.new_zeros(len(self.documents), new.size(1))
            self.cells[i][rows] = new

    def recall(self, own: bool = True) -> List[Tensor]:
        """For each model (R, r) readings."""
        return [
            model.decoder.recall(encoded, self.documents, cells, own)
            for model, encoded, cells in zip(self.models, self.encoded, self.cells)
        ]


class IterativeDecoder(DocumentDecoder):
    """Decodes samples whose units are documents, for models that ``reads_documents``."""

    def ensemble_of(self, models) -> MemnetEnsemble:
        """Models for the generator."""
        return MemnetEnsemble(models)

    def translate_units(self, generator, models, units) -> List[list]:
        """First without other translations, or from drafts; then ``--decode-passes`` times again.

        Without passes no memory is read at all.
        """
        if not units:
            return []
        sentences, drafts = _sentences(units), units[0]["drafts"]
        everything, passes = list(range(len(sentences))), self.task.cfg.decode_passes
        found: List[list] = [[] for _ in sentences]
        memories = self._memories(models, sentences) if passes else None
        if memories is None or not memories.hold_translations or drafts is None:
            readings = None if memories is None else memories.recall()
            self._search(generator, models, sentences, everything, readings, found)
            current = [best_tokens(rows[0], self.pad) for rows in found]
        else:
            current = [draft[:-1] for unit in units for draft in unit["drafts"]]
        if memories is not None and memories.hold_translations:
            self._translate_again(generator, models, sentences, memories, current, found)
        return _by_unit(found, units)

    def _translate_again(self, generator, models, sentences, memories, current, found) -> None:
        """Passes over all sentences that begin with ``current`` translations; fills ``found``."""
        self._remember_translations(memories, sentences, range(len(sentences)), current)
        for _ in range(self.task.cfg.decode_passes):
            before = list(current)
            for wave in self._waves(sentences):
                self._search(generator, models, sentences, wave, memories.recall(), found)
                for i in wave:
                    current[i] = best_tokens(found[i][0], self.pad)
                self._remember_translations(memories, sentences, wave, current)
            if all(torch.equal(a, b) for a, b in zip(before, current)):
                break

    def score_units(self, scorer, models, units) -> List[list]:
        """Scores of references, given those of the other sentences, or given drafts."""
        if not units:
            return []
        sentences = _sentences(units)
        drafted = units[0]["drafts"] is not None
        known = [line for unit in units for line in unit["drafts" if drafted else "target"] or ()]
        memories = self._memories(models, sentences)
        everything = list(range(len(sentences)))
        if known:
            current = [line[:-1].cpu() for line in known]
            self._remember_translations(memories, sentences, everything, current)
        order, readings = everything, None
        if known:
            order = self._longest_first(sentences, everything)
            rows = torch.tensor(order, device=self._device)
            readings = [r.index_select(0, rows) for r in memories.recall(own=drafted)]
            models = [_WithReadings(model, r) for model, r in zip(models, readings)]
        scored = super().score_units(scorer, models, [sentences[i] for i in order])
        found: List[list] = [[] for _ in sentences]
        for i, rows in zip(order, scored):
            found[i] = rows
        return _by_unit(found, units)

    def _memories(self, models, sentences) -> _Memories:
        self._device = next(models[0].parameters()).device
        left_pad = self.task.cfg.left_pad_source
        rows = [self._source(unit) for unit in sentences]
        src_tokens = pad_rows(rows, self.task.source_dictionary, left_pad).to(self._device)
        documents = torch.tensor([unit["unit"] for unit in sentences], device=self._device)
        return _Memories(models, src_tokens, documents, self.task.source_dictionary.pad())

    def _remember_translations(self, memories: _Memories, sentences, wave, current) -> None:
        ended = [
            torch.cat([self.tgt_mark[: self._marks(sentences[i])], current[i], self._end])
            for i in wave
        ]
        previous = previous_tokens(ended, self.task.target_dictionary)
        rows = torch.tensor(list(wave), device=self._device)
        memories.translate(rows, previous.to(self._device))

    @property
    def _end(self) -> Tensor:
        return torch.tensor([self.eos])

    def _waves(self, sentences) -> Iterator[List[int]]:
        """Numbers of the sentences to translate before the memories are looked at again."""
        if self.task.cfg.decode_order == "together":
            yield list(range(len(sentences)))
            return
        for position in range(max(unit["number"] for unit in sentences) + 1):
            yield [i for i, unit in enumerate(sentences) if unit["number"] == position]

    def _longest_first(self, sentences, wave: List[int]) -> List[int]:
        """The order that rows have in a batch."""
        return sorted(wave, key=lambda i: -len(self._source(sentences[i])))

    def _search(self, generator, models, sentences, wave, readings, found) -> None:
        """Translate some sentences given what was read for all, and put them where they belong."""
        order = self._longest_first(sentences, wave)
        generator.model.readings = None
        if readings is not None:
            rows = torch.tensor(order, device=self._device)
            generator.model.readings = [r.index_select(0, rows) for r in readings]
        for i, rows in zip(order, self._jointly(generator, models, [sentences[i] for i in order])):
            found[i] = rows


def _sentences(units) -> List[dict]:
    """A unit for each sentence, with the number of the unit that it belongs to, and in it."""
    sentences = []
    for number, unit in enumerate(units):
        for place, source in enumerate(unit["source"]):
            sentence = {
                **unit,
                "source": [source],
                "target": None if unit["target"] is None else [unit["target"][place]],
                "rows": 1,
                "at_start": unit["at_start"] and place == 0,
                "unit": number,
                "number": place,
            }
            for key in ("prefix", "constraints"):
                given = unit.get(key)
                sentence[key] = None if given is None else given[place : place + 1]
            sentences.append(sentence)
    return sentences


def _by_unit(found: List[list], units) -> List[list]:
    """Hypotheses of the rows of each unit; each sentence has one row."""
    rows = iter(found)
    return [[next(rows)[0] for _ in unit["source"]] for unit in units]
