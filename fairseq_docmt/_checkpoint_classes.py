"""The classes that fairseq checkpoints may contain when ``torch.load`` is in its safe mode.

By default (``weights_only=True``), torch >= 2.6 refuses to unpickle classes that it does not know.
Besides tensors, fairseq checkpoints contain a few plain classes.  This module tells torch to accept
these classes and no others.  A file with any other class is refused before any of its code runs.
"""

import argparse
import collections
import typing

import numpy as np
import omegaconf
import torch


def _numpy_classes() -> list:
    """Return the NumPy classes and functions needed to load validation scores (``--eval-bleu``)."""
    # The ``_core`` of NumPy 1.26 is empty.
    multiarray = getattr(getattr(np, "_core", None), "multiarray", None) or np.core.multiarray
    classes = [np.ndarray, np.dtype, multiarray._reconstruct, multiarray.scalar]
    # Files written with NumPy 1 refer to the same functions in their old module.
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
    """Return the classes needed to load the options and the metadata in a checkpoint."""
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
    """Let ``torch.load`` accept the classes of fairseq checkpoints in ``weights_only`` mode.

    If torch is too old to keep a list of accepted classes, nothing is done.
    """
    add_safe_globals = getattr(torch.serialization, "add_safe_globals", None)
    if add_safe_globals is not None:
        add_safe_globals(_numpy_classes() + _configuration_classes())
