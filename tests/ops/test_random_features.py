"""Feature maps against their definition and against the kernel they estimate."""

import torch

from fairseq_docmt.ops import naive, random_features


def test_features_equal_the_loop():
    x, matrix = torch.randn(7, dtype=torch.float64), torch.randn(4, 7, dtype=torch.float64)
    projected, squared = matrix @ x, (x @ x).view(1)
    torch.testing.assert_close(
        random_features.sincos_features(projected), naive.sincos_features(x, matrix)
    )
    torch.testing.assert_close(
        random_features.positive_features(projected, squared), naive.positive_features(x, matrix)
    )


def test_gradient_of_sincos():
    projected = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(random_features.sincos_features, projected)


def test_both_maps_estimate_the_gaussian_kernel():
    pairs = random_features.unit_length(torch.randn(20, 2, 8, dtype=torch.float64))
    x, y = pairs[:, 0], pairs[:, 1]
    matrix = torch.randn(200_000, 8, dtype=torch.float64)
    want = (-(x - y).square().sum(-1) / 2).exp()

    def estimate(features, kind):
        scale = random_features.kernel_scale(len(matrix), kind)
        return (features(x) * features(y)).sum(-1) * scale

    def positive(vectors):
        squared = vectors.square().sum(-1, keepdim=True)
        return random_features.positive_features(vectors @ matrix.T, squared)

    sincos = estimate(lambda vectors: random_features.sincos_features(vectors @ matrix.T), "sincos")
    torch.testing.assert_close(sincos, want, atol=0.02, rtol=0)
    torch.testing.assert_close(estimate(positive, "positive"), want, atol=0.02, rtol=0)


def test_unit_length_of_zero_is_zero():
    assert torch.equal(random_features.unit_length(torch.zeros(3)), torch.zeros(3))
