"""Measure how the sentential gate makes the weight of earlier sentences decay.

The gate is that of Wu et al. (2022), section 3.2.
"""

import torch
from torch import Tensor

from fairseq_docmt.errors import UserError


@torch.no_grad()
def sentence_decay(model, net_input: dict, separator: int) -> Tensor:
    """Compute the value of the sentential gate at each sentence boundary, in each decoder layer.

    At the beginning of a sentence, the attention state of all earlier tokens is multiplied by the
    gate.

    Args:
        model: ``rfa_transformer`` with a sentential gate.
        net_input: ``src_tokens``, ``src_lengths`` and ``prev_output_tokens`` (B, T) of a batch.
        separator: index of ``<sep>`` in the target dictionary.

    Returns:
        (layers, H, B, J - 1) gate ``f`` at the start of sentences 2 to J of each row, where J is
        the number of sentences of the longest row.  The gate is 1 where a row has no such sentence.
        H is the number of heads, or 1 if all heads share a gate.

    Raises:
        UserError: the model has no sentential gate.
    """
    _, extra = model(**net_input)
    log_decay = extra.get("log_decay")
    if log_decay is None:
        raise UserError("this model has no sentential gate; train one with --sentence-gate decay")
    starts = net_input["prev_output_tokens"].eq(separator)
    starts = torch.nn.functional.pad(starts[:, :-1], (1, 0))
    number = starts.cumsum(dim=1)
    most = int(number.max())
    gates = log_decay.new_zeros(*log_decay.shape[:3], most + 1)
    index = torch.where(starts, number, torch.zeros_like(number))
    gates.scatter_add_(3, index.expand_as(log_decay), log_decay)
    return gates[..., 1:].exp()
