"""Other layers in the place of those that a model was built with."""

from typing import Callable, Optional

from torch import nn


def swap_modules(model: nn.Module, replacement: Callable[[nn.Module], Optional[nn.Module]]) -> None:
    """Replace the layers of a model that have a replacement.

    Args:
        replacement: of a layer, or None to leave it.  Layers with hooks before their forward pass,
            as quantization noise has them, are left in any case.
    """
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            other = None if child._forward_pre_hooks else replacement(child)
            if other is not None:
                setattr(module, name, other)
