"""memory_transformer against the equations of Feng et al. (2022), written as loops.

Covers models/memory_transformer.py.
"""

import math

import pytest
import tiny
import torch
from batches import (
    EOS,
    PAD,
    check,
    check_gradients,
    in_lanes,
    random_document,
    run,
    run_in_chunks,
    tensor_of,
    without_padding,
)
from equations.loops import layer_norm, weights_of
from equations.memory_loops import MemoryTransformer, gelu, mha, update_attention
from fairseq import checkpoint_utils

from fairseq_docmt.modules.recurrent_memory import ReadSentence, SentenceMemory

STREAM = ["--task", "sentence_stream_translation"]
TEST = tiny.documents((1, 5, 2, 7), 2)
TWO = ["--encoder-layers", "2", "--decoder-layers", "2"]
PRE_NORM = ["--encoder-normalize-before", "--decoder-normalize-before"]
#: options, layers with a memory of encoder and decoder
VARIANTS = {
    "both": ([], [0], [0]),
    "source": (["--context-side", "source", *TWO], [1], []),
    "target": (["--context-side", "target", *TWO], [], [1]),
    "top layers": (["--encoder-layers", "2", "--decoder-layers", "3"], [1], [2]),
    "all layers": (["--memory-layers", "1,0", *TWO], [0, 1], [0, 1]),
    "lowest layer": (["--memory-layers", "0", *TWO], [0], [0]),
    "one vector": (["--memory-size", "1"], [0], [0]),
    "seven vectors": (["--memory-size", "7"], [0], [0]),
    "two sentences": (["--memory-gradient-sentences", "2", *TWO], [1], [1]),
    "whole batches": (["--memory-gradient-sentences", "0"], [0], [0]),
    "two sentences, all layers": (
        ["--memory-gradient-sentences", "2", "--memory-layers", "0,1", *TWO],
        [0, 1],
        [0, 1],
    ),
    "unequal sides": (
        ["--encoder-embed-dim", "12", "--encoder-attention-heads", "3", "--memory-size", "5"]
        + ["--decoder-attention-heads", "4"],
        [0],
        [0],
    ),
    "pre-norm": (["--memory-layers", "0,1", *TWO, *PRE_NORM], [0, 1], [0, 1]),
    "learned positions": (["--encoder-learned-pos", "--decoder-learned-pos"], [0], [0]),
}


def option(options, name, default):
    return options[options.index(name) + 1] if name in options else default


def loop_of(model, variant) -> MemoryTransformer:
    options, encoder_layers, decoder_layers = VARIANTS[variant]
    sides = ("encoder", "decoder")
    return MemoryTransformer(
        weights_of(model),
        tuple(int(option(options, f"--{side}-layers", 1)) for side in sides),
        tuple(int(option(options, f"--{side}-attention-heads", 2)) for side in sides),
        (encoder_layers, decoder_layers),
        int(option(options, "--memory-gradient-sentences", 1)),
        pre_norm="--encoder-normalize-before" in options,
    )


def built(variant, *more):
    model = tiny.model(*tiny.memory("--dropout", "0", *VARIANTS[variant][0], *more))
    return model, loop_of(model, variant)


#: three lanes, in which documents follow each other; the last one comes to its end early
LANES = [
    [random_document([2, 5, 1, 4, 3], 1, target_words=12)],
    [
        random_document(lengths, seed, target_words=12)
        for lengths, seed in (([4, 1], 2), ([3], 3), ([5, 2], 4))
    ],
    [random_document([1, 3, 5], 5, target_words=12)],
]
#: a row of which nothing is read
FILLER = ([EOS], [PAD])


def by_model(model, chunks, left_pad=True):
    """Logits of each row, from batches of so many sentences of each lane."""
    return run_in_chunks(model, LANES, chunks, FILLER, left_pad)


