"""Beam memory compared with one summary per row that is copied at every step."""

import pytest
import torch

from fairseq_docmt.modules.rfa import beam_memory
from fairseq_docmt.modules.rfa.beam_memory import BeamMemory
from fairseq_docmt.modules.rfa.feature_map import FeatureOptions
from fairseq_docmt.modules.rfa.rfa_attention import CausalRFA, SentenceGate
from fairseq_docmt.modules.search_state import split_order
from fairseq_docmt.ops.linear_attention import Summary

HEADS, BSZ, BEAMS, FEATURES, VALUES = 2, 3, 4, 6, 5
#: below all denominators here, whose features are positive: each of them counts
FLOOR = 1e-3


@pytest.fixture(autouse=True)
def few_recent_tokens_and_no_zeros(monkeypatch):
    """Merge often, and make reads of unwritten memory visible."""
    monkeypatch.setattr(beam_memory, "RECENT_TOKENS", 3)
    torch.use_deterministic_algorithms(True)  # fills torch.empty with NaN
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["plain", "kernel"])
def dtype(request, monkeypatch):
    """Tolerance of readings: the kernel uses single precision and other sizes."""
    if request.param == "plain":
        return torch.float64
    request.getfixturevalue("compiled_kernels")
    monkeypatch.setitem(globals(), "FEATURES", 32)
    monkeypatch.setitem(globals(), "VALUES", 16)
    return torch.float32


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


class CopiedMemory:
    """Reference memory: ``S`` and ``z`` of every row, reordered with the rows."""

    def __init__(self, rows):
        self.sums = torch.zeros(HEADS, rows, FEATURES, VALUES, dtype=torch.float64)
        self.norms = torch.zeros(HEADS, rows, FEATURES, dtype=torch.float64)

    def write(self, phi_k, v):
        self.sums = self.sums + phi_k.unsqueeze(-1) * v.unsqueeze(-2)
        self.norms = self.norms + phi_k

    def read(self, phi_q):
        denominator = (phi_q * self.norms).sum(-1, keepdim=True).clamp_min(FLOOR)
        return torch.einsum("hrf,hrfd->hrd", phi_q, self.sums) / denominator

    def decay(self, gate):
        self.sums, self.norms = self.sums * gate[..., None, None], self.norms * gate[..., None]

    def reorder(self, order):
        self.sums, self.norms = self.sums[:, order], self.norms[:, order]


def check_step(memory, copied, gated):
    """Compare one step: write, read, and decay in rows that end a sentence."""
    bsz, beams = memory.bsz, memory.beams
    phi_q, phi_k = (random(HEADS, bsz * beams, FEATURES).abs() for _ in range(2))
    v = random(HEADS, bsz * beams, VALUES)

    def grouped(x):
        return x.unflatten(1, (bsz, beams)).to(memory.rounded.dtype)

    memory = memory.write(grouped(phi_k), grouped(v))
    copied.write(phi_k, v)
    got, want = memory.read(grouped(phi_q), FLOOR).flatten(1, 2), copied.read(phi_q)
    precision = {} if got.dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(got.double(), want, **precision)
    if gated:
        gate = torch.rand(gated, bsz * beams, dtype=torch.float64)
        gate[:, ::2] = 1
        memory = memory.decay(grouped(gate))
        copied.decay(gate)
    return memory


@pytest.mark.parametrize("gated", [0, 1, HEADS], ids=["ungated", "one gate", "gates of heads"])
@pytest.mark.parametrize("after_reading", [False, True])
@torch.no_grad()
def test_memory_equals_copies(gated, after_reading, dtype):
    copied = CopiedMemory(BSZ)
    if after_reading:
        copied.sums, copied.norms = random(*copied.sums.shape), random(*copied.norms.shape).abs()
        summary = Summary(copied.sums, copied.norms)
        summary = Summary(*(x.to(dtype) for x in summary))
        memory = BeamMemory.of(summary, gated, dtype)
    else:
        like = random(HEADS, BSZ, 1, FEATURES).to(dtype)
        memory = BeamMemory.empty(like, VALUES, gated)
    for _ in range(2):
        memory = check_step(memory, copied, gated)
    order = torch.arange(BSZ).repeat_interleave(BEAMS)
    for step in range(20):
        rows = split_order(order, memory.bsz, memory.beams)
        memory = memory.reorder(rows)
        copied.reorder(order)
        memory = check_step(memory, copied, gated)
        if step == 15:  # rows go on alone, in any order
            order = torch.tensor([3, 0, 1, 2, 2])
            continue
        kept = torch.arange(memory.bsz)
        if step in (4, 9):  # a sentence ends, once right after merging
            kept = kept[kept != 1]
        local = torch.randint(memory.beams, (len(kept), memory.beams))
        order = (kept.unsqueeze(1) * memory.beams + local).view(-1)


def test_size_does_not_depend_on_the_number_of_tokens():
    def size(tokens):
        memory = BeamMemory.empty(random(HEADS, BSZ, BEAMS, FEATURES), VALUES, 0)
        for _ in range(tokens):
            phi_k = random(HEADS, BSZ, BEAMS, FEATURES)
            memory = memory.write(phi_k, random(HEADS, BSZ, BEAMS, VALUES))
        return sum(x.numel() for x in memory[:-1])

    assert size(10) == size(100)


def test_half_precision_keeps_its_sums_in_single():
    like = random(HEADS, BSZ, BEAMS, FEATURES).bfloat16()
    memory = BeamMemory.empty(like, VALUES, 0)
    for _ in range(2000):
        memory = memory.write(torch.ones_like(like), torch.ones_like(like[..., :VALUES]))
    assert memory.merged().norms.eq(2000).all()
    assert memory.read(like, FLOOR).dtype == torch.bfloat16


@pytest.mark.parametrize("heads", [1, HEADS])
@torch.no_grad()
def test_gated_sums_stay_in_single_precision(heads, monkeypatch):
    """Also with one head, for summaries and recent tokens, shared and separate."""
    monkeypatch.setattr(beam_memory, "RECENT_TOKENS", 32)
    attention = CausalRFA(
        *(16 * heads, heads, FeatureOptions(8, "sincos", heads, None)),
        SentenceGate(16 * heads, heads, average=False, bias=2.0),
    )
    attention = attention.bfloat16().eval()
    x, nowhere = torch.randn(BSZ, 16 * heads).bfloat16(), torch.zeros(BSZ, 1, dtype=torch.bool)
    _, after_reading = attention(x.unsqueeze(1), need_state=True, separators=nowhere)
    _, after_a_step = attention(x, need_state=True, bsz=BSZ)
    gate = attention.gate.log_gate(x).exp().t()
    for state, weights in ((after_reading, "shares"), (after_a_step, "weights")):
        for _ in range(9):
            _, state = attention(x, None, state, True, separators=~nowhere[:, 0], bsz=BSZ)
        first = getattr(state.memory, weights)[:, :, 0, 0]
        torch.testing.assert_close(first, gate**9)
        for memory in (state.memory, state.memory.merged()):
            assert memory.shares.dtype == torch.float32
