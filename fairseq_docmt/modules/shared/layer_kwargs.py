"""Extra keyword arguments for layers that fairseq calls."""

import contextlib
from typing import Sequence

from torch import nn


@contextlib.contextmanager
def pass_layer_kwargs(modules: Sequence[nn.Module], **values):
    """Pass extra keyword arguments to every call of the modules within the context.

    Args:
        modules: modules whose ``forward`` accepts the arguments.
        **values: for each argument one value for all modules, or a list with one value for each.
    """
    with contextlib.ExitStack() as hooks:
        for number, module in enumerate(modules):
            own = {k: v[number] if isinstance(v, list) else v for k, v in values.items()}

            def add_kwargs(_, args, kwargs, own=own):
                return args, {**kwargs, **own}

            hooks.enter_context(module.register_forward_pre_hook(add_kwargs, with_kwargs=True))
        yield
