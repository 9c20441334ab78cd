"""Context usage is the difference of two scores of the same reference."""

import json

import numpy as np
import pytest
import tiny

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.scoring.context.cxmi import (
    Scores,
    by_word,
    read_documents,
    score,
    usage,
)
from fairseq_docmt.scoring.context.reference_scores import ReferenceScorer
from fairseq_docmt.scoring.contrastive.items import Item

SOURCE = tiny.documents((4, 1, 3), seed=5)
REFERENCE = tiny.translate(SOURCE)


@pytest.fixture
def files(write):
    return write("test.src", SOURCE), write("test.tgt", REFERENCE)


@pytest.fixture(params=["window", "memory_stream", "document"])
def checkpoint(request):
    return str(request.getfixturevalue(f"{request.param}_checkpoint"))


def scorer_of(checkpoint):
    return ReferenceScorer(DocumentTranslator.from_pretrained(checkpoint).hub)


def test_contexts_are_those_asked_for(files):
    documents = read_documents(*files)
    (first, *_), last = documents.with_context(2)[2:4], documents.with_context(2)[-1]
    assert first == (SOURCE[0][:3], REFERENCE[0][:3])
    assert last == (SOURCE[2], REFERENCE[2])
    assert documents.with_context(0)[3] == (SOURCE[0][3:], REFERENCE[0][3:])
    assert documents.whole() == list(zip(SOURCE, REFERENCE))


def test_other_formats(write, files):
    """Records are matched by their names, and what the reference lacks is left out."""
    rows = [(f"d{d}", n, text) for d, doc in enumerate(SOURCE) for n, text in enumerate(doc)]
    source = [{"doc_id": d, "segment": n, "source": text} for d, n, text in rows]
    wanted = [text for document in REFERENCE for text in document]
    reference = [{**r, "reference": text} for r, text in zip(source, wanted)]
    both = write("both.json", json.dumps(reference))
    documents = read_documents(write("source.json", json.dumps(source[::-1])), both)
    assert documents.target == wanted and documents.source == [text for *_, text in rows]
    assert documents.index.starts.tolist() == [0, 4, 5, 8]
    for without in (None, ""):
        reference[4]["reference"] = without
        documents = read_documents(files[0], write("gap.json", json.dumps(reference)))
        assert documents.index.starts.tolist() == [0, 4, 7] and len(documents.target) == 7
        assert documents.notes == ["left out, without a reference or source: 1 documents (d1)"]


def test_unknown_words_are_noted(scoring, write, files, window_checkpoint):
    strange = write("strange", [[f"other{n}" for n in range(len(doc))] for doc in REFERENCE])
    arguments = ["cxmi", "--path", str(window_checkpoint), "--cpu", "--source", files[0]]
    note = "100 % of the reference's tokens are unknown to the model; give the options with which"
    assert note in scoring(*arguments, "--reference", strange)
    assert "are unknown" not in scoring(*arguments, "--reference", files[1])


def test_contexts_that_no_sentence_has_are_noted(files, scoring, window_checkpoint):
    options = ["--source", files[0], "--reference", files[1], "--path", str(window_checkpoint)]
    text = scoring("cxmi", *options, "--cpu", "--context", "3", "4", "other-document:5", "all")
    assert "context 4: no sentence has more than 3 sentence(s) before it" in text
    assert "context other-document:5: no sentence has more than 3 sentence(s) before it" in text
    assert text.count("no sentence has more than") == 2
    in_window = "this model reads at most 2 sentence(s) before the scored one"
    assert f"context 3: {in_window}" in text and f"context other-document:5: {in_window}" in text
    assert in_window not in scoring("cxmi", *options, "--cpu", "--context", "2", "all")


def test_contexts_that_the_model_does_not_read_are_noted(
    files, scoring, memory_stream_checkpoint, binarised, tmp_path
):
    """A memory has no limit, other streams one of their own; stock models read no context."""
    options = ["cxmi", "--source", files[0], "--reference", files[1], "--cpu", "--context", "2"]
    assert "this model reads" not in scoring(*options, "--path", str(memory_stream_checkpoint))
    options += ["3"]
    stream = ["--task", "sentence_stream_translation", "--batch-size", "3", "--mark-document-start"]
    two = tiny.multi_encoder("--context-sentences", "2")
    text = scoring(*options, "--path", str(tiny.train(binarised, tmp_path, *stream, model=two)))
    assert text.count("this model reads") == 1
    assert "context 3: this model reads at most 2 sentence(s) before the scored one" in text
    assert "contexts other than all begin with <bod> (--mark-document-start), as each is" in text
    stock = str(tiny.train(binarised, tmp_path / "stock", "--task", "translation"))
    note = "context 2: this model reads at most 0 sentence(s) before the scored one"
    assert note in scoring(*options, "--path", stock)


