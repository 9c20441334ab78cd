"""Attention of each query to the keys around its alignment (Herold and Ney 2023, equation 1).

Query i sees key j if ``|j - b_i| <= w``.  On a CPU, queries are processed in blocks.  A block is
multiplied only with the range of keys that its queries can see, without copying them.  The backward
pass recomputes the weights of each block, so that no matrix of queries times keys is stored: memory
grows linearly with the length and does not depend on the window.

On a GPU, this would launch many small kernels.  Instead, every block of queries gets a copy of the
keys that it can see, and the blocks become rows of one batch for a single call of torch's fused
kernel.  Memory still grows linearly with the length: a block of 64 queries copies 64 + 2 w keys
(64 + w in causal attention) and has a mask with as many columns.  In self-attention over more keys
than a block can see, every block has the same number of keys, known in advance, so the CPU need not
wait for the GPU to compute it.

Shapes: B batch rows, H heads, I queries, J keys, head size d.
"""

from typing import Iterator, List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_docmt.ops.precision import masked_attention, outside_autocast


class _Block(NamedTuple):
    """Queries that are processed together, and the range of keys that they can see.

    The attributes are slices of the batch rows, queries and keys of the whole computation.
    """

    rows: slice
    queries: slice
    keys: slice


class Window(NamedTuple):
    """The keys that each query may attend to.

    Attributes:
        centers: (B, I) int64 index b_i of the key that each query is aligned to; may be outside the
            range of keys.  None for ``first``, ``first`` + 1, ..., as in self-attention.
        size: number w of visible keys on each side of the center.
        causal: whether keys after the center are hidden, as in a decoder.
        key_padding: (B, J) True at padding; None without padding.
        farthest: maximum relative position r; keys farther away use the vector of r or -r.  None
            stands for r = w.
        first: index of the key that the first query is aligned to if ``centers`` is None.
    """

    centers: Optional[Tensor]
    size: int
    causal: bool = False
    key_padding: Optional[Tensor] = None
    farthest: Optional[int] = None
    first: int = 0

    def with_centers(self, q: Tensor) -> "Window":
        """Return the window with explicit ``centers``, (B, I).

        If they are None, the centers become ``first``, ``first`` + 1, ..., in every row.

        Args:
            q: (B, H, I, d) queries, of which only shape and device are used.
        """
        if self.centers is not None:
            return self
        columns = torch.arange(self.first, self.first + q.size(2), device=q.device)
        return self._replace(centers=columns.expand(len(q), -1))

    @property
    def after(self) -> int:
        """Number of visible keys after the center."""
        return 0 if self.causal else self.size

    def beyond(self, distance: Tensor) -> Tensor:
        """Return a mask that is True for distances from the center that are outside the window.

        Distances are negative for keys before the center.
        """
        return (distance < -self.size) | (distance > self.after)

    @property
    def reach(self) -> int:
        """Maximum relative position r: ``farthest`` or, if it is None, the window size."""
        return self.size if self.farthest is None else self.farthest

    def relative_index(self, distance: Tensor) -> Tensor:
        """Return the index, from 0 to 2 r, of the relative position vector of each distance."""
        return (distance + self.reach).clamp(0, 2 * self.reach)

    def hidden(self, block: _Block) -> Tensor:
        """Return a mask for a block, True for keys that a query does not see.

        Shape: (B', 1, I', J') for the B' rows, I' queries and J' keys of the block.
        """
        hidden = self.beyond(self._distance(block))
        if self.key_padding is not None:
            hidden = hidden | self.key_padding[block.rows, block.keys].unsqueeze(1)
        return hidden.unsqueeze(1)

    def offsets(self, block: _Block) -> Tensor:
        """Return the index of the relative position vector for each query and key of a block.

        Shape: (B', 1, I', J') for the B' rows, I' queries and J' keys of the block.
        """
        return self.relative_index(self._distance(block)).unsqueeze(1)

    def _distance(self, block: _Block) -> Tensor:
        """Return the distance of each key of a block from the center of each query's window.

        Distances are negative for keys before the center.  Shape: (B', I', J') for B' rows, I'
        queries and J' keys.
        """
        columns = torch.arange(block.keys.start, block.keys.stop, device=self.centers.device)
        return columns - self.centers[block.rows, block.queries].unsqueeze(-1)


