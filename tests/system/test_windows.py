"""Window models use context, and no model without context exceeds the ceiling."""

import probe
import pytest
import score

REACH = 3  # windows of 4 sentences
SYSTEMS = ["window4_window", "window4_sequential"]
#: options of run.sh; random matrices drawn anew at every update take longer to learn with
ARCHITECTURES = {
    "transformer": (),
    "rfa_transformer": ("--arch", "rfa_transformer", "--updates", "2000"),
}


def outputs(folder, options):
    """Questions, and outputs of the systems that run.sh trains."""
    questions, found = probe.run("run.sh", folder, *options)
    # Window decoding has no output outside the window: count answers shown in its sources.
    for question in questions:
        question["distance"] = question["distance_to_first"]
    return questions, found


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Questions and outputs by architecture, each trained at the first request."""
    known = {}

    def train(architecture):
        if architecture not in known:
            folder = tmp_path_factory.mktemp(architecture)
            known[architecture] = outputs(folder, ARCHITECTURES[architecture])
        return known[architecture]

    return train


@pytest.fixture(scope="module")
def accuracies(trained):
    """Accuracies of one output."""

    def accuracies(architecture, output):
        questions, found = trained(architecture)
        return score.accuracy(questions, found[output].hypotheses)

    return accuracies


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", probe.PHENOMENA)
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_windows_use_their_context(accuracies, architecture, system, phenomenon):
    assert score.pooled(accuracies(architecture, system), phenomenon, REACH).rate > 0.9


@pytest.mark.system
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_windows_write_whole_sentences(trained, architecture, system):
    probe.assert_whole_sentences(trained(architecture)[1][system], equal=0.85)


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", probe.PHENOMENA)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_without_context_the_ceiling_holds(accuracies, architecture, phenomenon):
    found = accuracies(architecture, "sentence_window")
    probe.assert_at_ceiling(score.pooled(found, phenomenon, 99))


@pytest.mark.system
@pytest.mark.parametrize("phenomenon", probe.PHENOMENA)
def test_rfa_reaches_the_accuracy_of_the_transformer(accuracies, phenomenon):
    softmax, rfa = (
        score.pooled(accuracies(architecture, "window4_window"), phenomenon, REACH).rate
        for architecture in ("transformer", "rfa_transformer")
    )
    assert rfa > softmax - 0.03
