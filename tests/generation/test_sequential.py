"""Sequential decoding compared with a search of one sentence at a time without caches."""

import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from fairseq import checkpoint_utils, tasks
from long_tests import LONG, long_but_for
from naive_search import beam_search

from fairseq_docmt.data import DocumentIndex, Formats, join_sentences
from fairseq_docmt.data.decoding_units import DecodingUnit
from fairseq_docmt.data.sequence_format import LanguageTags
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator, ensembles
from fairseq_docmt.generation.sequential import SequentialSearch

LIMIT = 12
WITHOUT_CONTEXT = (
    "sentences that were translated with less context or none, because the translations "
    "before them fill the target positions of the model"
)


def load(checkpoints):
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoints[0]))
    task = tasks.setup_task(state["cfg"].task)
    models, _ = checkpoint_utils.load_model_ensemble([str(c) for c in checkpoints], task=task)
    for model in models:
        model.eval()
    return task, models


def naive_translation(
    task, models, sources, context, beam=3, nbest=1, with_context=False, **options
):
    """Return hypotheses of the sentence after ``context`` (token lists) in a span of sources.

    Args:
        with_context: the score of a hypothesis is that of the context and itself.
    """
    dictionary = task.tgt_dict
    eos, separator = dictionary.eos(), dictionary.index("<sep>")
    prefix = [eos]
    for sentence in context:
        prefix += sentence + [separator]
    inside = len(context) + 1 < len(sources)
    end, other_end = (separator, eos) if inside else (eos, separator)
    source = join_sentences(sources, separator)[None]
    lengths = torch.tensor([source.size(1)])
    encoder_outs = [model.encoder(source, src_lengths=lengths) for model in models]

    def words_after(rows):
        """Return log-probabilities, computed from the beginning."""
        same = torch.zeros(len(rows), dtype=torch.long)
        total = 0
        for model, encoder_out in zip(models, encoder_outs):
            out = model.encoder.reorder_encoder_out(encoder_out, same)
            out = model.decoder(torch.tensor(rows), encoder_out=out)
            total = total + model.get_normalized_probs(out, log_probs=False)[:, -1]
        return (total / len(models)).log()

    def next_words(rows):
        return words_after([[*prefix, *tokens] for tokens in rows])

    if with_context:
        scores = [float(words_after([prefix[:n]])[0, prefix[n]]) for n in range(1, len(prefix))]
        options["context"] = sum(scores), len(scores)
    never = [dictionary.pad(), other_end, dictionary.index("<bod>")]
    search = {"beam": beam, "nbest": nbest, "limit": LIMIT, "end": end, "never": never}
    return beam_search(next_words, **search, **options)


def source_documents(task):
    docs = tiny.documents((1, 5, 2, 7), 2)
    return [[task.src_dict.encode_line(s, add_if_not_exist=False).long() for s in d] for d in docs]


def check(output, rows, expected, dictionary, nbest=1):
    """Compare all printed hypotheses, in order, with their scores."""
    lines = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, flags=re.M)
    for row, found in zip(rows, expected):
        printed = [(float(score), text) for number, score, text in lines if int(number) == row]
        assert len(printed) == nbest
        for (score, text), want in zip(printed, found):
            assert text == dictionary.string(torch.tensor(want.tokens))
            assert score == pytest.approx(want.score / math.log(2), abs=2e-4)


@torch.no_grad()
@pytest.mark.parametrize(
    "system",
    long_but_for(["transformer", "ensemble"], ["transformer", "ensemble", "rfa", "rnnsearch"]),
)
def test_windows(
    binarised,
    window_checkpoint,
    other_window_checkpoint,
    rfa_window_checkpoint,
    rnnsearch_window_checkpoint,
    system,
):
    checkpoints = {
        "transformer": [window_checkpoint],
        "ensemble": [window_checkpoint, other_window_checkpoint],
        "rfa": [rfa_window_checkpoint],
        "rnnsearch": [rnnsearch_window_checkpoint],
    }[system]
    assert check_windows(binarised, checkpoints) == 0


def check_windows(binarised, checkpoints, positions=None):
    """Compare windows; return how often one loses context, because ``positions`` are filled."""
    task, models = load(checkpoints)
    expected, cuts = [], 0
    for document in source_documents(task):
        translated = []
        for i in range(len(document)):
            wanted = first = max(0, i - 2)
            while positions and 1 + _size(translated[first:]) + LIMIT > positions - 1:
                first += 1
            cuts += first > wanted
            result = naive_translation(task, models, document[first : i + 1], translated[first:i])
            translated.append(result[0].tokens)
            expected.append(result)
    override = ["--model-overrides", f"{{'max_target_positions': {positions}}}"]
    output = tiny.generate(
        binarised,
        ":".join(map(str, checkpoints)),
        *["--task", "sliding_window_translation", "--decoding", "sequential"],
        *(override if positions else []),
    )
    check(output, tiny.rows_of(tiny.documents((1, 5, 2, 7), 2)), expected, task.tgt_dict)
    return cuts


