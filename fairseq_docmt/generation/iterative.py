"""Translation of each sentence given the rest of its document (``--decoding iterative``).

This is the block coordinate descent of Maruf and Haffari (2018), section 3.  All sentences are
first translated without the other translations.  Then they are translated again, given the current
translations of the other sentences.

The first translations use the source memory if there is one, as in the authors' code.  In the paper
(footnote 7) they come from the base model, which ``--drafts`` makes possible.  A model with only a
source memory reads no translations, so one search is enough.
"""

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

import torch
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor, nn

from fairseq_docmt.data import pad_rows
from fairseq_docmt.data.decoding_units import DecodingUnit
from fairseq_docmt.generation.hypotheses import Hypothesis, best_tokens
from fairseq_docmt.generation.joint import JointSearch
from fairseq_docmt.generation.search import NBestLists, device_of
from fairseq_docmt.models.interface import remembers_translations

#: order of a pass: all sentences at once, or in turn with the newest translations of the others
ORDERS = ("together", "in-turn")


class MemnetEnsemble(EnsembleModel):
    """Ensemble that gives the decoders what each sentence has read from the document memories.

    ``net_input`` may contain ``readings``, the vectors that have been read: a list with one tensor
    (batch rows, width) per model.
    """

    def forward_encoder(self, net_input):
        """Return the encoder output of each model.

        If ``net_input`` has ``readings``, the readings of each model are added to its own output,
        under the key ``readings``.
        """
        rest = {key: value for key, value in net_input.items() if key != "readings"}
        encoder_outs = [model.encoder.forward_torchscript(rest) for model in self.models]
        if "readings" not in net_input:
            return encoder_outs
        return [{**out, "readings": [r]} for out, r in zip(encoder_outs, net_input["readings"])]


class _WithReadings(nn.Module):
    """Model wrapper that, in scoring, passes readings from document memories to the decoder.

    Args:
        model: model with document memories.
        readings: (rows, width) vectors that the rows to be scored have read from the memories.
    """

    def __init__(self, model, readings: Tensor):
        super().__init__()
        self.model, self.readings = model, readings

    def forward(self, src_tokens, src_lengths, prev_output_tokens, **_):
        encoder_out = self.model.encoder(src_tokens, src_lengths=src_lengths)
        encoder_out = {**encoder_out, "readings": [self.readings]}
        return self.model.decoder(prev_output_tokens, encoder_out=encoder_out)

    def get_normalized_probs(self, *args, **kwargs):
        return self.model.get_normalized_probs(*args, **kwargs)


class _Sentence(NamedTuple):
    """Sentence to translate, and its place in a document.

    Attributes:
        unit: decoding unit that consists of this sentence.
        document: number of its document in the sample.
        place: position of the sentence in its document, from 0.
    """

    unit: DecodingUnit
    document: int
    place: int


class _Memories:
    """Document memories of the models of an ensemble, for the documents of one sample.

    The source memory holds the source sentences of a document, the target memory their current
    translations.  Each sentence reads what the memories hold about the other sentences.

    Args:
        models: models of the ensemble.
        src_tokens: (R, S) padded source tokens of R sentences, one document after another.
        documents: (R,) number of the document that contains each sentence.
        padding_idx: index of padding.
    """

    def __init__(self, models, src_tokens: Tensor, documents: Tensor, padding_idx: int):
        lengths = src_tokens.ne(padding_idx).sum(dim=1)
        self.models, self.documents = models, documents
        self.encoded = [
            model.encoder(src_tokens, src_lengths=lengths, documents=documents) for model in models
        ]
        self.cells: List[Optional[Tensor]] = [None for _ in models]
        #: for each model the (R, s) vectors read from the source memory, None without one
        self.of_source = [
            model.decoder.recall_source(encoded, documents)
            for model, encoded in zip(models, self.encoded)
        ]

    @property
    def hold_translations(self) -> bool:
        """Whether any model has a target memory, which holds translations."""
        return any(map(remembers_translations, self.models))

    def translate(self, rows: Tensor, previous: Tensor) -> None:
        """Write translations into the target memories, in place of earlier ones.

        Args:
            rows: (n,) numbers of the sentences whose translations are given.
            previous: (n, T) the translations in the form of decoder input.
        """
        parts = zip(self.models, self.encoded, self.of_source)
        for i, (model, encoded, of_source) in enumerate(parts):
            if not remembers_translations(model):
                continue
            some = model.encoder.reorder_encoder_out(encoded, rows)
            readings = None if of_source is None else of_source.index_select(0, rows)
            new = model.decoder.target_cells(previous, some, readings)
            if self.cells[i] is None:
                self.cells[i] = new.new_zeros(len(self.documents), new.size(1))
            self.cells[i][rows] = new

    def recall(self, own: bool = True) -> List[Tensor]:
        """Read the memories of all models for every sentence.

        Args:
            own: whether a sentence's own translation is part of its query to the target memory.

        Returns:
            For each model, the (sentences, width) vectors read from its memories, one for each
            sentence.
        """
        return [
            model.decoder.recall(encoded, self.documents, cells, own)
            for model, encoded, cells in zip(self.models, self.encoded, self.cells)
        ]


