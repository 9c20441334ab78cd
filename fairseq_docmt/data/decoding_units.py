"""Decoding data: spans of sentences that are translated together.

A :class:`DecodingUnit` is a span of source sentences.  It is either a window, of which only the
last sentence is translated, or a part of a document, of which all sentences are.  A batch has a row
for each sentence to translate, so that fairseq's commands print a hypothesis for each line under
its line number.  The additional key ``units`` of the batch is the list of units, in the order of
the rows.
"""

import copy
from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np
from fairseq.data import Dictionary, FairseqDataset
from fairseq.data.language_pair_dataset import collate
from torch import Tensor

from fairseq_docmt.data.document_view import sample_in_order
from fairseq_docmt.document_index import BLANK_SIZE, DocumentIndex


@dataclass(frozen=True)
class DecodingUnit:
    """Consecutive source sentences: first those that are only context, then those to translate.

    Attributes:
        line_ids: line ids of the sentences to translate, each of which is a row of the batch.
        source: context sentences, then sentences to translate, as 1-D tensors that end in ``</s>``;
            empty for a line with nothing to translate.
        following: source sentences after those in ``source``, which are read as further context.
        target: references of the sentences in ``source``, or None.
        document: number of the document; -1 for a blank line.
        position: position in the document of the first sentence to translate, from 0.
        at_start: whether ``source`` begins with the first sentence of the document.
        drafts: earlier translations of the sentences in ``source``, or None.
        target_context: translations of the sentences before those to translate, without ``</s>``;
            None if the search keeps them itself.
        prefixes: (rows, n) forced first target tokens, padded; or None.
        constraints: (rows, n) target constraints, as packed by fairseq; or None.
    """

    line_ids: Sequence[int]
    source: List[Tensor]
    target: Optional[List[Tensor]] = None
    document: int = -1
    position: int = 0
    at_start: bool = False
    drafts: Optional[List[Tensor]] = None
    target_context: Optional[List[Tensor]] = None
    prefixes: Optional[Tensor] = None
    constraints: Optional[Tensor] = None
    following: Sequence[Tensor] = ()

    @property
    def num_rows(self) -> int:
        """Number of sentences to translate."""
        return len(self.line_ids)

    @property
    def num_context(self) -> int:
        """Number of context sentences, which are read but not translated."""
        return len(self.source) - len(self.line_ids)

    def ending_at(self, row: int, target_context: List[Tensor]) -> "DecodingUnit":
        """Return a unit that translates one of the sentences, with all earlier ones as context.

        Args:
            row: number of the sentence among the sentences to translate, counted from 0.
            target_context: translations of the sentences before it.
        """
        end = self.num_context + row + 1
        return replace(
            self._with_row(row),
            source=self.source[:end],
            following=() if end < len(self.source) else self.following,
            target=self.target and self.target[:end],
            target_context=target_context,
        )

    def row_alone(self, row: int) -> "DecodingUnit":
        """Return a unit that translates one of the sentences, without source context.

        Args:
            row: number of the sentence among the sentences to translate, counted from 0.
        """
        at = self.num_context + row
        return replace(
            self._with_row(row),
            source=[self.source[at]],
            following=(),
            target=self.target and [self.target[at]],
            at_start=self.at_start and at == 0,
        )

    def without_oldest(self) -> "DecodingUnit":
        """Return the unit without its oldest context sentence."""
        return replace(
            self,
            source=self.source[1:],
            target=self.target and self.target[1:],
            at_start=False,
            drafts=self.drafts and self.drafts[1:],
            target_context=self.target_context and self.target_context[1:],
        )

    def starting_at(self, row: int) -> "DecodingUnit":
        """Return the rest of the unit, without context.

        It begins with sentence ``row`` of the sentences to translate, counted from 0.
        """
        at = self.num_context + row
        return replace(
            self,
            line_ids=self.line_ids[row:],
            source=self.source[at:],
            target=self.target and self.target[at:],
            position=self.position + row,
            at_start=self.at_start and at == 0,
            drafts=self.drafts and self.drafts[at:],
            target_context=None,
            prefixes=None if self.prefixes is None else self.prefixes[row:],
            constraints=None if self.constraints is None else self.constraints[row:],
        )

    def _with_row(self, row: int) -> "DecodingUnit":
        return replace(
            self,
            line_ids=self.line_ids[row : row + 1],
            position=self.position + row,
            drafts=self.drafts and [self.drafts[self.num_context + row]],
            prefixes=None if self.prefixes is None else self.prefixes[row : row + 1],
            constraints=None if self.constraints is None else self.constraints[row : row + 1],
        )


