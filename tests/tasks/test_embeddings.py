"""Word embeddings from files: --encoder-embed-path and --decoder-embed-path.

Covers tasks/starts/embeddings.py.
"""

import re

import pytest
import tiny
import torch
from fairseq.data import Dictionary

from fairseq_docmt.errors import UserError

WINDOW = ["--task", "sliding_window_translation", "--window-size", "2"]
SIZE = 16


def vector(place: int) -> list:
    return [round(0.01 * place + 0.001 * each, 3) for each in range(SIZE)]


def written(path, words) -> str:
    lines = [f"{len(words)} {SIZE}"]
    lines += [" ".join([word, *map(str, vector(place))]) for place, word in enumerate(words)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def train(data, folder, *options):
    """Train without changing a parameter, and return the checkpoint and its parameters."""
    path = tiny.train(data, folder, *WINDOW, "--lr", "0", *options, updates=1)
    return path, torch.load(path, weights_only=True)["model"]


def test_words_of_the_file_get_their_embeddings(binarised, tmp_path, caplog):
    source, target = (Dictionary.load(str(binarised / f"dict.{x}.txt")) for x in ("src", "tgt"))
    words = [source[source.nspecial + 3], "of_no_dictionary", source[source.nspecial]]
    files = ["--encoder-embed-path", written(tmp_path / "source.vec", words)]
    files += ["--decoder-embed-path", written(tmp_path / "target.vec", target.symbols[-1:])]
    _, found = train(binarised, tmp_path / "ck", *files)
    symbols = len(found["encoder.embed_tokens.weight"])  # with those that the task adds
    for side, dictionary, places in (("encoder", source, (0, 2)), ("decoder", target, (0,))):
        for place in places:
            word = words[place] if side == "encoder" else target.symbols[-1]
            row = found[f"{side}.embed_tokens.weight"][dictionary.index(word)]
            torch.testing.assert_close(row, torch.tensor(vector(place)))
    assert f"source.vec has embeddings of 2 words of {symbols} symbols" in caplog.text


def test_the_file_is_not_needed_after_training_has_begun(binarised, tmp_path, caplog):
    words = Dictionary.load(str(binarised / "dict.src.txt")).symbols[4:7]
    file = ["--encoder-embed-path", written(tmp_path / "vec", words)]
    checkpoint, found = train(binarised, tmp_path / "ck", *file)
    (tmp_path / "vec").unlink()
    assert tiny.lines_of(tiny.generate(binarised, checkpoint, *WINDOW[:2]))
    # Training is resumed by the same command.
    again = tiny.train(binarised, tmp_path / "ck", *WINDOW, "--lr", "0", *file, updates=2)
    assert torch.load(again, weights_only=True)["optimizer_history"][-1]["num_updates"] == 2
    torch.testing.assert_close(torch.load(again, weights_only=True)["model"], found)
    start = ["--finetune-from-model", str(checkpoint)]
    tiny.train(binarised, tmp_path / "new", *WINDOW, *start, updates=1)
    assert "other options of the model" not in caplog.text
    sentence = "--encoder-embed-path has no effect, because training starts from the embeddings of"
    with pytest.raises(UserError, match=sentence):
        tiny.train(binarised, tmp_path / "other", *WINDOW, *start, *file, updates=1)


@pytest.mark.parametrize(
    "lines, message",
    [
        (None, "is no file; give a file of embeddings"),
        (["w1 1 2"], "the first line must be the number of words and the size of their embed"),
        ([], "the first line must be the number of words and the size of their embeddings"),
        ([f"1 {SIZE}.0"], "the first line must be the number of words and the size of their embe"),
        (["1 8", "w1" + 8 * " 1"], "its embeddings have 8 values, but --decoder-embed-dim is 16"),
        ([f"1 {SIZE}", "v1" + 15 * " 1"], "line 2 is not a word and 16 numbers between spaces"),
        ([f"1 {SIZE}", "v1" + 16 * "\t1"], "line 2 is not a word and 16 numbers between spaces"),
        ([f"1 {SIZE}", "v1 nan" + 15 * " 1"], "line 2 is not a word and 16 numbers between spac"),
        ([f"1 {SIZE}", "v1 x" + 15 * " 1"], "line 2 is not a word and 16 numbers between spaces"),
        ([f"2 {SIZE}", "v1" + 16 * " 1"], "it has 1 words, but its first line says 2"),
        ([f"1 {SIZE}", "x" + 16 * " 1"], "it has none of the words of the dictionary; segment"),
        ([f"1 {SIZE}", "\xff" + 16 * " 1"], "'utf-8' codec can't decode byte 0xff"),
    ],
    ids=range(12),
)
def test_mistakes(binarised, tmp_path, lines, message):
    path = tmp_path / "vec"
    if lines is not None:
        path.write_text("".join(f"{line}\n" for line in lines), encoding="latin-1")
    with pytest.raises(UserError, match=f"^--decoder-embed-path {path}:? {re.escape(message)}"):
        train(binarised, tmp_path / "ck", "--decoder-embed-path", str(path))
