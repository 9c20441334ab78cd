"""Document language model in the search, compared with loops that read everything again."""

import copy
import functools
import shutil

import numpy as np
import pytest
import tiny
import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
from fairseq.models.transformer_lm import TransformerLanguageModel
from long_tests import LONG
from naive_search import beam_search

from fairseq_docmt.data import DocumentIndex, join_sentences
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.generation.ensembles import ShallowFusion
from fairseq_docmt.generation.search import DocumentSearch
from fairseq_docmt.scoring.reranking.document_lm import DocumentLanguageModel

DOCS = tiny.documents((1, 5, 2, 7), 2)
#: documents that the loops translate too
COMPARED = DOCS[:3]
LIMIT, WEIGHT = 12, 0.7
WINDOW = ["--task", "sliding_window_translation", "--decoding", "sequential"]
DOCUMENT = ["--task", "full_document_translation", "--decoding"]
STREAM = ["--task", "sentence_stream_translation"]


@pytest.fixture(scope="module")
def data(binarised, tmp_path_factory):
    """The corpus with the dictionary of the language model: the same words, and one more.

    Their order is another one.
    """
    folder = tmp_path_factory.mktemp("fusion") / "bin"
    shutil.copytree(binarised, folder)
    lines = (binarised / "dict.tgt.txt").read_text().splitlines()
    (folder / "dict.txt").write_text("\n".join(["more 1", *reversed(lines)]) + "\n")
    return folder


@pytest.fixture(scope="module")
def lm_path(data, tmp_path_factory):
    """A language model whose probabilities depend on the previous sentences."""
    documents = tiny.translate(tiny.documents((4, 1, 6, 3), 5))
    made = tiny.document_lm(data / "dict.txt", tmp_path_factory.mktemp("lm"), documents)
    return str(tiny.with_noise(made, 0.3))


@pytest.fixture
def exact(monkeypatch):
    """Run models in float64, with a function that limits the positions of the language model."""
    load, positions = checkpoint_utils.load_model_ensemble, []

    def as_float64(*args, **kwargs):
        models, cfg = load(*args, **kwargs)
        for model in models:
            model.double()
            if isinstance(model, TransformerLanguageModel) and positions:
                model.decoder.max_target_positions = positions[-1]
        return models, cfg

    monkeypatch.setattr(checkpoint_utils, "load_model_ensemble", as_float64)
    for name in ("softmax", "log_softmax"):  # fairseq computes them in single precision
        function = getattr(torch, name)
        monkeypatch.setattr(utils, name, lambda x, dim, onnx_trace=False, f=function: f(x, dim))
    return positions.append


def decode(data, checkpoint, monkeypatch, *options):
    """Hypotheses of each line of the test set by ``fairseq-generate``."""
    found, stock = {}, DocumentSearch.decode

    def record(self, generator, models, units, *args):
        results = stock(self, generator, models, units, *args)
        lines = [line for unit in units for line in unit.line_ids]
        found.update(zip(lines, copy.deepcopy(results)))  # the command changes them for printing
        return results

    with monkeypatch.context() as patch:
        patch.setattr(DocumentSearch, "decode", record)
        tiny.generate(data, checkpoint, *options)
    return [found[row] for row in tiny.rows_of(DOCS)]


def load(checkpoint):
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    task = tasks.setup_task(state["cfg"].task)
    (model,), _ = checkpoint_utils.load_model_ensemble([str(checkpoint)], task=task)
    return task, model.eval()


class NaiveLanguageModel:
    """Log-probabilities of the next target word, from the whole document so far each time."""

    def __init__(self, path, dictionary, positions=50):
        (self.model,), _, task = checkpoint_utils.load_model_ensemble_and_task([path])
        self.model.double().eval()
        self.words, self.dictionary, self.positions = task.dictionary, dictionary, positions

    def __call__(self, before, tokens):
        """(V,) log-probabilities after sentences and tokens of the translation models."""
        before = list(before)
        while 1 + sum(len(s) + 1 for s in before) + len(tokens) > self.positions:
            del before[0]
        read = [self.words.eos()]
        for sentence in before:
            read += [*map(self._known, sentence), self.words.eos()]
        read += map(self._known, tokens)
        found = self.model(torch.tensor([read]))[0][0, -1].log_softmax(-1)
        lprobs = torch.full((len(self.dictionary),), -torch.inf, dtype=torch.double)
        for index, word in enumerate(self.dictionary.symbols):
            if word in self.words.indices:
                lprobs[index] = found[self.words.index(word)]
        return lprobs

    def _known(self, token):
        return self.words.index(self.dictionary[int(token)])


