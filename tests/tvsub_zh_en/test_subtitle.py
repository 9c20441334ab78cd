"""The Subtitle corpus of Tu et al. (2018): its checks, and subtitle.sh from the text to the tables.

The commands of all systems are compared in tests/integration/test_recipes.py.
"""

import json
import lzma
import random
import shutil
import subprocess
from pathlib import Path

import dictionary
import pytest
import recipes
import subtitle_corpus
import tables
import tiny
import torch
from check_documents import CorpusError
from commands import Shell

from fairseq_docmt.errors import UserError

SCRIPT = recipes.EXAMPLES / "tu2018_cache" / "subtitle.sh"
WORDS = {"zh": "我们 你们 走吧 看见 书架 这是 那里", "en": "i you go away see this book it"}


def write_corpus(folder: Path) -> Path:
    """Files of the corpus with random words; each test sentence lacks a pronoun."""
    folder.mkdir()
    draw = random.Random(1)
    for name, lengths in (("train", [6] * 12), ("dev", [8] * 2), ("test", [4, 3])):
        for language, text in WORDS.items():
            lines = [[" ".join(draw.choices(text.split(), k=4)) for _ in range(n)] for n in lengths]
            (folder / f"{name}.{language}").write_text(tiny.text_of(lines), encoding="utf-8")
    for side in ("zh", "en"):
        packed = lzma.compress((folder / f"train.{side}").read_bytes())
        (folder / f"train.{side}.xz").write_bytes(packed)
        (folder / f"train.{side}").unlink()
    for name in subtitle_corpus.FURTHER_REFERENCES:
        shutil.copy(folder / "test.en", folder / name)
    lines = (folder / "test.zh").read_text(encoding="utf-8").splitlines()
    oracle = "".join(f"我 {line}\n" if line else "\n" for line in lines)
    (folder / subtitle_corpus.ORACLE).write_text(oracle, encoding="utf-8")
    return folder


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "corpus")


def test_the_corpus_is_unpacked_and_marked(corpus, tmp_path):
    out = tmp_path / "out"
    subtitle_corpus.main(corpus, out, any_size=True)
    packed = lzma.decompress((corpus / "train.zh.xz").read_bytes())
    assert (out / "train.zh").read_bytes() == packed
    source, marked = (
        (out / name).read_text(encoding="utf-8").splitlines()
        for name in ("test.zh", subtitle_corpus.MARKED)
    )
    assert marked == [f"{line} <我>_S" if line else "" for line in source]


