"""The Python interface: several translations, streams of documents, devices.

Covers generation/hub.py.
"""

import argparse
import concurrent.futures
import copy
import doctest
import pickle
import re
import threading
from pathlib import Path

import pytest
import tiny
import torch
from long_tests import LONG

from fairseq_docmt.analysis._documents import load as load_to_analyse
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator, translator

DOCS = tiny.documents((1, 5, 2, 7), 2)
ROWS = tiny.rows_of(DOCS)
WINDOWS = ["--task", "sliding_window_translation"]


@pytest.fixture
def windows(window_checkpoint):
    return DocumentTranslator.from_pretrained(str(window_checkpoint), decoding="sequential")


def test_examples(windows):
    (found,) = [
        test
        for test in doctest.DocTestFinder().find(translator, globs={"translator": windows})
        if test.examples
    ]
    assert doctest.DocTestRunner().run(found).failed == 0


def test_nbest_is_that_of_the_command(binarised, window_checkpoint, windows):
    """Texts, scores, scores of words and alignments."""
    options = [*WINDOWS, "--decoding", "sequential", "--nbest", "2", "--print-alignment", "hard"]
    output = tiny.generate(binarised, window_checkpoint, *options)
    found = windows.translate_nbest(DOCS, nbest=2, beam=3, max_len_b=12, print_alignment="hard")
    with pytest.raises(UserError, match='print_alignment must be "hard" here'):
        windows.translate_nbest(DOCS, nbest=1, print_alignment="soft")
    assert [len(document) for document in found] == [len(document) for document in DOCS]
    sentences = [sentence for document in found for sentence in document]
    for row, hypotheses in zip(ROWS, sentences, strict=True):
        lines = {kind: re.findall(rf"^{kind}-{row}\t(.*)$", output, flags=re.M) for kind in "HPA"}
        assert len(hypotheses) == len(lines["H"]) == 2
        for hypothesis, line, scores, links in zip(hypotheses, *lines.values()):
            score, text = line.split("\t")
            assert (hypothesis.text, hypothesis.score) == (text, pytest.approx(float(score)))
            assert hypothesis.token_scores == pytest.approx(
                [float(x) for x in scores.split()], abs=1e-4
            )
            assert " ".join(f"{i}-{j}" for i, j in hypothesis.alignment or []) == links
    assert windows.translate_nbest(DOCS[:1], nbest=1, beam=3)[0][0][0].alignment is None


def test_each_model_of_an_ensemble_limits_windows(binarised, window_checkpoint, tmp_path):
    """There is no embedding for a position after the last."""
    window = [*WINDOWS, "--window-size", "3", "--max-source-positions", "12"]
    learned = [*tiny.MODEL, "--encoder-learned-pos"]
    shorter = tiny.train(binarised, tmp_path, *window, updates=2, model=learned)
    ensemble = f"{window_checkpoint}:{shorter}"
    wanted = tiny.lines_of(tiny.generate(binarised, ensemble, *WINDOWS, "--decoding", "window"))
    both = DocumentTranslator.from_pretrained(ensemble, decoding="window")
    found = [text for document in both.translate(DOCS, beam=3, max_len_b=12) for text in document]
    assert found == [wanted[row] for row in ROWS]


def test_paths_of_pathlib(binarised, window_checkpoint, tmp_path):
    (tmp_path / "codes").write_text("#version: 0.2\nw 1</w>\n")
    codes = {"bpe": "subword_nmt", "bpe_codes": tmp_path / "codes"}
    checkpoint, data = Path(window_checkpoint), Path(binarised)
    found = DocumentTranslator.from_pretrained(checkpoint, data=data, **codes)
    assert len(found.translate([["w1 w2"]])) == 1


def test_an_ensemble_begins_with_a_document_task(binarised, window_checkpoint, tmp_path):
    stock = tiny.train(binarised, tmp_path, "--task", "translation", updates=2)
    with pytest.raises(
        UserError, match="with translation, number 2 with sliding_window_tr.* first"
    ):
        DocumentTranslator.from_pretrained(f"{stock}:{window_checkpoint}")
    both = DocumentTranslator.from_pretrained(f"{stock}:{stock}")
    assert len(both.translate([["w1 w2"]])) == 1


def test_training_that_has_read_several_folders(binarised, window_checkpoint, tmp_path):
    """The dictionaries come from the first folder, as in fairseq."""
    state = torch.load(window_checkpoint, map_location="cpu", weights_only=False)
    state["cfg"]["task"]["data"] = f"{binarised}:{tmp_path}"
    torch.save(state, tmp_path / "checkpoint.pt")
    found = DocumentTranslator.from_pretrained(str(tmp_path / "checkpoint.pt"))
    assert [len(document) for document in found.translate(DOCS[:2], beam=1)] == [1, 5]


