"""Models exported to CTranslate2 translate as fairseq does.

Covers translate/export_ctranslate2.py.
"""

import dataclasses
import errno
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from long_tests import LONG

from fairseq_docmt import command_line
from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.spans import window_spans, with_next_sentences
from fairseq_docmt.translate import export_ctranslate2
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
def of_documents(binarised, made_once):
    """A model of parts of documents that has learned where its outputs end."""

    def build(folder):
        options = ["--task", "full_document_translation", "--max-document-tokens", "25"]
        options += ["--mark-document-start", "--lr", "0.005"]
        tiny.train(binarised, folder, *options, updates=400)

    return made_once("model of documents to export", build) / "checkpoint_last.pt"


def exported(checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "model"
    tiny.run_main(
        command_line.main, "export-ctranslate2", "--model", str(checkpoint), "--out", str(out)
    )
    assert not (out.parent / "model.partial").exists()
    return out


@pytest.fixture(scope="module")
def folder(checkpoint, tmp_path_factory):
    return exported(checkpoint, tmp_path_factory)


@pytest.fixture(scope="module")
def folder_of_documents(of_documents, tmp_path_factory):
    return exported(of_documents, tmp_path_factory)


@pytest.mark.parametrize(
    "decoding, beam",
    [pytest.param("window", 1, marks=LONG), ("window", 4), ("sequential", 1)],
)
def test_translations_are_those_of_fairseq(checkpoint, folder, monkeypatch, decoding, beam):
    """But for windows with a wrong number of sentences, which fairseq searches again at once."""
    stock = DocumentTranslator.from_pretrained(str(checkpoint), decoding=decoding)
    exported = ExportedTranslator(str(folder), decoding=decoding)
    again, forced = [], exported._forced

    def searched_again(documents, spans, search):
        again.extend((d, end - 1) for d, _, end in spans)
        return forced(documents, spans, search)

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


@pytest.mark.parametrize(
    "decoding, beam",
    [pytest.param("segment", 1, marks=LONG), ("segment", 4), ("sequential", 1)],
)
def test_documents_are_translated_as_by_fairseq(
    of_documents, folder_of_documents, monkeypatch, decoding, beam
):
    """But for parts with a wrong number of sentences."""
    stock = DocumentTranslator.from_pretrained(str(of_documents), decoding=decoding)
    exported = ExportedTranslator(str(folder_of_documents), decoding=decoding)
    again, forced = [], exported._forced

    def searched_again(documents, spans, search):
        again.extend((d, place) for d, first, end in spans for place in range(first, end))
        return forced(documents, spans, search)

    monkeypatch.setattr(exported, "_forced", searched_again)
    given = {"max_len_b": 60, "beam": beam}
    wanted = stock.translate_nbest(DOCS, 1, **given)
    found = exported.translate_nbest(DOCS, 1, **given)
    assert [[len(best) > 0 for best in document] for document in found] == [
        [True] * len(document) for document in DOCS
    ]
    compared = [
        (wanted[d][p][0].text, found[d][p][0].text)
        for d, document in enumerate(DOCS)
        for p in range(len(document))
        if (d, p) not in again
    ]
    assert len(compared) >= 10
    assert [one for one, _ in compared] == [two for _, two in compared]


@pytest.mark.parametrize("limit", [1, 3])
def test_sentences_of_long_and_of_short_contexts_have_the_same_limit(folder, caplog, limit):
    exported = ExportedTranslator(str(folder), decoding="sequential")
    found = exported.translate_nbest(DOCS, 2, 2, max_len_b=limit)
    lengths = [len(each.text.split()) for d in found for best in d for each in best]
    assert max(lengths) == limit
    reached = sum(len(best[0].text.split()) == limit for d in found for best in d)
    assert [text for text in caplog.messages if text.endswith(f"of the model: {reached}")]
    for all_have, this_has in (
        ({"max_len_b": limit}, {}),
        ({"max_len_b": 9}, {"max_len_b": limit}),
    ):
        other = ExportedTranslator(str(folder), decoding="sequential", **all_have)
        assert other.translate_nbest(DOCS, 2, 2, **this_has) == found


@pytest.mark.parametrize("decoding", ["window", "sequential"])
def test_translations_at_their_length_limit_are_counted(checkpoint, folder, caplog, decoding):
    """As with fairseq; with a beam of 1 both reach the limit at the same sentences."""
    for limit in (2, 40):
        counts = []
        for load in (DocumentTranslator.from_pretrained, ExportedTranslator):
            caplog.clear()
            model = folder if load is ExportedTranslator else checkpoint
            translator = load(str(model), decoding=decoding)
            translator.translate_nbest(DOCS, 1, 1, max_len_b=limit)
            found = [text for text in caplog.messages if "they reached the length limit" in text]
            counts.append(sum(int(text.rpartition(": ")[2]) for text in found))
        assert counts[0] == counts[1] and bool(counts[0]) == (limit == 2)


def test_parts_of_documents_are_those_of_the_task(of_documents, folder_of_documents):
    stock = DocumentTranslator.from_pretrained(str(of_documents))
    exported = ExportedTranslator(str(folder_of_documents))
    several = 0
    for document in DOCS:
        words = [exported.words_of(sentence) for sentence in document]
        sizes = np.array([len(sentence) + 1 for sentence in words])
        wanted = stock.hub.task.parts(DocumentIndex.from_sizes(sizes), sizes)
        assert exported._spans(words) == [tuple(span) for span in wanted.tolist()]
        several += len(wanted) > 1
    assert several >= 2
    info = read_info(str(folder_of_documents))
    assert (info.window_size, info.max_document_tokens) == (None, 25)


def test_an_output_with_a_wrong_number_of_sentences_is_searched_again(folder_of_documents):
    """All sentences of a part get the translations of the search that is forced."""
    exported = ExportedTranslator(str(folder_of_documents))
    wanted = exported.translate_nbest(DOCS, 2, 2, max_len_b=60)
    engine = exported._engine

    class Broken:
        """Gives whole outputs without the separators."""

        def translate_batch(self, *args, **given):
            results = engine.translate_batch(*args, **given)
            if "end_token" in given:
                return results
            return [
                SimpleNamespace(hypotheses=[["v3"]], scores=[result.scores[0]])
                for result in results
            ]

    exported._engine = Broken()
    found = exported.translate_nbest(DOCS, 2, 2, max_len_b=60)
    assert [len(document) for document in found] == [len(document) for document in DOCS]
    same = [one[0].text == two[0].text for a, b in zip(found, wanted) for one, two in zip(a, b)]
    assert sum(same) >= 0.8 * len(same)


def test_the_folder_says_what_the_model_reads(folder):
    info = read_info(str(folder))
    assert (info.window_size, info.next_sentences, info.document_start) == (3, 1, "<bod>")
    assert (info.source_lang, info.target_lang) == ("src", "tgt")


def test_different_numbers_of_positions(checkpoint, tmp_path):
    state = torch.load(checkpoint, weights_only=False)
    state["cfg"]["model"].max_target_positions = 512
    torch.save(state, tmp_path / "model.pt")
    model, out = str(tmp_path / "model.pt"), str(tmp_path / "out")
    said = tiny.run_main(command_line.main, "export-ctranslate2", "--model", model, "--out", out)
    assert "reads and writes up to 512 tokens, the fewer of --max-source-positions and" in said
    assert read_info(out).max_tokens == 512


def test_a_word_named_like_the_padding_is_unknown(folder):
    translator = ExportedTranslator(str(folder))
    assert translator.words_of("w1 <blank> w2") == ["w1", "<unk>", "w2"]


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


def test_another_source_language(folder, tmp_path, capsys):
    (tmp_path / "in").write_text('<srcset srclang="cze">\n<doc docid="a">\n<seg>w1</seg>\n</doc>')
    given = [str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    tiny.run_main(command_line.main, "translate", "--model", str(folder), *given)
    said = "in declares its source as cze, but the model translates src"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    [
        (["--sampling"], "unknown option sampling with an exported model"),
        (["--decoding", "segment"], "give sequential or window"),
        (["--seed", "1"], "--seed is for --sampling and --retain-dropout; leave it out"),
        (["--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["--max-tokens", "0"], "--max-tokens must be at least 1, got 0"),
        (["--beam", "0"], "--beam must be a whole number from 1, got 0"),
        (["--max-len-b", "0"], "--max-len-b must be a whole number from 1, got 0"),
        (["--max-len-b", "x"], "--max-len-b must be a whole number from 1, got x"),
        (["--lenpen", "nan"], "--lenpen must be from -10 to 10, got nan"),
        (["--no-repeat-ngram-size", "3"], "would also forbid what other sentences say"),
    ],
)
def test_options_that_exported_models_do_not_have(folder, tmp_path, options, message):
    (tmp_path / "in").write_text("w1\n")
    with pytest.raises(UserError, match=message):
        tiny.run_main(
            command_line.main,
            *["translate", "--model", str(folder), str(tmp_path / "in"), *options],
        )


def test_lists_are_not_longer_than_the_beam(folder):
    exported = ExportedTranslator(str(folder))
    with pytest.raises(UserError, match="--nbest 3 is more than --beam 2; give a wider beam"):
        exported.translate_nbest(DOCS, 3, beam=2)
    with pytest.raises(UserError, match="--nbest must be a whole number from 1, got 0"):
        exported.translate_nbest(DOCS, 0)


def test_windows_within_the_positions_of_the_model(folder, monkeypatch):
    """They have the sentences that the task gives them, first of the previous, then of the next."""
    translator, most = ExportedTranslator(str(folder)), 12
    smaller = dataclasses.replace(translator._model, max_tokens=most, document_start=None)
    monkeypatch.setattr(translator, "_model", smaller)
    document = [[f"w{n}"] * n for n in (3, 5, 2, 4, 1, 6, 3)]
    sizes = np.array([len(sentence) + 1 for sentence in document])
    index = DocumentIndex.from_lengths([len(document)])
    windows = window_spans(index, 3, [(sizes, most)])
    read = with_next_sentences(windows, index, 1, (sizes, most))
    assert {*(read - windows)[:-1, 1].tolist()} == {0, 1}
    assert translator._spans(document) == [tuple(window) for window in windows.tolist()]
    for (first, end), (_, last) in zip(windows.tolist(), read.tolist()):
        source = translator._source(document, first, end - 1)
        assert [n for n in source if n != "<sep>"] == sum(document[first:last], [])


@pytest.mark.parametrize("decoding", ["sequential", "segment"])
def test_outputs_end_at_the_positions_of_the_model(folder_of_documents, monkeypatch, decoding):
    """A model that never ends a sentence fills its positions, and every sentence gets its share."""
    translator = ExportedTranslator(str(folder_of_documents), decoding=decoding)
    most, limits, prefixes = 30, [], []

    class Endless:
        """Engine whose outputs have as many words as they may."""

        @staticmethod
        def translate_batch(sources, target_prefix, max_decoding_length, **_):
            limits.append(max_decoding_length)
            prefixes.extend(map(len, target_prefix))
            results = []
            for prefix in target_prefix:
                words = [*prefix, *["v1"] * (max_decoding_length - len(prefix))]
                results.append(SimpleNamespace(hypotheses=[words], scores=[-1.0]))
            return results

    monkeypatch.setattr(translator, "_engine", Endless)
    monkeypatch.setattr(
        translator, "_model", dataclasses.replace(translator._model, max_tokens=most)
    )
    documents = [["w1 w2"] * 7, ["w1"]]
    found = translator.translate_nbest(documents, 1, 2)
    assert [len(document) for document in found] == [7, 1]
    assert all(best.text for document in found for best, *_ in document)
    assert max(limits) < most and max(prefixes) < most


def test_a_precision_that_the_processor_lacks(folder, monkeypatch):
    def fail(*args, compute_type, **options):
        raise ValueError(f"Requested {compute_type} compute type, but no")

    engine = SimpleNamespace(Translator=fail)
    monkeypatch.setattr("fairseq_docmt.translate.exported.ctranslate2", lambda: engine)
    with pytest.raises(UserError, match="with --precision bf16 on cpu: Requested bfloat"):
        ExportedTranslator(str(folder), precision="bf16")


@pytest.mark.parametrize("name", ["model.bin", "config.json", "source_vocabulary.json"])
def test_a_folder_without_a_file_is_named(folder, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / name).unlink()
    with pytest.raises(UserError, match=r"/copy cannot be loaded \(.*\); export the model again"):
        ExportedTranslator(str(copy))


@pytest.mark.parametrize("words", [[], ["<blank>"]])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_damaged_vocabulary_is_named(folder, tmp_path, side, words):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / f"{side}_vocabulary.json").write_text(json.dumps(words))
    with pytest.raises(UserError, match=f"{side}_vocabulary.json is not as it was exported; exp"):
        ExportedTranslator(str(copy))


def test_the_form_of_the_text_is_not_forgotten(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    info = json.loads((copy / "document_model.json").read_text())
    assert info["has_text_form"] is False
    (copy / "document_model.json").write_text(json.dumps({**info, "has_text_form": True}))
    with pytest.raises(UserError, match="copy/text_form.json not found; export the model again"):
        ExportedTranslator(str(copy))


def test_other_models_are_refused(rfa_window_checkpoint, folder, checkpoint, tmp_path):
    export = ["export-ctranslate2", "--model"]
    joined = f"{folder}:{checkpoint}"
    with pytest.raises(UserError, match="exported models cannot be joined; give one model"):
        tiny.run_main(command_line.main, "translate", "--model", joined, "none.txt")
    with pytest.raises(UserError, match="is already there; remove it"):
        tiny.run_main(command_line.main, *export, str(checkpoint), "--out", str(folder))
    rfa = str(rfa_window_checkpoint)
    with pytest.raises(UserError, match="has --arch rfa_transformer; only fairseq's transformer"):
        tiny.run_main(command_line.main, *export, rfa, "--out", str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())
    state = torch.load(checkpoint, weights_only=False)
    state["cfg"]["model"].cross_self_attention = True
    torch.save(state, tmp_path / "both.pt")
    with pytest.raises(UserError, match="trained with --cross-self-attention, which CTranslate2"):
        both, out = str(tmp_path / "both.pt"), str(tmp_path / "out")
        tiny.run_main(command_line.main, *export, both, "--out", out)
    model, parameters = state["cfg"]["model"], state["model"]
    model.cross_self_attention = False
    model.decoder_output_dim = 8
    torch.save(state, tmp_path / "both.pt")
    with pytest.raises(UserError, match="trained with --decoder-output-dim, which CTranslate2"):
        tiny.run_main(command_line.main, *export, both, "--out", out)
    model.decoder_output_dim = 16
    model.encoder_normalize_before = model.decoder_normalize_before = True
    model.no_decoder_final_norm = True
    for name in ("weight", "bias"):
        like = parameters[f"encoder.layers.0.final_layer_norm.{name}"]
        parameters[f"encoder.layer_norm.{name}"] = like
    torch.save(state, tmp_path / "both.pt")
    with pytest.raises(UserError, match="both.pt cannot be exported: .* not set: decoder/layer_n"):
        tiny.run_main(command_line.main, *export, both, "--out", out)
    path, out = tiny.diverged(checkpoint, tmp_path), str(tmp_path / "out")
    with pytest.raises(UserError, match="parameters that are NaN or infinite"):
        tiny.run_main(command_line.main, *export, path, "--out", out)


def test_a_folder_that_cannot_be_written(checkpoint, tmp_path, monkeypatch):
    export = ["export-ctranslate2", "--model", str(checkpoint), "--out"]
    with pytest.raises(UserError, match="xxx cannot be written: .*File name too long"):
        tiny.run_main(command_line.main, *export, str(tmp_path / ("x" * 300)))

    def full(info, folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(export_ctranslate2, "_write_info", full)
    with pytest.raises(UserError, match="/out cannot be written: No space left on device"):
        tiny.run_main(command_line.main, *export, str(tmp_path / "out"))
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
