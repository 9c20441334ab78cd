"""Random feature maps: vectors whose dot product estimates a kernel.

For vectors of about unit length both maps here estimate the Gaussian kernel
``exp(-|x - y|^2 / 2)``, which is ``exp(x . y)`` up to a factor that cancels in attention.
"""

import torch
from torch import Tensor


def unit_length(x: Tensor) -> Tensor:
    """Vectors (..., d) scaled to length 1, very short ones to less (Wu et al. 2022, their code)."""
    return x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 1e-3)


def sincos_features(projected: Tensor) -> Tensor:
    """Rahimi and Recht (2008), as used by Peng et al. (2021).

    Args:
        projected: (..., D) products of a vector with D standard normal vectors.

    Returns:
        (..., 2 D) features.
    """
    scale = projected.size(-1) ** -0.5
    return torch.cat([projected.sin(), projected.cos()], dim=-1) * scale


def positive_features(projected: Tensor, squared_length: Tensor) -> Tensor:
    """Positive features of Choromanski et al. (2021), in their hyperbolic form.

    Args:
        projected: (..., D) products of a vector with D standard normal vectors.
        squared_length: (..., 1) squared length of that vector.

    Returns:
        (..., 2 D) features, all positive.
    """
    scale = (2 * projected.size(-1)) ** -0.5
    both = torch.cat([projected, -projected], dim=-1)
    return (both - squared_length).exp() * scale
