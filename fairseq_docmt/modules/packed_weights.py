"""Lets a model that only decodes from now on use packed weights."""

import torch
from torch import nn

from fairseq_docmt.modules.onednn_linear import OneDNNLinear
from fairseq_docmt.modules.packed_gru import PackedGRU
from fairseq_docmt.modules.packed_linear import PackedLinear, can_pack


def pack_weights(model: nn.Module) -> None:
    """Replace all plain linear layers and GRUs of a model, whose weights change no more."""
    if not can_pack():
        return
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if child._forward_pre_hooks or not _packable(child):
                continue
            packed = PackedGRU if type(child) is nn.GRU else PackedLinear
            setattr(module, name, packed(child))


def _packable(module: nn.Module) -> bool:
    if type(module) not in (nn.Linear, OneDNNLinear, nn.GRU):
        return False
    if type(module) is nn.GRU and not (module.batch_first and module.bias):
        return False
    return next(module.parameters()).dtype in (torch.float32, torch.bfloat16)
