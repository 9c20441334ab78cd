"""Hierarchical attention to previous sentences (Miculicich et al. 2018)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from fairseq.modules import FairseqDropout
from torch import Tensor, nn

from fairseq_docmt.modules.hierarchical.previous_states import PreviousStates
from fairseq_docmt.modules.shared.attention_projections import AttentionProjections


class AttendedSentences(NamedTuple):
    """Previous sentences of B sentences, projected for word-level attention.

    Attributes:
        keys, values: (B, n, H, W, d).
        words: (B, n, W) True at words, False at padding.
        known: (B, n) True if the sentence exists.
    """

    keys: Tensor
    values: Tensor
    words: Tensor
    known: Tensor

    def of_sentences(self, sentences: Tensor) -> "AttendedSentences":
        """Select sentences by index."""
        return AttendedSentences(*(x.index_select(0, sentences) for x in self))


class HierarchicalAttention(nn.Module):
    """Attention to the words of each previous sentence, then to the sentences, with a gate.

    After Miculicich et al. (2018), with layer norms and the residual connection of the feed-forward
    network as in the authors' code. Without previous sentences the output is the input.

    Args:
        embed_dim: size C of states.
        heads: number of attention heads.
        ffn_dim: inner size of the feed-forward network.
        dropout, attention_dropout: dropout probabilities.
    """

    def __init__(
        self, embed_dim: int, heads: int, ffn_dim: int, dropout: float, attention_dropout: float
    ):
        super().__init__()
        self.attention_dropout = attention_dropout
        self.dropout = FairseqDropout(dropout, module_name=type(self).__name__)
        self.word_attention = AttentionProjections(embed_dim, heads)
        self.sentence_attention = AttentionProjections(embed_dim, heads)
        self.word_query_norm = nn.LayerNorm(embed_dim)
        self.sentence_query_norm = nn.LayerNorm(embed_dim)
        self.word_norm, self.ffn_norm = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.fc1, self.fc2 = nn.Linear(embed_dim, ffn_dim), nn.Linear(ffn_dim, embed_dim)
        self.gate = nn.Linear(2 * embed_dim, embed_dim)
        for linear in (self.fc1, self.fc2, self.gate):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def attended(self, previous: PreviousStates) -> AttendedSentences:
        """Project the previous sentences of each row."""
        keys, values = self.word_attention.keys_and_values(previous.states)
        place = previous.place
        return AttendedSentences(
            keys[place], values[place], previous.present[place], previous.known
        )

    def forward(self, x: Tensor, sentences: AttendedSentences) -> Tensor:
        """Add context to states.

        Args:
            x: (B * N, T, C) states h_t, N consecutive rows for each of the B sentences.
            sentences: previous sentences.

        Returns:
            (B * N, T, C) states with context.
        """
        states = x.unflatten(0, (len(sentences.known), -1)).flatten(1, 2)
        context = self._read_sentences(states, self._read_words(states, sentences), sentences.known)
        gate = self.gate(torch.cat([states, context], dim=-1)).sigmoid()
        output = gate * states + (1 - gate) * context
        anything = sentences.known.any(dim=1)[:, None, None]
        return torch.where(anything, output, states).view_as(x)

    def _read_words(self, states: Tensor, sentences: AttendedSentences) -> Tensor:
        """Return s_t^j, the (B, n, T, C) summary of each sentence for each state (B, T, C)."""
        attention = self.word_attention
        q = attention.split_heads(attention.q_proj(self.word_query_norm(states))).unsqueeze(1)
        # Unknown sentences are masked later; here all their positions are attended to, against NaN.
        seen = sentences.words | ~sentences.known.unsqueeze(2)
        q = q.expand(-1, seen.size(1), -1, -1, -1)
        read = self._attend(q, sentences.keys, sentences.values, seen[:, :, None, None])
        return self.word_norm(attention.out_proj(read.transpose(2, 3).flatten(3)))

    def _read_sentences(self, states: Tensor, summaries: Tensor, known: Tensor) -> Tensor:
        """Return d_t, (B, T, C), for states (B, T, C) and their (B, n, T, C) summaries."""
        attention = self.sentence_attention
        sizes = (attention.num_heads, attention.head_dim)
        # (B, T, H, 1, d) and (B, T, H, n, d)
        q = attention.q_proj(self.sentence_query_norm(states)).unflatten(-1, sizes).unsqueeze(3)
        keys, values = (
            projection(summaries).unflatten(-1, sizes).permute(0, 2, 3, 1, 4)
            for projection in (attention.k_proj, attention.v_proj)
        )
        seen = known | ~known.any(dim=1, keepdim=True)
        read = self._attend(q, keys, values, seen[:, None, None, None])
        read = attention.out_proj(read.squeeze(3).flatten(2))
        hidden = self.dropout(F.relu(self.fc1(self.ffn_norm(read))))
        return read + self.dropout(self.fc2(hidden))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        dropout = self.attention_dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, seen, dropout)
