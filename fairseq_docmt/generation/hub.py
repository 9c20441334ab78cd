"""Loading of checkpoints of document tasks into fairseq's hub interface."""

import dataclasses
import os
import re
from enum import Enum
from typing import Callable, List, NamedTuple, Optional, Union, get_args

import torch
from fairseq import checkpoint_utils, hub_utils, registry, tasks, utils
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceConfig
from fairseq.dataclass.configs import (
    CheckpointConfig,
    CommonConfig,
    CommonEvalConfig,
    DatasetConfig,
    DistributedTrainingConfig,
    EMAConfig,
    FairseqBMUFConfig,
    FairseqConfig,
    GenerationConfig,
    InteractiveConfig,
    OptimizationConfig,
)
from omegaconf import MissingMandatoryValue, OmegaConf, ValidationError

from fairseq_docmt.checkpoint_file import CheckpointFile, read_translation_model
from fairseq_docmt.data.sequence_format import MBART25_TASKS, MULTILINGUAL_TASK
from fairseq_docmt.data.tokenizers import SentencePieces
from fairseq_docmt.error_sentences import reason_of
from fairseq_docmt.errors import UserError, refuse_unknown
from fairseq_docmt.text_form import TextForm, read_text_forms

#: type of an option -> what a message calls it
_WANTED = {
    int: "a whole number",
    Optional[int]: "a whole number",
    float: "a number",
    Optional[float]: "a number",
    bool: "True or False",
}
#: name of a precision -> numbers
_PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
#: option of a BPE -> what a message calls it
_FILES_OF_BPE = {
    "bpe_codes": "the file of its merges",
    "sentencepiece_model": "the file of its model",
}
#: options of commands and of training, which have no effect here apart from ``_WITH_EFFECT``
_ELSEWHERE = (
    *(CheckpointConfig, CommonConfig, CommonEvalConfig, DatasetConfig, DistributedTrainingConfig),
    *(EMAConfig, FairseqBMUFConfig, InteractiveConfig, OptimizationConfig),
)
_WITH_EFFECT = ("max_tokens", "batch_size", "required_batch_size_multiple", "user_dir")
_WITH_EFFECT += ("tokenizer", "bpe")
#: option without effect -> what to give in its place
IN_PLACE = {
    "nbest": "give it to translate_nbest",
    "skip_invalid_size_inputs_valid_test": "give skip_invalid_size_inputs=True to translate",
    "model_overrides": 'give options of the model themselves, such as alignment="linear"',
    "cpu": "give the device cpu",
    "fp16": "give the precision fp16",
    "bf16": "give the precision bf16",
    "seed": "in Python, call torch.manual_seed",
    "drafts": "they are translations of a binarised corpus; use fairseq-generate",
    "gold_drafts": "they are references of training; leave it out",
    "task": "it is the task of training; leave it out",
    "truncate_source": "cut the text before",
    "upsample_primary": "leave it out",
}


class _Conversion(NamedTuple):
    """Tokenizer or BPE made of two functions, for fairseq's hub interface, which calls them."""

    encode: Callable[[str], str]
    decode: Callable[[str], str]


def load_hub(
    checkpoint: Union[str, os.PathLike],
    data: Union[str, os.PathLike],
    device: str,
    precision: str,
    options: dict,
) -> hub_utils.GeneratorHubInterface:
    """Load a checkpoint, or several joined by ``:`` as an ensemble.

    The interface takes and returns raw text if the data was made by data_prep/prepare.py and the
    options give no tokenizer or BPE.

    Args:
        checkpoint, data, device, precision, options: see
            :meth:`fairseq_docmt.generation.DocumentTranslator.from_pretrained`.

    Raises:
        UserError: a file is missing or its training has diverged, or an option is unknown, has no
            effect or contradicts the checkpoint.
    """
    for what, path in (("a checkpoint", checkpoint), ("the folder of dictionaries", data)):
        if not isinstance(path, (str, os.PathLike)):
            raise UserError(f"give the path of {what}, not {path!r:.40}")
    paths = os.fspath(checkpoint).split(os.pathsep)
    files = [read_translation_model(path) for path in paths]
    _refuse_multilingual(files)
    _refuse_sentence_task_first(files)
    for file in files:
        file.refuse_diverged()
    refuse_unknown(options, _options_of(files[0]))
    _refuse_without_effect(options)
    _refuse_of_training(options, tasks.TASK_REGISTRY.get(files[0].task))
    _refuse_tags(options, files[0])
    check_types(options)
    data = _checked_paths(os.fspath(data) or files[0].settings["task"]["data"], options)
    hub = _hub(files, data, options)
    _convert_text(hub, data, options)
    return _placed(hub, device, precision)


