"""Hand layers what fairseq's loop over them does not."""

import contextlib
from typing import Sequence

from torch import nn


@contextlib.contextmanager
def pass_layer_kwargs(modules: Sequence[nn.Module], **values):
    """Call each module with further keyword arguments while the context lasts.

    Args:
        modules: whose ``forward`` takes the arguments.
        **values: for each argument one value for all modules, or a list with one for each.
    """
    hooks = []
    for number, module in enumerate(modules):
        own = {k: v[number] if isinstance(v, list) else v for k, v in values.items()}

        def tell(_, args, kwargs, own=own):
            return args, {**kwargs, **own}

        hooks.append(module.register_forward_pre_hook(tell, with_kwargs=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
