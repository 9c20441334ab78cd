"""RNNSearch with memory networks (Maruf and Haffari 2018) as loops, word by word.

Written from the equations of the paper, whose section numbers are given.  What it leaves open:
units are GRUs (section 5); the decoder begins with ``tanh(W h_1)`` of the first backward state, its
attention knows the last word, and it may have further layers above the one that attends, as the
``rnnsearch`` of the package.  Nothing here calls the package; parameters are read by their names.
"""

from typing import Dict, List, NamedTuple, Tuple

import torch
from torch import Tensor

EOS = 2


def values_of(model) -> Dict[str, Tensor]:
    """Return leaf copies of the parameters of a model by name, and its buffers."""
    values = {
        name: parameter.detach().clone().requires_grad_(parameter.requires_grad)
        for name, parameter in model.named_parameters()
    }
    return {**values, **dict(model.named_buffers())}


def linear(p, name: str, x: Tensor) -> Tensor:
    product = p[f"{name}.weight"] @ x
    return product + p[f"{name}.bias"] if f"{name}.bias" in p else product


def softmax(scores: List[Tensor]) -> List[Tensor]:
    e = [(score - max(s.item() for s in scores)).exp() for score in scores]
    return [x / sum(e) for x in e]


def gru(from_input: Tensor, from_state: Tensor, state: Tensor) -> Tensor:
    """A step of a GRU, given what input and state add to reset gate, update gate, candidate."""
    (ri, zi, ni), (rs, zs, ns) = from_input.chunk(3), from_state.chunk(3)
    reset, update = torch.sigmoid(ri + rs), torch.sigmoid(zi + zs)
    return (1 - update) * torch.tanh(ni + reset * ns) + update * state


