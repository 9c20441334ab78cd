"""The recurrent systems written out from their papers: one sentence, one word, one sum at a time.

Parameters are read from a model by name; nothing else of the project is used.  A vector is a 1-d
tensor, a sentence a list of word indices, a document a list of (source, decoder input) pairs.

B   Bahdanau, Cho and Bengio (2015), "Neural Machine Translation by Jointly Learning to Align and
    Translate" (equations of appendix A)
T   Tu, Liu, Shi and Zhang (2018), "Learning to Remember Translation History with a Continuous
    Cache"
J   Jean, Lauly, Firat and Cho (2017), "Does Neural Machine Translation Benefit from Larger
    Context?"
W   Wang, Tu, Way and Liu (2017), "Exploiting Cross-Sentence Context for Neural Machine Translation"
M   Maruf and Haffari (2018), "Document Context Neural Machine Translation with Memory Networks"
"""

from typing import NamedTuple

import torch


class Parameters:
    """Parameters of a model by name, with their gradients.

    Args:
        model: any of the recurrent models.
        drop: what dropout makes of a vector, wherever it acts.
        drop_output: what it makes of the output layer; as ``drop`` by default.
    """

    def __init__(self, model, drop=lambda x: x, drop_output=None):
        self.by_name, self.drop = model.state_dict(keep_vars=True), drop
        self.drop_output = drop_output or drop

    def __getitem__(self, name):
        return self.by_name[name]

    def __contains__(self, name):
        return name in self.by_name

    def linear(self, name, x):
        """``W x``, with ``+ b`` where there is a bias."""
        product = self[f"{name}.weight"] @ x
        return product + self[f"{name}.bias"] if f"{name}.bias" in self else product

    def embed(self, side, word):
        """Embedding of a word; side is encoder or decoder."""
        return self.drop(self[f"{side}.embed_tokens.weight"][word])


def softmax(logits):
    """List of weights of a list of numbers."""
    exponentials = [torch.exp(logit) for logit in logits]
    return [e / sum(exponentials) for e in exponentials]


# ---------------------------------------------------------------------------------------------
# RNNSearch
# ---------------------------------------------------------------------------------------------


def gru(from_input, from_state, state):
    """``s_t`` of a gated recurrent unit (B, A.1.1), given what input and state add to its gates.

    As in torch and cuDNN, z is the share of the old state, where the paper has 1 - z, and the reset
    gate multiplies ``U s + b``, where the paper has ``U (r * s)``.
    """
    r_input, z_input, n_input = from_input.chunk(3)
    r_state, z_state, n_state = from_state.chunk(3)
    r = torch.sigmoid(r_input + r_state)
    z = torch.sigmoid(z_input + z_state)
    new = torch.tanh(n_input + r * n_state)
    return (1 - z) * new + z * state


def gru_states(p, name, layer, inputs, state=None):
    """All states of one layer and direction of a GRU of torch; zeros before the first."""
    w_input, b_input = p[f"{name}.weight_ih_{layer}"], p[f"{name}.bias_ih_{layer}"]
    w_state, b_state = p[f"{name}.weight_hh_{layer}"], p[f"{name}.bias_hh_{layer}"]
    state = w_state.new_zeros(w_state.size(1)) if state is None else state
    states = []
    for x in inputs:
        state = gru(w_input @ x + b_input, w_state @ state + b_state, state)
        states.append(state)
    return states


class Encoded(NamedTuple):
    """States ``h_j`` of a source sentence, and the first state of the backward direction."""

    states: list
    first_backward: torch.Tensor