def check_types(options: dict, place: str = "") -> None:
    """Check that the value of each option has the right type or is one of the option's choices.

    Args:
        options: name -> value.
        place: where they are given, as a phrase for the message, such as " in --eval-bleu-args".

    Raises:
        UserError: a value is invalid; the message names its option.
    """
    configs = GenerationConfig, DatasetConfig, CommonConfig
    types = {field.name: field.type for one in configs for field in dataclasses.fields(one)}
    registered = {
        kind: sorted(registry.REGISTRIES[kind]["registry"]) for kind in ("tokenizer", "bpe")
    }
    for name, value in options.items():
        choices = registered.get(name) or _choices_of(types.get(name))
        if choices and value is not None and value not in choices:
            known = " or ".join(f'"{choice}"' for choice in choices)
            raise UserError(f"{name}{place} must be {known}, got {value!r}")
        wanted = _WANTED.get(types.get(name))
        if wanted and not is_of(value, types[name]):
            raise UserError(f"{name}{place} must be {wanted}, got {value!r}")


def _choices_of(kind) -> List[str]:
    """Return the choices of an option whose type is an ``Optional`` enumeration.

    For any other type, the list is empty.
    """
    types = (each for each in get_args(kind) if isinstance(each, type) and issubclass(each, Enum))
    return [choice.value for each in types for choice in each]


def is_of(value, kind) -> bool:
    """Return whether a value is of the type ``kind`` of an option; an int is also a float."""
    if kind is bool:
        return isinstance(value, bool)
    if value is None:
        return kind in (Optional[int], Optional[float])
    numbers = (int,) if kind in (int, Optional[int]) else (int, float)
    return isinstance(value, numbers) and not isinstance(value, bool)


def _checked_paths(data: str, options: dict) -> str:
    """Return the directory with the dictionaries, after checking that all files are there.

    Args:
        data: directory or, as training may have read several, their list; the first is returned.
        options: options of :meth:`DocumentTranslator.from_pretrained`.

    Raises:
        UserError: a file or directory is missing or damaged.
    """
    user_dir = options.get("user_dir")
    if user_dir is not None and not os.path.isdir(user_dir):
        raise UserError(f"user_dir {user_dir} not found; give the folder of the package")
    data = utils.split_paths(data)[0]
    if not os.path.isdir(data):
        raise UserError(f"data directory {data} not found; give the one with the dictionaries")
    TextForm(bpe_codes=options.get("bpe_codes")).check_files()
    pieces = options.get("sentencepiece_model")
    if pieces:
        SentencePieces(SentencepieceConfig(sentencepiece_model=pieces))  # raises if it is none
    return data


