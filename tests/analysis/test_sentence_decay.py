"""Sentential gates extracted from a model, compared with the values in its layers."""

import pytest
import tiny
import torch

from fairseq_docmt.analysis.sentence_decay import sentence_decay
from fairseq_docmt.errors import UserError

SEP = tiny.dictionary().index("<sep>")
ROWS = torch.tensor([[2, 5, SEP, 6, 7, SEP, 8], [2, 5, 6, SEP, 7, 1, 1]])


def net_input():
    source = torch.tensor([[4, 5, 6, 2], [5, 6, 7, 2]])
    return {
        "src_tokens": source,
        "src_lengths": torch.tensor([4, 4]),
        "prev_output_tokens": ROWS,
    }


def test_gates_between_sentences():
    model = tiny.model(*tiny.rfa("--sentence-gate", "decay"))
    gates = sentence_decay(model, net_input(), SEP)
    assert gates.shape == (1, 2, 2, 2)
    _, extra = model(**net_input())
    seen = extra["log_decay"].exp()
    # A gate closes before the token after the separator.
    torch.testing.assert_close(gates[0, :, 0], seen[0, :, 0, [3, 6]])
    torch.testing.assert_close(gates[0, :, 1, 0], seen[0, :, 1, 4])
    assert gates[0, :, 1, 1].eq(1).all()
    assert ((gates > 0) & (gates <= 1)).all()


def test_without_a_gate():
    model = tiny.model(*tiny.rfa())
    with pytest.raises(UserError, match="no sentential gate"):
        sentence_decay(model, net_input(), SEP)
