"""Warnings of documents and words that are probably not what the user means."""

import shutil

import numpy as np
import pytest
import tiny
import torch
from fairseq.data import indexed_dataset

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.tasks import _text_folders
from fairseq_docmt.tasks._text_folders import TypedText, check_documents

LONG = "3 sentences form 1 document(s); put a blank line between documents, or sentences get the "
LONG += "context of other documents"
SINGLE = "each of the 10 documents has one sentence, so that there is no context; put blank lines "
SINGLE += "between documents only"
TYPED = "7 of the first {} tokens of the input are not in the dictionary; give text in the source "
TYPED += "language and in the form of the training data, or --tokenizer and --bpe as in training"


@pytest.fixture
def short(monkeypatch):
    """Documents of more than two sentences are long."""
    monkeypatch.setattr(_text_folders, "MOST_SENTENCES", 2)


@pytest.mark.parametrize(
    "lengths, warning",
    [
        ([3], LONG),
        ([2], None),
        ([3, 1], None),
        ([1] * 10, SINGLE),
        ([1] * 9, None),
        ([1] * 9 + [2], None),
    ],
)
def test_documents(short, caplog, lengths, warning):
    check_documents("x", DocumentIndex.from_lengths(lengths))
    assert caplog.messages == ([f"x: {warning}"] if warning else [])


@pytest.mark.parametrize(
    "lines, warning",
    [
        ([(4, 5)], None),  # too few to say
        ([(4, 5), (3, 5)], TYPED.format(10)),
        ([(7, 10), (30, 99)], TYPED.format(10)),  # once
        ([(2, 10), (3, 39)], None),
        ([(2, 10), (5, 40)], TYPED.format(50)),
        ([(2, 10), (0, 40), (90, 90)], None),  # only the beginning is read
    ],
)
def test_typed_words(caplog, lines, warning):
    text = TypedText(unk=3)
    for unknown, tokens in lines:
        text.read([torch.tensor([3] * unknown + [9] * (tokens - unknown) + [2])])
    assert caplog.messages == ([warning] if warning else [])


def test_a_long_typed_document(short, caplog):
    """It may come in several buffers, and others may come before it in the same one."""
    for lengths, number, position, named in (
        ([1, 2, 3], 4, 0, 7),
        ([1, 2], 4, 2, 5),
        ([1, 2], 4, 1, None),
        ([], 4, 2, None),
    ):
        caplog.clear()
        text, index = TypedText(unk=3), DocumentIndex.from_lengths(lengths)
        for _ in range(2):
            text.read_documents(index, number, position)
        wanted = f"document {named} of the input has more than 2 sentences; put a blank line "
        wanted += "between documents, or sentences get the context of other documents"
        assert caplog.messages == ([wanted] if named else [])


WINDOWS = ["--task", "sliding_window_translation"]


@pytest.mark.parametrize("size, warned", [(1, 0), (2, 3)])
def test_long_documents_in_training(short, tmp_path, caplog, size, warned):
    """A model without context does not mind."""
    data = tiny.corpus(tmp_path, train=[9], valid=[9], test=[9])
    path = tiny.train(data, tmp_path / "ck", *WINDOWS, "--window-size", str(size), updates=1)
    tiny.generate(data, path, *WINDOWS)
    found = [text for text in caplog.messages if "9 sentences form 1 document(s)" in text]
    assert [text.split(":")[0].split("/")[-1] for text in found] == [
        "valid.src-tgt",
        "train.src-tgt",
        "test.src-tgt",
    ][:warned]


ALONE = "no example has more than one sentence, so that there is no context; allow longer ones "
ALONE += "(--max-tokens, --max-source-positions, --max-target-positions, --max-document-tokens)"


@pytest.mark.parametrize(
    "options, splits",
    [
        ([], []),
        (["--max-document-tokens", "20"], []),
        (["--max-document-tokens", "4"], ["valid", "train"]),
        (["--document-parts", "99"], ["train"]),
    ],
)
def test_documents_cut_into_sentences(binarised, tmp_path, caplog, options, splits):
    tiny.train(binarised, tmp_path, "--task", "full_document_translation", *options, updates=1)
    assert [text for text in caplog.messages if "no example" in text] == [
        f"{binarised}/{split}.src-tgt: {ALONE}" for split in splits
    ]


def test_a_stream_has_its_context_in_a_state(binarised, tmp_path, caplog):
    stream = ["--task", "sentence_stream_translation", "--batch-size", "2"]
    tiny.train(binarised, tmp_path, *stream, updates=1, model=tiny.memory())
    assert not [text for text in caplog.messages if "no example" in text]


@pytest.mark.parametrize("known, warned", [(0, True), (3, False)])
def test_swapped_sides(window_checkpoint, binarised, tmp_path, caplog, known, warned):
    """Nearly all words are unknown; fairseq-preprocess writes them as <unk>, 3."""
    data = tmp_path / "data"
    shutil.copytree(binarised, data)
    for side in ("src", "tgt"):
        path = str(data / f"test.src-tgt.{side}")
        builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", vocab_size=20)
        for _ in range(4):
            builder.add_item(torch.tensor([9] * known + [3] + [2]))
        builder.finalize(f"{path}.idx")
    tiny.generate(data, window_checkpoint, *WINDOWS)
    assert [text for text in caplog.messages if "not in the dictionary" in text] == [
        f"{data}/test.src-tgt: 100 % of the {side} tokens are not in the dictionary; look whether "
        "the sides are swapped, and prepare the text as that of training"
        for side in ("source", "target")
        if warned
    ]


@pytest.mark.parametrize("parts, warned", [(1, 1), (2, 0)])
def test_upsampling_of_the_only_set(tmp_path, caplog, parts, warned):
    data = tiny.corpus(tmp_path)
    for path in data.glob("train.*") if parts == 2 else ():
        shutil.copy(path, data / path.name.replace("train", "train1"))
    tiny.train(data, tmp_path / "ck", *WINDOWS, "--upsample-primary", "2", updates=1)
    wanted = f"{data}/train.src-tgt: no effect without another set, train1: --upsample-primary"
    assert caplog.messages.count(wanted) == warned


@pytest.mark.parametrize("options, warned", [([], 1), (["--disable-validation"], 0)])
def test_validation_on_the_training_set(binarised, tmp_path, caplog, options, warned):
    data = tmp_path / "data"
    shutil.copytree(binarised, data)
    for path in data.glob("train.*"):
        shutil.copy(path, data / path.name.replace("train", "valid"))
    tiny.train(data, tmp_path / "ck", *WINDOWS, *options, updates=1)
    assert caplog.messages.count(_same_text(data, "train")) == warned


def test_validation_on_a_part_of_the_training_set(tmp_path, caplog):
    data = tiny.corpus(tmp_path)
    for path in data.glob("valid.*"):
        shutil.copy(path, data / path.name.replace("valid", "train1"))
    tiny.train(data, tmp_path / "ck", *WINDOWS, updates=1)
    assert _same_text(data, "train1") in caplog.messages
    assert _same_text(data, "train") not in caplog.messages


def _same_text(data, part):
    names = (data / f"{split}.src-tgt.src.bin" for split in ("valid", part))
    both = " and ".join(map(str, names))
    return f"{both} have the same source text; keep the text of the splits apart"


def test_the_share_of_unknown_tokens():
    lines = [torch.tensor([3, 9, 3, 2]), torch.tensor([9, 2])]
    assert np.isclose(_text_folders._share_of(3, lines), 0.5)
