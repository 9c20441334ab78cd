"""The probe asks what it says it asks: context answers everything, a sentence alone nothing."""

import collections
import json

import language
import make_data
import pytest
import score
from scipy.stats import binom, chisquare


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    make_data.main(["--out", str(folder), "--train-documents", "400", "--test-documents", "400"])
    return folder


def lines(folder, name):
    return (folder / name).read_text(encoding="utf-8").split("\n")[:-1]


def documents(folder, split):
    """Documents of (line, source words, target words)."""
    docs, current = [], []
    pairs = zip(lines(folder, f"{split}.src"), lines(folder, f"{split}.tgt"))
    for number, (source, target) in enumerate(pairs):
        assert bool(source) == bool(target)
        if source:
            current.append((number, source.split(), target.split()))
        else:
            docs.append(current)
            current = []
    return docs + [current]


def questions(folder, split="test"):
    return score.read_questions(str(folder / f"{split}.probe.jsonl"))


class Reader:
    """An independent translator of the answers, from source documents alone."""

    def __init__(self, folder):
        self.words = language.build_vocabulary(12, 20, 4, seed=1)

    def answers(self, document):
        noun = verb = None
        form, meanings = None, {}
        for number, (line, source, _) in enumerate(document):
            if number == 0:
                form = [greeting[0] in source for greeting in language.GREETINGS].index(True)
            cue = [i for i, (word, _) in enumerate(language.CUES) if word in source]
            for word in source:
                if word in self.words.nouns:
                    noun = self.words.nouns[word][1]
                elif word in self.words.verbs:
                    verb = self.words.verbs[word]
                elif word in self.words.terms:
                    meanings.setdefault(word, cue[0] if cue else None)
                    if not cue:
                        yield line, self.words.terms[word][meanings[word]]
                elif word == language.PRONOUN:
                    yield line, language.PRONOUNS[noun]
                elif word == language.YOU:
                    yield line, language.YOUS[form]
                elif word == language.ELIDED:
                    yield line, verb


def test_context_answers_every_question(probe):
    reader = Reader(probe)
    found = {line: [word] for doc in documents(probe, "test") for line, word in reader.answers(doc)}
    results = score.accuracy(questions(probe), found)
    assert {r.rate for r in results.values()} == {1.0}


def test_references_answer_every_question(probe):
    references = {line: target for doc in documents(probe, "test") for line, _, target in doc}
    results = score.accuracy(questions(probe), references)
    assert {r.rate for r in results.values()} == {1.0}


def learned_from_sentences(probe):
    """The most frequent answer in training to a question asked with the same deciding word."""
    counts = collections.defaultdict(collections.Counter)
    vocabulary = language.build_vocabulary(12, 20, 4, seed=1)
    answers = {w: "pronoun" for w in language.PRONOUNS} | {w: "formality" for w in language.YOUS}
    for doc in documents(probe, "train"):
        for _, source, target in doc:
            for word in target:
                if word in answers:
                    counts[answers[word]][word] += 1
            if language.ELIDED in source:
                counts["ellipsis"].update(w for w in target if w in vocabulary.verbs.values())
            for term, forms in vocabulary.terms.items():
                if term in source and not any(cue in source for cue, _ in language.CUES):
                    counts[term].update(w for w in target if w in forms)
    return {key: counter.most_common(1)[0][0] for key, counter in counts.items()}, vocabulary


def test_sentences_alone_stay_at_the_ceiling(probe):
    best, vocabulary = learned_from_sentences(probe)
    sources = {line: source for doc in documents(probe, "test") for line, source, _ in doc}
    found = {}
    for question in questions(probe):
        key = question["phenomenon"]
        if key == "term":
            key = next(word for word in sources[question["line"]] if word in vocabulary.terms)
        found[question["line"]] = [best[key]]
    results = score.accuracy(questions(probe), found)
    for phenomenon in language.PHENOMENA:
        result = score.pooled(results, phenomenon, most=99)
        # Formality is one draw for all questions of a document: judge it by documents, about 400.
        trials = min(result.total, 400)
        low, high = binom.interval(0.999, trials, result.ceiling)
        assert low / trials <= result.rate <= high / trials, (phenomenon, result)


