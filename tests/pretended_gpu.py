"""Simulated GPU: tensors have a GPU device, but their values are on the CPU.

What a GPU refuses is refused here too, operations on tensors of different devices, so that machines
without one find such mistakes.  Kernels, precision and speed of a GPU are not looked at.
"""

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("cuda", 0)
#: operations that take indices from the CPU too
INDEXING = ("__getitem__", "__setitem__")
#: recurrences on a GPU take the sizes of packed batches from the CPU
WITH_SIZES = ("gru", "lstm", "_pad_packed_sequence")


class OnGPU(Tensor):
    """Tensor with a simulated GPU device."""

    __torch_function__ = torch._C._disabled_torch_function_impl


def put(x):
    """Move tensors in any nested structure to the simulated GPU."""
    return tree_map(lambda y: y.as_subclass(OnGPU) if type(y) is Tensor else y, x)


def back(x):
    """Move tensors in any nested structure to the CPU."""
    return tree_map(lambda y: y.as_subclass(Tensor) if isinstance(y, OnGPU) else y, x)


def put_module(module: torch.nn.Module) -> torch.nn.Module:
    """Move parameters and buffers of a module, in place."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                moved = put(parameter.detach()).requires_grad_(parameter.requires_grad)
                moved._is_param = True
                part._parameters[name] = moved
        part._buffers.update(put(dict(part._buffers)))
        if isinstance(part, torch.nn.RNNBase):
            part._flat_weights = [part._parameters[name] for name in part._flat_weights_names]
    return module


class PretendedGPU(TorchFunctionMode):
    """Torch function mode that refuses operations on tensors of different devices.

    Raises:
        RuntimeError: an operation takes tensors of both devices.
    """

    def __enter__(self):
        # A torch with GPU support would have cuDNN arrange the weights of recurrences.
        self._without_cudnn = torch.backends.cudnn.flags(enabled=False)
        self._without_cudnn.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._without_cudnn.__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name, kwargs = getattr(function, "__name__", ""), dict(kwargs or {})
        first = args[0] if args else None
        if isinstance(first, OnGPU) and function == Tensor.device.__get__:
            return DEVICE
        if isinstance(first, OnGPU) and function == Tensor.is_cuda.__get__:
            return True
        if name == "as_subclass":
            return function(*args, **kwargs)
        args, kwargs, target = _without_devices(name, args, kwargs)
        if target is None:
            _refuse_mixtures(name, args, kwargs)
            leaves = tree_leaves((args, kwargs))
            target = DEVICE.type if any(isinstance(x, OnGPU) for x in leaves) else "cpu"
        result = function(*args, **kwargs)
        if name in ("_pack_padded_sequence", "_pad_packed_sequence"):  # sizes stay on the CPU
            return put(result[0]), back(result[1])
        return put(result) if target == DEVICE.type else back(result)


def _without_devices(name: str, args, kwargs):
    """Return arguments without a GPU, and the type of the device that they named or None."""
    target = None
    if kwargs.get("device") is not None:
        target, kwargs["device"] = torch.device(kwargs["device"]).type, "cpu"
    if name == "to":
        found = [x for x in args[1:] if isinstance(x, (torch.device, str, Tensor))]
        target = target or (found[0] if found else args[0])
        if isinstance(target, Tensor):
            target = DEVICE.type if isinstance(target, OnGPU) else "cpu"
        target = torch.device(target).type
        args = [torch.device("cpu") if isinstance(x, (torch.device, str)) else x for x in args]
    elif name == "type_as":
        target = DEVICE.type if isinstance(args[1], OnGPU) else "cpu"
    elif name == "copy_":
        target = DEVICE.type if isinstance(args[0], OnGPU) else "cpu"
    elif name in ("cpu", "numpy"):
        target = "cpu"
    return args, kwargs, target


def _refuse_mixtures(name: str, args, kwargs) -> None:
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    # Single numbers may come from the CPU, and nothing may come from anywhere.
    here = [x for x in tensors if not isinstance(x, OnGPU) and x.dim() > 0 and x.numel() > 0]
    there = [x for x in tensors if isinstance(x, OnGPU)]
    if name == "_pack_padded_sequence":
        mixed = isinstance(args[1], OnGPU)
    elif name in INDEXING:
        mixed = there and not isinstance(args[0], OnGPU)
    else:
        mixed = here and there and name not in WITH_SIZES
    if mixed:
        shapes = [f"{tuple(x.shape)} {'cuda' if isinstance(x, OnGPU) else 'cpu'}" for x in tensors]
        raise RuntimeError(f"{name} of tensors on different devices: {', '.join(shapes)}")
