"""Attention maps of recurrent memories.

Covers analysis/_documents.py.
"""

import json
from unittest import mock

import pytest
import tiny
import torch
from long_tests import LONG

from fairseq_docmt.analysis import cache_matching, gradient_attribution
from fairseq_docmt.analysis import memory_attention as analysis
from fairseq_docmt.analysis._documents import documents_of, load
from fairseq_docmt.errors import UserError


def test_maps(binarised, memory_stream_checkpoint):
    model, task = load(str(memory_stream_checkpoint), str(binarised))
    *_, document = documents_of(task, "test")
    found = analysis.attention_maps(model, document)
    assert list(found) == ["encoder layer 0", "decoder layer 0"]
    for maps in found.values():
        sentences, tokens = maps.present.shape
        assert maps.update.shape == (sentences - 1, 2, 4, tokens)
        assert maps.output.shape == (sentences, 2, tokens, 4)
        for weights in maps[:4]:
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        hidden = ~maps.present[:-1, None, None].expand_as(maps.update)
        assert (maps.update[hidden] == 0).all()
        gain = analysis.information_gain(maps)
        assert gain["update"] > 0 and gain["output"] > 0


@pytest.mark.parametrize("system", [pytest.param("memory", marks=LONG), "cache"])
def test_windows_have_no_memory_to_look_at(binarised, barely_trained, tmp_path, system):
    """Earlier versions trained models with a document state on windows, each from its beginning."""
    options = ["--task", "sliding_window_translation", "--window-size", "3"]
    with mock.patch("fairseq_docmt.tasks.starts.checkpoints.check_context"):
        checkpoint = str(barely_trained(*options, model=getattr(tiny, system)()))
    main = {"memory": analysis, "cache": cache_matching}[system].main
    arguments = [str(binarised), "--path", checkpoint, "--out", str(tmp_path / "out")]
    message = "the checkpoint is of sliding_window_translation, which has no document states; give"
    with pytest.raises(UserError, match=message):
        tiny.run_main(main, *arguments)


def test_gain_by_hand():
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.5, 0.25])
    assert float(analysis._divergence(p, q)) == pytest.approx(0.5 * 0.6931472)
    assert float(analysis._divergence(p, p)) == 0


def test_padding_is_left_out_of_the_gain():
    """One token of two is padding in the second sentence, where it would gain most."""
    uniform, sharp = torch.full((2, 1, 2, 2), 0.5), torch.tensor([1.0, 0.0])
    output = uniform.clone()
    output[0, 0, 0] = output[1, 0, 1] = sharp
    present = torch.tensor([[True, True], [True, False]])
    maps = analysis.MemoryMaps(uniform[:1], output, uniform[:1], uniform, present)
    gain = analysis.information_gain(maps)
    assert gain == {"update": 0, "output": pytest.approx(0.6931472 / 3)}


def test_command(binarised, memory_stream_checkpoint, tmp_path):
    path = str(memory_stream_checkpoint)
    arguments = [str(binarised), "--path", path, path, "--out", str(tmp_path)]
    for sentence in (1, 4):  # the first is padded, and so is the one after the other
        tiny.run_main(analysis.main, *arguments, "--document", "2", "--sentence", str(sentence))
        shown = json.loads((tmp_path / "memory_attention.json").read_text())
        words = tiny.documents((1, 5, 2, 7), 2)[1][sentence - 1].split()
        assert shown["words"]["encoder"][0] == [*words, "</s>"]
        for name, maps in shown["maps"].items():  # weights of the words alone, which sum to 1
            now, following = shown["words"][name.split()[0]]
            for row in maps["update"]:
                assert len(row) == len(now) and sum(row) == pytest.approx(1, abs=1e-5)
            assert len(maps["output"]) == len(following)
    assert [
        row["size"] for row in json.loads((tmp_path / "information_gain.json").read_text())
    ] == [
        4,
        4,
    ]
    for name in ("memory_attention", "information_gain"):
        assert (tmp_path / f"{name}.png").stat().st_size > 0
    with pytest.raises(
        UserError, match="5: sentences are counted from 1, and one must follow, but"
    ):
        tiny.run_main(analysis.main, *arguments, "--document", "2", "--sentence", "5")
    with pytest.raises(UserError, match="--document 9: test has 4 documents"):
        tiny.run_main(analysis.main, *arguments, "--document", "9")
    for number in ("0", "-1"):
        with pytest.raises(UserError, match=f"--document must be at least 1, got {number}"):
            tiny.run_main(analysis.main, *arguments, "--document", number)


@pytest.mark.parametrize(
    "analysis", [analysis, cache_matching, gradient_attribution], ids=lambda m: m.__name__[23:]
)
def test_options_are_checked_before_anything_is_computed(tmp_path, analysis):
    """There is neither a corpus nor a checkpoint."""
    (tmp_path / "file").write_text("x")
    arguments = ["corpus", "--path", "none.pt", "--out"]
    for out in ("file", "file/folder"):
        with pytest.raises(UserError, match=f"--out .*{out}: .*file is a file; give a folder"):
            tiny.run_main(analysis.main, *arguments, str(tmp_path / out))
    arguments += [str(tmp_path / "new"), "--documents", "-1"]
    with pytest.raises(UserError, match="--documents must be at least 1, got -1"):
        tiny.run_main(analysis.main, *arguments)
    assert not (tmp_path / "new").exists()


def test_models_without_memory(binarised, window_checkpoint):
    model, _ = load(str(window_checkpoint), str(binarised))
    with pytest.raises(UserError, match="^ck.pt: TransformerModel has no recurrent memory"):
        analysis.memories_of(model, "ck.pt")
