"""Properties that every architecture must have.

Covers modules/encoder_output.py.
"""

import functools
import inspect

import pytest
import tiny
import torch
from architectures import (
    ARCHITECTURES,
    ONE_OF_EACH,
    ONE_TRANSFORMER_OF_EACH,
    OWN,
    TRANSFORMERS,
    model_class,
    with_dropout,
)
from fairseq.data.data_utils import collate_tokens
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from long_tests import long_but_for
from pretended_gpu import PretendedGPU, put, put_module

import fairseq_docmt  # noqa: F401
from fairseq_docmt.generation import decoder_prefix
from fairseq_docmt.generation.decoder_prefix import prefills_in_parallel
from fairseq_docmt.modules.encoder_output import EncoderOutput
from fairseq_docmt.modules.hierarchical import HierarchicalAttention
from fairseq_docmt.modules.layers import AttentionProjections
from fairseq_docmt.modules.rfa.rfa_attention import _RFA

DICTIONARY = tiny.dictionary()
PAD, EOS, SEP = DICTIONARY.pad(), DICTIONARY.eos(), DICTIONARY.index("<sep>")


def sequence(length: int, seed: int) -> torch.Tensor:
    """Words with a separator now and then, closed by ``</s>``."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 16, (length,), generator=generator)
    tokens[3::5] = SEP
    tokens[-1] = EOS
    return tokens


def batch(lengths, seed=0, left_pad=False) -> torch.Tensor:
    rows = [sequence(length, seed + i) for i, length in enumerate(lengths)]
    return collate_tokens(rows, PAD, left_pad=left_pad)


def previous(tokens: torch.Tensor) -> torch.Tensor:
    """Decoder input for an output: shifted, ``</s>`` first."""
    shifted = torch.cat([torch.full_like(tokens[:, :1], EOS), tokens[:, :-1]], dim=1)
    return shifted.masked_fill(tokens.eq(PAD), PAD)


def scores(model, source, target, **follow):
    lengths = source.ne(PAD).sum(1)
    with torch.no_grad():
        output = model(source, lengths, previous(target), **follow)
        return model.get_normalized_probs(output, log_probs=True)


def following(model, lanes=2) -> dict:
    """Return the document inputs of four consecutive sentences that a model needs."""
    rows, known = torch.arange(4), inspect.signature(model.forward).parameters
    follow = {"starts": rows < lanes, "lanes": lanes, "documents": rows // 2}
    return {name: value for name, value in follow.items() if name in known}


@pytest.fixture(params=ARCHITECTURES)
def arguments(request):
    """Command line with all kinds of dropout, which evaluation must not apply."""
    return with_dropout(request.param)


@pytest.fixture
def model(arguments):
    return tiny.model(*arguments)


def test_neighbours_and_padding_do_not_change_a_row(model):
    source, target = batch([9, 4, 13], left_pad=True), batch([6, 12, 3], seed=10)
    together = scores(model, source, target)
    for i in range(3):
        alone = scores(
            model, source[i, source[i].ne(PAD)][None], target[i, target[i].ne(PAD)][None]
        )
        torch.testing.assert_close(together[i, : alone.size(1)], alone[0])
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(scores(model, source[order], target[order]), together[order])


def test_nothing_leaks_from_the_future(model):
    source, target = batch([9, 8]), batch([12, 12], seed=10)
    changed = target.clone()
    changed[:, 7:] = torch.tensor([SEP, 9, 4, 4, EOS])
    before, after = scores(model, source, target), scores(model, source, changed)
    # The token at position 7 is input at position 8.
    torch.testing.assert_close(after[:, :8], before[:, :8])
    assert not torch.allclose(after[:, 8:], before[:, 8:])


def random_orders(bsz, beams, steps, finish_at):
    """New orders of rows as in beam search; sentence 1 ends earlier than the others."""
    generator = torch.Generator().manual_seed(5)
    for step in range(steps):
        kept = [i for i in range(bsz) if not (step == finish_at and i == 1)]
        local = torch.randint(beams, (len(kept), beams), generator=generator)
        yield (torch.tensor(kept).unsqueeze(1) * beams + local).view(-1), kept
        bsz = len(kept)


@pytest.mark.parametrize(
    "size, source_lengths",
    [(1, [70, 40, 60]), (2, [9, 4, 6])],
    ids=["single, long sources", "ensemble, short sources"],
)
def test_steps_equal_the_whole_sequence_while_beams_move(arguments, size, source_lengths):
    """With enough steps to merge tokens into summaries; beams branch, and a sentence ends."""
    ensemble = EnsembleModel([tiny.model(*arguments, seed=seed) for seed in range(size)])
    beams, steps, bsz = 3, 40, 3
    source = batch(source_lengths, left_pad=True)
    net_input = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        encoded = ensemble.forward_encoder(net_input)
        begin = torch.arange(bsz).repeat_interleave(beams)
        encoded = ensemble.reorder_encoder_out(encoded, begin)
        tokens = torch.full((bsz * beams, 1), EOS)
        states, sentences, steps_got = [{} for _ in range(size)], list(range(bsz)), []
        for step, (order, kept) in enumerate(random_orders(bsz, beams, steps, finish_at=20)):
            got, _ = ensemble.forward_decoder(tokens, encoded, states)
            steps_got.append(got)
            if step % 4 == 3:  # all rows of these four steps, before most of them are dropped
                rows = torch.tensor(sentences).repeat_interleave(beams)
                want = together(ensemble.models, source[rows], tokens)
                got = torch.stack(steps_got, dim=1)
                # fairseq's softmax is single
                torch.testing.assert_close(got, want[:, -got.size(1) :], atol=2e-6, rtol=0)
                steps_got = []
            sentences = [sentences[i] for i in kept]
            ensemble.reorder_incremental_state(states, order)
            encoded = ensemble.reorder_encoder_out(encoded, order)
            steps_got = [got[order] for got in steps_got]
            new = torch.randint(4, 17, (len(order), 1), generator=generator)
            new[new.eq(16)] = SEP
            tokens = torch.cat([tokens[order], new], dim=1)


def together(models, source, tokens):
    """Log of the mean probabilities that models give to all next tokens at once."""
    outputs = [model(source, source.ne(PAD).sum(1), tokens) for model in models]
    scores = [m.get_normalized_probs(x, log_probs=True) for m, x in zip(models, outputs)]
    return torch.stack(scores).logsumexp(0) - torch.tensor(float(len(models))).double().log()


def test_beams_without_a_state(arguments):
    """Without incremental state, all beams of a sentence get the same source."""
    model = tiny.model(*arguments)
    source, target = batch([9, 4], left_pad=True), previous(batch([5, 5, 5, 5], seed=10))
    rows = torch.tensor([0, 0, 1, 1])
    with torch.no_grad():
        encoded = model.encoder(source, source.ne(PAD).sum(1))
        encoded = model.encoder.reorder_encoder_out(encoded, rows)
        got, _ = model.decoder(target, encoder_out=encoded)
        want, _ = model(source[rows], source[rows].ne(PAD).sum(1), target)
    torch.testing.assert_close(got, want)


def test_rows_can_move_to_other_sentences(arguments):
    """Rows of different sentences change places, which beam search never does."""
    if "transformer" in arguments:
        pytest.skip("the stock transformer relies on the orders of beam search")
    model = tiny.model(*arguments)
    source = batch([9, 4, 6], left_pad=True)
    encoded = model.encoder(source, source.ne(PAD).sum(1))
    tokens, state = previous(batch([3, 3, 3], seed=10)), {}
    with torch.no_grad():
        encoded = model.encoder.reorder_encoder_out(encoded, torch.arange(3).repeat_interleave(2))
        tokens, owners = tokens.repeat_interleave(2, 0), torch.arange(3).repeat_interleave(2)
        for end in range(1, 4):
            got, _ = model.decoder(tokens[:, :end], encoder_out=encoded, incremental_state=state)
            rows = source[owners]
            want, _ = model(rows, rows.ne(PAD).sum(1), tokens[:, :end])
            torch.testing.assert_close(got[:, -1], want[:, -1])
            order = torch.tensor([5, 0, 3, 3, 1, 2, 2])[: 7 if end == 1 else len(owners)]
            order = order if end == 1 else torch.arange(len(owners)).flip(0)
            model.decoder.reorder_incremental_state_scripting(state, order)
            encoded = model.encoder.reorder_encoder_out(encoded, order)
            tokens, owners = tokens[order], owners[order]


def test_every_parameter_learns_from_every_batch(model):
    """As data-parallel training expects, also in batches of first sentences only."""
    source, target = batch([9, 4], left_pad=True), batch([6, 12], seed=10)
    inputs = {**following(model), "starts": torch.ones(2) > 0, "documents": torch.arange(2)}
    inputs = {name: inputs[name] for name in following(model)}
    output, _ = model.train()(source, source.ne(PAD).sum(1), previous(target), **inputs)
    output.log_softmax(-1)[..., 5].sum().backward()
    idle = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert not idle


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_half_precision(arguments, dtype):
    """Outputs are close to double precision, and gradients are finite."""
    model = tiny.model(*arguments)
    source, target = batch([9, 4, 13], left_pad=True), batch([6, 12, 3], seed=10)
    lengths = source.ne(PAD).sum(1)
    with torch.no_grad():
        precise, _ = model(source, lengths, previous(target))
    output, _ = model.to(dtype)(source, lengths, previous(target))
    assert output.dtype == dtype
    # As many bits as the type has, after some twenty operations.
    bound = {torch.float16: 0.01, torch.bfloat16: 0.06}[dtype] * precise.std()
    torch.testing.assert_close(output.double(), precise, atol=float(bound), rtol=0)
    output.float().log_softmax(-1)[..., 5].sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


def test_automatic_mixed_precision(arguments):
    """Autocast (``--amp``) in training and evaluation, with consecutive sentences."""
    model = tiny.model(*arguments).float()
    source, target = batch([9, 4, 13, 7], left_pad=True), batch([6, 12, 3, 5], seed=10)
    inputs = following(model)
    model.train()
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            output = model(source, source.ne(PAD).sum(1), previous(target), **inputs)
            log_probabilities = model.get_normalized_probs(output, log_probs=True)
        log_probabilities[..., 5].sum().backward()
        if "lanes" in inputs:  # these sentences go on where the last have ended
            doc_state = {name: x.detach() for name, x in output[1]["doc_state"].items()}
            inputs.update(doc_state=doc_state, starts=torch.zeros_like(inputs["starts"]))
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    model.eval()
    precise = scores(model, source, target, **inputs)
    with torch.autocast("cpu", torch.bfloat16):
        lowered = scores(model, source, target, **inputs)
    torch.testing.assert_close(lowered, precise, atol=0.25, rtol=0)


def test_training_on_a_gpu_mixes_no_devices(model):
    model = put_module(model.float()).train()
    source, target = put((batch([9, 4, 13, 7], left_pad=True), batch([6, 12, 3, 5], seed=10)))
    inputs = put(following(model))
    with PretendedGPU():
        for _ in range(2):
            output = model(source, source.ne(PAD).sum(1), previous(target), **inputs)
            assert output[0].device.type == "cuda"
            model.get_normalized_probs(output, log_probs=True)[..., 5].sum().backward()
            if "lanes" in inputs:
                doc_state = {name: x.detach() for name, x in output[1]["doc_state"].items()}
                assert all(x.device.type == "cuda" for x in doc_state.values())
                inputs.update(doc_state=doc_state, starts=torch.zeros_like(inputs["starts"]))


def test_shapes_do_not_depend_on_values(arguments, monkeypatch):
    """On the meta device tensors have no values.  Whether there is padding is answered with yes."""
    if "sentence" in arguments:
        pytest.skip("window attention reads where the windows are")
    model, known = tiny.model(*arguments), torch.Tensor.__bool__
    if any(isinstance(module, torch.nn.GRU) for module in model.modules()):
        pytest.skip("torch's recurrences read the lengths of the sources")
    source, target = batch([9, 4, 13, 7], left_pad=True), batch([6, 12, 3, 5], seed=10)
    lengths, follow = source.ne(PAD).sum(1), following(model)
    wanted, _ = model(source, lengths, previous(target), **follow)
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda x: x.is_meta or known(x))
    follow.update((key, x.to("meta")) for key, x in follow.items() if key != "lanes")
    output, _ = model.to("meta")(source.to("meta"), lengths, previous(target).to("meta"), **follow)
    assert output.is_meta and output.shape == wanted.shape
    output.sum().backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients and all(gradient.is_meta for gradient in gradients)


def test_a_document_state_does_not_stay_as_wide_as_a_long_sentence(model):
    """Four short sentences follow it, one by one; then no system reads it word by word."""
    if "lanes" not in following(model):
        pytest.skip("has no document state")

    def shapes_after(first: int) -> dict:
        doc_state = None
        for length in (first, 3, 3, 3, 3):
            source, target = batch([length]), batch([length])
            stream = {"starts": torch.tensor([doc_state is None]), "lanes": 1}
            output = model(
                source, source.ne(PAD).sum(1), previous(target), doc_state=doc_state, **stream
            )
            doc_state = {name: x.detach() for name, x in output[1]["doc_state"].items()}
        return {name: x.shape for name, x in doc_state.items()}

    assert shapes_after(30) == shapes_after(3)


@pytest.mark.parametrize("arguments", long_but_for(ONE_OF_EACH, ARCHITECTURES), indirect=True)
def test_search_on_a_gpu_mixes_no_devices(model):
    source = put(batch([9, 4, 13, 7], left_pad=True))
    follow = put(following(put_module(model.float()), lanes=4))
    search = SequenceGenerator([model], DICTIONARY, beam_size=3, max_len_b=40)
    with PretendedGPU():
        inputs = {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1), **follow}
        found = search.generate([model], {"net_input": inputs})
        assert all(hypotheses[0]["tokens"].device.type == "cuda" for hypotheses in found)
    with PretendedGPU(), torch.no_grad():
        # Rows change places as in no beam search, so that beams no longer share a sentence.
        encoded, state, rows = model.encoder(**inputs), {}, put(torch.arange(8))
        encoded = model.encoder.reorder_encoder_out(encoded, rows.div(2, rounding_mode="floor"))
        for _ in range(2):
            words = torch.full_like(rows, EOS).unsqueeze(1)
            model.decoder(words, encoder_out=encoded, incremental_state=state)
            model.decoder.reorder_incremental_state_scripting(state, rows.flip(0).roll(1))


def test_prefixes_are_read_in_one_pass(model):
    """Twice, with rows of different lengths, and one more token after both."""
    assert prefills_in_parallel(model.decoder)
    source, parts = batch([9, 4, 6], left_pad=True), [(3, 1, 5), (2, 4, 1), (1, 1, 1)]
    words = previous(batch([7, 7, 7], seed=10))
    with torch.no_grad():
        encoded = model.encoder(source, source.ne(PAD).sum(1))
        wanted = model.decoder(words, encoder_out=encoded)[0].log_softmax(-1)
        prefix, ends = None, torch.zeros(3, dtype=torch.long)
        for lengths in parts:
            rows = [row[end : end + n] for row, end, n in zip(words, ends, lengths)]
            prefix = decoder_prefix.extend(
                model.decoder, encoded, collate_tokens(rows, PAD), before=prefix
            )
            found = model.decoder.output_layer(prefix.new_features).log_softmax(-1)
            for row, (end, n) in enumerate(zip(ends, lengths)):
                torch.testing.assert_close(found[row, :n], wanted[row, end : end + n])
            ends = ends + torch.tensor(lengths)


@pytest.mark.parametrize("name", [n for n in ONE_TRANSFORMER_OF_EACH if not n.startswith("rfa")])
def test_the_attention_of_each_layer_is_its_own(name):
    """As in fairseq, a decoder gives the weights of a layer over the source on request."""
    model = tiny.model(*ARCHITECTURES[name], "--decoder-layers", "2")
    source, words = batch([9, 4], left_pad=True), previous(batch([5, 7], seed=10))
    with torch.no_grad():
        encoded = model.encoder(source, source.ne(PAD).sum(1))
        found = [
            model.decoder.extract_features(words, encoded, alignment_layer=n)[1]["attn"]
            for n in range(2)
        ]
    (first,), (second,) = found
    for weights in (first, second):
        assert not weights[source.eq(PAD)[:, None].expand_as(weights)].any()
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("name", sorted({*ONE_TRANSFORMER_OF_EACH, "window-absolute"} - {"window"}))
def test_sinusoidal_positions_have_no_end(name):
    """fairseq's table begins with 1,024 positions."""
    model = tiny.model(*ARCHITECTURES[name])
    positions = model.decoder.embed_positions
    source, words = batch([4], left_pad=True), previous(batch([9], seed=10))
    with torch.no_grad():
        encoded = model.encoder(source, source.ne(PAD).sum(1))
        wanted, _ = model.decoder(words, encoder_out=encoded)
        positions.weights, state = positions.weights[:4], {}
        for end in range(1, 10):
            got, _ = model.decoder(words[:, :end], encoder_out=encoded, incremental_state=state)
            torch.testing.assert_close(got[:, -1], wanted[:, end - 1])


