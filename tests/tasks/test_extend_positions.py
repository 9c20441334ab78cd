"""Learned positions of a pre-trained model are extended or refused."""

import pytest
import torch
from fairseq.modules import LearnedPositionalEmbedding
from torch import nn

from fairseq_docmt.errors import UserError
from fairseq_docmt.tasks.starts.weights import extend_positions, positions_of

PAD = 1


def model(positions):
    """With a table of learned positions on one side."""
    table = LearnedPositionalEmbedding(positions + PAD + 1, 3, PAD)
    return nn.ModuleDict({"encoder": nn.ModuleDict({"embed_positions": table})})


def test_repeated():
    known = torch.arange(6.0).view(3, 2)
    assert positions_of(known, 7, "repeat").tolist() == known.tolist() * 2 + known.tolist()[:1]


def test_interpolated():
    """The first and last stay, those between are evenly spaced."""
    known = torch.tensor([[0.0, 0.0], [4.0, 1.0], [8.0, 2.0]])
    found = positions_of(known, 5, "interpolate")
    torch.testing.assert_close(found[:, 0], torch.tensor([0.0, 2.0, 4.0, 6.0, 8.0]))
    torch.testing.assert_close(found[:, 1], torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0]))
    assert positions_of(known.half(), 5, "interpolate").dtype == torch.half


@pytest.mark.parametrize("how", ["repeat", "interpolate"])
def test_rows_before_the_first_position_stay(how):
    small, large = model(4), model(9)
    extend_positions(large, how, "ck")
    large.load_state_dict(small.state_dict())
    old, new = (m["encoder"]["embed_positions"].weight for m in (small, large))
    assert torch.equal(new[: PAD + 1], old[: PAD + 1])
    torch.testing.assert_close(new[PAD + 1 :], positions_of(old[PAD + 1 :], 9, how))


def test_equal_numbers_are_loaded_as_they_are():
    one, two = model(4), model(4)
    extend_positions(two, None, "ck")
    two.load_state_dict(one.state_dict())
    assert torch.equal(*(m["encoder"]["embed_positions"].weight for m in (one, two)))


@pytest.mark.parametrize(
    "known, wanted, how, fix",
    [
        (4, 9, None, "give --max-source-positions 4, or --extend-positions repeat or inter"),
        (9, 4, None, "give --max-source-positions 9$"),
        (9, 4, "repeat", "give --max-source-positions 9$"),
    ],
)
def test_other_numbers_are_refused(known, wanted, how, fix):
    large = model(wanted)
    extend_positions(large, how, "ck")
    message = f"ck has {known} learned source positions, but the model has {wanted} .*; {fix}"
    with pytest.raises(UserError, match=message):
        large.load_state_dict(model(known).state_dict())
