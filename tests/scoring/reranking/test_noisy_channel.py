"""Reranking with a document language model and a channel model, against plain loops.

Covers scoring/reranking/document_lm.py, scoring/reranking/document_beam.py.
"""

import functools
import itertools
import math
import random
import shutil
from argparse import Namespace

import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq_cli import eval_lm

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.reranking import document_beam, noisy_channel, rerank
from fairseq_docmt.scoring.reranking.candidates import read_nbest
from fairseq_docmt.scoring.reranking.document_lm import DocumentLanguageModel

DOCUMENTS = tiny.translate(tiny.documents((4, 1, 6, 3), 5))


@pytest.fixture(scope="module")
def folder(binarised, tmp_path_factory):
    """A trained language model of documents, in ``lm``, and its data, in ``bin``."""
    made = tmp_path_factory.mktemp("lm")
    tiny.document_lm(binarised / "dict.tgt.txt", made, DOCUMENTS)
    return made


@pytest.fixture(scope="module")
def path(folder):
    return str(folder / "lm" / "checkpoint_last.pt")


@pytest.fixture
def lm(path):
    return DocumentLanguageModel.load(path)


@pytest.fixture(scope="module")
def back(binarised, tmp_path_factory):
    """A model from target to source."""
    options = [
        "--task",
        "sliding_window_translation",
        "--window-size",
        "1",
        "-s",
        "tgt",
        "-t",
        "src",
    ]
    return str(tiny.train(binarised, tmp_path_factory.mktemp("back"), *options, "--lr", "0.02"))


def by_loop(lm, sentences, context=()):
    """Log-probability of sentences after others, token by token, each prefix alone, in float64."""
    model, words = lm.model.double(), lm.dictionary
    read, total = [words.eos()], 0.0
    for place, sentence in enumerate([*context, *sentences]):
        for token in [*map(words.index, sentence.split()), words.eos()]:
            logits = model(torch.tensor([read]))[0][0, -1]
            if place >= len(context):
                total += float(torch.log_softmax(logits, dim=0)[token])
            read.append(token)
    lm.model.float()
    return total


@functools.lru_cache(maxsize=None)
def loaded(path):
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([path])
    return model.double().eval(), task


@functools.lru_cache(maxsize=None)
def channel_by_loop(path, source, translation):
    """Log-probability of a source given its translation, token by token."""
    model, task = loaded(path)
    eos = task.source_dictionary.eos()
    given = [*map(task.source_dictionary.index, translation.split()), eos]
    read, total = [eos], 0.0
    for token in [*map(task.target_dictionary.index, source.split()), eos]:
        inputs = torch.tensor([given]), torch.tensor([len(given)]), torch.tensor([read])
        total += float(torch.log_softmax(model(*inputs)[0][0, -1], dim=0)[token])
        read.append(token)
    return total


# ---- language model ------------------------------------------------------------------------------


def batches_of(lm, pairs):
    """Return the rows of each batch that the language model computes."""
    computed = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm, "_sums", lambda rows: computed.append(rows) or [0.0] * len(rows))
        lm.score(pairs)
    return computed


def test_sentences_after_their_context_as_by_a_loop(lm, path):
    pairs = [
        (tuple(document[:place]), sentence)
        for document in DOCUMENTS[:2]
        for place, sentence in enumerate(document)
    ]
    pairs += [((), DOCUMENTS[0][1]), ((DOCUMENTS[2][0],), DOCUMENTS[0][1]), pairs[0]]
    wanted = [by_loop(lm, [sentence], before) for before, sentence in pairs]
    for most in (25, 8192):  # many batches, and one of all rows
        fresh = DocumentLanguageModel.load(path, max_tokens=most)
        assert fresh.score(pairs[::-1]) == pytest.approx(wanted[::-1], abs=1e-4)
        computed = batches_of(DocumentLanguageModel.load(path, max_tokens=most), pairs)
        sizes = [[len(row.tokens) for row in rows] for rows in computed]
        assert all(len(rows) == 1 or len(rows) * max(rows) <= most for rows in sizes)
        assert 0 < len(sizes) < len(pairs) and (len(sizes) == 1) == (most == 8192)
    assert len({round(value, 3) for value in lm.score(pairs[-4:-1])}) == 3


