"""Standard streams of commands: UTF-8 in any locale, and no error if nobody reads the output.

data_prep has a copy, because its scripts do not import the package.
"""

import atexit
import errno
import os
import select
import sys

#: errors of a full disk, and of limits on files
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def read_and_write_utf8() -> None:
    """Switch standard streams that Python has opened as ASCII (``LC_ALL=C``) to UTF-8.

    The error handler for bytes that are not UTF-8 is kept.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        encoding = str(getattr(stream, "encoding", None)).lower()
        if encoding in ("ascii", "us-ascii", "ansi_x3.4-1968") and hasattr(stream, "reconfigure"):
            # A new encoding alone would make bytes that are not UTF-8 a traceback.
            stream.reconfigure(encoding="utf-8", errors=stream.errors)


def reader_has_left() -> bool:
    """Return whether the program that reads the standard output has ended, as ``| head`` does."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # it is no file, or closed
        return False


def _discard_unread_output() -> None:
    """Discard buffered output if no program reads it, to avoid an error message at exit."""
    if reader_has_left():
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def end_quietly_without_reader() -> None:
    """Let this program end without a message if nobody reads its standard output any more.

    If the output cannot be written because a disk is full, it ends with one sentence.
    """
    previous = sys.excepthook

    def hook(kind, error, traceback):
        if issubclass(kind, BrokenPipeError) and reader_has_left():
            return
        if getattr(error, "errno", None) in NO_ROOM and error.filename is None:
            print(f"error: the output cannot be written: {error.strerror}", file=sys.stderr)
        else:
            previous(kind, error, traceback)

    hook.shows_user_errors = getattr(previous, "shows_user_errors", False)
    sys.excepthook = hook
    atexit.register(_discard_unread_output)


read_and_write_utf8()
end_quietly_without_reader()
