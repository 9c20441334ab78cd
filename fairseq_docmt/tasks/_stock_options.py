"""Values of fairseq's options at which it fails, or which it takes without meaning."""

import ast
import logging
from argparse import Namespace
from typing import Iterable

import torch
from fairseq.data.data_utils import post_process
from omegaconf import OmegaConf

from fairseq_docmt.errors import UserError, flag

logger = logging.getLogger(__name__)

#: options, and lists of options, that fairseq accepts below 1
AT_LEAST_1 = ("batch_size", "max_batch_tokens", "update_freq", "log_interval")
AT_LEAST_1 += ("validate_interval", "save_interval")
#: options, and lists of options, that fairseq accepts below 0
AT_LEAST_0 = ("validate_interval_updates", "save_interval_updates", "num_workers")
AT_LEAST_0 += ("data_buffer_size", "lr")


def check_ranges(cfg) -> None:
    """Refuse numbers out of range, in training and decoding.

    Args:
        cfg: options of a task.

    Raises:
        UserError: naming the option.
    """
    bounds = ("not be negative", AT_LEAST_0), ("be at least 1", AT_LEAST_1)
    for least, (bound, names) in enumerate(bounds):
        for name in names:
            values = getattr(cfg, name)
            for value in values if isinstance(values, Iterable) else (values,):
                if value is not None and value < least:
                    option = "--max-tokens" if name == "max_batch_tokens" else flag(name)
                    raise UserError(f"{option} must {bound}, got {value}")


def check_precision(cfg) -> None:
    """Refuse training in half precision without a GPU, at which fairseq fails.

    Raises:
        UserError: naming the option.
    """
    if cfg.fp16 and not cfg.fp16_no_flatten_grads and not torch.cuda.is_available():
        raise UserError(
            "--fp16 needs a GPU, or --fp16-no-flatten-grads; give that, train with --amp, or leave "
            "it out"
        )


def check_probabilities(cfg) -> None:
    """Refuse probabilities of a model or criterion that are none.

    Args:
        cfg: options of the model or criterion.

    Raises:
        UserError: naming the option.
    """
    options = vars(cfg) if isinstance(cfg, Namespace) else OmegaConf.to_container(cfg)
    for name, value in options.items():
        is_probability = name.endswith(("dropout", "label_smoothing"))
        if is_probability and isinstance(value, float) and not 0 <= value <= 1:
            raise UserError(f"{flag(name)} must be between 0 and 1, got {value}")


def check_options(cfg) -> None:
    """Refuse options that fairseq fails at in decoding, later on; name those without effect.

    Args:
        cfg: options of a task of ``fairseq-generate`` or ``fairseq-interactive``.

    Raises:
        UserError: naming the option.
    """
    _check_overrides(cfg.model_overrides)
    try:
        post_process("", cfg.post_process)
    except NotImplementedError:
        raise UserError(
            f"--post-process {cfg.post_process} is unknown to fairseq; give subword_nmt, "
            "sentencepiece or wordpiece, or leave it out"
        ) from None
    if cfg.dataset_impl == "fasta":
        raise UserError("--dataset-impl fasta has no texts with a target side; leave it out")
    for name in ("bf16", "amp"):
        if getattr(cfg, name):
            logger.warning(
                "no effect in decoding, which is in single precision or --fp16: --%s", name
            )


def _check_overrides(text: str) -> None:
    try:
        overrides = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        overrides = None
    if not isinstance(overrides, dict):
        raise UserError(
            """--model-overrides must be a dictionary such as "{'dropout': 0.1}", """
            f"not {text}"
        )
