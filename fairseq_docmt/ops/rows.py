"""Groups of batch rows, and values among padding.

The backward pass of indexing fills a tensor of the size of its input with zeros, for every group.
Here each direction of one operation is the backward pass of the other, and fills at most one.
"""

from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor

#: rows of a group, and the columns it has of them, None for all
Group = Tuple[Tensor, Optional[slice]]


def gathered(x: Tensor, groups: Sequence[Group]) -> List[Tensor]:
    """Return the (rows of the group, its columns, ...) values of each group.

    Args:
        x: (B, T, ...) values, (B, ...) for groups with all columns.
        groups: the groups; no position is in two of them.
    """
    return list(_Gathered.apply(x, groups))


def scattered(parts: Sequence[Tensor], groups: Sequence[Group], shape: Sequence[int]) -> Tensor:
    """Put the values of groups in their places; what no group has is zero.

    Args:
        parts: (rows of the group, its columns, ...) values of each group.
        groups: the groups; no position is in two of them.
        shape: shape of the result, (B, T, ...).
    """
    return _Scattered.apply(groups, shape, *parts)


def placed(values: Tensor, places: Tensor, size: int) -> Tensor:
    """Put N values at their places among ``size`` positions, with zeros at the others.

    For packed sequences this replaces torch's ``pad_packed_sequence``, which copies step by step;
    its backward pass copies the gradients of the whole batch at every step.

    Args:
        values: (N, d) values.
        places: (N,) different positions, below ``size``.
        size: number of positions.

    Returns:
        (size, d) values.
    """
    return values.new_zeros(size, values.size(1)).index_copy(0, places, values)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, groups):
        ctx.groups, ctx.shape = groups, x.shape
        return _gather(x, groups)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):
        return _scatter(gradients, ctx.groups, ctx.shape), None


class _Scattered(torch.autograd.Function):
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
