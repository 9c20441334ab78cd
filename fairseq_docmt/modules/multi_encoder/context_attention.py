"""Attention to encoded context, added to attention to the source or to source states."""

from typing import NamedTuple, Sequence, Tuple

import torch
from torch import Tensor, nn

from fairseq_docmt.modules.multi_encoder.context_encoder import EncodedContext
from fairseq_docmt.modules.shared.full_attention import AttendedSource, SourceAttention


class AttendedContext(NamedTuple):
    """Projected context of B sentences.

    Attributes:
        source: keys and values.
        known: (B,) True if there is context.
    """

    source: AttendedSource
    known: Tensor

    def of_sentences(self, sentences: Tensor) -> "AttendedContext":
        """Select sentences by index."""
        known = self.known.index_select(0, sentences)
        return AttendedContext(self.source.of_sentences(sentences), known)


class AttendedContexts(NamedTuple):
    """Projected contexts of B sentences, one for each side."""

    contexts: Tuple[AttendedContext, ...]

    def of_sentences(self, sentences: Tensor) -> "AttendedContexts":
        """Select sentences by index."""
        return AttendedContexts(tuple(x.of_sentences(sentences) for x in self.contexts))


class ContextAttention(nn.Module):
    """Attention to the context of one side, added to other vectors.

    Li et al. (2020): ``g * h + (1 - g) * attention``, or the sum of both.

    Args:
        embed_dim: size C of queries and outputs.
        heads: number of attention heads.
        dropout: dropout probability of attention weights.
        context_dim: size of context states.
        gated: whether a gate mixes both; otherwise they are added.
    """

    def __init__(self, embed_dim: int, heads: int, dropout: float, context_dim: int, gated: bool):
        super().__init__()
        self.attention = SourceAttention(embed_dim, heads, dropout, key_dim=context_dim)
        self.gate = None
        if gated:
            self.gate = nn.Linear(2 * embed_dim, embed_dim)
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

    def attended(self, context: EncodedContext) -> AttendedContext:
        """Project a context."""
        source = self.attention.project_source(context.states, context.padding)
        return AttendedContext(source, context.known)

    def forward(self, x: Tensor, query: Tensor, context: AttendedContext) -> Tensor:
        """Add context to vectors.

        Args:
            x: (B * N, T, C) vectors, N consecutive rows for each of the B sentences.
            query: (B * N, T, C) queries of the attention.
            context: projected context.

        Returns:
            (B * N, T, C) vectors; those of sentences without context are unchanged.
        """
        read = self.attention(query, context.source)
        if self.gate is None:
            output = x + read
        else:
            gate = self.gate(torch.cat([x, read], dim=-1)).sigmoid()
            output = gate * x + (1 - gate) * read
        known = context.known.repeat_interleave(len(x) // len(context.known))
        return torch.where(known[:, None, None], output, x)


def build_attentions(cfg, embed_dim: int, side, context_dims: Sequence[int]) -> nn.ModuleList:
    """Create the attentions to all contexts.

    Args:
        cfg: options of the model, with ``context_fusion``.
        embed_dim: size of queries.
        side: ``cfg.encoder`` or ``cfg.decoder``, which has the number of heads.
        context_dims: sizes of the states of each context.
    """
    gated, heads = cfg.context_fusion == "gate", side.attention_heads
    return nn.ModuleList(
        ContextAttention(embed_dim, heads, cfg.attention_dropout, size, gated)
        for size in context_dims
    )
