"""Gains of tokens through context, at beginnings of sentences and of dropped pronouns."""

import gains
import pytest


def scored(words, own, other):
    """Return a sentence of cxmi; only ``own`` has the end symbol."""
    return {"words": words.split(), "without": [], "3": [*own, -9.0], "other-document:3": other}


def test_gains_at_beginnings_of_sentences():
    """Gains of 3 bits in a lower-case sentence, 2 of them at its beginning, and of 1 at the end."""
    one = scored("and He", [-1.0, -1.0], [-3.0, -2.0])
    two = scored("He ran", [-1.0, -2.0], [-1.0, -3.0])
    found = gains.at_beginnings([one, two])
    assert found == {"first_tokens": 1.0, "lower_case": 0.5, "lower_case_gain": 0.75}


@pytest.mark.parametrize(
    "words, source, places",
    [
        ("He saw his cat", "看见了猫", [0, 2]),
        ("He saw his cat", "他看见了猫", [2]),
        ("He saw his cat", "他看见了他的猫", []),
        ("he saw her", "他看见了猫", [2]),
        ("It was so@@ me", "好", [0]),
        ("we@@ lcome us", "好", [2]),
    ],
)
def test_pronouns_without_a_counterpart_in_the_source(words, source, places):
    assert list(gains.places_of_dropped_pronouns(words.split(), source)) == places


def test_gain_of_dropped_pronouns():
    """Two documents: a pronoun with 3 bits, and pronouns with 1 and 2."""
    sentences = [
        scored("I ran", [-1.0, -5.0], [-4.0, -9.0]),
        scored("I ran", [-1.0, -1.0], [-9.0, -9.0]),
        scored("it saw us", [-1.0, -1.0, -1.0], [-2.0, -7.0, -3.0]),
    ]
    found = gains.of_pronouns(sentences, ["跑", "我跑", "看见"], [0, 0, 1])
    assert found["pronouns"] == 3 and found["mean"] == pytest.approx(2)
    # Both documents are drawn together or one of them twice.
    assert (found["low"], found["high"]) == (1.5, 3.0)


def test_the_summary_reads_sources_and_documents(tmp_path):
    for name, text in (("zh", "跑\n\n看见\n"), ("en", "I ran\n\nit saw\n")):
        (tmp_path / name).write_text(text)
    usage = {
        "sentences": [
            scored("I ran", [-1.0, -5.0], [-4.0, -9.0]),
            scored("it saw", [-1.0, -1.0], [-2.0, -7.0]),
        ]
    }
    found = gains.summary(usage, tmp_path / "zh", tmp_path / "en", pronouns=True)
    assert found["dropped_pronouns"] == {"pronouns": 2, "mean": 2.0, "low": 1.0, "high": 3.0}
    assert found["beginnings"]["lower_case"] == 0.5
    assert list(gains.summary(usage, tmp_path / "zh", tmp_path / "en", False)) == ["beginnings"]