def encode(p, source, initial=None):
    """Bidirectional encoder (B, section 3.2): ``h_j = [forward_j; backward_j]``.

    Args:
        initial: first states, forwards and backwards in turn, the lowest layer first; zeros by
            default.
    """
    x, layer = [p.embed("encoder", word) for word in source], 0
    while f"encoder.gru.weight_ih_l{layer}" in p:
        first = (None, None) if initial is None else initial[2 * layer : 2 * layer + 2]
        forward = gru_states(p, "encoder.gru", f"l{layer}", x, first[0])
        backward = gru_states(p, "encoder.gru", f"l{layer}_reverse", x[::-1], first[1])[::-1]
        x = [p.drop(torch.cat(pair)) for pair in zip(forward, backward)]
        layer += 1
    return Encoded(x, backward[0])


def first_states(p, encoded):
    """``s_0 = tanh(W_s backward_1)`` of each layer of the decoder (B, A.2.2)."""
    size = p["decoder.attending.source_gates.weight"].size(0) // 3
    return list(torch.tanh(p.linear("decoder.initial", encoded.first_backward)).split(size))


def attend(states, keys, query, energy):
    """``a = softmax_j(v tanh(U_a h_j + query))`` (B, A.1.2) and ``c = sum_j a_j h_j`` (T, 4)."""
    weights = softmax([energy @ torch.tanh(key + query) for key in keys])
    return torch.stack(weights), sum(a * h for a, h in zip(weights, states))


class Step(NamedTuple):
    """Results of one decoder step: E(y_{t-1}), s_t of the top layer, c_t, alignment."""

    word: torch.Tensor
    state: torch.Tensor
    context: torch.Tensor
    attention: torch.Tensor


def decode(p, encoded, words, before=None, told=None):
    """The steps of the decoder over its input words ``y_0 = </s>, y_1, ...``.

    Args:
        before: first states of the layers, by default as in RNNSearch.
        told: what earlier sentences add to the gates of the lowest layer, a function of the
            embedded last word, the last state and c_t.
    """
    layers = first_states(p, encoded) if before is None else list(before)
    energy = p["decoder.attending.energy"]
    keys = [p.linear("decoder.attending.key_proj", h) for h in encoded.states]
    steps = []
    for word in words:
        y = p.embed("decoder", word)
        from_word = p.linear("decoder.attending.input_proj", y)
        from_state = p.linear("decoder.attending.state_proj", layers[0])
        # The alignment model has s_{t-1} (B, A.1.2) and the last word (T, section 4.1) as input.
        query = from_word[: len(energy)] + from_state[: len(energy)]
        attention, c = attend(encoded.states, keys, query, energy)
        # s_t = f(y_{t-1}, s_{t-1}, c_t) (T, 3)
        gates = from_word[len(energy) :] + p.linear("decoder.attending.source_gates", c)
        if told is not None:
            gates = gates + told(y, layers[0], c)
        layers[0] = gru(gates, from_state[len(energy) :], layers[0])
        for upper in range(1, len(layers)):
            below, state = p.drop(layers[upper - 1]), layers[upper]
            (layers[upper],) = gru_states(p, "decoder.upper", f"l{upper - 1}", [below], state)
        steps.append(Step(y, layers[-1], c, attention))
    return steps


def logits(p, step, state=None):
    """Linear layers over y_{t-1}, s_t and c_t (T, 2), with a tanh layer between them (M, 2.1)."""
    state = step.state if state is None else state
    readout = torch.tanh(p.linear("decoder.readout", torch.cat([state, step.word, step.context])))
    return p.linear("decoder.output_projection", p.drop_output(readout))


def rnnsearch(p, document):
    """(T, V) logits of each sentence."""
    return [
        torch.stack([logits(p, step) for step in decode(p, encode(p, source), words)])
        for source, words in document
    ]


# ---------------------------------------------------------------------------------------------
# The continuous cache
# ---------------------------------------------------------------------------------------------


class Slot(NamedTuple):
    """Key c_i, value s_i and indicator y_i (T, section 3.3)."""

    key: torch.Tensor
    value: torch.Tensor
    word: int


