"""Random feature maps of queries and keys (Wu et al. 2022, section 3.1; Peng et al. 2021)."""

from typing import List, NamedTuple, Optional

import torch
from torch import Tensor, nn

from fairseq_docmt.ops import step_kernels
from fairseq_docmt.ops.linear_attention import (
    SHORTEST,
    kernel_scale,
    positive_features,
    sincos_features,
    unit_length,
)

FEATURE_MAPS = ("sincos", "positive")


class FeatureOptions(NamedTuple):
    """Options of random feature attention: feature map, random matrices and denominator.

    Attributes:
        random_vectors: number of random vectors of each head; there are twice as many features.
        feature_map: ``sincos`` or ``positive``.
        pool_size: number of random matrices to draw from in training.
        floor: minimum of the denominator of attention; None for the default of the feature map.
        shared_pool: whether all layers draw their matrices from one :class:`SharedMatrices`.
    """

    random_vectors: int
    feature_map: str
    pool_size: int
    floor: Optional[float]
    shared_pool: bool = False


class SharedMatrices(nn.Module):
    """Pool of random matrices from which all layers draw, as in the authors' code.

    In training, each forward pass draws a different matrix for every head of every layer. Outside
    of training, the first matrices of the pool are used: one for each head of each layer or, with
    ``same``, one for each head, used in all layers.

    Args:
        layers, heads: number of layers, and of attention heads in each.
        head_dim: size of queries and keys of a head.
        options: see :class:`FeatureOptions`.
        same: whether all layers use the same matrices outside of training, as in the authors' code.
    """

    def __init__(
        self, layers: int, heads: int, head_dim: int, options: FeatureOptions, same: bool = False
    ):
        super().__init__()
        self.layers, self.heads, self.same = layers, heads, same
        pool = torch.randn(options.pool_size, head_dim, options.random_vectors)
        self.register_buffer("pool", pool)

    def draw(self) -> List[Tensor]:
        """Return a list with the random matrices of each layer, (H, d, D), for one forward pass.

        H is the number of heads, d the head size and D the number of random vectors.
        """
        if self.same and not self.training:
            return [self.pool[: self.heads]] * self.layers
        chosen = slice(self.layers * self.heads)
        if self.training:
            chosen = torch.randperm(len(self.pool))[chosen].to(self.pool.device)
        return list(self.pool[chosen].unflatten(0, (self.layers, self.heads)))


class RandomFeatureMap(nn.Module):
    """Random feature map for the queries and keys of each attention head.

    Vectors are first scaled to unit length and divided by a learned temperature of the head. The
    dot product of their features estimates, up to a constant factor, the kernel
    ``exp(q . k / temperature^2)`` of unit vectors q and k.

    In training, each forward pass draws a random matrix for every head from a pool; otherwise the
    first matrices of the pool are used. The pool is a buffer, drawn at initialisation and saved in
    checkpoints. If the layers share a pool (:class:`SharedMatrices`), this module has no pool.

    Args:
        heads: number of attention heads.
        head_dim: size of queries and keys of a head.
        options: see :class:`FeatureOptions`.
    """

    def __init__(self, heads: int, head_dim: int, options: FeatureOptions):
        super().__init__()
        self.heads = heads
        self.feature_map = options.feature_map
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        if not options.shared_pool:
            pool = torch.randn(options.pool_size, head_dim, options.random_vectors)
            self.register_buffer("pool", pool)
        #: constant factor of key features
        self.scale = kernel_scale(options.random_vectors, options.feature_map)
        self.floor = options.floor
        if self.floor is None:
            # In the authors' code features have size 0.1 and the floor is 0.1, which is 10 / D
            # here.  Positive features need a floor only against division by zero.
            sincos = options.feature_map == "sincos"
            self.floor = 10 / options.random_vectors if sincos else 1e-6

    def draw(self) -> Tensor:
        """Return the random matrices (H, d, D) for the queries and keys of one forward pass.

        H is the number of heads, d the head size and D the number of random vectors.
        """
        if not self.training:
            return self.pool[: self.heads]
        chosen = torch.randperm(len(self.pool))[: self.heads]
        return self.pool[chosen.to(self.pool.device)]

    def forward(self, x: Tensor, matrices: Tensor) -> Tensor:
        """Compute the (H, R, 2 D) features of R vectors per head.

        Args:
            x: (H, R, d) queries or keys of H heads.
            matrices: (H, d, D) matrices of D random vectors.
        """
        sincos = self.feature_map == "sincos"
        if sincos and step_kernels.can_serve(x, matrices):
            return step_kernels.features(x, matrices, self.temperature, SHORTEST)
        scaled = unit_length(x, self.temperature)
        projected = scaled @ matrices
        if sincos:
            return sincos_features(projected)
        return positive_features(projected, scaled.square().sum(dim=-1, keepdim=True))
