"""Batches of consecutive sentences from several documents: layout, document state, groups of rows.

A document state is a dict of the tensors passed from one sentence of a document to the next. The
first dimension of each tensor is the document, so states can be reordered, moved and joined without
knowing the architecture.

The rows of a batch can be divided into groups of similar length, which have little padding and are
computed one by one. With such groups, a decoder returns (1, N, C) features of only the N positions
that contribute to the loss. Its extra output ``positions`` has their indices in the flattened
targets, (N,).

The backward pass of ordinary indexing would fill a tensor of the size of its input with zeros for
every group. Here gathering the rows of all groups is one operation and scattering them another, and
each is the backward pass of the other. So at most one such tensor is filled for all groups.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

DocumentState = Dict[str, Tensor]


def select_documents(doc_state: DocumentState, rows: Tensor) -> DocumentState:
    """Select the documents with the indices ``rows`` from a document state."""
    return {name: value.index_select(0, rows) for name, value in doc_state.items()}


def of_equal_width(values: List[Tensor]) -> List[Tensor]:
    """Zero-pad tensors on the right so that their second dimensions have the same size.

    One-dimensional tensors are returned unchanged.
    """
    if values[0].dim() < 2:
        return values
    longest = max(value.size(1) for value in values)
    missing = [(0, 0) * (value.dim() - 2) + (0, longest - value.size(1)) for value in values]
    return [F.pad(value, pad) if pad[-1] else value for value, pad in zip(values, missing)]


class Stream(NamedTuple):
    """Layout of a batch of consecutive sentences, read from several lanes in parallel.

    A lane is a sequence of documents. The first rows of a batch are the next sentence of each lane,
    then come the sentences after these, and so on.

    Attributes:
        starts: (rows,) True for rows that start a document.
        lanes: number of lanes; the sentence of row r follows that of row ``r - lanes``.
        doc_state: document state of each lane before the batch, or None.
        row_groups: division of the rows into groups of similar length,
            :class:`~fairseq_docmt.data.batch.RowGroupings`; None to compute all rows together.
    """

    starts: Tensor
    lanes: int
    doc_state: Optional[DocumentState]
    row_groups: Optional[dict] = None

    @classmethod
    def of(cls, src_tokens, starts=None, lanes=None, doc_state=None, row_groups=None) -> "Stream":
        """Create the stream of a batch of (rows, S) source tokens.

        The other arguments are the attributes of the stream. By default each row is a document, in
        a lane of its own.
        """
        num_rows = len(src_tokens)
        if starts is None:
            starts = torch.ones(num_rows, dtype=torch.bool, device=src_tokens.device)
        return cls(starts, lanes or num_rows, doc_state, row_groups)

    def previous(self, filled: Tensor, count: int) -> Tuple[Tensor, Tensor, Tensor]:
        """Find the previous ``count`` sentences of each row, oldest first.

        Sentences are numbered in reading order: first ``count`` sentences of each lane from the
        document state, then the rows of the batch.

        Args:
            filled: (lanes,) number of sentences in the document state before the batch, at most
                ``count``.
            count: number of previous sentences.

        Returns:
            (rows, count) numbers of the previous sentences; (rows, count) mask, True where a
            previous sentence belongs to the row's document; and (lanes, count) mask of the same
            kind for the sentence after the batch in each lane, assuming that it continues the
            document.
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
        """Select rows of the stream by their indices; the result has no row groups.

        Every row of this batch must be a lane (document sequence) of its own, as in beam search.
        """
        doc_state = None if self.doc_state is None else select_documents(self.doc_state, rows)
        return Stream(self.starts.index_select(0, rows), len(rows), doc_state)

    def for_rows(self, num_rows: int) -> "Stream":
        """Repeat each row for its beams, giving ``num_rows`` rows in total.

        This is for decoding without incremental state.
        """
        if num_rows == len(self.starts):
            return self
        sentences = torch.arange(len(self.starts), device=self.starts.device)
        return self.of_rows(sentences.repeat_interleave(num_rows // len(sentences)))

    def ungrouped(self) -> "Stream":
        """Return the stream without row groups, so that all rows are computed together."""
        return self._replace(row_groups=None)

    def groups(self, name: str) -> "RowGroups":
        """Return the division into groups named ``source``, ``target`` or ``attended``.

        With ``source`` and ``target``, the sources or targets are grouped by length. With
        ``attended``, each source is in the group of its target, as cross attention requires.
        """
        return RowGroups(None if self.row_groups is None else self.row_groups[name])

    def at_loss(self, x: Tensor) -> Tensor:
        """Select the features at the N positions that contribute to the loss.

        A (rows, T, C) tensor becomes (1, N, C). If the rows are not divided into groups
        (:class:`RowGroups`), all positions are kept and ``x`` is returned unchanged.
        """
        if self.row_groups is None:
            return x
        return x.flatten(0, 1).index_select(0, self.row_groups["tokens"]).unsqueeze(0)

    def positions(self) -> dict:
        """Return the extra output ``positions`` of a decoder that computes rows in groups.

        The result is a dict with one tensor: the indices of the positions that contribute to the
        loss, (N,). Without groups the dict is empty.
        """
        return {} if self.row_groups is None else {"positions": self.row_groups["tokens"]}


class RowGroups:
    """Division of the rows of a batch into groups of similar length.

    Each group can be computed separately, with less padding. Except at padding, the results are the
    same as for the whole batch.

    Args:
        grouping: :class:`~fairseq_docmt.data.batch.RowGrouping`; None for all rows in one group.
    """

    def __init__(self, grouping: Optional[dict]):
        self._grouping = grouping

    @property
    def rows(self) -> Optional[List[Tensor]]:
        """Indices of the rows of each group; None if all rows form a single group."""
        return None if self._grouping is None else self._grouping["rows"]

    def split(self, x: Optional[Tensor]) -> List[Optional[Tensor]]:
        """Split a (rows, T, ...) tensor by row groups, and return a list of tensors.

        Each tensor is cut to the longest row of its group. If ``x`` is None, the list has None for
        each group.
        """
        if self._grouping is None:
            return [x]
        lengths = self._grouping["lengths"]
        if x is None:
            return [None] * len(lengths)
        return list(_Gathered.apply(x, list(zip(self.rows, map(self._columns, lengths)))))

    def select(self, x: Tensor) -> List[Tensor]:
        """Split a (rows, ...) tensor without a length dimension into one tensor for each group."""
        if self._grouping is None:
            return [x]
        return list(_Gathered.apply(x, [(rows, None) for rows in self.rows]))

    def join(self, parts: List[Tensor], length: int) -> Tensor:
        """Merge one tensor per group into a tensor of all rows, (rows, ``length``, C).

        Args:
            parts: for each group, a tensor of shape (rows of the group, length of the group, C).
            length: second dimension of the result, which is zero beyond the length of a group.
        """
        if self._grouping is None:
            return parts[0]
        columns = (self._columns(part.size(1)) for part in parts)
        shape = (sum(map(len, parts)), length, *parts[0].shape[2:])
        return _Scattered.apply(list(zip(self.rows, columns)), shape, *parts)

    def columns_of_step(self, number: int) -> slice:
        """Return the slice of token positions that the sentences of step ``number`` occupy.

        Step k, counted from 0, has the k-th sentence of each lane. Positions outside the slice are
        padding in all of these sentences. Without groups of rows, the slice covers all positions.
        """
        if self._grouping is None:
            return slice(None)
        return self._columns(self._grouping["steps"][number])

    def apply(self, function: Callable[[Tensor, Any], Tensor], x: Tensor, sentences: Any) -> Tensor:
        """Apply a function to each group of rows and merge the results.

        Args:
            function: function of ``x`` and ``sentences``, each restricted to the rows of a group.
                It returns a tensor of the shape of its first argument.
            x: (rows, T, C) values.
            sentences: further input for each row, an object with a method ``of_sentences(rows)``
                that selects rows.
        """
        if self.rows is None:
            return function(x, sentences)
        parts = zip(self.split(x), map(sentences.of_sentences, self.rows))
        return self.join([function(*part) for part in parts], x.size(1))

    def _columns(self, length: int) -> slice:
        return slice(-length, None) if self._grouping["left_padded"] else slice(length)


#: rows of a group, and the columns it has of them, None for all
Group = Tuple[Tensor, Optional[slice]]


class _Gathered(torch.autograd.Function):
    """Differentiable selection of the rows and columns of each group from a (B, T, ...) tensor."""

    @staticmethod
    def forward(ctx, x, groups):
        ctx.groups, ctx.shape = groups, x.shape
        return _gather(x, groups)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):
        return _scatter(gradients, ctx.groups, ctx.shape), None


class _Scattered(torch.autograd.Function):
    """Differentiable inverse of :class:`_Gathered`: copy groups into a tensor of zeros."""

    @staticmethod
    def forward(ctx, groups, shape, *parts):
        ctx.groups = groups
        return _scatter(parts, groups, shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return (None, None, *_gather(gradient, ctx.groups))


def _gather(x: Tensor, groups: Sequence[Group]) -> Tuple[Tensor, ...]:
    return tuple(_columns(x, columns).index_select(0, rows) for rows, columns in groups)


def _scatter(parts: Sequence[Tensor], groups: Sequence[Group], shape: Sequence[int]) -> Tensor:
    x = parts[0].new_zeros(shape)
    for part, (rows, columns) in zip(parts, groups):
        _columns(x, columns).index_copy_(0, rows, part)
    return x


def _columns(x: Tensor, columns: Optional[slice]) -> Tensor:
    return x if columns is None else x[:, columns]