def by_loop(loop, chunks):
    """Logits of each row, document by document."""
    cuts, found = {sum(chunks[:n]) for n in range(1, len(chunks))}, []
    for lane in LANES:
        found.append([])
        step = 0
        for document in lane:
            past, outputs = {}, []
            for source, words in document:
                logits, past = loop.sentence(
                    source, words, loop.cut(past) if step in cuts else past
                )
                outputs.append(logits)
                step += 1
            found[-1].append(outputs)
    return in_lanes(found, None)[0]


# ---- outputs and gradients ----------------------------------------------------------------------


#: variants that are tried with whole documents and single sentences in batches too
MORE_CHUNKS = ["both", "target", "whole batches", "two sentences, all layers"]


@pytest.mark.parametrize(
    "variant, chunks",
    [
        *((variant, [2, 3]) for variant in VARIANTS),
        *((variant, chunks) for variant in MORE_CHUNKS for chunks in ([5], [1, 1, 1, 1, 1])),
    ],
    ids=str,
)
def test_outputs_and_gradients_equal_the_equations(variant, chunks):
    """Documents in lanes and in batches of one or several sentences; gradients end at batches."""
    model, loop = built(variant)
    found, wanted = by_model(model, chunks), by_loop(loop, chunks)
    check(found, wanted)
    check_gradients(model, found, wanted)


@pytest.mark.parametrize("variant", ["all layers", "two sentences", "whole batches"])
def test_training_equals_the_equations(variant):
    """Without dropout; the update at the start of a document must have no effect."""
    model, loop = built(variant)
    found, wanted = by_model(model.train(), [3, 2], left_pad=False), by_loop(loop, [3, 2])
    check(found, wanted)
    check_gradients(model, found, wanted)


@pytest.mark.parametrize("variant", ["source", "target"])
def test_one_memory_has_the_gradients_of_the_paper(variant):
    """Several memories have the outputs of the paper, but gradients that reach further."""
    model, loop = built(variant)
    loop.exact = True
    found, wanted = by_model(model, [5]), by_loop(loop, [5])
    check(found, wanted)
    check_gradients(model, found, wanted)
    model, loop = built("all layers")
    found, wanted = by_model(model, [5]), by_loop(loop, [5])
    loop.exact = True
    exact = by_loop(loop, [5])
    check(found, exact)
    with pytest.raises(AssertionError):
        check_gradients(model, found, exact)


@torch.no_grad()
def test_gelu_in_the_update():
    """As in the authors' code; fairseq computes it in single precision, hence the tolerance."""
    model, loop = built("both", "--activation-fn", "gelu")
    loop.activation = gelu
    check(by_model(model, [5]), by_loop(loop, [5]), atol=2e-6)


class Doubling(torch.nn.Module):
    """Replacement of dropout that reveals where it is applied."""

    def forward(self, x):
        return 2 * x


@torch.no_grad()
def test_where_dropout_acts_in_the_update():
    """Dropout is applied to the query, which is also the residual, and after each product."""
    model, loop = built("both")
    memory, states = model.encoder.memories["0"], torch.randn(1, 3, 16)
    memory.dropout, states = Doubling(), states.double()
    sentence = ReadSentence(states, torch.ones(1, 3, dtype=torch.bool))
    before = memory.first(1)
    wanted = update_attention(
        loop.p, "encoder.memories.0", 2, before[0], states[0], drop=lambda x: 2 * x
    )
    torch.testing.assert_close(memory.update(before, sentence)[0], wanted, atol=1e-9, rtol=0)


@torch.no_grad()
def test_tables_of_positions():
    """Sines and cosines as fairseq lays them out, in single precision."""
    model, _ = built("seven vectors")
    for name, table in model.named_buffers():
        first = {"positions": 0, "weights": PAD + 1}.get(name.split(".")[-1])
        if first is None:
            continue
        for place in range(first, 7):
            # The first row after padding is position 2, as in all models of fairseq.
            angles = [place * 10000 ** (-k / (8 - 1)) for k in range(8)]
            wanted = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
            torch.testing.assert_close(table[place].tolist(), wanted, atol=2e-6, rtol=0)