def _size(sentences):
    """Return the number of tokens of target sentences with their separators."""
    return sum(len(tokens) + 1 for tokens in sentences)


@torch.no_grad()
def test_windows_that_fill_the_positions(binarised, window_checkpoint, caplog):
    """A window loses its oldest sentences where its own sentence would not fit after them."""
    caplog.set_level("INFO")
    cuts = check_windows(binarised, [window_checkpoint], positions=24)
    assert cuts > 0 and caplog.messages.count(f"{WITHOUT_CONTEXT}: {cuts}") == 1


@pytest.mark.parametrize("buffer, batch", [("100", "1"), ("5", "1"), ("3", "2")])
def test_finished_documents_are_forgotten(binarised, window_checkpoint, monkeypatch, buffer, batch):
    """Except the last, which the next lines may continue."""
    translate, held = SequentialSearch.translate, []

    def noted(self, *args):
        found = translate(self, *args)
        held.append(len(self.translated))
        return found

    monkeypatch.setattr(SequentialSearch, "translate", noted)
    lines = tiny.text_of(tiny.documents((2, 1, 3) * 3, 5)).rstrip("\n").split("\n")
    options = ["--task", "sliding_window_translation", "--decoding", "sequential"]
    sizes = ["--buffer-size", buffer, "--batch-size", batch]
    tiny.interactive(binarised, window_checkpoint, lines, *options, *sizes)
    assert len(held) >= 6 and max(held) <= int(batch) + 1


@pytest.fixture(params=long_but_for(["", "lst_"], ["", "rfa_", "window_attention_", "lst_"]))
def checkpoint(request):
    """With full documents, for one architecture after the other."""
    return request.getfixturevalue(f"{request.param}document_checkpoint")


@torch.no_grad()
@pytest.mark.parametrize("decoding", ["sequential", "sequential-full-source"])
def test_full_documents(binarised, checkpoint, decoding):
    """Given the source up to the sentence, or the source of the whole part."""
    check_documents(binarised, [checkpoint], decoding)


@pytest.mark.long
@torch.no_grad()
def test_full_documents_by_an_ensemble(
    binarised, window_attention_document_checkpoint, document_checkpoint
):
    """One model reuses states; the other computes everything again."""
    checkpoints = [window_attention_document_checkpoint, document_checkpoint]
    check_documents(binarised, checkpoints, "sequential")


def check_documents(binarised, checkpoints, decoding, positions=None):
    """Compare documents; return how often one begins again, because ``positions`` are filled."""
    task, models = load(checkpoints)
    expected, cuts = [], 0
    for document in source_documents(task):
        sizes = np.array([len(s) for s in document])
        for first, end in task.search.spans(DocumentIndex.from_lengths([len(document)]), sizes):
            translated = []
            for i in range(first, end):
                used = 1 + _size(translated)
                if positions and translated and used + LIMIT > positions - 1:
                    first, translated, cuts = i, [], cuts + 1
                last = i + 1 if decoding == "sequential" else end
                result = naive_translation(task, models, document[first:last], translated)
                translated.append(result[0].tokens)
                expected.append(result)
    override = ["--model-overrides", f"{{'max_target_positions': {positions}}}"]
    output = tiny.generate(
        binarised,
        ":".join(map(str, checkpoints)),
        *["--task", "full_document_translation", "--decoding", decoding],
        *(override if positions else []),
    )
    check(output, tiny.rows_of(tiny.documents((1, 5, 2, 7), 2)), expected, task.tgt_dict)
    return cuts


@pytest.mark.parametrize("limit, wanted", [(50, 18), (12, 12)])
def test_positions_that_a_sentence_needs(limit, wanted):
    """Twice the four tokens of its source and ten, or its limit."""
    search = SimpleNamespace(
        formats=Formats.of(None, tiny.dictionary(9), LanguageTags((), (), (3,)))
    )
    unit = DecodingUnit([0, 1], [torch.ones(9), torch.ones(4)])
    before = [torch.ones(5), torch.ones(2)]  # with <sep> 9 tokens, and 2 at the beginning
    for spare, enough in ((0, True), (-1, False)):
        generator = SimpleNamespace(
            max_len=1 + 11 + wanted + spare, most_tokens=lambda size, sentences: limit
        )
        assert SequentialSearch._has_room(search, generator, unit, 1, before) is enough


