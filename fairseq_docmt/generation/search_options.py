"""Values of fairseq's search options at which its search fails, or which it ignores."""

import logging
import math
from argparse import Namespace
from dataclasses import fields

from fairseq.dataclass.configs import GenerationConfig

from fairseq_docmt.errors import UserError, flag

logger = logging.getLogger(__name__)

DEFAULTS = {option.name: option.default for option in fields(GenerationConfig)}
#: options that choose another search than beam search; fairseq has one at a time
STRATEGIES = (
    "sampling",
    "diverse_beam_groups",
    "diversity_rate",
    "match_source_len",
    "constraints",
)
#: option -> option without which it has no effect
NEEDED = {
    "sampling_topk": "sampling",
    "sampling_topp": "sampling",
    "diverse_beam_strength": "diverse_beam_groups",
    "retain_dropout_modules": "retain_dropout",
    "lm_weight": "lm_path",
}
NON_AUTOREGRESSIVE = ("retain_iter_history", "print_step", "decoding_format")
SPEECH = ("beam_mt", "max_len_a_mt", "max_len_b_mt", "lenpen_mt", "eos_token")
DEPRECATED = ("no_early_stop", "no_beamable_mm")
#: what fairseq-generate reads with --score-reference
IN_SCORING = ("score_reference", "print_alignment", "retain_dropout", "retain_dropout_modules")
IN_SCORING += ("no_seed_provided", "replace_unk", "lm_path", "lm_weight", *DEPRECATED)


def complete(args) -> Namespace:
    """Return generation options with all names; ``--eval-bleu-args`` has only those given."""
    return Namespace(**{name: getattr(args, name, value) for name, value in DEFAULTS.items()})


def given(args: Namespace) -> list:
    """Return the names of the options that differ from their defaults."""
    return [name for name, value in DEFAULTS.items() if getattr(args, name) != value]


def refuse_options_of_others(args: Namespace) -> None:
    """Refuse options of models that document tasks do not have.

    Raises:
        UserError: naming the option.
    """
    names = given(args)
    for name in names:
        if name in NON_AUTOREGRESSIVE or name.startswith("iter_decode_"):
            raise UserError(f"{flag(name)} is for non-autoregressive models; leave it out")
        if name in SPEECH:
            raise UserError(f"{flag(name)} is for translation of speech; leave it out")
    if args.sacrebleu:
        raise UserError("fairseq ignores --sacrebleu; give --scoring sacrebleu instead")
    deprecated = [flag(name) for name in names if name in DEPRECATED]
    if deprecated:
        logger.warning("fairseq ignores %s", " and ".join(deprecated))


def warn_in_scoring(args: Namespace) -> None:
    """Name the options of a search, which have no effect on the scores of references."""
    names = [flag(name) for name in given(args) if name not in IN_SCORING]
    if names:
        logger.warning("options without effect with --score-reference: %s", ", ".join(names))


def refuse_impossible(args: Namespace, vocabulary: int, alone: bool) -> None:
    """Refuse values and combinations of search options.

    Args:
        args: all generation options.
        vocabulary: size of the target dictionary.
        alone: whether each output is of a single sentence.

    Raises:
        UserError: naming the options.
    """
    for name in given(args):
        value, needed = getattr(args, name), NEEDED.get(name)
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{flag(name)} must be a finite number, got {value}")
        if needed and not _on(args, needed):
            raise UserError(f"{flag(name)} needs {flag(needed)}; give both or neither")
    for name in ("beam", "nbest"):
        if getattr(args, name) < 1:
            raise UserError(f"{flag(name)} must be at least 1, got {getattr(args, name)}")
    for name in ("min_len", "prefix_size", "no_repeat_ngram_size"):
        if getattr(args, name) < 0:
            raise UserError(f"{flag(name)} must not be negative, got {getattr(args, name)}")
    if args.nbest > args.beam:
        raise UserError(f"--nbest {args.nbest} is more than --beam {args.beam}; give a wider beam")
    if args.temperature <= 0:
        raise UserError(f"--temperature must be positive, got {args.temperature}")
    if args.unnormalized and args.lenpen != 1:
        raise UserError("--lenpen has no effect with --unnormalized; leave one of them out")
    _check_lengths(args, alone)
    _check_searches(args, vocabulary)


def _on(args: Namespace, name: str) -> bool:
    """Return whether an option has an effect; 0 and negative numbers switch searches off."""
    value = getattr(args, name)
    return value > 0 if isinstance(value, (int, float)) else bool(value)


def _check_lengths(args: Namespace, alone: bool) -> None:
    if args.match_source_len:  # it has limits of its own
        return
    if args.max_len_a < 0 or (args.max_len_a == 0 and args.max_len_b < 1):
        raise UserError(
            f"--max-len-a {args.max_len_a} with --max-len-b {args.max_len_b} leaves no room for a "
            "word; give larger ones"
        )
    if alone and args.max_len_a == 0 and args.min_len > args.max_len_b:
        raise UserError(
            f"--min-len {args.min_len} is more than --max-len-b {args.max_len_b}; change one of "
            "them"
        )


def _check_searches(args: Namespace, vocabulary: int) -> None:
    chosen = [flag(name) for name in STRATEGIES if _on(args, name)]
    if args.diversity_rate == 0:
        chosen.append("--diversity-rate")
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} are different searches; give one of them")
    topk, topp, groups = args.sampling_topk, args.sampling_topp, args.diverse_beam_groups
    if topk != -1 and not 1 <= topk <= vocabulary:
        raise UserError(
            f"--sampling-topk must be from 1 to {vocabulary}, the words of the target dictionary, "
            f"got {topk}"
        )
    if topp != -1 and not 0 < topp <= 1:
        raise UserError(f"--sampling-topp must be above 0 and at most 1, got {topp}")
    if topk != -1 and topp != -1:
        raise UserError("fairseq ignores --sampling-topk with --sampling-topp; give one of them")
    if args.diversity_rate < 0 and args.diversity_rate != -1:
        raise UserError(f"--diversity-rate must not be negative, got {args.diversity_rate}")
    if groups > 0 and args.beam % groups != 0:
        raise UserError(
            f"--beam {args.beam} must be divisible by --diverse-beam-groups {groups}; change one "
            "of them"
        )
    diverse = groups > 0 or args.diversity_rate >= 0
    if diverse and 2 * args.beam // max(groups, 1) >= vocabulary:
        raise UserError(
            f"{chosen[0]} needs a --beam below half of the {vocabulary} words of the target "
            f"dictionary, got {args.beam}"
        )
