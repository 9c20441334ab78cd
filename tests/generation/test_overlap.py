"""Overlapping windows (``--decoding overlap``) against the windows translated one by one."""

import re
from types import SimpleNamespace

import pytest
import tiny
import torch

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.generation.overlap import _merged

WINDOWS = ["--task", "sliding_window_translation"]
DOCS = tiny.documents((1, 5, 2, 7), 2)


@pytest.mark.parametrize("options", [{}, {"lenpen": 0.3}])
def test_the_surest_window_translates_a_sentence(window_checkpoint, options):
    """A loop over all windows of three sentences, each translated by ``segment`` by itself."""
    found = DocumentTranslator.from_pretrained(str(window_checkpoint), decoding="overlap")
    single = DocumentTranslator.from_pretrained(str(window_checkpoint), decoding="segment")
    given = {"beam": 3, "max_len_b": 12, **options}
    for document, best in zip(DOCS, found.translate_nbest(DOCS, 1, **given)):
        candidates = [{} for _ in document]
        for end in range(1, len(document) + 1):
            first = max(0, end - 3)
            ((*sentences,),) = single.translate_nbest([document[first:end]], 1, **given)
            for place, hypotheses in zip(range(first, end), sentences):
                for hypothesis in hypotheses:
                    score = sum(hypothesis.token_scores)
                    score /= len(hypothesis.token_scores) ** options.get("lenpen", 1)
                    candidates[place].setdefault(hypothesis.text, []).append(score)
        for texts, (chosen,) in zip(candidates, best):
            means = {text: sum(scores) / len(scores) for text, scores in texts.items()}
            assert chosen.score == pytest.approx(max(means.values()), abs=1e-4)
            assert means[chosen.text] == pytest.approx(max(means.values()), abs=1e-4)


def test_lists_of_several_windows_begin_with_the_surest_of_their_first():
    """Of the others, better ones are left out: without lists they would not be known."""

    def hypothesis(word, *scores):
        return {"tokens": torch.tensor([word, 2]), "positional_scores": torch.tensor(scores)}

    windows = [
        [hypothesis(4, -3.0, -1.0), hypothesis(5, -2.0, -3.0), hypothesis(6, -9.0, -1.0)],
        [hypothesis(4, -1.0, -2.0), hypothesis(7, -0.5, -2.5)],
        [hypothesis(5, -1.0, -3.0), hypothesis(4, -4.0, -4.0)],
    ]
    found = _merged(windows, SimpleNamespace(normalize_scores=True, len_penalty=1.0))
    # 5 has -2.0 as a first, -2.25 in all windows; 7 has -1.5, more than 4 with -1.75.
    assert [int(each["tokens"][0]) for each in found] == [4, 5, 6]
    assert [float(each["score"]) for each in found] == [-1.75, -2.25, -5.0]


def test_windows_of_one_sentence_do_not_overlap(binarised, window_checkpoint):
    given = [*WINDOWS, "--window-size", "1", "--override-checkpoint-options"]
    outputs = [
        tiny.lines_of(tiny.generate(binarised, window_checkpoint, *given, "--decoding", decoding))
        for decoding in ("overlap", "window")
    ]
    assert outputs[0] == outputs[1]


def test_sentences_after_a_window_are_read(binarised, barely_trained):
    """Without overlap, all decodings of windows have the same source."""
    options = ["--window-size", "1", "--next-sentences", "2"]
    checkpoint = barely_trained(*WINDOWS, *options)
    outputs = [
        tiny.lines_of(tiny.generate(binarised, checkpoint, *WINDOWS, "--decoding", decoding))
        for decoding in ("overlap", "window")
    ]
    assert outputs[0] == outputs[1]


def test_references_are_scored_in_their_windows(binarised, window_checkpoint):
    scores = []
    for decoding in ("overlap", "window"):
        given = [*WINDOWS, "--decoding", decoding, "--score-reference"]
        found = tiny.scores_of(tiny.generate(binarised, window_checkpoint, *given))
        scores.append([float(found[line]) for line in sorted(found)])
    assert len(scores[0]) == len(tiny.rows_of(DOCS))
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_batches_change_nothing(binarised, window_checkpoint):
    given = [*WINDOWS, "--decoding", "overlap", "--nbest", "2"]
    outputs = [
        sorted(line for line in output.splitlines() if line.startswith(("H-", "P-")))
        for tokens in ("40", "4000")
        for output in [tiny.generate(binarised, window_checkpoint, *given, "--max-tokens", tokens)]
    ]
    assert [re.sub(r"-?\d+\.\d+", "", line) for line in outputs[0]] == [
        re.sub(r"-?\d+\.\d+", "", line) for line in outputs[1]
    ]


def test_ensembles(binarised, window_checkpoint, other_window_checkpoint):
    both = f"{window_checkpoint}:{other_window_checkpoint}"
    output = tiny.generate(binarised, both, *WINDOWS, "--decoding", "overlap")
    assert sorted(tiny.lines_of(output)) == tiny.rows_of(DOCS)


def test_interactive(binarised, window_checkpoint):
    lines = ["w1 w2", "w3", "", "w4 w5 w6"]
    found = tiny.interactive(
        *[binarised, window_checkpoint, lines, *WINDOWS, "--decoding", "overlap"],
        *["--buffer-size", "10"],
    )
    assert len(re.findall(r"^H-", found, flags=re.M)) == 4


def test_units_are_documents(window_checkpoint):
    task = DocumentTranslator.from_pretrained(str(window_checkpoint), decoding="overlap").hub.task
    index = DocumentIndex.from_lengths([2, 3])
    assert task.search.spans(index, None).tolist() == [[0, 2], [2, 5]]
