"""Attention weights of chosen words, computed from the inputs of fairseq's attention modules.

The stock layers do not return the weights of self-attention.  Only the rows that are needed are
computed, and the layers stay as they are.
"""

import contextlib
from typing import Dict, Iterable, Iterator, NamedTuple, Optional

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from fairseq_docmt.ops.precision import at_least_single


class AttentionInputs(NamedTuple):
    """Inputs of an attention module.

    Attributes:
        query: (T, B, E) queries.
        key: (S, B, E) keys.
        key_padding_mask: (B, S) bool, True for padding; None if there is none.
        attn_mask: (T, S) mask that is added to the logits; None if there is none.
        has_graph: whether the module was called with gradients.
    """

    query: Tensor
    key: Tensor
    key_padding_mask: Optional[Tensor]
    attn_mask: Optional[Tensor]
    has_graph: bool


@contextlib.contextmanager
def record_inputs(
    modules: Iterable[MultiheadAttention],
) -> Iterator[Dict[MultiheadAttention, AttentionInputs]]:
    """Record the inputs of attention modules, which have to be called with keyword arguments.

    Yields:
        A dictionary that has, after the model was called, the last inputs of each module; a module
        that was not called (LayerDrop) is missing.
    """
    found: Dict[MultiheadAttention, AttentionInputs] = {}

    def record(module, _, given):
        masks = given.get("key_padding_mask"), given.get("attn_mask")
        graph = torch.is_grad_enabled()
        found[module] = AttentionInputs(given["query"], given["key"], *masks, graph)

    hooks = [module.register_forward_pre_hook(record, with_kwargs=True) for module in modules]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def log_weights(
    attention: MultiheadAttention,
    inputs: AttentionInputs,
    rows: Tensor,
    positions: Tensor,
    head: Optional[int],
) -> Tensor:
    """Compute the logarithm of the attention weights of some queries, without dropout.

    Args:
        attention: module.
        inputs: its inputs.
        rows: (n,) row of each query in the batch, in ascending order.
        positions: (n,) position of each query.
        head: number of a head, or None for all.

    Returns:
        (n, heads, S), at least single precision; -inf for masked keys.
    """
    used, numbers = rows.unique_consecutive(return_counts=True)

    def heads(states: Tensor) -> Tensor:
        states = states.view(*states.shape[:-1], attention.num_heads, attention.head_dim)
        return states if head is None else states[..., head : head + 1, :]

    query = heads(attention.q_proj(inputs.query[positions, rows]) * attention.scaling)
    keys = heads(attention.k_proj(inputs.key[:, used])).unbind(dim=1)
    of_rows = zip(query.split(numbers.tolist()), keys)
    logits = torch.cat([torch.einsum("nhd,shd->nhs", *of_row) for of_row in of_rows])
    if inputs.attn_mask is not None:
        logits = logits + inputs.attn_mask[positions].unsqueeze(1)
    if inputs.key_padding_mask is not None:
        padding = inputs.key_padding_mask[rows].bool()
        logits = logits.masked_fill(padding.unsqueeze(1), float("-inf"))
    return logits.log_softmax(dim=-1, dtype=at_least_single(logits.dtype))
