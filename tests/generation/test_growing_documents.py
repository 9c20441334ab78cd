"""Reuse of states when documents grow equals reading them again, in float64.

Covers modules/window/window_encoder.py.
"""

import pytest
import tiny
import torch

from fairseq_docmt.data import join_sentences, pad_rows
from fairseq_docmt.generation import decoder_prefix
from fairseq_docmt.generation.decoder_prefix import GrowingDocuments
from fairseq_docmt.models.interface import can_grow
from fairseq_docmt.modules.window.alignment import ALIGNMENTS

WORDS = 12
#: documents of a batch: which there are at each sentence, in which order; their row before
BATCHES = [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2], [2, 1], [1, 2], [2], [2]]
EXACT = {"atol": 1e-12, "rtol": 1e-12}


def build(*options):
    sizes = ["--encoder-layers", "2", "--decoder-layers", "2", "--attention-window", "2"]
    return tiny.model(*tiny.window(*sizes, *options)), tiny.dictionary()


def sentence(*lengths):
    length = int(lengths[torch.randint(len(lengths), ())])
    return torch.randint(4, 4 + WORDS, (length,))


class Growing:
    """Random documents that are extended step by step, and their model.

    Args:
        model: of window attention.
        words: dictionary.
        left_pad: where padding of sources stands.
        after: tokens after the ``</s>`` of every source, such as a language tag.
    """

    def __init__(self, model, words, left_pad=True, after=()):
        self.after = torch.tensor(after, dtype=torch.long)
        self.model, self.words, self.left_pad = model, words, left_pad
        self.eos, self.separator = torch.tensor([words.eos()]), words.index("<sep>")
        self.sources, self.targets = [[], [], []], [[], [], []]
        self.documents, self.before = GrowingDocuments(model), None

    def step(self, batch):
        """Append a sentence to each document and return the prefix, tokens and sources."""
        for row in batch:
            if self.sources[row]:  # not always as long as its source
                self.targets[row] += [sentence(1, 3, 9), torch.tensor([self.separator])]
            self.sources[row].append(torch.cat([sentence(1, 2, 5, 11), self.eos]))
        sources = [
            torch.cat([join_sentences(self.sources[row], self.separator), self.after])
            for row in batch
        ]
        tokens = [torch.cat([self.eos, *self.targets[row]]) for row in batch]
        known = None if self.before is None else [self.before.index(row) for row in batch]
        self.before = batch
        rows = pad_rows(sources, self.words, self.left_pad)
        encoder_out = self.documents.encode(rows, known)
        prefix = self.documents.read(pad_rows(tokens, self.words), encoder_out)
        return encoder_out, prefix, sources, tokens

    def anew(self, source):
        return self.model.encoder(source[None], torch.tensor([len(source)]))


@torch.no_grad()
@pytest.mark.parametrize("alignment", ALIGNMENTS)
@pytest.mark.parametrize("position", ["relative", "absolute"])
@pytest.mark.parametrize(
    "left_pad, after", [(False, ()), (True, ()), (True, (4,))], ids=["right", "left", "tagged"]
)
def test_reading_growing_documents_equals_reading_everything_again(
    position, alignment, left_pad, after
):
    options = ["--position", position, "--alignment", alignment]
    model, words = build(*options, "--encoder-normalize-before")
    growing, kept = Growing(model, words, left_pad, after), 0
    for batch in BATCHES:
        encoder_out, prefix, sources, tokens = growing.step(batch)
        for row, (source, row_tokens) in enumerate(zip(sources, tokens)):
            want = growing.anew(source)
            got = encoder_out["encoder_out"][0][: len(source), row]
            torch.testing.assert_close(got, want["encoder_out"][0][:, 0], **EXACT)
            forced = decoder_prefix.extend(model.decoder, want, row_tokens[None], None).features[0]
            torch.testing.assert_close(prefix.features[row], forced, **EXACT)
        settled = growing.documents._settled
        kept += 0 if settled is None else settled.tokens.ne(words.pad()).sum().item()
    assert kept > 0


@torch.no_grad()
def test_forced_equals_incremental_after_growing():
    """Incremental steps after a partly reused prefix, with rows of two beams."""
    model, words = build("--train-alignment", "sentence")
    growing = Growing(model, words)
    for batch in BATCHES[:3]:
        encoder_out, prefix, sources, tokens = growing.step(batch)
    beams = torch.arange(3).repeat_interleave(2)
    state = decoder_prefix.select_state(model.decoder, prefix.state, beams)
    written = prefix.tokens[beams]
    own = [tokens[row] for row in beams]
    for _ in range(5):
        new = torch.randint(4, 4 + WORDS, (6, 1))
        written = torch.cat([written, new], dim=1)
        own = [torch.cat([row, word]) for row, word in zip(own, new)]
        features, _ = model.decoder.extract_features(written, encoder_out, state)
        for row, beam in enumerate(beams):
            want, _ = model.decoder.extract_features(own[row][None], growing.anew(sources[beam]))
            torch.testing.assert_close(features[row, 0], want[0, -1], **EXACT)


@torch.no_grad()
@pytest.mark.parametrize("full", ["--full-decoder-attention", "--full-cross-attention"])
def test_attention_without_a_window(full):
    """Either the whole prefix is kept or none of it."""
    model, words = build(full)
    growing = Growing(model, words)
    for batch in BATCHES:
        _, prefix, sources, tokens = growing.step(batch)
        for row, (source, row_tokens) in enumerate(zip(sources, tokens)):
            want = growing.anew(source)
            forced = decoder_prefix.extend(model.decoder, want, row_tokens[None], None).features[0]
            torch.testing.assert_close(prefix.features[row], forced, **EXACT)
    assert (growing.documents._settled is None) == (full == "--full-cross-attention")


def test_only_the_end_is_encoded_and_read():
    """The number of computed tokens does not grow with the document."""
    model, words = build()
    growing, calls = Growing(model, words), []
    layers = [model.encoder.layers[0], model.decoder.layers[0].self_attn]
    for layer in layers:
        layer.register_forward_hook(lambda _, args, __: calls.append(max(args[0].shape[:2])))
    with torch.no_grad():
        for _ in range(40):
            calls.clear()
            growing.step([0, 1, 2])
    assert max(calls) < 60 < len(growing.sources[0]) * 4


def test_models_that_can_grow():
    assert can_grow(build()[0])
    for arguments in (tiny.window("--full-encoder-attention"), tiny.MODEL, tiny.lst(), tiny.rfa()):
        assert not can_grow(tiny.model(*arguments))
    absolute = tiny.window("--full-encoder-attention", "--position", "absolute")
    assert not can_grow(tiny.model(*absolute))
