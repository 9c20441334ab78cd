"""Language tags together with other options of training, decoding and scoring."""

import io
import json
import math
import re
import shutil
import sys
from unittest import mock

import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq_cli import interactive
from long_tests import LONG
from pretrained import (
    FINETUNED,
    MBART,
    MEMORY,
    POSITIONS,
    SEARCH,
    STOCK,
    TEST,
    WINDOW,
    ByHand,
    check,
    searched,
    without_new_symbols,
)

from fairseq_docmt import command_line
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.reranking.document_lm import DocumentLanguageModel
from fairseq_docmt.tasks._base import DocumentTranslationTask

MARKED = "--mark-document-start"
#: one sentence at a time
ALONE = [*WINDOW, "--window-size", "1", "--override-checkpoint-options"]


def options_of(task, decoding):
    return [*FINETUNED[task][:2], *POSITIONS, "--decoding", decoding]


# ---- <bod> ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, task, decoding",
    [
        ("mbart25", "window", "segment"),
        ("m2m", "window", "sequential"),
        pytest.param("m2m", "document", "segment", marks=LONG),
        pytest.param("mbart25", "document", "sequential", marks=LONG),
    ],
)
def test_documents_begin_with_their_mark(data, finetuned, kind, task, decoding):
    """After the tags, in the parts at the beginning of documents alone."""
    checkpoint = finetuned(kind, task, None, MARKED)
    hand, expected = ByHand(checkpoint, kind, marked=True), []
    for document in TEST:
        found = []
        if decoding == "segment":
            size = 3 if task == "window" else len(document)
            for first in range(0, len(document), size):
                found += hand.span(document[first : first + size], at_start=first == 0)
        for i in range(len(found), len(document)):
            first = max(0, i - 2) if task == "window" else 0
            before = [[*s[:-1], (hand.sep, 0.0)] for s in found[first:]]
            found.append(hand.sentence(document[first : i + 1], before, at_start=first == 0))
        expected += found
    check(data, checkpoint, expected, *options_of(task, decoding))


@pytest.mark.parametrize("kind", ["mbart25", "m2m"])
def test_nothing_but_words_is_written_beside_documents_with_marks(data, finetuned, tmp_path, kind):
    """By a model whose parameters are noise, in batches of parts with and without <bod>."""
    path = tmp_path / "noise.pt"
    shutil.copy(finetuned(kind, "window", None, MARKED), path)
    options = options_of("window", "segment")
    output = tiny.generate(data / "bin", tiny.with_noise(path), *SEARCH, *options)
    assert not re.search(r"__|\[|<", "".join(tiny.lines_of(output).values()))


# ---- alignments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mbart25", "m2m"])
@pytest.mark.parametrize("decoding", ["sequential", "segment"])
def test_alignments_are_those_of_words(data, finetuned, kind, decoding):
    """Numbered from 0 in each sentence, without tags and <bod>, as attention by hand has them."""
    checkpoint = finetuned(kind, "window", None, MARKED)
    options = [*options_of("window", decoding), "--print-alignment", "hard"]
    output = tiny.generate(data / "bin", checkpoint, *SEARCH, *options)
    hypotheses, links = tiny.lines_of(output), tiny.lines_of(output, "A")
    hand, row = ByHand(checkpoint, kind, marked=True), 0
    for document in TEST:
        translated = [hypotheses[row + i] for i in range(len(document))]
        for i in range(len(document)):
            first = max(0, i - 2) if decoding == "sequential" else i - i % 3
            end = i + 1 if decoding == "sequential" else first + 3
            sides = (document[first:end], translated[first:end])
            wanted = hand.links(*sides, at_start=first == 0)
            assert links[row + i] == wanted[i - first]
        row += len(document) + 1
    assert tiny.links_within_sentences(output) > 10


@pytest.mark.parametrize("kind", ["hard", "soft"])
@pytest.mark.parametrize("decoding", ["window", "sequential"])
def test_alignments_of_window_1_are_those_of_the_stock_task(data, stock, decoding, kind):
    """Without the tags of its task, which come first on both sides."""
    task_class, task, _ = STOCK["m2m"]
    printed = ["--print-alignment", kind, "--required-batch-size-multiple", "1"]
    options = [*task, "-s", "src", "-t", "tgt", *printed]
    theirs, _ = searched(task_class, data / "sentences" / "bin", stock("m2m"), *options)
    options = [*WINDOW, "--window-size", "1", "--decoding", decoding, *printed]
    options += ["--max-len-b", "11"] if decoding == "sequential" else []
    with without_new_symbols():
        ours, _ = searched(DocumentTranslationTask, data / "bin", stock("m2m"), *options)
    found = [best["alignment"] for best, *_ in ours if len(best["tokens"]) > 1]
    assert len(found) == len(theirs)
    for our, (their, *_) in zip(found, theirs):
        if kind == "hard":
            assert our == [(s - 1, t - 1) for s, t in their["alignment"] if s > 0 and t > 0]
        else:
            our = torch.tensor([[float(weight) for weight in row] for row in our])
            their = [[float(weight) for weight in row[1:]] for row in their["alignment"][1:]]
            torch.testing.assert_close(our, torch.tensor(their), atol=2e-6, rtol=0)


