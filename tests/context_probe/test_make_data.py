"""The probe corpus: format, meaning, and no sentence that reveals the answer by itself."""

import collections
import json

import language
import make_data
import pytest
from scipy.stats import binom, chi2_contingency, chisquare

OPTIONS = ["--train-documents", "800", "--test-documents", "800", "--valid-documents", "20"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    make_data.main(["--out", str(folder), "--seed", "3", *OPTIONS])
    return folder


class Asked:
    """A question with its source sentence and the position of that sentence."""

    def __init__(self, question, source, document, position):
        self.phenomenon, self.answer = question["phenomenon"], question["answer"]
        self.alternatives, self.question = question["alternatives"], question
        self.source, self.document, self.position = source, document, position
        # Each term has its own set of answers, which predictors may use.
        self.kind = (self.phenomenon, frozenset([self.answer, *self.alternatives]))
        self.form = sorted(self.kind[1]).index(self.answer)


def read(folder, split, side):
    """Return documents, each a list of (line number, words)."""
    documents = [[]]
    for number, line in enumerate((folder / f"{split}.{side}").read_text().split("\n")[:-1]):
        if line:
            documents[-1].append((number, line.split()))
        else:
            documents.append([])
    return documents


def asked(folder, split="test"):
    """Return all questions of a split with a probe file."""
    places = {
        line: (words, number, position)
        for number, document in enumerate(read(folder, split, "src"))
        for position, (line, words) in enumerate(document)
    }
    rows = map(json.loads, (folder / f"{split}.probe.jsonl").read_text().splitlines())
    return [Asked(row, *places[row["line"]]) for row in rows]


def independent(questions):
    """Return one question per draw: formality per document, a term per document and term."""
    seen, kept = set(), []
    for question in questions:
        draw = (question.document, question.kind)
        if question.phenomenon in ("pronoun", "ellipsis") or draw not in seen:
            kept.append(question)
        seen.add(draw)
    return kept


# ---- format --------------------------------------------------------------------------------------


@pytest.mark.parametrize("split, count", [("train", 800), ("valid", 20), ("test", 800)])
def test_documents_end_at_the_same_lines_on_both_sides(folder, split, count):
    source, target = read(folder, split, "src"), read(folder, split, "tgt")
    assert len(source) == len(target) == count
    for one, other in zip(source, target):
        assert [line for line, _ in one] == [line for line, _ in other] and len(one) == 12


def test_a_sentence_asks_at_most_one_question(folder):
    lines = [question.question["line"] for question in asked(folder)]
    assert len(lines) == len(set(lines)) and lines == sorted(lines)


def test_only_whole_files_are_left(folder):
    names = {f"{split}.{side}" for split in ("train", "valid", "test") for side in ("src", "tgt")}
    questions = {
        f"{s}.{kind}.jsonl" for s in ("valid", "test") for kind in ("probe", "contrastive")
    }
    supporting = {f"{split}.src-tgt.supporting.jsonl" for split in ("train", "valid", "test")}
    assert {p.name for p in folder.iterdir()} == names | questions | supporting


def test_no_invented_word_is_a_reserved_one(monkeypatch):
    # 27 stems can be made of these syllables; all but the greeting "salira" are asked for.
    monkeypatch.setattr(language, "SYLLABLES", ["sa", "li", "ra"])
    words = language.build_vocabulary(nouns=18, fillers=3, terms=1, seed=0)
    invented = {*words.nouns, *words.verbs, *words.fillers, *words.terms}
    assert len(invented) == 26 and "salira" not in invented


def test_distances_lead_to_the_answer(folder):
    documents = read(folder, "test", "src")
    words = language.build_vocabulary(12, 20, 4, seed=3)
    shows = {"pronoun": words.nouns, "ellipsis": words.verbs}
    for question in asked(folder):
        before = [set(source) for _, source in documents[question.document][: question.position]]
        if question.phenomenon == "formality":
            expected = (question.position, question.position)
        elif question.phenomenon == "term":
            term = next(word for word in question.source if word in words.terms)
            mentions = [i for i, sentence in enumerate(before) if term in sentence]
            expected = (question.position - mentions[-1], question.position - mentions[0])
        else:
            showing = shows[question.phenomenon].keys()
            nearest = max(i for i, sentence in enumerate(before) if sentence & showing)
            expected = (question.position - nearest,) * 2
        row = question.question
        assert (row["distance"], row["distance_to_first"]) == expected


def test_supporting_words_show_the_answer(folder):
    lines = {
        side: dict(entry for document in read(folder, "test", side) for entry in document)
        for side in ("src", "tgt")
    }
    text = (folder / "test.src-tgt.supporting.jsonl").read_text().splitlines()
    words = language.build_vocabulary(12, 20, 4, seed=3)
    greetings, cues = dict(language.GREETINGS), dict(language.CUES)
    for question, record in zip(asked(folder), map(json.loads, text), strict=True):
        line = record["line"]
        assert line == question.question["line"]
        (asks,) = (lines["src"][line][place] for place in record["source"])
        assert [lines["tgt"][line][place] for place in record["target"]] == [question.answer]
        shows, shown = (
            [lines[side][int(n)][place] for n, places in record[name].items() for place in places]
            for side, name in (("src", "supporting_source"), ("tgt", "supporting_target"))
        )
        if question.phenomenon == "pronoun":
            translation, gender = words.nouns[shows[0]]
            assert shown == [language.ARTICLES[gender], translation]
            assert language.PRONOUNS[gender] == question.answer
        elif question.phenomenon == "ellipsis":
            assert words.verbs[shows[0]] == question.answer
            assert shown == [question.answer]
        elif question.phenomenon == "formality":
            assert [greetings[shows[0]]] == shown
            assert language.YOUS[list(greetings).index(shows[0])] == question.answer
        else:
            assert shows[1] == asks
            assert words.terms[asks][list(cues).index(shows[0])] == question.answer
            assert shown[-1] == question.answer


@pytest.mark.parametrize("phenomenon", language.PHENOMENA)
def test_every_distance_asked_for_is_frequent(folder, phenomenon):
    counts = collections.Counter(
        question.question["distance"]
        for question in asked(folder)
        if question.phenomenon == phenomenon
    )
    assert min(counts[distance] for distance in (1, 2, 3)) > 100
    if phenomenon in ("pronoun", "ellipsis"):
        assert counts.keys() == {1, 2, 3}


# ---- meaning -------------------------------------------------------------------------------------


def translate(words, document):
    """Translate the source sentences of a document by the rules of the language."""
    form = gender = action = None
    renderings = {}
    for source in document:
        fillers, other = [], []
        for place, word in enumerate(source):
            if word in words.fillers:
                fillers.append((place, words.fillers[word]))
                continue
            cues = [i for i, (cue, _) in enumerate(language.CUES) if cue in source]
            if word in words.terms and cues:
                renderings.setdefault(word, cues[0])
            greetings = [
                i for i, (greeting, _) in enumerate(language.GREETINGS) if greeting == word
            ]
            form = greetings[0] if greetings else form
            if word in words.nouns:
                gender = words.nouns[word][1]
            action = words.verbs.get(word, action)
            other.append((place, word))
        meaning = {
            **dict(language.GREETINGS),
            **dict(language.CUES),
            **{noun: f"{language.ARTICLES[g]} {word}" for noun, (word, g) in words.nouns.items()},
            **{term: words.terms[term][choice] for term, choice in renderings.items()},
            **words.verbs,
            language.ELIDED: action,
            language.YOU: language.YOUS[form],
            language.PRONOUN: None if gender is None else language.PRONOUNS[gender],
        }
        swapped = [word for _, word in fillers]
        swapped[:2] = swapped[1::-1]
        target = [None] * len(source)
        for (place, _), word in zip(fillers, swapped):
            target[place] = word
        for place, word in other:
            target[place] = meaning[word]
        yield " ".join(target).split()


def test_context_translates_the_whole_corpus(folder):
    words = language.build_vocabulary(12, 20, 4, seed=3)
    for split in ("train", "valid", "test"):
        pairs = zip(read(folder, split, "src"), read(folder, split, "tgt"))
        for source, target in pairs:
            translated = list(translate(words, [sentence for _, sentence in source]))
            assert translated == [sentence for _, sentence in target]


# ---- ceilings ------------------------------------------------------------------------------------


def at_most_ceiling(right, questions, ceiling):
    """Return whether a number of right answers is at most the ceiling plus sampling error."""
    return right <= binom.ppf(0.9995, len(questions), ceiling)


def test_answers_are_uniform(folder):
    kinds = collections.defaultdict(collections.Counter)
    for question in independent(asked(folder)):
        kinds[question.kind][question.answer] += 1
    assert len(kinds) == 3 + 4  # every one of four terms is a choice of its own
    for (phenomenon, answers), counts in kinds.items():
        assert len(answers) == round(1 / language.CEILINGS[phenomenon])
        assert chisquare([counts[answer] for answer in sorted(answers)]).pvalue > 0.001, phenomenon


FEATURES = {
    "sentence length": lambda q: len(q.source),
    "place in document": lambda q: q.position,
    "distance": lambda q: q.question["distance"],
    "first word": lambda q: q.source[0],
    "last word": lambda q: q.source[-1],
    "place of the question": lambda q: next(
        i
        for i, word in enumerate(q.source)
        if word in (language.PRONOUN, language.YOU, language.ELIDED) or q.answer.startswith(word)
    ),
}


@pytest.mark.parametrize("phenomenon", language.PHENOMENA)
@pytest.mark.parametrize("feature", sorted(FEATURES))
def test_nothing_in_a_sentence_betrays_its_answer(folder, feature, phenomenon):
    chosen = [q for q in independent(asked(folder)) if q.phenomenon == phenomenon]
    values = collections.Counter(FEATURES[feature](q) for q in chosen)
    # The chi-square approximation needs several cases in each cell.
    values = sorted(value for value, count in values.items() if count >= 30)
    answers = sorted({q.form for q in chosen})
    counts = collections.Counter((FEATURES[feature](q), q.form) for q in chosen)
    if len(values) > 1:
        table = [[counts[value, answer] for answer in answers] for value in values]
        assert chi2_contingency(table).pvalue > 0.0005


def learn(folder):
    """Learn the most frequent answer to each source sentence and to each kind of question."""
    words = language.build_vocabulary(12, 20, 4, seed=3)
    forms = {language.PRONOUN: language.PRONOUNS, language.YOU: language.YOUS}
    forms.update({language.ELIDED: tuple(words.verbs.values()), **words.terms})
    seen = collections.defaultdict(collections.Counter)
    for source, target in zip(read(folder, "train", "src"), read(folder, "train", "tgt")):
        for (_, sentence), (_, translation) in zip(source, target):
            cued = any(cue in sentence for cue, _ in language.CUES)
            for word in sentence:
                if word in forms and not cued:
                    answer = next(form for form in forms[word] if form in translation)
                    for key in (tuple(sentence), tuple(sorted(sentence)), word):
                        seen[key][answer] += 1

    def answer(sentence):
        asking = next(word for word in sentence if word in forms)
        for key in (tuple(sentence), tuple(sorted(sentence)), asking):
            if key in seen:
                return seen[key].most_common(1)[0][0]
        raise AssertionError(f"{asking} never occurred in training")

    return answer


@pytest.mark.parametrize("phenomenon", language.PHENOMENA)
def test_a_memory_of_whole_sentences_stays_at_the_ceiling(folder, phenomenon):
    answer = learn(folder)
    chosen = [q for q in independent(asked(folder)) if q.phenomenon == phenomenon]
    right = sum(answer(q.source) == q.answer for q in chosen)
    assert at_most_ceiling(right, chosen, language.CEILINGS[phenomenon])


@pytest.mark.parametrize("phenomenon", language.PHENOMENA)
def test_a_constant_answer_stays_at_the_ceiling(folder, phenomenon):
    chosen = [q for q in independent(asked(folder)) if q.phenomenon == phenomenon]
    counts = collections.Counter(q.form for q in chosen)
    assert at_most_ceiling(max(counts.values()), chosen, language.CEILINGS[phenomenon])


# ---- information on one side ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_sided(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one_sided")
    make_data.main(["--out", str(folder), "--phenomena", "number,speaker", *OPTIONS])
    return folder


@pytest.mark.parametrize("phenomenon, side", [("number", 0), ("speaker", 1)])
def test_only_one_side_tells_the_answer(one_sided, phenomenon, side):
    documents = list(zip(*(read(one_sided, "test", name) for name in ("src", "tgt"))))
    tells, _, forms = language.ONE_SIDED[phenomenon]
    told = collections.Counter()
    for question in asked(one_sided):
        if question.phenomenon == phenomenon:
            place = question.position - question.question["distance"]
            words = [sentences[place][1] for sentences in documents[question.document]]
            fitting = [i for i in (0, 1) if tells[i][side] in words[side]]
            assert [forms[i] for i in fitting] == [question.answer]
            # The other side is the same for both.
            assert tells[0][1 - side] == tells[1][1 - side] in words[1 - side]
            told[question.answer] += 1
    assert len(told) == 2 and min(told.values()) > 500


@pytest.mark.parametrize("corpus", ["folder", "one_sided"])
def test_contrastive_items_are_the_questions_with_their_true_context(corpus, request):
    folder = request.getfixturevalue(corpus)
    sources, targets = read(folder, "test", "src"), read(folder, "test", "tgt")
    items = (folder / "test.contrastive.jsonl").read_text().splitlines()
    questions = asked(folder)
    assert len(items) == len(questions)
    for item, question in zip(map(json.loads, items), questions):
        first, *others = item["candidates"]
        document, upto = question.document, question.position + 1
        assert item["source"] == [" ".join(words) for _, words in sources[document][:upto]]
        assert first == [" ".join(words) for _, words in targets[document][:upto]]
        assert all(other[:-1] == first[:-1] for other in others) and item["correct"] == 0
        last = [sentence.split() for *_, sentence in item["candidates"]]
        differing = [set(words) for words in zip(*last) if len(set(words)) > 1]
        assert differing == [{question.answer, *question.alternatives}]
        assert item["labels"]["distance"] == question.question["distance"]


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        (["--phenomena", "pronoun,weather"], "no 'weather'; choose from pronoun, formality"),
        (["--distances", "0,1"], "--distances must be at least 1 sentence, got 0"),
        (["--distances", "1,2,1"], "--distances has a value twice; leave one"),
        (["--phenomena", "pronoun,pronoun"], "--phenomena has a value twice; leave one"),
        (["--distances", "one"], "--distances must be numbers like 1,2,3, got one"),
        (["--distances", "20"], "--sentences-per-document 12 is too short"),
        (
            ["--phenomena", "formality,number,speaker", "--distances", "8"],
            "--sentences-per-document 12 is too short for --distances up to 8; give at least 27",
        ),
        (["--nouns", "4"], "--nouns must be a multiple of 3"),
        (["--test-documents", "0"], "--test-documents must be at least 1"),
        (["--seed", "-1"], "--seed must not be negative, got -1"),
        (["--seed", "one"], "argument --seed: invalid int value: 'one'"),
        (["--surprise"], "unrecognized arguments: --surprise"),
        (["--fillers", "60000"], "make 60016 words, over 50000"),
    ],
)
def test_bad_options_exit_with_status_1(tmp_path, options, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        make_data.main(["--out", str(tmp_path / "x"), *options])
    # A text as exit code is printed and becomes status 1.
    assert stopped.value.code.startswith("error: ") and message in stopped.value.code
    assert "\n" not in stopped.value.code and not (tmp_path / "x").exists()


def test_the_same_seed_gives_the_same_corpus(tmp_path):
    small = ["--train-documents", "5", "--test-documents", "5", "--valid-documents", "2"]
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        make_data.main(["--out", str(tmp_path / name), "--seed", seed, *small])
    texts = {
        name: {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in "abc"
    }
    assert texts["a"] == texts["b"]
    assert all(texts["a"][name] != texts["c"][name] for name in texts["a"])


@pytest.mark.parametrize("phenomenon", language.PHENOMENA)
def test_phenomena_and_distances_can_be_chosen(tmp_path, phenomenon):
    sizes = ["--train-documents", "1", "--valid-documents", "1", "--test-documents", "40"]
    options = ["--phenomena", phenomenon, "--distances", "2,5", "--sentences-per-document", "8"]
    make_data.main(["--out", str(tmp_path), *sizes, *options])
    questions = asked(tmp_path)
    assert {question.phenomenon for question in questions} == {phenomenon}
    distances = {question.question["distance"] for question in questions}
    # Formality is asked again later, and a term's nearest mention may be another question.
    assert distances >= {2, 5} if phenomenon in ("formality", "term") else distances == {2, 5}
    assert all(len(document) == 8 for document in read(tmp_path, "test", "src"))


@pytest.mark.parametrize("phenomena, sentences", [("formality,number,speaker", 27), ("number", 10)])
def test_the_openings_of_documents_fit(tmp_path, phenomena, sentences):
    sizes = ["--train-documents", "1", "--valid-documents", "1", "--test-documents", "5"]
    options = ["--phenomena", phenomena, "--distances", "8", "--sentences-per-document"]
    make_data.main(["--out", str(tmp_path), *sizes, *options, str(sentences)])
    documents = read(tmp_path, "test", "src")
    assert [len(document) for document in documents] == 5 * [sentences]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(SystemExit, match="taken"):
        make_data.main(["--out", str(tmp_path / "taken"), "--train-documents", "1"])
