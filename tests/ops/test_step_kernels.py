"""Compiled kernels against the plain versions in double precision."""

import pytest
import torch

from fairseq_docmt.modules.rfa.beam_memory import BeamMemory
from fairseq_docmt.ops import step_kernels
from fairseq_docmt.ops.linear_attention import (
    SHORTEST,
    Summary,
    attend_summary,
    sincos_features,
    unit_length,
)

pytestmark = pytest.mark.usefixtures("compiled_kernels")
HEADS, BSZ, FLOOR = 2, 3, 0.5
#: bfloat16 rounds what is stored, and nothing in between
PRECISION = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2**-8, "atol": 1e-5},
}


@pytest.fixture(params=PRECISION, ids=["float32", "bfloat16"])
def dtype(request):
    return request.param


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def check(got, want):
    torch.testing.assert_close(got.double(), want, **PRECISION[got.dtype])


def double(*tensors):
    return [x.double() for x in tensors]


@pytest.mark.parametrize("rows", [1, 4, 7, 33])
@pytest.mark.parametrize("vectors, size", [(16, 16), (80, 48)])
def test_features(rows, vectors, size, dtype):
    """With heads side by side in memory, as after a projection; also for zero vectors."""
    x = torch.randn(rows, HEADS, size).to(dtype).transpose(0, 1)
    x[0, 0] = 0
    matrices = torch.randn(HEADS, size, vectors).to(dtype)
    temperatures = (torch.rand(HEADS, 1, 1) + 0.5).to(dtype)
    assert step_kernels.can_serve(x, matrices)
    want = sincos_features(unit_length(*double(x, temperatures)) @ matrices.double())
    check(step_kernels.features(x, matrices, temperatures, SHORTEST), want)


def test_features_of_large_angles():
    angles = torch.cat([torch.linspace(-1e4, 1e4, 4000), torch.linspace(-9, 9, 4000)])
    matrices = torch.zeros(1, 16, 8000)
    matrices[:, 0] = angles
    x = torch.zeros(1, 1, 16)
    x[..., 0] = 1
    got = step_kernels.features(x, matrices, torch.ones(1, 1, 1), 0.0)
    check(got, sincos_features(angles.double())[None, None])


@pytest.mark.parametrize("beams", [1, 4, 5, 16])
@pytest.mark.parametrize("features, values", [(16, 16), (48, 64), (32, 80)])
def test_attention_to_a_summary(beams, features, values, dtype):
    queries = torch.randn(HEADS, BSZ, beams, features).to(dtype)
    sums = torch.randn(HEADS, BSZ, features, values).to(dtype)
    norms = torch.randn(HEADS, BSZ, features).to(dtype)
    want = attend_summary(*double(queries), Summary(*double(sums, norms)), FLOOR)
    check(step_kernels.attend(queries, sums, norms, FLOOR), want)
    check(attend_summary(queries, Summary(sums, norms), FLOOR), want)


@pytest.mark.parametrize("weight_heads", [1, HEADS])
@pytest.mark.parametrize("summaries, used", [(0, 1), (1, 12), (5, 7)])
def test_memory_of_beams(summaries, used, weight_heads, dtype):
    """With any shares and weights, some of them zero; unused buffer columns have no effect."""
    beams, features, values, room = 5, 32, 48, 12

    def draw(*shape, kind=dtype):
        return torch.randn(*shape).to(kind)

    # Weights of heads that forget are in single precision.
    kind = torch.float32 if weight_heads > 1 else dtype
    shares = draw(weight_heads, BSZ, beams, summaries, kind=kind).relu()
    weights = draw(weight_heads, BSZ, beams, room, kind=kind).relu()
    sums = draw(HEADS, BSZ, summaries, features, values)
    norms = draw(HEADS, BSZ, summaries, features)
    keys, recent = draw(HEADS, BSZ, room, features), draw(HEADS, BSZ, room, values)
    for x in (keys, recent):
        x[:, :, used:] = float("nan")
    queries = draw(HEADS, BSZ, beams, features)

    def read(q, sums, norms, shares, *tokens):
        rounded = (sums.flatten(2, 3), norms.flatten(2))
        return BeamMemory(sums, norms, shares, *rounded, *tokens, used).read(q, FLOOR)

    parts = (queries, sums, norms, shares, keys, recent, weights)
    check(read(*parts), read(*double(*parts)))


def test_nan_stays_nan(dtype):
    x = torch.full((HEADS, 3, 16), float("nan"), dtype=dtype)
    matrices, ones = torch.ones(HEADS, 16, 16, dtype=dtype), torch.ones(HEADS, 1, 1, dtype=dtype)
    assert step_kernels.features(x, matrices, ones, SHORTEST).isnan().all()
    queries, sums = x.unsqueeze(1), x[:, None, :1].expand(-1, -1, 16, -1).contiguous()
    assert step_kernels.attend(queries, sums, sums[..., 0].contiguous(), FLOOR).isnan().all()


def test_supported_tensors(monkeypatch):
    x = torch.zeros(2, 32)
    assert step_kernels.can_serve(x, x.clone())
    assert not step_kernels.can_serve(x, x.bfloat16())
    assert not step_kernels.can_serve(x.double())
    assert not step_kernels.can_serve(x.half())
    assert not step_kernels.can_serve(x.to("meta"))
    assert not step_kernels.can_serve(x[:, :20])
    with torch.enable_grad():
        assert not step_kernels.can_serve(x)
    monkeypatch.setattr(step_kernels, "_LIBRARY", None)
    assert not step_kernels.can_serve(x)


def test_scattered_memory_is_refused():
    queries, norms = torch.zeros(HEADS, BSZ, 4, 16), torch.zeros(HEADS, BSZ, 16)
    sums = torch.zeros(HEADS, BSZ, 32, 16).transpose(-1, -2)
    with pytest.raises(ValueError, match="contiguous"):
        step_kernels.attend(queries, sums, norms, FLOOR)


def test_a_library_of_another_source_is_not_used(monkeypatch, tmp_path, caplog):
    assert step_kernels._load() is not None
    other = tmp_path / "step_kernels.cpp"
    other.write_text("changed")
    monkeypatch.setattr(step_kernels, "SOURCE", other)
    assert step_kernels._load() is None
    assert "step_kernels.cpp has changed; reinstall fairseq_docmt" in caplog.text
