"""Batches of documents whose sentences know of each other, and what a model makes of them."""

import contextlib
from unittest import mock

import tiny
import torch
from fairseq.data.data_utils import collate_tokens

from fairseq_docmt.generation.stream import StreamEnsemble

DICTIONARY = tiny.dictionary()
PAD, EOS, UNK = DICTIONARY.pad(), DICTIONARY.eos(), DICTIONARY.unk()
BOD = DICTIONARY.index("<bod>")
#: what stands in a lane that has come to its end
FILLER = ([EOS], [EOS])


def random_document(lengths, seed, target_words=5):
    """Return pairs (source, decoder input); sentence k has about ``lengths[k]`` words per side.

    Target words are few, so that they come again, within a sentence and later.
    """
    generator = torch.Generator().manual_seed(seed)

    def words(length, kinds):
        return torch.randint(4, 4 + kinds, (length,), generator=generator).tolist()

    return [([*words(n, 12), EOS], [EOS, *words(n + n % 3, target_words)]) for n in lengths]


#: Three lanes: documents of 6, of 2 and 4, and of 1 and 3 sentences; long ones come before short
#: ones and the other way round.
LANES = [
    [random_document([3, 8, 1, 4, 2, 5], seed=1)],
    [random_document([7, 3], seed=2), random_document([2, 5, 9, 1], seed=3)],
    [random_document([4], seed=4), random_document([1, 3, 2], seed=5)],
]


def with_drafts(pairs, drafts):
    """Triples (source, decoder input, decoder input of a draft), the last of other pairs."""
    return [(source, words, draft) for (source, words), (_, draft) in zip(pairs, drafts)]


def in_lanes(lanes, filler=FILLER):
    """Return the rows of a stream batch, and for each whether it begins a document.

    Row ``k * B + b`` is sentence k of lane b, which reads its documents one after the other.
    Anything that a document has for each of its sentences can be laid out like this.
    """
    columns = [
        [(sentence, number == 0) for document in lane for number, sentence in enumerate(document)]
        for lane in lanes
    ]
    steps = max(map(len, columns))
    columns = [column + [(filler, False)] * (steps - len(column)) for column in columns]
    rows = [column[step] for step in range(steps) for column in columns]
    return [row for row, _ in rows], [start for _, start in rows]


def tensor_of(rows, left_pad=False):
    """Return the (rows, T) padded tokens of lists of words."""
    return collate_tokens([torch.tensor(row) for row in rows], PAD, left_pad=left_pad)


def run(model, pairs, left_pad=True, **stream):
    """Return the output of a model for a batch of (source, decoder input) pairs."""
    source = tensor_of([source for source, _ in pairs], left_pad)
    words = tensor_of([words for _, words in pairs])
    return model(source, source.ne(PAD).sum(1), words, **stream)


def run_lanes(model, lanes, doc_state=None, **options):
    """Return the (T, V) outputs of each row of a stream batch, and the extra outputs."""
    rows, starts = in_lanes(lanes)
    stream = {"starts": torch.tensor(starts), "lanes": len(lanes), "doc_state": doc_state}
    output, extra = run(model, rows, **stream, **options)
    return without_padding(output, rows), extra


def run_in_chunks(model, lanes, sizes, filler=FILLER, left_pad=True):
    """Run lanes in batches of a few sentences, passing on the document state."""
    rows, starts = in_lanes(lanes, filler)
    outputs, doc_state, done = [], None, 0
    for size in sizes:
        here = slice(done * len(lanes), (done + size) * len(lanes))
        stream = {"starts": torch.tensor(starts[here]), "lanes": len(lanes), "doc_state": doc_state}
        output, extra = run(model, rows[here], left_pad, **stream)
        outputs += without_padding(output, rows[here])
        doc_state = {name: x.detach() for name, x in extra["doc_state"].items()}
        done += size
    return outputs


def run_documents(model, documents, gold=False, left_pad=True):
    """(T, V) outputs of each sentence of documents of triples (:func:`with_drafts`) as one batch.

    Args:
        gold: memories get the decoder inputs themselves, not drafts.
    """
    rows = [triple for document in documents for triple in document]
    pairs = [(source, words) for source, words, _ in rows]
    drafts = None if gold else tensor_of([draft for _, _, draft in rows])
    output, _ = run(model, pairs, left_pad, documents=numbers_of(documents), drafts=drafts)
    return without_padding(output, pairs)


def numbers_of(documents):
    """(rows,) number of the document of each sentence."""
    return torch.arange(len(documents)).repeat_interleave(torch.tensor([*map(len, documents)]))


def without_padding(output, pairs):
    """Return the (T, V) outputs of each row without padding."""
    return [found[: len(words)] for found, (_, words) in zip(output, pairs)]


