"""Packed sequences of the encoder get their padding back."""

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from fairseq_docmt.modules.rnn.gru_encoder import placed


def test_packed_states_get_their_padding_back():
    lengths = torch.tensor([2, 4, 1])
    x = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    states, places = (
        pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
        for values in (x, torch.arange(12).view(3, 4))
    )
    wanted, _ = pad_packed_sequence(states, batch_first=True)
    found = placed(states.data, places.data, 12).view(3, 4, 5)
    assert torch.equal(found, wanted)
    upstream = torch.randn_like(wanted)
    ours, torchs = (
        torch.autograd.grad(y, x, upstream, retain_graph=True)[0] for y in (found, wanted)
    )
    assert torch.equal(ours, torchs)