def test_texts_of_unrelated_lengths_are_noted(write, scoring, window_checkpoint):
    """The target is shifted by a sentence, so that the sentences do not belong together."""
    rng = np.random.default_rng(1)
    lines = [" ".join(["w1"] * n) for n in rng.integers(1, 12, 300)]
    documents = [lines[start : start + 10] for start in range(0, 300, 10)]
    shifted = [*lines[1:], lines[0]]
    moved = [shifted[start : start + 10] for start in range(0, 300, 10)]
    source = write("long.src", documents)
    options = ["--path", window_checkpoint, "--cpu", "--source", source, "--context", "1"]
    note = "source and reference: in 1 of 1 blocks of sentences"
    for target, noted in ((documents, False), (moved, True)):
        reference = write("long.tgt", [[s.replace("w", "v") for s in doc] for doc in target])
        assert (note in scoring("cxmi", *options, "--reference", reference)) == noted


@pytest.mark.parametrize("context", [0, 1, 2])
def test_scores_are_those_of_contrastive_items(files, checkpoint, context):
    scorer, documents = scorer_of(checkpoint), read_documents(*files)
    cut = documents.with_context(context)
    items = [Item(source, [target], 0, {}) for source, target in cut]
    wanted = [scores[0] for scores in scorer.score(items).scores]
    found = scorer.sentence_scores(cut, last_only=True)
    np.testing.assert_allclose([float(s.sum()) for ((_, s),) in found], wanted)
    in_bits = score(scorer, documents, str(context))
    assert [" ".join(one.words) for one in in_bits] == sum(REFERENCE, [])
    ends = [one.end * np.log(2) for one in in_bits]
    np.testing.assert_allclose(ends, [float(s[-1]) for ((_, s),) in found])
    sums = [one.bits.sum() * np.log(2) for one in in_bits]
    np.testing.assert_allclose(np.add(sums, ends), wanted)


def test_context_of_another_document(files):
    documents = read_documents(*files)
    found = documents.with_other_context()
    # The second document has one sentence, the next of the last is the first.
    assert [source for source, _ in found[:4]] == [
        [*SOURCE[1][: min(place, 1)], SOURCE[0][place]] for place in range(4)
    ]
    assert found[4] == (SOURCE[1], REFERENCE[1])
    assert found[7] == ([*SOURCE[0][:2], SOURCE[2][2]], [*REFERENCE[0][:2], REFERENCE[2][2]])
    assert documents.with_other_context(1)[7][0] == [SOURCE[0][1], SOURCE[2][2]]


@pytest.mark.parametrize("most", [1, 2, 9])
def test_the_context_of_another_document_ends_at_its_border(write, most):
    """There are more documents and sentences than ten, and fewer before a sentence than 9."""
    texts = tiny.documents((3, 1, 12, 2, *[1] * 8), seed=6)
    documents = read_documents(write("s", texts), write("t", tiny.translate(texts)))
    wanted = []
    for number, text in enumerate(texts):
        other = texts[(number + 1) % len(texts)]
        for place, sentence in enumerate(text):
            wanted.append([*other[:place][-most:], sentence])
    assert [source for source, _ in documents.with_other_context(most)] == wanted


@pytest.mark.parametrize("kind, reach", [("window", 2), ("memory_stream", 3)])
def test_whole_documents_give_all_that_is_seen(files, request, kind, reach):
    scorer = scorer_of(str(request.getfixturevalue(f"{kind}_checkpoint")))
    documents = read_documents(*files)
    pairs = zip(score(scorer, documents, "all"), score(scorer, documents, str(reach)))
    for whole, cut in pairs:
        assert whole.words == cut.words
        np.testing.assert_allclose(whole.bits, cut.bits, atol=1e-5)


def test_a_sentence_level_model_gains_nothing(files, binarised, tmp_path):
    """A stock checkpoint scores all sentences of a document, each by itself."""
    scorer = scorer_of(str(tiny.train(binarised, tmp_path, "--task", "translation")))
    documents = read_documents(*files)
    found = score(scorer, documents, "all")
    for one, other in zip(found, score(scorer, documents, "1")):
        assert one.words == other.words
        np.testing.assert_allclose(one.bits, other.bits, atol=1e-5)
    assert [" ".join(one.words) for one in found] == sum(REFERENCE, [])


def test_documents_are_as_long_as_they_like_where_rows_are_sentences(files, memnet_rows_checkpoint):
    scorer, documents = scorer_of(str(memnet_rows_checkpoint)), read_documents(*files)
    most = max(len(text.split()) for text in sum(SOURCE + REFERENCE, [])) + 1
    assert most < min(len(" ".join(text).split()) for text in (SOURCE[0], REFERENCE[0]))
    wanted = score(scorer, documents, "all")
    scorer.hub.max_positions = (most, most)
    for one, other in zip(score(scorer, documents, "all"), wanted):
        np.testing.assert_array_equal(one.bits, other.bits)
    scorer.hub.max_positions = (most - 1, most - 1)
    with pytest.raises(UserError, match=f"has {most} tokens with its context"):
        score(scorer, documents, "all")


