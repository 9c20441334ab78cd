"""Options of training that decoding finds in the checkpoint."""

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.tasks._stored_options import KEY, StoredOptions

STORED = {"task": "windows", "size": 3, "sep": True, "ratio": 1.5}


def stored(task="windows", **given):
    defaults = {"size": 2, "sep": False, "marks": False}
    given = {"size": None, "sep": None, "marks": None, **given}
    return StoredOptions(task, given, defaults, {"ratio": None}, {"size": 1})


def adopted(options, state=STORED, **how):
    return options.adopt({KEY: state}, **how)


def test_training_uses_given_values_or_defaults():
    wanted = {"task": "windows", "size": 5, "sep": False, "marks": False, "ratio": None}
    assert stored(size=5).chosen() == wanted


def test_decoding_uses_the_values_of_training():
    """An option that the checkpoint does not have yet has its default."""
    wanted = {**STORED, "marks": False}
    assert adopted(stored()) == wanted
    assert adopted(stored(size=3, sep=True)) == wanted
    with pytest.raises(UserError, match="^--marks True contradicts .* trained with --marks False"):
        adopted(stored(marks=True))


def test_contradictions_are_refused():
    with pytest.raises(UserError, match="^--size 2 contradicts the checkpoint.* with --size 3;"):
        adopted(stored(size=2))
    with pytest.raises(UserError, match="trained with --task windows, not documents; use --task w"):
        adopted(stored("documents"))


def test_the_command_line_wins_on_request():
    """Options that are not given come from the checkpoint if the task has them."""
    found = adopted(stored(size=2), override=True)
    assert found == {"task": "windows", "size": 2, "sep": True, "marks": False, "ratio": 1.5}
    others = {**STORED, "limit": 7}
    found = adopted(stored("documents", marks=True), others, override=True)
    assert found == {"task": "documents", "size": 3, "sep": True, "marks": True, "ratio": 1.5}


def test_checkpoints_of_other_tasks_are_sentence_level():
    """Except for options given on the command line."""
    assert stored().adopt({})["size"] == 1
    assert stored(size=4).adopt({})["size"] == 4
    assert stored(sep=True).adopt({})["sep"] is True


def test_ensembles_agree():
    """Options must agree; values estimated in training may differ."""
    options = stored()
    adopted(options, {**STORED, "marks": False})
    adopted(options)  # has no marks yet, so it was trained without
    options = stored()
    adopted(options)
    assert adopted(options, {**STORED, "ratio": 1.4})["ratio"] == 1.4
    with pytest.raises(UserError, match="must agree in --size: number 1 .* 3, number 3 with 4;"):
        adopted(options, {**STORED, "size": 4})


def test_ensembles_agree_whose_first_checkpoint_gives_the_options():
    """As in Python, where nobody gave an option."""
    options = stored(size=3)
    adopted(options)
    for other, what in ({"size": 4}, "size: .* 3, .* 4;"), ({"task": "rows"}, "task: .* rows;"):
        with pytest.raises(UserError, match=f"^checkpoints of one ensemble must agree in --{what}"):
            adopted(options, {**STORED, **other})


@pytest.mark.parametrize(
    "states", [({KEY: STORED}, {}), ({}, {KEY: STORED})], ids=["last", "first"]
)
def test_ensembles_with_a_checkpoint_of_another_task_agree(states):
    """It is sentence level, unless options are given."""
    options = stored()
    options.adopt(states[0])
    with pytest.raises(UserError, match="must agree in --size: .*(1, .* 3|3, .* 1);"):
        options.adopt(states[1])
    options = stored(size=3, sep=True)
    assert [options.adopt(state)["ratio"] for state in states][-1] == 1.5
