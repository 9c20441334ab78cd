"""Window attention of all blocks of queries by one call of torch's fused kernel, for GPUs.

A loop over blocks, as a CPU likes it, launches more kernels than a GPU has work for.  Here every
block gets a copy of the keys that it can see, and all blocks are rows of one batch.  Memory grows
with the length: a block of 64 queries copies 64 + 2 w keys, and has a mask of as many columns.
"""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor


def fused_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window,
    relative: Optional[Tensor] = None,
    dropout: float = 0.0,
    block_size: int = 64,
) -> Tensor:
    """The same as :func:`fairseq_docmt.ops.window_attention.window_attention`, which chooses."""
    length = q.size(2)
    # The last block is filled with copies of the last query, whose outputs are cut off again.
    blocks = -(-length // block_size)
    index = torch.arange(blocks * block_size, device=q.device).clamp(max=length - 1)
    centers = window.centers[:, index].unflatten(1, (blocks, block_size))
    queries = q[:, :, index].unflatten(2, (blocks, block_size)).transpose(1, 2)
    columns, distance, hidden = _seen(window, centers, k.size(2))
    keys, values = _of_blocks(k, columns), _of_blocks(v, columns)
    lost = hidden.all(dim=-1, keepdim=True)
    mask = ~hidden | lost
    if relative is not None:
        offsets = window.relative_index(distance).expand(-1, -1, q.size(1), -1, -1)
        added = (queries @ relative.t()).gather(-1, offsets)
        mask = added.masked_fill(~mask, -float("inf"))
    output = F.scaled_dot_product_attention(
        queries.flatten(0, 1), keys, values, mask.flatten(0, 1), dropout, scale=1.0
    )
    output = output.unflatten(0, (len(q), blocks)).masked_fill(lost, 0.0)
    return output.transpose(1, 2).flatten(2, 3)[:, :, :length]


def _seen(window, centers: Tensor, keys: int) -> Tuple[Tensor, Tensor, Tensor]:
    """Keys that blocks of queries aligned to centers (B, M, I') are compared with.

    Returns:
        (B, M, J') columns of the keys of each block; (B, M, 1, I', J') distance of each key from
        the center of each query; likewise, which keys are hidden.
    """
    first = (centers.amin(dim=-1) - window.size).clamp(0, keys - 1)
    last = (centers.amax(dim=-1) + window.after).clamp(0, keys - 1)
    width = int((last - first).max()) + 1
    columns = first.unsqueeze(-1) + torch.arange(width, device=centers.device)
    distance = columns.unsqueeze(2) - centers.unsqueeze(-1)
    outside = columns >= keys
    columns = columns.clamp(max=keys - 1)
    if window.key_padding is not None:
        outside = outside | window.key_padding.gather(1, columns.flatten(1)).view_as(columns)
    hidden = window.beyond(distance) | outside.unsqueeze(2)
    return columns, distance.unsqueeze(2), hidden.unsqueeze(2)


def _of_blocks(x: Tensor, columns: Tensor) -> Tensor:
    """(B * M, H, J', d) what stands in the columns (B, M, J') of x (B, H, J, d)."""
    rows = torch.arange(len(x), device=x.device).view(-1, 1, 1)
    return x.transpose(1, 2)[rows, columns].transpose(2, 3).flatten(0, 1)