def write(slots, size, overwrite, triple):
    """The slots, the least recently written first, after one triple (T, section 3.3)."""
    if size == 0:
        return []
    for slot in slots:
        if overwrite and slot.word == triple.word:
            # Rule 2: k_i = (k_i + c_t) / 2, v_i = (v_i + s_t) / 2
            key, value = (slot.key + triple.key) / 2, (slot.value + triple.value) / 2
            return [s for s in slots if s is not slot] + [Slot(key, value, slot.word)]
    # Rule 1: an empty slot, or the least recently used one
    return [*(slots if len(slots) < size else slots[1:]), triple]


def write_sentence(slots, size, overwrite, steps, words, marks=()):
    """The slots after a sentence: step t is kept with the word y_t that it produced.

    The input of step t + 1 is y_t; the last step, which produced ``</s>``, is not written, nor are
    ``marks``: words that are given and not produced, as the mark of the first sentence.  No
    gradient flows into the cache: it belongs to sentences that are fully generated (T, 3.3).
    """
    for step, produced in zip(steps, words[1:]):
        if produced in marks:
            continue
        triple = Slot(step.context.detach(), step.state.detach(), produced)
        slots = write(slots, size, overwrite, triple)
    return slots


def match(slots, context):
    """``P_m(c_i | c_t)``, products that are not scaled (T, 5)."""
    return softmax([context @ slot.key for slot in slots])


def recall(slots, context):
    """``m_t = sum_i P_m(c_i | c_t) s_i`` (T, section 3.2)."""
    return sum(a * slot.value for a, slot in zip(match(slots, context), slots))


def gate(p, step, recalled):
    """``lambda_t = sigmoid(U s_t + V c_t + W m_t)`` (T, 8), a vector or one number."""
    u, v, w = (p[f"decoder.cache_gate.of_{part}.weight"] for part in ("state", "context", "cache"))
    return torch.sigmoid(u @ step.state + v @ step.context + w @ recalled)


def deep_fusion(p, step, slots):
    """Logits of one step from ``(1 - lambda) s_t + lambda m_t`` (T, 6 and 7)."""
    if not slots:
        return logits(p, step)
    recalled = recall(slots, step.context)
    opened = gate(p, step, recalled)
    return logits(p, step, (1 - opened) * step.state + opened * recalled)


def shallow_fusion(p, step, slots):
    """Logarithms of ``(1 - lambda) P_vocab + lambda P_cache`` (T, section 4.4).

    A word that is in several slots has the sum of their probabilities.
    """
    exponentials = torch.exp(logits(p, step))
    vocabulary = exponentials / exponentials.sum()
    if not slots:
        return vocabulary.log()
    opened = gate(p, step, recall(slots, step.context))
    cache = [vocabulary.new_zeros(()) for _ in vocabulary]
    for a, slot in zip(match(slots, step.context), slots):
        cache[slot.word] = cache[slot.word] + a
    return ((1 - opened) * vocabulary + opened * torch.stack(cache)).log()


FUSIONS = {"deep": deep_fusion, "shallow": shallow_fusion}


def cache_rnn(p, document, size, fusion="deep", overwrite=True, slots=(), marks=()):
    """(T, V) outputs of each sentence, and the slots after each.

    The recurrence goes on from s_t, not from what the cache makes of it (T, 3 and 6).
    """
    slots, outputs, history = list(slots), [], []
    for source, words in document:
        steps = decode(p, encode(p, source), words)
        outputs.append(torch.stack([FUSIONS[fusion](p, step, slots) for step in steps]))
        slots = write_sentence(slots, size, overwrite, steps, words, marks)
        history.append(slots)
    return outputs, history


# ---------------------------------------------------------------------------------------------
# A few sentences back
# ---------------------------------------------------------------------------------------------


def previous_target(p, document):
    """PrevTrg (M, section 5.2): the last state of the decoder in the sentence before.

    It is the state after all words, which predicts ``</s>``, an additional input to all states.
    Returns (T, V) logits of each sentence, and the state that each leaves to the next.
    """
    outputs, left, before = [], [], None
    for source, words in document:
        told = None if before is None else _always(p.linear("decoder.context_gates", before))
        steps = decode(p, encode(p, source), words, told=told)
        outputs.append(torch.stack([logits(p, step) for step in steps]))
        before = steps[-1].state
        left.append(before)
    return outputs, left