def test_documents_as_by_fairseq_eval_lm(lm, folder, path):
    """The sum over all sentences is that of fairseq over the whole text."""
    options = ["--sample-break-mode", "complete_doc", "--gen-subset", "test", "--cpu"]
    losses = []
    evaluate = eval_lm.eval_lm

    def record(*args, **kwargs):
        losses.append(float(evaluate(*args, **kwargs)["loss"]))
        return {"loss": losses[-1], "perplexity": 0.0}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eval_lm, "eval_lm", record)
        tiny.run_main(eval_lm.cli_main, folder / "bin", "--path", path, *options)
    total = sum(
        sum(lm.score([(tuple(document[:i]), s) for i, s in enumerate(document)]))
        for document in DOCUMENTS
    )
    tokens = sum(len(s.split()) + 1 for document in DOCUMENTS for s in document)
    assert -total / tokens / math.log(2) == pytest.approx(losses[0], abs=1e-5)


def test_training_that_has_read_several_folders(folder, path, lm, tmp_path):
    """The dictionary is that of the first."""
    state = torch.load(path, map_location="cpu", weights_only=False)
    state["cfg"]["task"]["data"] = f"{folder / 'bin'}:{tmp_path}"
    torch.save(state, tmp_path / "lm.pt")
    pair = ((), DOCUMENTS[0][0])
    assert DocumentLanguageModel.load(str(tmp_path / "lm.pt")).score([pair]) == lm.score([pair])


def test_the_earliest_context_is_left_out(path):
    lm = DocumentLanguageModel.load(path)
    *before, sentence = [sentence for document in DOCUMENTS for sentence in document]
    left, kept = 50 - len(sentence.split()) - 1, []
    for earlier in reversed(before):
        left -= len(earlier.split()) + 1
        if left < 0:
            break
        kept.insert(0, earlier)
    assert 5 < len(kept) < len(before)
    wanted = by_loop(lm, [sentence], kept)
    assert lm.score([(tuple(before), sentence)]) == pytest.approx([wanted], abs=1e-4)
    for context in (0, 1):
        short = DocumentLanguageModel.load(path, context=context)
        wanted = by_loop(lm, [sentence], before[len(before) - context :])
        assert short.score([(tuple(before), sentence)]) == pytest.approx([wanted], abs=1e-4)
    earlier = " ".join(["v1"] * (50 - len(sentence.split()) - 2))  # both have an end symbol
    wanted = by_loop(lm, [sentence], [earlier])  # all positions are filled
    assert lm.score([(("v2", earlier), sentence)]) == pytest.approx([wanted], abs=1e-4)
    with pytest.raises(UserError, match="a candidate has 61 tokens, but the language model has"):
        lm.score([((), " ".join(["v1"] * 60))])


def test_text_is_brought_into_the_form_of_the_model(path, lm):
    raw = DocumentLanguageModel.load(path, encode=lambda text: text.replace("_", " "))
    assert raw.score([(("v1_v2",), "v3_v4")]) == lm.score([(("v1 v2",), "v3 v4")])
    assert lm.unknown(["v1 x", "v2"]) == 1 / 5 and raw.unknown(["v1_v2"]) == 0


# ---- search --------------------------------------------------------------------------------------


def made_up(seed):
    """Candidates of five sentences, their scores, and a language model with random values."""
    draw = random.Random(seed)
    rows = [[f"{row}{number}" for number in range(3)] for row in range(5)]
    rows[2] = rows[2][:1]
    scores = [[draw.gauss(0, 1) for _ in texts] for texts in rows]
    known = {}

    def language_model(pairs):
        return [known.setdefault(pair, draw.gauss(0, 2)) for pair in pairs]

    return rows, scores, language_model


