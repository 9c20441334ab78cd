"""Full-document models use context as far as attention reaches."""

import probe
import pytest
import score
from scipy.stats import fisher_exact

WINDOW, LAYERS = 4, 2
EFFECTIVE_CONTEXT = 2 * WINDOW * LAYERS + WINDOW * LAYERS  # tokens, Herold and Ney (2023)
#: systems that read whole documents, window attention only as far as it reaches
READERS = {"lst", "group", "window"}


def is_worse(one, other):
    """Whether an accuracy is significantly worse than another; far questions are only some 50."""
    table = [[found.right, found.total - found.right] for found in (one, other)]
    return fisher_exact(table, alternative="less").pvalue < 0.01


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Outputs of full-document systems; accuracies of near and far answers."""
    folder = probe.folder_of(tmp_path_factory, "documents")
    systems = ["transformer", "lst", "group", "sentences", "window"]
    questions, found = probe.run_each(
        "run_documents.sh", folder, *systems, options=("--attention-window", WINDOW)
    )
    lines = (folder / "data" / "test.src").read_text().splitlines()

    def tokens_between(question):
        between = lines[question["line"] - question["distance"] + 1 : question["line"]]
        return sum(len(line.split()) + 1 for line in between)

    near = [q for q in questions if q["distance"] <= 2]
    far = [q for q in questions if tokens_between(q) > EFFECTIVE_CONTEXT]
    assert len(far) > 100
    outputs = {name: found[f"{name}_sequential-full-source"] for name in systems}
    return outputs, {
        name: [score.accuracy(part, output.hypotheses) for part in (near, far)]
        for name, output in outputs.items()
    }


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", ["pronoun", "term", "ellipsis"])
def test_documents_are_read_as_far_as_attention_reaches(documents, phenomenon):
    near, far = (
        {name: score.pooled(parts[i], phenomenon, 99) for name, parts in documents[1].items()}
        for i in (0, 1)
    )
    for questions, readers in ((near, READERS), (far, READERS - {"window"})):
        assert questions["transformer"].rate > 0.95
        for name in readers:
            assert questions[name].rate > 0.95
            assert not is_worse(questions[name], questions["transformer"])
    probe.assert_at_ceiling(far["window"])
    for questions in (near, far):
        probe.assert_at_ceiling(questions["sentences"])


@pytest.mark.system
@pytest.mark.parametrize(
    "system, equal", [("transformer", 0.9), ("lst", 0.9), ("group", 0.9), ("window", 0.8)]
)
def test_whole_sentences_are_written(documents, system, equal):
    """Far answers, out of reach of window attention, are a seventh of the questions."""
    probe.assert_whole_sentences(documents[0][system], equal)