@torch.no_grad()
def test_forgetful_models_read_the_first_memory_alone():
    """``--no-context``: every sentence is a document."""
    options = ["--no-context", *VARIANTS["all layers"][0]]
    model = tiny.model(*tiny.memory(*options))
    loop = loop_of(model, "all layers")
    wanted = [[[loop.sentence(*pair, {})[0] for pair in d] for d in lane] for lane in LANES]
    check(by_model(model, [2, 3]), in_lanes(wanted, None)[0])


# ---- how far gradients reach --------------------------------------------------------------------

SIX = ["--encoder-layers", "6", "--decoder-layers", "6"]
REACH = {
    # options: sentences back that gradient flows into, of the source and of the target
    ("--context-side", "source", *TWO): (1, 0),
    ("--context-side", "target", *TWO): (1, 1),
    ("--context-side", "target"): (0, 1),
    ("--context-side", "both", *TWO): (2, 1),
    ("--context-side", "both"): (1, 1),
    ("--memory-layers", "0,1", "--context-side", "source", *TWO): (2, 0),
    ("--memory-layers", "0,1", "--context-side", "target", *TWO): (1, 2),
    ("--memory-layers", "0,1", *TWO): (3, 2),
    ("--memory-layers", "4,5", *SIX): (4, 2),
    ("--memory-layers", "0,1,2,3,4,5", *SIX): (11, 6),
    ("--memory-gradient-sentences", "2", *TWO): (4, 2),
    ("--memory-gradient-sentences", "3", "--context-side", "source"): (3, 0),
    ("--memory-gradient-sentences", "0"): (13, 13),
}


@pytest.mark.parametrize("options", REACH, ids=" ".join)
def test_reach_of_gradients(options):
    """Earlier sentences that get gradients from the last of fourteen in a batch.

    One memory reaches ``--memory-gradient-sentences`` back.  What it is updated from has read the
    memories below it, and in the decoder the source, so the reaches of memories above each other
    add up.  As in the authors' code; the paper speaks of the most recent sentence alone.
    """
    model = tiny.model(*tiny.memory(*options))
    count = 14
    words = torch.arange(count).remainder(12) + 4
    source = torch.stack([words, torch.full((count,), EOS)], 1)
    previous = source.roll(1, 1)
    starts = torch.arange(count).eq(0)
    embedded = {}
    for side in (model.encoder, model.decoder):
        keep_rows(side, embedded)
    logits, _ = model(source, torch.full((count,), 2), previous, starts=starts, lanes=1)
    logits[-1].log_softmax(-1)[:, 5].sum().backward()
    strengths = [embedded[side].grad.abs().sum((1, 2)) for side in (model.encoder, model.decoder)]
    reached = tuple(int((x > 0).flip(0).cumprod(0).sum()) - 1 for x in strengths)
    beyond = [x[: count - 1 - r] for x, r in zip(strengths, reached)]
    assert reached == REACH[options]
    assert not any(x.any() for x in beyond)


def keep_rows(side, embedded):
    """Return the embeddings of the rows of a side and retain their gradient."""

    def keep(_, inputs, output):
        output.retain_grad()
        embedded[side] = output

    side.embed_tokens.register_forward_hook(keep)


