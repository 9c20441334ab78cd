"""Attention shares: values computed by hand, and all architectures with attention weights."""

import sys
from unittest import mock

import pytest
import tiny
import torch
from long_tests import LONG

from fairseq_docmt.analysis import attention_share as analysis
from fairseq_docmt.errors import UserError

DICTIONARY = tiny.dictionary()
PAD, EOS, SEP = DICTIONARY.pad(), DICTIONARY.eos(), DICTIONARY.index("<sep>")
SYMBOLS = analysis.Symbols(SEP, SEP, PAD)


def test_shares_by_hand():
    source = torch.tensor([[4, SEP, 5, 6, EOS]])
    previous = torch.tensor([[EOS, 7, SEP, 8, PAD]])
    attention = torch.tensor([[[0.5, 0.1, 0.2, 0.1, 0.1]] * 5])
    got = analysis.shares(attention, source, previous, SYMBOLS)
    torch.testing.assert_close(got, torch.tensor([0.6, 0.6, 0.4, 0.4]))


@pytest.mark.parametrize(
    "arguments",
    [tiny.MODEL, tiny.window(), tiny.lst(), tiny.rnnsearch()],
    ids=["transformer", "window", "lst", "rnnsearch"],
)
def test_one_sentence_has_all(arguments):
    """Weights of every layer sum to 1; a single sentence has no other sentence to attend to."""
    model = tiny.model(*arguments)
    source = torch.tensor([[PAD, 5, 6, EOS], [5, 6, 7, EOS]])
    previous = torch.tensor([[EOS, 5, 6, 7], [EOS, 5, PAD, PAD]])
    net_input = {"src_tokens": source, "src_lengths": torch.tensor([3, 4])}
    sample = {"net_input": {**net_input, "prev_output_tokens": previous}, "target": previous}
    assert analysis.attention_share(model, [sample], SYMBOLS) == pytest.approx([100.0], abs=1e-4)


def test_tokens_without_a_loss_do_not_count():
    """Tokens of the context, if the loss is on the last sentence."""
    model = tiny.model(*tiny.MODEL)
    source = torch.tensor([[5, SEP, 6, 7, EOS]])
    previous = torch.tensor([[EOS, 5, SEP, 8, 9]])
    net_input = {"src_tokens": source, "src_lengths": torch.tensor([5])}
    net_input["prev_output_tokens"] = previous
    attention = model(**net_input, alignment_layer=0)[1]["attn"][0]
    for target, first in (([[5, SEP, 8, 9, EOS]], 0), ([[PAD, PAD, 8, 9, EOS]], 2)):
        sample = {"net_input": net_input, "target": torch.tensor(target)}
        wanted = analysis.shares(attention, source, previous, SYMBOLS)[first:].mean().item()
        assert analysis.attention_share(model, [sample], SYMBOLS) == pytest.approx([100 * wanted])


def test_without_attention_weights():
    model = tiny.model(*tiny.rfa())
    tokens = torch.tensor([[5, 6, EOS]])
    net_input = {"src_tokens": tokens, "src_lengths": torch.tensor([3])}
    sample = {"net_input": {**net_input, "prev_output_tokens": tokens}, "target": tokens}
    with pytest.raises(UserError, match="RFATransformerModel has no attention weights"):
        analysis.attention_share(model, [sample], SYMBOLS)


@pytest.mark.parametrize("arch", ["lstm", "fconv", "lightconv"])
def test_stock_models_without_weights_by_layer(arch):
    """The decoders of the first two have no dictionary of outputs; the third ignores the layer."""
    small = ["--encoder-embed-dim", "16", "--decoder-embed-dim", "16"]
    if arch == "fconv":
        small += ["--encoder-layers", "[(16, 3)]", "--decoder-layers", "[(16, 3)]"]
    model = tiny.model("--arch", arch, *small)
    tokens = torch.tensor([[5, 6, EOS]])
    net_input = {"src_tokens": tokens, "src_lengths": torch.tensor([3])}
    sample = {"net_input": {**net_input, "prev_output_tokens": tokens}, "target": tokens}
    with pytest.raises(UserError, match="does not give the attention weights of each layer; give"):
        analysis.attention_share(model, [sample], SYMBOLS)


def test_mistakes(binarised, tmp_path):
    with pytest.raises(UserError, match="checkpoint .*none.pt not found"):
        tiny.run_main(analysis.main, str(binarised), "--path", str(tmp_path / "none.pt"))


@pytest.mark.parametrize("option", ["--max-tokens", "--batch-size"])
def test_sizes_of_batches(binarised, document_checkpoint, option):
    arguments = [str(binarised), "--path", str(document_checkpoint), option, "0"]
    with pytest.raises(UserError, match=f"{option} must be at least 1, got 0"):
        tiny.run_main(analysis.main, *arguments)


def test_language_models(binarised, document_checkpoint, tmp_path):
    state = torch.load(document_checkpoint, weights_only=False)
    state["cfg"]["task"] = {"_name": "language_modeling", "data": "data"}
    torch.save(state, tmp_path / "lm.pt")
    with pytest.raises(UserError, match="lm.pt was trained with --task language_modeling; give"):
        tiny.run_main(analysis.main, str(binarised), "--path", str(tmp_path / "lm.pt"))


def test_command(binarised, document_checkpoint):
    arguments = ["x", str(binarised), "--path", str(document_checkpoint)]
    with mock.patch.object(sys, "argv", arguments):
        printed = tiny.run_main(analysis.main, *arguments[1:])
    shares = [float(line.split("\t")[2].split()[0]) for line in printed.splitlines()]
    assert len(shares) == 2 and shares[0] == shares[1] and 0 < shares[0] < 100


@pytest.mark.parametrize("system", ["memory", pytest.param("cache", marks=LONG)])
def test_streams_read_one_source_sentence(binarised, request, system):
    checkpoint = request.getfixturevalue(f"{system}_stream_checkpoint")
    arguments = [str(binarised), "--path", str(checkpoint), "--batch-size", "2"]
    printed = tiny.run_main(analysis.main, *arguments)
    assert printed == "test\tlayer 1\t100.0 %\ntest\tmean\t100.0 %\n"
