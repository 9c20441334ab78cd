"""Decoding data: what is translated together, and the original sentences it gives.

A *unit* is a span of source sentences with the rows it is to translate: a window stands for its
last sentence, a part of a document for all its sentences.  A batch of units is a sample whose
rows are the original sentences, so that the stock commands print one hypothesis for each under
its own line number.

Sample contract (beside the stock keys, whose rows are original sentences):

``units``  list of dicts, their rows following each other in the order of the sample
    ``source``    list of 1-D tensors, the sentences of the span, each ending in ``</s>``;
                  empty for a line that has nothing to translate
    ``target``    the same for the references, or None
    ``rows``      number of rows, taken from the end of the span
    ``document``  number of the document
    ``position``  place in the document of the first sentence translated
    ``at_start``  the span begins with the first sentence of the document
``drafts``    list of 1-D tensors, earlier translations of the sentences; None where there are none
"""

from typing import Iterator, List, Optional, Sequence

import numpy as np
import torch
from fairseq.data import FairseqDataset
from fairseq.data.language_pair_dataset import collate

from fairseq_docmt.data.document_index import DocumentIndex


class DecodingUnits(FairseqDataset):
    """Units of a corpus, or of lines typed in.

    Args:
        src, tgt: lines as 1-D tensors ending in ``</s>``; tgt may be None.
        line_sizes: (lines,) source tokens of each line.
        src_dict: source dictionary.
        index: sentences and documents.
        spans: (units, 2) sentences of each unit.
        window_size: sentences of a window, of which a unit translates the last; 0: a unit
            translates its whole span.
        empty_rows: rows that get an empty hypothesis, as blank lines of the input.
        carried: last sentences of the first document that came before the first line here.
        first_document: number given to the first document.
        first_position: place in its document of the first sentence here.
        constraints: packed target constraints of each line, or None.
        drafts: earlier translations of each line, or None.
    """

    def __init__(
        self,
        src: Sequence,
        tgt: Optional[Sequence],
        line_sizes: np.ndarray,
        src_dict,
        index: DocumentIndex,
        spans: np.ndarray,
        *,
        window_size: int = 0,
        empty_rows: Sequence[int] = (),
        carried: Sequence = (),
        first_document: int = 0,
        first_position: int = 0,
        constraints=None,
        left_pad_source: bool = True,
        drafts: Optional[Sequence] = None,
    ):
        self.drafts = drafts
        self.src, self.tgt, self.src_dict = src, tgt, src_dict
        self.index = index
        self.spans = spans
        self.window_size = window_size
        self.empty_rows = list(empty_rows)
        self.carried = list(carried)
        self.first_document = first_document
        self.first_position = first_position
        self.constraints = constraints
        self.left_pad_source = left_pad_source
        self.position = index.position
        ends = np.concatenate([[0], np.cumsum(line_sizes[index.rows], dtype=np.int64)])
        #: source tokens of each unit, then of each empty row
        self.sizes = np.concatenate(
            [ends[spans[:, 1]] - ends[spans[:, 0]], np.ones(len(self.empty_rows), dtype=np.int64)]
        )

    def __len__(self) -> int:
        return len(self.spans) + len(self.empty_rows)

    def num_tokens(self, index: int) -> int:
        return int(self.sizes[index])

    def size(self, index: int) -> int:
        return int(self.sizes[index])

    def __getitem__(self, unit: int) -> dict:
        if unit >= len(self.spans):
            row = self.empty_rows[unit - len(self.spans)]
            return {
                "lines": [row],
                "source": [],
                "target": None,
                "document": -1,
                "position": 0,
                "at_start": False,
                "drafts": None,
            }
        first, end = (int(n) for n in self.spans[unit])
        translated = end - 1 if self.window_size else first
        rows = self.index.rows[first:end].tolist()
        document = int(self.index.document[first])
        sentences = [self.src[row] for row in rows]
        position = int(self.position[translated])
        first_position = int(self.position[first])
        if document == 0:  # only the first document can have begun before these lines
            position += self.first_position
            missing = self.window_size - len(sentences) if first_position == 0 else 0
            context = self.carried[-missing:] if missing > 0 else []
            sentences = context + sentences
            first_position += self.first_position - len(context)
        return {
            "lines": rows[translated - first :],
            "source": sentences,
            "target": None if self.tgt is None else [self.tgt[row] for row in rows],
            "document": self.first_document + document,
            "position": position,
            "at_start": first_position == 0,
            "drafts": None if self.drafts is None else [self.drafts[row] for row in rows],
        }

    def collater(self, units: List[dict]) -> dict:
        """Put units into one sample whose rows are their original sentences, in order."""
        if len(units) == 0:
            return {}
        sample = collate_rows(units, self.src, self.tgt, self.src_dict, self.left_pad_source)
        if self.constraints is not None:
            sample["constraints"] = self.constraints[sample["id"]]
        return sample

    def batches(
        self, max_tokens: Optional[int], max_units: Optional[int], keep_order: bool, shards: int
    ) -> List[List[int]]:
        """Group units into batches, the longest first.

        Args:
            max_tokens: padded source tokens of a batch, None for no limit.
            max_units: units of a batch, None for no limit.
            keep_order: the batches are waves: sentence i of some documents, then sentence i + 1 of
                the same documents, so that each finds its predecessor translated.  All batches
                of a document go to the same shard.
            shards: number of processes that share the batches in turn.
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
        longest = [self.sizes[a:b].max() for a, b in zip(starts[:-1], starts[1:])]
        order = sorted(range(self.index.num_documents), key=lambda d: starts[d] - starts[d + 1])
        shared: List[List[List[int]]] = [[] for _ in range(shards)]
        for number, group in enumerate(_fill(order, longest, max_tokens, max_units)):
            most = max(starts[d + 1] - starts[d] for d in group)
            for i in range(most):
                wave = [int(starts[d]) + i for d in group if starts[d] + i < starts[d + 1]]
                shared[number % shards].append(wave)
        # The host hands batch j to shard j modulo shards, and skips empty batches.
        for turn in range(max(len(waves) for waves in shared)):
            for waves in shared:
                yield waves[turn] if turn < len(waves) else []


def _fill(order, sizes, max_tokens, max_items) -> Iterator[List[int]]:
    """Fill batches in the given order; the longest item of a batch decides its padding."""
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


def collate_rows(units, src, tgt, src_dict, left_pad_source=True) -> dict:
    """The stock sample of the lines that ``units`` translate, in their order, with ``units``."""
    lines = [line for unit in units for line in unit["lines"]]
    rows = [{"id": line, "source": src[line]} for line in lines]
    if tgt is not None:
        for row in rows:
            row["target"] = tgt[row["id"]]
    sample = collate(rows, src_dict.pad(), src_dict.eos(), left_pad_source, input_feeding=False)
    # The host sorts rows by length; put them back into the order of the units.
    place = {line: at for at, line in enumerate(sample["id"].tolist())}
    order = torch.tensor([place[line] for line in lines])
    sample["id"] = sample["id"][order]
    for key in ("src_tokens", "src_lengths"):
        sample["net_input"][key] = sample["net_input"][key][order]
    if sample["target"] is not None:
        sample["target"] = sample["target"][order]
    sample["units"] = [
        {**{k: v for k, v in unit.items() if k != "lines"}, "rows": len(unit["lines"])}
        for unit in units
    ]
    return sample