def _hub(files: List[CheckpointFile], data: str, options: dict):
    """Return fairseq's hub interface with the models of an ensemble.

    Args:
        files: checkpoints of the ensemble.
        data: directory with the dictionaries.
        options: options that replace the options of training.

    Raises:
        UserError: an option is invalid or contradicts the checkpoint, or a file cannot be read.
    """
    try:
        # fairseq resolves a relative path from the directory of the checkpoint.
        loaded = _loaded(files, os.path.abspath(data), options)
    except ValidationError as error:  # of omegaconf
        raise UserError(f"{error.key}: {str(error).splitlines()[0]}") from None
    except RuntimeError as error:
        reason = reason_of(error)
        if reason is None:
            raise
        raise UserError(reason) from None
    for file in files:  # fairseq takes the options of the first
        file.limit_positions(loaded["task"].cfg)
    try:
        hub = hub_utils.GeneratorHubInterface(loaded["args"], loaded["task"], loaded["models"])
        # These refuse what contradicts the checkpoint.
        hub.tokenizer = hub.task.build_tokenizer(hub.cfg.tokenizer)
        hub.bpe = hub.task.build_bpe(hub.cfg.bpe)
    except MissingMandatoryValue as error:  # of omegaconf
        what = _FILES_OF_BPE.get(error.key, "a file")
        raise UserError(
            f'bpe="{options.get("bpe")}" needs {error.key}, {what}; give both or neither'
        ) from None
    except SystemExit:  # of subword-nmt
        raise UserError(
            f"bpe_codes {options.get('bpe_codes')} are no merges of subword-nmt"
        ) from None
    except OSError as error:  # of --replace-unk, or of a BPE that fairseq downloads
        reason = str(error).splitlines()[0]
        raise UserError(f"a file cannot be read ({reason}); check replace_unk and bpe") from None
    return hub


def _convert_text(hub, data: str, options: dict) -> None:
    """Let a hub interface take and return raw text, if its data was made by prepare.py.

    A tokenizer or BPE in the options is kept.  If the form of the text is unknown, options that
    training had and this call lacks are reported.

    Args:
        hub: fairseq's hub interface; changed in place.
        data: directory with the dictionaries.
        options: options of :meth:`DocumentTranslator.from_pretrained`.
    """
    languages = (hub.task.cfg.source_lang, hub.task.cfg.target_lang)
    forms = read_text_forms(data)
    if all(language in forms for language in languages):
        source, target = (forms[language] for language in languages)
        if "tokenizer" not in options:
            hub.tokenizer = _Conversion(
                source.tokenize(languages[0]), target.detokenize(languages[1])
            )
        if "bpe" not in options:
            hub.bpe = _Conversion(source.segment(), target.join())
    elif not {"tokenizer", "bpe"} & set(options) and hasattr(hub.task, "training_text"):
        hub.task.report_missing_options(None, None)


def _loaded(files: List[CheckpointFile], data: str, options: dict) -> dict:
    """Load checkpoints as an ensemble, as fairseq does.

    Args:
        files: checkpoints of the ensemble.
        data: directory with the dictionaries.
        options: options that replace the options of training.

    Returns:
        A dict with ``args``, ``task`` and ``models``, as from fairseq's hub.
    """
    paths = [os.path.abspath(file.path) for file in files]
    options = {"no_progress_bar": True, "eval_bleu": False, **options}
    trained = files[0].settings["task"]
    if "drafts" in trained:  # of the training text
        options.update(drafts=None, gold_drafts=False)
    if files[0].task == trained["_name"]:
        return hub_utils.from_pretrained(
            os.path.dirname(paths[0]), os.pathsep.join(paths), data, **options
        )
    options["data"] = data
    known = {name: value for name, value in options.items() if name in trained}
    # With the other groups of options, because task options take values from them.
    whole = OmegaConf.structured(FairseqConfig)
    whole.task = {**trained, **known, "_name": files[0].task}
    task = tasks.setup_task(whole.task, from_checkpoint=True)
    models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(paths, options, task)
    return {"args": cfg, "task": task, "models": models}


def _placed(hub, device: str, precision: str):
    """Move a hub interface to a device and convert it to the given precision.

    Raises:
        UserError: there is no such device or precision.
    """
    if precision not in _PRECISIONS:
        raise UserError(f"precision must be {' or '.join(_PRECISIONS)}, got {precision!r}")
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("tensors have no values there")
        return hub.to(torch.device(device), _PRECISIONS[precision])
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(
            f"device {device} cannot be used ({str(error).splitlines()[0]}); give cpu, or cuda "
            "where torch has a GPU"
        ) from None


