"""Checks of checkpoints and their models before decoding, or before training from a checkpoint."""

import ast
import dataclasses
import logging
import os
import sys
from typing import Dict, List, NamedTuple, Optional

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_MODEL_NAME_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    FairseqDecoder,
    FairseqIncrementalDecoder,
)
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from fairseq.tasks.translation import TranslationConfig
from omegaconf import OmegaConf, ValidationError
from torch import nn

from fairseq_docmt.checkpoint_file import (
    EMPTY_PATH,
    CheckpointFile,
    misfit,
    read_checkpoint,
    read_language_model,
    read_words,
)
from fairseq_docmt.data.sequence_format import separator_index
from fairseq_docmt.errors import UserError, flag, refuse_unknown
from fairseq_docmt.models.interface import (
    load_pretrained_parts,
    needed_task,
    needs_several_sentences,
    reads_documents,
)
from fairseq_docmt.modules.restarted_positions import restart_positions
from fairseq_docmt.symbols import DOCUMENT_SYMBOLS
from fairseq_docmt.tasks import _text_folders, _training_text
from fairseq_docmt.tasks._stored_options import KEY as OPTIONS_KEY
from fairseq_docmt.tasks.starts import language_tags
from fairseq_docmt.tasks.starts.weights import (
    begin_as_end,
    extend_positions,
    joins_sentences,
    let_vocabulary_grow,
)

logger = logging.getLogger(__name__)


#: what fairseq-train resumes by default
LAST = "checkpoint_last.pt"


class Start(NamedTuple):
    """Checkpoint that training starts from.

    Attributes:
        file: content of the checkpoint.
        resumes: True if the training run of the checkpoint is resumed; False if a new run starts
            from its parameters.
    """

    file: CheckpointFile
    resumes: bool

    def limit_reached(self, cfg) -> Optional[str]:
        """Return the limit that the run to be resumed has reached, such as ``--max-update 1000``.

        If it has reached no limit, or if no run is resumed, None is returned.

        Args:
            cfg: options of the task.
        """
        if self.resumes and 0 < cfg.max_update <= self.file.updates:
            return f"--max-update {cfg.max_update}"
        if self.resumes and 0 < cfg.stop_time_hours < self.file.hours:
            return f"--stop-time-hours {cfg.stop_time_hours:g}"
        return None


def check_checkpoints_to_decode(task) -> None:
    """Check that the checkpoints of ``--path`` can be read and match the dictionaries.

    If they are not sharded, their language tags are adopted, and the maximum positions of the task
    are lowered to theirs.

    Raises:
        UserError: a checkpoint is missing or damaged, its training has diverged, or it does not
            match the dictionaries or ``--model-overrides``.
    """
    suffix, shards = task.cfg.checkpoint_suffix, task.cfg.checkpoint_shards
    if shards < 1:
        raise UserError(f"--checkpoint-shard-count must be at least 1, got {shards}")
    for path in utils.split_paths(task.cfg.checkpoint_to_decode):
        for shard in range(shards):
            part = checkpoint_utils.get_maybe_sharded_checkpoint_filename(
                path, suffix, shard, shards
            )
            if not os.path.exists(part):
                raise UserError(f"checkpoint {part} not found" if path else EMPTY_PATH)
        if shards == 1:
            file = read_checkpoint(part)
            file.refuse_diverged()
            task.use_tags(language_tags.chosen(task.cfg, file))
            _refuse_other_languages(file, task)
            _check_sizes(file, task)
            _warn_of_other_words(file, task)
            _check_overrides(file, task.cfg.model_overrides)
            file.limit_positions(task.cfg)


def _options_of_task(task: str) -> set:
    """Return the names of the options that a document task has and ``translation`` lacks."""
    config = TASK_DATACLASS_REGISTRY.get(task)
    if config is None or not issubclass(config, TranslationConfig):
        return set()
    own, stock = (
        {option.name for option in dataclasses.fields(c)} for c in (config, TranslationConfig)
    )
    return own - stock


def _check_overrides(file: CheckpointFile, overrides: str) -> None:
    """Refuse ``--model-overrides`` with options or values that do not fit a checkpoint.

    Raises:
        UserError: an option does not fit; the message names it.
    """
    stored = {name: value for group in file.settings.values() for name, value in group.items()}
    given = ast.literal_eval(overrides)
    refuse_unknown(given, stored, " in --model-overrides")
    for name in _options_of_task(file.task).intersection(given):
        raise UserError(
            f"--model-overrides: {name} is an option of the task; give {flag(name)} with "
            "--override-checkpoint-options"
        )
    for name, value in given.items():
        if isinstance(value, str) and isinstance(stored[name], (int, float)):
            kind = "True or False" if isinstance(stored[name], bool) else "a number"
            raise UserError(f"--model-overrides: {name} must be {kind}, got {value!r}")
    configs = TASK_DATACLASS_REGISTRY.get(file.task), MODEL_DATACLASS_REGISTRY.get(file.arch)
    for config in filter(None, configs):
        options = {field.name for field in dataclasses.fields(config)}
        for name in options.intersection(given):
            try:
                OmegaConf.merge(OmegaConf.structured(config), {name: given[name]})
            except ValidationError as error:
                reason = str(error).splitlines()[0]
                raise UserError(f"--model-overrides: {name}: {reason}") from None