@pytest.mark.parametrize("at_once", [1, 3])
def test_documents_are_read_as_they_are_needed(windows, at_once):
    read = []

    def documents():
        for number, document in enumerate(DOCS):
            read.append(number)
            yield iter(document)

    expected = windows.translate(DOCS, beam=3)
    for number, found in enumerate(windows.translate_stream(documents(), 3, at_once)):
        assert found == expected[number]
        assert len(read) == min(len(DOCS), number - number % at_once + at_once)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: t.translate(DOCS, nbest=2), "use translate_nbest"),
        (lambda t: t.translate_nbest(DOCS, 6), "from 1 to the beam size 5, got 6"),
        (lambda t: t.translate_nbest(DOCS, 0), "from 1 to the beam size 5, got 0"),
        (lambda t: list(t.translate_stream(DOCS, at_once=0)), "whole number from 1, got 0"),
        (lambda t: list(t.translate_stream(DOCS, at_once="3")), "whole number from 1, got '3'"),
        (
            lambda t: list(t.translate_stream([["w1"], ["w1", ""]])),
            "document 2, sentence 2 is empty",
        ),
        (lambda t: list(t.translate_stream([["w1"]] * 4 + ["x"], at_once=2)), "document 5 is 'x'"),
        (
            lambda t: list(t.translate_stream([["w1"], ["<sep>"]])),
            "document 2, sentence 1 has the w",
        ),
    ],
)
def test_mistakes(windows, call, message):
    with pytest.raises(UserError, match=message):
        call(windows)


def test_devices(window_checkpoint):
    with pytest.raises(UserError, match="device cuda:7 cannot be used .*; give cpu, or cuda"):
        DocumentTranslator.from_pretrained(str(window_checkpoint), device="cuda:7")
    with pytest.raises(UserError, match="device meta cannot be used .tensors have no values there"):
        DocumentTranslator.from_pretrained(str(window_checkpoint), device="meta")
    with pytest.raises(UserError, match="device None cannot be used .*; give cpu, or cuda"):
        DocumentTranslator.from_pretrained(str(window_checkpoint), device=None)
    half = DocumentTranslator.from_pretrained(str(window_checkpoint), precision="fp16")
    assert {str(p.dtype) for p in half.hub.parameters()} == {"torch.float16"}
    assert [len(document) for document in half.translate(DOCS, beam=2)] == [1, 5, 2, 7]


def test_a_sample_is_not_the_best_of_several(windows, window_checkpoint):
    """By default there are as many samples as are returned."""
    drawn = []
    generate = windows.hub.generate

    def counted(*args, beam, nbest, **options):
        drawn.append((beam, nbest))
        return generate(*args, beam=beam, nbest=nbest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows.hub, "generate", counted)
        windows.translate([["w1", "w2"]], sampling=True)
        windows.translate_nbest([["w1", "w2"]], 3, sampling=True)
        windows.translate([["w1", "w2"]])
    assert drawn == [(1, 1), (3, 3), (5, 1)]
    with pytest.raises(UserError, match="as many translations as the beam size, 5, and keeps the"):
        windows.translate([["w1"]], beam=5, sampling=True)
    with pytest.raises(UserError, match="draws as many .* as it returns; leave out beam"):
        DocumentTranslator.from_pretrained(window_checkpoint, sampling=True, beam=3)
    three = DocumentTranslator.from_pretrained(window_checkpoint, beam=3)
    with pytest.raises(UserError, match="nbest must be from 1 to the beam size 3, got 4"):
        three.translate_nbest([["w1"]], 4)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_a_translator_cannot_be_copied(window_checkpoint, copied):
    with pytest.raises(UserError, match="cannot be copied or pickled; load it in each process"):
        copied(DocumentTranslator.from_pretrained(window_checkpoint))


@pytest.mark.parametrize(
    "system, decoding",
    [
        ("window", "sequential"),
        pytest.param("window", "window", marks=LONG),
        pytest.param("window", "segment", marks=LONG),
        ("memory_stream", "stream"),
        ("cache_stream", "stream"),
        ("memnet_rows", "iterative"),
        pytest.param("rfa_window", "sequential", marks=LONG),
        pytest.param("rfa_document", "sequential", marks=LONG),
    ],
)
def test_threads_can_share_a_translator(request, system, decoding):
    """Each call gives what it gives alone, for every kind of state between sentences."""
    checkpoint = request.getfixturevalue(f"{system}_checkpoint")
    shared = DocumentTranslator.from_pretrained(str(checkpoint), decoding=decoding)
    texts = [tiny.documents((3, 2), seed) for seed in range(4)]
    alone = [shared.translate(text, beam=2, max_len_b=8) for text in texts]
    ready = threading.Barrier(len(texts))

    def call(text):
        ready.wait(timeout=60)
        return [shared.translate(text, beam=2, max_len_b=8) for _ in range(2)]

    with concurrent.futures.ThreadPoolExecutor(len(texts)) as threads:
        found = list(threads.map(call, texts))
    assert found == [[wanted] * 2 for wanted in alone]


def test_checkpoints_of_old_versions_take_limits_of_batches(window_checkpoint, tmp_path):
    """These keep all options in one namespace, which may lack them."""
    state = torch.load(window_checkpoint, weights_only=False)
    groups = state.pop("cfg")
    options = {**vars(groups["model"]), **groups["task"], "task": groups["task"]["_name"]}
    del options["max_tokens"]
    state["args"] = argparse.Namespace(**options)
    torch.save(state, tmp_path / "old.pt")
    found, wanted = (
        DocumentTranslator.from_pretrained(str(path), max_tokens=900).translate([["w1 w2", "w3"]])
        for path in (tmp_path / "old.pt", window_checkpoint)
    )
    assert found == wanted


def test_a_language_model_is_no_translation_model(window_checkpoint, tmp_path):
    state = torch.load(window_checkpoint, weights_only=False)
    state["cfg"]["task"] = {"_name": "language_modeling", "data": "data"}
    path = str(tmp_path / "lm.pt")
    torch.save(state, path)
    for load in (DocumentTranslator.from_pretrained, lambda path: load_to_analyse(path, "data")):
        with pytest.raises(UserError, match="lm.pt was trained with --task language_modeling; gi"):
            load(path)
