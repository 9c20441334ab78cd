"""Errors a user can cause, shown as one sentence instead of a traceback."""

import sys


class UserError(ValueError):
    """Bad input or a bad combination of options.

    The message is one sentence that names the file, line or value and the fix.  Python callers
    catch it like any ``ValueError``; from the command line only the sentence is printed.
    """


def _one_sentence_hook(previous):
    def hook(kind, error, traceback):
        if issubclass(kind, UserError):
            print(f"error: {error}", file=sys.stderr)
        else:
            previous(kind, error, traceback)

    hook.shows_user_errors = True
    return hook


def show_user_errors_plainly() -> None:
    """Let an uncaught :class:`UserError` end the program with its sentence and exit status 1."""
    if not getattr(sys.excepthook, "shows_user_errors", False):
        sys.excepthook = _one_sentence_hook(sys.excepthook)
