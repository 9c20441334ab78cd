"""Pronouns and formality: counts compared with counts by hand, with minimal pipelines.

Covers scoring/words/pronoun_rules.py.
"""

import json

import pytest
import spacy

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.words.pronoun_rules import PAIRS
from fairseq_docmt.scoring.words.pronouns import Counts, count_pronouns, tag

PRONOUNS, FORMALITY = (PAIRS["en-de"].phenomena[name] for name in ("pronouns", "formality"))
TAGS = {
    "en": {
        "PRP": "it itself you yourself they she he them i",
        "PRP$": "its your their her yours",
        "WP": "what",
        "NN": "thing",
    },
    "de": {
        "PPER": "er ihn ihm sie es ich du dich dir ihnen",
        "PPOSAT": "ihr ihre ihrer sein seine dein deine deiner",
        "PDS": "das",
        "NN": "hund",
    },
}


def pipeline(language, tags=TAGS):
    """Tokenizer and attribute ruler; words of no list have the tag X."""
    model = spacy.blank(language)
    ruler = model.add_pipe("attribute_ruler")
    ruler.add([[{}]], {"TAG": "X"})
    for name, words in tags.get(language, {}).items():
        ruler.add([[{"LOWER": {"IN": words.split()}}]], {"TAG": name})
    return model


@pytest.fixture(scope="module")
def tagged():
    """Tags the sentences of a row: source, hypothesis, reference."""
    english, german = pipeline("en"), pipeline("de")

    def tagged(source, *others):
        return [tag(english, [source]), *(tag(german, [text]) for text in others)]

    return tagged


@pytest.mark.parametrize(
    "source, hypothesis, reference, counts",
    [
        # class: in the hypothesis, in the reference, in both
        ("It is big.", "Er ist groß.", "Sie ist groß.", {"m": (1, 0, 0), "f": (0, 1, 0)}),
        ("It is big.", "Es ist groß.", "Es ist groß.", {"n": (1, 1, 1)}),
        ("Its size", "Ihre Größe", "Ihre Größe", {"f": (1, 1, 1)}),
        ("I see it.", "Ich sehe ihn, es.", "Ich sehe ihn.", {"m": (1, 1, 1), "n": (1, 0, 0)}),
        ("It saw it.", "Er sah ihn, ihn.", "Er sah ihn.", {"m": (3, 2, 2)}),
        # Not valid: no pronoun of the neuter.
        ("He is big.", "Er ist groß.", "Er ist groß.", {}),
        ("They are big.", "Sie ist groß.", "Sie ist groß.", {}),
        # "sie" may also be them or you: feminine is left out, the others are not.
        ("They see it.", "Sie sehen sie.", "Sie sehen ihn.", {"m": (0, 1, 0)}),
        ("Do you see it?", "Sehen Sie sie?", "Siehst du ihn?", {"m": (0, 1, 0)}),
        ("Is it yours?", "Ist sie Ihre?", "Ist er Ihrer?", {"m": (0, 1, 0)}),
        # Her and she block nothing here, and sein is shared by two genders.
        ("She sees it.", "Sie sieht sie.", "Sie sieht ihn.", {"f": (2, 1, 1), "m": (0, 1, 0)}),
        ("It is its size.", "Es ist sein Hund.", "Es ist sein Hund.", {"n": (1, 1, 1)}),
    ],
)
def test_pronouns(tagged, source, hypothesis, reference, counts):
    found = count_pronouns(PRONOUNS, *tagged(source, hypothesis, reference))
    names = {"masculine": "m", "feminine": "f", "neuter": "n"}
    classes = {short: tuple(found[name]) for name, short in names.items() if any(found[name])}
    assert classes == counts
    total = [sum(column) for column in zip(*counts.values())] or [0, 0, 0]
    assert list(found["all"]) == total


@pytest.mark.parametrize(
    "source, hypothesis, reference, formal, informal",
    [
        ("Do you see me?", "Sehen Sie mich?", "Siehst du mich?", (1, 0, 0), (0, 1, 0)),
        ("Is that your dog?", "Ist das Ihr Hund?", "Ist das ihr Hund?", (1, 1, 1), (0, 0, 0)),
        ("You and your dog", "Du, dein Hund", "Du und deine, dir", (0, 0, 0), (2, 3, 2)),
        # Formal could be she, it or they: left out, informal is not.
        ("Do you see it?", "Sehen Sie sie?", "Siehst du sie?", (0, 0, 0), (0, 1, 0)),
        ("Do you see her?", "Sehen Sie sie?", "Sehen Sie sie?", (0, 0, 0), (0, 0, 0)),
        ("Do they see you?", "Sehen sie dich?", "Sehen sie Sie?", (0, 0, 0), (1, 0, 0)),
        # He does not block; without "you" nothing is valid.
        ("He sees you.", "Er sieht Sie.", "Er sieht Sie.", (1, 1, 1), (0, 0, 0)),
        ("They go.", "Sie gehen.", "Sie gehen.", (0, 0, 0), (0, 0, 0)),
    ],
)
def test_formality(tagged, source, hypothesis, reference, formal, informal):
    found = count_pronouns(FORMALITY, *tagged(source, hypothesis, reference))
    assert (found["formal"], found["informal"]) == (formal, informal)