def sources_of(task):
    def encoded(sentence):
        return task.src_dict.encode_line(sentence, add_if_not_exist=False).long()

    return [[encoded(sentence) for sentence in document] for document in COMPARED]


def search(lm, before, words_after, end, never, beam, marks=(), limit=LIMIT):
    """Beam search with both models.

    Args:
        lm: language model.
        before: previous target sentences.
        words_after: function from the tokens of a hypothesis to log-probabilities of the next.
        end: symbol that ends the sentence.
        never: symbols that must not be written.
        beam: beam size, and number of hypotheses.
        marks: first tokens, which the language model does not read.
        limit: most tokens.

    Returns:
        The hypotheses, and the log-probabilities of the tokens of each.
    """

    @functools.lru_cache(maxsize=None)
    def fused(tokens):
        of_lm = lm(before, tokens)
        of_lm[end] = of_lm[lm.dictionary.eos()]
        return words_after([*marks, *tokens]) + WEIGHT * of_lm

    context = sum(float(words_after(marks[:n])[mark]) for n, mark in enumerate(marks)), len(marks)
    found = beam_search(
        lambda rows: torch.stack([fused(tuple(tokens)) for tokens in rows]),
        **{
            "beam": beam,
            "nbest": beam,
            "limit": min(limit, lm.positions - 1) - len(marks),
            "end": end,
        },
        **{"never": never, "context": context},
    )
    ended = [(*hypothesis.tokens, end) for hypothesis in found]
    return found, [[float(fused(t[:n])[t[n]]) for n in range(len(t))] for t in ended]


def assert_same(hypotheses, wanted, by_token, eos):
    assert len(hypotheses) == len(wanted)
    for hypothesis, (tokens, score), scores in zip(hypotheses, wanted, by_token):
        assert hypothesis["tokens"].tolist() == [*tokens, eos]
        assert hypothesis["positional_scores"].tolist() == pytest.approx(scores, abs=1e-9)
        assert float(hypothesis["score"]) == pytest.approx(score, abs=1e-6)


def assert_all_same(found, wanted, eos):
    """Compare the sentences of the documents that the loops translate."""
    assert len(wanted) == sum(map(len, COMPARED))
    for hypotheses, of_loop in zip(found, wanted):
        assert_same(hypotheses, *of_loop, eos)


def in_spans(task, model, lm, spans_of, decoding, beam, gold=False, factor=0):
    """Hypotheses with scores of all sentences; each is translated after those before in its span.

    Args:
        spans_of: function from a document to pairs of a span and its first sentence to translate.
        gold: the sentences before are references.
        factor: most tokens for each source token, 0 for a limit of all sentences.
    """
    words = task.tgt_dict
    eos, separator = words.eos(), words.index("<sep>")
    for document, references in zip(sources_of(task), tiny.translate(COMPARED)):
        translated = {}
        for first, end, start in spans_of(document):
            for place in range(start, end):
                before = [translated[i] for i in range(first, place)]
                shown = end if decoding == "sequential-full-source" else place + 1
                source = join_sentences(document[first:shown], separator)[None]
                encoder_out = model.encoder(source, src_lengths=torch.tensor([source.size(1)]))
                read = [token for sentence in before for token in [*sentence, separator]]

                def words_after(tokens, read=read, encoder_out=encoder_out):
                    given = torch.tensor([[eos, *read, *tokens]])
                    return model.decoder(given, encoder_out=encoder_out)[0][0, -1].log_softmax(-1)

                symbols = (separator, eos) if place + 1 < shown else (eos, separator)
                never = [words.pad(), symbols[1]]
                limit = factor * len(document[place]) or LIMIT
                found = search(lm, before, words_after, symbols[0], never, beam, limit=limit)
                reference = [words.index(word) for word in references[place].split()]
                translated[place] = reference if gold else found[0][0].tokens
                yield found