def test_models_trained_with_alignments_read_the_tag_again(data, stock, tmp_path):
    """Their alignments are computed from the whole output."""
    model = ["--arch", "transformer_align", *MBART[2:], "--alignment-layer", "0"]
    model += ["--encoder-learned-pos", "--decoder-learned-pos", "--activation-fn", "gelu"]
    model += ["--full-context-alignment", "--alignment-heads", "1"]
    start = [*FINETUNED["window"], "--finetune-from-model", str(stock("mbart25"))]
    path = tiny.train(data / "bin", tmp_path, *start, updates=1, model=model)
    (hand,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    first = []

    original = type(hand.decoder).forward

    def forward(self, prev_output_tokens, *args, **kwargs):
        if kwargs.get("incremental_state") is None:
            first.extend(prev_output_tokens[:, 0].tolist())
        return original(self, prev_output_tokens, *args, **kwargs)

    window_1 = [*ALONE, "--decoding", "sequential", "--print-alignment", "hard"]
    with pytest.raises(UserError, match="use --decoding segment or window"):
        tiny.generate(data / "bin", path, *SEARCH, *window_1)
    with mock.patch.object(type(hand.decoder), "forward", forward):
        options = ["--decoding", "window", "--print-alignment", "hard"]
        tiny.generate(data / "bin", path, *SEARCH, *WINDOW, *options)
    assert set(first) == {task.target_dictionary.index("[tgt]")}


# ---- constraints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, task, options",
    [
        ("mbart25", "window", ["--decoding", "sequential"]),
        ("m2m", "window", [*ALONE, "--decoding", "window"]),
        ("mbart50", "stream", []),
    ],
)
def test_constraints_hold_for_each_sentence(data, finetuned, kind, task, options):
    checkpoint = finetuned(kind, task, MEMORY if task == "stream" else None, MARKED)
    text = "w1 w2\tv7\nw3 w4\tv2\n\nw5\tv11 v3\nw6 w7\n"
    command = [str(data / "bin"), "--user-dir", tiny.USER_DIR, "--path", str(checkpoint), "--cpu"]
    command += [*FINETUNED[task][:2], *POSITIONS, *options, "-s", "src", "-t", "tgt"]
    command += ["--constraints", "--beam", "3", "--max-len-b", "12", "--buffer-size", "9"]
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()))):
        found = tiny.lines_of(tiny.run_main(interactive.cli_main, *command))
    assert all(word in found[row] for row, word in ((0, "v7"), (1, "v2"), (3, "v11 v3")))
    assert not re.search(r"__|\[|<", "".join(found.values()))


# ---- language models -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, task",
    [
        pytest.param("mbart25", "window", marks=LONG),
        pytest.param("m2m", "window", marks=LONG),
        ("mbart50", "stream"),
    ],
)
def test_a_language_model_scores_the_words_alone(data, finetuned, tmp_path, kind, task):
    """It knows no tags.  What it adds to references is its score of them."""
    references = tiny.translate(TEST)
    lm_path = tiny.document_lm(data / "bin" / "dict.tgt.txt", tmp_path, references)
    folder = tmp_path / "data"
    shutil.copytree(data / "bin", folder)
    shutil.copy(tmp_path / "bin" / "dict.txt", folder)
    checkpoint = finetuned(kind, task, MEMORY if task == "stream" else None, MARKED)
    options = [*FINETUNED[task][:2], *POSITIONS, "--gold-context", "--prefix-size", "99"]
    options += ["--lm-path", str(lm_path), "--lm-weight"]
    sums, written = [], []
    for weight in ("0", "1"):
        found, output = searched(DocumentTranslationTask, folder, checkpoint, *options, weight)
        sums.append([float(best["positional_scores"].sum()) for best, *_ in found])
        written = [text for _, text in sorted(tiny.lines_of(output).items())]
    reach = 2 if task == "window" else 99
    pairs = [(tuple(d[max(0, i - reach) : i]), d[i]) for d in references for i in range(len(d))]
    assert written == [sentence for _, sentence in pairs]
    added = [(with_lm - without) * math.log(2) for without, with_lm in zip(*sums)]
    lm = DocumentLanguageModel.load(str(lm_path), data=str(folder))
    assert added == pytest.approx(lm.score(pairs), abs=1e-4)


