"""Models exported to CTranslate2 translate as fairseq does.

Covers translate/export_ctranslate2.py.
"""

import json
import subprocess
import sys

import pytest
import tiny

from fairseq_docmt import command_line
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.translate.exported import ExportedTranslator, read_info

pytest.importorskip("ctranslate2", reason="needs ctranslate2, an extra of the package")

#: the training documents, which the model knows by heart
DOCS = tiny.documents((4, 1, 6, 3, 5), 0)
WINDOWS = ["--task", "sliding_window_translation", "--window-size", "3"]


@pytest.fixture(scope="module")
def checkpoint(binarised, made_once):
    """A model that has learned where its outputs end."""

    def build(folder):
        options = [*WINDOWS, "--mark-document-start", "--next-sentences", "1", "--lr", "0.005"]
        tiny.train(binarised, folder, *options, updates=400)

    return made_once("model to export", build) / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def folder(checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "model"
    tiny.run_main(
        command_line.main, "export-ctranslate2", "--model", str(checkpoint), "--out", str(out)
    )
    assert not (out.parent / "model.partial").exists()
    return out


@pytest.mark.parametrize("decoding, beam", [("window", 1), ("window", 4), ("sequential", 1)])
def test_translations_are_those_of_fairseq(checkpoint, folder, monkeypatch, decoding, beam):
    """But for windows with a wrong number of sentences, which fairseq searches again at once."""
    stock = DocumentTranslator.from_pretrained(str(checkpoint), decoding=decoding)
    exported = ExportedTranslator(str(folder), decoding=decoding)
    again, forced = [], exported._forced

    def searched_again(documents, places, search):
        again.extend(places)
        return forced(documents, places, search)

    monkeypatch.setattr(exported, "_forced", searched_again)
    given = {"max_len_b": 40, "beam": beam}
    wanted = stock.translate_nbest(DOCS, 1, **given)
    found = exported.translate_nbest(DOCS, 1, **given)
    compared = [
        (wanted[d][p][0], found[d][p][0])
        for d, document in enumerate(DOCS)
        for p in range(len(document))
        if (d, p) not in again
    ]
    assert len(compared) >= 10
    assert [one.text for one, _ in compared] == [two.text for _, two in compared]
    if decoding == "window":  # else the engine shares out the probability of <sep>
        assert all(two.score == pytest.approx(one.score, abs=0.01) for one, two in compared)


def test_the_folder_says_what_the_model_reads(folder):
    info = read_info(str(folder))
    assert (info.window_size, info.next_sentences, info.document_start) == (3, 1, "<bod>")
    assert (info.source_lang, info.target_lang) == ("src", "tgt")


def test_files_are_translated(folder, tmp_path):
    given = tmp_path / "in.jsonl"
    records = [{"doc_id": n, "text": s} for n, doc in enumerate(DOCS) for s in doc]
    given.write_text("".join(json.dumps(record) + "\n" for record in records))
    printed = tiny.run_main(
        command_line.main,
        *["translate", "--model", str(folder), str(given), "--beam", "3", "--max-len-b", "40"],
    )
    found = [json.loads(line)["hypothesis"] for line in printed.splitlines()]
    wanted = ExportedTranslator(str(folder)).translate_nbest(DOCS, 1, 3, max_len_b=40)
    assert found == [best.text for document in wanted for best, *_ in document]


@pytest.mark.parametrize(
    "options, message",
    [
        (["--sampling"], "unknown option sampling with an exported model"),
        (["--decoding", "segment"], "give sequential or window"),
        (["--seed", "1"], "unknown option seed with an exported model"),
    ],
)
def test_options_that_exported_models_do_not_have(folder, tmp_path, options, message):
    (tmp_path / "in").write_text("w1\n")
    with pytest.raises(UserError, match=message):
        tiny.run_main(
            command_line.main,
            *["translate", "--model", str(folder), str(tmp_path / "in"), *options],
        )


def test_other_models_are_refused(rfa_window_checkpoint, folder, checkpoint, tmp_path):
    export = ["export-ctranslate2", "--model"]
    with pytest.raises(UserError, match="is already there; remove it"):
        tiny.run_main(command_line.main, *export, str(checkpoint), "--out", str(folder))
    rfa = str(rfa_window_checkpoint)
    with pytest.raises(UserError, match="has --arch rfa_transformer; only fairseq's transformer"):
        tiny.run_main(command_line.main, *export, rfa, "--out", str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_an_exported_model_needs_neither_fairseq_nor_torch(folder, tmp_path):
    """Also in processes of its own; what it writes is what it writes with them."""
    (tmp_path / "in.txt").write_text(tiny.text_of(DOCS))
    arguments = ["translate", "--model", str(folder), "--beam", "2", str(tmp_path / "in.txt")]
    tiny.run_main(command_line.main, *arguments, "--out", str(tmp_path / "with.txt"))
    program = (
        "import sys; sys.argv[0] = 'fairseq-docmt'\n"
        "sys.modules['fairseq'] = sys.modules['torch'] = None\n"
        "from fairseq_docmt import command_line\n"
        "if __name__ == '__main__':\n"
        "    command_line.main()\n"
    )
    (tmp_path / "fairseq-docmt").write_text(program)
    for workers in ("1", "2"):
        out = tmp_path / f"without{workers}.txt"
        words = [*arguments, "--workers", workers, "--out", str(out)]
        command = [sys.executable, str(tmp_path / "fairseq-docmt"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert out.read_text() == (tmp_path / "with.txt").read_text()
