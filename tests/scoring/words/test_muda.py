"""Tagged words: tags and counts compared with those by hand, with minimal pipelines.

Covers scoring/words/muda_rules.py.
"""

import json

import pytest
import spacy

from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.texts.test_set import Translations
from fairseq_docmt.scoring.words.muda import analyse, count, tag
from fairseq_docmt.scoring.words.muda_rules import LANGUAGES

#: Language -> lemma -> words.  Other words have none.
LEMMAS = {
    "en": {"dog": "dog dogs", "hound": "hound hounds"},
    "de": {"hund": "hund hunde hundes"},
    "fr": {"chien": "chien chiens"},
    "ru": {"пёс": "пёс псы"},
}
POS = {
    "en": {
        "PRON": "it they them you we this these he she him her us i your",
        "NOUN": "dog dogs hound hounds day",
        "PROPN": "Rex",
        "DET": "the",
    },
    "fr": {"VERB": "voyait courait vit vu", "AUX": "était", "NOUN": "chien chiens"},
    "ru": {"VERB": "видел бежал бежит", "NOUN": "пёс псы"},
}
TENSES = {"fr": {"Imp": "voyait courait était", "Past": "vit vu"}, "ru": {"Past": "видел бежал"}}


def pipeline(language):
    """Tokenizer and attribute ruler; words of no list are X."""
    model = spacy.blank(language)
    ruler = model.add_pipe("attribute_ruler")
    ruler.add([[{}]], {"POS": "X"})
    for key, lists in (("POS", POS), ("LEMMA", LEMMAS), ("MORPH", TENSES)):
        for name, words in lists.get(language, {}).items():
            value = f"Tense={name}" if key == "MORPH" else name
            pattern = [{"LOWER": {"IN": words.lower().split()}}]
            ruler.add([pattern], {key: value})
    return model


@pytest.fixture(scope="module")
def tagged():
    """Tag a document given as pairs of sentences, or several of some lengths."""
    models = {language: pipeline(language) for language in ("en", *LANGUAGES)}

    def tagged(language, pairs, lengths=None):
        texts = Translations(DocumentIndex.from_lengths(lengths or [len(pairs)]), {}, [])
        source = analyse(models["en"], [pair[0] for pair in pairs], False, False)
        target = analyse(models[language], [pair[1] for pair in pairs], False, False)
        return tag(LANGUAGES[language], texts, source, target)

    return tagged


def words(found, phenomenon):
    return [sentence[phenomenon] for sentence in found]


DOG = ("The dog barks.", "Der Hund bellt.")


@pytest.mark.parametrize(
    "language, pairs, wanted",
    [
        # the fourth sentence with both words; punctuation and stop words never
        ("de", [DOG] * 4, [[], [], [], ["hund", "bellt"]]),
        # by lemmas on both sides, several times in one sentence count once
        (
            "de",
            [
                ("Dogs!", "Hunde, Hunde!"),
                ("A dog.", "Ein Hund."),
                ("A dog.", "Des Hundes."),
                ("Dogs, dogs.", "Hunde, Hund, Wolf."),
            ],
            [[], [], [], ["hunde", "hund"]],
        ),
        # the source word must be the same, and the target word too
        ("de", [("A dog.", "Hund.")] * 3 + [("A hound.", "Hund.")], [[]] * 4),
        ("de", [("A dog.", "Hund.")] * 3 + [("A dog.", "Wolf.")], [[]] * 4),
        ("de", [("A dog.", "Hund."), ("Yes.", "Ja.")] * 4, [[]] * 6 + [["hund"], []]),
        ("zh", [("A dog.", "狗。")] * 4, [[], [], [], ["狗"]]),
    ],
)
def test_lexical_cohesion(tagged, language, pairs, wanted):
    assert words(tagged(language, pairs), "lexical cohesion") == wanted