# ---- training ------------------------------------------------------------------------------------


@pytest.mark.long  # test_training.py has two processes
def test_two_processes_train_as_one_with_more_batches(data, stock, tmp_path):
    """With sentence pairs among the documents, each of them with tags and <bod>."""
    pairs = ["--sentence-data", str(data / "sentences" / "bin"), "--sentence-ratio", "0.5"]
    start = ["--finetune-from-model", str(stock("m2m")), "--lr", "0.01"]
    options = [*FINETUNED["window"], MARKED, *pairs, *start, "--max-tokens", "60"]
    options += ["--max-update", "5", "--dropout", "0"]
    model = STOCK["m2m"][2]
    tiny.train_in_processes(data / "bin", tmp_path / "two", *options, model=model)
    one = tiny.train(data / "bin", tmp_path / "one", *options, "--update-freq", "2", model=model)
    two = tiny.weights(tmp_path / "two" / "checkpoint_last.pt")
    for name, value in tiny.weights(one).items():
        torch.testing.assert_close(two[name], value, atol=1e-4, rtol=0, msg=name)


def test_half_precision(data, stock, tmp_path):
    """From a checkpoint in half precision, as published ones are."""
    path = tmp_path / "half.pt"
    state = checkpoint_utils.load_checkpoint_to_cpu(str(stock("m2m")))
    state["model"] = {name: value.half() for name, value in state["model"].items()}
    checkpoint_utils.torch_persistent_save(state, str(path))
    start = [*FINETUNED["window"], MARKED, "--finetune-from-model", str(path), "--lr", "0.01"]
    model, fp16 = STOCK["m2m"][2], ["--fp16", "--fp16-no-flatten-grads"]
    trained = tiny.train(data / "bin", tmp_path, *start, *fp16, updates=8, model=model)
    weights = tiny.weights(trained)
    assert all(value.isfinite().all() for value in weights.values())
    # fairseq stores half precision in single precision.
    assert all(torch.equal(value.half().float(), value) for value in weights.values())
    output = tiny.generate(data / "bin", trained, *SEARCH, *WINDOW, "--fp16")
    assert not re.search(r"__|<", "".join(tiny.lines_of(output).values()))
    assert all(math.isfinite(float(score)) for score in tiny.scores_of(output).values())


# ---- scoring -------------------------------------------------------------------------------------


def converted(finetuned, kind):
    """The pre-trained model as that of a task for documents; its parameters stay as they are."""
    return finetuned(kind, "window", None, "--lr", "1e-9", updates=1)


@pytest.mark.parametrize("kind", ["mbart25", pytest.param("nllb", marks=LONG)])
def test_cxmi_without_context_is_the_stock_task(data, stock, finetuned, tmp_path, kind):
    task_class, task, _ = STOCK[kind]
    options = [*task, "-s", "src", "-t", "tgt", "--score-reference"]
    options += ["--required-batch-size-multiple", "1"]
    theirs, _ = searched(task_class, data / "sentences" / "bin", stock(kind), *options)
    out = tmp_path / "usage.json"
    command = ["cxmi", "--path", str(converted(finetuned, kind)), "--cpu"]
    command += ["--source", str(data / "test.src"), "--reference", str(data / "test.tgt")]
    with without_new_symbols():
        tiny.run_main(command_line.main, *command, "--format", "json", "--out", str(out))
    found = json.loads(out.read_text())["sentences"]
    assert [one["words"] for one in found] == [
        sentence.split() for document in tiny.translate(TEST) for sentence in document
    ]
    # [tgt] comes after </s>, and __tgt__ before the sentence.
    kept = slice(0, -1) if kind == "mbart25" else slice(1, None)
    for one, (best, *_) in zip(found, theirs):
        # fairseq-generate has converted them to base 2.
        wanted = best["positional_scores"][kept].tolist()
        assert one["without"] == pytest.approx(wanted, abs=1e-5)
    assert any(abs(a - b) > 0.01 for one in found for a, b in zip(one["all"], one["without"]))


@pytest.mark.parametrize("kind", ["mbart25", "m2m"])
def test_models_of_stock_tasks_are_not_scored_without_their_tags(data, stock, kind):
    command = ["cxmi", "--path", str(stock(kind)), "--data", str(data / "bin")]
    command += ["--source", str(data / "test.src"), "--reference", str(data / "test.tgt")]
    with pytest.raises(UserError, match="was trained with --task .*--finetune-from-model"):
        tiny.run_main(command_line.main, *command)
