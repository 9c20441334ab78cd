"""Windows whose source has further sentences (``--next-sentences``), in all decodings."""

import math

import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from long_tests import long_but_for

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.scoring.context.reference_scores import ReferenceScorer

DOCS = tiny.documents((1, 5, 2, 7), 2)
WINDOWS = ["--task", "sliding_window_translation"]
DECODINGS = ["sequential", "window", "segment", "overlap"]
#: sentences of a window and after it
SIZE, NEXT = 3, 2
#: fairseq-generate prints scores to base 2
LOG2 = math.log(2)


@pytest.fixture(scope="module")
def checkpoint(barely_trained):
    return barely_trained(*WINDOWS, "--window-size", str(SIZE), "--next-sentences", str(NEXT))


def spans_of(length, decoding):
    """First sentence, first translated sentence and end of each unit of a document."""
    if decoding == "segment":
        return [(a, a, min(a + SIZE, length)) for a in range(0, length, SIZE)]
    return [(max(0, i - SIZE + 1), i, i + 1) for i in range(length)]


def encoded(sentences, dictionary):
    return dictionary.encode_line(" <sep> ".join(sentences), add_if_not_exist=False).long()


@pytest.mark.parametrize("decoding", DECODINGS)
def test_scores_of_references_equal_those_of_one_window_at_a_time(binarised, checkpoint, decoding):
    options = [*WINDOWS, "--decoding", decoding]
    output = tiny.generate(binarised, checkpoint, *options, "--score-reference")
    found = tiny.scores_of(output)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    rows = iter(tiny.rows_of(DOCS))
    for doc, translated in zip(DOCS, tiny.translate(DOCS)):
        for first, start, end in spans_of(len(doc), decoding):
            source = encoded(doc[first : end + NEXT], task.source_dictionary)
            target = translated[first:end]
            tokens = encoded(target, task.target_dictionary)
            with torch.no_grad():
                logits, _ = model.eval()(
                    source[None], torch.tensor([len(source)]), tokens.roll(1)[None]
                )
            scores = logits[0].log_softmax(-1).gather(1, tokens[:, None])[:, 0]
            sizes = [len(sentence.split()) + 1 for sentence in target]
            for sentence in scores.split(sizes)[start - first :]:
                assert float(found[next(rows)]) == pytest.approx(
                    sentence.mean().item() / LOG2, abs=2e-4
                )


def test_the_source_stays_within_the_positions_of_the_model(binarised, barely_trained):
    """Of the next sentences only those that fit are read, in overlapping windows too."""
    positions = ["--max-source-positions", "16", "--encoder-learned-pos"]
    checkpoint = barely_trained(*WINDOWS, "--window-size", "3", "--next-sentences", "2", *positions)
    scores = []
    for decoding in ("window", "overlap"):
        options = [*WINDOWS, "--decoding", decoding]
        output = tiny.generate(binarised, checkpoint, *options, "--score-reference")
        found = tiny.scores_of(output)
        scores.append({row: float(found[row]) for row in tiny.rows_of(DOCS)})
        translated = tiny.lines_of(tiny.generate(binarised, checkpoint, *options))
        assert sorted(translated) == tiny.rows_of(DOCS)
    assert scores[0] == pytest.approx(scores[1], abs=2e-4)


def interactive(binarised, checkpoint, *arguments):
    lines = tiny.text_of(DOCS).rstrip("\n").split("\n")
    return tiny.interactive(binarised, checkpoint, lines, *WINDOWS, *arguments)


@pytest.mark.parametrize("decoding", long_but_for(["sequential"], DECODINGS))
def test_each_way_to_decode_gives_the_same(binarised, checkpoint, decoding, caplog):
    options = [*WINDOWS, "--decoding", decoding]
    wanted = tiny.lines_of(tiny.generate(binarised, checkpoint, *options))
    assert sorted(wanted) == tiny.rows_of(DOCS)
    one = tiny.generate(binarised, checkpoint, *options, "--batch-size", "1")
    assert tiny.lines_of(one) == wanted
    sizes = ["--buffer-size", "100", "--batch-size", "4"]
    typed = tiny.lines_of(interactive(binarised, checkpoint, "--decoding", decoding, *sizes))
    assert {row: typed[row] for row in wanted} == wanted
    translator = DocumentTranslator.from_pretrained(str(checkpoint), decoding=decoding)
    found = translator.translate(DOCS, beam=3, max_len_b=12)
    assert [line for doc in found for line in doc] == [wanted[row] for row in sorted(wanted)]
    assert "continues after --buffer-size" not in caplog.text


def test_a_document_over_the_buffer_is_warned_of(binarised, checkpoint, caplog):
    interactive(binarised, checkpoint, "--buffer-size", "4")
    assert "translated without those that follow, so give a --buffer-size" in caplog.text


def test_validation_translates_with_them(binarised, tmp_path, caplog):
    caplog.set_level("INFO")
    window = [*WINDOWS, "--window-size", str(SIZE), "--next-sentences", str(NEXT)]
    search = ["--eval-bleu-args", '{"beam": 2, "max_len_b": 10}', "--lr", "0.02"]
    path = tiny.train(binarised, tmp_path, *window, "--eval-bleu", *search, updates=40)
    logged = caplog.text.rsplit(" bleu ", 1)[1].split()[0]
    again = tiny.valid_bleu(binarised, path, *WINDOWS, "--gold-context")
    assert float(logged) == pytest.approx(again, abs=0.011)
    assert again > 1


@pytest.mark.parametrize(
    "options, message",
    [
        (["--match-source-len"], "--match-source-len compares with the source of the whole window"),
        (["--print-alignment", "soft"], "use --print-alignment hard"),
    ],
)
def test_sentences_with_next_ones_are_not_alone(binarised, barely_trained, options, message):
    one = barely_trained(*WINDOWS, "--window-size", "1", "--next-sentences", str(NEXT))
    with pytest.raises(UserError, match=message):
        tiny.generate(binarised, one, *WINDOWS, *options)
    # Its output is a single sentence all the same.
    prefixed = tiny.generate(binarised, one, *WINDOWS, "--decoding", "window", "--prefix-size", "1")
    assert sorted(tiny.lines_of(prefixed)) == tiny.rows_of(DOCS)


def test_contradictions_are_refused(binarised, checkpoint):
    with pytest.raises(UserError, match="--next-sentences 1 contradicts .* --next-sentences 2"):
        tiny.generate(binarised, checkpoint, *WINDOWS, "--next-sentences", "1")
    hub = DocumentTranslator.from_pretrained(str(checkpoint)).hub
    with pytest.raises(UserError, match="reads 2 sentences after each window"):
        ReferenceScorer(hub)
