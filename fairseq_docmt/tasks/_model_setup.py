"""What the tasks do with a model that has just been built."""

import logging

from fairseq.data import Dictionary
from torch import nn

from fairseq_docmt.checkpoint_file import CheckpointFile
from fairseq_docmt.data.sequence_format import separator_index
from fairseq_docmt.errors import UserError
from fairseq_docmt.models.interface import (
    load_pretrained_parts,
    needed_task,
    needs_several_sentences,
    reads_documents,
)
from fairseq_docmt.modules.restarted_positions import restart_positions
from fairseq_docmt.tasks import _checkpoint_checks, _data_folder
from fairseq_docmt.tasks._extend_positions import extend_positions
from fairseq_docmt.tasks._grow_vocabulary import let_vocabulary_grow
from fairseq_docmt.tasks._new_separator import begin_as_end, joins_sentences
from fairseq_docmt.tasks._stored_options import KEY

logger = logging.getLogger(__name__)


def count_positions_by_sentence(model: nn.Module, task, arch: str) -> None:
    """Let a model count positions anew in each sentence (``--restart-positions``).

    Raises:
        UserError: it has no positional embeddings.
    """
    parts = (getattr(model, side, None) for side in ("encoder", "decoder"))
    if any(getattr(part, "embed_positions", None) is None for part in parts):
        raise UserError(
            f"--restart-positions: --arch {arch} has no positional embeddings; leave it out"
        )
    restart_positions(model, *map(separator_index, (task.src_dict, task.tgt_dict)))


def check_context(model: nn.Module, task, arch: str) -> None:
    """Check that the task of training gives a model the context that it reads.

    A warning names a model that is made for several sentences, but gets single ones.

    Raises:
        UserError: the model reads context that another task gives.
    """
    needed = needed_task(model)
    if needed not in (None, task.task_name):
        raise UserError(
            f"--arch {arch} gets no context from --task {task.task_name}; give --task {needed}"
        )
    if not task.reads_context and needs_several_sentences(model):
        logger.warning(
            "--window-size 1 trains --arch %s on single sentences, where its context options have "
            "no effect; give a larger --window-size for context",
            arch,
        )


def let_load(model: nn.Module, task) -> None:
    """Let a model load checkpoints whose dictionaries lack symbols that the task has added.

    Raises:
        UserError: the model cannot start from a multilingual model.
    """
    if task.tag_options is None:
        let_vocabulary_grow(model, task.src_dict, task.tgt_dict)
        return
    if reads_documents(model):
        raise UserError(
            f"{type(model).__name__} cannot start from a multilingual model with language "
            "tags; choose an architecture that reads windows, documents or streams"
        )
    new = task.tag_options.new
    let_vocabulary_grow(model, task.src_dict, task.tgt_dict, new=new, as_mean=True)


def start_training(model: nn.Module, task, arch: str) -> None:
    """Check a model against the checkpoint that training starts from; load pre-trained parts.

    Args:
        model: model to train.
        task: its task.
        arch: name of its architecture.

    Raises:
        UserError: the model does not fit the checkpoint, or cannot be averaged by ``--store-ema``.
    """
    if task.cfg.store_ema:
        _check_averages(model)
    if task.start is not None:
        if not task.start.resumes:
            extend_positions(model, task.cfg.extend_positions, task.start.file.path)
            _begin_separator(model, task)
        _checkpoint_checks.check_fit(model, task.start.file, arch, task.start.resumes)
    load_pretrained_parts(model, _data_folder.training_sources(task.cfg))


def _begin_separator(model: nn.Module, task) -> None:
    """Let ``<sep>`` begin as ``</s>`` if the model reads it and the checkpoint has not learned it.

    Symbols of a multilingual model begin as the mean of the others, see :func:`let_load`.
    """
    if task.tag_options or reads_documents(model) or not joins_sentences(task.options):
        return
    if not _knows_separator(task.start.file, task.src_dict):
        begin_as_end(model, task.src_dict, task.tgt_dict)


def _knows_separator(file: CheckpointFile, src_dict: Dictionary) -> bool:
    """Return whether a checkpoint was trained on sequences with ``<sep>``."""
    if KEY in file.task_state:
        return joins_sentences(file.task_state[KEY])
    # In a stock task, <sep> may have been a word of the user's.
    words = file.weights.get("encoder.embed_tokens.weight")
    return words is not None and len(words) == len(src_dict)


def _check_averages(model: nn.Module) -> None:
    """Refuse ``--store-ema`` for models with integer tensors, which cannot be averaged."""
    counts = (name for name, value in model.state_dict().items() if not value.is_floating_point())
    first = next(counts, None)
    if first is not None:
        raise UserError(
            f"--store-ema cannot average {first} of {type(model).__name__}, a whole number; leave "
            "it out"
        )
