"""Decoder recurrences that read previous source sentences at every step."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_docmt.modules.rnn.attentive_gru import AttendedStates, AttentiveGRU
from fairseq_docmt.modules.rnn.rnnsearch import init_uniform
from fairseq_docmt.ops.attentive_gru import gru_step


class SourceContext(NamedTuple):
    """Representation of previous source sentences for B sentences.

    Attributes:
        states: (B, W, l) word states of the previous sentence, or (B, 1, l) a single summary.
        padding: (B, W) True at padding or without previous sentences.
    """

    states: Tensor
    padding: Tensor

    def of_sentences(self, sentences: Tensor) -> "SourceContext":
        """Select sentences by index."""
        return SourceContext(*(x.index_select(0, sentences) for x in self))


class ContextualGRU(AttentiveGRU):
    """Attentive GRU with context added to its gates, computed step by step.

    Args:
        input_dim, source_dim, hidden_dim, attention_dim: see the base class.
        context_dim: size l of context states.
    """

    def __init__(self, input_dim, source_dim, hidden_dim, attention_dim, context_dim: int):
        super().__init__(input_dim, source_dim, hidden_dim, attention_dim)
        self.context_gates = nn.Linear(context_dim, 3 * hidden_dim, bias=False)

    def forward(
        self,
        x: Tensor,
        state: Tensor,
        source: AttendedStates,
        context: Optional[SourceContext] = None,
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """See the base class; ``context`` is that of the B sentences, None for none."""
        if context is None:
            return super().forward(x, state, source)
        bsz, units = len(source.states), self.attention_dim
        remembered = self.project_context(context)
        states, contexts, attentions = [], [], []
        for inputs, from_input in zip(x.unbind(1), self.input_proj(x).unbind(1)):
            from_state = self.state_proj(state)
            query = (from_input[:, :units] + from_state[:, :units]).view(bsz, -1, 1, units)
            attention = attend(query, source.keys, self.energy, source.padding)
            seen = (attention @ source.states).flatten(0, 1)
            from_source = (attention @ source.gates).flatten(0, 1)
            from_context = self.look_back(inputs, state, seen, remembered)
            gates = from_input[:, units:] + from_source + self.context_gates(from_context)
            state = gru_step(gates, from_state[:, units:], state)
            states.append(state)
            contexts.append(seen)
            attentions.append(attention.flatten(0, 1))
        return tuple(torch.stack(parts, dim=1) for parts in (states, contexts, attentions))

    def project_context(self, context: SourceContext):
        """Precompute the projections of a context that are the same for all steps."""
        return context

    def look_back(self, inputs: Tensor, state: Tensor, seen: Tensor, remembered) -> Tensor:
        """Compute the (rows, l) context vector of a step.

        Args:
            inputs: (rows, input_dim) input of the step.
            state: (rows, d) state before the step.
            seen: (rows, source_dim) context vector of the current source sentence.
            remembered: result of :meth:`project_context`.
        """
        raise NotImplementedError


class AttendingToPrevious(ContextualGRU):
    """Recurrence with attention to the words of the previous source sentence (Jean et al. 2017).

    The query is computed from the last state, the last word and the attention context of the
    current sentence.
    """

    def __init__(self, input_dim, source_dim, hidden_dim, attention_dim, context_dim: int):
        super().__init__(input_dim, source_dim, hidden_dim, attention_dim, context_dim)
        sizes = input_dim + hidden_dim + source_dim
        self.context_query = nn.Linear(sizes, self.attention_dim)
        self.context_key = nn.Linear(context_dim, self.attention_dim, bias=False)
        self.context_energy = nn.Linear(self.attention_dim, 1, bias=False)
        init_uniform(self, hidden_dim)

    def project_context(self, context: SourceContext):
        """See the base class."""
        return context, self.context_key(context.states)

    def look_back(self, inputs, state, seen, remembered):
        """See the base class."""
        context, keys = remembered
        query = self.context_query(torch.cat([inputs, state, seen], dim=-1))
        query = query.view(len(keys), -1, 1, keys.size(-1))
        weights = attend(query, keys, self.context_energy.weight[0], context.padding)
        return (weights @ context.states).flatten(0, 1)


class GatedContext(ContextualGRU):
    """Recurrence with a gated summary vector at every step (Wang et al. 2017, equation 8).

    ``z_t = sigmoid(U s_{t-1} + W y_{t-1} + C c_t)``; ``z_t * D`` is added to the gates of the GRU.
    """

    def __init__(self, input_dim, source_dim, hidden_dim, attention_dim, context_dim: int):
        super().__init__(input_dim, source_dim, hidden_dim, attention_dim, context_dim)
        self.context_gate = nn.Linear(input_dim + hidden_dim + source_dim, context_dim)
        init_uniform(self, hidden_dim)

    def look_back(self, inputs, state, seen, remembered):
        """See the base class."""
        gate = torch.sigmoid(self.context_gate(torch.cat([inputs, state, seen], dim=-1)))
        vectors = remembered.states[:, 0].masked_fill(remembered.padding, 0.0)
        return gate * vectors.repeat_interleave(len(gate) // len(vectors), dim=0)


def attend(query: Tensor, keys: Tensor, energy: Tensor, padding: Optional[Tensor]) -> Tensor:
    """Compute additive attention weights.

    Args:
        query: (B, N, 1, a) queries.
        keys: (B, S, a) keys.
        energy: (a,) energy vector.
        padding: (B, S) True at padding; None without padding.

    Returns:
        (B, N, S) weights; zeros where all keys are padding.
    """
    logits = torch.tanh(keys.unsqueeze(1) + query) @ energy
    if padding is None:
        return logits.softmax(dim=-1)
    hidden = padding.unsqueeze(1)
    weights = logits.masked_fill(hidden, -float("inf")).softmax(dim=-1)
    return weights.masked_fill(hidden.all(dim=-1, keepdim=True), 0.0)
