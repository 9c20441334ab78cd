"""Beam search with compiled kernels equals the plain versions in double precision."""

import pytest
import tiny
import torch
from fairseq.data.data_utils import collate_tokens
from fairseq.sequence_generator import SequenceGenerator

from fairseq_docmt.ops import step_kernels

DICTIONARY = tiny.dictionary()
PAD, EOS, SEP = DICTIONARY.pad(), DICTIONARY.eos(), DICTIONARY.index("<sep>")
#: heads and features large enough for the kernels
SIZES = ["--encoder-embed-dim", "32", "--decoder-embed-dim", "32"]
SIZES += ["--cross-feature-dim", "16", "--causal-feature-dim", "16"]


def sources(*lengths):
    """Random words with separators, closed by ``</s>``."""
    rows = []
    for length in lengths:
        row = torch.randint(4, 16, (length,))
        row[3::5], row[-1] = SEP, EOS
        rows.append(row)
    return collate_tokens(rows, PAD, left_pad=True)


@pytest.fixture
def calls(compiled_kernels, monkeypatch):
    """Record the names of the kernels that are called."""
    names, call = set(), step_kernels._call

    def noted(name, *arguments):
        names.add(name)
        call(name, *arguments)

    monkeypatch.setattr(step_kernels, "_call", noted)
    return names


@pytest.mark.parametrize("gate", ["none", "decay", "average"])
@pytest.mark.parametrize("lengths", [(9, 4, 6), (70, 40, 60)], ids=["short", "long"])
def test_search(lengths, gate, calls):
    source = sources(*lengths)
    sample = {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}}
    found = []
    for dtype in (torch.float64, torch.float32):
        model = tiny.model(*tiny.rfa(*SIZES, "--sentence-gate", gate)).to(dtype)
        assert not calls
        # Longer than the recent tokens that are not yet merged.
        search = SequenceGenerator([model], DICTIONARY, beam_size=5, min_len=40, max_len_b=45)
        found.append([row[0] for row in search.generate([model], sample)])
    attended = {"attend_float32"} if lengths[0] > 50 else set()
    assert calls == {"features_float32", "recall_float32_float32", *attended}
    for plain, compiled in zip(*found):
        assert torch.equal(plain["tokens"], compiled["tokens"])
        torch.testing.assert_close(
            plain["positional_scores"], compiled["positional_scores"], rtol=0, atol=1e-4
        )
