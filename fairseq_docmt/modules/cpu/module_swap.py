"""Replacement of layers in a built model."""

from typing import Callable, Optional

from torch import nn


def swap_modules(model: nn.Module, replacement: Callable[[nn.Module], Optional[nn.Module]]) -> None:
    """Replace layers of a model in place.

    Args:
        model: model to change.
        replacement: returns the new layer for a layer, or None to keep it. Layers with forward
            pre-hooks, such as those of quantization noise, are always kept.
    """
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            other = None if child._forward_pre_hooks else replacement(child)
            if other is not None:
                setattr(module, name, other)
