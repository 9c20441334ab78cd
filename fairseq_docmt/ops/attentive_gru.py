"""A GRU with additive attention to the source at every step (Bahdanau et al. 2015).

Shapes: B sentences with N batch rows each (beams; 1 in training), T steps and S source states; d is
the state size and ``a`` the number of hidden units of attention.
"""

from typing import Callable, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_docmt.ops.onednn_linear import onednn_linear
from fairseq_docmt.ops.precision import outside_autocast


class AttentionParts(NamedTuple):
    """Source states, projected once for all steps to attention keys and to GRU gates.

    Shapes: S source states of B sentences; ``a`` hidden units of attention; state size d of the
    GRU.

    Attributes:
        keys: (B, S, a) attention keys.
        gates: (B, S, 3 d) contribution of each source state to the reset gate, update gate and
            candidate of the GRU.
        padding: (B, S) True at padding; None if there is none.
    """

    keys: Tensor
    gates: Tensor
    padding: Optional[Tensor]


def attentive_gru(
    from_input: Tensor,
    state: Tensor,
    parts: AttentionParts,
    weight: Tensor,
    bias: Tensor,
    energy: Tensor,
) -> Tuple[Tensor, Tensor]:
    """Run a GRU that attends to the source states at every step.

    At step t the attention weights are ``alpha_t = softmax(energy . tanh(keys + query_t))``, where
    ``query_t`` is the sum of a contribution of the input and one of the previous state.  The GRU
    then computes the new state from the previous state, the input, and the sum of ``gates``
    weighted by ``alpha_t``.  ``keys`` and ``gates`` are attributes of ``parts``.

    To save memory, the backward pass recomputes the hidden layer of attention.  It computes the
    gradients of ``weight`` and ``gates`` as single products over all steps instead of step by step.

    Args:
        from_input: (B * N, T, a + 3 d) contribution of each input to the query (first ``a``
            columns) and to the gates.
        state: (B * N, d) state before the first step.
        parts: projections of the S source states.
        weight, bias: (a + 3 d, d) and (a + 3 d,) projection of the previous state to query and
            gates.
        energy: (a,) output weights of attention.

    Returns:
        (B * N, T, d) states and (B * N, T, S) attention weights.
    """
    return outside_autocast(_AttentiveGRU.apply)(
        from_input, state, parts.keys, parts.gates, weight, bias, energy, parts.padding
    )


def attentive_gru_without_gradients(
    from_input: Tensor,
    state: Tensor,
    parts: AttentionParts,
    project: Callable[[Tensor], Tensor],
    energy: Tensor,
) -> Tuple[Tensor, Tensor]:
    """Run the GRU of :func:`attentive_gru` in decoding, with a function that projects the state.

    The function may be faster than a product with a weight matrix, for example with packed weights.

    Args:
        from_input, state, parts, energy: see :func:`attentive_gru`.
        project: function from (B * N, d) states to (B * N, a + 3 d) contributions to query and
            gates.

    Returns:
        (B * N, T, d) states and (B * N, T, S) attention weights.
    """
    states, attention, _ = _steps(from_input, state, parts, project, energy)
    return states[:, 1:], attention


def _steps(from_input, state, parts: AttentionParts, project, energy):
    """Run all steps of the GRU; also return intermediate results that the backward pass needs.

    The arguments are the same as for :func:`attentive_gru_without_gradients`.

    Returns:
        (B * N, T + 1, d) states, beginning with the initial one; (B * N, T, S) attention weights;
        (B * N, T, a + 3 d) contributions of the previous states to query and gates.
    """
    states, attentions, from_states = [state], [], []
    for inputs in from_input.unbind(dim=1):
        from_states.append(project(states[-1]))
        query, input_gates, state_gates = _split(inputs, from_states[-1], energy.numel())
        attention = _softmax(_hidden(parts.keys, query) @ energy, parts.padding)
        from_source = (attention @ parts.gates).flatten(0, 1)
        states.append(gru_step(input_gates + from_source, state_gates, states[-1]))
        attentions.append(attention.flatten(0, 1))
    return tuple(torch.stack(x, dim=1) for x in (states, attentions, from_states))


