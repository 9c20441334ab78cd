"""Sequential decoding against its definition: stock search, one row at a time, nothing cached."""

import math

import numpy as np
import pytest
import tiny
import torch
from fairseq import checkpoint_utils, tasks
from fairseq.search import BeamSearch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator

from fairseq_docmt.data import DocumentIndex, join_sentences
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator

LIMIT = 12


class NaiveEnsemble(EnsembleModel):
    """Decodes every step anew from the whole prefix; ends at ``<sep>`` or ``</s>``."""

    def __init__(self, models, prefix, eos, separator):
        super().__init__(models)
        self.prefix, self.eos, self.separator = prefix, eos, separator

    def forward_decoder(self, tokens, encoder_outs, incremental_states, temperature=1.0):
        whole = torch.cat([self.prefix.expand(len(tokens), -1), tokens[:, 1:]], dim=1)
        total = None
        for model, encoder_out in zip(self.models, encoder_outs):
            out = model.decoder(whole, encoder_out=encoder_out)
            probs = model.get_normalized_probs(out, log_probs=False)[:, -1]
            total = probs if total is None else total + probs
        total = total / len(self.models)
        total[:, self.eos] += total[:, self.separator]
        total[:, self.separator] = 0
        return total.log(), None


def load(checkpoints):
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoints[0]))
    task = tasks.setup_task(state["cfg"].task)
    models, _ = checkpoint_utils.load_model_ensemble([str(c) for c in checkpoints], task=task)
    for model in models:
        model.eval()
    return task, models


def naive_translation(task, models, sources, context):
    """(tokens, score) of the sentence after ``context`` (token lists) in a span of sources."""
    eos, separator = task.tgt_dict.eos(), task.tgt_dict.index("<sep>")
    prefix = [eos]
    for sentence in context:
        prefix += sentence + [separator]
    source = join_sentences(sources, separator)[None]
    generator = SequenceGenerator(
        NaiveEnsemble(models, torch.tensor([prefix]), eos, separator),
        task.tgt_dict,
        beam_size=3,
        max_len_b=LIMIT,
        search_strategy=BeamSearch(task.tgt_dict),
    )
    sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([source.size(1)])}}
    best = generator.generate(models, sample)[0][0]
    return best["tokens"][:-1].tolist(), float(best["score"]) / math.log(2)


def source_documents(task):
    docs = tiny.documents((1, 5, 2, 7), 2)
    return [[task.src_dict.encode_line(s, add_if_not_exist=False).long() for s in d] for d in docs]


def check(output, rows, expected, dictionary):
    hypotheses = tiny.lines_of(output)
    scores = {int(k): float(v) for k, v in tiny.scores_of(output).items()}
    for row, (tokens, score) in zip(rows, expected):
        assert hypotheses[row] == dictionary.string(torch.tensor(tokens))
        assert scores[row] == pytest.approx(score, abs=2e-4)


@torch.no_grad()
@pytest.mark.parametrize("system", ["transformer", "ensemble", "rfa", "rnnsearch"])
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
    task, models = load(checkpoints)
    expected = []
    for document in source_documents(task):
        translated = []
        for i in range(len(document)):
            first = max(0, i - 2)
            result = naive_translation(task, models, document[first : i + 1], translated[first:i])
            translated.append(result[0])
            expected.append(result)
    output = tiny.generate(
        binarised,
        ":".join(map(str, checkpoints)),
        *["--task", "sliding_window_translation", "--decoding", "sequential"],
    )
    check(output, tiny.rows_of(tiny.documents((1, 5, 2, 7), 2)), expected, task.tgt_dict)


@pytest.fixture(params=["", "rfa_", "window_attention_", "lst_"])
def checkpoint(request):
    """Of full documents, of one architecture after the other."""
    return request.getfixturevalue(f"{request.param}document_checkpoint")


@torch.no_grad()
def test_full_documents(binarised, checkpoint):
    task, models = load([checkpoint])
    expected = []
    for document in source_documents(task):
        sizes = np.array([len(s) for s in document])
        for first, end in task.decoding_spans(DocumentIndex.from_lengths([len(document)]), sizes):
            translated = []
            for _ in range(first, end):
                result = naive_translation(task, models, document[first:end], translated)
                translated.append(result[0])
                expected.append(result)
    output = tiny.generate(
        binarised,
        checkpoint,
        *["--task", "full_document_translation", "--decoding", "sequential"],
    )
    check(output, tiny.rows_of(tiny.documents((1, 5, 2, 7), 2)), expected, task.tgt_dict)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["window", "document"])
def test_references_as_context(binarised, request, kind):
    """Every sentence after the true translations of those before it."""
    checkpoint = request.getfixturevalue(f"{kind}_checkpoint")
    task, models = load([checkpoint])
    docs, expected = tiny.documents((1, 5, 2, 7), 2), []
    for document, reference in zip(source_documents(task), tiny.translate(docs)):
        gold = [[task.tgt_dict.index(word) for word in line.split()] for line in reference]
        index = DocumentIndex.from_lengths([len(document)])
        for first, end in task.decoding_spans(index, np.array([len(s) for s in document])):
            for i in range(end - 1 if kind == "window" else first, end):
                context = gold[first:i]
                expected.append(naive_translation(task, models, document[first:end], context))
    name = {"window": "sliding_window", "document": "full_document"}[kind]
    output = tiny.generate(
        binarised,
        checkpoint,
        *["--task", f"{name}_translation", "--decoding", "sequential", "--gold-context"],
    )
    check(output, tiny.rows_of(docs), expected, task.tgt_dict)


def test_references_as_context_need_references(binarised, window_checkpoint, tmp_path):
    task = ["--task", "sliding_window_translation", "--gold-context"]
    with pytest.raises(UserError, match="--gold-context has no meaning with --decoding window"):
        tiny.generate(binarised, window_checkpoint, *task, "--decoding", "window")
    translator = DocumentTranslator.from_pretrained(str(window_checkpoint), gold_context=True)
    with pytest.raises(UserError, match="--gold-context needs references"):
        translator.translate([["w1 w2", "w3"]])
