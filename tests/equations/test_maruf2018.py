"""memnet_rnn against the equations of Maruf and Haffari (2018), written as loops."""

import pytest
import tiny
import torch
from batches import (
    DICTIONARY,
    EOS,
    PAD,
    check,
    check_gradients,
    numbers_of,
    random_document,
    run,
    run_documents,
    tensor_of,
    with_drafts,
    without_padding,
)
from equations.memnet_loops import (
    decode,
    document_logits,
    encode,
    read_memory,
    readings,
    sentence_vector,
    source_cells,
    summary,
    target_cells,
)
from equations.recurrent_loops import Parameters
from fairseq import options as host
from fairseq.tasks.translation import TranslationConfig, TranslationTask

VARIANTS = {
    f"{memory}, {place}": ["--context-side", memory, "--context-integration", place]
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
    return model, Parameters(model)


def document(lengths, seed):
    """Triples of sentences of odd and unequal lengths; drafts have other words and lengths."""
    drafts = random_document([2, 5, 1, 4][: len(lengths)], seed + 10, target_words=12)
    return with_drafts(random_document(lengths, seed, target_words=12), drafts)


DOCUMENTS = [
    document([3, 1, 5], 1),
    document([2], 2),
    document([1, 4, 2, 3], 3),
    document([5, 2], 4),
]
ROWS = [triple for sentences in DOCUMENTS for triple in sentences]
PAIRS = [(source, words) for source, words, _ in ROWS]
#: whether a sentence has no other in its document
ALONE = [len(sentences) == 1 for sentences in DOCUMENTS for _ in sentences]


def run_loop(p, options, gold=False):
    """Logits of each sentence, document by document."""
    found = []
    for sentences in DOCUMENTS:
        sources, words, drafts = zip(*sentences)
        found += document_logits(p, sources, words, None if gold else drafts, place_of(options))
    return found


def place_of(options):
    return options[options.index("--context-integration") + 1]


# ---- outputs and gradients ----------------------------------------------------------------------


def check_outputs_and_gradients(options, gold=False, train=False, left_pad=True):
    model, p = built(*options)
    found = run_documents(model.train(train), DOCUMENTS, gold, left_pad)
    wanted = run_loop(p, options, gold)
    check(found, wanted)
    check_gradients(model, found, wanted)
    frozen = {name for name, x in model.named_parameters() if not x.requires_grad}
    assert frozen == {name for name in model.state_dict() if ".sentences.embeddings" in name} | {
        name for name in model.state_dict() if ".sentences.lstms" in name
    }


@pytest.mark.parametrize("gold", [False, True], ids=["drafts", "references"])
def test_outputs_and_gradients_equal_the_equations(variant, gold):
    """Several documents, one of a single sentence; cells of translations get no gradient.

    Every sentence reads all others of its document, and none of another.  References in memory
    give nothing away: a sentence does not read its own.
    """
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
    check(run_documents(model, DOCUMENTS), run_loop(p, variant))


@torch.no_grad()
def test_sentences_without_a_document_equal_the_sentence_level_decoder(variant):
    """Section 3: the initial translations come from the base model."""
    model, p = built(*variant)
    wanted = [decode(p, encode(p, source), words)[0] for source, words in PAIRS]
    check(without_padding(run(model, PAIRS)[0], PAIRS), wanted)
    # what is in memory is read all the same
    with_memory = run_documents(model, DOCUMENTS)
    assert [torch.allclose(a, b) for a, b in zip(with_memory, wanted)] == ALONE


@torch.no_grad()
def test_steps_of_beam_search_equal_the_equations(variant):
    """Vectors read for a sentence stay with it while its beams are reordered."""
    model, p = built(*variant)
    sources, _, drafts = zip(*ROWS)
    source, numbers = tensor_of(sources, left_pad=True), numbers_of(DOCUMENTS)
    encoded = model.encoder(source, source.ne(PAD).sum(1), documents=numbers)
    cells = None
    if model.remembers_translations:
        read = model.decoder.recall_source(encoded, numbers)
        cells = model.decoder.target_cells(tensor_of(drafts), encoded, read)
    encoded = {**encoded, "readings": [model.decoder.recall(encoded, numbers, cells)]}
    memories = []
    for sentences in DOCUMENTS:
        lines, _, known = zip(*sentences)
        memories += readings(p, lines, known, place=place_of(variant))
    count, generator, state = len(sources), torch.Generator().manual_seed(5), {}
    owners = torch.arange(count).repeat_interleave(2)
    beams = model.encoder.reorder_encoder_out(encoded, owners)
    tokens = torch.full((len(owners), 1), EOS)
    for step in range(4):
        got, _ = model.decoder(tokens, encoder_out=beams, incremental_state=state)
        for row, owner in enumerate(owners.tolist()):
            known = encode(p, sources[owner]), tokens[row], memories[owner], place_of(variant)
            check([got[row, -1]], [decode(p, *known)[0][-1]])
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
    options = ["--context-side", "both", "--context-integration", place, "--dropout", "0.4"]
    model = tiny.model(*tiny.memnet("--memory-dropout", "0.4", *options))
    p, seen = Parameters(model), []
    recall = model.decoder.recall

    def recall_and_keep(encoder_out, documents, cells, own):
        seen.append(cells)
        return recall(encoder_out, documents, cells, own)

    model.decoder.recall = recall_and_keep
    trained = run_documents(model.train(), DOCUMENTS)
    evaluated = run_documents(model.eval(), DOCUMENTS)
    wanted = []
    for sentences in DOCUMENTS:
        sources, _, drafts = zip(*sentences)
        encoded = [encode(p, source) for source in sources]
        cells = source_cells(p, sources)
        c_src = [read_memory(cells, summary(x), t) for t, x in enumerate(encoded)]
        wanted += target_cells(p, encoded, drafts, c_src, place)
    for cells in seen:
        torch.testing.assert_close(cells, torch.stack(wanted), atol=1e-9, rtol=0)
    assert all(not torch.allclose(a, b) for a, b in zip(trained, evaluated))
    assert all(not module.training for module in model.modules())


@torch.no_grad()
def test_source_cells_have_dropout_of_their_own():
    """Dropout of the vectors alone leaves no zero in the cells."""
    model = tiny.model(*tiny.memnet("--memory-dropout", "0.4", "--context-side", "source"))
    memory, documents = model.encoder.source_memory, torch.zeros(60, dtype=torch.long)
    tokens = torch.randint(4, 16, (60, 5))
    dropped = memory.train()(tokens, documents).eq(0)
    assert 0.3 < dropped.double().mean() < 0.5
    assert not memory.eval()(tokens, documents).eq(0).any()


# ---- vectors of sentences -----------------------------------------------------------------------


@torch.no_grad()
def test_vectors_of_sentences_are_standardised():
    """Mean 0 and standard deviation 1 over the given sentences, which need more than one batch."""
    model, p = built(*VARIANTS["source, context"])
    sentences = model.encoder.source_memory.sentences
    lengths = torch.randint(1, 6, (300,)).tolist()
    lines = [source for source, _ in random_document(lengths, seed=1)]
    raw = torch.stack([sentence_vector(p, line) for line in lines])
    sentences.standardise(torch.tensor(line) for line in lines)
    mean = raw.sum(0) / len(raw)
    deviation = ((raw - mean).pow(2).sum(0) / len(raw)).sqrt()
    check([sentences.mean, sentences.deviation], [mean, deviation])
    found = sentences(tensor_of(lines[:9], left_pad=True))
    check(found, (raw[:9] - mean) / deviation)
    sentences.standardise(iter([torch.tensor(lines[0])]))  # no deviation at all
    assert (sentences.deviation == 1e-4).all()


# ---- initialisation -----------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("gold", [False, True], ids=["drafts", "references"])
def test_second_stage_begins_with_what_rnnsearch_computes(variant, gold):
    """Exactly, because the weights of the insertion are zero at first (not in the paper)."""
    base = tiny.model(*tiny.rnnsearch("--decoder-layers", "2"))
    model = tiny.as_built(*tiny.memnet(*variant))
    model.load_state_dict(base.state_dict(), strict=True)
    wanted = without_padding(run(base, PAIRS)[0], PAIRS)
    for found, logits in zip(run_documents(model, DOCUMENTS, gold), wanted, strict=True):
        assert torch.equal(found, logits)


def test_the_first_update_trains_the_insertion_of_readings(variant):
    """At first only the insertion has a gradient; queries and memories have one later."""
    model = tiny.as_built(*tiny.memnet(*variant))
    sum(x.log_softmax(-1)[:, 5].sum() for x in run_documents(model, DOCUMENTS)).backward()
    for name, parameter in model.named_parameters():
        if name == "decoder.of_memory.weight":
            assert (parameter.grad != 0).all()
        elif "document_gru" in name or "target_query" in name:
            assert (parameter.grad == 0).all(), name


# ---- sizes --------------------------------------------------------------------------------------


def new_parameters(*options):
    """Millions of parameters that rnnsearch lacks, at the size of the paper."""
    task = TranslationTask(TranslationConfig(), DICTIONARY, DICTIONARY)
    parser = host.get_training_parser()
    args = host.parse_args_and_arch(parser, ["data", "--arch", "memnet_rnn", *options])
    model = task.build_model(args)
    return sum(
        p.numel() for p in model.parameters() if hasattr(p, "param_group") and p.requires_grad
    )


def test_numbers_of_parameters_equal_the_paper():
    """Table 3, whose figures are rounded to 0.1 million; here without the biases of the GRU."""
    biases = 2 * 2 * 3 * 512
    assert new_parameters("--context-side", "source") - biases == pytest.approx(6.29e6, abs=5e3)
    assert new_parameters("--context-side", "target") == pytest.approx(1.31e6, abs=5e3)
    assert new_parameters("--context-side", "both") - biases == pytest.approx(7.6e6, abs=1e4)
    words = len(DICTIONARY)
    output = new_parameters("--context-side", "both", "--context-integration", "output") - biases
    assert output == 4718592 + 524288 + words * 1536
