"""Stream decoding compared with reading the document from its beginning at every step."""

import os

import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq.data.data_utils import collate_tokens
from long_tests import LONG, long_but_for

from fairseq_docmt.modules.rnn.cache import CacheDecoder

LIMIT = 12
STREAM = ["--task", "sentence_stream_translation"]


def greedy(task, model, sources, translated):
    """Return the translation of the next sentence, given the previous translations."""
    dictionary = task.tgt_dict
    eos, pad = dictionary.eos(), dictionary.pad()
    mark = [dictionary.index("<bod>")] * int(task.options["mark_document_start"])
    source = collate_tokens(sources[: len(translated) + 1], pad, left_pad=True)
    starts = torch.tensor([True] + [False] * len(translated))
    tokens = []
    while True:
        rows = [
            torch.tensor([eos, *(mark if number == 0 else []), *sentence])
            for number, sentence in enumerate([*translated, tokens])
        ]
        previous = collate_tokens(rows, pad)
        output = model(source, source.ne(pad).sum(1), previous, starts=starts, lanes=1)
        scores = model.get_normalized_probs(output, log_probs=True)[-1, len(rows[-1]) - 1]
        scores[[pad, dictionary.index("<sep>"), dictionary.index("<bod>")]] = -float("inf")
        if not tokens:
            scores[eos] = -float("inf")
        best = int(scores.argmax())
        # The document symbol counts as an output token.
        if best == eos or len(tokens) + len(mark) * (not translated) == LIMIT:
            return tokens
        tokens.append(best)


FAST = ["memory_stream_checkpoint", "cache_stream_checkpoint", "marked"]
CHECKPOINTS = [*FAST, "context_stream_checkpoint", "previous_target_stream_checkpoint"]


@pytest.fixture(params=long_but_for(FAST, CHECKPOINTS))
def checkpoint(request, barely_trained):
    if request.param != "marked":
        return request.getfixturevalue(request.param)
    arguments = [*STREAM, "--mark-document-start", "--batch-size", "2", "--chunk-sentences", "3"]
    return barely_trained(*arguments, model=tiny.memory())


@torch.no_grad()
@pytest.mark.parametrize("gold", long_but_for([False], [False, True]))
def test_greedy_search(binarised, checkpoint, gold):
    """After the model's translations, or after references with ``--gold-context``."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    model.eval()
    expected, docs = [], tiny.documents((1, 5, 2, 7), 2)
    for document, reference in zip(docs, tiny.translate(docs)):
        gold_tokens = [[task.tgt_dict.index(w) for w in line.split()] for line in reference]
        sources = [task.src_dict.encode_line(s, add_if_not_exist=False).long() for s in document]
        if task.options["mark_document_start"]:
            sources[0] = torch.cat([torch.tensor([task.src_dict.index("<bod>")]), sources[0]])
        translated = []
        for number in range(len(document)):
            before = gold_tokens[:number] if gold else translated
            translated.append(greedy(task, model, sources, before))
        expected += [task.tgt_dict.string(torch.tensor(tokens)) for tokens in translated]
    options = ["--gold-context"] if gold else []
    output = tiny.generate(binarised, checkpoint, *STREAM, "--beam", "1", *options)
    found = tiny.lines_of(output)
    assert [found[row] for row in tiny.rows_of(docs)] == expected
    assert len(set(expected)) > 2


@pytest.mark.parametrize(
    "options, seeds",
    [
        pytest.param((), "1", marks=LONG),
        pytest.param((), "12", marks=LONG),
        pytest.param(("--decoder-layers", "2"), "1", marks=LONG),
        (("--decoder-layers", "2"), "12"),
    ],
)
def test_hypotheses_of_the_search_are_not_read_again(
    binarised, barely_trained, monkeypatch, options, seeds
):
    """The cache after a beam search equals the cache after forced decoding of its hypotheses."""
    arguments = [*STREAM, "--batch-size", "2", "--chunk-sentences", "3"]
    checkpoint = os.pathsep.join(
        str(barely_trained(*arguments, "--seed", seed, model=tiny.cache(*options)))
        for seed in seeds
    )
    next_doc_state, read_again = CacheDecoder.next_doc_state, CacheDecoder._without_cache
    calls = []

    def compared(decoder, tokens, encoder_out):
        found = next_doc_state(decoder, tokens, encoder_out)
        calls.append("of the search")
        del encoder_out["remembered"]["trace"]
        torch.testing.assert_close(found, next_doc_state(decoder, tokens, encoder_out))
        return found

    def recorded(*args):
        calls.append("read again")
        return read_again(*args)

    monkeypatch.setattr(CacheDecoder, "next_doc_state", compared)
    monkeypatch.setattr(CacheDecoder, "_without_cache", recorded)
    tiny.generate(binarised, checkpoint, *STREAM)
    assert len(calls) > 6 and calls == ["of the search", "read again"] * (len(calls) // 2)
