"""Contrastive accuracy: values computed by hand, and the rules of the published scripts."""

import itertools
import random

import numpy as np
import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.contrastive.accuracy import by_label, judge, summarise
from fairseq_docmt.scoring.contrastive.formats import read_set
from fairseq_docmt.scoring.contrastive.items import Item


def item(texts: str, correct: int = 0, **labels) -> Item:
    """An item whose candidates are single letters."""
    return Item(["s"], [[letter] for letter in texts], correct, labels)


@pytest.mark.parametrize(
    "texts, correct, scores, equal, want",
    [
        # candidates, right one, scores, merged -> (correct, tie, chance)
        ("ab", 0, [-1, -2], "merged", (True, False, 1 / 2)),
        ("ab", 1, [-1, -2], "merged", (False, False, 1 / 2)),
        ("ab", 0, [-1, -1], "merged", (False, True, 1 / 2)),  # a tie is wrong
        ("abc", 2, [-1, -1, -2], "merged", (False, False, 1 / 3)),  # others tie: no matter
        ("abc", 0, [-1, -2, -2], "merged", (True, False, 1 / 3)),
        ("aab", 0, [-1, -1, -2], "merged", (True, False, 1 / 2)),  # twice right is once right
        ("aab", 1, [-1, -1, -2], "merged", (True, False, 1 / 2)),
        ("abb", 0, [-1, -2, -2], "merged", (True, False, 1 / 2)),
        ("aab", 0, [-1, -1, -1], "merged", (False, True, 1 / 2)),
        ("aab", 0, [-1, -1, -2], "wrong", (False, True, 0)),
        ("aab", 0, [-1, -1.0000001, -2], "wrong", (False, True, 0)),  # equal but for rounding
        ("aab", 1, [-1, -1.0000001, -2], "wrong", (False, True, 0)),
        ("aab", 0, [-1, -1.0000001, -0.5], "wrong", (False, False, 0)),
        ("aa", 0, [-1, -1.0000001], "wrong", (False, True, 0)),
        ("abb", 0, [-1, -2, -2], "wrong", (True, False, 1 / 2)),
        ("aa", 0, [-1, -1], "merged", (False, True, 0)),  # nothing to tell apart
        ("aa", 0, [-1, -1], "wrong", (False, True, 0)),
        ("aa", 0, [-1, -1.1], "first", (True, False, 1)),  # as in the script of Voita et al.
        ("aa", 1, [-1, -1.1], "first", (False, True, 0)),
        ("aab", 0, [-1, -1, -1], "first", (False, True, 1 / 2)),
    ],
)
def test_verdicts(texts, correct, scores, equal, want):
    assert judge("here", item(texts, correct), scores, equal) == want


@pytest.mark.parametrize("score", [float("nan"), float("-inf"), float("inf")])
def test_a_score_without_meaning_is_refused(score):
    with pytest.raises(UserError, match="set: item 3: the score of candidate 1 is -?(nan|inf)"):
        judge("set: item 3", item("ab"), [0.0, score])


def test_summary_and_labels():
    items = [item("ab", distance=d) for d in ("10", "2", ">3", "2")]
    scores = [[1, 0], [0, 0], [0, 1], [1, 0]]
    verdicts = [judge("", one, s) for one, s in zip(items, scores)]
    total = summarise(verdicts)
    assert (*total, total.accuracy) == (4, 2, 1, 0.5, 0.5)
    found = by_label(items, verdicts)["distance"]
    assert list(found) == ["2", "10", ">3"]
    assert {d: a.accuracy for d, a in found.items()} == {"2": 0.5, "10": 1, ">3": 0}


@pytest.mark.parametrize("equal", ["merged", "wrong", "first"])
@pytest.mark.parametrize("texts", ["ab", "abc", "aab", "abb", "abac", "aa"])
def test_chance_is_the_mean_over_all_orders_of_the_texts(texts, equal):
    """A scorer that guesses gives each text a place in a random order."""
    names = sorted(set(texts))
    orders = list(itertools.permutations(range(len(names))))
    one = item(texts)
    found = [
        judge("", one, [float(order[names.index(t)]) for t in texts], equal) for order in orders
    ]
    mean = np.mean([verdict.correct for verdict in found])
    assert found[0].chance == pytest.approx(mean)


# ---- published rules, written again ------------------------------------------------------------


def rule_of_voita(items, losses) -> float:
    """Voita et al. (2019), evaluate_consistency.py: the first of the smallest losses."""
    ends = np.cumsum([0] + [len(one.candidates) for one in items])
    groups = [losses[a:b] for a, b in zip(ends[:-1], ends[1:])]
    return np.mean([np.argmin(g) == one.correct for g, one in zip(groups, items)])


def rule_of_contrapro(items, losses) -> float:
    """Müller et al. (2018), evaluate.py: the reference, which comes first, beats all others."""
    rest, correct = iter(losses), 0
    for one in items:
        reference = next(rest)
        others = [next(rest) for _ in one.candidates[1:]]
        correct += all(reference < other for other in others)
    return correct / len(items)


def accuracy_of(items, losses, equal="merged"):
    rest = iter(losses)
    scores = [[-next(rest) for _ in one.candidates] for one in items]
    return summarise([judge("", one, s, equal) for one, s in zip(items, scores)])


def losses_without_ties(items, generator):
    return [generator.random() for one in items for _ in one.candidates]


@pytest.mark.parametrize("seed", range(5))
def test_agrees_with_the_published_rules(seed):
    generator = random.Random(seed)
    sizes = [generator.randint(2, 6) for _ in range(40)]
    anywhere = [item("abcdef"[:n], generator.randrange(n)) for n in sizes]
    first = [item("abcdef"[:n]) for n in sizes]
    losses = losses_without_ties(first, generator)
    assert accuracy_of(anywhere, losses).accuracy == rule_of_voita(anywhere, losses)
    assert accuracy_of(first, losses, equal="wrong").accuracy == rule_of_contrapro(first, losses)
    # With few different losses there are ties, which the rule for ContraPro counts as wrong, too.
    coarse = [int(3 * loss) for loss in losses]
    found = accuracy_of(first, coarse, equal="wrong")
    assert found.ties > 0
    assert found.accuracy == rule_of_contrapro(first, coarse)


def test_a_constant_scorer_is_never_right(shared_data):
    folder = shared_data / "voita-consistency-enru"
    chances = {}
    for name in ("deixis_test", "lex_cohesion_test", "ellipsis_infl", "ellipsis_vp"):
        items = read_set(str(folder / f"{name}.json"))
        losses = [1.0 for one in items for _ in one.candidates]
        found = accuracy_of(items, losses)
        assert (found.correct, found.ties) == (0, len(items))
        # The published rule finds it perfect where the right candidate is always the first.
        assert rule_of_voita(items, losses) == (
            1 if name[0] != "l" else pytest.approx(0.4587, 1e-3)
        )
        chances[name] = round(100 * found.chance, 1)
        random_losses = losses_without_ties(items, random.Random(1))
        # Copies of a text with losses of their own: only merged items may differ.
        copies = sum(len(set(map(tuple, one.candidates))) < len(one.candidates) for one in items)
        difference = accuracy_of(items, random_losses).correct / len(items)
        difference -= rule_of_voita(items, random_losses)
        assert abs(difference) * len(items) <= copies
    assert chances == {
        "deixis_test": 50.0,
        "lex_cohesion_test": 45.9,
        "ellipsis_infl": 20.6,
        "ellipsis_vp": 9.7,
    }