class OpenDocument:
    """Last document of interactive input, which the next lines may continue.

    Interactive input is read in buffers of lines.  A document that no blank line has ended goes on
    in the next buffer.

    Attributes:
        number: number of the document.
        position: number of its sentences so far.
        sentences: its last sentences, which are context of the next ones.
    """

    def __init__(self, number: int = 0, position: int = 0, sentences: Sequence[Tensor] = ()):
        self.number, self.position = number, position
        self.sentences: list = list(sentences)

    def close(self) -> None:
        """End the document, so that the next lines begin a new one without context."""
        if self.position > 0:
            self.number += 1
        self.position, self.sentences = 0, []

    def advance(self, src, sizes, index: DocumentIndex, context: int) -> None:
        """Record that further lines of input have been read.

        If the lines begin new documents, the last of these becomes the open document.  If a blank
        line follows its last sentence, it is closed.

        Args:
            src: source tokens of each line.
            sizes: (lines,) number of tokens of each line.
            index: index of the documents in these lines, without sentences that are too long.
            context: number of sentences to keep as context of the next ones.
        """
        end = 0
        if index.num_documents > 0:
            end = int(index.line_ids[-1]) + 1
            number = int(index.numbers[-1])
            if number > 0:
                self.position, self.sentences = 0, []
            self.number += number
            self.position += int(index.starts[-1] - index.starts[-2])
            line_ids = index.line_ids[index.starts[-2] :].tolist()
            kept = self.sentences + [src[line_id] for line_id in line_ids]
            self.sentences = kept[-context:] if context > 0 else []
        if any(size <= BLANK_SIZE for size in sizes[end:]):
            self.close()


class Lines(NamedTuple):
    """Lines of a corpus or of interactive input, blank lines included.

    Attributes:
        src: source lines, 1-D tensors that end in ``</s>``.
        sizes: (lines,) number of source tokens of each line.
        dictionary: source dictionary.
        tgt: reference of each line, in the form of ``src``; or None.
        drafts: earlier translation of each line, in the form of ``src``; or None.
        constraints: (lines, n) target constraints, as packed by fairseq; or None.
        left_pad: whether sources are padded on the left.
        name: name of the corpus, for messages.
    """

    src: Sequence[Tensor]
    sizes: np.ndarray
    dictionary: Dictionary
    tgt: Optional[Sequence[Tensor]] = None
    drafts: Optional[Sequence[Tensor]] = None
    constraints: Optional[Tensor] = None
    left_pad: bool = True
    name: str = "input"

    def collate(self, units: List[DecodingUnit]) -> dict:
        """Return a batch whose rows are the sentences to translate, in the order of the units."""
        line_ids = [line_id for unit in units for line_id in unit.line_ids]
        rows = [{"id": line_id, "source": self.src[line_id]} for line_id in line_ids]
        if self.tgt is not None:
            for row in rows:
                row["target"] = self.tgt[row["id"]]
        pad, eos = self.dictionary.pad(), self.dictionary.eos()

        def stock(numbered):
            return collate(numbered, pad, eos, self.left_pad, input_feeding=False)

        sample = {**sample_in_order(rows, stock), "units": units}
        if self.constraints is not None:
            sample["constraints"] = self.constraints[sample["id"]]
        return sample


