"""Sentences that the user reads instead of Python's traceback."""

import pickle
import re
import sys
import traceback
from types import FrameType
from typing import List, Optional

from fairseq_docmt.errors import DIVERGED, OTHER_PARAMETERS, UserError, flag

#: function of fairseq that writes a file into --save-dir before training
VERIFIES_FOLDER = "verify_checkpoint_directory"
#: what is said of a learning rate schedule that is resumed with the state of another one
OTHER_SCHEDULER = (
    "the checkpoint was trained with another --lr-scheduler, from which this one cannot go on; add "
    "--reset-lr-scheduler"
)
#: files of the optimizers and of the learning rate schedules
OPTIMIZER = re.compile(r"[\\/]fairseq[\\/]optim[\\/]")
LR_SCHEDULER = re.compile(r"[\\/]fairseq[\\/]optim[\\/]lr_scheduler[\\/]")
#: what is said of a file that torch does not load
REFUSED = (
    "the checkpoint has objects that may run programs when they are loaded, which torch refuses "
    "(weights only), or it is damaged; use a checkpoint with tensors and options alone"
)
#: messages of hydra about options -> what the user reads
OF_HYDRA = {
    r"Error merging override (\w+)\.(\w+)=null": "--{1} is missing, which --{0} needs; give both",
    r"Error merging override \w+\.(\w+)=(.*)": "--{0} cannot be {1}; --help shows what it can be",
    r"Missing mandatory value: (?:\w+\.)?(\w+)": "--{0} is missing, which another option needs",
    r"In 'config': Could not find '(\w+)/(\w+)'": "--{0} {1} cannot be used in this fairseq",
}
#: what a message of fairseq about options says
OF_OPTIONS = re.compile(r"--[a-z]|Please install|^world size")
FAIRSEQ = re.compile(r"[\\/]fairseq(_cli)?[\\/]")


def reason_of(error: BaseException) -> Optional[str]:
    """Return the sentence to show instead of a traceback, or None if the traceback should be shown.

    There is a sentence for :class:`UserError`, for diverged training, for a checkpoint or another
    file that cannot be read, for a lack of memory, and for errors that fairseq, hydra and torch
    raise about options.
    """
    if isinstance(error, UserError):
        return " ".join(str(error).split("\n"))  # a name in a file may have a line break
    if not isinstance(error, Exception):
        return None
    text = str(error).strip().split("\n")[0]
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    rules = (
        _of_training,
        _of_processes,
        _of_checkpoint,
        _of_value,
        _of_file,
        _of_fairseq,
        _of_optimizer,
    )
    return next(filter(None, (rule(error, text, frames) for rule in rules)), None)


def _of_training(error: Exception, text: str, _) -> Optional[str]:
    if isinstance(error, FloatingPointError):
        return f"{text.split('. ')[0]}; {DIVERGED}"
    if isinstance(error, MemoryError):
        return f"not enough memory ({text}); give smaller batches or fewer examples"
    if isinstance(error, AssertionError) and text.startswith("Torch not compiled with CUDA"):
        return "an option (--profile, --quant-noise-scalar ...) needs a GPU, but torch is for CPUs"
    return None


def _of_processes(_, text: str, frames: List[FrameType]) -> Optional[str]:
    """Return the sentence for several processes that cannot start."""
    if any(frame.f_code.co_name == "distributed_init" for frame in frames):
        return f"the processes cannot connect ({text}); check the options --distributed-..."
    if text.startswith("DistributedDataParallel device_ids"):
        return "several processes without GPUs need --ddp-backend legacy_ddp"
    if text.startswith("Default process group has not been initialized"):
        return (
            "several processes without GPUs need a command for each --distributed-rank, with "
            "--distributed-no-spawn and --distributed-init-method"
        )
    return None


def _of_checkpoint(error: Exception, text: str, frames: List[FrameType]) -> Optional[str]:
    if isinstance(error, RuntimeError) and text.startswith("Error(s) in loading state_dict"):
        from fairseq_docmt.checkpoint_file import misfit  # which imports torch

        return (
            f"the checkpoint does not fit the model: {misfit(str(error))}; give a checkpoint as "
            "training has saved it, without --model-overrides that change the model"
        )
    if text.startswith("Cannot load model parameters from checkpoint"):  # of fairseq-train
        return f"{text.split(';')[0]}; give --task, --arch and the options of its training"
    if isinstance(error, ValueError) and text.startswith("loaded state dict"):  # of an optimizer
        return OTHER_PARAMETERS
    if isinstance(error, KeyError) and frames and LR_SCHEDULER.search(_file(frames[-1])):
        return OTHER_SCHEDULER
    for frame in frames:
        # fairseq-validate loads the checkpoint before a task of this package can check it.
        if frame.f_code.co_name == "load_model_ensemble_and_task":
            from fairseq_docmt.checkpoint_file import read_checkpoint  # which imports torch

            try:
                read_checkpoint(frame.f_locals["filename"])
            except UserError as problem:
                return str(problem)
    return REFUSED if isinstance(error, pickle.UnpicklingError) else None


