"""Lets a model that only decodes from now on use packed weights."""

from typing import Optional

import torch
from torch import nn

from fairseq_docmt.modules.cpu.module_swap import swap_modules
from fairseq_docmt.modules.cpu.onednn_linear import OneDNNLinear
from fairseq_docmt.modules.cpu.packed_gru import PackedGRU
from fairseq_docmt.modules.cpu.packed_linear import PackedLinear, can_pack


def pack_weights(model: nn.Module) -> None:
    """Replace all plain linear layers and GRUs of a model, whose weights change no more."""
    if can_pack():
        swap_modules(model, _packed)


def _packed(layer: nn.Module) -> Optional[nn.Module]:
    """The layer with packed weights; None where there is no such thing."""
    is_gru = type(layer) is nn.GRU and layer.batch_first and layer.bias
    if not is_gru and type(layer) not in (nn.Linear, OneDNNLinear):
        return None
    if next(layer.parameters()).dtype not in (torch.float32, torch.bfloat16):
        return None
    return PackedGRU(layer) if is_gru else PackedLinear(layer)