def test_only_pronouns_count():
    """Words of the lists with another tag are none, on either side."""
    other = {"en": {"NN": "it"}, "de": {"PPER": "er", "NE": "es"}}
    english, german = pipeline("en", other), pipeline("de", other)
    row = tag(english, ["It"]), tag(german, ["er"]), tag(german, ["er"])
    assert count_pronouns(PRONOUNS, *row)["all"] == Counts(0, 0, 0)
    target = tag(german, ["er es"])
    found = count_pronouns(PRONOUNS, tag(pipeline("en"), ["It"]), target, target)
    assert found["masculine"] == (1, 1, 1) and found["neuter"] == (0, 0, 0)


def test_f1():
    counts = Counts(hypothesis=4, reference=5, both=3)
    assert counts.precision == pytest.approx(3 / 4)
    assert counts.recall == pytest.approx(3 / 5)
    assert counts.f1 == pytest.approx(2 * (3 / 4) * (3 / 5) / (3 / 4 + 3 / 5))
    assert Counts().precision is Counts().recall is Counts().f1 is None


@pytest.fixture
def arguments(write, tmp_path):
    for language in ("en", "de"):
        pipeline(language).to_disk(tmp_path / f"tagger.{language}")
    source = [["It is big.", "Do you see me?"], ["It is it."]]
    reference = [["Sie ist groß.", "Siehst du mich?"], ["Es ist es."]]
    hypothesis = [["Er ist groß.", "Siehst du dich?"], ["Es ist er."]]
    return [
        f"x={write('x', hypothesis)}",
        *["--source", write("source", source), "--reference", write("reference", reference)],
        *["--source-model", str(tmp_path / "tagger.en")],
        *["--target-model", str(tmp_path / "tagger.de")],
    ]


def test_command(scoring, arguments):
    printed = scoring("pronouns", *arguments)
    rows = [line.split() for line in printed.splitlines()]
    # Of three pronouns (er, es, er) and three wanted (sie, es, es) one is the same.
    assert ["all", "3", "33.3", "(33.3/33.3)"] in rows
    assert ["neuter", "2", "66.7", "(100.0/50.0)"] in rows
    assert ["without", "neuter", "1", "0.0", "(0.0/0.0)"] in rows
    assert ["informal", "1", "66.7", "(50.0/100.0)"] in rows
    assert "pair:en-de|case:mixed|" in printed
    # F1 of all pronouns: one in common of three and three.
    assert ["pronouns", "x", "33.3"] in [row[:3] for row in rows]
    assert "over x" not in printed
    numbers = json.loads(scoring("pronouns", *arguments, "--format", "json", "--lowercase"))
    assert numbers["pronouns"]["x"]["all"]["both"] == 1
    assert numbers["signature"].startswith("docs:2|sents:3|pair:en-de|case:lc|en_pipeline ")


def test_notes_on_how_texts_were_read(scoring, arguments, write):
    """A blank line in a block that is longer than each document is an empty translation."""
    flat = write("flat", "Es ist.\n" * 5 + "\n")
    texts = [f"x={flat}", "--source", write("six", [["It is."] * 3] * 2)]
    texts += ["--reference", write("wanted", [["Es ist."] * 3] * 2), *arguments[5:]]
    wanted = "x: 1 blank lines taken for empty translations"
    assert f"\n{wanted}\ndocs:2|sents:6|pair:en-de|" in scoring("pronouns", *texts)
    found = json.loads(scoring("pronouns", *texts, "--format", "json"))
    assert found["notes"] == [wanted]


def test_mistakes(scoring, arguments, tmp_path):
    with pytest.raises(UserError, match="nowhere_sm is not installed; install it with"):
        scoring("pronouns", *arguments, "--source-model", "nowhere_sm")
    with pytest.raises(UserError, match="is not the folder of a spaCy pipeline, with config.cfg"):
        scoring("pronouns", *arguments, "--source-model", str(tmp_path))
    nowhere = tmp_path / "nowhere"
    with pytest.raises(UserError, match=f"^{nowhere} not found; give the folder of a spaCy"):
        scoring("pronouns", *arguments, "--source-model", str(nowhere))
    spacy.blank("de").to_disk(tmp_path / "blank")
    damaged = tmp_path / "damaged"
    spacy.blank("de").to_disk(damaged)
    (damaged / "meta.json").write_text("[]")
    with pytest.raises(UserError, match=f"{damaged} is damaged, or needs a package"):
        scoring("pronouns", *arguments, "--source-model", str(damaged))
    unknown = tmp_path / "unknown"
    spacy.blank("de").to_disk(unknown)
    config = (unknown / "config.cfg").read_text()
    config = config.replace("pipeline = []", 'pipeline = ["own"]')
    (unknown / "config.cfg").write_text(config + '\n[components.own]\nfactory = "own"\n')
    with pytest.raises(UserError, match="unknown is damaged, or needs a package or component"):
        scoring("pronouns", *arguments, "--target-model", str(unknown))
    with pytest.raises(UserError, match="gives no tags"):
        scoring("pronouns", *arguments, "--target-model", str(tmp_path / "blank"))
    with pytest.raises(UserError, match="give --reference once"):
        scoring("pronouns", *arguments, "--reference", arguments[2])


def test_words_that_are_not_there_need_no_tags():
    assert tag(spacy.blank("de"), ["", ""]) == [[], []]
