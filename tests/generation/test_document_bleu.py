"""Document BLEU inside the stock commands.

Covers bleu.py.
"""

import json
import re

import pytest
import sacrebleu
import tiny
from fairseq import checkpoint_utils
from fairseq_cli import validate

from fairseq_docmt import command_line
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.document_bleu import DocumentBleuConfig, DocumentBleuScorer

TASKS = {
    "window": (["--task", "sliding_window_translation"], "window_checkpoint"),
    "document": (["--task", "full_document_translation"], "document_checkpoint"),
    "stream": (["--task", "sentence_stream_translation"], "memory_stream_checkpoint"),
}
LENGTHS = (1, 5, 2, 7)
#: sentences of three documents
LEFT_OUT = ("--max-source-positions", "5", "--skip-invalid-size-inputs-valid-test")


def joined(lines, rows, lengths):
    """One text for each document of the given numbers of sentences."""
    rows = iter(rows)
    return [" ".join(lines[next(rows)] for _ in range(length)) for length in lengths]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("extra", [(), ("--nbest", "2", "--batch-size", "2"), LEFT_OUT])
def test_generate(binarised, request, tmp_path, name, extra):
    task, checkpoint = TASKS[name]
    checkpoint = request.getfixturevalue(checkpoint)
    output = tiny.generate(binarised, checkpoint, *task, "--scoring", "document_bleu", *extra)
    hypotheses, references = {}, tiny.lines_of(output, "T")
    for row, text in re.findall(r"^D-(\d+)\t[^\t]*\t(.*)$", output, flags=re.M):
        hypotheses.setdefault(int(row), text)
    rows = sorted(references)
    texts = [joined(side, rows, LENGTHS) for side in (hypotheses, references)]
    found = re.search(r"d-BLEU = ([\d.]+) .*, s-BLEU = ([\d.]+) .* \[(.*)\]", output)
    wanted = sacrebleu.corpus_bleu(texts[0], [texts[1]]).score
    assert float(found.group(1)) == pytest.approx(wanted, abs=0.006)
    sides = [[side[row] for row in rows] for side in (hypotheses, references)]
    wanted = sacrebleu.corpus_bleu(sides[0], [sides[1]]).score
    assert float(found.group(2)) == pytest.approx(wanted, abs=0.006)
    assert found.group(3).startswith("docs:4|sents:15|nrefs:1|case:mixed|eff:no|tok:13a")
    # The command reads the same output.
    lines = iter(sides[1])
    (tmp_path / "output").write_text(output, encoding="utf-8")
    reference = tmp_path / "reference"
    reference.write_text(tiny.text_of([[next(lines) for _ in range(n)] for n in LENGTHS]))
    arguments = ["metrics", f"x={tmp_path / 'output'}", "--reference", str(reference)]
    printed = tiny.run_main(command_line.main, *arguments, "--format", "json")
    for metric in json.loads(printed)["metrics"][:2]:
        wanted = found.group(2 if metric["label"] == "s-BLEU" else 1)
        assert metric["scores"]["x"] == pytest.approx(float(wanted), abs=0.006)


def test_unknown_words_are_not_matched():
    scorer = DocumentBleuScorer(DocumentBleuConfig())
    scorer.coming.append((0, 0))
    scorer.add_string("a <<unk>> b c", "a <unk> b c")
    assert " 75.0/" in scorer.result_string()


def test_generate_refuses_what_it_cannot_score(binarised, window_checkpoint, tmp_path):
    task = [*TASKS["window"][0], "--scoring", "document_bleu"]
    with pytest.raises(UserError, match="--sacrebleu-tokenizer moses is not one of"):
        tiny.generate(binarised, window_checkpoint, *task, "--sacrebleu-tokenizer", "moses")
    task, model = ["--task", "translation"], tiny.rnnsearch()
    stock = tiny.train(binarised, tmp_path, *task, model=model, updates=2)
    with pytest.raises(UserError, match="--scoring document_bleu needs a document task"):
        tiny.generate(binarised, stock, *task, "--scoring", "document_bleu")