def _of_value(error: Exception, text: str, frames: List[FrameType]) -> Optional[str]:
    """Return the sentence for an option that is missing, or that a library cannot read."""
    for pattern, sentence in OF_HYDRA.items():
        match = re.match(pattern, text)
        if match:
            said = sentence.format(*match.groups())
            return re.sub(r"--\w+", lambda option: option[0].replace("_", "-"), said)
    if isinstance(error, ValueError) and text.startswith("Seed must be between"):  # of numpy
        return "--seed must be from 0 to 4294967295"
    if isinstance(error, IndexError) and getattr(error, "full_key", None):  # of omegaconf
        name = re.sub(r".*\.|\[.*", "", error.full_key)
        return f"{flag(name)} has no value, which is needed; --help shows what it can be"
    places = {frame.f_code.co_name: frame for frame in frames if FAIRSEQ.search(_file(frame))}
    if "_override_attr" in places:
        name, value = (places["_override_attr"].f_locals.get(key) for key in ("k", "val"))
        return f"{flag(name)} cannot be {value}; --help shows what it can be"
    if "load_checkpoint" in places and frames[-1].f_globals["__name__"] == "ast":
        return "--optimizer-overrides must be a dictionary such as \"{'lr': 0.1}\""
    if not text and frames[-1:] == [places.get("parse_args_and_arch")]:
        return "--arch is missing; give the architecture of the model"
    if isinstance(error, KeyError) and frames[-1:] == [places.get("validate")]:
        return (
            f"validation does not compute {text}; give another --best-checkpoint-metric, such as "
            "loss, and no negative --max-valid-steps"
        )
    return None


def _of_file(error: Exception, _, frames: List[FrameType]) -> Optional[str]:
    """Return the sentence for a file that an option of fairseq names."""
    if not isinstance(error, OSError) or not error.filename or not error.strerror:
        return None
    names = [frame.f_code.co_name for frame in frames]
    if VERIFIES_FOLDER in names:
        return f"--save-dir: {error.filename}: {error.strerror}; give a folder to write to"
    if frames and FAIRSEQ.search(_file(frames[-1])):
        return f"{error.filename}: {error.strerror}"
    return None


def _of_fairseq(error: Exception, text: str, frames: List[FrameType]) -> Optional[str]:
    """Return fairseq's message if it is about options."""
    by_fairseq = frames and FAIRSEQ.search(_file(frames[-1]))
    kinds = isinstance(error, (AssertionError, ValueError, ImportError)) or type(error) is Exception
    return text if by_fairseq and kinds and OF_OPTIONS.search(text) else None


def _of_optimizer(error: Exception, text: str, frames: List[FrameType]) -> Optional[str]:
    """Return the sentence for an error in fairseq's code of optimizers and schedules.

    This code does not check its options, so that wrong ones cause errors of any kind.
    """
    if isinstance(error, RuntimeError) and not isinstance(error, NotImplementedError):
        return None  # of torch, such as a lack of memory
    first = next((frame for frame in frames if OPTIMIZER.search(_file(frame))), None)
    if first is None or first.f_code.co_name == "backward":
        return None
    option = "--lr-scheduler" if LR_SCHEDULER.search(_file(first)) else "--optimizer"
    return (
        f"fairseq cannot use the options of this {option} ({text or type(error).__name__}); "
        f"fairseq-train {option} NAME --help lists them with their defaults"
    )


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _one_sentence_hook(previous):
    def hook(kind, error, place):
        reason = reason_of(error)
        if reason is not None:
            print(f"error: {reason}", file=sys.stderr)
        else:
            previous(kind, error, place)

    hook.shows_user_errors = True
    return hook


def show_user_errors_plainly() -> None:
    """Make Python print one sentence instead of a traceback for errors caused by user input.

    This sets ``sys.excepthook``.  An uncaught error is still shown with its traceback if
    :func:`reason_of` has no sentence for it.
    """
    if not getattr(sys.excepthook, "shows_user_errors", False):
        sys.excepthook = _one_sentence_hook(sys.excepthook)