@pytest.mark.parametrize(
    "language, pairs, wanted",
    [
        # after the first of the class, in the same sentence or in later ones
        ("fr", [("You!", "Toi !"), ("You, your", "Ta, tes, vous, elle")], [[], ["ta", "tes"]]),
        ("fr", [("x", "vous, votre"), ("x", "dort-vous")], [["votre"], ["vous"]]),
        ("ru", [("x", "Ты"), ("x", "вы"), ("x", "Тебе вам я")], [[], [], ["тебе", "вам"]]),
        ("zh", [("x", "你"), ("x", "您 你")], [[], ["你"]]),
        ("de", [("x", "du"), ("x", "Du")], [[], ["du"]]),
        # polite only with a capital, and at the beginning only if the source has you
        ("de", [("x", "Wenn Sie, sie, Sie")], [["sie"]]),
        (
            "de",
            [("x", "Wenn Sie"), ("She", "Sie."), ("You", "Sie."), ("x", "Ja. Sie")],
            [[], [], ["sie"], []],
        ),
        ("de", [("x", "Wenn Sie"), ("x", "Ja, Sie"), ("x", "sie; Sie")], [[], ["sie"], ["sie"]]),
    ],
)
def test_formality(tagged, language, pairs, wanted):
    assert words(tagged(language, pairs), "formality") == wanted


def test_verb_form(tagged):
    found = tagged("fr", [("x", text) for text in ("Il voyait.", "Il vit, était.", "vu courait")])
    # an auxiliary is none, the first of each tense is not tagged
    assert words(found, "verb form") == [[], [], ["vu", "courait"]]
    found = tagged("ru", [("x", text) for text in ("видел бежал", "бежит", "бежал")])
    assert words(found, "verb form") == [["бежал"], [], ["бежал"]]


@pytest.mark.parametrize(
    "language, source, target, wanted",
    [
        ("de", "It is big.", "Er, sie, es, ihn", ["er", "sie", "es"]),
        ("de", "He is big.", "Er, sie, es", []),
        # an antecedent may be in the sentence
        ("de", "The dog says it is big.", "Er", []),
        ("de", "Rex says it is big.", "Er", []),
        ("de", "It sees the dog.", "Er", ["er"]),
        # words that translate another one
        ("de", "It sees him; he is big.", "Er, es", ["es"]),
        ("de", "You see it.", "Sie, er", ["er"]),
        ("de", "They see it.", "Sie, er", ["er"]),
        ("fr", "They see it.", "ils elles il elle lui", ["ils", "elles", "il", "elle", "lui"]),
        ("fr", "She sees it.", "il elle", ["il"]),
        ("fr", "The dog sees you.", "tu on", ["tu", "on"]),
        ("fr", "We see us.", "on nous", ["on"]),
        ("fr", "We see these.", "ceux nous celui", ["ceux", "nous"]),
        ("fr", "the dog", "ceux nous", []),
        # the source word must be a pronoun
        ("fr", "I say that it barks.", "celle elle", ["elle"]),
    ],
)
def test_pronouns(tagged, language, source, target, wanted):
    assert words(tagged(language, [(source, target)]), "pronouns") == [wanted]


def test_documents_have_no_memory_of_each_other(tagged):
    pairs = [("A dog.", "chien tu voyait")] * 4
    apart = tagged("fr", pairs, [3, 1])
    assert words(tagged("fr", pairs), "lexical cohesion")[3] == ["chien", "voyait"]
    assert apart[3] == {name: [] for name in apart[3]} and apart[1]["formality"] == ["tu"]
    assert words(tagged("fr", pairs), "verb form")[3] == ["voyait"]


def test_what_a_language_has():
    assert {language: len(rules.phenomena) for language, rules in LANGUAGES.items()} == {
        "de": 3,
        "fr": 4,
        "ru": 3,
        "zh": 2,
    }
    assert "verb form" not in LANGUAGES["de"].phenomena
    assert "pronouns" not in LANGUAGES["ru"].phenomena


def test_counts_are_by_word_and_sentence():
    rules = LANGUAGES["zh"]

    def sentences(*formality):
        return [{"formality": list(words), "lexical cohesion": []} for words in formality]

    counts = count(rules, sentences("aabb", "c", ""), sentences("aabd", "a", "c"))
    # a, a and b of the first sentence; none of the others
    assert counts == {"lexical cohesion": (0, 0, 0), "formality": (5, 6, 3)}


@pytest.fixture
def arguments(write, tmp_path):
    for language in ("en", "fr"):
        pipeline(language).to_disk(tmp_path / f"model.{language}")
    source = [["It barks.", "You and your dog"], ["You see it."]]
    reference = [["Elle aboie.", "Toi, ton chien"], ["Tu le vit"]]
    hypothesis = [["Il aboie.", "Toi, ta, ton chien"], ["Vous le voyait"]]
    return [
        f"x={write('x', hypothesis)}",
        *["--source", write("source", source), "--reference", write("reference", reference)],
        *["--source-model", str(tmp_path / "model.en")],
        *["--target-model", str(tmp_path / "model.fr"), "--pair", "en-fr"],
    ]