def window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: Window,
    relative: Optional[Tensor] = None,
    dropout: float = 0.0,
    block_size: int = 64,
) -> Tensor:
    """Compute softmax attention within a window.

    Args:
        q: (B, H, I, d) queries, already scaled.
        k, v: (B, H, J, d) keys and values.
        window: the keys that each query may attend to.
        relative: (2 r + 1, d) vectors of the relative positions from -r to r, whose products with
            the query are added to the logits; None without relative positions.
        dropout: dropout probability of attention weights.
        block_size: number of queries in a block.

    Returns:
        (B, H, I, d) output; zeros for queries that see no key.
    """
    if q.device.type == "cuda":
        return fused_window_attention(q, k, v, window, relative, dropout, block_size)
    attend = outside_autocast(_BlockwiseAttention.apply)
    return attend(q, k, v, relative, window.with_centers(q), dropout, block_size)


class _BlockwiseAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, relative, window, dropout, block_size):
        output = torch.zeros_like(q)
        ctx.masks: List[Optional[Tensor]] = []
        blocks = list(_blocks(window, q.size(2), k.size(2), block_size))
        for block in blocks:
            weights = _weights(q, k, relative, window, block)
            mask = _dropout_mask(weights, dropout)
            ctx.masks.append(mask)
            dropped = weights if mask is None else weights * mask
            output[block.rows, :, block.queries] = dropped @ v[block.rows, :, block.keys]
        ctx.save_for_backward(q, k, v, relative)
        ctx.window, ctx.blocks = window, blocks
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        q, k, v, relative = ctx.saved_tensors
        dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
        d_relative = None if relative is None else torch.zeros_like(relative)
        for block, mask in zip(ctx.blocks, ctx.masks):
            queries = (block.rows, slice(None), block.queries)
            keys = (block.rows, slice(None), block.keys)
            weights = _weights(q, k, relative, ctx.window, block)
            dropped = weights if mask is None else weights * mask
            dv[keys] += dropped.transpose(-1, -2) @ gradient[queries]
            d_weights = gradient[queries] @ v[keys].transpose(-1, -2)
            if mask is not None:
                d_weights = d_weights * mask
            product = d_weights * weights
            d_logits = product - weights * product.sum(dim=-1, keepdim=True)
            dq[queries] += d_logits @ k[keys]
            dk[keys] += d_logits.transpose(-1, -2) @ q[queries]
            if relative is not None:
                d_offsets = _by_offset(d_logits, ctx.window, block)
                dq[queries] += d_offsets @ relative
                d_relative += torch.einsum("bhio,bhid->od", d_offsets, q[queries])
        return dq, dk, dv, d_relative, None, None, None


def _weights(q, k, relative, window: Window, block: _Block) -> Tensor:
    """Compute the (B', H, I', J') attention weights of a block; zeros for queries that see no key.

    The block has B' rows, I' queries and J' keys.  ``q``, ``k`` and ``relative`` are arguments of
    :func:`window_attention`.
    """
    queries = q[block.rows, :, block.queries]
    logits = queries @ k[block.rows, :, block.keys].transpose(-1, -2)
    if relative is not None:
        offsets = window.offsets(block).expand(-1, logits.size(1), -1, -1)
        logits = logits + (queries @ relative.t()).gather(-1, offsets)
    hidden = window.hidden(block)
    weights = logits.masked_fill_(hidden, -float("inf")).softmax(dim=-1)
    return weights.masked_fill_(hidden.all(dim=-1, keepdim=True), 0.0)


