"""The classes a fairseq checkpoint may hold, so that ``torch.load`` stays in its safe mode.

torch >= 2.6 refuses to unpickle anything it does not know (``weights_only=True``).  fairseq
checkpoints hold a few plain classes beside tensors; only those are allowed here, so a file
that asks for anything else is refused before any of it runs.
"""

import argparse
import collections
import typing

import numpy as np
import omegaconf
import torch


def _numpy_classes() -> list:
    """Validation meters (``--eval-bleu``) are saved as NumPy scalars and arrays."""
    # NumPy 1.26 has a ``_core`` too, but an empty one.
    multiarray = getattr(getattr(np, "_core", None), "multiarray", None) or np.core.multiarray
    classes = [np.ndarray, np.dtype, multiarray._reconstruct, multiarray.scalar]
    # Files written under NumPy 1 name the same functions by their old module.
    classes += [
        (multiarray._reconstruct, "numpy.core.multiarray._reconstruct"),
        (multiarray.scalar, "numpy.core.multiarray.scalar"),
    ]
    dtypes = getattr(np, "dtypes", None)
    for name in ("Float64DType", "Float32DType", "Int64DType", "Int32DType", "BoolDType"):
        if hasattr(dtypes, name):
            classes.append(getattr(dtypes, name))
    return classes


def _configuration_classes() -> list:
    """The configuration, also as broadcast between data-parallel processes."""
    from fairseq.distributed import utils as distributed_utils

    return [
        argparse.Namespace,
        omegaconf.dictconfig.DictConfig,
        omegaconf.listconfig.ListConfig,
        omegaconf.base.ContainerMetadata,
        omegaconf.base.Metadata,
        omegaconf.nodes.AnyNode,
        typing.Any,
        dict,
        list,
        int,
        collections.defaultdict,
        distributed_utils._TensorPlaceholder,
    ]


def allow_checkpoint_classes() -> None:
    """Register the allowed classes; does nothing on a torch without the safe mode."""
    add_safe_globals = getattr(torch.serialization, "add_safe_globals", None)
    if add_safe_globals is not None:
        add_safe_globals(_numpy_classes() + _configuration_classes())
