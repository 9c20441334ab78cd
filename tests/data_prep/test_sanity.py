"""Sides, splits and documents that are not what they are given as."""

import prepare
import pytest
import tiny
from check_documents import CorpusError, check_files
from sanity import KnownWords, Side, check_repetition, main_script, swapped_scripts

ENGLISH, CHINESE = ["This is a test."] * 20, ["这是 一个 测试 OK 。"] * 20
RUSSIAN, JAPANESE = ["Это проверка."] * 20, ["これは漢字の試験です。"] * 20


@pytest.mark.parametrize(
    "lines, script",
    [
        (ENGLISH, "Latin"),
        (CHINESE, "Chinese"),
        (RUSSIAN, "Cyrillic"),
        (JAPANESE, "Japanese"),
        (["東京都の知事選挙の結果"], "Japanese"),
        ([*RUSSIAN, *ENGLISH], None),
        (["12 3 !", ""], None),
    ],
)
def test_script(lines, script):
    assert main_script(lines) == script


def of_languages(*sides):
    return [Side(f"c.{language}", language, lines) for language, lines in sides]


def test_swapped_scripts():
    fault = swapped_scripts(*of_languages(("zh-CN", ENGLISH), ("en_US", CHINESE)))
    assert fault == (
        "c.zh-CN is in Latin script and c.en_US in Chinese; the sides are swapped: exchange the "
        "two files"
    )


@pytest.mark.parametrize(
    "sides, warnings",
    [
        ([("zh", CHINESE), ("en", ENGLISH)], []),
        ([("de", ENGLISH), ("en", ENGLISH)], []),
        ([("src", CHINESE), ("tgt", ENGLISH)], []),  # not languages
        ([("zh", ["1"]), ("en", ["2"])], []),
        (
            [("zh", ENGLISH), ("en", ENGLISH)],
            ["c.zh is in Latin script, but the language zh in Chinese"],
        ),
        (
            [("ru", JAPANESE), ("tgt", ENGLISH)],
            ["c.ru is in Japanese script, but the language ru in Cyrillic"],
        ),
    ],
)
def test_sides_that_may_be_right(sides, warnings, capsys):
    assert swapped_scripts(*of_languages(*sides)) is None
    assert capsys.readouterr().err == "".join(f"warning: {text}\n" for text in warnings)


SRC = [" ".join(f"w{(i * j) % 17}" for j in range(5)) for i in range(30)]
TGT = [line.replace("w", "v") for line in SRC]
SHARED = ["the same words " * 6] * 30


@pytest.mark.parametrize(
    "split, swapped",
    [
        ((TGT, SRC), True),
        ((SRC, TGT), False),
        ((TGT[:9], SRC[:9]), False),  # too little to say
        ((TGT, TGT), False),
        ((SHARED, SHARED), False),
    ],
)
def test_words_of_the_other_side(split, swapped):
    """Words tell the sides of a split apart without knowing the languages."""
    known = KnownWords(of_languages(("src", SRC), ("tgt", TGT)))
    fault = known.swapped([Side("t.src", "src", split[0]), Side("t.tgt", "tgt", split[1])])
    assert fault == (
        "t.src: 100% of the words are words of c.tgt, and 0% of c.src; the sides are swapped: "
        "exchange the file and t.tgt"
        if swapped
        else None
    )


def pairs(*numbers):
    """Both sides of numbered sentence pairs; 0 is a blank line."""
    return [[f"{side}{n}" if n else "" for n in numbers] for side in "st"]


def test_repeated_passages(capsys):
    """Single sentences may be anywhere; passages of three in many places are a mistake."""
    train = pairs(1, 2, 3, 4, 0, 5, 6, 7)
    splits = {
        "valid": pairs(3, 11, 4, 12, 5, 2, 1),
        "test": pairs(21, 22, 23, 2, 3, 0, 4),
        "test1": pairs(31, 32, 33, 11, 4, 12),
    }
    check_repetition(train, splits)
    apart = "passages of 3 sentence pairs are in {} too; keep the text of the splits apart\n"
    assert capsys.readouterr().err == (
        f"warning: test: 1 of 4 {apart.format('train')}warning: test1: 1 of 4 "
        + apart.format("valid")
    )
    check_repetition(pairs(*range(1, 301)), {"test": pairs(1, 2, 3, *range(500, 700))})
    assert not capsys.readouterr().err


def test_the_same_text_on_both_sides(tmp_path, capsys):
    for name, text in (("c.x", "a\nb\n"), ("c.y", "a\nb\n"), ("c.z", "a\nc\n")):
        (tmp_path / name).write_text(text)
    check_files(str(tmp_path / "c.x"), str(tmp_path / "c.z"))
    assert not capsys.readouterr().err
    check_files(str(tmp_path / "c.x"), str(tmp_path / "c.y"))
    said = f"warning: {tmp_path}/c.x and {tmp_path}/c.y are the same text; one should be the "
    assert capsys.readouterr().err == said + "translation\n"


@pytest.mark.parametrize("sentences, warned", [(2000, False), (2001, True)])
def test_missing_blank_lines(tmp_path, capsys, sentences, warned):
    for name in ("c.x", "c.y"):
        (tmp_path / name).write_text(f"{name}\n" * sentences)
    check_files(str(tmp_path / "c.x"), str(tmp_path / "c.y"))
    said = f"warning: {tmp_path}/c.x: 2,001 sentences form 1 document(s); put a blank line between "
    said += "documents, or sentences get the context of other documents\n"
    assert capsys.readouterr().err == (said if warned else "")


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "_run", lambda command, folder: None)
    for seed, split in enumerate(("train", "valid", "test")):
        tiny.write_split(tmp_path, split, tiny.documents((9, 8), seed))
    return tmp_path


def prepared(folder):
    options = ["--source-lang", "src", "--target-lang", "tgt", "--bpe-operations", "0"]
    options += ["--destdir", folder / "out", "--workers", "1"]
    options += [
        part for name in ("train", "valid", "test") for part in (f"--{name}", folder / name)
    ]
    prepare.Preparation(prepare.parse_args(list(map(str, options)))).run()


def test_splits_in_order(corpus, capsys):
    prepared(corpus)
    assert "warning" not in capsys.readouterr().err


def test_a_swapped_test_set(corpus):
    for side in ("src", "tgt"):
        text = tiny.text_of(tiny.documents((9, 8), 3))
        (corpus / f"test.{side}").write_text(text.replace("w", {"src": "v", "tgt": "w"}[side]))
    with pytest.raises(CorpusError, match=r"test.src: 100% of the words are words of \S+train.tgt"):
        prepared(corpus)


def test_a_copy_of_the_training_text(corpus, capsys):
    for side in ("src", "tgt"):
        (corpus / f"test.{side}").write_text((corpus / f"train.{side}").read_text())
    prepared(corpus)
    assert "warning: test: 15 of 15 passages of 3 sentence pairs are in train too" in (
        capsys.readouterr().err
    )
