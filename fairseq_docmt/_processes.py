"""Worker processes: a parallel map in forked copies of this process, and how workers end."""

import multiprocessing
import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Callable, Iterable, List, Optional, TypeVar

from fairseq_docmt.errors import UserError

Item, Result = TypeVar("Item"), TypeVar("Result")

#: Function of :func:`forked_map`.  The forked processes inherit it, so it is never pickled.
_function: Optional[Callable] = None


def end_with_parent() -> None:
    """Make this worker process end as soon as its parent does, even if the parent is killed.

    Otherwise the worker would wait for ever for work.  data_prep/stages.py has its own, because
    it does not import the package, and leaves interrupts to the parent.
    """
    parent = multiprocessing.parent_process()

    def watch():
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def can_fork() -> bool:
    """Return whether forking is useful (several CPUs) and safe (Linux, torch not loaded)."""
    # A copy of a process with threads of torch may wait for them without end.
    return _processors() > 1 and sys.platform == "linux" and "torch" not in sys.modules


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def forked_map(function: Callable[[Item], Result], items: Iterable[Item]) -> List[Result]:
    """Apply a function to each item in parallel, with one forked process per CPU.

    Args:
        function: function of one item; may be a closure, because the forked processes inherit it.
        items: arguments of the calls; they and the results must be picklable.

    Returns:
        The results in the order of the items.

    Raises:
        UserError: a process was killed.
    """
    global _function
    _function = function
    try:
        # Unlike multiprocessing.Pool, this pool notices when a process dies.
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(_processors(), context, end_with_parent) as pool:
            return list(pool.map(_call, items))
    except BrokenProcessPool:
        raise UserError("a process was killed; there was perhaps too little memory") from None
    finally:
        _function = None


def _call(item):
    return _function(item)
