"""Decoder recurrence of Bahdanau et al. (2015): additive attention and a GRU."""

from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.ops.attentive_gru import (
    AttentionParts,
    attentive_gru,
    attentive_gru_without_gradients,
)


class AttendedStates(NamedTuple):
    """Source projected for the recurrence, shared by the beams of a sentence.

    Attributes:
        states: (B, S, l) encoder states.
        keys: (B, S, a) keys of attention.
        gates: (B, S, 3 d) contribution of each source state to the gates of the GRU.
        padding: (B, S) True at padding; None without padding.
    """

    states: Tensor
    keys: Tensor
    gates: Tensor
    padding: Optional[Tensor]

    def columns(self, columns: slice) -> "AttendedStates":
        """Select positions of the source."""
        return AttendedStates(*(None if x is None else x[:, columns] for x in self))

    def of_sentences(self, sentences: Tensor) -> "AttendedStates":
        """Select sentences by index."""
        return AttendedStates(*(None if x is None else x.index_select(0, sentences) for x in self))


class AttentiveGRU(nn.Module):
    """GRU with additive attention from the previous state and the last word.

    ``c_t = attention(s_{t-1}, x_t; h)``, ``s_t = GRU(s_{t-1}, [x_t; c_t])``: Tu et al. (2018),
    equations 3 and 4; as in their section 4.1, the query of attention includes the last word.

    Everything independent of the last state is computed for all steps at once: the projections of
    the inputs and of the source. The gates are linear in the context vector, a weighted sum of
    source states, so each source state is projected to the gates once, and context vectors are
    computed after the recurrence.

    Args:
        input_dim: size of inputs x.
        source_dim: size l of encoder states.
        hidden_dim: size d of the state s.
        attention_dim: size a of the hidden layer of attention; default: ``hidden_dim``.
    """

    def __init__(
        self,
        input_dim: int,
        source_dim: int,
        hidden_dim: int,
        attention_dim: Optional[int] = None,
    ):
        super().__init__()
        attention_dim = attention_dim or hidden_dim
        self.hidden_dim, self.attention_dim = hidden_dim, attention_dim
        # One projection each of input and state gives the attention query and the gates of the GRU.
        self.input_proj = nn.Linear(input_dim, attention_dim + 3 * hidden_dim)
        self.source_gates = nn.Linear(source_dim, 3 * hidden_dim, bias=False)
        self.state_proj = nn.Linear(hidden_dim, attention_dim + 3 * hidden_dim)
        self.key_proj = nn.Linear(source_dim, attention_dim, bias=False)
        self.energy = nn.Parameter(torch.empty(attention_dim))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden_dim**-0.5), hidden_dim**-0.5)

    def project_source(self, states: Tensor, padding: Optional[Tensor]) -> AttendedStates:
        """Project encoder states (B, S, l) with padding mask (B, S) to keys and gates."""
        return AttendedStates(states, self.key_proj(states), self.source_gates(states), padding)

    def forward(
        self, x: Tensor, state: Tensor, source: AttendedStates, gates: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Run the recurrence.

        Args:
            x: (B * N, T, input_dim) inputs; the N beams of a sentence are adjacent.
            state: (B * N, d) state before the first step.
            source: projected source of B sentences.
            gates: (B * N, 3 d) constant added to the gates at every step, None for none.

        Returns:
            (B * N, T, d) states, (B * N, T, l) context vectors, (B * N, T, S) attention weights.
        """
        parts = AttentionParts(source.keys, source.gates, source.padding)
        from_input = self.input_proj(x)
        if gates is not None:
            from_input = from_input + F.pad(gates, (self.attention_dim, 0)).unsqueeze(1)
        if torch.is_grad_enabled():
            weight, bias = self.state_proj.weight, self.state_proj.bias
            states, attention = attentive_gru(from_input, state, parts, weight, bias, self.energy)
        else:  # the projection may have packed weights
            states, attention = attentive_gru_without_gradients(
                from_input, state, parts, self.state_proj, self.energy
            )
        bsz, (rows, length) = len(source.states), x.shape[:2]
        contexts = attention.view(bsz, -1, attention.size(-1)) @ source.states
        return states, contexts.view(rows, length, -1), attention