class _AttentiveGRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, from_input, state, keys, gates, weight, bias, energy, padding):
        parts = AttentionParts(keys, gates, padding)
        states, attention, from_state = _steps(
            from_input, state, parts, lambda x: onednn_linear(x, weight, bias), energy
        )
        ctx.save_for_backward(
            from_input, from_state, states, attention, keys, gates, weight, energy
        )
        return states[:, 1:], attention

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_states, d_attentions):
        from_input, from_state, states, attentions, keys, gates, weight, energy = ctx.saved_tensors
        bsz, d_keys, d_energy = len(keys), torch.zeros_like(keys), torch.zeros_like(energy)
        d_state = torch.zeros_like(states[:, 0])
        d_from_input, d_from_states = [], []
        for t in reversed(range(from_input.size(1))):
            before, attention = states[:, t], attentions[:, t].view(bsz, -1, keys.size(1))
            query, input_gates, state_gates = _split(
                from_input[:, t], from_state[:, t], energy.numel()
            )
            input_gates = input_gates + (attention @ gates).flatten(0, 1)
            d_gates, d_state_gates, d_state = _gru_backward(
                d_state + d_states[:, t], input_gates, state_gates, before
            )
            d_attention = d_gates.view(bsz, -1, d_gates.size(-1)) @ gates.transpose(1, 2)
            d_attention = d_attention + d_attentions[:, t].view_as(attention)
            product = attention * d_attention
            d_logits = product - attention * product.sum(dim=-1, keepdim=True)
            hidden = _hidden(keys, query)
            d_energy += torch.einsum("bnsa,bns->a", hidden, d_logits)
            d_hidden = (1 - hidden * hidden) * energy * d_logits.unsqueeze(-1)
            d_keys += d_hidden.sum(dim=1)
            d_query = d_hidden.sum(dim=2).flatten(0, 1)
            d_from_input.append(torch.cat([d_query, d_gates], dim=-1))
            d_from_states.append(torch.cat([d_query, d_state_gates], dim=-1))
            d_state = d_state + onednn_linear(d_from_states[-1], weight.t())
        d_from_input = torch.stack(d_from_input[::-1], dim=1)
        d_from_state = torch.stack(d_from_states[::-1], dim=1).flatten(0, 1)
        d_weight = d_from_state.t() @ states[:, :-1].flatten(0, 1)
        d_gates = d_from_input[..., energy.numel() :]
        by_sentence = (attentions.unflatten(0, (bsz, -1)), d_gates.unflatten(0, (bsz, -1)))
        d_source_gates = torch.einsum("bnts,bntg->bsg", *by_sentence)
        d_bias = d_from_state.sum(dim=0)
        return d_from_input, d_state, d_keys, d_source_gates, d_weight, d_bias, d_energy, None


def _split(from_input, from_state, units: int):
    """Split two projections into the attention query and the contributions to the GRU's gates.

    Args:
        from_input, from_state: (rows, units + 3 d) projections of the input and of the previous
            state.  The first ``units`` columns are for the query, the others for the gates.
        units: number of hidden units of attention.

    Returns:
        (rows, units) query, (rows, 3 d) contribution of the input to the gates, and (rows, 3 d)
        contribution of the state.
    """
    query = from_input[:, :units] + from_state[:, :units]
    return query, from_input[:, units:], from_state[:, units:]


def _hidden(keys: Tensor, query: Tensor) -> Tensor:
    """Compute the (B, N, S, a) hidden layer of attention, ``tanh(keys + query)``."""
    return torch.tanh(keys.unsqueeze(1) + query.view(len(keys), -1, 1, keys.size(-1)))


def _softmax(logits: Tensor, padding: Optional[Tensor]) -> Tensor:
    """Compute attention weights from logits (B, N, S); the weights of padding are 0.

    In half precision torch computes the softmax in float32 internally.
    """
    if padding is not None:
        logits = logits.masked_fill(padding.unsqueeze(1), -float("inf"))
    return logits.softmax(dim=-1)


def gru_step(from_input: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
    """Compute the new (rows, d) state of a GRU, as ``torch.nn.GRUCell`` does.

    Args:
        from_input, from_state: (rows, 3 d) contributions of the input and of the previous state to
            the reset gate, update gate and candidate, in this order.
        state: (rows, d) previous state.
    """
    _, update, new, _ = _gru_values(from_input, from_state)
    return new + update * (state - new)


def _gru_values(from_input: Tensor, from_state: Tensor):
    size = from_input.size(-1) // 3
    gates = torch.sigmoid(from_input[:, : 2 * size] + from_state[:, : 2 * size])
    reset, update = gates[:, :size], gates[:, size:]
    candidate = from_state[:, 2 * size :]
    return reset, update, torch.tanh(from_input[:, 2 * size :] + reset * candidate), candidate


def _gru_backward(gradient, from_input, from_state, state):
    """Compute the gradients of the three arguments of :func:`gru_step`.

    Args:
        gradient: (rows, d) gradient of the result of :func:`gru_step`.
        from_input, from_state, state: its arguments.
    """
    reset, update, new, candidate = _gru_values(from_input, from_state)
    d_update = gradient * (state - new) * update * (1 - update)
    d_new = gradient * (1 - update) * (1 - new * new)
    d_reset = d_new * candidate * reset * (1 - reset)
    d_from_input = torch.cat([d_reset, d_update, d_new], dim=-1)
    d_from_state = torch.cat([d_reset, d_update, d_new * reset], dim=-1)
    return d_from_input, d_from_state, gradient * update
