"""The projections of multi-head attention, under fairseq's names and with its initialisation."""

from typing import Optional

from torch import nn


class AttentionProjections(nn.Module):
    """Base of the attentions of the suite; a trained transformer can be the start of each.

    Args:
        embed_dim: size of queries and of the output.
        heads: attention heads.
        key_dim: size of what keys and values are made from; that of queries by default.
        contexts: context vectors that are concatenated before the output projection.
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
        # As in fairseq's attention with one size for all.
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def split_heads(self, x):
        """(B, T, C) as (B, H, T, d)."""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
