"""Checks for options that are out of range, make fairseq fail, or have no effect."""

import ast
import logging
import math
from argparse import Namespace
from importlib.util import find_spec
from typing import Iterable, List, Optional

import torch
from fairseq.data.data_utils import post_process
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from fairseq_docmt.checkpoint_file import DROPOUTS
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.tasks._stored_options import plain
from fairseq_docmt.tasks.starts import embeddings

logger = logging.getLogger(__name__)


def check_precision(cfg) -> None:
    """Refuse half precision where training would fail.

    This is ``--fp16`` on a CPU without ``--fp16-no-flatten-grads``, and ``--bf16``, with which
    fairseq-train looks for a TPU.

    Raises:
        UserError: the option cannot be used.
    """
    if cfg.tpu and not find_spec("torch_xla"):
        raise UserError(
            "--bf16 of fairseq-train is for TPUs, with torch_xla; give --amp, or leave it out"
        )
    if cfg.fp16 and not cfg.fp16_no_flatten_grads and not torch.cuda.is_available():
        raise UserError(
            "--fp16 needs a GPU, or --fp16-no-flatten-grads; give that, train with --amp, or leave "
            "it out"
        )


def check_numbers(cfg) -> None:
    """Refuse numbers that are not finite, probabilities outside of [0, 1], and sizes below 1.

    Args:
        cfg: options of the model or criterion.

    Raises:
        UserError: a value is not finite or out of range; the message names the option.
    """
    options = vars(cfg) if isinstance(cfg, Namespace) else OmegaConf.to_container(cfg)
    for name, value in options.items():
        if type(value) is int and name.endswith(("_dim", "_positions")) and value < 1:
            raise UserError(f"{flag(name)} must be at least 1, got {value}")
        if not isinstance(value, float):
            continue
        if name.endswith(("dropout", "label_smoothing")) and not 0 <= value <= 1:
            raise UserError(f"{flag(name)} must be between 0 and 1, got {value}")
        if not math.isfinite(value):
            raise UserError(f"{flag(name)} must be a finite number, got {value}")


def check_options(cfg) -> None:
    """Refuse decoding options with which fairseq would fail later; warn about those without effect.

    Args:
        cfg: options of the task in ``fairseq-generate`` or ``fairseq-interactive``.

    Raises:
        UserError: an option is invalid; the message names it.
    """
    _check_overrides(cfg.model_overrides)
    check_subwords("post_process", cfg.post_process)
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


def check_subwords(option: str, subwords: Optional[str]) -> None:
    """Refuse a kind of subwords that fairseq cannot join.

    Args:
        option: name of the option.
        subwords: its value.

    Raises:
        UserError: fairseq does not know the value.
    """
    try:
        post_process("", subwords)
    except NotImplementedError:
        raise UserError(
            f"{flag(option)} {subwords} is unknown to fairseq; give subword_nmt, sentencepiece or "
            "wordpiece, or leave it out"
        ) from None


#: options of ``--eval-bleu``
OF_BLEU = ("eval_bleu_args", "eval_bleu_detok", "eval_bleu_detok_args", "eval_bleu_remove_bpe")
OF_BLEU += ("eval_tokenized_bleu", "eval_bleu_print_samples")
#: options of translation, which training does only for ``--eval-bleu``
OF_DECODING = ("decoding", "force_sentence_count", "wrong_sentence_count", "gold_context")
OF_DECODING += ("normalize_with_context", "decode_passes", "decode_order")
#: options of training that need a model to start from
OF_START = ("freeze_pretrained", "extend_positions")
#: options that determine the training examples
OF_EXAMPLES = ("sentence_ratio", "word_dropout", "word_dropout_epochs", "coword_dropout")
OF_EXAMPLES += ("window_stride", "sample_window_size", "document_parts", "sample_document_parts")
OF_EXAMPLES += ("gold_drafts", "chunk_sentences", "sample_chunk_sentences", "max_target_positions")
#: options of training that decoding does not take from checkpoints
OF_TRAINING = ("eval_bleu", *OF_BLEU, *OF_START, "sentence_data", *OF_EXAMPLES)


def check_in_training(task) -> None:
    """Refuse training options that have no effect because the option they depend on is missing.

    Some options need a model to start from.  Options of validation BLEU need ``--eval-bleu``, which
    in turn needs validation.  Decoding options without ``--eval-bleu`` only cause a warning.

    Args:
        task: document task whose ``start`` is set: the checkpoint to start from, or None.

    Raises:
        UserError: an option would have no effect; the message names it.
    """
    if task.start is None:
        for option in _given(task, OF_START):
            raise UserError(
                f"{option} needs a model to start from; give --finetune-from-model, or leave it out"
            )
    if not task.cfg.eval_bleu:
        for option in _given(task, OF_BLEU):
            raise UserError(f"{option} is for --eval-bleu; give both or neither")
        _report(task, OF_DECODING, "no effect in training without --eval-bleu: %s")
    elif task.cfg.disable_validation:
        raise UserError(
            "--eval-bleu has no effect with --disable-validation; leave one of them out"
        )


