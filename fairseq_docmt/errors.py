"""Errors caused by user input, shown as one sentence instead of a traceback."""

import difflib
import pickle
import re
import sys
import traceback
from dataclasses import fields
from typing import Any, Callable, Iterable, Optional, Sequence

from hydra.errors import CompactHydraException

#: function of fairseq that writes a file into --save-dir before training
VERIFIES_FOLDER = "verify_checkpoint_directory"
#: what to do when the loss, its gradients or its scale are no numbers
DIVERGED = "training has diverged; lower --lr, raise --warmup-updates or add --clip-norm 1"
#: what is said of an optimizer that is resumed with other parameters
OTHER_PARAMETERS = (
    "the optimizer of the checkpoint has other parameters than this run: give --freeze-pretrained "
    "and the options that share embeddings as in that training, or add --reset-optimizer"
)
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


# fairseq's trainer saves a checkpoint, crash.pt, for exceptions other than RuntimeError.
class UserError(ValueError, RuntimeError, CompactHydraException):
    """Error for invalid input or an invalid combination of options.

    The message is one sentence that names the file, line or value and says how to correct it.
    Python code can catch the error as a ``ValueError``.  On the command line only the sentence is
    printed, even if hydra reports the error.
    """


def flag(name: str) -> str:
    """Return the command-line flag of an option, such as ``--max-tokens`` for ``max_tokens``."""
    return "--" + name.replace("_", "-")


def check_metadata(config: type, value_of: Callable[[str], Any]) -> None:
    """Check option values against the constraints in the metadata of their dataclass fields.

    The metadata entry ``at_least`` is the smallest allowed value of a number, or of each number in
    a list.  The entry ``needs`` names another option that must be given together with the option.

    Args:
        config: dataclass whose fields are the options.
        value_of: function that returns the value of an option, given its name.

    Raises:
        UserError: a value is too small, or an option is given without the option that it needs.
    """
    for option in fields(config):
        value = value_of(option.name)
        least, needed = (option.metadata.get(key) for key in ("at_least", "needs"))
        values = value if isinstance(value, Sequence) else (value,)
        numbers = [number for number in values if number is not None]
        if least is not None and numbers and min(numbers) < least:
            # The default of an option of fairseq is ${group.name}.
            followed = re.fullmatch(r"\$\{\w+\.(\w+)\}", str(option.default))
            name = followed[1] if followed else option.name
            bound = "not be negative" if least == 0 else f"be at least {least}"
            raise UserError(f"{flag(name)} must {bound}, got {min(numbers)}")
        if needed is not None and value and not value_of(needed):
            raise UserError(f"{flag(option.name)} needs {flag(needed)}; give both or neither")


#: what others call options of fairseq, without underscores
OTHER_NAMES = {
    "lengthpenalty": "lenpen",
    "lengthnormalization": "lenpen",
    "beamsize": "beam",
    "numbeams": "beam",
    "maxlen": "max_len_b",
    "maxlength": "max_len_b",
    "maxnewtokens": "max_len_b",
    "minlength": "min_len",
    "topk": "sampling_topk",
    "topp": "sampling_topp",
    "norepeatngram": "no_repeat_ngram_size",
    "dosample": "sampling",
}


def _meant(name: str, known: Iterable[str]) -> Optional[str]:
    """Return the option that an unknown name most likely means, or None if no option is similar.

    The name may be misspelt, or may be what other toolkits call the option, such as ``num_beams``.
    """
    plain = {option.replace("_", ""): option for option in known}
    key = name.lower().replace("_", "").replace("-", "")
    other = OTHER_NAMES.get(key, key)
    if other in known:
        return other
    # Below, the name of another option that begins alike would be suggested.
    close = difflib.get_close_matches(other, plain, n=1, cutoff=0.72)
    return plain[close[0]] if close else None


def refuse_unknown(names: Iterable[str], known: Iterable[str], place: str = "") -> None:
    """Raise an error if an option does not exist, and suggest a similar one.

    Args:
        names: names of the options that are given.
        known: names of all options that exist.
        place: where the option is given, as a phrase for the message, such as
            " in --eval-bleu-args".

    Raises:
        UserError: an option does not exist; the message names it and, if possible, a similar one.
    """
    for name in names:
        if name not in known:
            meant = _meant(name, known)
            fix = f"do you mean {meant}?" if meant else "leave it out"
            raise UserError(f"unknown option {name}{place}; {fix}")


def _refused_checkpoint(place) -> Optional[str]:
    """Return what is wrong with the checkpoint that was being loaded when an error occurred.

    This is for fairseq-validate, which loads the checkpoint before a task of this package can check
    it.  The checkpoint is read again to find a reason that can be shown to the user.

    Args:
        place: traceback of the error.  The path of the checkpoint is taken from its frames.

    Returns:
        A description of the problem.  None if the checkpoint can be read, or if no checkpoint was
        being loaded.
    """
    from fairseq_docmt.checkpoint_file import read_checkpoint  # which imports this module

    while place is not None:
        frame = place.tb_frame
        if frame.f_code.co_name == "load_model_ensemble_and_task":
            try:
                read_checkpoint(frame.f_locals["filename"])
            except UserError as error:
                return str(error)
        place = place.tb_next
    return None


