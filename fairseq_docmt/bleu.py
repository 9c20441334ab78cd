"""BLEU of sacreBLEU with clear errors."""

from typing import Optional

from sacrebleu.metrics import BLEU

from fairseq_docmt.errors import UserError


def build_bleu(tokenize: Optional[str] = None, **options) -> BLEU:
    """Build BLEU with a tokenizer of sacreBLEU.

    Args:
        tokenize: name of the tokenizer; None for 13a.
        options: other options of :class:`sacrebleu.metrics.BLEU`.

    Raises:
        UserError: the tokenizer lacks a package or a model.
    """
    try:
        return BLEU(tokenize=tokenize, **options)
    except (RuntimeError, ImportError, OSError) as error:
        raise UserError(
            f"sacreBLEU's tokenizer {tokenize} lacks a package, or a model that is downloaded "
            f"once: {' '.join(str(error).split())}"
        ) from None
