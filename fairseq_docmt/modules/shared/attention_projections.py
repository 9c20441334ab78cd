"""Projections of multi-head attention with fairseq's parameter names and initialisation."""

from typing import Optional

from torch import nn


class AttentionProjections(nn.Module):
    """Base class of all attention modules; parameters can come from a trained transformer.

    Args:
        embed_dim: size of queries and outputs.
        heads: number of attention heads.
        key_dim: input size of the key and value projections; default: ``embed_dim``.
        contexts: number of context vectors concatenated before the output projection.
    """

    def __init__(
        self, embed_dim: int, heads: int, key_dim: Optional[int] = None, contexts: int = 1
    ):
        super().__init__()
        key_dim = key_dim or embed_dim
        self.num_heads, self.head_dim = heads, embed_dim // heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(key_dim, embed_dim)
        self.v_proj = nn.Linear(key_dim, embed_dim)
        self.out_proj = nn.Linear(contexts * embed_dim, embed_dim)
        # As in fairseq's attention with equal sizes of queries, keys and values.
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def split_heads(self, x):
        """Reshape (B, T, C) to (B, H, T, d)."""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def keys_and_values(self, x):
        """Project inputs (B, T, C) to keys and values, both (B, H, T, d)."""
        return self.split_heads(self.k_proj(x)), self.split_heads(self.v_proj(x))
