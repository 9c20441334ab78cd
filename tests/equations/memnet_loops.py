"""RNNSearch with memory networks (Maruf and Haffari 2018) as loops, sentence by sentence.

Written from the equations of the paper, whose section numbers are given, around the RNNSearch of
``recurrent_loops``; what the paper leaves open is as there.  Parameters are read by their names;
nothing here calls the package.
"""

from typing import List

import torch
from equations import recurrent_loops as rnnsearch
from equations.recurrent_loops import Encoded, encode, gru_states, softmax
from torch import Tensor

EOS = 2


def summary(encoded: Encoded) -> Tensor:
    """Representation h_t of a source (section 4): last forward and first backward state."""
    size = len(encoded.first_backward)
    return torch.cat([encoded.states[-1][:size], encoded.first_backward])


def decode(p, encoded: Encoded, words, c_mem=None, place: str = "context"):
    """Logits of each word, and the states of the top layer (sections 2.1 and 4).

    Args:
        words: that are read, ``</s>`` first.
        c_mem: ``[c^src; c^trg]`` of the sentence, None for the decoder of section 2.1.
        place: ``context`` (Memory-to-Context) or ``output`` (Memory-to-Output).
    """
    inserted = None if c_mem is None else p["decoder.of_memory.weight"] @ c_mem
    told = None
    if c_mem is not None and place == "context":  # + W_sm c^src + W_st c^trg

        def told(y, state, c):
            return inserted

    steps = rnnsearch.decode(p, encoded, words, told=told)
    logits = torch.stack([rnnsearch.logits(p, step) for step in steps])
    if c_mem is not None and place == "output":  # + W_ym c^src + W_yt c^trg
        logits = logits + inserted
    return logits, [step.state for step in steps]


def read_memory(cells: List[Tensor], query: Tensor, own: int) -> Tensor:
    """``MemNet(M, q) = sum_k p_k m_k``, ``p = softmax(q^T M)`` (2.2), without sentence t itself."""
    others = [cell for number, cell in enumerate(cells) if number != own]
    if not others:
        return torch.zeros_like(cells[own])
    return sum(p * cell for p, cell in zip(softmax([query @ cell for cell in others]), others))


def language_model(p, direction: int, words) -> Tensor:
    """Last state of an LSTM language model that has read ``</s>`` and the words."""
    name = "encoder.source_memory.sentences"
    w_i, w_h, b_i, b_h = (
        p[f"{name}.lstms.{direction}.{part}_l0"]
        for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    state = cell = w_h.new_zeros(w_h.size(1))
    for word in [EOS, *words]:
        x = p[f"{name}.embeddings.{direction}.weight"][word]
        i, f, g, o = (w_i @ x + b_i + w_h @ state + b_h).chunk(4)
        cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
        state = torch.sigmoid(o) * torch.tanh(cell)
    return state


def sentence_vector(p, source) -> Tensor:
    """Both language models, the second of which reads the sentence backward."""
    words = source[:-1]
    return torch.cat([language_model(p, 0, words), language_model(p, 1, words[::-1])])


def source_cells(p, sources) -> List[Tensor]:
    """Hidden states of the document-level RNN over sentences; vectors are standardised first."""
    name = "encoder.source_memory"
    mean, deviation = p[f"{name}.sentences.mean"], p[f"{name}.sentences.deviation"]
    vectors = [(sentence_vector(p, source) - mean) / deviation for source in sources]
    forward = gru_states(p, f"{name}.document_gru", "l0", vectors)
    backward = gru_states(p, f"{name}.document_gru", "l0_reverse", vectors[::-1])[::-1]
    return [torch.cat(pair) for pair in zip(forward, backward)]


def target_cells(p, encoded: List[Encoded], read, c_src, place) -> List[Tensor]:
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
    """``[c^src; c^trg]`` of each sentence of a document, or the one of the two that the model has.

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
        c_src = [read_memory(cells, summary(x), t) for t, x in enumerate(encoded)]
        found = [[reading] for reading in c_src]
    if "decoder.target_query.weight" in p:
        size = p["decoder.target_query.weight"].size(0)
        cells = [encoded[0].first_backward.new_zeros(size) for _ in sources]
        if translations is not None:
            cells = target_cells(p, encoded, translations, c_src, place)
        for t, sentence in enumerate(encoded):
            query = p.linear("decoder.target_query", summary(sentence))  # s_t + W_at h_t
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
