"""Consecutive sentences of several documents side by side: layout, document state, groups of rows.

A document state has the values passed from one sentence of a document to the next: a dict of
tensors by name.  The first dimension of each tensor is the document, so states can be reordered,
moved and joined without reference to the architecture.

Rows of similar length are computed together, which leaves little padding.  With groups, a decoder
returns features of the N positions with loss only, (1, N, C), and the extra output ``positions``:
(N,) their indices in the flattened targets.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_docmt.ops.rows import gathered, scattered

DocumentState = Dict[str, Tensor]


def select_documents(doc_state: DocumentState, rows: Tensor) -> DocumentState:
    """Select documents of a state by index."""
    return {name: value.index_select(0, rows) for name, value in doc_state.items()}


def detached(doc_state: DocumentState) -> DocumentState:
    """Copy a state without its autograd graph and without references to its batch."""
    return {name: value.detach().clone() for name, value in doc_state.items()}


def moved(doc_state: Optional[DocumentState], device) -> Optional[DocumentState]:
    """Move a state to a device; None stays None."""
    return (
        None if doc_state is None else {name: value.to(device) for name, value in doc_state.items()}
    )


def joined(states: Sequence[DocumentState]) -> DocumentState:
    """Concatenate states along documents, padding their second dimension with zeros."""
    return {
        name: torch.cat(of_equal_width([doc_state[name] for doc_state in states]))
        for name in states[0]
    }


def of_equal_width(values: List[Tensor]) -> List[Tensor]:
    """Pad the second dimension of tensors with zeros to the same size."""
    if values[0].dim() < 2:
        return values
    longest = max(value.size(1) for value in values)
    missing = [(0, 0) * (value.dim() - 2) + (0, longest - value.size(1)) for value in values]
    return [F.pad(value, pad) if pad[-1] else value for value, pad in zip(values, missing)]


class Stream(NamedTuple):
    """Layout of a batch of consecutive sentences; each lane is a sequence of documents.

    Attributes:
        starts: (rows,) True for rows that start a document.
        lanes: number of lanes; row r follows row r - lanes.
        doc_state: incoming document state of each lane, None for none.
    """

    starts: Tensor
    lanes: int
    doc_state: Optional[DocumentState]

    @classmethod
    def of(cls, src_tokens: Tensor, starts=None, lanes=None, doc_state=None) -> "Stream":
        """Create the stream of (rows, S) tokens; without ``starts`` each row is a document."""
        num_rows = len(src_tokens)
        if starts is None:
            starts = torch.ones(num_rows, dtype=torch.bool, device=src_tokens.device)
        return cls(starts, lanes or num_rows, doc_state)

    def previous(self, filled: Tensor, count: int) -> Tuple[Tensor, Tensor, Tensor]:
        """Find the previous ``count`` sentences of each row, the farthest first.

        Args:
            filled: (lanes,) number of sentences in the incoming document state, at most ``count``.
            count: number of sentences.

        Returns:
            (rows, count) index of each sentence among ``count * lanes`` incoming sentences, the
            farthest of all lanes first, followed by the rows of the batch; (rows, count) True if it
            belongs to the document of the row; and (lanes, count) the same after the batch, for the
            last ``count`` of all these sentences.
        """
        lanes, chunk = self.lanes, len(self.starts) // self.lanes
        back, known = torch.arange(count, 0, -1, device=filled.device), []
        for starts in self.starts.unflatten(0, (chunk, lanes)):
            filled = filled.masked_fill(starts, 0)
            known.append(back <= filled.unsqueeze(1))
            filled = (filled + 1).clamp(max=count)
        time = torch.arange(count, count + chunk, device=filled.device).view(-1, 1, 1)
        lane = torch.arange(lanes, device=filled.device).view(1, -1, 1)
        place = (time - back) * lanes + lane
        return place.flatten(0, 1), torch.cat(known), back <= filled.unsqueeze(1)

    def of_rows(self, rows: Tensor) -> "Stream":
        """Select rows by index; each row must be a lane of its own."""
        doc_state = None if self.doc_state is None else select_documents(self.doc_state, rows)
        return Stream(self.starts.index_select(0, rows), len(rows), doc_state)

    def for_rows(self, num_rows: int) -> "Stream":
        """Repeat each lane for its beams, when decoding without incremental state."""
        if num_rows == len(self.starts):
            return self
        sentences = torch.arange(len(self.starts), device=self.starts.device)
        return self.of_rows(sentences.repeat_interleave(num_rows // len(sentences)))


class RowGroups:
    """Rows of a batch in groups of similar length.

    Results equal those of the whole batch, except at padding.

    Args:
        grouping: :class:`~fairseq_docmt.data.batch.RowGrouping`; None for all rows in one group.
    """

    def __init__(self, grouping: Optional[dict]):
        self._grouping = grouping

    @property
    def rows(self) -> Optional[List[Tensor]]:
        """Rows of each group; None for all rows in one group."""
        return None if self._grouping is None else self._grouping["rows"]

    def split(self, x: Optional[Tensor]) -> List[Optional[Tensor]]:
        """Cut (rows, T, ...) into groups of (rows of the group, its length, ...)."""
        if self._grouping is None:
            return [x]
        lengths = self._grouping["lengths"]
        if x is None:
            return [None] * len(lengths)
        return gathered(x, list(zip(self.rows, map(self._columns, lengths))))

    def select(self, x: Tensor) -> List[Tensor]:
        """Cut values of rows, (rows, ...), into groups."""
        if self._grouping is None:
            return [x]
        return gathered(x, [(rows, None) for rows in self.rows])

    def join(self, parts: List[Tensor], length: int) -> Tensor:
        """Put groups of (rows of the group, its length, C) together as (rows, ``length``, C).

        Padding that the groups leave out becomes zero.
        """
        if self._grouping is None:
            return parts[0]
        columns = (self._columns(part.size(1)) for part in parts)
        shape = (sum(map(len, parts)), length, *parts[0].shape[2:])
        return scattered(parts, list(zip(self.rows, columns)), shape)

    def steps(self) -> Optional[List[slice]]:
        """Return the columns that the rows of each step of a stream use; None for all columns."""
        if self._grouping is None:
            return None
        return [self._columns(length) for length in self._grouping["steps"]]

    def columns_of_step(self, number: int) -> slice:
        """Return the columns that the rows of a step use, all of them without groups."""
        return slice(None) if self._grouping is None else self.steps()[number]

    def apply(self, function: Callable[[Tensor, Any], Tensor], x: Tensor, sentences: Any) -> Tensor:
        """Compute a function of each group and put the results together.

        Args:
            function: function from a group of ``x`` and the sentences of its rows.
            x: (rows, T, C) values.
            sentences: values of the rows, with ``of_sentences(rows)``.
        """
        if self.rows is None:
            return function(x, sentences)
        parts = zip(self.split(x), map(sentences.of_sentences, self.rows))
        return self.join([function(*part) for part in parts], x.size(1))

    def _columns(self, length: int) -> slice:
        return slice(-length, None) if self._grouping["left_padded"] else slice(length)


def at_loss(x: Tensor, groupings: Optional[dict]) -> Tensor:
    """Select the positions with loss.

    Args:
        x: (rows, T, C) values.
        groupings: the groups of the batch, which name the N positions; None for all positions.

    Returns:
        (1, N, C) values, or ``x`` without groups.
    """
    if groupings is None:
        return x
    return x.flatten(0, 1).index_select(0, groupings["tokens"]).unsqueeze(0)


def packed(x: Tensor, extra: dict, groupings: Optional[dict]) -> Tuple[Tensor, dict]:
    """Return the output of a decoder: features (rows, T, C), or those of the positions with loss.

    Args:
        x: (rows, T, C) features.
        extra: extra outputs, to which ``positions`` is added.
        groupings: the groups of the batch, or None.
    """
    return at_loss(x, groupings), {**extra, **positions(groupings)}


def positions(groupings: Optional[dict]) -> dict:
    """Return the extra output ``positions`` of a decoder; nothing without groups."""
    return {} if groupings is None else {"positions": groupings["tokens"]}


def training_groups(encoder_out: dict, rows: int, weights_of: Optional[int]) -> Optional[dict]:
    """Return the groups of a batch; None where attention weights are wanted, or in a search.

    Args:
        encoder_out: encoder output, with ``stream`` and ``row_groups``.
        rows: number of rows of the decoder.
        weights_of: layer whose attention weights are wanted, or None.
    """
    one_row_each = rows == len(encoder_out["stream"].starts)
    return encoder_out["row_groups"] if one_row_each and weights_of is None else None


def groups_of(groupings: Optional[dict], name: str) -> RowGroups:
    """Return the groups with this name of a batch, :class:`~fairseq_docmt.data.batch.RowGroupings`.

    Args:
        groupings: the groups of the batch; None for all rows in one group.
        name: ``source``, ``target`` or ``attended``.
    """
    return RowGroups(None if groupings is None else groupings[name])


def target_groups(groupings: Optional[dict]) -> Tuple[RowGroups, RowGroups]:
    """Return the groups of targets of a batch, and of sources by the lengths of their targets."""
    return groups_of(groupings, "target"), groups_of(groupings, "attended")