def test_every_architecture_is_tested():
    """Also where one variant of each is enough."""
    assert len(OWN) > 10
    for names in (ARCHITECTURES, ONE_OF_EACH):
        missing = {*OWN.values()} - set(map(model_class, names))
        assert not missing, f"add {missing} to tests/architectures.py"
    page = (tiny.ROOT / "examples" / "guide" / "systems.md").read_text(encoding="utf-8")
    missing = {name for name in OWN if f"`{name}`" not in page}
    assert not missing, f"describe {missing} in examples/guide/systems.md"


def test_dropout_is_named_after_its_module(model):
    """``--retain-dropout-modules`` takes the names of classes; fairseq drops ``Base`` from some."""
    for module in model.modules():
        names = {cls.__name__ for cls in type(module).__mro__}
        for part in module.children():
            if isinstance(part, FairseqDropout) and part.module_name is not None:
                assert names & {part.module_name, f"{part.module_name}Base"}


def test_keys_of_the_encoder_output_are_listed():
    """The documented keys are exactly the keys of encoders and of reordered outputs."""
    source, found = batch([9, 4], left_pad=True), set()
    for arguments in ARCHITECTURES.values():
        model = tiny.model(*arguments)
        if arguments is tiny.MODEL:
            continue
        encoder_out = model.encoder(source, src_lengths=source.ne(PAD).sum(1))
        selected = model.encoder.reorder_encoder_out(encoder_out, torch.tensor([1, 0]))
        assert set(selected) | {"fc_results"} == set(encoder_out) | {"fc_results"}
        found |= set(encoder_out)
    assert found == set(EncoderOutput.__annotations__)


