"""sacreBLEU's BLEU metric, and detection of text that still needs postprocessing."""

import re
from typing import Optional, Pattern, Sequence

from sacrebleu.metrics import BLEU

from fairseq_docmt.errors import UserError

#: Part of a word that was not joined: ``re@@`` of BPE, ``▁word`` of SentencePiece.
SUBWORD = re.compile(r"\S+@@(?= |$)|▁\S+")
#: Character as HTML or Moses's tokenizer writes it.  BLEU's tokenizer 13a makes three words of
#: ``&apos;``.
ENTITY = re.compile(r"&(?:[A-Za-z]{2,8}|#\d{2,5}|#x[0-9A-Fa-f]{2,5});")
#: Share of the segments with a sign above which it is no accident.
MANY = 0.05
#: Unknown words of hypotheses and references as fairseq writes them in validation: BLEU does
#: not match them.  In outputs they are ``<unk>`` and ``<<unk>>``, of which tokenizers make ``unk``.
UNKNOWN_IN_HYPOTHESIS, UNKNOWN_IN_REFERENCE = "UNKNOWNTOKENINHYP", "UNKNOWNTOKENINREF"


def sign_in(sentences: Sequence[str], sign: Pattern) -> Optional[str]:
    """Look for a sign, such as BPE's ``@@``, that sentences still need postprocessing.

    Args:
        sentences: sentences to search.
        sign: pattern of the sign.

    Returns:
        The first match if more than 5 % of the sentences match, otherwise None: a few matches may
        be accidental.
    """
    found = [match.group() for match in map(sign.search, sentences) if match]
    return found[0] if len(found) > MANY * len(sentences) else None


def mark_unknown(text: str, is_reference: bool) -> str:
    """Return a text of fairseq-generate with unknown words that match no unknown word of the other.

    Args:
        text: hypothesis or reference, subwords joined.
        is_reference: whether it is the reference.
    """
    if is_reference:
        return text.replace("<<unk>>", UNKNOWN_IN_REFERENCE)
    return text.replace("<unk>", UNKNOWN_IN_HYPOTHESIS)


def build_bleu(tokenize: Optional[str] = None, **options) -> BLEU:
    """Build a BLEU metric with one of sacreBLEU's tokenizers.

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
