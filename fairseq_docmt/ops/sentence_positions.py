"""Positions of tokens in their sentence."""

import torch.nn.functional as F
from torch import Tensor


def sentence_positions(positions: Tensor, separators: Tensor, ends: bool) -> Tensor:
    """Count positions anew in each sentence.

    Args:
        positions: (B, T) int64 position of each token in its row, from 1; 0 at padding.
        separators: (B, T) True at ``<sep>``.
        ends: whether ``<sep>`` ends a sentence, as in a source; otherwise it begins one, as in the
            input of a decoder.

    Returns:
        (B, T) position of each token in its sentence, from 1; 0 at padding.
    """
    if ends:
        before = F.pad(positions.masked_fill(~separators, 0), (1, -1))
    else:
        before = (positions - 1).masked_fill(~separators, 0)
    return (positions - before.cummax(dim=1).values).clamp(min=0)