# ---- dropout ---------------------------------------------------------------------------------

LAYERS = (TransformerDecoderLayerBase, TransformerEncoderLayerBase)
ATTENTION = (MultiheadAttention, AttentionProjections, HierarchicalAttention)


def tensors_of(output) -> list:
    """Return the tensors of an output and of its lists and tuples."""
    if isinstance(output, (list, tuple)):
        return [tensor for part in output for tensor in tensors_of(part)]
    return [output] if isinstance(output, torch.Tensor) else []


def changing_modules(model, is_chosen, decodes=False) -> dict:
    """Read four sentences; return whether each module gives another output if called again.

    Args:
        model: model.
        is_chosen: function from modules to whether they are called again, with the same inputs.
            Their submodules are not.
        decodes: whether the model decodes with ``--retain-dropout``, or else trains.
    """
    changes, again = {}, []

    def call_again(name, module, args, kwargs, output):
        if not again:
            again.append(name)
            with torch.no_grad():
                second = module.forward(*args, **kwargs)
            again.clear()
            changes[name] = not torch.equal(tensors_of(output)[0], tensors_of(second)[0])

    for name, module in model.named_modules():
        if is_chosen(module) and not any(name.startswith(f"{outer}.") for outer in changes):
            changes[name] = None
            module.register_forward_hook(functools.partial(call_again, name), with_kwargs=True)
    source, target = batch([9, 4, 13, 7]), batch([6, 12, 5, 8], seed=10)
    model.train()
    if decodes:
        model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=None)
        model.eval()
    model(source, source.ne(PAD).sum(1), previous(target), **following(model))
    return changes


@pytest.mark.parametrize("norm", ["before", "after"])
@pytest.mark.parametrize("architecture", TRANSFORMERS)
def test_every_layer_has_dropout(architecture, norm):
    before = ["--encoder-normalize-before", "--decoder-normalize-before"] * (norm == "before")
    model = tiny.model(*ARCHITECTURES[architecture], *before, "--dropout", "0.5")
    changes = changing_modules(model, lambda module: isinstance(module, LAYERS))
    assert changes and all(changes.values()), changes


@pytest.mark.parametrize("decodes", [False, True])
@pytest.mark.parametrize("architecture", TRANSFORMERS)
def test_every_attention_drops_weights(architecture, decodes):
    """Random feature attention has no weights."""
    options = ["--dropout", "0", "--attention-dropout", "0.5"]
    model = tiny.model(*ARCHITECTURES[architecture], *options)
    changes = changing_modules(
        model, lambda part: isinstance(part, ATTENTION) and not isinstance(part, _RFA), decodes
    )
    assert (changes or architecture == "rfa-encoder") and all(changes.values()), changes