def check_in_decoding(task) -> None:
    """Refuse ``--num-shards`` and ``--shard-id`` in decoding, and report and undo training options.

    fairseq ignores the two options in decoding, so each process would translate everything.

    Raises:
        UserError: one of the two options is given.
    """
    if task.cfg.num_shards > 1 or task.cfg.shard_id > 0:
        raise UserError(
            f"--num-shards {task.cfg.num_shards} is ignored by fairseq, so that each process would "
            "translate everything; give --distributed-world-size and --distributed-rank instead"
        )
    _report(task, OF_TRAINING, "no effect in decoding, as options of training: %s")
    task.cfg.eval_bleu = task.cfg.freeze_pretrained = False  # read when the model is built


def report_of_optimizer(optimizer, start) -> None:
    """Warn about optimizer options that need a start, or differ from the resumed checkpoint's.

    fairseq keeps the values of the checkpoint, except for the learning rate.

    Args:
        optimizer: fairseq optimizer, which has loaded the state of a checkpoint to be resumed.
        start: the checkpoint that training starts from; None if there is none.
    """
    if start is None and any(group.get("lr_scale", 1) != 1 for group in optimizer.param_groups):
        logger.warning(
            "training starts from no model: --pretrained-lr-scale changes the learning rate of new "
            "parameters, those that a pre-trained model would have"
        )
    if start is None or not start.resumes:
        return
    used = optimizer.param_groups[0]
    for name, value in optimizer.optimizer_config.items():
        value = tuple(value) if isinstance(value, list) else value
        stored = tuple(used[name]) if isinstance(used.get(name), list) else used.get(name, value)
        if name != "lr" and stored != value:
            logger.warning(
                "training goes on with %s %s, from the checkpoint or --optimizer-overrides, not "
                "with %s; to change it, give --optimizer-overrides \"{'%s': ...}\"",
                *(name, stored, value, name),
            )


def report_of_start(task, cfg) -> None:
    """Warn about options that differ from the checkpoint that training starts from.

    These are options of the model and, if training is resumed, of the training examples.  A
    different dropout causes a warning only if a training run is resumed, not if a new run starts
    from the checkpoint.

    Args:
        task: document task.
        cfg: options of the model, with all defaults.
    """
    if task.start is None:
        return
    resumes, file = task.start.resumes, task.start.file
    of_model = {
        name: before
        for name, before in file.model_options.items()
        if (resumes or not name.endswith(DROPOUTS)) and name not in embeddings.OPTIONS
    }
    if getattr(cfg, "share_all_embeddings", False):  # fairseq sets the other one later
        of_model.pop("share_decoder_input_output_embed", None)
    trained = file.settings.get("task", {}) if resumes else {}
    names = (*OF_EXAMPLES, "sentence_data", "drafts")
    of_task = {name: trained[name] for name in names if name in trained}
    how = "goes on" if resumes else "starts from a checkpoint"
    for what, options, known in (("model", cfg, of_model), ("examples", task.cfg, of_task)):
        changed = [
            f"{flag(name)} {plain(getattr(options, name))} (before: {before})"
            for name, before in known.items()
            if hasattr(options, name) and plain(getattr(options, name)) != before
        ]
        if changed:
            logger.warning(
                "training %s with other options of the %s: %s", how, what, ", ".join(changed)
            )


def report_in_streams(task) -> None:
    """Warn about batch-order options that have no effect on streams, such as ``--curriculum``."""
    given = {"--curriculum": task.cfg.curriculum, "--grouped-shuffling": task.cfg.grouped_shuffling}
    names = [name for name, value in given.items() if value]
    if names:
        logger.warning("no effect on streams, which shuffle documents: %s", ", ".join(names))


def _report(task, names: Iterable[str], warning: str) -> None:
    given = _given(task, names)
    if given:
        logger.warning(warning, ", ".join(given))


def _given(task, names: Iterable[str]) -> List[str]:
    """Return the flags of the named options whose value is not the default."""
    defaults = TASK_DATACLASS_REGISTRY[task.task_name]
    return [
        flag(name)
        for name in names
        if hasattr(defaults, name) and plain(getattr(task.cfg, name)) != getattr(defaults, name)
    ]