def check(found, wanted, atol=1e-9):
    """Compare (T, V) tensors; rows for which None is expected are skipped."""
    assert len(found) == len(wanted)
    for row, (a, b) in enumerate(zip(found, wanted)):
        if b is not None:
            torch.testing.assert_close(a, b, atol=atol, rtol=0, msg=lambda m, r=row: f"{r}: {m}")


def check_gradients(model, found, wanted, atol=1e-9):
    """Compare the gradients of all parameters for a weighted sum of all outputs."""
    kept = [(a, b) for a, b in zip(found, wanted) if b is not None]
    names, parameters = zip(*((n, x) for n, x in model.named_parameters() if x.requires_grad))
    sides = []
    for outputs in zip(*kept):
        generator = torch.Generator().manual_seed(1)
        weights = [torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in outputs]
        total = sum((w * x).sum() for w, x in zip(weights, outputs))
        sides.append(torch.autograd.grad(total, parameters, allow_unused=True))
    for name, parameter, a, b in zip(names, parameters, *sides):
        a, b = (torch.zeros_like(parameter) if x is None else x for x in (a, b))
        torch.testing.assert_close(a, b, atol=atol, rtol=0, msg=lambda m, n=name: f"{n}: {m}")


@contextlib.contextmanager
def dropout_that_doubles(model):
    """Training mode in which dropout doubles all values, which reveals where it is applied."""

    def doubled(x, p=0.5, training=True, inplace=False):
        return 2 * x if training else x

    with mock.patch.object(torch.nn.functional, "dropout", doubled):
        model.train()
        yield
        model.eval()


@torch.no_grad()
def step_by_step(model, encoder_out, words):
    """Return (rows, T, V) outputs for (rows, T) decoder inputs, computed word by word."""
    state, found = {}, []
    for end in range(1, words.size(1) + 1):
        output, _ = model.decoder(words[:, :end], encoder_out=encoder_out, incremental_state=state)
        found.append(output[:, -1])
    return torch.stack(found, dim=1)


@torch.no_grad()
def random_search(model, encoder_out, sentences, beams, steps, seed=0):
    """Extend hypotheses by random words while the beams of a sentence are reordered.

    Returns:
        (B, beams, T) decoder inputs, and the (B, beams, T, V) outputs that led to them.
    """
    generator = torch.Generator().manual_seed(seed)
    first = torch.arange(sentences).unsqueeze(1) * beams
    encoder_out = model.encoder.reorder_encoder_out(
        encoder_out, torch.arange(sentences).repeat_interleave(beams)
    )
    words, outputs, state = torch.full((sentences * beams, 1), EOS), [], {}
    while True:
        output, _ = model.decoder(words, encoder_out=encoder_out, incremental_state=state)
        outputs.append(output[:, -1])
        if words.size(1) == steps:
            break
        order = torch.randint(beams, (sentences, beams), generator=generator)
        order = (first + order).flatten()
        new = torch.randint(4, 7, (len(order), 1), generator=generator)  # often the same
        words = torch.cat([words[order], new], dim=1)
        outputs = [output[order] for output in outputs]
        model.decoder.reorder_incremental_state_scripting(state, order)
        encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
    shape = (sentences, beams)
    return words.unflatten(0, shape), torch.stack(outputs, dim=1).unflatten(0, shape)


@torch.no_grad()
def translate_by_random_search(model, lanes, beams=3, steps=5):
    """Translate documents sentence by sentence, like stream decoding.

    A random hypothesis of each sentence is the translation that later sentences read.

    Returns:
        lanes of documents with those translations as decoder inputs, and the outputs of their rows.
    """
    rows, starts = in_lanes(lanes)
    ensemble, doc_state, pairs, outputs = StreamEnsemble([model]), None, [], []
    for first in range(0, len(rows), len(lanes)):
        here = slice(first, first + len(lanes))
        source = tensor_of([source for source, _ in rows[here]], left_pad=True)
        net_input = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}
        net_input["streams"] = [{"starts": torch.tensor(starts[here]), "doc_state": doc_state}]
        (encoder_out,) = ensemble.forward_encoder(net_input)
        words, found = random_search(model, encoder_out, len(lanes), beams, steps, seed=first)
        chosen = []
        for lane in range(len(lanes)):
            beam, length = (first + lane) % beams, steps - (first + lane) % 3
            chosen.append(words[lane, beam, :length].tolist())
            outputs.append(found[lane, beam, :length])
        pairs += [(source, best) for (source, _), best in zip(rows[here], chosen)]
        (doc_state,) = ensemble.next_doc_state(tensor_of(chosen))
    return [_documents(pairs, starts, lane, len(lanes)) for lane in range(len(lanes))], outputs


def _documents(rows, starts, lane, lanes):
    found = []
    for row, start in zip(rows[lane::lanes], starts[lane::lanes]):
        if start:
            found.append([])
        found[-1].append(row)
    return found
