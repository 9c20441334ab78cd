"""memnet_rnn against the equations of Maruf and Haffari (2018), written as loops."""

import pytest
import tiny
import torch
from equations.as_built import as_built
from equations.recurrent_loops_memnet import (
    decode,
    document_logits,
    encode,
    read_memory,
    readings,
    sentence_vector,
    source_cells,
    target_cells,
    values_of,
)
from fairseq.data.data_utils import collate_tokens

import fairseq_docmt  # noqa: F401

PAD, EOS = 1, 2
VARIANTS = {
    f"{memory}, {place}": ["--memory", memory, "--memory-to", place]
    for memory in ("source", "target", "both")
    for place in ("context", "output")
}
SIZES = {
    "two layers": [],  # of the decoder, as in the paper
    "one layer": ["--decoder-layers", "1"],
    "more layers": ["--encoder-layers", "2", "--decoder-layers", "3"],
}


@pytest.fixture(params=VARIANTS)
def variant(request):
    return VARIANTS[request.param]


def built(*options):
    """Return a model with random values, also of the scale of sentence vectors."""
    model = tiny.model(*tiny.memnet("--dropout", "0", "--memory-dropout", "0", *options))
    torch.manual_seed(8)
    for name, buffer in model.named_buffers():
        if name.endswith(("mean", "deviation")):
            buffer.copy_(torch.rand(buffer.shape) + 0.5)
    return model, values_of(model)


def document(sentences, seed):
    """Triples (source, target, draft) of 1 to 5 words, each with ``</s>``."""
    generator = torch.Generator().manual_seed(seed)

    def sentence():
        length = int(torch.randint(1, 6, (), generator=generator))
        words = torch.randint(4, 16, (length,), generator=generator)
        return torch.cat([words, torch.tensor([EOS])])

    return [tuple(sentence() for _ in range(3)) for _ in range(sentences)]


DOCUMENTS = [document(3, 1), document(1, 2), document(4, 3), document(2, 4)]


def previous_of(target):
    return torch.cat([target[-1:], target[:-1]])


def batch(documents, left_pad=True):
    """Rows of a batch: sources, what the decoder reads of targets and of drafts, documents."""
    rows = [triple for sentences in documents for triple in sentences]
    sizes = torch.tensor([len(sentences) for sentences in documents])
    return (
        collate_tokens([s for s, _, _ in rows], PAD, left_pad=left_pad),
        collate_tokens([previous_of(t) for _, t, _ in rows], PAD),
        collate_tokens([previous_of(d) for _, _, d in rows], PAD),
        torch.arange(len(documents)).repeat_interleave(sizes),
    )


def run(model, documents=DOCUMENTS, gold=False, **options):
    """Logits of each sentence."""
    source, previous, drafts, numbers = batch(documents, **options)
    logits, _ = model(
        source,
        source.ne(PAD).sum(1),
        previous,
        documents=numbers,
        drafts=None if gold else drafts,
    )
    lengths = previous.ne(PAD).sum(1).tolist()
    return [x[:length] for x, length in zip(logits, lengths)]


def run_loop(p, options, documents=DOCUMENTS, gold=False):
    """Return the same from the loop, document by document."""
    found = []
    for sentences in documents:
        sources, targets, drafts = zip(*sentences)
        found += document_logits(
            p,
            sources,
            [previous_of(target) for target in targets],
            None if gold else [previous_of(draft) for draft in drafts],
            place_of(options),
        )
    return found


def place_of(options):
    return options[options.index("--memory-to") + 1]


def check(found, wanted):
    assert len(found) == len(wanted)
    for number, (a, b) in enumerate(zip(found, wanted)):
        close(a, b, f"sentence {number}")


def close(found, wanted, name=""):
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0, msg=lambda text: f"{name}: {text}")


def random_sum(logits):
    generator = torch.Generator().manual_seed(7)
    return sum(
        (torch.randn(x.shape, generator=generator, dtype=x.dtype) * x.log_softmax(-1)).sum()
        for x in logits
    )