# ---- decoding -----------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("variant", ["both", "all layers", "two sentences, all layers", "target"])
def test_steps_of_beam_search_equal_the_equations(variant, monkeypatch):
    """Memories do not change while beams are reordered; memories of the best hypotheses are kept.

    Each of them is updated once before a sentence.
    """
    model, loop = built(variant)
    begin, begun = SentenceMemory.begin_sentence, []

    def counted(self, *args):
        begun.append(self)
        return begin(self, *args)

    monkeypatch.setattr(SentenceMemory, "begin_sentence", counted)
    memories = {m for m in model.modules() if isinstance(m, SentenceMemory)}
    generator, doc_state, pasts = torch.Generator().manual_seed(3), None, [{}, {}, {}]
    sources = [[pair[0] for pair in random_document([3, 1, 5, 2], s)] for s in (21, 22, 23)]
    for number in range(4):
        begins = [number == 0, number in (0, 2), number == 0]  # another document in the second row
        pasts = [{} if begin else past for begin, past in zip(begins, pasts)]
        source = tensor_of([lane[number] for lane in sources], left_pad=True)
        stream = {"starts": torch.tensor(begins), "lanes": 3, "doc_state": doc_state}
        encoded = model.encoder(source, source.ne(PAD).sum(1), **stream)
        owners, state, said = torch.arange(3).repeat_interleave(2), {}, {}
        beams = model.encoder.reorder_encoder_out(encoded, owners)
        tokens = torch.full((6, 1), EOS)
        for step in range(4):
            got, _ = model.decoder(tokens, encoder_out=beams, incremental_state=state)
            for row, owner in enumerate(owners.tolist()):
                wanted, _ = loop.sentence(sources[owner][number], tokens[row], pasts[owner])
                check([got[row, -1]], [wanted[-1]])
            said.update({int(owner): tokens[row].tolist() for row, owner in enumerate(owners)})
            order = torch.tensor([1, 0, 2, 2, 5, 4])[: len(owners)]
            if step == 1:  # a sentence ends, the first one or the second
                order = order[owners[order] != number % 2]
            model.decoder.reorder_incremental_state_scripting(state, order)
            beams = model.encoder.reorder_encoder_out(beams, order)
            owners = owners[order]
            new = torch.randint(4, 16, (len(order), 1), generator=generator)
            tokens = torch.cat([tokens[order], new], dim=1)
        best = tensor_of([said[lane] for lane in range(3)])
        _, extra = model.decoder(best, encoder_out=encoded, features_only=True)
        doc_state = extra["doc_state"]
        assert set(begun) == memories and len(begun) == len(memories)
        begun.clear()
        pasts = [
            loop.sentence(lane[number], said[row], past)[1]
            for row, (lane, past) in enumerate(zip(sources, pasts))
        ]


@pytest.fixture(scope="module")
def checkpoint(binarised, tmp_path_factory):
    """Return a checkpoint of a model whose output depends on its memories."""
    folder = tmp_path_factory.mktemp("memories")
    arguments = [*STREAM, "--batch-size", "3", "--disable-validation"]
    path = tiny.train(
        binarised, folder, *arguments, updates=1, model=tiny.memory(*VARIANTS["all layers"][0])
    )
    return tiny.with_noise(path)


@torch.no_grad()
def scored_by_loop(loop, task, texts, forget=False):
    """Return log2 probabilities of the translations of the test documents, sentence by sentence."""
    wanted, lines = [], iter(texts)
    for sentences in TEST:
        past = {}
        for sentence in sentences:
            source = task.src_dict.encode_line(sentence, add_if_not_exist=False).long()
            words = [task.tgt_dict.index(word) for word in next(lines).split()]
            logits, past = loop.sentence(
                source, torch.tensor([EOS, *words]), {} if forget else past
            )
            target = torch.tensor([*words, EOS])
            scores = logits.log_softmax(-1).gather(1, target.unsqueeze(1)).squeeze(1)
            wanted.append((scores / math.log(2)).tolist())
    return wanted