def _misfit(message: str) -> str:
    from fairseq_docmt.checkpoint_file import misfit  # which imports this module

    return (
        f"the checkpoint does not fit the model: {misfit(message)}; give a checkpoint as training "
        "has saved it, without --model-overrides that change the model"
    )


def _refused_by_optimizer(error: BaseException, frames) -> Optional[str]:
    """Return the sentence for an error in fairseq's code of optimizers and schedules, or None.

    This code does not check its options, so that wrong ones cause errors of any kind.

    Args:
        error: the error.
        frames: its traceback, outermost frame first.
    """
    if isinstance(error, RuntimeError) and not isinstance(error, NotImplementedError):
        return None  # of torch, such as a lack of memory
    first = next((frame for frame in frames if OPTIMIZER.search(frame.filename)), None)
    if first is None or first.name == "backward":
        return None
    option = "--lr-scheduler" if LR_SCHEDULER.search(first.filename) else "--optimizer"
    said = str(error).split("\n")[0] or type(error).__name__
    return (
        f"fairseq cannot use the options of this {option} ({said}); fairseq-train {option} NAME "
        "--help lists them with their defaults"
    )


#: what a message of fairseq about options says
OF_OPTIONS = re.compile(r"--[a-z]|Please install|^world size")
#: messages of hydra about options -> what the user reads
OF_HYDRA = {
    r"Error merging override (\w+)\.(\w+)=null": "--{1} is missing, which --{0} needs; give both",
    r"Missing mandatory value: (?:\w+\.)?(\w+)": "--{0} is missing, which another option needs",
    r"In 'config': Could not find '(\w+)/(\w+)'": "--{0} {1} cannot be used in this fairseq",
}


def reason_of(error: BaseException) -> Optional[str]:
    """Return the sentence to show instead of a traceback, or None if the traceback should be shown.

    There is a sentence for :class:`UserError`, for diverged training, for a checkpoint that cannot
    be loaded, for a lack of memory, and for errors that fairseq and hydra raise about options.
    """
    text = str(error).split("\n")[0]
    if isinstance(error, UserError):
        return " ".join(str(error).split("\n"))  # a name in a file may have a line break
    if isinstance(error, FloatingPointError):  # of fairseq-train
        return f"{str(error).split('. ')[0]}; {DIVERGED}"
    if isinstance(error, RuntimeError) and text.startswith("Error(s) in loading state_dict"):
        return _misfit(str(error))
    if text.startswith("Cannot load model parameters from checkpoint"):  # of fairseq-train
        return f"{text.split(';')[0]}; give --task, --arch and the options of its training"
    if isinstance(error, ValueError) and text.startswith("loaded state dict"):  # of an optimizer
        return OTHER_PARAMETERS
    problem = _refused_checkpoint(error.__traceback__)
    if problem is not None and isinstance(error, Exception):
        return problem
    if isinstance(error, pickle.UnpicklingError):  # of fairseq-validate, which reads at once
        return REFUSED
    for pattern, sentence in OF_HYDRA.items():
        match = re.match(pattern, text)
        if match:
            return sentence.format(*(name.replace("_", "-") for name in match.groups()))
    if isinstance(error, ValueError) and text.startswith("Seed must be between"):  # of numpy
        return "--seed must be from 0 to 4294967295"
    if isinstance(error, MemoryError):
        return f"not enough memory ({text}); give smaller batches or fewer examples"
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, OSError) and any(f.name == VERIFIES_FOLDER for f in frames):
        return f"--save-dir: {error.filename}: {error.strerror}; give a folder to write to"
    if isinstance(error, KeyError) and frames and LR_SCHEDULER.search(frames[-1].filename):
        return OTHER_SCHEDULER
    by_fairseq = frames and re.search(r"[\\/]fairseq(_cli)?[\\/]", frames[-1].filename)
    if by_fairseq and isinstance(error, (AssertionError, ValueError, ImportError)):
        if OF_OPTIONS.search(text):
            return text
    return _refused_by_optimizer(error, frames) if isinstance(error, Exception) else None


def _one_sentence_hook(previous):
    def hook(kind, error, traceback):
        reason = reason_of(error)
        if reason is not None:
            print(f"error: {reason}", file=sys.stderr)
        else:
            previous(kind, error, traceback)

    hook.shows_user_errors = True
    return hook


def show_user_errors_plainly() -> None:
    """Make Python print one sentence instead of a traceback for errors caused by user input.

    This sets ``sys.excepthook``.  An uncaught error is still shown with its traceback if
    :func:`reason_of` has no sentence for it.
    """
    if not getattr(sys.excepthook, "shows_user_errors", False):
        sys.excepthook = _one_sentence_hook(sys.excepthook)
