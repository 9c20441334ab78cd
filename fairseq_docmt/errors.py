"""Errors caused by user input, shown as one sentence instead of a traceback."""

import difflib
import re
from dataclasses import fields
from typing import Any, Callable, Iterable, Optional, Sequence

from hydra.errors import CompactHydraException

#: what to do when the loss, its gradients or its scale are no numbers
DIVERGED = "training has diverged; lower --lr, raise --warmup-updates or add --clip-norm 1"
#: what is said of an optimizer that is resumed with other parameters
OTHER_PARAMETERS = (
    "the optimizer of the checkpoint has other parameters than this run: give --freeze-pretrained "
    "and the options that share embeddings as in that training, or add --reset-optimizer"
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