@torch.no_grad()
@pytest.mark.parametrize("decoding", ["sequential", "sequential-full-source"])
def test_documents_that_fill_the_positions(binarised, checkpoint, decoding, caplog):
    """Where no sentence fits after the translations so far, a part without context begins."""
    caplog.set_level("INFO")
    cuts = check_documents(binarised, [checkpoint], decoding, positions=24)
    assert cuts > 0 and caplog.messages.count(f"{WITHOUT_CONTEXT}: {cuts}") == 1


@torch.no_grad()
@pytest.mark.parametrize(
    "options, search",
    [
        pytest.param(["--nbest", "3"], {"nbest": 3}, marks=LONG),
        (["--nbest", "3", "--lenpen", "0.4"], {"nbest": 3, "len_penalty": 0.4}),
        pytest.param(
            ["--nbest", "2", "--lenpen", "2"], {"nbest": 2, "len_penalty": 2.0}, marks=LONG
        ),
        (["--unnormalized"], {"len_penalty": 0.0}),
        (["--beam", "1"], {"beam": 1}),
        pytest.param(["--beam", "5", "--nbest", "4"], {"beam": 5, "nbest": 4}, marks=LONG),
    ],
)
def test_every_hypothesis_of_the_beam(binarised, window_checkpoint, options, search):
    """With any length penalty; context is the reference, so that rows are independent."""
    task, models = load([window_checkpoint])
    docs, expected = tiny.documents((1, 5, 2, 7), 2), []
    for document, reference in zip(source_documents(task), tiny.translate(docs)):
        gold = [[task.tgt_dict.index(word) for word in line.split()] for line in reference]
        for i in range(len(document)):
            first = max(0, i - 2)
            sources = document[first : i + 1]
            expected.append(naive_translation(task, models, sources, gold[first:i], **search))
    output = tiny.generate(
        binarised,
        window_checkpoint,
        *["--task", "sliding_window_translation", "--decoding", "sequential", "--gold-context"],
        *options,
    )
    check(output, tiny.rows_of(docs), expected, task.tgt_dict, nbest=search.get("nbest", 1))


@torch.no_grad()
@pytest.mark.parametrize(
    "system, options, search",
    [
        ("ensemble", ["--nbest", "3", "--lenpen", "2"], {"nbest": 3, "len_penalty": 2.0}),
        pytest.param(
            *("ensemble", ["--nbest", "2", "--unnormalized"], {"nbest": 2, "len_penalty": 0.0}),
            marks=LONG,
        ),
        pytest.param("ensemble", ["--beam", "1"], {"beam": 1}, marks=LONG),
        ("rfa", [], {}),
        pytest.param("rnnsearch", [], {}, marks=LONG),
    ],
)
def test_scores_with_the_context(
    binarised,
    window_checkpoint,
    other_window_checkpoint,
    rfa_window_checkpoint,
    rnnsearch_window_checkpoint,
    monkeypatch,
    system,
    options,
    search,
):
    """The score of context and sentence together is used for ranking and printed."""
    monkeypatch.setattr(ensembles, "TOKENS_AT_ONCE", 5)
    checkpoints = {
        "ensemble": [window_checkpoint, other_window_checkpoint],
        "rfa": [rfa_window_checkpoint],
        "rnnsearch": [rnnsearch_window_checkpoint],
    }[system]
    task, models = load(checkpoints)
    expected, alone = [], []
    for document in source_documents(task):
        translated = []
        for i in range(len(document)):
            first = max(0, i - 2)
            given = [task, models, document[first : i + 1], translated[first:i]]
            result = naive_translation(*given, with_context=True, **search)
            if search.get("len_penalty") == 2:
                alone.append(naive_translation(*given, **search))
            translated.append(result[0].tokens)
            expected.append(result)
    if alone:  # the order differs too
        assert [[h.tokens for h in x] for x in alone] != [[h.tokens for h in x] for x in expected]
    output = tiny.generate(
        binarised,
        ":".join(map(str, checkpoints)),
        *["--task", "sliding_window_translation", "--decoding", "sequential"],
        *["--normalize-with-context", *options],
    )
    nbest = search.get("nbest", 1)
    check(output, tiny.rows_of(tiny.documents((1, 5, 2, 7), 2)), expected, task.tgt_dict, nbest)


