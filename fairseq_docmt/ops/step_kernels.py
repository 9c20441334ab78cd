"""Compiled parts of random feature attention, for a step of decoding on a CPU.

``step_kernels.cpp`` is compiled at installation where there is a C++ compiler; without it the plain
versions serve, which are slower and otherwise the same.
"""

import ctypes
import logging
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Optional

import torch
from torch import Tensor

logger = logging.getLogger(__name__)
#: sizes come in multiples of this, as in the source
LANES = 16
SOURCE = Path(__file__).with_suffix(".cpp")


def _load() -> Optional[ctypes.CDLL]:
    """The library; None where it was not compiled, or from another source, or does not load."""
    found = find_spec("fairseq_docmt.ops._step_kernels")
    if found is None:
        return None
    try:
        library = ctypes.CDLL(found.origin)
        compiled_from = ctypes.c_uint32.in_dll(library, "source_checksum").value
    except (OSError, ValueError):
        return None
    if compiled_from != zlib.crc32(SOURCE.read_bytes()):
        logger.warning(f"{SOURCE.name} has changed; install again to decode with it on a CPU")
        return None
    return library


_LIBRARY = _load()


def is_compiled() -> bool:
    """Whether the kernels are there."""
    return _LIBRARY is not None


def can_serve(*tensors: Tensor) -> bool:
    """Whether the kernels can take tensors, whose last dimensions are what they work along."""
    first = tensors[0]
    return (
        is_compiled()
        and not torch.is_grad_enabled()
        and first.dtype in (torch.float32, torch.bfloat16)
        and all(x.dtype == first.dtype for x in tensors)
        and all(x.device.type == "cpu" and x.size(-1) % LANES == 0 for x in tensors)
    )


def features(vectors: Tensor, matrices: Tensor, temperatures: Tensor, shortest: float) -> Tensor:
    """Sines and cosines of vectors scaled by :func:`~.random_features.unit_length`, no gradients.

    Args:
        vectors: (H, R, d), the last dimension side by side. matrices: (H, d, D).
        temperatures: (H, 1, 1), all of one type.
        shortest: added to lengths.

    Returns:
        (H, R, 2 D).
    """
    heads, rows, size = vectors.shape
    output = vectors.new_empty(heads, rows, 2 * matrices.size(-1))
    if vectors.stride(-1) != 1:
        vectors = vectors.contiguous()
    sizes = (heads, rows, size, matrices.size(-1), *vectors.stride()[:2])
    _call(
        f"features_{_name(vectors)}",
        ctypes.c_void_p(vectors.data_ptr()),
        *map(_pointer, (matrices, temperatures)),
        ctypes.c_float(shortest),
        _pointer(output),
        (ctypes.c_int64 * 6)(*sizes),
    )
    return output


def attend(queries: Tensor, sums: Tensor, norms: Tensor, floor: float) -> Tensor:
    """As :func:`fairseq_docmt.ops.linear_attention.attend_summary`, without gradients.

    Args:
        queries: (H, B, N, F). sums: (H, B, F, D). norms: (H, B, F), all of one type.

    Returns:
        (H, B, N, D), whose heads lie side by side in memory.
    """
    output, sizes = _prepare(queries, sums.size(-1))
    _call(
        f"attend_{_name(queries)}",
        *map(_pointer, (queries, sums, norms)),
        ctypes.c_float(floor),
        _pointer(output),
        sizes,
    )
    return output.permute(2, 0, 1, 3)


def recall(
    queries: Tensor,
    sums: Tensor,
    norms: Tensor,
    shares: Tensor,
    keys: Tensor,
    values: Tensor,
    weights: Tensor,
    used: int,
    floor: float,
) -> Tensor:
    """As :meth:`fairseq_docmt.modules.beam_memory.BeamMemory.read`, without gradients.

    Args:
        queries: (H, B, N, F).
        sums, norms: (H, B, M * F, D) and (H, B, M * F) summaries.
        shares: (1 or H, B, N, M) of each beam, in single precision or in that of the queries.
        keys, values: (H, B, room, F) and (H, B, room, D).
        weights: (1 or H, B, N, room) of each beam, of the type of the shares.
        used: how many of the keys to read.

    Returns:
        (H, B, N, D), whose heads lie side by side in memory.
    """
    output, sizes = _prepare(queries, values.size(-1))
    places = (ctypes.c_int64 * 4)(shares.size(3), keys.size(2), used, int(shares.size(0) == 1))
    _call(
        f"recall_{_name(queries)}_{_name(shares)}",
        *map(_pointer, (queries, sums, norms, shares, keys, values, weights)),
        places,
        ctypes.c_float(floor),
        _pointer(output),
        sizes,
    )
    return output.permute(2, 0, 1, 3)


def _prepare(queries: Tensor, values: int):
    heads, bsz, beams, features = queries.shape
    output = queries.new_empty(bsz, beams, heads, values)
    return output, (ctypes.c_int64 * 5)(heads, bsz, beams, features, values)


def _name(x: Tensor) -> str:
    return str(x.dtype).split(".")[1]


def _pointer(x: Tensor) -> ctypes.c_void_p:
    if not x.is_contiguous():
        raise ValueError(f"a kernel needs contiguous tensors, not strides {x.stride()}")
    return ctypes.c_void_p(x.data_ptr())


def _call(name: str, *arguments) -> None:
    getattr(_LIBRARY, name)(*arguments, ctypes.c_int(torch.get_num_threads()))
