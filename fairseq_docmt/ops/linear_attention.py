"""Random features and linear-time attention over them (Wu et al. 2022, sections 3.1 and 3.2).

Two functions, :func:`sincos_features` and :func:`positive_features`, map vectors to features.  The
dot product of the features of x and y, times :func:`kernel_scale`, estimates the Gaussian kernel
``exp(-|x - y|^2 / 2)``.  For vectors of unit length, this kernel equals ``exp(x . y)`` up to a
factor that cancels in attention.  The scale is applied only to keys: to their features, or to the
weights by which these are multiplied.  This is cheaper than scaling the features of queries too.

Attention: H heads, B batch rows, T queries, S keys, F features, value size D.  Heads come first:
each head has its own random matrices, so that one batched product serves all rows.

    output_t = phi(q_t) . S_t / max(phi(q_t) . z_t, floor)

S_t is the sum of phi(k_s) v_s^T over the keys s that query t sees, and z_t is the sum of phi(k_s)
over the same keys.  The floor keeps the ratio finite and its sign correct where the estimated
kernel is close to zero.
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

    To allow zero vectors, ``SHORTEST`` is added to each length before the division.  Very short
    vectors are therefore scaled to less than this length.
    """
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True) + SHORTEST
    return x / (length * temperature)


def kernel_scale(random_vectors: int, feature_map: str) -> float:
    """Return the factor that turns a dot product of features into an estimate of the kernel.

    Args:
        random_vectors: number of random vectors from which the features were computed.
        feature_map: ``sincos`` or ``positive``.
    """
    return 1 / random_vectors if feature_map == "sincos" else 0.5 / random_vectors


class _SinCos(torch.autograd.Function):
    """Sine and cosine features with a backward pass that needs only the stored output."""

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
        projected: (..., D) dot products of each vector with D standard normal vectors.

    Returns:
        (..., 2 D) features: D sines, then D cosines.
    """
    return _SinCos.apply(projected)


def positive_features(projected: Tensor, squared_length: Tensor) -> Tensor:
    """Compute the positive features of Choromanski et al. (2021), in their hyperbolic form.

    Args:
        projected: (..., D) dot products of each vector with D standard normal vectors.
        squared_length: (..., 1) squared length of each vector.

    Returns:
        (..., 2 D) features, all positive.
    """
    return (torch.cat([projected, -projected], dim=-1) - squared_length).exp()


#: Up to this number of queries, e.g. in a step of beam search, an elementwise product with a sum is
#: faster than a matrix product.
FEW_QUERIES = 16


class Summary(NamedTuple):
    """Sums over keys and values, which are all that linear attention needs to know of them.

    The size of a summary does not depend on the number of keys.

    Attributes:
        sums: (H, B, F, D) sums of outer products of key features and values (``S`` in the paper),
            for H heads, B rows, F features and value size D.
        norms: (H, B, F) sums of key features (``z`` in the paper).
    """

    sums: Tensor
    norms: Tensor


def ratio(numerator: Tensor, denominator: Tensor, floor: float) -> Tensor:
    """Divide the numerators of linear attention by its denominators, which are at least ``floor``.

    Args:
        numerator: (..., D) vectors.
        denominator: (...) denominator of each vector; values below ``floor`` are raised to it.
        floor: minimum of the denominators.

    Returns:
        (..., D) vectors of the data type of ``numerator``.
    """
    denominator = denominator.clamp_min(floor).unsqueeze(-1)
    return (numerator / denominator).to(numerator.dtype)


def denominators(phi_q: Tensor, norms: Tensor) -> Tensor:
    """Compute the denominators of linear attention for each query.

    Args:
        phi_q: (..., T, F) query features.
        norms: (..., F) sums of key features.

    Returns:
        (..., T) dot products.
    """
    if phi_q.size(-2) <= FEW_QUERIES:
        return (phi_q * norms.unsqueeze(-2)).sum(dim=-1)
    return (phi_q @ norms.unsqueeze(-1)).squeeze(-1)


def summarise(phi_k: Tensor, v: Tensor, weights: Tensor) -> Summary:
    """Sum keys and values into the :class:`Summary` to which queries attend.

    Args:
        phi_k: (H, B, S, F) key features.
        v: (H, B, S, D) values.
        weights: (H, B, S) weight of each key in the sums.
    """
    weights = weights.unsqueeze(-1)
    features = phi_k.transpose(-1, -2)
    return Summary(features @ (v * weights), (features @ weights).squeeze(-1))


def for_few_queries(sums: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert sums (..., F, D) to ``dtype`` and to the memory layout fastest for few queries.

    The layout is row-major, as the compiled kernels require.  Only in half precision on a CPU
    without these kernels is it column-major, which is about a third faster, because oneDNN need not
    reorder the rows.
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
    """Attend from queries directly to keys, which is cheaper than a summary if there are few keys.

    The result equals :func:`attend_summary` with the :class:`Summary` of these keys.

    Args:
        phi_q: (H, B, T, F) query features.
        phi_k: (H, B, S, F) key features.
        v: (H, B, S, D) values.
        weights: (H, B, S) weight of each key.
        floor: minimum of the denominator.

    Returns:
        (H, B, T, D) output.
    """
    scores = (phi_q @ phi_k.transpose(-1, -2)) * weights.unsqueeze(-2)
    return ratio(scores @ v, scores.sum(dim=-1), floor)


def summary_pays(keys: int, queries: Optional[int], features: int, values: int) -> bool:
    """Return whether summarising the keys first is cheaper than attending to them directly.

    Args:
        keys: number of keys.
        queries: number of queries.  None if they come one at a time; then the memory that each
            query reads is compared, otherwise the number of multiplications.
        features: number of features of a key.
        values: size of its value.
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
    """Compute linear attention of each token to itself and all previous tokens.

    The tokens are processed in chunks.  Within a chunk, the products of queries and keys are
    masked; earlier chunks are read from a summary.  Time and memory grow linearly with the length.
    Products of gates are computed as exponentials of differences of cumulative log gates.  These
    differences are at most 0, so nothing overflows.

    Args:
        phi_q: (H, B, T, F) query features.
        phi_k: (H, B, T, F) key features, zero at padding.  If the gate also gives a weight to each
            token, the features must already be multiplied by it.
        v: (H, B, T, D) values.
        floor: minimum of the denominator.
        log_decay: (H, B, T) logarithm of the gate ``f_t``, by which the sums over all tokens before
            t are multiplied; None for no gate.
        before: summary of the tokens before the first one; None if there are none.
        need_summary: whether to return the summary of all tokens too, at a small cost.
        chunk_size: number of tokens in a chunk.

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
    """Split (H, B, T, F) into chunks of tokens, (H, B, chunks, tokens, F), padded with zeros."""
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
    """Return the summaries of the tokens before each chunk, and the summary after the last chunk.

    Args:
        k, v: (H, B, N, C, F) key features and (H, B, N, C, D) values of N chunks of C tokens.
        total: (H, B, N, C) log of the product of the gates from the first token of a chunk to each
            of its tokens; None for no gate.
        before: summary before the first chunk; None for zeros.
        need_last: whether to compute the summary after the last chunk.

    Returns:
        The summaries before the N chunks, stacked to (H, B, N, F, D) sums and (H, B, N, F) norms;
        and the summary after the last chunk, None without ``need_last``.
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
