"""Checks of generation options: values, combinations, and whether ``--decoding`` supports them."""

import logging
import math
from argparse import Namespace
from dataclasses import fields
from typing import List

from fairseq.dataclass.configs import GenerationConfig
from fairseq.modules.fairseq_dropout import FairseqDropout

from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.models.interface import (
    aligns_whole_outputs,
    has_attention_weights,
    remembers_translations,
)

logger = logging.getLogger(__name__)


#: options that fairseq-interactive ignores -> default
OF_GENERATE = {"results_path": None, "gen_subset": "test"}


def check_decoding(task) -> None:
    """Refuse task options that have no effect with the task's ``--decoding``.

    Raises:
        UserError: an option has no effect, or makes another one useless; the message names it.
    """
    search = task.search
    if task.cfg.gold_context and not search.one_by_one:
        raise UserError(
            "--gold-context needs a decoding that translates sentences one after the other "
            f"(sequential, sequential-full-source, stream), not {search.decoding}"
        )
    of_counts = {
        "--force-sentence-count": task.cfg.force_sentence_count,
        "--wrong-sentence-count keep": task.cfg.wrong_sentence_count == "keep",
    }
    chosen = [option for option, given in of_counts.items() if given]
    if chosen and not search.joint:
        raise UserError(
            f"{chosen[0]} has no meaning with --decoding {search.decoding}, which "
            "translates one sentence at a time; leave it out"
        )
    if len(chosen) > 1:
        raise UserError(f"{' leaves nothing to '.join(chosen)}; leave one of them out")
    if task.cfg.normalize_with_context and not search.reads_prefix:
        raise UserError(
            f"--normalize-with-context has no meaning with --decoding {search.decoding}, which "
            "does not read target context before the search; leave it out"
        )


def refuse_unsupported(task, models, args) -> None:
    """Refuse generation options that do not work with a task, its decoding or the models.

    Some options that merely have no effect cause a warning instead.

    Args:
        task: document task.
        models: models of the ensemble.
        args: generation options; those that are missing have fairseq's defaults.

    Raises:
        UserError: a model parameter is NaN or infinite, or an option is not supported; the message
            tells what to do instead.
    """
    _refuse_diverged(models)
    args = _complete(args)
    _refuse_options_of_others(args)
    if args.retain_dropout:
        _refuse_no_dropout(models, args.retain_dropout_modules)
    if args.replace_unk is not None:
        _refuse_replacement(task, models, args)
    _warn_without_context(task)
    _warn_without_translations(task, models, args.score_reference)
    if args.lm_path:
        _refuse_language_model(task, args)
    if args.score_reference:
        _refuse_in_scoring(task, models, args)
        _warn_in_scoring(args)
        return
    # Whether the output is a single sentence, and whether the source is one too.
    writes_one = task.search.single or not task.search.joint
    alone = task.search.single and not task.options.get("next_sentences")
    _refuse_impossible(args, len(task.target_dictionary), writes_one)
    if args.print_alignment:
        _refuse_alignment(task, models, args.print_alignment, alone)
    if not writes_one:
        for option in ("prefix_size", "constraints"):
            if getattr(args, option):
                raise UserError(
                    f"{flag(option)} applies to one sentence, but --decoding "
                    f"{task.search.decoding} translates several in one output; use --decoding "
                    "sequential"
                )
    if args.match_source_len and not alone:
        raise UserError(
            "--match-source-len compares with the source of the whole window; leave it out"
        )
    _refuse_without_input(task, args)


def _refuse_no_dropout(models, names) -> None:
    """Raise a UserError if models have no dropout that ``--retain-dropout`` could keep.

    Args:
        models: models of the ensemble.
        names: value of ``--retain-dropout-modules``, names of classes; None for all.  From the
            command line it is a string, in which fairseq looks for the name of each module.
    """
    dropouts = [
        module
        for model in models
        for module in model.modules()
        if isinstance(module, FairseqDropout)
    ]
    found = {module.module_name for module in dropouts} - {None}
    given = names.split(",") if isinstance(names, str) else names or ()
    given = [*map(str.strip, given)]
    for name in given:
        if name not in found:
            raise UserError(
                f"--retain-dropout-modules: no {name} of the model has dropout; choose from "
                f"{', '.join(sorted(found))}"
            )
    kept = [module for module in dropouts if not names or module.module_name in given]
    if not any(module.p > 0 for module in kept):
        raise UserError("--retain-dropout has no effect, as the model has none; leave it out")


def _refuse_replacement(task, models, args) -> None:
    """Raise a UserError if ``--replace-unk`` would have no effect or cannot work.

    It cannot be combined with ``--score-reference`` or ``--print-alignment``.  It needs the raw
    text of both sides, and a model and a decoding method that provide attention weights.
    """
    if args.score_reference:
        raise UserError("--replace-unk changes translations; leave it out with --score-reference")
    if args.print_alignment:
        raise UserError("--replace-unk prints no alignments; leave out it or --print-alignment")
    for data in task.datasets.values():
        for side, name in (("src", "source"), ("tgt", "reference")):
            if not hasattr(getattr(data, side, None), "get_original_text"):
                raise UserError(
                    f"--replace-unk needs the text of source and reference, and has none of the "
                    f"{name}; use fairseq-generate --dataset-impl raw without --truncate-source"
                )
    _refuse_without_weights(models, "--replace-unk")
    _refuse_whole_alignment(task, models, "--replace-unk")