def run_gru(p, name: str, inputs: List[Tensor], state: Tensor, end: str = "l0") -> List[Tensor]:
    """States after each input."""
    w_i, w_h, b_i, b_h = (
        p[f"{name}.{part}_{end}"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    states = []
    for x in inputs:
        state = gru(w_i @ x + b_i, w_h @ state + b_h, state)
        states.append(state)
    return states


def bidirectional(p, name: str, inputs: List[Tensor], layer: int) -> Tuple[list, list]:
    """States of both directions at each input, each of which begins with zeros."""
    zeros = inputs[0].new_zeros(p[f"{name}.weight_hh_l{layer}"].size(1))
    forward = run_gru(p, name, inputs, zeros, f"l{layer}")
    backward = run_gru(p, name, inputs[::-1], zeros, f"l{layer}_reverse")[::-1]
    return forward, backward


class Encoded(NamedTuple):
    """A source sentence: ``h_i = [forward_i; backward_i]``, and the state that has read it all.

    Attributes:
        states: h_i of each word.
        summary: last forward and first backward state, the h_t of section 4.
    """

    states: List[Tensor]
    summary: Tensor


def encode(p, source: Tensor) -> Encoded:
    """Section 2.1, encoder."""
    x, layer = [p["encoder.embed_tokens.weight"][word] for word in source], 0
    while f"encoder.gru.weight_ih_l{layer}" in p:
        forward, backward = bidirectional(p, "encoder.gru", x, layer)
        x = [torch.cat(pair) for pair in zip(forward, backward)]
        layer += 1
    return Encoded(x, torch.cat([forward[-1], backward[0]]))


def decode(p, encoded: Encoded, previous: Tensor, c_mem=None, place: str = "context"):
    """Logits of each word, and the states of the top layer (sections 2.1 and 4).

    Args:
        previous: words that are read, ``</s>`` first.
        c_mem: ``[c^src; c^trg]`` of the sentence, None for the decoder of section 2.1.
        place: ``context`` (Memory-to-Context) or ``output`` (Memory-to-Output).
    """
    w_mem = p.get("decoder.of_memory.weight")
    name, units = "decoder.attending", p["decoder.attending.energy"].numel()
    size = p["decoder.attending.state_proj.weight"].size(1)
    _, first_backward = encoded.summary.chunk(2)
    first, *above = torch.tanh(linear(p, "decoder.initial", first_backward)).split(size)
    logits, tops, state = [], [], first
    for word in previous:
        e = p["decoder.embed_tokens.weight"][word]
        from_word, from_state = (
            linear(p, f"{name}.input_proj", e),
            linear(p, f"{name}.state_proj", state),
        )
        # a_ji = v . tanh(W_ae h_i + W_at s_{j-1}), here with the last word
        query = from_word[:units] + from_state[:units]
        energies = [
            p[f"{name}.energy"] @ torch.tanh(linear(p, f"{name}.key_proj", h) + query)
            for h in encoded.states
        ]
        c = sum(alpha * h for alpha, h in zip(softmax(energies), encoded.states))
        gates = from_word[units:] + linear(p, f"{name}.source_gates", c)
        if c_mem is not None and place == "context":  # + W_sm c^src + W_st c^trg
            gates = gates + w_mem @ c_mem
        state = top = gru(gates, from_state[units:], state)
        for layer in range(len(above)):
            (top,) = run_gru(p, "decoder.upper", [top], above[layer], f"l{layer}")
            above[layer] = top
        # r_j = tanh(s_j + W_rc c_j + W_rj E_T[y_{j-1}]), here s_j with a matrix too
        r = torch.tanh(linear(p, "decoder.readout", torch.cat([top, e, c])))
        output = p["decoder.output_projection.weight"] @ r
        if c_mem is not None and place == "output":  # + W_ym c^src + W_yt c^trg
            output = output + w_mem @ c_mem
        logits.append(output)
        tops.append(top)
    return torch.stack(logits), tops


# ---- memories (section 4) -----------------------------------------------------------------------


def read_memory(cells: List[Tensor], query: Tensor, own: int) -> Tensor:
    """``MemNet(M, q) = sum_k p_k m_k``, ``p = softmax(q^T M)`` (2.2), without sentence t itself."""
    others = [cell for number, cell in enumerate(cells) if number != own]
    if not others:
        return torch.zeros_like(cells[own])
    return sum(p * cell for p, cell in zip(softmax([query @ cell for cell in others]), others))


def language_model(p, direction: int, words: Tensor) -> Tensor:
    """Last state of an LSTM language model that has read ``</s>`` and the words."""
    name = "encoder.source_memory.sentences"
    w_i, w_h, b_i, b_h = (
        p[f"{name}.lstms.{direction}.{part}_l0"]
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    state = cell = w_h.new_zeros(w_h.size(1))
    for word in [EOS, *words.tolist()]:
        x = p[f"{name}.embeddings.{direction}.weight"][word]
        i, f, g, o = (w_i @ x + b_i + w_h @ state + b_h).chunk(4)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        state = torch.sigmoid(o) * torch.tanh(cell)
    return state


def sentence_vector(p, source: Tensor) -> Tensor:
    """Both language models, the second of which reads the sentence backward."""
    words = source[:-1]
    return torch.cat([language_model(p, 0, words), language_model(p, 1, words.flip(0))])


def source_cells(p, sources: List[Tensor]) -> List[Tensor]:
    """Hidden states of the document-level RNN over sentences; vectors are standardised first."""
    name = "encoder.source_memory"
    mean, deviation = p[f"{name}.sentences.mean"], p[f"{name}.sentences.deviation"]
    vectors = [(sentence_vector(p, source) - mean) / deviation for source in sources]
    forward, backward = bidirectional(p, f"{name}.document_gru", vectors, 0)
    return [torch.cat(pair) for pair in zip(forward, backward)]


def target_cells(p, encoded: List[Encoded], read: List[Tensor], c_src, place) -> List[Tensor]:
    """Last states of the decoder that reads translations; they are not learned from.

    They are of the last word that is read: ``</s>`` is predicted.  The paper has "the last states
    of the decoder when these translations were generated"; as in the authors' code translations
    are read again, with the source memory if there is one, and nothing from the target memory.

    Args:
        c_src: what the source memory gives to each sentence, None without one.
    """
    size, found = p["decoder.attending.state_proj.weight"].size(1), []
    for t, (sentence, words) in enumerate(zip(encoded, read)):
        c_mem = None if c_src is None else torch.cat([c_src[t], c_src[t].new_zeros(size)])
        found.append(decode(p, sentence, words, c_mem, place)[1][-1].detach())
    return found


def readings(p, sources, translations, own_query: bool = True, place: str = "context"):
    """``[c^src; c^trg]`` of each sentence of a document, of those of the two that the model has.

    Args:
        translations: what the decoder reads of each, ``</s>`` first; None while there are none, so
            that ``c^trg`` is zero.
        own_query: the query of the target memory has s_t; where the memory is filled with
            references it would give away the sentence, and is ``W_at h_t`` alone.
        place: see :func:`decode`.
    """
    encoded, c_src = [encode(p, source) for source in sources], None
    found: List[List[Tensor]] = [[] for _ in sources]
    if "encoder.source_memory.document_gru.weight_ih_l0" in p:
        cells = source_cells(p, sources)
        c_src = [read_memory(cells, sentence.summary, t) for t, sentence in enumerate(encoded)]
        found = [[reading] for reading in c_src]
    if "decoder.target_query.weight" in p:
        size = p["decoder.target_query.weight"].size(0)
        cells = [encoded[0].summary.new_zeros(size) for _ in sources]
        if translations is not None:
            cells = target_cells(p, encoded, translations, c_src, place)
        for t, sentence in enumerate(encoded):
            query = linear(p, "decoder.target_query", sentence.summary)  # s_t + W_at h_t
            found[t].append(read_memory(cells, query + cells[t] if own_query else query, t))
    return [torch.cat(parts) for parts in found]


def document_logits(p, sources, previous, drafts=None, place: str = "context") -> List[Tensor]:
    """Logits of the words of each sentence of a document (equation 3).

    Args:
        previous: what the decoder reads of each sentence.
        drafts: what it reads of the translations in memory; None for ``previous``, see
            :func:`readings`.
    """
    known = previous if drafts is None else drafts
    memories = readings(p, sources, known, drafts is not None, place)
    return [
        decode(p, encode(p, source), words, c_mem, place)[0]
        for source, words, c_mem in zip(sources, previous, memories)
    ]
