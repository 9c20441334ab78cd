"""Operations and synchronisations of the architectures, counted as in their benchmark."""

import importlib.util

import pytest
import tiny
import torch
from long_tests import long_but_for

FOLDER = tiny.ROOT / "examples" / "benchmarks" / "launches"
SPEC = importlib.util.spec_from_file_location("launches", FOLDER / "benchmark.py")
launches = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(launches)


@pytest.mark.parametrize(
    "function, operations, waits",
    [
        (lambda x: x.view(2, 3).t(), 0, 0),
        (lambda x: x + 1, 1, 0),
        (lambda x: x.add_(1), 1, 0),
        (lambda x: x.sum().item(), 1, 1),
        (lambda x: x[x > 0], 2, 1),
        (lambda x: x[x.long()], 2, 0),
        (lambda x: torch.equal(x, x), 1, 1),
    ],
)
def test_counts_by_hand(function, operations, waits):
    x = torch.arange(6.0)
    with launches.Counting() as counting:
        function(x)
    assert (counting.launches, sum(counting.waits.values())) == (operations, waits)


@pytest.fixture(scope="module")
def stock():
    return launches.build(launches.BASE, launches.SYSTEMS[launches.BASE])


#: one of each kind of attention and of state
FAST = ["rfa_transformer --sentence-gate decay", "g_transformer", "memory_transformer", "cache_rnn"]


@pytest.mark.parametrize(
    "name", long_but_for(FAST, [name for name in launches.SYSTEMS if name != launches.BASE])
)
def test_no_architecture_waits_more_often_than_the_stock_transformer(stock, name):
    """Once more in an update, where there is one check of padding of the source too."""
    built = launches.build(name, launches.SYSTEMS[name])
    ours, theirs = (launches.count_step(*x).waits.total() for x in (built, stock))
    assert ours <= theirs
    ours, theirs = (launches.count_update(*x).waits.total() for x in (built, stock))
    more_encoders = 4 if name == "multi_encoder_transformer" else 0
    assert ours <= theirs + 1 + more_encoders