def check_language_model(task) -> None:
    """Check that fairseq-generate can load the language model of ``--lm-path``.

    Raises:
        UserError: the checkpoint is missing, damaged or not a language model, its training has
            diverged, or the data folder does not have its dictionary.
    """
    file = read_language_model(task.cfg.language_model)
    file.refuse_diverged()
    words = os.path.join(utils.split_paths(task.cfg.data)[0], "dict.txt")
    trained = file.settings["task"]["data"]
    copy = f"copy dict.txt of the language model's training there, from {trained}"
    if not os.path.isfile(words):
        raise UserError(f"{words} not found, which --lm-path needs; {copy}")
    read_words(words, file, copy)


def start_of_training(task) -> Optional[Start]:
    """Find the checkpoint that fairseq-train will load, by the same rules as fairseq.

    Returns:
        The checkpoint; None if a new model is trained.

    Raises:
        UserError: the checkpoint is missing or damaged, its training has diverged, or it does not
            fit the task or the text; or the options name several checkpoints.
    """
    cfg = task.cfg
    if cfg.finetune_from_model:
        _refuse_other_starts(cfg)
    path, resumes = cfg.restore_file, not cfg.reset_optimizer
    if path == LAST:
        path = os.path.join(cfg.save_dir or "", LAST)
        if not os.path.exists(path) and cfg.continue_once:
            path = cfg.continue_once
        elif not os.path.exists(path):
            path, resumes = cfg.finetune_from_model, False
        if not path:
            task.use_tags(language_tags.chosen(cfg, None))
            return None
    elif not os.path.exists(path):
        raise UserError(f"--restore-file {path} not found; leave it out to train a new model")
    start = Start(read_checkpoint(path), resumes)
    if resumes and OPTIONS_KEY not in start.file.task_state:
        raise UserError(
            f"{path} was trained with --task {start.file.task}, not {task.task_name}; start from "
            "it with --finetune-from-model and another --save-dir"
        )
    start.file.refuse_diverged()
    task.use_tags(language_tags.chosen(cfg, start.file))
    if resumes and not start.file.updates:
        logger.warning(
            "%s has no state of the optimizer (--no-save-optimizer-state): training goes on from "
            "its parameters, but the optimizer, the schedule and the number of updates begin anew",
            path,
        )
    if resumes:
        _refuse_other_languages(start.file, task)
    else:
        _warn_of_other_direction(start.file, task)
    _check_sizes(start.file, task)
    stored = start.file.task_state.get(_training_text.KEY)
    if not cfg.override_checkpoint_options:
        _training_text.refuse_other_text(stored, task.training_text)
        _warn_of_other_words(start.file, task)
    return start


def _refuse_other_starts(cfg) -> None:
    """Refuse options that contradict or repeat ``--finetune-from-model``."""
    others = {"--restore-file": cfg.restore_file != LAST, "--continue-once": cfg.continue_once}
    for name, given in others.items():
        if given:
            raise UserError(
                f"{name} and --finetune-from-model name two models to start from; give one of them"
            )
    for name in ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader"):
        if getattr(cfg, name):
            raise UserError(
                f"--finetune-from-model begins a new training, without the need of {flag(name)}; "
                "leave it out"
            )


def forget_earlier_training() -> None:
    """Delete the best score that an earlier training run left in this process (``--multirun``).

    fairseq keeps the score in attributes of functions.  A later run that does not reach this
    score would otherwise save no best checkpoint.
    """
    train = sys.modules.get("fairseq_cli.train")
    for function in (checkpoint_utils.save_checkpoint, getattr(train, "should_stop_early", None)):
        for name in ("best", "num_runs"):
            if hasattr(function, name):
                delattr(function, name)


def _refuse_other_languages(file: CheckpointFile, task) -> None:
    if not task.cfg.override_checkpoint_options:
        stored = file.task_state.get(_training_text.KEY)
        _training_text.refuse_other_languages(stored, task.training_text)