def _options_of(file: CheckpointFile) -> set:
    """Return the names of all options that :meth:`DocumentTranslator.from_pretrained` takes.

    They depend on the task of the checkpoint and on the options stored in it.
    """
    names = {*_WITH_EFFECT, "generation_args", *file.settings}
    names.update(*file.settings.values())
    classes = [tasks.TASK_DATACLASS_REGISTRY.get(file.task)]
    for kind in ("tokenizer", "bpe"):
        names.add(kind)
        classes += registry.REGISTRIES[kind]["dataclass_registry"].values()
    found = [field for one in filter(None, classes) for field in dataclasses.fields(one)]
    names.update(field.name for field in found)
    for field in found:
        # A copy of a command's option under another name is none, such as ${interactive.input}.
        copied = re.fullmatch(r"\$\{\w+\.(\w+)\}", str(field.default))
        if copied and copied[1] != field.name:
            names.discard(field.name)
    return names


def _refuse_without_effect(options: dict) -> None:
    """Refuse options of training and of fairseq's commands, which have no effect in Python.

    So has the beam size with sampling, where a call draws as many translations as it returns.

    Raises:
        UserError: an option has no effect; the message says what to use instead.
    """
    configs = (*_ELSEWHERE, FairseqConfig)
    names = {field.name for config in configs for field in dataclasses.fields(config)}
    names = {*names, "arch", *IN_PLACE} - {*_WITH_EFFECT}
    for name in options:
        if name == "max_target_positions":  # fairseq would change the model
            raise UserError(
                f"{name} is that of training and has no effect here; to limit translations give "
                "max_len_b"
            )
        if name in names:
            raise without_effect(name)
    if options.get("sampling") and "beam" in options:
        raise UserError(
            "with sampling, a call draws as many translations as it returns; leave out beam"
        )


def _refuse_of_training(options: dict, task) -> None:
    """Refuse options of the task for training, and dropout without ``retain_dropout``.

    Args:
        options: options of :meth:`DocumentTranslator.from_pretrained`.
        task: class of the task; None if it is unknown.

    Raises:
        UserError: an option has no effect.
    """
    for name in options:
        if name in getattr(task, "OF_TRAINING", ()):
            raise UserError(f"{name} is for training and has no effect here; leave it out")
        if name.endswith("dropout") and name != "retain_dropout":
            if not options.get("retain_dropout"):
                raise UserError(
                    f"{name} has no effect without retain_dropout; give both or neither"
                )


def _refuse_tags(options: dict, file: CheckpointFile) -> None:
    """Refuse options of language tags for a checkpoint without tags, and those for training.

    Raises:
        UserError: an option has no effect.
    """
    for name in ("tag_languages", "add_language_tags"):
        if name in options:
            raise UserError(f"{name} is for training and has no effect here; leave it out")
    for name in ("language_tags", "source_tag", "target_tag"):
        if name in options and "language_tags" not in file.task_state:
            raise UserError(f"{file.path} was trained without language tags; leave {name} out")


def without_effect(name: str) -> UserError:
    """Return the error for an option that has no effect in Python; it says what to do instead."""
    fix = IN_PLACE.get(name, "leave it out")
    return UserError(f"{name} is for fairseq's commands and has no effect here; {fix}")


def _refuse_multilingual(files: List[CheckpointFile]) -> None:
    for file in files:
        if file.task in (*MBART25_TASKS, MULTILINGUAL_TASK):
            raise UserError(
                f"{file.path} was trained with --task {file.task}, whose language tags are not "
                "known here; finetune it first (--finetune-from-model), or give it to "
                "fairseq-generate --task sliding_window_translation --window-size 1, which can "
                "also score references (--score-reference)"
            )


def _refuse_sentence_task_first(files: List[CheckpointFile]) -> None:
    # The first checkpoint's task translates.
    for number, file in enumerate(files, start=1):
        if files[0].task == "translation" != file.task:
            raise UserError(
                "checkpoints of one ensemble must agree in --task: number 1 was trained with "
                f"translation, number {number} with {file.task}; give number {number} first, or "
                "leave one out"
            )
