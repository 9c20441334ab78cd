"""Validation BLEU says once what it is of, if not of words."""

import pytest

from fairseq_docmt.tasks._validation_bleu import ValidationBleu


@pytest.mark.parametrize(
    "references, tokenized, said",
    [
        (["re@@ ad it", "x"], False, "of subwords (such as re@@), and higher than that of text; "),
        (["▁read ▁it"], True, "of subwords (such as ▁read), and"),
        (["don &apos;t", "x"], False, "of tokens with entities (such as &apos;), each of which"),
        (["don &apos;t", "x"], True, ""),
        (["don't & so", "R&D; x"], False, ""),
    ],
)
def test_what_bleu_is_of(caplog, references, tokenized, said):
    bleu = ValidationBleu()
    bleu._warn(["x y"], tokenized)
    for _ in range(2):
        bleu._warn(references, tokenized)
    assert len(caplog.messages) == bool(said)
    assert said in "".join(caplog.messages)