def _warn_of_other_direction(file: CheckpointFile, task) -> None:
    stored, trained = file.task_state.get(_training_text.KEY), file.settings.get("task", {})
    languages = (trained.get("source_lang"), trained.get("target_lang"))  # None if inferred
    if stored is not None:
        languages = stored["languages"]
    source, target = task.cfg.source_lang, task.cfg.target_lang
    if tuple(languages) == (target, source):
        logger.warning(
            "%s was trained to translate %s to %s, not %s to %s",
            file.path,
            target,
            source,
            source,
            target,
        )


def _check_sizes(file: CheckpointFile, task) -> None:
    languages = (task.cfg.source_lang, task.cfg.target_lang)
    dictionaries = (task.source_dictionary, task.target_dictionary)
    tags = task.tag_options
    new = len(DOCUMENT_SYMBOLS if tags is None else tags.new)
    lacking = {0, new}
    if tags is not None:
        lacking = {0 if language_tags.KEY in file.task_state else new}
    for side, language, dictionary in zip(("encoder", "decoder"), languages, dictionaries):
        weight = file.weights.get(f"{side}.embed_tokens.weight")
        if weight is None or len(dictionary) - len(weight) in lacking:
            continue
        if tags is not None:
            known = len(dictionary) - max(lacking)
            raise UserError(
                f"dict.{language}.txt and the {len(tags.symbols) - len(tags.unknown)} symbols of "
                f"--language-tags {tags.kind} make {known} symbols, but checkpoint {file.path} has "
                f"{len(weight)}; binarise the text with the dictionary of the pre-trained model "
                "(--srcdict, --tgtdict of fairseq-preprocess), and if languages are missing, give "
                "all of them in their order with --tag-languages"
            )
        words = len(dictionary) - dictionary.nspecial - len(DOCUMENT_SYMBOLS)
        trained = len(weight) - dictionary.nspecial - len(DOCUMENT_SYMBOLS)
        raise UserError(
            f"dict.{language}.txt has {words} words, but checkpoint {file.path} was trained with "
            f"{trained}; give the data folder of training, or binarise the text with its "
            "dictionaries (--srcdict, --tgtdict of fairseq-preprocess)"
        )


def _warn_of_other_words(file: CheckpointFile, task) -> None:
    """Warn if a checkpoint of a stock task was trained with dictionaries other than the task's.

    Such a checkpoint does not store its dictionaries.  They are read from the data folder of its
    training, if that still exists.
    """
    trained = file.settings.get("task", {})
    if _training_text.KEY in file.task_state or not trained.get("data"):
        return
    folder = utils.split_paths(trained["data"])[0]
    for option, own in (
        ("source_lang", task.source_dictionary),
        ("target_lang", task.target_dictionary),
    ):
        language = trained.get(option) or getattr(task.cfg, option)  # inferred if not stored
        path = os.path.join(folder, f"dict.{language}.txt")
        if not os.path.isfile(path):
            continue
        stored = Dictionary.load(path)
        if task.tag_options is not None:  # added by the pre-trained model's task, too
            task.tag_options.extend(stored)
        wanted, found = map(_training_text.checksum_of_words, (stored, own))
        if wanted != found:
            logger.warning(
                "%s was trained with %s, whose words differ from the %s dictionary in %s; "
                "binarise the text with it (--srcdict, --tgtdict of fairseq-preprocess)",
                file.path,
                path,
                option.partition("_")[0],
                task.cfg.data,
            )


def check_fit(model, file: CheckpointFile, arch: str, resumes: bool) -> None:
    """Check that a model can load the parameters of a checkpoint.

    Args:
        model: newly built model; its parameters are overwritten.
        file: checkpoint.
        arch: architecture of the model.
        resumes: whether the training run of the checkpoint is resumed.

    Raises:
        UserError: the parameters do not fit, or the run to be resumed trained another model or
            used an option that no longer exists.
    """
    if resumes:
        _refuse_other_model(file, arch)
    if resumes and file.settings.get("model", {}).get("exact_memory_gradient"):
        raise UserError(
            f"{file.path} was trained with --exact-memory-gradient, which is not there any more; "
            "translate with it, or start a new training from it with --finetune-from-model"
        )
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # fairseq loads the same parameters once more
    try:
        absent = [name for name, _ in model.named_parameters() if name not in file.weights]
        if resumes and absent:
            raise RuntimeError(f"Missing key(s): {' '.join(map(repr, absent))}")
        with torch.random.fork_rng(devices=[]):
            model.load_state_dict(dict(file.weights), strict=True)
    except RuntimeError as error:
        fix = "give the options of that training"
        raise UserError(
            f"checkpoint {file.path} (--arch {file.arch}) does not fit the model (--arch {arch}): "
            f"{misfit(str(error))}; {fix}{', or another --save-dir' if resumes else ''}"
        ) from None
    finally:
        logging.disable(before)
    _warn_of_tied_weights(model, file)


