"""Subwords of SentencePiece from preparation to translation and scoring.

Covers text_form.py, tasks/_training_text.py.
"""

import io
import json
import re
from unittest import mock

import prepare
import pytest
import tiny
from check_documents import CorpusError
from fairseq.data import Dictionary, data_utils
from fairseq_cli import interactive
from sentencepiece import SentencePieceProcessor
from subwords import learn_sentencepiece

from fairseq_docmt import command_line
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.text_form import TextForm, join_pieces, read_text_forms

WINDOW = ["--task", "sliding_window_translation"]
RAW = {
    "de": "Das Haus, das gehört ihm.\nIst's groß?\n\nEs ist groß. Das Haus ist's!\n",
    "en": "The house, it's his.\nIs it big?\n\nIt's big. The house isn't!\n",
}


def run(folder, *more, out="out"):
    options = ["--source-lang", "de", "--target-lang", "en", "--destdir", str(folder / out)]
    options += [a for s in ("train", "valid", "test") for a in (f"--{s}", str(folder / s))]
    with mock.patch.object(prepare, "_run", tiny.binarise_here):
        prepare.main([*options, "--workers", "1", *more])
    return folder / out


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    for split in ("train", "valid", "test"):
        for language, text in RAW.items():
            (folder / f"{split}.{language}").write_text((text + "\n") * 6, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def prepared(raw):
    size = ["--subword", "sentencepiece", "--vocabulary-size", "310"]
    return run(raw, *size, "--joined-dictionary")


@pytest.fixture(scope="module")
def checkpoint(prepared):
    options = [*WINDOW, "--window-size", "3", "--share-all-embeddings"]
    return tiny.train(prepared / "bin", prepared / "ck", *options, updates=20)


def model_of(prepared):
    return str(prepared / "bin/sentencepiece.model")


def cut(prepared, sentence):
    return " ".join(
        SentencePieceProcessor(model_file=model_of(prepared)).encode_as_pieces(sentence)
    )


def test_prepared_text_keeps_documents_and_comes_back(prepared):
    assert json.loads((prepared / "bin/text_form.json").read_text())["de"] == {
        "tokenizer": "none",
        "truecaser": None,
        "bpe_codes": None,
        "sentencepiece": "sentencepiece.model",
    }
    forms = read_text_forms(str(prepared / "bin"))
    for language, text in RAW.items():
        lines = ((text + "\n") * 6).split("\n")[:-1]
        pieces = (prepared / f"text/subwords/test.{language}").read_text("utf-8").split("\n")[:-1]
        assert [forms[language].encoder(language)(line) if line else "" for line in lines] == pieces
        assert [forms[language].join()(line) for line in pieces] == lines
        data = data_utils.load_indexed_dataset(str(prepared / f"bin/test.de-en.{language}"))
        assert (data.sizes == 1).tolist() == [not line for line in lines]


def test_no_character_is_unknown(prepared):
    """Others are bytes, of which the dictionary has all."""
    dictionary = Dictionary.load(str(prepared / "bin/dict.de.txt"))
    pieces = cut(prepared, "Das ☃ 雪 ist groß")
    assert "<0xE2> <0x98> <0x83>" in pieces
    assert dictionary.unk() not in dictionary.encode_line(pieces, add_if_not_exist=False).tolist()
    assert all(f"<0x{byte:02X}>" in dictionary for byte in range(256))
    assert join_pieces(pieces) == "Das ☃ 雪 ist groß"
    assert join_pieces("▁a <0xE2> <0x98> b") == "a\ufffdb"


def test_symbols_are_not_cut_and_are_refused_in_text(raw, prepared, capsys):
    assert "<sep>" in cut(prepared, "a <sep> b<bod>").split()
    dictionary = Dictionary.load(str(prepared / "bin/dict.de.txt"))
    assert "<sep>" not in dictionary and "<bod>" not in dictionary
    text = (raw / "valid.de").read_text("utf-8").replace("groß?", "<sep>?", 1)
    (raw / "marked.de").write_text(text, encoding="utf-8")
    (raw / "marked.en").write_text((raw / "valid.en").read_text("utf-8"), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"marked\.de: line 2 has the word <sep>, which is reser"):
        run(
            raw,
            "--valid",
            str(raw / "marked"),
            "--sentencepiece-model",
            model_of(prepared),
            out="m",
        )


def test_a_given_model_is_used_for_both_sides(raw, prepared):
    out = run(raw, "--sentencepiece-model", model_of(prepared), "--joined-dictionary", out="given")
    for name in ("text/subwords/train.de", "bin/dict.en.txt", "bin/train.de-en.en.bin"):
        assert (out / name).read_bytes() == (prepared / name).read_bytes()


def test_a_given_dictionary_is_used_as_it_comes(raw, prepared, capsys):
    pieces = [line.split()[0] for line in (prepared / "bin/dict.de.txt").read_text().splitlines()]
    lines = [f"{piece} 1\n" for piece in [*reversed(pieces), "never", "seen"] if piece != "▁is"]
    (raw / "dict").write_text("".join(lines), encoding="utf-8")
    options = ["--sentencepiece-model", model_of(prepared), "--dictionary", str(raw / "dict")]
    out = run(raw, *options, out="pretrained")
    printed = capsys.readouterr().out
    share = float(re.search(r"en: ([\d.]+)% of the training words are not in", printed).group(1))
    assert share > 0
    for language in ("de", "en"):
        path = out / f"bin/dict.{language}.txt"
        assert path.read_bytes() == (raw / "dict").read_bytes()
        dictionary = Dictionary.load(str(path))
        data = data_utils.load_indexed_dataset(str(out / f"bin/test.de-en.{language}"))
        words = (out / f"text/subwords/test.{language}").read_text("utf-8").splitlines()[0].split()
        assert data[0].tolist() == [*map(dictionary.index, words), dictionary.eos()]


@pytest.mark.long
def test_separate_models_and_workers(raw):
    options = ["--subword", "sentencepiece", "--vocabulary-size", "300", "--separate-bpe"]
    one = run(raw, *options, out="one")
    two = run(raw, *options, "--workers", "2", out="two")
    for name in ("sentencepiece.de.model", "sentencepiece.en.model", "bin/dict.de.txt"):
        assert (one / name).read_bytes() == (two / name).read_bytes()
    assert (one / "sentencepiece.de.model").read_bytes() != (
        one / "sentencepiece.en.model"
    ).read_bytes()


@pytest.mark.parametrize(
    "options, message",
    [
        (["--subword", "sentencepiece", "--vocabulary-size", "9"], "cannot learn 9 pieces from"),
        (["--sentencepiece-model", "nowhere"], "--sentencepiece-model nowhere not found"),
        (["--dictionary", "nowhere"], "--dictionary nowhere not found"),
        (["--sentencepiece-model", __file__], "test_sentencepiece.py is not a SentencePiece model"),
        (["--sentencepiece-model", __file__, "--separate-bpe"], "leave one of them out"),
    ],
)
def test_mistakes_get_one_sentence(raw, options, message):
    with pytest.raises(SystemExit, match=f"^error: .*{message}"):
        run(raw, *options, out="bad")


def test_learning_names_the_fix(tmp_path):
    (tmp_path / "text").write_text("a b\n")
    with pytest.raises(CorpusError, match="give another --vocabulary-size$"):
        learn_sentencepiece([tmp_path / "text"], tmp_path / "model", 3)
    assert not (tmp_path / "model").exists()


def test_fewer_pieces_than_asked_for_are_noted(tmp_path, capsys):
    (tmp_path / "text").write_text("a b\n" * 9)
    learn_sentencepiece([tmp_path / "text"], tmp_path / "model", 300)
    found = SentencePieceProcessor(model_file=str(tmp_path / "model")).get_piece_size()
    noted = f"SentencePiece learns only {found} of 300 pieces from this text"
    assert found < 300 and noted in capsys.readouterr().err


DOCUMENTS = [["Das Haus, das gehört ihm.", "Ist's groß?"], ["Es ist ☃."]]


def test_python_and_interactive_take_and_return_raw_text(prepared, checkpoint, monkeypatch):
    options = {"beam": 2, "max_len_b": 9, "min_len": 4}
    found = DocumentTranslator.from_pretrained(str(checkpoint)).translate(DOCUMENTS, **options)
    plain = DocumentTranslator.from_pretrained(str(checkpoint), tokenizer=None, bpe=None)
    pieces = [[cut(prepared, line) for line in document] for document in DOCUMENTS]
    translated = plain.translate(pieces, **options)
    assert found == [[join_pieces(line) for line in document] for document in translated]
    assert all(line for document in found for line in document)

    text = "\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    command = [str(prepared / "bin"), "--path", str(checkpoint), *WINDOW, "--cpu", "--beam", "2"]
    command += ["-s", "de", "-t", "en", "--max-len-b", "9", "--min-len", "4", "--buffer-size", "9"]
    command += ["--bpe", "sentencepiece", "--sentencepiece-model", model_of(prepared)]
    output = tiny.run_main(interactive.cli_main, *command)
    lines = list(tiny.lines_of(output, "D").values())
    assert [line for line in lines if line] == [line for document in found for line in document]


def test_scoring_takes_raw_text(prepared, checkpoint):
    found = []
    model = ["--sentencepiece-model", model_of(prepared)]
    for kind, options in (("raw", []), ("raw", model), ("subwords", ["--as-prepared"])):
        text = prepared / "text" / kind
        arguments = ["cxmi", "--path", checkpoint, "--cpu", "--format", "json", *options]
        arguments += ["--source", text / "test.de", "--reference", text / "test.en"]
        found.append(json.loads(tiny.run_main(command_line.main, *arguments)))
    assert found[0]["sentences"] == found[1]["sentences"] == found[2]["sentences"]
    assert any("▁" in word for word in found[0]["sentences"][0]["words"])


def test_contrastive_scores_are_those_of_the_pieces(prepared, checkpoint, tmp_path):
    """Raw candidates, and the same in pieces: of other words, cut as the training text."""
    candidates = [["The house.", "Is it big?"], ["The house.", "Is it his?"]]
    source = ["Das Haus.", "Ist's groß?"]
    pieces = {"source": [cut(prepared, line) for line in source]}
    pieces["candidates"] = [[cut(prepared, line) for line in lines] for lines in candidates]
    raw_text = {"source": source, "candidates": candidates}
    model, found = ["--sentencepiece-model", model_of(prepared)], []
    for item, options in ((raw_text, []), (raw_text, model), (pieces, ["--as-prepared"])):
        (tmp_path / "set.jsonl").write_text(json.dumps({**item, "correct": 0}), encoding="utf-8")
        arguments = ["contrastive", tmp_path / "set.jsonl", "--path", checkpoint, "--cpu"]
        tiny.run_main(command_line.main, *arguments, "--items", tmp_path / "out.jsonl", *options)
        found.append(json.loads((tmp_path / "out.jsonl").read_text())["scores"])
    assert found[0] == found[1] == found[2]
    assert found[0][0] != found[0][1]


def test_other_subwords_are_refused(prepared, checkpoint, tmp_path):
    (tmp_path / "text").write_text("".join(RAW.values()), encoding="utf-8")
    other = tmp_path / "model"
    learn_sentencepiece([tmp_path / "text"], other, 300)
    translator = DocumentTranslator.from_pretrained
    message = (
        "not the model of the source text of the checkpoint; give the model in the data folder"
    )
    with pytest.raises(UserError, match=message):
        translator(str(checkpoint), bpe="sentencepiece", sentencepiece_model=str(other))
    with pytest.raises(UserError, match="nowhere not found"):
        translator(str(checkpoint), bpe="sentencepiece", sentencepiece_model="nowhere")
    with pytest.raises(UserError, match="is not a SentencePiece model"):
        translator(str(checkpoint), bpe="sentencepiece", sentencepiece_model=__file__)
    (tmp_path / "codes").write_text("#version: 0.2\na b\n")
    with pytest.raises(UserError, match="has --bpe sentencepiece; give"):
        translator(str(checkpoint), bpe="subword_nmt", bpe_codes=str(tmp_path / "codes"))


def test_records_without_sentencepiece_are_as_before():
    assert TextForm("moses").record() == {
        "tokenizer": "moses",
        "truecaser": None,
        "bpe_codes": None,
    }