def test_tokenizer_without_its_package(monkeypatch):
    def tokenizer(name):
        raise RuntimeError("Install it.")

    monkeypatch.setattr("sacrebleu.metrics.bleu._get_tokenizer", tokenizer)
    with pytest.raises(UserError, match="tokenizer ko-mecab lacks a package.*: Install it"):
        DocumentBleuScorer(DocumentBleuConfig(sacrebleu_tokenizer="ko-mecab"))


@pytest.mark.parametrize(
    "task, model",
    [
        ([*TASKS["window"][0], "--window-size", "3", "--batch-size", "2"], tiny.MODEL),
        ([*TASKS["window"][0], "--loss-on", "last"], tiny.MODEL),
        ([*TASKS["document"][0], "--max-document-tokens", "12"], tiny.MODEL),
        ([*TASKS["stream"][0], "--batch-size", "2", "--chunk-sentences", "2"], tiny.memory()),
    ],
)
def test_validation_selects_by_d_bleu(binarised, tmp_path, caplog, monkeypatch, task, model):
    from fairseq_docmt.tasks import _validation_bleu

    kept, add = [], _validation_bleu.DocumentsInProgress.add

    def keeps(self, rows, texts):
        finished = add(self, rows, texts)
        kept.extend(finished)
        return finished

    monkeypatch.setattr(_validation_bleu.DocumentsInProgress, "add", keeps)
    caplog.set_level("INFO")
    arguments = [*task, "--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 10}']
    select = ["--best-checkpoint-metric", "d_bleu", "--maximize-best-checkpoint-metric"]
    tiny.train(binarised, tmp_path, *arguments, *select, updates=40, model=model)
    # Validated once or more; every time with all three documents, each whole.
    wanted = tiny.translate(tiny.documents((3, 1, 4), 1))
    references = {" ".join(document) for document in wanted}
    assert len(kept) % 3 == 0 and {reference for _, reference in kept} == references
    hypotheses, references = zip(*kept[-3:])
    last = sacrebleu.corpus_bleu(list(hypotheses), [list(references)])
    found = re.findall(r"valid on .valid. subset.* d_bleu ([\d.]+)", caplog.text)
    assert float(found[-1]) == pytest.approx(last.score, abs=0.006)
    best = checkpoint_utils.load_checkpoint_to_cpu(str(tmp_path / "checkpoint_best.pt"))
    assert best["extra_state"]["best"] == max(float(x) for x in found)


@pytest.mark.parametrize(
    "options, one, each, model",
    [
        pytest.param(
            ["--window-size", "2", "--batch-size", "2"], [], [], tiny.MODEL, marks=pytest.mark.long
        ),
        # One of the processes has nothing but fillers in the end.
        ([], ["--batch-size", "2"], ["--batch-size", "1"], tiny.memory()),
    ],
    ids=["window", "stream"],
)
def test_two_processes_validate_as_one_does(request, tmp_path, caplog, options, one, each, model):
    caplog.set_level("INFO")
    task = TASKS[request.node.callspec.id][0]
    data = tiny.corpus(tmp_path, valid=(5, 2))
    arguments = [*task, *options, "--lr", "0", "--max-update", "1", "--seed", "3"]
    arguments += ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 10}']
    arguments += ["--eval-bleu-print-samples"]
    pattern = r"valid on .valid. subset.* bleu ([\d.]+) \| d_bleu ([\d.]+)"
    tiny.train(data, tmp_path / "one", *arguments, *one, model=model)
    alone = re.findall(pattern, caplog.text)
    outputs = tiny.train_in_processes(data, tmp_path / "two", *arguments, *each, model=model)
    assert alone and re.findall(pattern, outputs[0]) == alone


def test_its_search_is_checked_without_training_too(binarised, window_checkpoint):
    command = [binarised, "--user-dir", tiny.USER_DIR, "--cpu", "--path", window_checkpoint]
    command += ["--valid-subset", "valid", "--batch-size", "4", *TASKS["window"][0]]
    with pytest.raises(UserError, match="beam in --eval-bleu-args must be a whole number, got 2.5"):
        tiny.run_main(
            validate.cli_main, *command, "--eval-bleu", "--eval-bleu-args", '{"beam": 2.5}'
        )
