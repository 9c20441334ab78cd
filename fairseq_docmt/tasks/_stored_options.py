"""Training options that are stored in checkpoints, so that they need not be given for decoding."""

from enum import Enum
from typing import Any, Dict, Optional

from fairseq_docmt.checkpoint_file import RENAMED_TASKS
from fairseq_docmt.errors import UserError, flag

KEY = "document_options"
#: task -> its name in earlier checkpoints, which another task has too; their models differ
EARLIER_NAMES = {name: earlier for (earlier, _), name in RENAMED_TASKS.items()}


class StoredOptions:
    """Options from the command line, completed by options of a checkpoint or by defaults.

    Args:
        task_name: registered name of the task, stored with the options.
        given: option name -> value on the command line; None for an option that is not given.
        defaults: option name -> value to use if neither the command line nor the checkpoint sets
            the option.
        learned: name of a value estimated in training -> value before it is estimated.
        sentence_level: option name -> value to use with checkpoints of fairseq's sentence-level
            tasks, which do not store the option.
    """

    def __init__(self, task_name, given, defaults, learned, sentence_level):
        self.task_name = task_name
        self.given = {name: plain(value) for name, value in given.items() if value is not None}
        self.defaults = defaults
        self.learned = learned
        self.sentence_level = sentence_level
        #: options of the first checkpoint of an ensemble, and the number of its checkpoints so far
        self.loaded: Optional[dict] = None
        self._count = 0

    def chosen(self) -> Dict[str, Any]:
        """Return the options (name -> value) of training, to store them in its checkpoints."""
        return {**self.learned, **self.defaults, **self.given, "task": self.task_name}

    def adopt(
        self, task_state: dict, override: bool = False, resumed: Optional[str] = None
    ) -> Dict[str, Any]:
        """Return the options to decode or resume with, given the task state of a checkpoint.

        Args:
            task_state: state of the task in the checkpoint.
            override: whether the command line takes precedence over the checkpoint, even if the
                checkpoint was trained with another task.  Options that are set in neither take
                their defaults.
            resumed: path of the checkpoint if training resumes from it, for messages; otherwise
                None.

        Returns:
            Option name -> value.

        Raises:
            UserError: the task or an option of the checkpoint contradicts the command line or an
                earlier checkpoint of the same ensemble.
        """
        stored = task_state.get(KEY)
        if stored is None:
            return self._of_another_task()
        if stored["task"] == EARLIER_NAMES.get(self.task_name):
            stored = {**stored, "task": self.task_name}
        if override:
            return {**self.chosen(), **self._known(stored), **self.given, "task": self.task_name}
        # First the ensemble: what is "given" may come from its first checkpoint.
        self._check_ensemble(stored)
        if stored["task"] != self.task_name and resumed:
            raise UserError(
                f"training would resume from {resumed}, which was trained with --task "
                f"{stored['task']}, not {self.task_name}; give another --save-dir to begin a new "
                f"training, or use --task {stored['task']}"
            )
        if stored["task"] != self.task_name:
            raise UserError(
                f"the checkpoint was trained with --task {stored['task']}, not "
                f"{self.task_name}; use --task {stored['task']}, or add "
                "--override-checkpoint-options to decode it in another way"
            )
        for name, value in self.given.items():
            trained = stored.get(name, self.defaults[name])
            if value != trained:
                raise contradiction(name, value, trained, resumed)
        self.loaded = stored
        return {**self.chosen(), **stored}

    def _of_another_task(self) -> Dict[str, Any]:
        """Return the options to assume for a checkpoint of a stock task, which stores no options.

        An option that is not given takes its value for sentence-level checkpoints, if it has one,
        or its default.
        """
        values = {**self.chosen(), **self.sentence_level, **self.given}
        self._check_ensemble(values)
        if self.loaded is not None:
            values.update({name: self.loaded.get(name, x) for name, x in self.learned.items()})
        self.loaded = values
        return values

    def _known(self, stored: dict) -> Dict[str, Any]:
        """Select the stored options, and values estimated in training, that this task has too."""
        return {name: stored[name] for name in {**self.defaults, **self.learned} if name in stored}

    def _check_ensemble(self, stored: dict) -> None:
        self._count += 1
        for name, default in {"task": self.task_name, **self.defaults}.items():
            first, other = (state.get(name, default) for state in (self.loaded or stored, stored))
            if first != other:
                raise UserError(
                    f"checkpoints of one ensemble must agree in {flag(name)}: number 1 was trained "
                    f"with {first}, number {self._count} with {other}; leave one out"
                )


def contradiction(name: str, given: Any, trained: Any, resumed: Optional[str] = None) -> UserError:
    """Return the error for an option whose value differs from the checkpoint's.

    Args:
        name: name of the option.
        given: value on the command line.
        trained: value in the checkpoint.
        resumed: path of the checkpoint if training resumes from it; otherwise None.
    """
    if resumed:
        return UserError(
            f"training would resume from {resumed}, which was trained with {flag(name)} {trained}, "
            f"not {given}; give another --save-dir to begin a new training, leave the option out, "
            "or add --override-checkpoint-options to go on with another value"
        )
    return UserError(
        f"{flag(name)} {given} contradicts the checkpoint, which was trained with {flag(name)} "
        f"{trained}; leave the option out, or add --override-checkpoint-options to use another "
        "value anyway"
    )


def plain(value):
    """Return the value of an option, or the member's value if it is a member of an enum."""
    return value.value if isinstance(value, Enum) else value
