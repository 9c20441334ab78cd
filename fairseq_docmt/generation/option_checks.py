"""Checks of stock generation options against ``--decoding``."""

from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.models.interface import (
    aligns_whole_outputs,
    has_attention_weights,
    reads_documents,
)

#: options that choose another search than beam search; fairseq has one at a time
SEARCHES = ("sampling", "diverse_beam_groups", "diversity_rate", "match_source_len", "constraints")


def check_decoding(task) -> None:
    """Refuse a ``--decoding`` that the task does not have, and options that it does not read.

    Raises:
        UserError: naming the option.
    """
    if task.decoding not in task.decodings:
        raise UserError(
            f"--decoding {task.decoding} is not for --task {task.task_name}; "
            f"choose from {', '.join(task.decodings)}"
        )
    if task.cfg.gold_context and not (task.sequential or task.decoding == "stream"):
        raise UserError(
            f"--gold-context has no meaning with --decoding {task.decoding}, which does not "
            "translate sentences one after the other; leave it out"
        )
    if task.cfg.force_sentence_count and task.decoding not in ("window", "segment"):
        raise UserError(
            f"--force-sentence-count has no meaning with --decoding {task.decoding}, which "
            "translates one sentence at a time; leave it out"
        )
    if task.cfg.normalize_with_context and not task.sequential:
        raise UserError(
            f"--normalize-with-context has no meaning with --decoding {task.decoding}, which "
            "does not read target context before the search; leave it out"
        )


def refuse_unsupported(task, models, args) -> None:
    """Refuse generation options that do not work with the decoding of a task.

    Args:
        task: document task.
        models: models of the ensemble.
        args: generation options.

    Raises:
        UserError: a parameter is no number, or an option is not supported; the message gives an
            alternative.
    """
    _refuse_diverged(models)
    _refuse_mixture(models)
    for option in ("beam", "nbest"):
        if getattr(args, option, 1) < 1:
            raise UserError(f"{flag(option)} must be at least 1, got {getattr(args, option)}")
    if getattr(args, "replace_unk", None) is not None:
        _refuse_replacement(task, models, args)
    if getattr(args, "lm_path", None):
        _refuse_language_model(task, args)
    elif getattr(args, "lm_weight", 0):
        raise UserError("--lm-weight is for --lm-path; give both or neither")
    if getattr(args, "score_reference", False):
        _refuse_in_scoring(task, models, args)
        return
    _refuse_searches(args)
    # Whether the output is a single sentence, and whether the source is one too.
    writes_one = task.decoding == "iterative" or (
        task.decoding != "segment" and task.window_to_decode() == 1
    )
    alone = writes_one and not task.options.get("next_sentences")
    if getattr(args, "print_alignment", None):
        _refuse_alignment(task, models, args.print_alignment, alone)
    if not task.sequential and not writes_one:
        for option in ("prefix_size", "constraints"):
            if getattr(args, option, None):
                raise UserError(
                    f"{flag(option)} applies to one sentence, but --decoding "
                    f"{task.decoding} translates several in one output; use --decoding sequential"
                )
    if getattr(args, "match_source_len", False) and not alone:
        raise UserError(
            "--match-source-len compares with the source of the whole window; leave it out"
        )
    for option in ("retain_iter_history", "print_step"):
        if getattr(args, option, False):
            raise UserError(f"{flag(option)} is for non-autoregressive models; leave it out")
    _refuse_without_input(task, args)


def _refuse_replacement(task, models, args) -> None:
    """Refuse ``--replace-unk`` where there is no ``<unk>`` or no attention of its own."""
    if getattr(args, "score_reference", False):
        raise UserError("--replace-unk changes translations; leave it out with --score-reference")
    if getattr(args, "print_alignment", None):
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


