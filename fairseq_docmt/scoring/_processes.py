"""Work shared by processes that are copies of this one."""

import multiprocessing
import os
import sys
from typing import Callable, Iterable, List, Optional, TypeVar

Item, Result = TypeVar("Item"), TypeVar("Result")

#: Function of :func:`forked_map`, which the processes inherit: its data are not sent to them.
_function: Optional[Callable] = None


def can_fork() -> bool:
    """Return whether there are several processors, and a process can be copied safely."""
    # A copy of a process with threads of torch may wait for them without end.
    return _processors() > 1 and sys.platform == "linux" and "torch" not in sys.modules


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def forked_map(function: Callable[[Item], Result], items: Iterable[Item]) -> List[Result]:
    """Return the results of a function for items, by a process for each processor.

    Args:
        function: any function, which sees the data of this process.
        items: what it is given, which is sent to the processes, as its results are.
    """
    global _function
    _function = function
    try:
        with multiprocessing.get_context("fork").Pool(_processors()) as pool:
            return pool.map(_call, items, chunksize=1)
    finally:
        _function = None


def _call(item):
    return _function(item)
