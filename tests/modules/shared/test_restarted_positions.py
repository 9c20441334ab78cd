"""With restarted positions, a model without context reads each sentence as if it were alone.

Incremental decoding is tested in tests/generation/test_decoder_prefix.py.
"""

import pytest
import tiny
import torch

from fairseq_docmt.data import join_sentences, pad_rows
from fairseq_docmt.modules.shared.restarted_positions import restart_positions

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