class IterativeSearch(JointSearch):
    """Search that translates each sentence several times, given the translations of the others.

    It is for models with document memories.
    """

    decoding = "iterative"
    description = (
        "translate each sentence, then again given the translations of the others; for memnet_rnn"
    )
    reads_memories = single = True

    def ensemble_of(self, models, lm_model=None) -> MemnetEnsemble:
        """Return an ensemble whose decoders are given the memory readings of each sentence.

        A language model is not supported, so ``lm_model`` is ignored.
        """
        return MemnetEnsemble(models)

    def translate(self, generator, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Translate all sentences, then retranslate them in up to ``--decode-passes`` passes.

        The passes start from the drafts of the units (``--drafts``) or, without drafts, from the
        translations of a first search.  In each pass every sentence is translated again, given the
        current translations of the others.  A pass that changes nothing is the last one.

        If no model has a target memory, there is only the first search.  The same is true for 0
        passes; the search then does not read the source memory either.

        Returns:
            For each unit, the n-best list of each of its sentences.
        """
        sentences = _sentences(units)
        memories = self._memories(models, sentences) if self.task.cfg.decode_passes else None
        again = memories is not None and memories.hold_translations
        drafts = [draft[:-1] for unit in units for draft in unit.drafts or ()]
        if again and drafts:
            found = self._translate_again(generator, models, sentences, memories, drafts)
        else:
            readings = None if memories is None else memories.recall()
            everything = range(len(sentences))
            found = self._translate_given(generator, models, sentences, everything, readings)
            if again:
                first = self._best(found)
                found = self._translate_again(generator, models, sentences, memories, first)
        return _by_unit([found[i] for i in range(len(sentences))], units)

    def _translate_again(
        self, generator, models, sentences, memories: _Memories, translations: List[Tensor]
    ) -> Dict[int, List[Hypothesis]]:
        """Retranslate all sentences in passes until no translation changes.

        There are at most ``--decode-passes`` passes.

        Args:
            generator: generator of this package.
            models: models of the ensemble.
            sentences: all sentences of the sample.
            memories: document memories, to which the current translations are written.
            translations: first translation of each sentence, without ``</s>``.

        Returns:
            Hypotheses of each sentence, by the number of the sentence.
        """
        current, found = list(translations), {}
        self._write_memories(memories, sentences, range(len(sentences)), current)
        for _ in range(self.task.cfg.decode_passes):
            before = list(current)
            for wave in self._waves(sentences):
                new = self._translate_given(generator, models, sentences, wave, memories.recall())
                found.update(new)
                for i in wave:
                    current[i] = best_tokens(new[i], self.pad)
                self._write_memories(memories, sentences, wave, current)
            if all(torch.equal(a, b) for a, b in zip(before, current)):
                break
        return found

    def score(self, scorer, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Score each reference, given the other references of its document.

        If there are drafts, each reference is scored given the drafts instead.  With 0 passes no
        memory is read.
        """
        sentences = _sentences(units)
        if self.task.cfg.decode_passes == 0:
            alone = self.score_spans(scorer, models, [sentence.unit for sentence in sentences])
            return _by_unit([found for (found,) in alone], units)
        drafted = units[0].drafts is not None
        memories = self._memories(models, sentences)
        everything = range(len(sentences))
        current = [
            line[:-1] for unit in units for line in (unit.drafts if drafted else unit.target)
        ]
        self._write_memories(memories, sentences, everything, current)
        order = self._longest_first(sentences, everything)
        rows = torch.tensor(order, device=memories.documents.device)
        readings = [r.index_select(0, rows) for r in memories.recall(own=drafted)]
        reading = [_WithReadings(model, r) for model, r in zip(models, readings)]
        scored = self.score_spans(scorer, reading, [sentences[i].unit for i in order])
        found = dict(zip(order, scored))
        return _by_unit([found[i][0] for i in everything], units)

    def parts_within(self, unit: DecodingUnit, most: int) -> List[DecodingUnit]:
        """Return the unit as a single part, because its references are scored one by one.

        Raises:
            UserError: a reference has more than ``most`` tokens.
        """
        for row in range(unit.num_rows):
            super().parts_within(unit.row_alone(row), most)
        return [unit]

    def _best(self, found: Dict[int, List[Hypothesis]]) -> List[Tensor]:
        return [best_tokens(found[i], self.pad) for i in range(len(found))]

    def _memories(self, models, sentences: List[_Sentence]) -> _Memories:
        device = device_of(models)
        dictionary, left_pad = self.task.source_dictionary, self.task.cfg.left_pad_source
        rows = [self.joined_source(sentence.unit) for sentence in sentences]
        documents = torch.tensor([sentence.document for sentence in sentences], device=device)
        src_tokens = pad_rows(rows, dictionary, left_pad).to(device)
        return _Memories(models, src_tokens, documents, dictionary.pad())

    def _write_memories(self, memories: _Memories, sentences, wave: Sequence[int], current) -> None:
        """Write the current translations of some sentences into the target memories.

        Args:
            memories: memories to change.
            sentences: all sentences.
            wave: numbers of the sentences to write.
            current: current translations of all sentences, without ``</s>``.
        """
        texts = [current[i] for i in wave]
        previous = self.decoder_input([sentences[i].unit for i in wave], texts)
        device = memories.documents.device
        memories.translate(torch.tensor(list(wave), device=device), previous.to(device))

    def _waves(self, sentences: List[_Sentence]) -> Iterator[List[int]]:
        """Yield the numbers of the sentences that are translated at the same time, group by group.

        The target memories are updated after each group.  With ``--decode-order together`` there is
        one group with all sentences.  Otherwise a group has the sentences at the same position in
        their documents.
        """
        if self.task.cfg.decode_order == "together":
            yield list(range(len(sentences)))
            return
        for place in range(max(sentence.place for sentence in sentences) + 1):
            yield [i for i, sentence in enumerate(sentences) if sentence.place == place]

    def _longest_first(self, sentences, wave: Sequence[int]) -> List[int]:
        """Return the sentence numbers in ``wave``, sorted by source length, the longest first."""
        return sorted(wave, key=lambda i: -len(self.joined_source(sentences[i].unit)))

    def _translate_given(
        self, generator, models, sentences, wave: Sequence[int], readings: Optional[List[Tensor]]
    ) -> Dict[int, List[Hypothesis]]:
        """Translate some sentences, given vectors that they have read from the memories.

        Args:
            generator: generator of this package.
            models: models of the ensemble.
            sentences: all sentences.
            wave: numbers of the sentences to translate.
            readings: for each model, the vectors of all sentences; None to translate without
                memories.

        Returns:
            Hypotheses of each translated sentence, by the number of the sentence.
        """
        order = self._longest_first(sentences, wave)
        context = {}
        if readings is not None:
            rows = torch.tensor(order, device=readings[0].device)
            context["readings"] = [r.index_select(0, rows) for r in readings]
        units = [sentences[i].unit for i in order]
        found = self.translate_spans(generator, models, units, context)
        return {i: rows[0] for i, rows in zip(order, found)}


def _sentences(units: List[DecodingUnit]) -> List[_Sentence]:
    return [
        _Sentence(unit.row_alone(row), number, row)
        for number, unit in enumerate(units)
        for row in range(unit.num_rows)
    ]


def _by_unit(found: List[List[Hypothesis]], units: List[DecodingUnit]) -> List[NBestLists]:
    """Divide the hypotheses of consecutive sentences among the decoding units of the sentences."""
    rows = iter(found)
    return [[next(rows) for _ in unit.line_ids] for unit in units]
