"""Texts whose sentences are shifted against each other are noticed at every entrance."""

import logging
import random

import check_documents
import numpy as np
import pytest
import tiny
from documents import checked_texts
from fairseq.data import Dictionary, LanguagePairDataset, ListDataset

from fairseq_docmt import command_line
from fairseq_docmt.data import open_corpus
from fairseq_docmt.parallel_text import BLOCK, unrelated_lengths

SENTENCES, SIDES = 150, ("src", "tgt")
WARNING = "lengths of both sides are not related"


def lengths(seed, count, noise=0.3):
    """Draw lengths of sentences and of their translations."""
    generator = np.random.default_rng(seed)
    source = generator.lognormal(2, 0.6, count)
    target = source * generator.lognormal(0.1, noise, count)
    return np.ceil(source).astype(int), np.ceil(target).astype(int)


def test_related_lengths_pass_and_shifted_ones_do_not():
    source, target = lengths(1, 5 * BLOCK)
    assert unrelated_lengths(source, target) is None
    assert "in 5 of 5 blocks" in unrelated_lengths(source, np.roll(target, 1))


def test_the_first_shifted_block_is_named():
    source, target = lengths(2, 5 * BLOCK)
    target[2 * BLOCK :] = np.roll(target[2 * BLOCK :], 1)
    warning = unrelated_lengths(source, target)
    assert "in 3 of 5 blocks of sentences (first: 401 to 600," in warning


def test_short_texts_and_constant_lengths_are_not_judged():
    source, target = lengths(3, 99)
    assert unrelated_lengths(source[1:], target[:-1]) is None
    assert unrelated_lengths(np.full(300, 5), lengths(3, 300)[1]) is None


def test_blocks_of_similar_lengths_are_not_judged():
    """In a block of exclamations, one word more or less says nothing."""
    source, target = lengths(5, 5 * BLOCK)
    source[:BLOCK], target[:BLOCK] = np.random.default_rng(6).integers(3, 5, (2, BLOCK))
    assert abs(np.corrcoef(source[:BLOCK], target[:BLOCK])[0, 1]) < 0.2
    assert unrelated_lengths(source, target) is None
    assert "(first: 1 to 200," in unrelated_lengths(source[:BLOCK], target[:BLOCK])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Source, reference, and the reference shifted by a line, as one document each."""
    folder, generator = tmp_path_factory.mktemp("parallel"), random.Random(4)
    words = [f"w{number}" for number in range(500)]
    sizes = zip(*lengths(4, SENTENCES, 0.1))
    pairs = [[" ".join(generator.choices(words, k=int(n))) for n in pair] for pair in sizes]
    source, target = zip(*pairs)
    sides = {"text.src": source, "text.tgt": target, "shifted.tgt": (*target[1:], target[0])}
    for name, lines in sides.items():
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "shifted.src").write_bytes((folder / "text.src").read_bytes())
    return folder


def checked(folder, name):
    """Check the text as ``check_documents.py`` and ``prepare.py`` do."""
    check_documents.check_files(*(str(folder / f"{name}.{side}") for side in ("src", "tgt")))


def converted(folder, name):
    """Read the text from a table."""
    lines = [(folder / f"{name}.{s}").read_text(encoding="utf-8").split("\n") for s in SIDES]
    checked_texts([[*zip(*lines)][:-1]], [folder / "out.src", folder / "out.tgt"])


def loaded(folder, name):
    """Load the text as a split for training or decoding."""
    words, sides = Dictionary(), []
    for side in SIDES:
        lines = (folder / f"{name}.{side}").read_text(encoding="utf-8").splitlines()
        tokens = [words.encode_line(line, append_eos=True).long() for line in lines]
        sides.append(ListDataset(tokens, np.array([len(each) for each in tokens])))
    src, tgt = sides
    open_corpus(name, lambda: LanguagePairDataset(src, src.sizes, words, tgt, tgt.sizes, words))


def scored(folder, name):
    """Score the text of another set; the reference belongs to the scored translation."""
    files = [folder / "text.src", folder / f"{name}.tgt"]
    options = [f"--source={files[0]}", f"--reference={files[1]}", f"a={files[1]}"]
    return tiny.run_main(command_line.main, "metrics", *options)


def scored_itself(folder, name):
    """Score a text, which is in reversed order if it is not the reference."""
    lines = (folder / "text.tgt").read_text(encoding="utf-8").splitlines()
    lines = lines if name == "text" else lines[::-1]
    (folder / "system").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = [f"--reference={folder / 'text.tgt'}", f"a={folder / 'system'}"]
    return tiny.run_main(command_line.main, "metrics", *options)


def chosen(folder, name):
    """Choose among translations that are not of the source."""
    files = [f"--source={folder / 'text.src'}", f"--out={folder / 'out'}"]
    systems = [f"{system}={folder / name}.tgt" for system in "ab"]
    return tiny.run_main(command_line.main, "mbr", *files, *systems)


@pytest.mark.parametrize(
    "entrance",
    [checked, converted, loaded, scored, scored_itself, chosen],
    ids=lambda e: e.__name__,
)
@pytest.mark.parametrize("name, warned", [("text", False), ("shifted", True)])
def test_shifted_text_is_noticed(files, capsys, caplog, entrance, name, warned):
    caplog.set_level(logging.WARNING)
    shown = entrance(files, name) or ""
    assert (WARNING in shown + capsys.readouterr().err + caplog.text) == warned
