"""Sentential gates against the recurrence of section 3.2, token by token."""

import torch

from fairseq_docmt.modules.rfa.rfa_attention import SentenceGate

SEPARATORS = torch.tensor([[0, 0, 1, 0, 0, 1, 1, 0, 0], [0] * 9, [1, 0, 0, 0, 0, 0, 0, 0, 1]])


def loop(gate, x, separators):
    """(log f_t, weight) before each token and before the token after the last."""
    decays, weights = [0.0], [1.0]
    for representation, is_separator in zip(x, separators):
        opening = torch.sigmoid(gate.linear(representation))[0]
        decays.append(float(opening.log()) if is_separator else 0.0)
        weights.append(float(1 - opening) if is_separator else weights[-1])
    return decays, weights


def test_gates_of_whole_sequences():
    gate = SentenceGate(4, 1, average=True, bias=0.3).double()
    x = torch.randn(3, 9, 4, dtype=torch.float64)
    with torch.no_grad():
        got = gate(x, SEPARATORS.bool())
    for row in range(3):
        decays, weights = loop(gate, x[row], SEPARATORS[row])
        torch.testing.assert_close(got.log_decay[0, row].tolist(), decays, atol=1e-12, rtol=1e-12)
        torch.testing.assert_close(
            got.token_weight[0, row].tolist(), weights, atol=1e-12, rtol=1e-12
        )


def test_decay_alone_weights_no_token_and_starts_at_its_bias():
    gate = SentenceGate(4, 2, average=False, bias=2.0)
    result = gate(torch.zeros(3, 9, 4), SEPARATORS.bool())
    assert result.token_weight is None
    opening = result.log_decay.exp()[:, 0, 3]
    torch.testing.assert_close(opening, torch.full((2,), 2.0).sigmoid())


def test_a_very_closed_gate_stays_finite():
    gate = SentenceGate(4, 1, average=True, bias=-500.0)
    result = gate(torch.zeros(3, 9, 4), SEPARATORS.bool())
    assert result.log_decay.isfinite().all() and result.token_weight.isfinite().all()