def windows(document):
    return [(max(0, i - 2), i + 1, i) for i in range(len(document))]


@torch.no_grad()
@pytest.mark.parametrize(
    "beam, gold, positions",
    [
        pytest.param(1, False, 50, marks=LONG),
        pytest.param(1, True, 50, marks=LONG),
        (4, True, 14),
        pytest.param(4, False, 14, marks=LONG),
    ],
)
def test_windows(exact, data, lm_path, window_checkpoint, monkeypatch, beam, gold, positions):
    """With few positions the earliest sentences are left out in the middle of a sentence.

    References as context differ in each row; translations by this model hardly do.  The limits
    differ too, so that some rows of a batch are done before others.
    """
    exact(positions)
    options = [*WINDOW, "--lm-path", lm_path, "--lm-weight", str(WEIGHT), "--beam", str(beam)]
    options += ["--nbest", str(beam), *(["--gold-context"] if gold else [])]
    options += ["--max-len-a", "2", "--max-len-b", "0"]
    found = decode(data, window_checkpoint, monkeypatch, *options)
    task, model = load(window_checkpoint)
    lm = NaiveLanguageModel(lm_path, task.tgt_dict, positions)
    wanted = list(in_spans(task, model, lm, windows, "sequential", beam, gold, 2))
    assert_all_same(found, wanted, task.tgt_dict.eos())
    alone = decode(data, window_checkpoint, monkeypatch, *options, "--batch-size", "1")
    for one, other in zip(found, alone):
        assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]
        for a, b in zip(one, other):
            torch.testing.assert_close(
                a["positional_scores"], b["positional_scores"], rtol=0, atol=1e-9
            )


@torch.no_grad()
@pytest.mark.parametrize(
    "decoding", ["sequential", pytest.param("sequential-full-source", marks=LONG)]
)
def test_documents(exact, data, lm_path, document_checkpoint, monkeypatch, decoding):
    """A part of a document begins without context."""
    options = ["--lm-path", lm_path, "--lm-weight", str(WEIGHT), "--beam", "4", "--nbest", "4"]
    found = decode(data, document_checkpoint, monkeypatch, *DOCUMENT, decoding, *options)
    task, model = load(document_checkpoint)
    lm = NaiveLanguageModel(lm_path, task.tgt_dict)

    def parts(document):
        sizes = np.array([len(sentence) for sentence in document])
        spans = task.search.spans(DocumentIndex.from_lengths([len(document)]), sizes)
        return [(first, end, first) for first, end in spans.tolist()]

    wanted = list(in_spans(task, model, lm, parts, decoding, 4))
    assert_all_same(found, wanted, task.tgt_dict.eos())


def in_streams(task, model, lm, beam, gold):
    """Hypotheses with scores of all sentences, after all before; documents are read again."""
    words = task.tgt_dict
    eos, pad, begin = words.eos(), words.pad(), words.index("<bod>")
    mark = [begin] * int(task.options["mark_document_start"])
    for document, references in zip(sources_of(task), tiny.translate(COMPARED)):
        if mark:
            document[0] = torch.cat([torch.tensor([task.src_dict.index("<bod>")]), document[0]])
        before = []
        for place, reference in enumerate(references):
            source = collate_tokens(document[: place + 1], pad, left_pad=True)
            starts = torch.tensor([True] + [False] * place)

            def words_after(tokens, source=source, starts=starts, before=tuple(before)):
                rows = [[*(mark if i == 0 else []), *text] for i, text in enumerate(before)]
                rows = [torch.tensor([eos, *row], dtype=torch.long) for row in [*rows, tokens]]
                previous, size = collate_tokens(rows, pad), len(rows[-1])
                lengths = source.ne(pad).sum(1)
                logits = model(source, lengths, previous, starts=starts, lanes=1)[0]
                return logits[-1, size - 1].log_softmax(-1)

            marks = mark if place == 0 else []
            found = search(lm, before, words_after, eos, [pad, words.index("<sep>")], beam, marks)
            yield found
            gold_tokens = [words.index(word) for word in reference.split()]
            before.append(gold_tokens if gold else found[0][0].tokens)


