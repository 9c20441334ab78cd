"""Random features and linear-time attention over them (Wu et al. 2022, sections 3.1 and 3.2).

Two feature maps, :func:`sincos_features` and :func:`positive_features`, make vectors whose dot
product, times :func:`kernel_scale`, estimates the Gaussian kernel ``exp(-|x - y|^2 / 2)``.  For
vectors of unit length, the kernel equals ``exp(x . y)`` up to a factor that cancels in attention.
The scale is applied to the weights of the keys, which is cheaper than scaling all features.

Attention: H heads, B batch rows, T queries, S keys, F features, value size D.  Heads come first:
each head has its own random matrices, so that one batched product serves all rows.

    output_t = phi(q_t) . S_t / max(phi(q_t) . z_t, floor)

S_t is the sum of phi(k_s) v_s^T, and z_t that of phi(k_s), over the keys s that query t sees.  The
floor keeps the ratio finite and its sign correct where the estimated kernel is close to zero.
"""

from typing import NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor

from fairseq_docmt.ops import step_kernels
from fairseq_docmt.ops.precision import at_least_single

#: Added to the length of vectors, so that the zero vector can be normalised.
SHORTEST = 1e-3


def unit_length(x: Tensor, temperature: Union[Tensor, float] = 1.0) -> Tensor:
    """Scale vectors (..., d) to length 1 / temperature, as in the code of Wu et al. (2022).

    ``SHORTEST`` is added to each length before the division, so that very short vectors come out
    shorter.
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True) + SHORTEST
    return x / (length * temperature)


def kernel_scale(random_vectors: int, feature_map: str) -> float:
    """Return the factor that turns a dot product of features into the kernel estimate."""
    return 1 / random_vectors if feature_map == "sincos" else 0.5 / random_vectors


class _SinCos(torch.autograd.Function):
    """Sine and cosine features; the backward pass needs only the output, which is stored anyway."""

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
    """Compute the sine and cosine features of Rahimi and Recht (2008), as Peng et al. (2021) do.

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


#: Up to this number of queries, e.g. in a step of beam search, an elementwise product with a sum is
#: faster than a matrix product.
FEW_QUERIES = 16


class Summary(NamedTuple):
    """Sums over all keys and values, of a size that is independent of their number.

    Attributes:
        sums: (H, B, F, D) sums of outer products of key features and values (``S`` in the paper),
            for H heads, B rows, F features and value size D.
        norms: (H, B, F) sums of key features (``z`` in the paper).
    """

    sums: Tensor
    norms: Tensor


def ratio(numerator: Tensor, denominator: Tensor, floor: float) -> Tensor:
    """Divide vectors (..., D) by denominators (...), which are raised to ``floor`` if smaller.

    The result has the data type of ``numerator``.
    """
    denominator = denominator.clamp_min(floor).unsqueeze(-1)
    return (numerator / denominator).to(numerator.dtype)


def denominators(phi_q: Tensor, norms: Tensor) -> Tensor:
    """Multiply query features (..., T, F) by summed key features (..., F); return (..., T)."""
    if phi_q.size(-2) <= FEW_QUERIES:
        return (phi_q * norms.unsqueeze(-2)).sum(dim=-1)
    return (phi_q @ norms.unsqueeze(-1)).squeeze(-1)


def summarise(phi_k: Tensor, v: Tensor, weights: Tensor) -> Summary:
    """Return the weighted sums of linear attention over keys, as a :class:`Summary`.

    Args:
        phi_k: (H, B, S, F) key features.
        v: (H, B, S, D) values.
        weights: (H, B, S) weight of each key.
    """
    weights = weights.unsqueeze(-1)
    features = phi_k.transpose(-1, -2)
    return Summary(features @ (v * weights), (features @ weights).squeeze(-1))


