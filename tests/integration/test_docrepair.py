"""DocRepair from monolingual documents to repaired translations: examples/voita2019_docrepair/."""

import re
import shlex
from typing import NamedTuple

import pytest
import tiny
from commands import Shell

from fairseq_docmt.generation import DocumentTranslator

RECIPE = "examples/voita2019_docrepair"
VALID, TEST = (3, 1, 4), (1, 5, 2, 7)
SENTENCE = ["--task", "sliding_window_translation", "--window-size", "1"]
BACK = ["-s", "tgt", "-t", "src"]


class Made(NamedTuple):
    """Shell with the files of the recipe, checkpoints of the repair model and of the way back."""

    shell: Shell
    checkpoint: str
    back: str


def documents(path):
    return [document.split("\n") for document in path.read_text().rstrip("\n").split("\n\n")]


@pytest.fixture(scope="module")
def made(binarised, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentence_level")
    forth = tiny.train(binarised, folder / "forth", *SENTENCE)
    back = tiny.train(binarised, folder / "back", *SENTENCE, *BACK)
    shell = Shell(tmp_path_factory.mktemp("docrepair"))
    try:
        yield _made(shell, binarised, forth, back)
    finally:
        shell.close()


def _made(shell, binarised, forth, back) -> Made:
    mono = shell.top / "MONO"
    mono.mkdir()
    for split, lengths, seed in (("train", (4, 1, 6), 5), ("valid", VALID, 1)):
        docs = tiny.translate(tiny.documents(lengths, seed))
        # Repeated blank lines and no line end do no harm.
        text = tiny.text_of(docs).replace("\n\n", "\n\n\n", 1).rstrip("\n")
        (mono / f"{split}.tgt").write_text(text)
    first = shell.top / "first.out"
    first.write_text(tiny.generate(binarised, forth, *SENTENCE[:2]))
    (shell.top / "test.src").write_text(tiny.text_of(tiny.documents(TEST, 2)))
    trips = [
        "bash",
        f"{RECIPE}/round_trips.sh",
        "MONO",
        "WORK",
        binarised,
        back,
        forth,
        *"--source-lang src --target-lang tgt --copies 2 --noise 0.2".split(),
    ]
    train = f"bash {RECIPE}/train.sh WORK SAVE --window-size 3"
    done = shell.run(f"{shlex.join(map(str, trips))}\n{train}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return Made(shell, "SAVE/checkpoint_last.pt", back)


def test_round_trips_of_each_sentence(made, binarised):
    text = made.shell.top / "WORK" / "text"
    mono = tiny.translate(tiny.documents((4, 1, 6), 5))
    assert documents(text / "train.tgt") == mono + mono
    for name in ("train.roundtrip", "train.tgt"):
        assert [len(d) for d in documents(text / name)] == [4, 1, 6] * 2
    # Validation has no noise: fairseq-generate translates the same documents of the corpus.
    search = ["--beam", "2", "--max-len-a", "0", "--max-len-b", "6", "--gen-subset", "valid"]
    lines = tiny.lines_of(tiny.generate(binarised, made.back, *SENTENCE[:2], *BACK, *search))
    found = [line for document in documents(text / "valid.src") for line in document]
    assert found == [lines[row] or "<unk>" for row in sorted(lines)]
    assert [len(d) for d in documents(text / "valid.roundtrip")] == list(VALID)


def test_copies_have_their_own_samples_and_noise(made):
    text = made.shell.top / "WORK" / "text"
    samples = [documents(text / f"sampled{copy}.tgt") for copy in (1, 2)]
    assert samples[0] != samples[1]
    noisy = documents(text / "train.roundtrip")
    assert noisy != samples[0] + samples[1]
    assert noisy[:3] == documents(text / "sampled1.tgt.noisy")


@pytest.mark.parametrize("form, decoding", [("output", "sequential"), ("lines", "window")])
def test_a_first_system_is_repaired(made, form, decoding):
    """As the Python interface does it, document by document."""
    top, given = made.shell.top, tiny.lines_of((made.shell.top / "first.out").read_text())
    rest = iter([given[row] or "<unk>" for row in tiny.rows_of(tiny.documents(TEST, 2))])
    wanted = [[next(rest) for _ in range(length)] for length in TEST]
    (top / "first.txt").write_text(tiny.text_of(wanted))
    first, source = {"output": ("first.out", "test.src"), "lines": 2 * ("first.txt",)}[form]
    done = made.shell.run(
        f"bash {RECIPE}/repair.sh WORK {made.checkpoint} {first} {source} {form} "
        + "--target-lang tgt"
        + (f" --decoding {decoding}" if decoding != "sequential" else "")
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert documents(top / form / "first.tgt") == wanted
    checkpoint, data = str(top / made.checkpoint), str(top / "WORK" / "bin")
    translator = DocumentTranslator.from_pretrained(checkpoint, data, decoding=decoding)
    found = translator.translate(wanted, beam=2, lenpen=0.6, max_len_a=0, max_len_b=6)
    repaired = [[text or "<unk>" for text in document] for document in found]
    assert documents(top / form / "repaired.tgt") == repaired


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda text: re.sub(r"^[HP]-3\t.*\n", "", text, flags=re.M), "lacks 1 of 15 sentences of"),
        (lambda text: "a\n\nb\n", "first.out has 3 lines, but test.src has 18"),
        (lambda text: "\n".join("abcdefghijklmnopqr") + "\n", "line 2 has text where a document"),
        (lambda text: "", "first.out has no text"),
    ],
)
def test_missing_and_mismatching_lines_are_refused(made, change, message, tmp_path):
    text = (made.shell.top / "first.out").read_text()
    text = re.sub(r"^D-.*\n", "", text, flags=re.M)
    broken = made.shell.top / tmp_path.name
    broken.mkdir()
    (broken / "first.out").write_text(change(text))
    done = made.shell.run(
        f"bash ../{RECIPE}/repair.sh ../WORK ../{made.checkpoint} "
        "first.out ../test.src OUT --target-lang tgt",
        folder=tmp_path.name,
    )
    errors = done.stderr.strip().splitlines()
    assert done.returncode != 0 and len(errors) == 1
    assert message.replace("test.src", "../test.src") in errors[0]
    assert not (broken / "OUT" / "repaired.tgt").exists()