def test_a_pronoun_that_the_source_has_is_not_marked(tmp_path):
    texts = {"a": "他 看见 我们\n其他 我\n", "b": "他 看见 它 我们 你自己\n其他 我 他的\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = list(subtitle_corpus.marked(tmp_path / "a", tmp_path / "b"))
    assert sorted(found[0].split()[3:]) == ["<你>_S", "<它>_S"]
    assert found[1] == "其他 我 <他>_S"


SIZE = (
    r"out/train\.zh has 72 sentences, the one of the paper 2,150,945; give that corpus, or "
    '--prepare="--corpus-size any"'
)


def lines_of(path: Path, change) -> None:
    """Change the lines of a file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    change(lines)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda corpus: (corpus / "dev.en").unlink(), "has neither dev.en nor dev.en.xz; add"),
        (
            lambda corpus: (corpus / "train.en.xz").write_bytes(b"no archive"),
            r"train\.en\.xz cannot be unpacked \(.*\); fetch",
        ),
        (
            lambda corpus: lines_of(corpus / "test.en", list.pop),
            r"out/test\.zh: line 8 has no counterpart, .*out/test\.en ends before it",
        ),
        (
            lambda corpus: lines_of(corpus / "test.ref2.en", lambda lines: lines.pop(0)),
            r"out/test\.ref2\.en: line 4 is blank, but not in .*out/test\.zh",
        ),
        (
            lambda corpus: lines_of(corpus / "test.dp-oracle.zh", lambda lines: lines.append("我")),
            r"out/test\.dp-oracle\.zh: line 9 has no counterpart",
        ),
        (
            lambda corpus: [
                lines_of(corpus / "test.zh", lambda lines: lines.__setitem__(1, "她 走吧")),
            ],
            r"out/test\.dp-oracle\.zh: line 2 lacks 她, which line 2 of .*out/test\.zh has",
        ),
    ],
)
def test_another_corpus_is_refused_with_file_and_line(corpus, tmp_path, damage, message):
    damage(corpus)
    with pytest.raises(CorpusError, match=message):
        subtitle_corpus.main(corpus, tmp_path / "out", any_size=True)


def test_a_corpus_of_another_size_is_refused(corpus, tmp_path):
    with pytest.raises(CorpusError, match=SIZE):
        subtitle_corpus.main(corpus, tmp_path / "out", any_size=False)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--size large", "error: --size is large; choose small, transformer or paper"),
        ("--limit 1h", "error: --limit is 1h; give a whole number from 1"),
        ("--limit 0", "error: --limit is 0; give a whole number from 1"),
        ("--stages train,score", "error: --stages is train,score; put spaces where it has commas"),
        ("--stages tune", "error: --stages is tune; choose memories, train, translate, usage, "),
        ("--recipe R", "error: subtitle.sh does not accept --recipe; leave it out"),
        ("", "error: CORPUS is CORPUS, which is no folder"),
        ("--sise small", "error: unknown option --sise; usage: bash run.sh"),
        ("--size", "error: --size needs a value; usage: bash subtitle.sh"),
        pytest.param(
            "--device cuda",
            "error: torch finds no GPU; give --device cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_wrong_options(tmp_path, arguments, message):
    done = subprocess.run(
        ["bash", str(SCRIPT), "CORPUS", "WORK", *arguments.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0 and message in done.stderr.splitlines()[-1]
    assert not list(tmp_path.iterdir())


# ---- the whole at toy size -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Folder of the recipe, and a function that runs commands there."""
    shell = Shell(tmp_path_factory.mktemp("run"))
    folder = shell.top / "examples" / "tu2018_cache"

    def run(command: str, status: int = 0):
        done = shell.run(command, str(folder), COMMIT="c")
        assert done.returncode == status, f"{command}\n{(done.stdout + done.stderr)[-3000:]}"
        return done

    try:
        write_corpus(folder / "CORPUS")
        yield folder, run
    finally:
        shell.close()


def files(folder: Path) -> dict:
    """Return when each record was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("**/*.json")}


@pytest.mark.long  # a few minutes; test_recipes.py has a dry run
def test_small_size_from_the_text_to_the_tables(recipe):
    folder, run = recipe
    command = (
        "bash subtitle.sh CORPUS WORK --limit 600 --prepare='--corpus-size any --bpe-operations 50'"
    )
    run(command)
    results = json.loads((folder / "WORK" / "results.json").read_text())
    assert results["sets"] == ["test", "references", "valid"]
    systems = results["systems"]
    assert list(systems) == ["base", "control", "window2", "memory-both", "group", "memory-control"]
    for name, system in systems.items():
        scores = system["scores"]
        for part in results["sets"]:
            signature = tables.metric(scores[part], "s-BLEU")["signature"]
            assert "case:lc" in signature and "tok:none" in signature
            assert f"nrefs:{3 if part == 'references' else 1}" in signature
        assert (
            scores["pronouns"]["systems"][f"{name}-{system['decodings'][0]}-4"]["all"]["marked"]
            == 7
        )
        assert system["budget"]["sentences"] > 0 and system["budget"]["tokens"] > 0
        assert ("usage" in scores) == (name in ("window2", "memory-both", "group"))
    assert "gold/test-4" in systems["memory-both"]["runs"]
    text = (folder / "WORK" / "tables.md").read_text(encoding="utf-8")
    assert "### Beside the paper" in text and "| BASE " in text and "32.92" in text
    # The same call does nothing again.
    before = files(folder / "WORK")
    run(command)
    again = {path for path, when in files(folder / "WORK").items() if before[path] != when}
    assert again == {folder / "WORK" / "results.json"}


@pytest.mark.long
def test_size_of_the_paper_from_the_text_to_the_tables(recipe):
    folder, run = recipe
    run("bash subtitle.sh CORPUS PAPER --size paper --prepare='--corpus-size any --words 6'")
    systems = json.loads((folder / "PAPER" / "results.json").read_text())["systems"]
    assert len(systems) == 9
    for name, system in systems.items():
        (decoding,) = system["decodings"]
        output = folder / "PAPER" / name / decoding / "test-4" / "generate-test.txt"
        translations = tiny.lines_of(output.read_text(encoding="utf-8"))
        assert not any("<unk>" in text for text in translations.values())
        assert ("contexts" in system["scores"]) == (decoding == "stream")
    assert "| cache of 25 " in (folder / "PAPER" / "tables.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_size_of_base_transformers_from_the_text_to_the_tables(recipe):
    folder, run = recipe
    options = "--corpus-size any --bpe-operations 50"
    run(f"bash subtitle.sh CORPUS BASE --size transformer --prepare='{options}'")
    systems = json.loads((folder / "BASE" / "results.json").read_text())["systems"]
    assert len(systems) == 12
    for name, system in systems.items():
        assert ("usage" in system["scores"]) == (name not in ("base", "control", "memory-control"))
    text = (folder / "BASE" / "tables.md").read_text(encoding="utf-8")
    assert "32.92" in text and "| rfa-decay " in text


def test_a_dictionary_of_the_training_text(tmp_path, capsys):
    texts = {"zh": "猫 看\n狗 看\n猫\n\n狗 吃\n", "en": "cat sees\ndog sees\ncat\n\ndog eats\n"}
    for side, text in texts.items():
        (tmp_path / side).write_text(text, encoding="utf-8")
    dictionary.main(str(tmp_path / "zh"), str(tmp_path / "en"))
    found = dict(line.split() for line in capsys.readouterr().out.splitlines())
    assert found == {"猫": "cat", "看": "sees", "狗": "dog", "吃": "eats"}


@pytest.mark.parametrize(
    "source, message",
    [
        ("猫\n", "/zh has 1 lines, but .*/en has 2; give the two sides of the same text"),
        ("猫\n\n狗\n", "/zh has 3 lines, but .*/en has 2"),
        ("\n狗\n", "have no pairs of 1 to 80 words"),
        ("", "/zh has no text"),
        (None, "/zh cannot be read: No such file"),
    ],
)
def test_texts_without_a_dictionary(tmp_path, source, message):
    (tmp_path / "en").write_text("cat\n\n")
    if source is not None:
        (tmp_path / "zh").write_text(source, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        dictionary.main(str(tmp_path / "zh"), str(tmp_path / "en"))


def test_a_dictionary_does_not_depend_on_blocks(monkeypatch):
    draw = random.Random(1)
    sides = [[draw.choices(range(9), k=draw.randint(1, 6)) for _ in range(50)] for _ in range(2)]
    words = [dictionary.numbered([[str(n) for n in line] for line in side]) for side in sides]
    whole = dictionary.translations(*words)
    monkeypatch.setattr(dictionary, "BLOCK", 7)
    assert dictionary.translations(*words) == whole and len(whole) == 9