# ---- outputs and gradients ----------------------------------------------------------------------


def check_outputs_and_gradients(options, gold=False, train=False, left_pad=True):
    model, p = built(*options)
    found, wanted = (
        run(model.train(train), gold=gold, left_pad=left_pad),
        run_loop(p, options, gold=gold),
    )
    check(found, wanted)
    random_sum(found).backward()
    random_sum(wanted).backward()
    for name, parameter in model.named_parameters():
        if ".sentences." in name:  # language models stay as they are
            assert parameter.grad is None and not parameter.requires_grad, name
            continue
        wanted = torch.zeros_like(parameter) if p[name].grad is None else p[name].grad
        close(parameter.grad, wanted, name)


@pytest.mark.parametrize("gold", [False, True], ids=["drafts", "references"])
def test_outputs_and_gradients_are_those_of_the_equations(variant, gold):
    """Several documents, one of a single sentence; cells of translations get no gradient."""
    check_outputs_and_gradients(variant, gold)


@pytest.mark.parametrize("size", SIZES)
def test_other_sizes(size):
    check_outputs_and_gradients([*VARIANTS["both, context"], *SIZES[size]], left_pad=False)


def test_training(variant):
    """Without dropout."""
    check_outputs_and_gradients(variant, train=True)


@torch.no_grad()
def test_without_gradients(variant):
    """Evaluation uses a different implementation of the recurrence."""
    model, p = built(*variant)
    check(run(model), run_loop(p, variant))


@torch.no_grad()
def test_sentences_without_a_document_are_those_of_the_sentence_level_decoder(variant):
    """Section 3: the initial translations are those of the base model."""
    model, p = built(*variant)
    source, previous, _, _ = batch(DOCUMENTS)
    logits, _ = model(source, source.ne(PAD).sum(1), previous)
    rows = [triple for sentences in DOCUMENTS for triple in sentences]
    wanted = [decode(p, encode(p, s), previous_of(t))[0] for s, t, _ in rows]
    check([x[: len(w)] for x, w in zip(logits, wanted)], wanted)
    # memory cells are still read
    with_memory = run(model)
    alone = [len(sentences) == 1 for sentences in DOCUMENTS for _ in sentences]
    assert [torch.allclose(a, b) for a, b in zip(with_memory, wanted)] == alone


@torch.no_grad()
def test_steps_of_beam_search_are_those_of_the_equations(variant):
    """Vectors read for a sentence stay with it while its beams are reordered."""
    model, p = built(*variant)
    source, _, drafts, numbers = batch(DOCUMENTS)
    encoded = model.encoder(source, source.ne(PAD).sum(1), documents=numbers)
    cells = None
    if model.remembers_translations:
        read = model.decoder.recall_source(encoded, numbers)
        cells = model.decoder.target_cells(drafts, encoded, read)
    encoded = {**encoded, "readings": [model.decoder.recall(encoded, numbers, cells)]}
    memories, sources = [], []
    for sentences in DOCUMENTS:
        lines, _, known = zip(*sentences)
        sources += lines
        known = [previous_of(draft) for draft in known]
        memories += readings(p, lines, known, place=place_of(variant))
    count, generator, state = len(sources), torch.Generator().manual_seed(5), {}
    owners = torch.arange(count).repeat_interleave(2)
    beams = model.encoder.reorder_encoder_out(encoded, owners)
    tokens = torch.full((len(owners), 1), EOS)
    for step in range(4):
        got, _ = model.decoder(tokens, encoder_out=beams, incremental_state=state)
        for row, owner in enumerate(owners.tolist()):
            known = encode(p, sources[owner]), tokens[row], memories[owner], place_of(variant)
            close(got[row, -1], decode(*(p, *known))[0][-1])
        order = torch.arange(len(owners)).view(-1, 2).flip(1).flatten()
        order[2] = order[3]
        if step == 1:  # the first sentence ends
            order = order[2:]
        model.decoder.reorder_incremental_state_scripting(state, order)
        beams = model.encoder.reorder_encoder_out(beams, order)
        owners = owners[order]
        new = torch.randint(4, 16, (len(order), 1), generator=generator)
        tokens = torch.cat([tokens[order], new], dim=1)