def _refuse_other_model(file: CheckpointFile, arch: str) -> None:
    """Refuse to resume the training of another model, even if its parameters have the same names.

    They may have another order, by which the optimizer would mix up its state.
    """
    trained, given = (ARCH_MODEL_NAME_REGISTRY.get(name, name) for name in (file.arch, arch))
    if trained != given:
        raise UserError(
            f"training would resume from {file.path}, which was trained with --arch {file.arch}, "
            f"not {arch}; start from it with --finetune-from-model and another --save-dir"
        )


def _warn_of_tied_weights(model: nn.Module, file: CheckpointFile) -> None:
    """Warn about parameters that the model shares, but that differ in the checkpoint.

    Only the last of them is kept, for example the output projection instead of the embeddings with
    ``--share-decoder-input-output-embed``.
    """
    names: Dict[int, List[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if name in file.weights:
            names.setdefault(id(parameter), []).append(name)
    for *others, last in names.values():
        lost = [name for name in others if not torch.equal(file.weights[name], file.weights[last])]
        if lost:
            logger.warning(
                "%s of %s %s lost: the model shares its values with %s",
                " and ".join(lost),
                file.path,
                "is" if len(lost) == 1 else "are",
                last,
            )


def count_positions_by_sentence(model: nn.Module, task, arch: str) -> None:
    """Make a model restart its token positions in each sentence (``--restart-positions``).

    Raises:
        UserError: the model has no positional embeddings.
    """
    parts = (getattr(model, side, None) for side in ("encoder", "decoder"))
    if any(getattr(part, "embed_positions", None) is None for part in parts):
        raise UserError(
            f"--restart-positions: --arch {arch} has no positional embeddings; leave it out"
        )
    restart_positions(model, *map(separator_index, (task.src_dict, task.tgt_dict)))


def check_context(model: nn.Module, task, arch: str) -> None:
    """Check that the training task gives a model the context that it reads.

    If a model that is meant for several sentences is trained on single sentences, a warning is
    given.

    Raises:
        UserError: the model reads context that only another task provides.
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


def check_decoder(model, arch: str) -> None:
    """Refuse an architecture with a decoder that the decodings of documents cannot read.

    Raises:
        UserError: the decoder has no method ``extract_features``, as in ``fconv``.
    """
    of_decoder = type(model.decoder).extract_features
    if of_decoder in (FairseqDecoder.extract_features, FairseqIncrementalDecoder.extract_features):
        raise UserError(
            f"--arch {arch} cannot be used: its decoder lacks extract_features, which the decoding "
            "of documents needs; choose another, such as transformer or lstm"
        )


def check_rows(model: nn.Module, task, arch: str) -> None:
    """Check that task and model agree on whether each batch row is a sentence of a document.

    Raises:
        UserError: they disagree; the message names a task that fits the model.
    """
    if reads_documents(model) and not task.rows_are_sentences:
        raise UserError(
            f"--arch {arch} reads a row for each sentence; give --task {needed_task(model)}"
        )
    if task.rows_are_sentences and not reads_documents(model):
        raise UserError(
            f"--arch {arch} does not read a row for each sentence; give --task "
            "full_document_translation, or another"
        )


def let_load(model: nn.Module, task) -> None:
    """Let a model load checkpoints whose vocabularies lack symbols that the task has added.

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
    """Prepare a model for training, from a checkpoint if there is one.

    The function checks that the model fits the checkpoint, and loads parts of the model that were
    trained separately.  The checkpoint itself is loaded by fairseq later.

    Args:
        model: model to train.
        task: document task.
        arch: name of the architecture of the model.

    Raises:
        UserError: the model does not fit the checkpoint, or cannot be averaged by ``--store-ema``.
    """
    if task.cfg.store_ema:
        _check_averages(model)
    if task.start is not None:
        if not task.start.resumes:
            extend_positions(model, task.cfg.extend_positions, task.start.file.path)
            _begin_separator(model, task)
        check_fit(model, task.start.file, arch, task.start.resumes)
    load_pretrained_parts(model, _text_folders.training_sources(task.cfg))


def _begin_separator(model: nn.Module, task) -> None:
    """Initialise ``<sep>`` like ``</s>`` if the model uses it but was pre-trained without it.

    Multilingual models are left unchanged: :func:`let_load` initialises their ``<sep>`` with the
    mean of the loaded embeddings.
    """
    if task.tag_options or not joins_sentences(task.options):
        return
    if not _knows_separator(task.start.file, task.src_dict):
        begin_as_end(model, task.src_dict, task.tgt_dict)


def _knows_separator(file: CheckpointFile, src_dict: Dictionary) -> bool:
    """Return whether a checkpoint was trained on sequences with ``<sep>``."""
    if OPTIONS_KEY in file.task_state:
        return joins_sentences(file.task_state[OPTIONS_KEY])
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
