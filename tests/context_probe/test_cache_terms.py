"""Questions that cache_terms.py cannot look up, because they are about another text."""

from types import SimpleNamespace

import cache_terms
import pytest
import torch

TERM = {"phenomenon": "term", "answer": "a", "alternatives": ["b"]}
WORDS = ["a", "b", "c"]


@pytest.fixture
def look_up(monkeypatch):
    """Look up questions in a document of two sentences, "a c" and "c b", in lines 3 and 4."""
    sample = {"id": torch.tensor([3, 4]), "target": torch.tensor([[0, 2], [2, 1]])}
    cache = SimpleNamespace(words=torch.tensor([[0, 1], [0, 1]]))
    weights = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]] * 2)
    documents = [SimpleNamespace(sample=sample)]
    monkeypatch.setattr(cache_terms, "documents_of", lambda task, split: documents)
    monkeypatch.setattr(cache_terms, "matching_of", lambda model, document: (cache, weights))
    task = SimpleNamespace(target_dictionary=SimpleNamespace(index=WORDS.index))
    return lambda *questions: cache_terms.look_up(None, task, "test", questions)


def test_slots_of_the_answer(look_up):
    found = look_up({**TERM, "line": 3}, {**TERM, "line": 4, "answer": "b", "alternatives": ["c"]})
    assert found == [(True, True, True), (True, False, True)]


@pytest.mark.parametrize(
    "question, message",
    [
        ({"line": 4}, "line 5 of test lacks the answer 'a'; give the questions of this split"),
        ({"line": 8}, "test has no sentence in line 9; give the questions of this split"),
        ({"line": 3, "phenomenon": "pronoun"}, "--probe has no questions about terms; make data"),
    ],
)
def test_questions_about_another_text(look_up, question, message):
    with pytest.raises(ValueError, match=message):
        look_up({**TERM, **question})
