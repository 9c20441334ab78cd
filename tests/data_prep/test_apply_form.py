"""Text in the form of a binarised folder: as prepare.py made it, and back to raw."""

import apply_form
import prepare
import pytest

TEXT = {
    "de": "Hallo, Welt!\nEin Test - nicht wahr?\n\nDas zweite.\nGut.\n",
    "en": "Hello, world!\nIt's a test - isn't it?\n\nSecond-rate document & more.\nFine.\n",
}


@pytest.fixture
def corpus(tmp_path):
    """Raw text."""
    for split in ("train", "valid", "test"):
        for language, text in TEXT.items():
            (tmp_path / f"{split}.{language}").write_text(text * 3)
    return tmp_path


@pytest.fixture
def folder(corpus, monkeypatch):
    """A prepared folder; its bin/ has what prepare.py puts beside the binarised files."""
    monkeypatch.setattr(prepare, "_run", lambda command, folder: None)
    splits = [f"--{split}={corpus / split}" for split in ("train", "valid", "test")]
    languages = ["--source-lang", "de", "--target-lang", "en", "--workers", "1", "--truecase"]
    made = corpus / "out"
    prepare.main([*languages, *splits, "--destdir", str(made), "--bpe-operations", "20"])
    return made


def run(folder, source, target, *more):
    arguments = ["--data", str(folder / "bin"), "--language", "en", "--workers", "1"]
    apply_form.main([*arguments, str(source), str(target), *more])


def test_as_prepared_and_back(corpus, folder, tmp_path):
    run(folder, corpus / "test.en", tmp_path / "text")
    assert (tmp_path / "text").read_text() == (folder / "text/subwords/test.en").read_text()
    run(folder, tmp_path / "text", tmp_path / "raw", "--undo")
    raw = (tmp_path / "raw").read_text()
    assert raw.lower() == (TEXT["en"] * 3).lower()  # the case of truecased words stays


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--language", "fr"], "does not describe text of language fr; it has de and en"),
        (["--data", "none"], "none does not describe text of language en; make it with prepare.py"),
        (["--workers", "0"], "--workers must be at least 1"),
    ],
)
def test_mistakes(corpus, folder, tmp_path, arguments, message):
    with pytest.raises(SystemExit, match=message):
        run(folder, corpus / "test.en", tmp_path / "text", *arguments)
    assert not (tmp_path / "text").exists()


def test_the_input_is_not_written(corpus, folder):
    with pytest.raises(SystemExit, match="error: .*/test.en is read; give another file to write"):
        run(folder, corpus / "test.en", corpus / "test.en")
    assert (corpus / "test.en").read_text() == TEXT["en"] * 3


def test_the_last_line_may_lack_its_end(corpus, folder, tmp_path):
    (tmp_path / "one").write_text(TEXT["en"].split("\n")[0])
    run(folder, tmp_path / "one", tmp_path / "text")
    first = (folder / "text/subwords/test.en").read_text().split("\n")[0]
    assert (tmp_path / "text").read_text() == f"{first}\n"


def test_a_missing_text(folder, tmp_path):
    with pytest.raises(SystemExit, match="error: .*none"):
        run(folder, tmp_path / "none", tmp_path / "text")


@pytest.mark.parametrize(
    "text, message",
    [
        ("One.\n\x01\n", "line 2 .* is empty after the step 'prepare'"),
        ("\ufeffOne.\n", "line 1 begins with a byte order mark"),
    ],
)
def test_faults_of_the_text_leave_nothing(folder, tmp_path, text, message):
    (tmp_path / "given").write_text(text)
    (tmp_path / "made").mkdir()
    with pytest.raises(SystemExit, match=f"error: .*given: {message}"):
        run(folder, tmp_path / "given", tmp_path / "made" / "text")
    assert not list((tmp_path / "made").iterdir())