@pytest.mark.parametrize("phenomenon", ["pronoun", "ellipsis"])
def test_answers_are_even(probe, phenomenon):
    counts = collections.Counter(
        q["answer"] for q in questions(probe) if q["phenomenon"] == phenomenon
    )
    assert chisquare(list(counts.values())).pvalue > 0.001
    assert len(counts) == round(1 / language.CEILINGS[phenomenon])


def test_distances_are_those_asked_for(probe):
    distances = collections.Counter((q["phenomenon"], q["distance"]) for q in questions(probe))
    for phenomenon in ("pronoun", "ellipsis"):
        assert {d for name, d in distances if name == phenomenon} == {1, 2, 3}
    for distance in (1, 2, 3):
        assert distances["term", distance] > 20 and distances["formality", distance] > 10


def test_the_same_seed_gives_the_same_corpus(tmp_path):
    small = ["--train-documents", "5", "--test-documents", "5", "--valid-documents", "2"]
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        make_data.main(["--out", str(tmp_path / name), "--seed", seed, *small])
    texts = [(tmp_path / name / "train.src").read_text() for name in "abc"]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    "options, message",
    [
        (["--phenomena", "pronoun,weather"], "no 'weather'; choose from pronoun, formality"),
        (["--distances", "0,1"], "--distances must be at least 1 sentence, got 0"),
        (["--distances", "one"], "--distances must be numbers like 1,2,3, got one"),
        (["--distances", "20"], "--sentences-per-document 12 is too short"),
        (["--nouns", "4"], "--nouns must be a multiple of 3"),
        (["--test-documents", "0"], "--test-documents must be at least 1"),
    ],
)
def test_bad_options_get_one_sentence(tmp_path, options, message):
    with pytest.raises(SystemExit, match=message):
        make_data.main(["--out", str(tmp_path / "x"), *options])
    assert not (tmp_path / "x").exists()


def test_phenomena_can_be_chosen(tmp_path):
    make_data.main(["--out", str(tmp_path), "--phenomena", "term", "--train-documents", "5"])
    assert {q["phenomenon"] for q in questions(tmp_path)} == {"term"}


# ---- scoring -------------------------------------------------------------------------------------

ROWS = [
    {"line": 0, "phenomenon": "term", "distance": 1, "answer": "a", "alternatives": ["b"]},
    {"line": 2, "phenomenon": "term", "distance": 1, "answer": "a", "alternatives": ["b"]},
    {"line": 3, "phenomenon": "pronoun", "distance": 2, "answer": "x", "alternatives": ["y", "z"]},
]
for row in ROWS:
    row["ceiling"] = 0.5


@pytest.mark.parametrize(
    "words, right",
    [(["a"], 1), (["c", "a"], 1), (["b"], 0), (["a", "b"], 0), ([], 0), (["ab"], 0)],
)
def test_an_answer_is_right_without_its_alternatives(words, right):
    assert score.accuracy(ROWS[:1], {0: words})["term", 1].right == right


def test_output_of_generate_is_read_and_shown(tmp_path, capsys):
    (tmp_path / "probe").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    output = "S-0\tq\nH-0\t-0.5\tc a\nH-0\t-0.9\tb\nH-2\t-1\tb\nH-3\t-1\tx\n"
    (tmp_path / "out").write_text(output)
    figures = tmp_path / "figures.json"
    score.main(
        ["--probe", str(tmp_path / "probe"), f"mine={tmp_path / 'out'}", "--json", str(figures)]
    )
    shown = capsys.readouterr().out.splitlines()
    assert "mine" in shown[0] and shown[-1].split() == ["term", "1", "2", "0.50", "0.50"]
    assert json.loads(figures.read_text())["mine"][1]["right"] == 1


def test_missing_hypotheses_get_one_sentence(tmp_path):
    (tmp_path / "probe").write_text(json.dumps(ROWS[1]) + "\n")
    (tmp_path / "out").write_text("H-0\t-1\ta\n")
    with pytest.raises(SystemExit, match="no hypothesis for line 3"):
        score.main(["--probe", str(tmp_path / "probe"), f"mine={tmp_path / 'out'}"])
    with pytest.raises(SystemExit, match="give systems as NAME=OUTPUT"):
        score.main(["--probe", str(tmp_path / "probe"), "mine"])