def _always(vector):
    return lambda y, state, c: vector


def read_previous(p, source):
    """States of the words of a sentence by the bidirectional context encoder (J)."""
    x = [p.embed("encoder", word) for word in source]
    forward = gru_states(p, "encoder.context_gru", "l0", x)
    backward = gru_states(p, "encoder.context_gru", "l0_reverse", x[::-1])[::-1]
    return [p.drop(torch.cat(pair)) for pair in zip(forward, backward)]


def jean(p, document):
    """(T, V) logits with attention to the words of the previous source sentence (J).

    The second query knows the last word, the last state and what the first attention has found in
    the current sentence; what it finds goes to the gates of the GRU.
    """
    outputs, previous = [], None
    for source, words in document:
        told = None if previous is None else _attention_to(p, read_previous(p, previous))
        steps = decode(p, encode(p, source), words, told=told)
        outputs.append(torch.stack([logits(p, step) for step in steps]))
        previous = source
    return outputs


def _attention_to(p, states):
    layer, energy = "decoder.attending", p["decoder.attending.context_energy.weight"][0]
    keys = [p.linear(f"{layer}.context_key", h) for h in states]

    def told(y, state, c):
        query = p.linear(f"{layer}.context_query", torch.cat([y, state, c]))
        _, found = attend(states, keys, query, energy)
        return p.linear(f"{layer}.context_gates", found)

    return told


def summary(p, sources):
    """D (W, section 2): a GRU over the last states of a GRU over each sentence, oldest first."""
    last = []
    for source in sources:
        x = [p.embed("encoder", word) for word in source]
        last.append(gru_states(p, "encoder.context_gru", "l0", x)[-1])
    return gru_states(p, "encoder.context_document_gru", "l0", last)[-1]


def wang_encoder_start(p, d):
    """First states of the encoder given D: D itself, in every layer and direction.

    The paper initialises "the encoder's recurrent state with D"; its authors' code (LC-NMT) gives D
    as it is to both directions of its one layer.
    """
    layers = sum(f"encoder.gru.weight_hh_l{layer}" in p for layer in range(9))
    return [d] * (2 * layers)


def wang_decoder_start(p, encoded, d):
    """First states of the decoder given D: ``tanh(W_s backward_1 + W_D D)``, the lowest layer only.

    One layer before a tanh, of the summary of the sentence and D together, as in the authors' code.
    """
    size = p["decoder.attending.source_gates.weight"].size(0) // 3
    lowest, *upper = p.linear("decoder.initial", encoded.first_backward).split(size)
    lowest = lowest + p.linear("decoder.context_initial", d)
    return [torch.tanh(x) for x in (lowest, *upper)]


def wang(p, document, back=3):
    """(T, V) logits with D of up to three source sentences before, as start and as gated input."""
    outputs = []
    for number, (source, words) in enumerate(document):
        earlier = [source for source, _ in document[max(0, number - back) : number]]
        if earlier:
            d = summary(p, earlier)
            encoded = encode(p, source, wang_encoder_start(p, d))
            before, told = wang_decoder_start(p, encoded, d), _gated(p, d)
            steps = decode(p, encoded, words, before, told)
        else:
            steps = decode(p, encode(p, source), words)
        outputs.append(torch.stack([logits(p, step) for step in steps]))
    return outputs


def _gated(p, d):
    def told(y, state, c):
        # z_t = sigmoid(U s_{t-1} + W y_{t-1} + C c_t) (W, 8), and z_t * D goes to the gates (W, 7)
        z = torch.sigmoid(p.linear("decoder.attending.context_gate", torch.cat([y, state, c])))
        return p.linear("decoder.attending.context_gates", z * d)

    return told
