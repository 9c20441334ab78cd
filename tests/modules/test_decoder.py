"""Positions that begin anew in each sentence.

With them, a model without context reads each sentence as if it were alone.  Incremental decoding is
tested in tests/generation/test_decoder_prefix.py.

Covers modules/restarted_positions.py.
"""

import pytest
import tiny
import torch

from fairseq_docmt.data import join_sentences, pad_rows
from fairseq_docmt.modules.decoder import sentence_positions
from fairseq_docmt.modules.restarted_positions import restart_positions
from fairseq_docmt.ops import naive

EOS, SIZES = 2, (3, 1, 5, 2)
LEARNED = ["--encoder-learned-pos", "--decoder-learned-pos"]
WITHOUT_CONTEXT = [f"--{part}-context-layers=0" for part in ("encoder", "decoder", "cross")]


def features(model, words, sources, targets, left_pad):
    """Features (B, T, C) of rows that begin with ``</s>`` in the decoder."""
    source = pad_rows(sources, words, left_pad=left_pad)
    encoder_out = model.encoder(source, source.ne(words.pad()).sum(1))
    previous = [torch.cat([torch.tensor([EOS]), target[:-1]]) for target in targets]
    return model.decoder.extract_features(pad_rows(previous, words), encoder_out)[0]


@torch.no_grad()
@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize("options", [[], LEARNED], ids=["sinusoidal", "learned"])
def test_sentences_of_a_document_are_read_as_single_ones(options, left_pad):
    words = tiny.dictionary()
    separator = words.index("<sep>")
    single = tiny.model(*tiny.MODEL, *options)
    joint = tiny.model("--arch", "g_transformer", *tiny.MODEL[2:], *WITHOUT_CONTEXT, *options)
    for part in (single.encoder, single.decoder):
        part.embed_tokens.weight[separator] = part.embed_tokens.weight[EOS]
    joint.load_state_dict(single.state_dict())
    restart_positions(joint, separator, separator)
    sides = [[torch.randint(4, 14, (n,)) for n in SIZES] for _ in range(2)]
    sides = [[torch.cat([row, torch.tensor([EOS])]) for row in rows] for rows in sides]
    joined = [join_sentences(rows, separator) for rows in sides]
    # Beside a longer document, whose row is padded less.
    found = features(joint, words, *([row.repeat(2), row] for row in joined), left_pad)[1]
    alone = [
        features(single, words, [source], [target], left_pad)[0] for source, target in zip(*sides)
    ]
    # fairseq computes its attention weights in single precision, whatever the model.
    torch.testing.assert_close(found[: len(joined[1])], torch.cat(alone), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_positions_equal_the_loop(ends, left):
    """Any padding, several separators in a row, and rows that go on after tokens read before."""
    torch.manual_seed(0)
    for length in (1, 2, 7, 30):
        padding = torch.arange(length) < torch.randint(0, length + 1, (5, 1))
        is_token = ~padding if left else ~padding.flip(1)
        read = torch.zeros(5, 1, dtype=torch.long) if ends else torch.randint(0, 4, (5, 1))
        positions = (is_token.cumsum(1) + read) * is_token
        separators = torch.rand(5, length).lt(0.4) & is_token
        found = sentence_positions(positions, separators, ends)
        assert torch.equal(found, naive.sentence_positions(positions, separators, ends))


def test_where_a_separator_belongs():
    tokens, rows = torch.arange(1, 7)[None], torch.tensor([[0, 0, 1, 0, 1, 0]]).bool()
    assert sentence_positions(tokens, rows, ends=True).tolist() == [[1, 2, 3, 1, 2, 1]]
    assert sentence_positions(tokens, rows, ends=False).tolist() == [[1, 2, 1, 2, 1, 2]]
