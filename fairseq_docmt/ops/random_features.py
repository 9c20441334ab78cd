"""Random feature maps: vectors whose dot product estimates a kernel.

For vectors of about unit length both maps estimate the Gaussian kernel ``exp(-|x - y|^2 / 2)``,
which equals ``exp(x . y)`` up to a factor that cancels in attention.  With D random vectors the
estimate is the dot product of features times :func:`kernel_scale`.  The factor is applied to the
weights of the keys, which is cheaper than scaling all features.
"""

from typing import Union

import torch
from torch import Tensor

#: Added to the length of vectors, so that the zero vector can be normalised.
SHORTEST = 1e-3


def unit_length(x: Tensor, temperature: Union[Tensor, float] = 1.0) -> Tensor:
    """Scale vectors (..., d) to length 1 / temperature; very short ones become shorter than that.

    As in the code of Wu et al. (2022).
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True) + SHORTEST
    return x / (length * temperature)


def kernel_scale(random_vectors: int, feature_map: str) -> float:
    """Return the factor between a dot product of features and the estimated kernel."""
    return 1 / random_vectors if feature_map == "sincos" else 0.5 / random_vectors


class _SinCos(torch.autograd.Function):
    """Sine and cosine; saves only their output, which attention keeps anyway, for gradients."""

    @staticmethod
    def forward(ctx, projected):
        features = torch.cat([projected.sin(), projected.cos()], dim=-1)
        ctx.save_for_backward(features)
        return features

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        sine, cosine = ctx.saved_tensors[0].chunk(2, dim=-1)
        of_sine, of_cosine = gradient.chunk(2, dim=-1)
        return torch.addcmul(of_sine * cosine, of_cosine, sine, value=-1)


def sincos_features(projected: Tensor) -> Tensor:
    """Compute the features of Rahimi and Recht (2008), as used by Peng et al. (2021).

    Args:
        projected: (..., D) products of a vector with D standard normal vectors.

    Returns:
        (..., 2 D) features.
    """
    return _SinCos.apply(projected)


def positive_features(projected: Tensor, squared_length: Tensor) -> Tensor:
    """Compute the positive features of Choromanski et al. (2021), in their hyperbolic form.

    Args:
        projected: (..., D) products of a vector with D standard normal vectors.
        squared_length: (..., 1) squared length of that vector.

    Returns:
        (..., 2 D) features, all positive.
    """
    return (torch.cat([projected, -projected], dim=-1) - squared_length).exp()