def _by_offset(d_logits: Tensor, window: Window, block: _Block) -> Tensor:
    """Sum the gradients of each query's logits over keys with the same relative position vector.

    Args:
        d_logits: (B', H, I', J') gradients for the B' rows, I' queries and J' keys of a block.
        window: window that determines the relative positions.
        block: queries and keys to which the gradients belong.

    Returns:
        (B', H, I', 2 r + 1) sum for each of the 2 r + 1 vectors.
    """
    offsets = window.offsets(block).expand(-1, d_logits.size(1), -1, -1)
    summed = d_logits.new_zeros(*d_logits.shape[:3], 2 * window.reach + 1)
    return summed.scatter_add_(-1, offsets, d_logits)


def _dropout_mask(weights: Tensor, dropout: float) -> Optional[Tensor]:
    """Draw a mask by which attention weights are multiplied; return None without dropout.

    Its values are 0 with the dropout probability p, and 1 / (1 - p) otherwise.
    """
    if dropout == 0.0:
        return None
    return torch.empty_like(weights).bernoulli_(1 - dropout).div_(1 - dropout)


def _blocks(window: Window, queries: int, keys: int, block_size: int) -> Iterator[_Block]:
    """Divide all queries into blocks, and yield each with the range of keys that it can see.

    Batch rows share a block unless their windows are far apart; then each row gets its own block.
    """
    bsz = len(window.centers)
    for start in range(0, queries, block_size):
        stop = min(start + block_size, queries)
        centers = window.centers[:, start:stop]
        first = (centers.amin(dim=1) - window.size).clamp(0, keys - 1).tolist()
        last = (centers.amax(dim=1) + window.after).clamp(0, keys - 1).tolist()
        widest = max(b - a + 1 for a, b in zip(first, last))
        if max(last) - min(first) + 1 <= 1.5 * widest:
            stretch = slice(min(first), max(last) + 1)
            yield _Block(slice(0, bsz), slice(start, stop), stretch)
        else:
            for row, (a, b) in enumerate(zip(first, last)):
                yield _Block(slice(row, row + 1), slice(start, stop), slice(a, b + 1))


def linear_centers(queries: Tensor, keys: Tensor, length: int) -> Tensor:
    """Align target token i to source token ``b_i = round(J / I * i)``, rounding halves up.

    In the formula i and b_i count from 1, in the result from 0.

    Args:
        queries, keys: (B,) numbers I and J of target and source tokens.
        length: number of target positions in the result, padding included.

    Returns:
        (B, length) aligned source token of each target token, from 0 to J - 1.
    """
    position = torch.arange(1, length + 1, device=queries.device)
    scaled = position * keys.unsqueeze(1) * 2 + queries.unsqueeze(1)
    rounded = torch.div(scaled, 2 * queries.unsqueeze(1), rounding_mode="floor")
    return torch.minimum(rounded.clamp(min=1), keys.unsqueeze(1)) - 1