@torch.no_grad()
@pytest.mark.parametrize("place", ["context", "output"])
def test_training_reads_target_cells_without_dropout(place):
    """The target memory is computed without dropout, as in decoding; the rest has dropout."""
    options = ["--memory", "both", "--memory-to", place, "--dropout", "0.4"]
    model = tiny.model(*tiny.memnet("--memory-dropout", "0.4", *options))
    p, seen = values_of(model), []
    recall = model.decoder.recall

    def recall_and_keep(encoder_out, documents, cells, own):
        seen.append(cells)
        return recall(encoder_out, documents, cells, own)

    model.decoder.recall = recall_and_keep
    trained, evaluated = run(model.train()), run(model.eval())
    wanted = []
    for sentences in DOCUMENTS:
        sources, _, drafts = zip(*sentences)
        encoded = [encode(p, source) for source in sources]
        cells = source_cells(p, sources)
        c_src = [read_memory(cells, x.summary, t) for t, x in enumerate(encoded)]
        wanted += target_cells(p, encoded, [previous_of(d) for d in drafts], c_src, place)
    for cells in seen:
        torch.testing.assert_close(cells, torch.stack(wanted), atol=1e-9, rtol=0)
    assert all(not torch.allclose(a, b) for a, b in zip(trained, evaluated))
    assert all(not module.training for module in model.modules())


# ---- vectors of sentences -----------------------------------------------------------------------


@torch.no_grad()
def test_vectors_of_sentences_are_standardised():
    """Mean 0 and deviation 1 over the given sentences, which are more than one batch."""
    model, p = built(*VARIANTS["source, context"])
    sentences = model.encoder.source_memory.sentences
    lines = [s for seed in range(150) for s, _, _ in document(2, seed)]
    raw = torch.stack([sentence_vector(p, line) for line in lines])
    sentences.standardise(iter(lines))
    mean = raw.sum(0) / len(raw)
    deviation = ((raw - mean).pow(2).sum(0) / len(raw)).sqrt()
    close(sentences.mean, mean)
    close(sentences.deviation, deviation)
    found = sentences(collate_tokens(lines[:9], PAD, left_pad=True))
    close(found, (raw[:9] - mean) / deviation)
    sentences.standardise(iter(lines[:1]))  # no deviation at all
    assert (sentences.deviation == 1e-4).all()


# ---- initialisation -----------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("gold", [False, True], ids=["drafts", "references"])
def test_second_stage_begins_with_what_rnnsearch_computes(variant, gold):
    """Not nearly: insertion begins as zeros, whatever is read (not in the paper)."""
    base = tiny.model(*tiny.rnnsearch("--decoder-layers", "2"))
    model = as_built(*tiny.memnet(*variant))
    model.load_state_dict(base.state_dict(), strict=True)
    source, previous, _, _ = batch(DOCUMENTS)
    wanted, _ = base(source, source.ne(PAD).sum(1), previous)
    for number, logits in enumerate(run(model, gold=gold)):
        assert torch.equal(logits, wanted[number, : len(logits)])


def test_first_update_learns_to_insert_what_is_read(variant):
    """Gradient comes to the insertion at once, and to queries and memories after it alone."""
    model = as_built(*tiny.memnet(*variant))
    random_sum(run(model)).backward()
    for name, parameter in model.named_parameters():
        if name == "decoder.of_memory.weight":
            assert (parameter.grad != 0).all()
        elif "document_gru" in name or "target_query" in name:
            assert (parameter.grad == 0).all(), name