def test_means():
    without = [Scores(["a", "b"], np.array([-2.0, -3.0]), -1.0), Scores(["a"], np.array([-1.0]))]
    with_context = [
        Scores(["a", "b"], np.array([-1.0, -3.5]), -0.5),
        Scores(["a"], np.array([-0.75]), -0.25),
    ]
    found = usage(without, with_context, [0, 1])
    assert found.sentence.mean == pytest.approx((0.5 + 0.25) / 2)
    assert (found.sentence.low, found.sentence.high) == (0.25, 0.5)
    assert found.token == pytest.approx(0.75 / 3)
    assert found.published.mean == pytest.approx(np.log(2) * (1 / 3 + 0 / 2) / 2)
    assert usage(without, with_context, [5, 5]).sentence == (found.sentence.mean, None, None)
    assert by_word(without, with_context) == {"a": [1.0, 0.25], "b": [-0.5]}


def test_other_end_symbols_are_left_out():
    """Of whole documents, what is published compares </s> with </s> only."""
    without = [Scores(["a"], np.array([-2.0]), -1.0), Scores(["b"], np.array([-3.0]), -1.0)]
    inside = Scores(["a"], np.array([-1.0]), -9.0, "<sep>")
    last = Scores(["b"], np.array([-2.0]), -0.5)
    assert usage(without, [inside, last], [0, 1]).published.mean == pytest.approx(
        np.log(2) * (1.0 + 1.5 / 2) / 2
    )


def test_sentences_inside_of_a_segment_end_with_a_separator(scoring, files, document_checkpoint):
    scorer, documents = scorer_of(str(document_checkpoint)), read_documents(*files)
    ends = [found.end_symbol for found in score(scorer, documents, "all")]
    assert ends[3:5] == ["</s>", "</s>"] and ends[7] == "</s>"
    inside = ends.count("<sep>")
    assert inside and inside + ends.count("</s>") == 8
    assert {found.end_symbol for found in score(scorer, documents, "3")} == {"</s>"}
    command = ["--source", files[0], "--reference", files[1], "--cpu", "--min-count", "1"]
    printed = scoring("cxmi", "--path", document_checkpoint, *command)
    assert f"context all: {inside} of 8 sentences are followed by another one" in printed


def test_intervals_are_over_documents():
    rng = np.random.default_rng(1)
    # Sentences of a document gain alike: 20 documents, not 400 independent sentences.
    gains = np.repeat(rng.normal(size=20), 20)
    zero = [Scores(["a"], np.array([0.0])) for _ in gains]
    more = [Scores(["a"], np.array([gain])) for gain in gains]
    found = usage(zero, more, np.repeat(np.arange(20), 20)).sentence
    error = gains[::20].std() / np.sqrt(20)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.15)


def test_the_command(files, scoring, window_checkpoint, other_window_checkpoint, tmp_path):
    source, reference = files
    options = ["--source", source, "--reference", reference, "--cpu", "--min-count", "1"]
    options += ["--path", window_checkpoint, "--context", "1", "other-document:2", "all"]
    text = scoring("cxmi", *options, "--words", "2")
    assert "docs:3|sentences:8|" in text and text.count("\nv") == 2
    out = tmp_path / "usage.json"
    scoring("cxmi", *options, "--format", "json", "--out", out)
    found = json.loads(out.read_text())
    for context, used in found["usage"].items():
        # "1 over other-document:2" is the gain over sentences of another document.
        context, _, base = context.partition(" over ")
        gains = [np.subtract(s[context], s[base or "without"]) for s in found["sentences"]]
        bits = [gain[:-1].sum() for gain in gains]
        assert used["sentence"]["mean"] == pytest.approx(np.mean(bits))
        nats = [gain.mean() * np.log(2) for gain in gains]
        assert used["published"]["mean"] == pytest.approx(np.mean(nats))
    assert len({used["token"] for used in found["usage"].values()}) == 5
    assert list(found["usage"])[3:] == ["1 over other-document:2", "all over other-document:2"]
    baseline = ["--baseline", other_window_checkpoint, "--format", "json", "--out", out]
    scoring("cxmi", *options, *baseline)
    other = json.loads(out.read_text())["sentences"]
    assert [s["all"] for s in other] == [s["all"] for s in found["sentences"]]
    assert [s["without"] for s in other] != [s["without"] for s in found["sentences"]]


def test_mistakes(write, scoring, window_checkpoint):
    source, short = write("test.src", SOURCE), write("short.tgt", REFERENCE[:1])
    moved = write("moved.tgt", [REFERENCE[0][:3], [*REFERENCE[0][3:], *REFERENCE[1]], REFERENCE[2]])
    options = ["--path", window_checkpoint, "--cpu", "--source", source]
    with pytest.raises(UserError, match="has 10 lines, but .*short.tgt has 4"):
        scoring("cxmi", *options, "--reference", short)
    with pytest.raises(UserError, match="line 4 is blank in only one of"):
        scoring("cxmi", *options, "--reference", moved)
    for wrong in ("0", "-1", "some", "other-document:0", "9" * 5000):
        with pytest.raises(
            UserError, match="give positive numbers of sentences, all, or other-doc"
        ):
            scoring("cxmi", *options, "--reference", source, "--context", wrong)
    one = write("one", REFERENCE[:1])
    options = ["--path", window_checkpoint, "--cpu", "--source", one, "--reference", one]
    with pytest.raises(UserError, match="--context other-document needs two or more documents"):
        scoring("cxmi", *options, "--context", "other-document")