def test_command(scoring, arguments, tmp_path):
    path = tmp_path / "tags"
    rows = [line.split() for line in scoring("muda", *arguments, "--tags", path).split("\n")]
    assert ["formality", "1", "66.7", "(50.0/100.0)"] in rows
    assert ["pronouns", "2", "0.0", "(0.0/0.0)"] in rows
    assert ["verb", "form", "0", "-", "(-/-)"] in rows
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"doc_id": "1", "segment": 1, "tags": ["pronouns"]},
        {"doc_id": "1", "segment": 2, "tags": ["formality"]},
        {"doc_id": "2", "segment": 1, "tags": ["pronouns"]},
    ]
    numbers = json.loads(scoring("muda", *arguments, "--format", "json"))
    assert numbers["systems"]["x"]["formality"]["both"] == 1
    assert numbers["signature"].startswith("docs:2|sents:3|pair:en-fr|en_pipeline ")
    assert numbers["not covered"] == []
    pipeline("zh").to_disk(tmp_path / "model.zh")
    chinese = ["--pair", "en-zh", "--target-model", str(tmp_path / "model.zh")]
    printed = scoring("muda", *arguments, *chinese)
    assert "not covered: verb form, pronouns" in printed


def test_notes_on_how_texts_were_read(scoring, arguments, write):
    """A blank line in a block that is longer than each document is an empty translation."""
    flat = write("flat", "Ton chien\n" * 5 + "\n")
    texts = [f"x={flat}", "--source", write("six", [["Your dog"] * 3] * 2)]
    texts += ["--reference", write("wanted", [["Ton chien"] * 3] * 2), *arguments[5:]]
    wanted = "x: 1 blank lines taken for empty translations"
    assert f"\n{wanted}\ndocs:2|sents:6|pair:en-fr|" in scoring("muda", *texts)
    found = json.loads(scoring("muda", *texts, "--format", "json"))
    assert found["notes"] == [wanted]


@pytest.mark.parametrize("place, noted", [(0, True), (1, False)])
def test_left_out_segments_are_no_context(scoring, arguments, write, place, noted):
    records = [{"doc_id": "1", "segment": n, "text": "ton chien"} for n in (1, 2)]
    texts = [f"x={write('x.jsonl', json.dumps(records[1 - place]))}"]
    texts += ["--reference", write("all.jsonl", "\n".join(map(json.dumps, records)))]
    texts += ["--source", write("s", [["Your dog"] * 2]), "--missing", "skip", *arguments[5:]]
    found = json.loads(scoring("muda", *texts, "--format", "json"))
    note = "segments that are left out are missing from the context of later ones, too"
    assert (note in found["notes"]) == noted


def test_mistakes(scoring, arguments, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="nowhere_sm is not installed; install it with"):
        scoring("muda", *arguments, "--source-model", "nowhere_sm")
    blank = str(tmp_path / "blank")
    spacy.blank("fr").to_disk(blank)
    with pytest.raises(UserError, match="gives no parts of speech"):
        scoring("muda", *arguments, "--target-model", blank)
    with pytest.raises(UserError, match="--target-model: .* is of language fr, but --pair en-de n"):
        scoring("muda", *arguments, "--target-model", blank, "--pair", "en-de")
    with pytest.raises(UserError, match="--source-model: .* is of language fr, but --pair en-fr n"):
        scoring("muda", *arguments, "--source-model", blank)
    spacy.blank("de").to_disk(blank)
    with pytest.raises(UserError, match="gives no lemmas"):
        scoring("muda", *arguments, "--target-model", blank, "--pair", "en-de")
    with pytest.raises(UserError, match="give --reference once"):
        scoring("muda", *arguments, "--reference", arguments[2])

    def load(*names, **options):
        raise ImportError("The Russian lemmatizer\n needs pymorphy3")

    monkeypatch.setattr(spacy, "load", load)
    with pytest.raises(
        UserError, match="package or component that is missing: The Russian lemmatizer needs"
    ):
        scoring("muda", *arguments)
