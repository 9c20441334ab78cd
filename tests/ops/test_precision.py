"""Precision of values that half precision would spoil."""

import pytest
import torch

from fairseq_docmt.ops.precision import at_least_single


@pytest.mark.parametrize(
    "given, expected",
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_alone_is_raised(given, expected):
    assert at_least_single(given) == expected