class Cut(NamedTuple):
    """Division of the documents of a corpus or of interactive input into decoding units.

    Attributes:
        index: index of the sentences and documents that are divided.
        spans: (units, 2) first sentence of each unit, and the sentence after its last.
        source_ends: (units,) sentence after the last source sentence of each unit, if units also
            read source sentences after their span; None if they do not.
        window: number of sentences of a window, of which only the last is translated; None to
            translate all sentences of each span.
        most: maximum number of source tokens of a unit; None for no limit.
    """

    index: DocumentIndex
    spans: np.ndarray
    source_ends: Optional[np.ndarray] = None
    window: Optional[int] = None
    most: Optional[int] = None


class DecodingUnits(FairseqDataset):
    """Dataset of the decoding units of a corpus or of interactive input.

    Its items are the units, followed by an item for each line that gets an empty hypothesis.

    Args:
        lines: lines of the corpus or input.
        cut: division of the lines into units.
        empty_lines: ids of lines that get an empty hypothesis, such as blank lines of the input.
        too_long: line id -> number of its document in the whole corpus, for those ``empty_lines``
            that are too long for the model.
        opened: document of earlier input that the first lines may continue; or None.
    """

    def __init__(
        self,
        lines: Lines,
        cut: Cut,
        empty_lines: Sequence[int] = (),
        too_long: Optional[Dict[int, int]] = None,
        opened: Optional[OpenDocument] = None,
    ):
        self.lines, self.cut, self.name = lines, cut, lines.name
        self.src, self.tgt = lines.src, lines.tgt  # fairseq-generate reads them
        self.index, self.spans = cut.index, cut.spans
        self.source_ends = cut.spans[:, 1] if cut.source_ends is None else cut.source_ends
        self.empty_lines = list(empty_lines)
        self.too_long = too_long or {}
        self.opened = copy.copy(opened or OpenDocument())
        self.position = cut.index.position
        sizes = lines.sizes[cut.index.line_ids]
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        of_units = ends[self.source_ends] - ends[cut.spans[:, 0]]
        #: number of source tokens of each unit, then of each empty line
        self.sizes = np.append(of_units, np.ones(len(self.empty_lines), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.spans) + len(self.empty_lines)

    def num_tokens(self, index: int) -> int:
        """Return the number of source tokens of an item, 1 for an empty line."""
        return int(self.sizes[index])

    def num_rows(self, number: int) -> int:
        """Return the number of sentences to translate in a unit; 1 for an empty line.

        Args:
            number: index of the item; the items are the units, then the empty lines.
        """
        if number >= len(self.spans) or self.cut.window:
            return 1
        return int(self.spans[number, 1] - self.spans[number, 0])

    def size(self, index: int) -> int:
        """Return the number of source tokens of an item, 1 for an empty line."""
        return int(self.sizes[index])

    def __getitem__(self, number: int) -> DecodingUnit:
        if number >= len(self.spans):
            return self._empty_unit(self.empty_lines[number - len(self.spans)])
        first, end = (int(n) for n in self.spans[number])
        following = self.index.line_ids[end : self.source_ends[number]].tolist()
        translated = end - 1 if self.cut.window else first
        line_ids = self.index.line_ids[first:end].tolist()
        document = int(self.index.numbers[self.index.document[first]])
        sentences = [self.src[line_id] for line_id in line_ids]
        position = int(self.position[translated])
        first_position = int(self.position[first])
        if document == 0:  # only the first document can continue earlier input
            position += self.opened.position
            context = self._typed_context(number) if first_position == 0 else []
            sentences = context + sentences
            first_position += self.opened.position - len(context)
        return DecodingUnit(
            line_ids=line_ids[translated - first :],
            source=sentences,
            target=_of_lines(self.tgt, line_ids),
            document=self.opened.number + document,
            position=position,
            at_start=first_position == 0,
            following=[self.src[line_id] for line_id in following],
            drafts=_of_lines(self.lines.drafts, line_ids),
        )

    def _empty_unit(self, line_id: int) -> DecodingUnit:
        if line_id not in self.too_long:
            return DecodingUnit([line_id], source=[])
        document = self.opened.number + self.too_long[line_id]
        return DecodingUnit([line_id], source=[], document=document)

    def _typed_context(self, number: int) -> Sequence:
        """Return the previously entered sentences that serve as context of unit ``number``.

        They fill up the window of the unit; units other than windows get none.  The oldest are left
        out if the unit would otherwise exceed the maximum number of source tokens.
        """
        missing = (self.cut.window or 0) - int(self.spans[number, 1] - self.spans[number, 0])
        context = self.opened.sentences[-missing:] if missing > 0 else []
        if self.cut.most is not None:
            room = self.cut.most - int(self.sizes[number])
            while context and sum(map(len, context)) > room:
                context = context[1:]
        return context

    def collater(self, units: List[DecodingUnit]) -> dict:
        """Return a batch whose rows are the sentences to translate, in the order of the units."""
        return self.lines.collate(units) if units else {}

    def batches(
        self, max_tokens: Optional[int], max_units: Optional[int], keep_order: bool, shards: int
    ) -> List[List[int]]:
        """Group units into batches, longest units first or, with ``keep_order``, in reading order.

        Args:
            max_tokens: maximum number of source tokens of a batch, padding included; None for no
                limit.
            max_units: maximum number of units of a batch; None for no limit.
            keep_order: whether each sentence has to come after its predecessor in the document.  In
                this case each unit has one sentence to translate.  A batch has sentence i of
                several documents, and the next batch of the same process has their sentences i + 1.
                A document that was begun in earlier input comes first.
            shards: number of processes; batch i belongs to process ``i % shards``.

        Returns:
            Item numbers of each batch.  The ``empty_lines`` form a last batch of their own.  With
            ``keep_order``, a process without further sentences gets empty batches.
        """
        empty = list(range(len(self.spans), len(self)))
        if keep_order:
            batches = list(self._waves(max_tokens, max_units, shards))
        else:
            order = np.argsort(-self.sizes[: len(self.spans)], kind="stable")
            batches = list(_fill(order.tolist(), self.sizes, max_tokens, max_units))
        return batches + ([empty] if empty else [])

    def _waves(self, max_tokens, max_units, shards) -> Iterator[List[int]]:
        starts = self.index.starts
        longest = [self.sizes[a:b].max() for a, b in self.index.spans]
        order = sorted(range(self.index.num_documents), key=lambda d: starts[d] - starts[d + 1])
        if self.opened.position > 0:  # the state of an open document is lost after other documents
            order.sort(key=lambda d: d > 0)
        shared: List[List[List[int]]] = [[] for _ in range(shards)]
        for number, group in enumerate(_fill(order, longest, max_tokens, max_units)):
            most = max(starts[d + 1] - starts[d] for d in group)
            for i in range(most):
                wave = [int(starts[d]) + i for d in group if starts[d] + i < starts[d + 1]]
                shared[number % shards].append(wave)
        # fairseq gives batch j to shard ``j % shards`` and skips empty batches.
        for turn in range(max(len(waves) for waves in shared)):
            for waves in shared:
                yield waves[turn] if turn < len(waves) else []


def _fill(order, sizes, max_tokens, max_items) -> Iterator[List[int]]:
    """Divide items into batches that do not exceed a number of padded tokens or of items.

    Args:
        order: numbers of the items, in the order in which batches are filled.
        sizes: number of tokens of each item.
        max_tokens, max_items: limits of a batch; None for no limit.

    Yields:
        Item numbers of a batch.  An item that exceeds ``max_tokens`` is a batch of its own.
    """
    batch, longest = [], 0
    for item in order:
        longest = max(longest, sizes[item])
        full = max_items is not None and len(batch) >= max_items
        over = max_tokens is not None and longest * (len(batch) + 1) > max_tokens
        if batch and (full or over):
            yield batch
            batch, longest = [], sizes[item]
        batch.append(item)
    if batch:
        yield batch


def _of_lines(side: Optional[Sequence[Tensor]], line_ids: Sequence[int]) -> Optional[List[Tensor]]:
    return None if side is None else [side[line_id] for line_id in line_ids]
