"""Compiled kernels of random feature attention for decoding steps on a CPU.

``step_kernels.cpp`` is compiled during installation if there is a C++ compiler.  Without the
kernels, torch computes the same results more slowly.
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
#: The last dimensions must be multiples of this, see step_kernels.cpp.
LANES = 16
SOURCE = Path(__file__).with_suffix(".cpp")


def _load() -> Optional[ctypes.CDLL]:
    """Load the compiled kernels; return None if they are missing, outdated or unusable.

    If they are outdated, a warning is logged.
    """
    found = find_spec("fairseq_docmt.ops._step_kernels")
    if found is None:
        return None
    try:
        library = ctypes.CDLL(found.origin)
        compiled_from = ctypes.c_uint32.in_dll(library, "source_checksum").value
    except (OSError, ValueError):
        return None
    if compiled_from != zlib.crc32(SOURCE.read_bytes()):
        logger.warning(f"{SOURCE.name} has changed; reinstall fairseq_docmt to compile it")
        return None
    return library


_LIBRARY = _load()


def is_compiled() -> bool:
    """Return whether the compiled kernels are loaded."""
    return _LIBRARY is not None


def can_serve(*tensors: Tensor) -> bool:
    """Return whether the kernels can process these tensors.

    The tensors must be on a CPU, all in float32 or all in bfloat16, and their last dimensions must
    be multiples of ``LANES``.  The kernels cannot be used while gradients are enabled.
    """
    first = tensors[0]
    return (
        is_compiled()
        and not torch.is_grad_enabled()
        and first.dtype in (torch.float32, torch.bfloat16)
        and all(x.dtype == first.dtype for x in tensors)
        and all(x.device.type == "cpu" and x.size(-1) % LANES == 0 for x in tensors)
    )


def features(vectors: Tensor, matrices: Tensor, temperatures: Tensor, shortest: float) -> Tensor:
    """Scale vectors to unit length and compute their sine and cosine features, without gradients.

    Args:
        vectors: (H, R, d) R vectors for each of H heads.
        matrices: (H, d, D) D random vectors of each head, in the data type of ``vectors``.
        temperatures: (H, 1, 1) temperature of each head, by which its scaled vectors are divided;
            in the same data type.
        shortest: number added to the length of each vector, to avoid division by zero.

    Returns:
        (H, R, 2 D) features.
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
    """Attend to a summary of keys and values, without gradients.

    The result is that of :func:`fairseq_docmt.ops.linear_attention.attend_summary`.  All tensors
    must have the same data type.

    Args:
        queries: (H, B, N, F) features of N queries for each of H heads and B sentences.
        sums: (H, B, F, D) sums of the summary.
        norms: (H, B, F) norms of the summary.
        floor: minimum of the denominator.

    Returns:
        (H, B, N, D) output, with the heads of a query contiguous in memory.
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
    """Attend from one query per beam to the history of the beam, without gradients.

    The result is that of :meth:`fairseq_docmt.modules.rfa.beam_memory.BeamMemory.read`: the history
    consists of summaries and recent tokens that the beams of a sentence share, with weights for
    each beam.

    Args:
        queries: (H, B, N, F) query features of N beams for each of H heads and B sentences.
        sums, norms: (H, B, M * F, D) and (H, B, M * F) sums and norms of M summaries of each
            sentence, for values of size D.
        shares: (1 or H, B, N, M) weight of each summary for each beam, in float32 or in the type of
            the queries.
        keys, values: (H, B, room, F) and (H, B, room, D) buffers with room for the keys and values
            of ``room`` recent tokens.
        weights: (1 or H, B, N, room) weight of each recent token for each beam, in the type of the
            shares.
        used: number of recent tokens in the buffers.
        floor: minimum of the denominator.

    Returns:
        (H, B, N, D) output, with the heads of a query contiguous in memory.
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