def _warn_without_context(task) -> None:
    """Warn about options that have no effect with ``--window-size 1``."""
    if task.options.get("window_size") != 1:
        return
    for name in ("gold_context", "normalize_with_context", "force_sentence_count"):
        if getattr(task.cfg, name):
            logger.warning("%s has no effect on windows of 1 sentence", flag(name))
    if task.cfg.wrong_sentence_count == "keep":
        logger.warning("--wrong-sentence-count keep has no effect on windows of 1 sentence")


def _warn_without_translations(task, models, scores: bool) -> None:
    """Warn about options of iterative decoding that have no effect.

    These options need a model with a target memory and at least one decoding pass.

    Args:
        task: document task.
        models: models of the ensemble.
        scores: whether references are scored, which takes no pass over the translations.
    """
    if not task.search.reads_memories:
        return
    cfg = task.cfg
    of_passes = {
        "--decode-passes": cfg.decode_passes > 1,
        "--decode-order": cfg.decode_order != "together",
    }
    passes = [name for name, given in of_passes.items() if given]
    named = ["--drafts"] * bool(cfg.drafts) + passes
    if named and not any(map(remembers_translations, models)):
        _warn_without_effect(named, "on models without a target memory")
    elif named and cfg.decode_passes == 0:
        _warn_without_effect(named, "with --decode-passes 0")
    elif passes and scores:
        _warn_without_effect(passes, "with --score-reference")


def _warn_without_effect(names: List[str], where: str) -> None:
    verb = "have" if len(names) > 1 else "has"
    logger.warning("%s %s no effect %s", " and ".join(names), verb, where)


def _reads_lines(task) -> bool:
    """Return whether the command is fairseq-interactive, which loads no dataset."""
    return bool(task.cfg.checkpoint_to_decode) and not task.datasets


def _refuse_without_input(task, args) -> None:
    """Raise a UserError for options that do not suit the command or its input.

    For example, ``--prefix-size`` needs references, and ``--constraints`` is only for
    fairseq-interactive.
    """
    with_references = (getattr(data, "tgt", None) is not None for data in task.datasets.values())
    if args.prefix_size > 0 and not any(with_references):
        raise UserError(
            "--prefix-size is for fairseq-generate with references, whose first words it takes; "
            "leave it out"
        )
    for name, default in OF_GENERATE.items():
        if _reads_lines(task) and getattr(task.cfg, name) != default:
            raise UserError(f"{flag(name)} is for fairseq-generate; leave it out")
    if getattr(task.cfg, "drafts", None) and _reads_lines(task):
        raise UserError(
            "--drafts are translations of a corpus; use fairseq-generate, or leave it out"
        )
    if args.constraints and not _reads_lines(task):
        raise UserError(
            "--constraints is for fairseq-interactive, which reads them after the source sentence "
            "of a line; use that, or leave it out"
        )


def _refuse_diverged(models) -> None:
    """Raise a UserError if a model has parameters that are NaN or infinite."""
    for model in models:
        if any(not parameter.isfinite().all() for parameter in model.parameters()):
            raise UserError(
                "the checkpoint has parameters that are NaN or infinite, so its "
                "training has diverged; use an earlier checkpoint"
            )


def _refuse_in_scoring(task, models, args) -> None:
    """Raise a UserError for options that cannot be combined with ``--score-reference``."""
    if task.cfg.normalize_with_context:
        raise UserError(
            "--normalize-with-context changes the search; leave it out with --score-reference, "
            "which scores each sentence by its own tokens"
        )
    if args.print_alignment:
        _refuse_without_weights(models)
        if args.print_alignment == "soft":
            raise UserError(
                "--print-alignment soft gives the weights of a search; use --print-alignment hard "
                "with --score-reference"
            )


def _refuse_without_weights(models, option: str = "--print-alignment") -> None:
    """Raise a UserError if a model gives no attention weights while decoding.

    Args:
        models: models of the ensemble.
        option: flag of the option that needs the weights, for the message.
    """
    for model in models:
        if not has_attention_weights(model):
            raise UserError(
                f"{option} needs attention weights, which a {type(model).__name__} does "
                "not give while decoding; leave it out"
            )


def _refuse_alignment(task, models, kind: str, alone: bool) -> None:
    """Raise a UserError if ``--print-alignment`` does not work with the models or the decoding.

    Args:
        task: document task.
        models: models of the ensemble.
        kind: value of ``--print-alignment``, ``hard`` or ``soft``.
        alone: whether both the source and the output are a single sentence.
    """
    _refuse_without_weights(models)
    if kind == "soft" and _reads_lines(task):
        raise UserError(
            "--print-alignment soft fails in fairseq-interactive; use fairseq-generate, or "
            "--print-alignment hard"
        )
    if kind == "soft" and not alone:
        raise UserError(
            "--print-alignment soft gives weights over all context; use --print-alignment hard"
        )
    _refuse_whole_alignment(task, models, "--print-alignment")


