"""Files of a binarised split."""

import pytest
import torch
from fairseq.data import indexed_dataset

from fairseq_docmt.data.binarised_files import check_side, check_split
from fairseq_docmt.errors import UserError

PAIR = ("de", "en")


def write(path, kind="mmap", lines=3):
    builder = indexed_dataset.make_builder(f"{path}.bin", kind, vocab_size=20)
    for _ in range(lines):
        builder.add_item(torch.tensor([7, 2]))
    builder.finalize(f"{path}.idx")


@pytest.fixture
def split(tmp_path):
    """Sides of ``train`` and ``train1``, the latter named in the other order."""
    for name in ("train.de-en", "train1.en-de"):
        for side in PAIR:
            write(tmp_path / f"{name}.{side}")
    return tmp_path


def test_complete_splits_pass(split):
    check_split(split, "train", PAIR, combined=True)
    check_split(split, "train", PAIR[::-1], combined=True)
    check_split(split, "valid", PAIR)


@pytest.mark.parametrize("kind", ["mmap", "cached"])
def test_sources_alone_pass_in_any_format(tmp_path, kind):
    write(tmp_path / "test.de-en.de", kind)
    check_split(tmp_path, "test", PAIR)


@pytest.mark.parametrize("suffix", ["bin", "idx"])
@pytest.mark.parametrize("name", ["train.de-en.de", "train.de-en.en", "train1.en-de.en"])
def test_each_missing_file_is_named(split, name, suffix):
    (split / f"{name}.{suffix}").unlink()
    with pytest.raises(UserError, match=rf"/{name}\.{suffix} not found, but "):
        check_split(split, "train", PAIR, combined=True)


def test_a_side_without_the_other(split):
    for path in split.glob("train1.en-de.en.*"):
        path.unlink()
    check_split(split, "train", PAIR)
    with pytest.raises(UserError, match=r"train1\.en-de\.en\.idx not found, but .*\.de\.idx;"):
        check_split(split, "train", PAIR, combined=True)


@pytest.mark.parametrize("left", [1, 8, 9, 25, 26, 61])
def test_a_cut_index(split, left):
    index = split / "train.de-en.de.idx"
    whole = index.read_bytes()
    assert len(whole) == 26 + 3 * 12
    index.write_bytes(whole[:left])
    with pytest.raises(UserError, match=f"is truncated: {left} bytes, but it needs "):
        check_side(str(index)[:-4])
