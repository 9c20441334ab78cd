"""Reading a prefix in one pass equals teacher forcing, at odd lengths, in float64.

Restarted positions are read as well.
"""

import pytest
import tiny
import torch

from fairseq_docmt.data import pad_rows
from fairseq_docmt.generation import decoder_prefix
from fairseq_docmt.generation.ensembles import PrefixEnsemble
from fairseq_docmt.modules.restarted_positions import restart_positions

WORDS = 12
KINDS = {
    "transformer": tiny.MODEL,
    "lstm": tiny.RECURRENT_MODEL,
    "rfa-decay": tiny.rfa("--sentence-gate", "decay"),
    "rfa-average": tiny.rfa("--sentence-gate", "average"),
    "restarted": tiny.MODEL,
    "rfa-restarted": tiny.rfa(),
}
PARALLEL = [kind for kind in KINDS if kind != "lstm"]


def build(kind, *options, seed=0):
    model, words = tiny.model(*KINDS[kind], *options, seed=seed), tiny.dictionary()
    if kind.endswith("restarted"):
        restart_positions(model, words.index("<sep>"), words.index("<sep>"))
    return model, words


def rows_of(lengths, words, first=()):
    """Return random words with a separator at every fifth position and sometimes at the end."""
    rows = [torch.randint(4, 4 + WORDS, (n,)) for n in lengths]
    for row in rows:
        row[4::5] = words.index("<sep>")
    return [torch.cat([torch.tensor(first, dtype=torch.long), row]) for row in rows]


def encode(model, words, bsz):
    source = pad_rows(rows_of(range(bsz + 2, 2, -1), words), words, left_pad=True)
    lengths = source.ne(words.pad()).sum(1)
    return model.encoder(source, lengths), {"src_tokens": source, "src_lengths": lengths}


def teacher_forced(model, encoder_out, row, tokens):
    """Return the features at the last of ``tokens`` for a single row, by teacher forcing."""
    alone = model.encoder.reorder_encoder_out(encoder_out, torch.tensor([row]))
    return model.decoder.extract_features(tokens[None], alone)[0][0, -1]


@torch.no_grad()
@pytest.mark.parametrize("kind", PARALLEL)
@pytest.mark.parametrize("learned", [[], ["--decoder-learned-pos"]])
@pytest.mark.parametrize("normalize_before", [[], ["--decoder-normalize-before"]])
def test_reading_in_chunks_equals_teacher_forcing(kind, learned, normalize_before):
    model, words = build(kind, *learned, *normalize_before)
    encoder_out, _ = encode(model, words, 3)
    chunks = [rows_of(lengths, words) for lengths in ((1, 7, 3), (5, 1, 2), (1, 1, 33))]
    prefix, so_far = None, [torch.empty(0, dtype=torch.long)] * 3
    for chunk in chunks:
        prefix = decoder_prefix.extend(model.decoder, encoder_out, pad_rows(chunk, words), prefix)
        so_far = [torch.cat([a, b]) for a, b in zip(so_far, chunk)]
        for row in range(3):
            want = teacher_forced(model, encoder_out, row, so_far[row])
            # fairseq computes its attention weights in single precision, whatever the model.
            torch.testing.assert_close(prefix.features[row, 0], want, atol=1e-6, rtol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["rfa-decay", "rfa-restarted"])
def test_rows_without_new_tokens_keep_their_position(kind):
    model, words = build(kind)
    encoder_out, _ = encode(model, words, 2)
    state, so_far = {}, torch.empty(0, dtype=torch.long)
    for lengths in ((6, 3), (2, 0), (1, 4)):
        rows = rows_of(lengths, words)
        tokens = pad_rows(rows, words)
        features, _ = model.decoder.prefill(tokens, encoder_out, state)
        so_far = torch.cat([so_far, rows[1]])
    want = teacher_forced(model, encoder_out, 1, so_far)
    torch.testing.assert_close(features[1, lengths[1] - 1], want, atol=1e-6, rtol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("kind", PARALLEL)
def test_reading_does_not_change_what_was_read_before(kind):
    model, words = build(kind)
    encoder_out, _ = encode(model, words, 2)
    first = decoder_prefix.extend(
        model.decoder, encoder_out, pad_rows(rows_of((2, 3), words), words), None
    )
    more = pad_rows(rows_of((4, 1), words), words)
    once = decoder_prefix.extend(model.decoder, encoder_out, more, first)
    again = decoder_prefix.extend(model.decoder, encoder_out, more, first)
    assert torch.equal(once.features, again.features)
    assert first.tokens.shape == (2, 3)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("members", [1, 2])
def test_writing_after_a_prefix_equals_teacher_forcing(kind, members):
    """Incremental steps while beams are reordered and rows dropped, for one model and ensembles."""
    models, words = [build(kind, seed=seed)[0] for seed in range(members)], tiny.dictionary()
    eos, sep = words.eos(), words.index("<sep>")
    bsz = 3 if kind in PARALLEL else 1
    _, net_input = encode(models[0], words, bsz)
    prefixes = rows_of((1, 6, 3)[:bsz], words, first=(eos,))
    ensemble = PrefixEnsemble(models, eos, sep, words.pad())
    ensemble.encode(net_input)
    ensemble.read(pad_rows(prefixes, words))

    beams = torch.arange(bsz).repeat_interleave(2)
    encoder_outs = ensemble.reorder_encoder_out(ensemble.forward_encoder(net_input), beams)
    states = [{} for _ in models]
    written = torch.full((len(beams), 1), eos)
    source_row = beams.clone()
    inside = [True, False, True][:bsz]
    with ensemble.writing(inside):
        for step in range(4):
            if step == 2:  # beams swapped, and the last row's beams both from its second
                order = torch.tensor([1, 0, 3, 2, 5, 5][: len(beams)])
            elif step == 3 and bsz > 1:  # the first row is finished
                order = torch.tensor([2, 3, 4, 5])
            else:
                order = torch.arange(len(written))
            if step > 0:
                written, source_row = written[order], source_row[order]
                ensemble.reorder_incremental_state(states, order)
                encoder_outs = ensemble.reorder_encoder_out(encoder_outs, order)
            lprobs, _ = ensemble.forward_decoder(written, encoder_outs, states)
            for i in range(len(written)):
                ends = (sep, eos) if inside[source_row[i]] else (eos, sep)
                want = expected_lprobs(
                    models, net_input, source_row[i], prefixes, written[i], eos, ends
                )
                # fairseq computes probabilities in float32, whatever the model
                torch.testing.assert_close(lprobs[i], want.float(), rtol=1e-5, atol=1e-5)
            words_next = torch.randint(4, 4 + WORDS, (len(written), 1))
            written = torch.cat([written, words_next], dim=1)


def expected_lprobs(models, net_input, row, prefixes, written, eos, ends):
    """Return log-probabilities with that of the end symbol at </s> and none of the other one."""
    tokens = torch.cat([prefixes[row], written[1:]])
    probabilities = []
    for model in models:
        encoder_out = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
        features = teacher_forced(model, encoder_out, int(row), tokens)
        logits = model.decoder.output_layer(features[None, None])
        probabilities.append(torch.softmax(logits[0, 0], -1))
    mean = torch.stack(probabilities).mean(0)
    end, other = (float(mean[symbol]) for symbol in ends)
    mean[list(ends)] = 0
    mean[eos] = end
    assert other > 0
    return mean.log()
