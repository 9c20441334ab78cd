"""Operations written as plain loops: definitions for readers, and references for tests."""

from typing import Optional

import torch
from torch import Tensor

from fairseq_docmt.ops.linear_attention import Summary


def sincos_features(x: Tensor, matrix: Tensor) -> Tensor:
    """Compute the sine and cosine features of one vector.

    Args:
        x: (d,) vector.
        matrix: (D, d) D random vectors.

    Returns:
        (2 D,) features: D sines, then D cosines.
    """
    products = [w @ x for w in matrix]
    features = [p.sin() for p in products] + [p.cos() for p in products]
    return torch.stack(features)


def positive_features(x: Tensor, matrix: Tensor) -> Tensor:
    """Compute the positive features of one vector.

    Args:
        x: (d,) vector.
        matrix: (D, d) D random vectors.

    Returns:
        (2 D,) features, all positive.
    """
    exponents = [sign * (w @ x) - x @ x for sign in (1, -1) for w in matrix]
    return torch.stack(exponents).exp()


def cross_attention(phi_q, phi_k, v, weights, floor: float) -> Tensor:
    """Compute linear attention of each query to all keys, pair by pair.

    Args:
        phi_q, phi_k: (H, B, T, F) and (H, B, S, F) features of queries and keys.
        v: (H, B, S, d) values.
        weights: (H, B, S) weights of the keys.
        floor: minimum of the denominator.

    Returns:
        (H, B, T, d) output.
    """
    output = v.new_zeros(phi_q.shape[:3] + v.shape[3:])
    for h, b, t in _positions(phi_q):
        numerator, denominator = 0.0, v.new_zeros(())
        for s in range(v.size(2)):
            weight = phi_q[h, b, t] @ phi_k[h, b, s] * weights[h, b, s]
            numerator = numerator + weight * v[h, b, s]
            denominator = denominator + weight
        output = _put(output, (h, b, t), numerator / denominator.clamp_min(floor))
    return output


def causal_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    floor: float,
    log_decay: Optional[Tensor] = None,
    before: Optional[Summary] = None,
):
    """Compute the causal attention of Wu et al. (2022), sections 3.1 and 3.2, token by token.

    At token t the sums are updated by ``S_t = f_t S_{t-1} + phi(k_t) v_t``, and likewise the sums
    of key features.  Then the query attends to them.

    Args:
        phi_q, phi_k: (H, B, T, F) features of queries and keys.
        v: (H, B, T, d) values.
        floor: minimum of the denominator.
        log_decay: (H, B, T) logarithms of the gates ``f_t``; default: no gate.
        before: summary of the tokens before the first one; None for zeros.

    Returns:
        (H, B, T, d) output, and the summary of all tokens.
    """
    heads, bsz, length, features = phi_q.shape
    sums = v.new_zeros(heads, bsz, features, v.size(-1))
    norms = v.new_zeros(heads, bsz, features)
    if before is not None:
        sums, norms = before
    outputs = []
    for t in range(length):
        if log_decay is not None:
            gate = log_decay[:, :, t].exp()
            sums, norms = gate[..., None, None] * sums, gate[..., None] * norms
        sums = sums + phi_k[:, :, t, :, None] * v[:, :, t, None, :]
        norms = norms + phi_k[:, :, t]
        numerator = (phi_q[:, :, t, :, None] * sums).sum(dim=2)
        denominator = (phi_q[:, :, t] * norms).sum(dim=2)
        outputs.append(numerator / denominator.clamp_min(floor).unsqueeze(-1))
    return torch.stack(outputs, dim=2), Summary(sums, norms)


def window_attention(q, k, v, centers, size: int, causal=False, key_padding=None, relative=None):
    """Compute window attention (Herold and Ney 2023, equation 1) query by query.

    Args:
        q, k, v: (B, H, I, d) queries, (B, H, J, d) keys and values, for B rows and H heads.
        centers: (B, I) index b_i of the key that query i is aligned to.
        size: number w of visible keys on each side of key b_i.
        causal: whether the keys after key b_i are hidden.
        key_padding: (B, J) True at keys to be ignored.
        relative: (2 w + 1, d) vectors of the distances from -w to w; None without relative
            positions.

    Returns:
        (B, H, I, d) output; zeros for queries that see no key.
    """
    rows = []
    for b, h, i in _positions(q):
        center = int(centers[b, i])
        seen = [
            j
            for j in range(center - size, center + (0 if causal else size) + 1)
            if 0 <= j < k.size(2) and (key_padding is None or not key_padding[b, j])
        ]
        if not seen:
            rows.append(q[b, h, i] * 0)
            continue
        logits = torch.stack([q[b, h, i] @ k[b, h, j] for j in seen])
        if relative is not None:
            logits = logits + relative[[j - center + size for j in seen]] @ q[b, h, i]
        rows.append(logits.softmax(dim=0) @ v[b, h, seen])
    return torch.stack(rows).view(q.shape)