@torch.no_grad()
def test_rows_and_beams_come_and_go(exact, binarised, lm_path):
    """Hypotheses are reordered and rows end in any order, also while sentences are left out."""
    words = Dictionary.load(str(binarised / "dict.tgt.txt"))
    loop = NaiveLanguageModel(lm_path, words, 14)
    loop.model.decoder.max_target_positions = 14
    fusion = ShallowFusion(loop.model, words, set())
    lengths, marks = [(3, 4), (5,), (), (2, 2, 2, 2, 2), (12,)], [0, 2, 1, 0, 0]
    text = lambda size: torch.randint(words.nspecial, len(words), (size,))  # noqa: E731
    before = [[text(size) for size in sizes] for sizes in lengths]
    fusion.begin(before, marks)
    rows, beams = torch.arange(5).repeat_interleave(3), 3
    tokens = torch.full((15, 1), words.eos())
    for step in range(14):
        found = fusion.get_normalized_probs(fusion(tokens), log_probs=True)[:, -1]
        for row, own, lprobs in zip(rows.tolist(), tokens[:, 1:], found):
            if step < marks[row]:
                assert not lprobs.any()
            else:
                wanted = loop(before[row], own[marks[row] :])
                torch.testing.assert_close(lprobs, wanted, rtol=0, atol=1e-9)
        if step in (3, 5, 9):
            ended = rows[3 * (step % 2)]
            left = rows.ne(ended).nonzero().view(-1)
        else:
            left = torch.arange(len(rows))
        chosen = torch.randint(beams, left.shape) + left.div(beams, rounding_mode="floor") * beams
        fusion.reorder(chosen)
        rows, tokens = rows[chosen], torch.cat([tokens[chosen], text(len(chosen))[:, None]], dim=1)


@pytest.fixture
def marked_stream_checkpoint(barely_trained):
    training = [*STREAM, "--mark-document-start", "--batch-size", "2", "--chunk-sentences", "3"]
    return barely_trained(*training, model=tiny.memory())


@pytest.fixture
def stream_checkpoint(request):
    return request.getfixturevalue(f"{request.param}_stream_checkpoint")


@torch.no_grad()
@pytest.mark.parametrize(
    "stream_checkpoint, beam, gold, positions",
    [
        pytest.param("memory", 1, False, 50, marks=LONG),
        pytest.param("memory", 4, False, 20, marks=LONG),
        pytest.param("marked", 4, False, 14, marks=LONG),
        pytest.param("cache", 4, True, 50, marks=LONG),
    ],
    indirect=["stream_checkpoint"],
)
def test_streams(exact, data, lm_path, stream_checkpoint, monkeypatch, beam, gold, positions):
    exact(positions)
    options = [*STREAM, "--lm-path", lm_path, "--lm-weight", str(WEIGHT), "--beam", str(beam)]
    options += ["--nbest", str(beam), *(["--gold-context"] if gold else [])]
    found = decode(data, stream_checkpoint, monkeypatch, *options)
    task, model = load(stream_checkpoint)
    lm = NaiveLanguageModel(lm_path, task.tgt_dict, positions)
    wanted = list(in_streams(task, model, lm, beam, gold))
    assert_all_same(found, wanted, task.tgt_dict.eos())


def test_sentences_have_the_score_of_the_language_model(
    exact, data, lm_path, window_checkpoint, monkeypatch
):
    """What the weight adds is the score that reranking uses, end symbol included once."""
    lm = DocumentLanguageModel.load(lm_path, data=str(data))
    lm.model.double()
    task, _ = load(window_checkpoint)
    options = [*WINDOW, "--gold-context", "--prefix-size", "99", "--lm-path", lm_path]
    sums = []
    for weight in ("0", "1"):
        found = decode(data, window_checkpoint, monkeypatch, *options, "--lm-weight", weight)
        sums.append([float(best["positional_scores"].sum()) for best, *_ in found])
    texts = tiny.translate(DOCS)
    pairs = [(tuple(d[max(0, i - 2) : i]), d[i]) for d in texts for i in range(len(d))]
    written = [task.tgt_dict.string(best["tokens"]) for best, *_ in found]
    assert written == [sentence for _, sentence in pairs]
    added = [with_lm - without for without, with_lm in zip(*sums)]
    assert added == pytest.approx(lm.score(pairs), abs=1e-9)


