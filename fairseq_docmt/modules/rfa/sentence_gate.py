"""Sentential gate (Wu et al. 2022, section 3.2)."""

from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_docmt.ops.precision import at_least_single

GATES = ("none", "decay", "average")
#: initial bias of each kind of gate, as in the authors' code
BIAS = {"decay": 2.0, "average": 0.0}


class SentenceWeights(NamedTuple):
    """Decay and token weights of H gates for T tokens and the token after them.

    Attributes:
        log_decay: (H, B, T + 1) logarithm of ``f_t``; 0 except at the first token of a sentence.
        token_weight: (H, B, T + 1) weight of each token, None if all are 1.
    """

    log_decay: Tensor
    token_weight: Optional[Tensor]


class SentenceGate(nn.Module):
    """Gate that decays the past when a sentence starts.

    Its input is the representation of the separator before the sentence, as it enters the attention
    layer.

    Args:
        embed_dim: size of representations.
        gates: number of gates H: one per attention head, as in the authors' code, or 1 for all
            heads, as in the paper's equation.
        average: whether to weight the tokens of a new sentence by one minus its gate
            (``sgate-avg``).
        bias: initial bias ``b_f``.
    """

    def __init__(self, embed_dim: int, gates: int, average: bool, bias: float):
        super().__init__()
        self.average = average
        self.linear = nn.Linear(embed_dim, gates)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.constant_(self.linear.bias, bias)

    def log_gate(self, x: Tensor) -> Tensor:
        """Compute the (..., H) logarithm of the gate from separators (..., C).

        It has at least single precision.
        """
        opening = self.linear(x)
        return F.logsigmoid(opening.to(at_least_single(opening.dtype)))

    def forward(
        self, x: Tensor, separators: Tensor, token_weight: Optional[Tensor] = None
    ) -> SentenceWeights:
        """Compute decay and token weights of whole sequences.

        Args:
            x: (B, T, C) representations.
            separators: (B, T) True at separators.
            token_weight: (H, B, 1) weight of the sentence that the first token continues; None at
                the start of a document.
        """
        at_separators = self.log_gate(x).permute(2, 0, 1).masked_fill(~separators, 0.0)
        log_decay = F.pad(at_separators, (1, 0))
        if not self.average:
            return SentenceWeights(log_decay, None)
        if token_weight is None:
            token_weight = torch.ones_like(log_decay[..., :1])
        weights = torch.cat([token_weight, -torch.expm1(at_separators)], dim=-1)
        # Each token takes the weight of the latest separator before it.
        columns = torch.arange(1, x.size(1) + 1, device=x.device)
        latest = F.pad(separators * columns, (1, 0)).cummax(dim=-1).values
        return SentenceWeights(log_decay, weights.gather(2, latest.expand(len(weights), -1, -1)))