def total_of(rows, scores, language_model, weight, choice):
    texts = [texts[number] for texts, number in zip(rows, choice)]
    return sum(
        scores[i][number] + weight * language_model([(tuple(texts[:i]), texts[i])])[0]
        for i, number in enumerate(choice)
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_finds_the_best_document(seed):
    given = made_up(seed)
    every = list(itertools.product(*(range(len(texts)) for texts in given[0])))
    best = max(every, key=lambda choice: total_of(*given, 0.7, choice))
    assert document_beam.search(*given, 0.7, beam=100) == list(best)


def beam_by_loop(rows, scores, language_model, weight, beam):
    kept = [()]
    for place in range(len(rows)):
        longer = [(*old, number) for old in kept for number in range(len(rows[place]))]
        longer.sort(key=lambda choice: -total_of(rows, scores, language_model, weight, choice))
        kept = longer[:beam]
    return list(kept[0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("beam", [1, 2, 3])
def test_a_beam_as_by_a_loop(seed, beam):
    given = made_up(seed)
    assert document_beam.search(*given, -0.4, beam) == beam_by_loop(*given, -0.4, beam)


def test_the_first_of_equal_documents_wins():
    rows = [["a", "b"], ["c", "d"]]
    assert document_beam.search(rows, [[0, 0], [0, 0]], lambda pairs: [0.0] * len(pairs), 1, 2) == [
        0,
        0,
    ]


# ---- command -------------------------------------------------------------------------------------

SOURCES = tiny.documents((2, 2), 8)


@pytest.fixture
def files(write):
    """n-best lists of two documents, with P- lines, and source and reference."""
    draw, lines, rows = random.Random(3), [], []
    for number, sentence in zip(tiny.rows_of(SOURCES), itertools.chain(*SOURCES)):
        words = sentence.replace("w", "v").split()
        texts = [" ".join(draw.sample(words, len(words))) for _ in range(2)] + [" ".join(words[1:])]
        found = []
        for text in texts:
            scores = [draw.uniform(-3, 0) for _ in range(len(text.split()) + 1)]
            lines += [f"H-{number}\t{sum(scores) / len(scores)}\t{text}"]
            lines += [f"P-{number}\t{' '.join(f'{score:.4f}' for score in scores)}"]
            found.append((text, sum(float(f"{score:.4f}") for score in scores) * math.log(2)))
        rows.append(found)
    nbest = write("nbest", "\n".join(lines) + "\n")
    return nbest, write("source", SOURCES), write("ref", tiny.translate(SOURCES)), rows


KNOWN = {}


def documents_by_loop(lm, *texts):
    if texts not in KNOWN:
        KNOWN[texts] = by_loop(lm, texts)
    return KNOWN[texts]


def chosen_by_loop(rows, lm, back, weights):
    """The best documents of all, by plain loops over all choices."""
    sources, found = itertools.chain(*SOURCES), []
    rows = [
        [
            (text, p, channel_by_loop(back, source, text), len(text.split()))
            for text, p in candidates
        ]
        for source, candidates in zip(sources, rows)
    ]
    for document in (rows[:2], rows[2:]):
        best, wanted = -math.inf, None
        for choice in itertools.product(*document):
            texts = [candidate[0] for candidate in choice]
            score = weights["language-model"] * documents_by_loop(lm, *texts)
            for _, proposal, channel, length in choice:
                score += weights["proposal"] * proposal + weights["channel"] * channel
                score += weights["length"] * length
            if score > best:
                best, wanted = score, texts
        found.append(wanted)
    return found


def test_scores_that_do_not_depend_on_other_sentences(files, back):
    nbest, source, _, rows = files
    candidates = read_nbest(nbest, source)
    for found, wanted in zip(candidates.log_probabilities, rows):
        assert found == pytest.approx([p for _, p in wanted], abs=1e-9)
    options = {"channel": back, "language_model": None, "language_model_context": None}
    args = Namespace(**options, language_model_data="", text_form=None)
    models = noisy_channel.from_arguments(args, ["channel"], candidates)
    table = rerank.scores_of("channel", candidates, [], None, models)
    for found, own, texts in zip(table, candidates.source, candidates.texts):
        wanted = [channel_by_loop(back, own, text) for text in texts]
        assert found == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    "weights",
    [
        {"proposal": 1, "language-model": 0.7, "channel": 0.4, "length": 0.2},
        {"proposal": 0.1, "language-model": 2, "channel": 1, "length": -0.3},
    ],
)
def test_the_command_as_by_loops(scoring, files, lm, path, back, tmp_path, weights):
    nbest, source, _, rows = files
    features = [word for name in weights for word in ("--score", f"{name}:{weights[name]}")]
    models = ["--language-model", path, "--channel", back, "--beam", "27"]
    out = tmp_path / "out"
    scoring("rerank", nbest, "--source", source, "--out", str(out), *features, *models)
    wanted = chosen_by_loop(rows, lm, back, weights)
    assert out.read_text() == tiny.text_of(wanted)


def test_weights_that_make_no_difference(scoring, files, tmp_path):
    nbest, source, reference, _ = files
    command = ["rerank", nbest, "--source", source, "--out", str(tmp_path / "out")]
    command += ["--reference", reference, "--score"]
    printed = scoring(*command, "length:1,2,5")
    assert "3 of 3 combinations of weights have this s-BLEU; the first is taken" in printed
    printed = scoring(*command, "length:1,-1")
    assert "have this s-BLEU" not in printed


def test_other_documents_are_not_context(scoring, files, path, tmp_path):
    nbest, source, _, rows = files
    read = []
    score = DocumentLanguageModel.score

    def record(self, pairs):
        read.extend(pairs)
        return score(self, pairs)

    options = ["--score", "language-model", "--language-model", path, "--beam", "2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DocumentLanguageModel, "score", record)
        scoring("rerank", nbest, "--source", source, "--out", str(tmp_path / "o"), *options)
    texts = [{text for text, _ in candidates} for candidates in rows]
    assert read
    for before, sentence in read:
        (own,) = (i for i in (len(before), 2 + len(before)) if i < 4 and sentence in texts[i])
        start = 0 if own < 2 else 2
        assert all(earlier in texts[start + i] for i, earlier in enumerate(before))


def test_weights_are_chosen_by_bleu(scoring, files, path, tmp_path):
    nbest, source, reference, _ = files
    out, options = str(tmp_path / "out"), ["--language-model", path]
    features = ["--score", "proposal", "--score", "length:0,2", "--score", "language-model:0,1,3"]
    command = ["rerank", nbest, "--source", source, "--out", out, *options, *features]
    printed = scoring(*command, "--reference", reference).splitlines()
    tried = [line for line in printed if line.startswith("s-BLEU")]
    assert len(tried) == 6 and tried[4].endswith("proposal:1 length:2 language-model:1")
    values = [float(line.split()[1]) for line in tried]
    best = tried[values.index(max(values))].split(maxsplit=2)[2]
    assert printed[6].startswith(f"best: {best}  (") and "version" in printed[6]
    text = (tmp_path / "out").read_text()
    again = [word for weight in best.split() for word in ("--score", weight)]
    lm = [] if best.endswith("language-model:0") else options
    scoring("rerank", nbest, "--source", source, "--out", out, *(lm or options), *again)
    assert (tmp_path / "out").read_text() == text and len(set(values)) > 1


@pytest.mark.parametrize(
    "options, message",
    [
        (["--score", "channel"], "--score channel and --channel FILE need each other; give both"),
        (["--language-model", "LM"], "--score language-model and --language-model FILE need"),
        (
            ["--score", "language-model", "--language-model", "BACK"],
            "was trained with --task sliding",
        ),
        (["--score", "language-model", "--language-model", "none"], "checkpoint none not found"),
        (["--score", "length:1,2"], "--score length has several weights, of which --reference"),
        (["--score", "length", "--score", "length"], "a --score is given twice"),
        (["--beam", "0"], "--beam must be at least 1, got 0"),
        (
            "--score language-model --language-model LM --language-model-data none".split(),
            "none/dict.txt not found; give the folder that the language model was trained on",
        ),
        (
            "--score language-model --language-model LM --language-model-context -1".split(),
            "--language-model-context must not be negative",
        ),
        (
            "--score language-model --language-model LM --text-form none en".split(),
            "--text-form: none does not describe text of language en",
        ),
        (
            "--score channel --channel LM --text-form none en".split(),
            "--text-form: none does not describe text of language en",
        ),
        (
            "--score language-model --language-model LM --text-form BIN src".split(),
            "--text-form: the language model has the dictionary of tgt in .*, not of src; give .* ",
        ),
        (
            "--score language-model --language-model LM --language-model-data SHORT".split(),
            "dict.txt makes 5 symbols, but language model .* was trained with .*; give the folder",
        ),
        (
            "--score language-model --language-model LM --language-model-data DAMAGED".split(),
            "damaged/dict.txt is damaged .*; give the folder that the language model was trained",
        ),
        (["--text-form", "none", "en"], "--text-form is for --language-model and --channel; give"),
        (["--language-model-data", "none"], "--language-model-data is for --language-model; give"),
        (["--language-model-context", "0"], "--language-model-context is for --language-model"),
        (["--tokenize", "zh"], "--tokenize is for the choice among several weights of a --score"),
    ],
)
def test_mistakes(scoring, files, path, back, binarised, tmp_path, options, message):
    named = {"LM": path, "BACK": back, "BIN": str(tmp_path)}
    (tmp_path / "text_form.json").write_text('{"src": {}, "tgt": {}}')
    for side in ("src", "tgt"):
        shutil.copy(binarised / f"dict.{side}.txt", tmp_path)
    for name, text in (("SHORT", "v1 1\n"), ("DAMAGED", "v1\n")):
        named[name] = str(tmp_path / name.lower())
        (tmp_path / name.lower()).mkdir()
        (tmp_path / name.lower() / "dict.txt").write_text(text)
    options = [named.get(option, option) for option in options]
    with pytest.raises(UserError, match=message):
        scoring("rerank", files[0], "--source", files[1], "--out", str(tmp_path / "o"), *options)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "value, message",
    [
        (math.nan, "diverged.pt has parameters that are NaN or infinite, so its training has dive"),
        (3e38, "--language-model gives 'v.*' the score nan, which is not"),
    ],
)
def test_a_language_model_without_finite_scores(scoring, files, path, tmp_path, value, message):
    state = torch.load(path, weights_only=False)
    state["model"]["decoder.embed_tokens.weight"].fill_(value)
    torch.save(state, tmp_path / "diverged.pt")
    options = ["--score", "language-model", "--language-model", str(tmp_path / "diverged.pt")]
    with pytest.raises(UserError, match=message):
        scoring("rerank", files[0], "--source", files[1], "--out", str(tmp_path / "o"), *options)
    assert not (tmp_path / "o").exists()


def test_proposals_need_their_lines(scoring, write, tmp_path):
    nbest = write("nbest", "H-0\t-1\ta\nH-0\t-2\tb\n")
    with pytest.raises(UserError, match="--score proposal needs the P- lines"):
        options = ["--source", write("s", "x\n"), "--out", str(tmp_path / "o")]
        scoring("rerank", nbest, *options, "--score", "proposal")


def test_a_channel_model_of_the_wrong_direction(
    scoring, files, window_checkpoint, back, tmp_path, caplog
):
    rerank = ["rerank", files[0], "--source", files[1], "--out", str(tmp_path / "o")]
    rerank += ["--score", "channel", "--channel"]
    printed = scoring(*rerank, back)
    assert "tgt to src: the candidates are assumed to be in tgt, the source in src" in printed
    form = '{"tokenizer": "none", "truecaser": null, "bpe_codes": null}'
    (tmp_path / "text_form.json").write_text(f'{{"tgt": {form}}}')
    given = ["--text-form", str(tmp_path), "tgt"]
    printed = scoring(*rerank, back, *given)
    assert "are assumed to be" not in printed
    assert "does not know" not in caplog.text
    printed = scoring(*rerank, str(window_checkpoint))
    assert "src to tgt: the candidates are assumed to be in src, the source in tgt" in printed
    for side in ("candidates", "source"):
        assert "translates src to tgt, and does not know " in caplog.text
        assert f" of the words of the {side}; it must translate the candidates" in caplog.text
    with pytest.raises(UserError, match="translates src to tgt; give a model that translates tgt"):
        scoring(*rerank, str(window_checkpoint), *given)


@pytest.mark.parametrize("chance, noted", [(0.9, True), (1.1, False)])
def test_candidates_less_likely_than_random_words(
    scoring, files, lm, path, tmp_path, chance, noted
):
    """As with a dictionary in another order, of which a checkpoint knows nothing."""

    def score(self, pairs):
        return [self.count([text]) * math.log(chance / len(lm.dictionary)) for _, text in pairs]

    options = ["--score", "language-model", "--language-model", path, "--out", str(tmp_path / "o")]
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr(noisy_channel.logger, "warning", lambda text, *_: said.append(text))
        patch.setattr(DocumentLanguageModel, "score", score)
        scoring("rerank", files[0], "--source", files[1], *options)
    assert any("less likely than random words; look whether dict" in text for text in said) == noted


def test_raw_text_with_unknown_words_is_noted(scoring, write, path, tmp_path, caplog):
    nbest = write("nbest", "H-0\t-1\tx y\nH-0\t-2\tv1\n")
    options = ["--source", write("s", "x\n"), "--out", str(tmp_path / "o")]
    scoring("rerank", nbest, *options, "--score", "language-model", "--language-model", path)
    assert "40 % of the words of the candidates are not in the dictionary" in caplog.text
