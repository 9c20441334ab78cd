"""Significance tests: equality with sacreBLEU's functions, and the same figures in any blocks."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.corpus import corpus_metrics, significance


@pytest.fixture(scope="module")
def texts():
    """References and two systems of 203 segments: no multiple of 32."""
    generator = random.Random(5)
    words = "the cat sat on a mat and Paul saw it there today .".split()
    reference = [" ".join(generator.choices(words, k=generator.randint(4, 14))) for _ in range(203)]

    def worse(rate):
        return [
            " ".join(w if generator.random() > rate else "wrong" for w in line.split())
            for line in reference
        ]

    return {"a": worse(0.3), "b": worse(0.32)}, [reference, worse(0.1)]


@pytest.mark.parametrize("build", [BLEU, CHRF])
@pytest.mark.parametrize("test, kind", significance.PAIRED_TESTS.items())
def test_paired_tests_are_those_of_sacrebleu(texts, monkeypatch, build, test, kind):
    systems, references = texts
    _, wanted = PairedTest(list(systems.items()), {"": build()}, references, kind, 150)()
    row = next(rows for label, rows in wanted.items() if label != "System")[1]
    monkeypatch.setattr(corpus_metrics, "BLOCK", 50)
    statistics = corpus_metrics.statistics_of(systems, references, build())
    found = significance.paired_tests(statistics, build(), test, 150)["b"]
    assert 0.01 < found.p == row.p_value
    assert found.interval == (None if row.ci is None else float(row.ci))


def test_ties_are_those_of_sacrebleu():
    """The mean length of three references is no exact binary number: rounding decides ties."""
    generator = random.Random(0)
    found = []
    for _ in range(12):
        lines = [[" ".join(generator.choices("abcdefgh", k=generator.randint(1, 9)))
                  for _ in range(51)] for _ in range(3)]  # fmt: skip
        systems = {
            name: [
                " ".join(w if generator.random() > rate else "x" for w in line.split())
                for line in lines[0]
            ]
            for name, rate in (("a", 0.3), ("b", 0.35))
        }
        _, wanted = PairedTest(list(systems.items()), {"": TER()}, lines, "ar", 100)()
        statistics = corpus_metrics.statistics_of(systems, lines, TER())
        p = significance.paired_tests(statistics, TER(), "randomisation", 100)["b"].p
        found.append((p, wanted["TER"][1].p_value))
    assert all(p == wanted for p, wanted in found)


def test_statistics_of_blocks_are_those_of_the_whole(texts, monkeypatch):
    systems, references = texts
    wanted = np.array(BLEU()._extract_corpus_statistics(systems["b"], references))
    monkeypatch.setattr(corpus_metrics, "BLOCK", 7)
    found = corpus_metrics.statistics_of(systems, references, BLEU())["b"]
    assert (found == wanted).all()


def test_the_seed_is_that_of_sacrebleu(texts, monkeypatch):
    systems, references = texts
    statistics = corpus_metrics.statistics_of(systems, references, BLEU())
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    _, wanted = PairedTest(list(systems.items()), {"": BLEU()}, references, "bs", 40)()
    found = significance.paired_tests(statistics, BLEU(), "bootstrap", 40)["b"]
    assert found.p == wanted["BLEU"][1].p_value and found.procedure == "bs:40|seed:7"
    for seed in ("x", "-1", "1.5", ""):
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        with pytest.raises(UserError, match=f"SACREBLEU_SEED must be .* or none, got '{seed}'"):
            significance.paired_tests(statistics, BLEU(), "bootstrap", 40)
    monkeypatch.setenv("SACREBLEU_SEED", "None")
    assert significance.paired_tests(statistics, BLEU(), "bootstrap", 40)["b"].procedure == (
        "bs:40|seed:none"
    )