@pytest.mark.parametrize(
    "options", [["--nbest", "3"], ["--score-reference"]], ids=["search", "references"]
)
def test_printed_scores_equal_the_equations(binarised, checkpoint, options):
    """Documents side by side; the memory of the best hypothesis is passed on.

    It reads what training reads, ``</s>`` and the words, and not the last ``</s>`` again.
    """
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    loop = loop_of(model.double().eval(), "all layers")
    output = tiny.generate(binarised, checkpoint, *STREAM, *options)
    texts, printed = tiny.lines_of(output), tiny.lines_of(output, "P")
    rows = tiny.rows_of(TEST)
    found = [[float(x) for x in printed[row].split()] for row in rows]
    wanted, forgetful = (
        scored_by_loop(loop, task, [texts[row] for row in rows], forget) for forget in (False, True)
    )
    for line, scores in zip(wanted, found):
        # The model is in single precision, and four digits are printed.
        assert scores == pytest.approx(line, abs=2e-4)
    begins = [n == 0 for sentences in TEST for n in range(len(sentences))]
    remembers = [max(abs(a - b) for a, b in zip(*x)) > 2e-3 for x in zip(wanted, forgetful)]
    assert remembers == [not begin for begin in begins]


# ---- initialisation -----------------------------------------------------------------------------


def first_sentences(model):
    """Logits of lone sentences."""
    pairs = random_document([3, 1, 5], 9)
    return without_padding(run(model, pairs)[0], pairs)


@torch.no_grad()
def test_finetuning_begins_with_the_transformer_and_a_random_sublayer():
    """The second stage (section 3.4) does not begin with what the first one computes.

    It begins with the transformer of the first stage, between whose sublayers stands
    ``LayerNorm(x + MHA(x, M, M))`` with random projections and a random first memory.  Neither
    the attention nor the norm begins as the identity, so that outputs change at once.
    """
    base = tiny.model(*tiny.MODEL, *TWO)
    model = tiny.as_built(*tiny.memory(*TWO))
    new = {name for name, _ in model.named_parameters() if ".memories." in name}
    p = {name: x.clone() for name, x in weights_of(model).items()}
    model.load_state_dict(base.state_dict(), strict=True)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, p[name] if name in new else base.state_dict()[name])
    stock, begins = first_sentences(base), first_sentences(model)

    def insert(module, name, attends):
        def sublayer(_, inputs, x):
            rows = x.flatten(0, 1)
            memory = layer_norm(p, f"{name}.initial_norm", p[f"{name}.initial"])
            added = mha(p, f"{name}.output_attention", 2, rows, memory) if attends else 0
            return layer_norm(p, f"{name}.output_norm", rows + added).view_as(x)

        return module.self_attn_layer_norm.register_forward_hook(sublayer)

    for attends in (True, False):
        hooks = [
            insert(getattr(base, side).layers[1], f"{side}.memories.1", attends)
            for side in ("encoder", "decoder")
        ]
        with_sublayers = first_sentences(base)
        for hook in hooks:
            hook.remove()
        if attends:  # attention of the stock transformer has a softmax in single precision
            check(begins, with_sublayers, atol=1e-6)
        one, other = (torch.cat(x).log_softmax(-1) for x in (with_sublayers, stock))
        assert (one - other).abs().max() > 0.1


@torch.no_grad()
def test_new_parameters_as_they_are_built():
    """The first memory from N(0, 1), norms as without training, projections as in fairseq."""
    model = tiny.as_built(*tiny.memory("--memory-size", "500"))
    # Uniform up to sqrt(6 / (inputs + outputs)), of queries, keys and values down by sqrt(2).
    gains = {"q_proj": 0.5**0.5, "k_proj": 0.5**0.5, "v_proj": 0.5**0.5}
    for memory in (model.encoder.memories["0"], model.decoder.memories["0"]):
        assert memory.initial.mean().abs() < 0.05 and abs(memory.initial.std() - 1) < 0.05
        for name, parameter in memory.named_parameters():
            if "norm.weight" in name:
                assert (parameter == 1).all(), name
            if name.endswith(("norm.bias", "out_proj.bias", "fc1.bias", "fc2.bias")):
                assert (parameter == 0).all(), name
            if parameter.dim() == 2 and name != "initial":
                bound = gains.get(name.split(".")[1], 1) * (6 / sum(parameter.shape)) ** 0.5
                assert 0.95 * bound < parameter.abs().max() <= bound, name