def _refuse_whole_alignment(task, models, option: str) -> None:
    """Raise a UserError if an option needs alignments, but a model aligns only whole outputs.

    Such models cannot give alignments in sequential decoding, which writes an output sentence by
    sentence.  With other decoding methods, no error is raised.

    Args:
        task: document task.
        models: models of the ensemble.
        option: flag of the option, for the message.
    """
    if task.search.reads_prefix and any(aligns_whole_outputs(model) for model in models):
        raise UserError(
            f"{option} of a model trained with alignments needs the whole output at once; "
            "use --decoding segment or window"
        )


def _refuse_language_model(task, args) -> None:
    """Raise a UserError if ``--lm-path`` would have no effect or would make scores wrong.

    A negative ``--lm-weight`` is also an error.  If it is 0, only a warning is logged.
    """
    if not task.search.one_by_one:
        instead = "leave it out" if task.search.reads_memories else "use --decoding sequential"
        raise UserError(
            "--lm-path is for sentences translated one after the other, not for --decoding "
            f"{task.search.decoding}; {instead}"
        )
    for option in ("score_reference", "normalize_with_context"):
        if getattr(args, option, False) or getattr(task.cfg, option, False):
            raise UserError(
                f"{flag(option)} gives scores of the translation model alone; leave "
                "it out with --lm-path"
            )
    if args.lm_weight < 0:
        raise UserError(f"--lm-weight must not be negative, got {args.lm_weight}")
    if args.lm_weight == 0:
        logger.warning("--lm-path has no effect with --lm-weight 0, the default")


# ---- values at which fairseq's search fails, or which it ignores ---------------------------------


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


def _complete(args) -> Namespace:
    """Return all generation options, with fairseq's defaults for those that ``args`` lacks.

    This is needed because ``--eval-bleu-args``, for example, gives only some of the options.
    """
    return Namespace(**{name: getattr(args, name, value) for name, value in DEFAULTS.items()})


def _given(args: Namespace) -> list:
    """Return the names of the options that differ from their defaults."""
    return [name for name, value in DEFAULTS.items() if getattr(args, name) != value]


def _refuse_options_of_others(args: Namespace) -> None:
    """Refuse ``--sacrebleu`` and options for other kinds of models; warn about deprecated ones.

    Raises:
        UserError: ``--sacrebleu`` or an option for non-autoregressive or speech models is given;
            the message names it.
    """
    names = _given(args)
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


def _warn_in_scoring(args: Namespace) -> None:
    """Warn if search options are given, as they have no effect when references are scored."""
    lacking = [name for name, needed in NEEDED.items() if not getattr(args, needed)]
    names = [flag(name) for name in _given(args) if name not in IN_SCORING or name in lacking]
    if names:
        logger.warning("options without effect with --score-reference: %s", ", ".join(names))


#: bound of --lenpen: a power of the length that numbers can still express
MOST_PENALTY = 10


def _refuse_impossible(args: Namespace, vocabulary: int, alone: bool) -> None:
    """Refuse impossible values and combinations of search options.

    Args:
        args: all generation options.
        vocabulary: size of the target dictionary.
        alone: whether each output is a single sentence.

    Raises:
        UserError: a value or combination is impossible; the message names the options.
    """
    for name in _given(args):
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
    if abs(args.lenpen) > MOST_PENALTY:
        raise UserError(
            f"--lenpen must be from -{MOST_PENALTY} to {MOST_PENALTY}, got {args.lenpen}"
        )
    if args.temperature <= 0:
        raise UserError(f"--temperature must be positive, got {args.temperature}")
    if args.unnormalized and args.lenpen != 1:
        raise UserError("--lenpen has no effect with --unnormalized; leave one of them out")
    if args.match_source_len and args.prefix_size > 0:
        raise UserError(
            "--prefix-size can end a translation before --match-source-len lets it; leave one of "
            "them out"
        )
    _check_lengths(args, alone)
    _check_searches(args, vocabulary)


def _on(args: Namespace, name: str) -> bool:
    """Return whether an option is switched on; 0 and negative numbers count as off."""
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
    if args.max_len_b < 0:
        raise UserError(f"--max-len-b must not be negative, got {args.max_len_b}")
    if not alone and args.min_len > 1:
        logger.warning(
            "--min-len %d counts the words of all sentences of an output, which this --decoding "
            "translates together",
            args.min_len,
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
    draws_twice = groups > 0 or args.diversity_rate >= 0 or args.constraints is not None
    if draws_twice and 2 * args.beam // max(groups, 1) >= vocabulary:
        raise UserError(
            f"{chosen[0]} needs a --beam below half of the {vocabulary} words of the target "
            f"dictionary, got {args.beam}"
        )
