"""Random matrices: drawn again in training, fixed in evaluation, stored in the checkpoint."""

import pytest
import torch

from fairseq_docmt.modules.rfa.feature_map import FeatureOptions, RandomFeatureMap

OPTIONS = FeatureOptions(random_vectors=5, feature_map="sincos", pool_size=12, floor=None)


def test_training_draws_and_evaluation_does_not():
    features = RandomFeatureMap(3, 4, OPTIONS)
    first, second = features.draw(), features.draw()
    assert first.shape == (3, 4, 5) and not torch.equal(first, second)
    features.eval()
    assert torch.equal(features.draw(), features.draw())
    assert torch.equal(features.draw(), features.state_dict()["pool"][:3])


def test_a_draw_has_no_matrix_twice_and_follows_the_seed():
    features = RandomFeatureMap(12, 4, OPTIONS)
    torch.manual_seed(3)
    first = features.draw()
    assert len({tuple(matrix.flatten().tolist()) for matrix in first}) == 12
    torch.manual_seed(3)
    assert torch.equal(features.draw(), first)


@pytest.mark.parametrize("kind, floor", [("sincos", 2.0), ("positive", 1e-6)])
def test_default_floor(kind, floor):
    assert RandomFeatureMap(3, 4, OPTIONS._replace(feature_map=kind)).floor == floor
    assert RandomFeatureMap(3, 4, OPTIONS._replace(floor=0.5)).floor == 0.5


@pytest.mark.parametrize("kind", ["sincos", "positive"])
def test_attention_approaches_softmax(kind):
    """With many random vectors, attention approaches softmax of cosine / temperature^2."""
    options = OPTIONS._replace(random_vectors=60_000, feature_map=kind, pool_size=2)
    features = RandomFeatureMap(2, 8, options).eval()
    features.temperature.data.fill_(0.9)
    q, k = torch.randn(2, 6, 8), torch.randn(2, 9, 8)
    matrices = features.draw()
    kernel = features(q, matrices) @ features(k, matrices).transpose(1, 2)
    cosines = torch.nn.functional.normalize(q, dim=-1) @ torch.nn.functional.normalize(
        k, dim=-1
    ).transpose(1, 2)
    want = (cosines / 0.9**2).softmax(-1)
    torch.testing.assert_close(kernel / kernel.sum(-1, keepdim=True), want, atol=0.02, rtol=0)