def sentence_positions(positions: Tensor, separators: Tensor, ends: bool) -> Tensor:
    """Convert the positions of tokens in a row to positions in their sentences.

    Args:
        positions: (B, T) position of each token in its row, counted from 1; 0 at padding.
        separators: (B, T) True at ``<sep>``.
        ends: whether ``<sep>`` ends a sentence; otherwise it begins one.

    Returns:
        (B, T) position of each token in its sentence, counted from 1; 0 at padding.
    """
    found = torch.zeros_like(positions)
    for b, row in enumerate(positions.tolist()):
        start = 0  # position before the sentence
        for t, position in enumerate(row):
            if position == 0:
                continue
            if separators[b, t] and not ends:
                start = position - 1
            found[b, t] = position - start
            if separators[b, t] and ends:
                start = position
    return found


def _positions(x: Tensor):
    return [(h, b, t) for h in range(x.size(0)) for b in range(x.size(1)) for t in range(x.size(2))]


def _put(output: Tensor, where, value: Tensor) -> Tensor:
    index = [torch.tensor([i]) for i in where]
    return output.index_put(index, value.unsqueeze(0))


def attentive_gru(from_input, state, keys, gates, padding, weight, bias, energy):
    """Run a GRU that attends to the source states, sentence by sentence and step by step.

    Args:
        from_input: (B, T, a + 3 d) projected inputs: contribution to the attention query (``a``
            units) and to the reset gate, update gate and candidate of the GRU.
        state: (B, d) states before the first step.
        keys: (B, S, a) attention keys of the source states.
        gates: (B, S, 3 d) contribution of the source states to gates and candidate.
        padding: (B, S) True at padding, or None.
        weight, bias: (a + 3 d, d) and (a + 3 d,) projection of the previous state to query and
            gates.
        energy: (a,) output weights of attention.

    Returns:
        (B, T, d) states and (B, T, S) attention weights.
    """
    states, attentions = [], []
    units, size = len(energy), state.size(-1)
    for row in range(len(from_input)):
        s, row_states, row_attentions = state[row], [], []
        for inputs in from_input[row]:
            from_state = weight @ s + bias
            query = inputs[:units] + from_state[:units]
            logits = torch.stack([energy @ torch.tanh(key + query) for key in keys[row]])
            if padding is not None:
                logits = logits.masked_fill(padding[row], -float("inf"))
            attention = logits.softmax(dim=0)
            from_input_gates = inputs[units:] + attention @ gates[row]
            reset, update, new = from_input_gates.split(size)
            s_reset, s_update, s_new = from_state[units:].split(size)
            reset, update = torch.sigmoid(reset + s_reset), torch.sigmoid(update + s_update)
            s = (1 - update) * torch.tanh(new + reset * s_new) + update * s
            row_states.append(s)
            row_attentions.append(attention)
        states.append(torch.stack(row_states))
        attentions.append(torch.stack(row_attentions))
    return torch.stack(states), torch.stack(attentions)


def write_to_cache(slots, tokens, size: int, overwrite: bool):
    """Write the tokens of a sentence to the cache of one document (Tu et al. 2018, section 3.3).

    Args:
        slots: list of (key, value, word), the least recently written first.
        tokens: list of (key, value, word), in the order of the sentence.
        size: maximum number of slots.
        overwrite: whether a word that is already in the cache is averaged into its slot; otherwise
            every token gets a new slot.

    Returns:
        The new list of slots.
    """
    slots = list(slots)
    for key, value, word in tokens:
        known = [slot for slot in slots if overwrite and slot[2] == word]
        if known:
            slots = [slot for slot in slots if slot[2] != word]
            key, value = (known[0][0] + key) / 2, (known[0][1] + value) / 2
        slots.append((key, value, word))
        slots = slots[-size:] if size else []
    return slots


def read_from_cache(slots, query):
    """Read the cache of one document with one query (Tu et al. 2018, section 3.2, equation 5).

    Args:
        slots: list of (key, value, word).
        query: (l,) source context vector, of the same size as the keys.

    Returns:
        Probabilities of the slots, and the mean of their values weighted by these probabilities;
        both are None for an empty cache.
    """
    if not slots:
        return None, None
    weights = torch.stack([query @ key for key, _, _ in slots]).softmax(dim=0)
    return weights, sum(w * value for w, (_, value, _) in zip(weights, slots))


def recall_others(queries, cells, documents):
    """Attend from each sentence to the memory cells of the other sentences of its document.

    Source: Maruf and Haffari (2018), section 4.

    Args:
        queries, cells: (R, d) query and memory cell of each of R sentences.
        documents: (R,) document number of each sentence.

    Returns:
        (R, d) weighted sums of cells; zeros for the only sentence of a document.
    """
    readings = []
    for t, query in enumerate(queries):
        others = [u for u in range(len(cells)) if u != t and documents[u] == documents[t]]
        weights = [(query @ cells[u]).exp() for u in others]
        reading = torch.zeros_like(cells[t])
        for weight, u in zip(weights, others):
            reading = reading + weight / sum(weights) * cells[u]
        readings.append(reading)
    return torch.stack(readings)