def fused_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: Window,
    relative: Optional[Tensor] = None,
    dropout: float = 0.0,
    block_size: int = 64,
) -> Tensor:
    """Compute :func:`window_attention` on a GPU, in a single call of torch's fused attention."""
    length, blocks = q.size(2), -(-q.size(2) // block_size)
    queries = F.pad(q, (0, 0, 0, blocks * block_size - length))
    queries = queries.unflatten(2, (blocks, block_size)).transpose(1, 2)
    stretch = block_size + window.size + window.after
    if window.centers is None and stretch < k.size(2):
        keys, values, distance, hidden = _stretches(window, k, v, blocks, block_size)
    else:
        keys, values, distance, hidden = _gathered(window.with_centers(q), k, v, block_size)
    lost = hidden.all(dim=-1, keepdim=True)
    mask = (~hidden | lost).expand(len(q), blocks, -1, -1, -1)
    if relative is not None:
        offsets = window.relative_index(distance).expand(*queries.shape[:-1], -1)
        added = (queries @ relative.t()).gather(-1, offsets)
        mask = added.masked_fill(~mask, -float("inf"))
    output = masked_attention(
        queries.flatten(0, 1), keys, values, mask.flatten(0, 1), dropout, scale=1.0
    )
    output = output.unflatten(0, (len(q), blocks)).masked_fill(lost, 0.0)
    return output.transpose(1, 2).flatten(2, 3)[:, :, :length]


#: Keys and values of each block, (B * M, H, J', d); distance of each key from the center of each
#: query, and mask of hidden keys, both broadcastable to (B, M, 1, I', J').
Seen = Tuple[Tensor, Tensor, Tensor, Tensor]


def _stretches(window: Window, k: Tensor, v: Tensor, blocks: int, block_size: int) -> Seen:
    """Return the keys and values that each block can see if the window has no ``centers``.

    Consecutive queries are then aligned to consecutive keys, so that the keys of each block are a
    slice of all keys.

    Args:
        window: the window, without centers.
        k, v: (B, H, J, d) keys and values.
        blocks: number M of blocks of queries.
        block_size: number I' of queries in a block.

    Returns:
        Keys and values of the J' keys of each block, (B * M, H, J', d); distance of each key from
        the center of each query, and mask of hidden keys, both broadcastable to (B, M, 1, I', J').
    """
    width = block_size + window.size + window.after
    before = window.size - window.first
    pad = before, blocks * block_size + window.after - k.size(2) + window.first

    def stretches(x):
        return F.pad(x, (0, 0, *pad)).unfold(2, width, block_size).permute(0, 2, 1, 4, 3)

    columns = torch.arange(width, device=k.device)
    distance = columns - window.size - columns[:block_size].unsqueeze(-1)
    padding = window.key_padding
    if padding is None:
        padding = torch.zeros(1, k.size(2), dtype=torch.bool, device=k.device)
    outside = F.pad(padding, pad, value=True).unfold(1, width, block_size)
    hidden = (window.beyond(distance) | outside.unsqueeze(2)).unsqueeze(2)
    return stretches(k).flatten(0, 1), stretches(v).flatten(0, 1), distance, hidden


def _gathered(window: Window, k: Tensor, v: Tensor, block_size: int) -> Seen:
    """Return the keys and values that each block can see if the window has ``centers``.

    Args:
        window: the window, with centers.
        k, v: (B, H, J, d) keys and values, which are copied for each block.
        block_size: number of queries in a block.

    Returns:
        Keys, values, distances and mask of hidden keys, as in :func:`_stretches`.
    """
    length, keys = window.centers.size(1), k.size(2)
    # Copies of the last query fill the last block.
    missing = -length % block_size
    index = torch.arange(length + missing, device=k.device).clamp(max=length - 1)
    centers = window.centers[:, index].unflatten(1, (-1, block_size))
    first = (centers.amin(dim=-1) - window.size).clamp(0, keys - 1)
    last = (centers.amax(dim=-1) + window.after).clamp(0, keys - 1)
    width = int((last - first).max()) + 1
    columns = first.unsqueeze(-1) + torch.arange(width, device=k.device)
    distance = columns.unsqueeze(2) - centers.unsqueeze(-1)
    outside = columns >= keys
    columns = columns.clamp(max=keys - 1)
    if window.key_padding is not None:
        outside = outside | window.key_padding.gather(1, columns.flatten(1)).view_as(columns)
    hidden = window.beyond(distance) | outside.unsqueeze(2)
    seen = _of_blocks(k, columns), _of_blocks(v, columns)
    return (*seen, distance.unsqueeze(2), hidden.unsqueeze(2))


def _of_blocks(x: Tensor, columns: Tensor) -> Tensor:
    """Copy the keys or values that each of M blocks can see.

    Args:
        x: (B, H, J, d) keys or values.
        columns: (B, M, J') indices of the keys of each block.

    Returns:
        (B * M, H, J', d) keys or values of the blocks.
    """
    rows = torch.arange(len(x), device=x.device).view(-1, 1, 1)
    return x.transpose(1, 2)[rows, columns].transpose(2, 3).flatten(0, 1)
