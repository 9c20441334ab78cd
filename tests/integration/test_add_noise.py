"""Noise in the round trips of DocRepair: examples/voita2019_docrepair/add_noise.py."""

import add_noise
import pytest

LINES = ["a b c d e", "", "a a a"] * 400


def test_share_and_place_of_random_words():
    found = list(add_noise.noisy(LINES, ["x", "y"], 0.25, 1))
    pairs = [pair for a, b in zip(LINES, found) for pair in zip(a.split(), b.split())]
    assert [len(line.split()) for line in found] == [len(line.split()) for line in LINES]
    changed = [new for old, new in pairs if new != old]
    assert 0.22 < len(changed) / len(pairs) < 0.28  # 3,200 words: 0.25 and four deviations
    assert 0.42 < changed.count("x") / len(changed) < 0.58
    assert found == list(add_noise.noisy(LINES, ["x", "y"], 0.25, 1))
    assert found != list(add_noise.noisy(LINES, ["x", "y"], 0.25, 2))
    assert list(add_noise.noisy(LINES, ["x"], 0.0, 1)) == LINES


@pytest.mark.parametrize("end", ["\n", ""])
def test_command(tmp_path, end):
    (tmp_path / "in").write_text(f"a\u2028 b\n\nc{end}")
    (tmp_path / "dict").write_text("a 3\nmadeupword0000 0\nb 1 #fairseq:overwrite\n")
    arguments = [
        str(tmp_path / "in"),
        "--out",
        str(tmp_path / "out"),
        "--dictionary",
        str(tmp_path / "dict"),
    ]
    add_noise.main([*arguments, "--probability", "0.99"])
    lines = (tmp_path / "out").read_text().split("\n")
    assert len(lines) == 4 and lines[1] == "" and lines[2] in "ab"
    assert add_noise.read_words(str(tmp_path / "dict")) == ["a", "b"]


@pytest.mark.parametrize(
    "dictionary, probability, message",
    [
        ("a 3\n", "1.5", "--probability must be from 0 to 1, got 1.5"),
        ("a 3\nb\n", "0.1", "dict, line 2 is not a word with its count: 'b'"),
        ("a 3\nb \n", "0.1", "dict, line 2 is not a word with its count: 'b '"),
        ("madeupword0000 0\n", "0.1", "dict has no words"),
    ],
)
def test_mistakes(tmp_path, dictionary, probability, message):
    (tmp_path / "in").write_text("a\n")
    (tmp_path / "dict").write_text(dictionary)
    arguments = [
        str(tmp_path / "in"),
        "--out",
        str(tmp_path / "out"),
        "--dictionary",
        str(tmp_path / "dict"),
    ]
    with pytest.raises(SystemExit, match=message):
        add_noise.main([*arguments, "--probability", probability])
    with pytest.raises(SystemExit, match="--seed must not be negative, got -1"):
        add_noise.main([*arguments, "--seed", "-1"])
    assert not (tmp_path / "out").exists()