def for_few_queries(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert sums (..., F, D) to ``dtype`` and to the memory layout fastest for few queries.

    In half precision on a CPU, column-major sums are about a third faster, because oneDNN need not
    reorder their rows.  The compiled kernels, if there are any, need row-major sums.
    """
    in_half = sums.device.type == "cpu" and dtype in (torch.float16, torch.bfloat16)
    if not in_half or step_kernels.is_compiled():
        return sums.to(dtype).contiguous()
    columns = sums.transpose(-1, -2)
    return torch.empty(columns.shape, dtype=dtype).copy_(columns).transpose(-1, -2)


def attend_summary(phi_q: Tensor, summary: Summary, floor: float) -> Tensor:
    """Attend from query features (H, B, T, F) to all summarised keys; return (H, B, T, D)."""
    few = phi_q.size(-2) <= FEW_QUERIES and summary.sums.is_contiguous()
    if few and step_kernels.can_serve(phi_q, *summary):
        norms = summary.norms.contiguous()
        return step_kernels.attend(phi_q.contiguous(), summary.sums, norms, floor)
    return ratio(phi_q @ summary.sums, denominators(phi_q, summary.norms), floor)


def attend_keys(phi_q: Tensor, phi_k: Tensor, v: Tensor, weights: Tensor, floor: float) -> Tensor:
    """Compute :func:`attend_summary` directly from keys and values: cheaper for few keys."""
    scores = (phi_q @ phi_k.transpose(-1, -2)) * weights.unsqueeze(-2)
    return ratio(scores @ v, scores.sum(dim=-1), floor)


def summary_pays(keys: int, queries: Optional[int], features: int, values: int) -> bool:
    """Return whether summarising the keys first is cheaper than attending to them directly.

    Args:
        keys: number of keys.
        queries: number of queries; None if they come one at a time, in which case the cost is the
            memory read for each query.
        features, values: size F of the features of a key, and size D of its value.
    """
    if queries is None:
        return keys * (features + values) >= features * values
    return keys * queries * (features + values) >= (keys + queries) * features * values


def causal_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    floor: float,
    log_decay: Optional[Tensor] = None,
    before: Optional[Summary] = None,
    need_summary: bool = False,
    chunk_size: int = 128,
) -> Tuple[Tensor, Optional[Summary]]:
    """Compute attention of each token to itself and all previous tokens.

    Within a chunk, products of queries and keys are masked; between chunks, a summary is passed on.
    Time and memory grow linearly with the length.  Decays are products of gates, computed from
    differences of cumulative log gates; these differences are at most 0, so nothing overflows.

    Args:
        phi_q, phi_k: (H, B, T, F) features of queries, and of keys times the gate's weights of the
            tokens, if any; zero at padding.
        v: (H, B, T, D) values.
        floor: minimum of the denominator.
        log_decay: (H, B, T) logarithm of the gate ``f_t``, which decays everything before token t;
            None for no decay.
        before: summary of the tokens before the first one.
        need_summary: also return the summary of all tokens, at a small cost.
        chunk_size: tokens in a chunk.

    Returns:
        (H, B, T, D) output, and the summary of all tokens or, without ``need_summary``, None.
    """
    length = v.size(-2)
    chunk = min(chunk_size, length)
    q, k, v = (_in_chunks(x, chunk) for x in (phi_q, phi_k, v))
    total = None  # (H, B, N, C) log of the decay from before a chunk to each of its tokens
    if log_decay is not None:
        # In half precision a cumulative sum would lose small gates.
        log_decay = log_decay.to(at_least_single(log_decay.dtype))
        total = _in_chunks(log_decay.unsqueeze(-1), chunk).squeeze(-1).cumsum(dim=-1)
    scores = _masked_scores(q, k, total)
    numerator, denominator = scores @ v, scores.sum(dim=-1)
    summary = None
    if before is not None or need_summary or q.size(2) > 1:
        earlier, summary = _summaries(k, v, total, before, need_summary)
        reach = q if total is None else q * total.exp().unsqueeze(-1).to(q.dtype)
        numerator = numerator + reach @ earlier.sums.to(q.dtype)
        norms = earlier.norms.to(q.dtype).unsqueeze(-1)
        denominator = denominator + (reach @ norms).squeeze(-1)
    output = ratio(numerator, denominator, floor)
    return output.flatten(2, 3)[:, :, :length], summary


def _in_chunks(x: Tensor, chunk: int) -> Tensor:
    """Split the T tokens of (H, B, T, F) into chunks, zero-padded: (H, B, chunks, tokens, F)."""
    missing = -x.size(2) % chunk
    if missing > 0:
        x = torch.nn.functional.pad(x, (0, 0, 0, missing))
    return x.unflatten(2, (-1, chunk))


def _masked_scores(q: Tensor, k: Tensor, total: Optional[Tensor]) -> Tensor:
    scores = q @ k.transpose(-1, -2)
    if total is None:
        return scores.tril()
    chunk = q.size(-2)
    future = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    exponent = total.unsqueeze(-1) - total.unsqueeze(-2)
    return scores * exponent.masked_fill(future, -float("inf")).exp().to(scores.dtype)


def _summaries(
    k: Tensor, v: Tensor, total: Optional[Tensor], before: Optional[Summary], need_last: bool
) -> Tuple[Summary, Optional[Summary]]:
    """Return the summaries before each chunk, stacked, and the summary after the last chunk.

    Args:
        k, v: (H, B, N, C, F) key features and (H, B, N, C, D) values of N chunks of C tokens.
        total: (H, B, N, C) log of the product of the gates from the first token of a chunk to each
            of its tokens; None for no decay.
        before: summary before the first chunk; None for zeros.
        need_last: whether to compute the summary after the last chunk; if not, it is None.
    """
    exact = at_least_single(k.dtype)
    if total is not None:
        k = k * (total[..., -1:] - total).exp().unsqueeze(-1).to(k.dtype)
    # The summary after the last chunk is rarely needed.
    last = k.size(2) if need_last else k.size(2) - 1
    sums = (k[:, :, :last].transpose(-1, -2) @ v[:, :, :last]).to(exact).unbind(2)
    norms = k[:, :, :last].sum(dim=-2).to(exact).unbind(2)
    if before is None:
        shape = k.shape[:2] + (k.size(-1), v.size(-1))
        before = Summary(k.new_zeros(shape, dtype=exact), k.new_zeros(shape[:3], dtype=exact))
    states = [Summary(before.sums.to(exact), before.norms.to(exact))]
    for n in range(last):
        decay = 1.0 if total is None else total[:, :, n, -1].exp()[..., None]
        decayed = states[-1].norms * decay
        decay = decay if total is None else decay.unsqueeze(-1)
        states.append(Summary(states[-1].sums * decay + sums[n], decayed + norms[n]))
    summary = states.pop() if need_last else None
    return Summary(*(torch.stack(parts, dim=2) for parts in zip(*states))), summary
