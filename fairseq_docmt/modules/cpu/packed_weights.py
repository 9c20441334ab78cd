"""Packing of the weights of a model for decoding."""

from typing import Optional

import torch
from torch import nn

from fairseq_docmt.modules.cpu.module_swap import swap_modules
from fairseq_docmt.modules.cpu.onednn_linear import OneDNNLinear
from fairseq_docmt.modules.cpu.packed_gru import PackedGRU
from fairseq_docmt.modules.cpu.packed_linear import PackedLinear, can_pack


def pack_weights(model: nn.Module) -> None:
    """Replace plain linear layers and GRUs by layers with packed weights, for decoding only."""
    if can_pack():
        swap_modules(model, _packed)


def _packed(layer: nn.Module) -> Optional[nn.Module]:
    """Return a layer with packed weights, or None for layers that cannot be packed."""
    is_gru = type(layer) is nn.GRU and layer.batch_first and layer.bias
    if not is_gru and type(layer) not in (nn.Linear, OneDNNLinear):
        return None
    if next(layer.parameters()).dtype not in (torch.float32, torch.bfloat16):
        return None
    return PackedGRU(layer) if is_gru else PackedLinear(layer)
