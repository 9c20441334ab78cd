"""Window attention in a single call of torch's fused attention kernel, for GPUs.

The loop over blocks used on CPUs would launch many small kernels.  Here every block of queries gets
a copy of the keys that it can see, and blocks become rows of one batch.  Memory grows linearly with
the length: a block of 64 queries copies 64 + 2 w keys and has a mask with as many columns.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor

from fairseq_docmt.ops.masked_attention import masked_attention


def fused_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window,
    relative: Optional[Tensor] = None,
    dropout: float = 0.0,
    block_size: int = 64,
) -> Tensor:
    """Compute :func:`~fairseq_docmt.ops.window_attention.window_attention`; see its arguments."""
    length = q.size(2)
    # Copies of the last query fill the last block; their outputs are cut off at the end.
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
    output = masked_attention(
        queries.flatten(0, 1), keys, values, mask.flatten(0, 1), dropout, scale=1.0
    )
    output = output.unflatten(0, (len(q), blocks)).masked_fill(lost, 0.0)
    return output.transpose(1, 2).flatten(2, 3)[:, :, :length]


def _seen(window, centers: Tensor, keys: int) -> Tuple[Tensor, Tensor, Tensor]:
    """Find the keys that each block of queries can see.

    Args:
        window: visible keys of each query.
        centers: (B, M, I') aligned key of each query, for M blocks of I' queries.
        keys: number of keys.

    Returns:
        (B, M, J') key indices of each block; (B, M, 1, I', J') distance of each key from the center
        of each query; mask of the same shape, True for hidden keys.
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
    """Gather x (B, H, J, d) at the columns (B, M, J') of each block, as (B * M, H, J', d)."""
    rows = torch.arange(len(x), device=x.device).view(-1, 1, 1)
    return x.transpose(1, 2)[rows, columns].transpose(2, 3).flatten(0, 1)