@pytest.mark.parametrize("kind", ["window", "memory_stream"])
def test_a_weight_of_0_changes_nothing(data, lm_path, request, kind):
    checkpoint = request.getfixturevalue(f"{kind}_checkpoint")
    task = WINDOW if kind == "window" else STREAM
    plain = tiny.generate(data, checkpoint, *task)
    found = {
        weight: tiny.generate(data, checkpoint, *task, "--lm-path", lm_path, "--lm-weight", weight)
        for weight in ("0", "0.7")
    }
    assert tiny.scores_of(found["0"]) == tiny.scores_of(plain)
    assert tiny.lines_of(found["0"]) == tiny.lines_of(plain) != tiny.lines_of(found["0.7"])


def test_no_sentence_is_longer_than_the_language_model_reads(
    exact, data, lm_path, window_checkpoint, monkeypatch
):
    exact(4)
    options = [*WINDOW, "--lm-path", lm_path, "--lm-weight", "0.1"]
    found = decode(data, window_checkpoint, monkeypatch, *options)
    assert max(len(best["tokens"]) for best, *_ in found) == 4


# ---- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        (
            ["--decoding", "window"],
            "--lm-path is for sentences translated one after the other, not for --decoding window; "
            "use --decoding sequential",
        ),
        (
            ["--score-reference"],
            "--score-reference gives scores of the translation model alone; leave it out with "
            "--lm-path",
        ),
        (
            ["--normalize-with-context"],
            "--normalize-with-context gives scores of the translation model alone; leave it out "
            "with --lm-path",
        ),
        (["--lm-weight", "-0.5"], "--lm-weight must not be negative, got -0.5"),
    ],
)
def test_options_that_do_not_go_together(data, lm_path, window_checkpoint, options, message):
    with pytest.raises(UserError) as refused:
        tiny.generate(data, window_checkpoint, *WINDOW, "--lm-path", lm_path, *options)
    assert str(refused.value) == message


def without(lines):
    return None


def shorter(lines):
    return lines[1:]


def another_word(lines):
    return [lines[0], "another 1", *lines[2:]]


@pytest.mark.parametrize(
    "change, message",
    [
        (without, "dict.txt not found, which --lm-path needs; copy dict.txt of the language"),
        (shorter, "dict.txt makes .* symbols, but language model .* was trained with .*; copy"),
        (another_word, "the language model of --lm-path lacks 1 words of the target dictionary"),
    ],
)
def test_other_dictionaries(data, lm_path, window_checkpoint, tmp_path, change, message):
    folder = shutil.copytree(data, tmp_path / "bin")
    lines = change((data / "dict.txt").read_text().splitlines())
    (folder / "dict.txt").unlink()
    if lines is not None:
        (folder / "dict.txt").write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=message):
        tiny.generate(
            folder, window_checkpoint, *WINDOW, "--lm-path", lm_path, "--lm-weight", "0.5"
        )


def test_only_transformers():
    recurrent = tiny.as_built(*tiny.RECURRENT_MODEL)
    with pytest.raises(UserError, match="transformer_lm.; this one has a LSTMDecoder"):
        ShallowFusion(recurrent, tiny.dictionary(), set())


def test_only_fairseq_generate_loads_the_language_model(lm_path, window_checkpoint):
    translator = DocumentTranslator.from_pretrained(str(window_checkpoint))
    with pytest.raises(UserError, match="only fairseq-generate loads --lm-path"):
        translator.translate([["w1"]], lm_path=lm_path, lm_weight=0.5)


def test_a_language_model_that_has_diverged(data, lm_path, window_checkpoint, tmp_path):
    path = tiny.diverged(lm_path, tmp_path)
    with pytest.raises(UserError, match="diverged.pt has parameters that are NaN or infinite"):
        tiny.generate(data, window_checkpoint, *WINDOW, "--lm-path", path, "--lm-weight", "1")


def test_a_language_model_has_no_part_in_iterative_decoding(data, lm_path, memnet_rows_checkpoint):
    rows = ["--task", "document_rows_translation", "--lm-path", lm_path]
    with pytest.raises(UserError, match="not for --decoding iterative; leave it out"):
        tiny.generate(data, memnet_rows_checkpoint, *rows)