def _refuse_searches(args) -> None:
    """Refuse options of a search that fairseq would fail at, or ignore, without naming them."""

    def given(option: str) -> bool:
        value = getattr(args, option, None)
        return value > 0 if isinstance(value, (int, float)) else bool(value)

    chosen = [flag(option) for option in SEARCHES if given(option)]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} are different searches; give one of them")
    for option in ("sampling_topk", "sampling_topp"):
        if getattr(args, option, -1) >= 0 and not given("sampling"):
            raise UserError(f"{flag(option)} needs --sampling")
    # --eval-bleu-args may lack the beam, which then is fairseq's default.
    groups, beam = getattr(args, "diverse_beam_groups", -1), getattr(args, "beam", 5)
    if groups > 0 and beam % groups != 0:
        raise UserError(
            f"--beam {beam} must be divisible by --diverse-beam-groups {groups}; change one of them"
        )
    if getattr(args, "temperature", 1.0) <= 0:
        raise UserError(f"--temperature must be positive, got {args.temperature}")


def _reads_lines(task) -> bool:
    """Return whether the task is that of fairseq-interactive, which loads no dataset."""
    return bool(task.cfg.checkpoint_to_decode) and not task.datasets


def _refuse_without_input(task, args) -> None:
    """Refuse options that name words or translations which the input does not have."""
    with_references = (getattr(data, "tgt", None) is not None for data in task.datasets.values())
    if getattr(args, "prefix_size", 0) > 0 and not any(with_references):
        raise UserError(
            "--prefix-size is for fairseq-generate with references, whose first words it takes; "
            "leave it out"
        )
    if getattr(task.cfg, "drafts", None) and _reads_lines(task):
        raise UserError(
            "--drafts are translations of a corpus; use fairseq-generate, or leave it out"
        )
    if getattr(args, "constraints", None) and not _reads_lines(task):
        raise UserError(
            "--constraints is for fairseq-interactive, which reads them after the source sentence "
            "of a line; use that, or leave it out"
        )


def _refuse_diverged(models) -> None:
    """Refuse models with NaN or infinite parameters."""
    for model in models:
        if any(not parameter.isfinite().all() for parameter in model.parameters()):
            raise UserError(
                "the checkpoint has parameters that are NaN or infinite, so its "
                "training has diverged; use an earlier checkpoint"
            )


def _refuse_mixture(models) -> None:
    """Refuse an ensemble of models with document memories and others."""
    names = {reads_documents(model): type(model).__name__ for model in models}
    if len(names) > 1:
        raise UserError(
            f"--path has a {names[True]}, which is decoded with memories of whole documents, and a "
            f"{names[False]}, which has none; give models of one kind"
        )


def _refuse_in_scoring(task, models, args) -> None:
    """Refuse options that do not go with ``--score-reference``."""
    if task.cfg.normalize_with_context:
        raise UserError(
            "--normalize-with-context changes the search; leave it out with --score-reference, "
            "which scores each sentence by its own tokens"
        )
    if getattr(args, "print_alignment", None):
        _refuse_without_weights(models)
        if args.print_alignment == "soft":
            raise UserError(
                "--print-alignment soft gives the weights of a search; use --print-alignment hard "
                "with --score-reference"
            )


def _refuse_without_weights(models, option: str = "--print-alignment") -> None:
    """Refuse an option of alignments for models without attention weights."""
    for model in models:
        if not has_attention_weights(model):
            raise UserError(
                f"{option} needs attention weights, which a {type(model).__name__} does "
                "not give while decoding; leave it out"
            )


def _refuse_alignment(task, models, kind: str, alone: bool) -> None:
    """Refuse ``--print-alignment`` where models or decoding do not give the weights it needs."""
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
    """Refuse an option of alignments if they need whole outputs, which are decoded in parts."""
    if task.sequential and any(aligns_whole_outputs(model) for model in models):
        raise UserError(
            f"{option} of a model trained with alignments needs the whole output at once; "
            "use --decoding segment or window"
        )


def _refuse_language_model(task, args) -> None:
    """Refuse a language model where it would not be used, or not correctly."""
    if not (task.sequential or task.decoding == "stream"):
        raise UserError(
            "--lm-path is for sentences translated one after the other, not for --decoding "
            f"{task.decoding}; use --decoding sequential"
        )
    for option in ("score_reference", "normalize_with_context"):
        if getattr(args, option, False) or getattr(task.cfg, option, False):
            raise UserError(
                f"{flag(option)} gives scores of the translation model alone; leave "
                "it out with --lm-path"
            )
    if args.lm_weight < 0:
        raise UserError(f"--lm-weight must not be negative, got {args.lm_weight}")
