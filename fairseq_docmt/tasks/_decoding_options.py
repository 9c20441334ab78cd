"""Options of fairseq's commands that it fails at in decoding, or ignores."""

import ast
import logging

from fairseq.data.data_utils import post_process

from fairseq_docmt.errors import UserError

logger = logging.getLogger(__name__)


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
