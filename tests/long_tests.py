"""Cases that only ``make test-system`` runs, because faster tests hold the same code."""

from typing import Iterable, List

import pytest

LONG = pytest.mark.long


def long(*values):
    """Return a case of several parameters as a long test."""
    return pytest.param(*values, marks=LONG)


def long_but_for(fast: Iterable, cases: Iterable) -> List:
    """Return the cases of one parameter, of which all but the fast ones are long tests.

    Raises:
        ValueError: if there is no such fast case.
    """
    fast, cases = list(fast), list(cases)
    unknown = [case for case in fast if case not in cases]
    if unknown:
        raise ValueError(f"no such case: {unknown}")
    return [case if case in fast else pytest.param(case, marks=LONG) for case in cases]