@torch.no_grad()
def test_scores_with_the_context_of_a_document(binarised, document_checkpoint):
    """Context is read sentence by sentence, and some rows end early."""
    task, models = load([document_checkpoint])
    expected = []
    for document in source_documents(task):
        sizes = np.array([len(s) for s in document])
        for first, end in task.search.spans(DocumentIndex.from_lengths([len(document)]), sizes):
            translated = []
            for _ in range(first, end):
                given = task, models, document[first:end], translated
                result = naive_translation(*given, nbest=2, with_context=True)
                translated.append(result[0].tokens)
                expected.append(result)
    output = tiny.generate(
        binarised,
        document_checkpoint,
        *["--task", "full_document_translation", "--decoding", "sequential-full-source"],
        *["--normalize-with-context", "--nbest", "2"],
    )
    check(output, tiny.rows_of(tiny.documents((1, 5, 2, 7), 2)), expected, task.tgt_dict, 2)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--decoding", "window"], "no meaning with --decoding window"),
        (["--score-reference"], "leave it out with --score-reference"),
    ],
)
def test_scores_with_the_context_are_refused(binarised, window_checkpoint, options, message):
    task = ["--task", "sliding_window_translation", "--normalize-with-context"]
    with pytest.raises(UserError, match=message):
        tiny.generate(binarised, window_checkpoint, *task, *options)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["window", "document"])
def test_references_as_context(binarised, request, kind):
    """Each sentence is decoded after the references of the previous ones."""
    checkpoint = request.getfixturevalue(f"{kind}_checkpoint")
    task, models = load([checkpoint])
    docs, expected = tiny.documents((1, 5, 2, 7), 2), []
    for document, reference in zip(source_documents(task), tiny.translate(docs)):
        gold = [[task.tgt_dict.index(word) for word in line.split()] for line in reference]
        index = DocumentIndex.from_lengths([len(document)])
        for first, end in task.search.spans(index, np.array([len(s) for s in document])):
            for i in range(end - 1 if kind == "window" else first, end):
                sources, context = document[first : i + 1], gold[first:i]
                expected.append(naive_translation(task, models, sources, context))
    name = {"window": "sliding_window", "document": "full_document"}[kind]
    output = tiny.generate(
        binarised,
        checkpoint,
        *["--task", f"{name}_translation", "--decoding", "sequential", "--gold-context"],
    )
    check(output, tiny.rows_of(docs), expected, task.tgt_dict)


def test_references_as_context_need_references(binarised, window_checkpoint, tmp_path):
    task = ["--task", "sliding_window_translation", "--gold-context"]
    with pytest.raises(UserError, match="--gold-context needs a decoding .*, not window"):
        tiny.generate(binarised, window_checkpoint, *task, "--decoding", "window")
    translator = DocumentTranslator.from_pretrained(str(window_checkpoint), gold_context=True)
    with pytest.raises(UserError, match="--gold-context needs references"):
        translator.translate([["w1 w2", "w3"]])


@torch.no_grad()
def test_the_future_changes_nothing(binarised, document_checkpoint):
    """Later sentences have no influence, except with sequential-full-source."""
    first = ["w1 w2 w3", "w4 w5"]
    documents = [[*first, "w6"], [*first, "w7 w8 w9 w10 w11 w1"]]
    for decoding, same in (("sequential", True), ("sequential-full-source", False)):
        translator = DocumentTranslator.from_pretrained(str(document_checkpoint), decoding=decoding)
        one, other = translator.translate(documents, max_len_b=12)
        assert (one[:2] == other[:2]) is same


def test_references_are_scored_without_the_future(binarised, document_checkpoint):
    """The scores of references equal the scores in the search."""
    task, models = load([document_checkpoint])
    options = ["--task", "full_document_translation", "--decoding", "sequential"]
    output = tiny.generate(binarised, document_checkpoint, *options, "--score-reference")
    scores = {int(k): float(v) for k, v in tiny.scores_of(output).items()}
    docs = tiny.documents((1, 5, 2, 7), 2)
    rows = iter(tiny.rows_of(docs))
    for document, reference in zip(source_documents(task), tiny.translate(docs)):
        gold = [[task.tgt_dict.index(word) for word in line.split()] for line in reference]
        index = DocumentIndex.from_lengths([len(document)])
        for first, end in task.search.spans(index, np.array([len(s) for s in document])):
            for i in range(first, end):
                want = naive_score(task, models[0], document[first : i + 1], gold[first : i + 1])
                assert scores[next(rows)] == pytest.approx(want / math.log(2), abs=2e-4)


def naive_score(task, model, sources, targets):
    """Mean log-probability of the last target sentence, its end symbol included."""
    eos, separator = task.tgt_dict.eos(), task.tgt_dict.index("<sep>")
    source = join_sentences(sources, separator)[None]
    context = [token for sentence in targets[:-1] for token in [*sentence, separator]]
    tokens = torch.tensor([eos, *context, *targets[-1], eos])
    encoder_out = model.encoder(source, src_lengths=torch.tensor([source.size(1)]))
    logits, _ = model.decoder(tokens[None, :-1], encoder_out=encoder_out)
    lprobs = logits[0].log_softmax(-1).gather(1, tokens[1:, None])[len(context) :]
    return float(lprobs.mean())
