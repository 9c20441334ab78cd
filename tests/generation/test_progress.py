"""The progress bar counts each sentence once, also those of a batch that is not finished."""

import pytest

from fairseq_docmt.generation import progress


@pytest.fixture
def shown(monkeypatch):
    """Show the bar at once."""
    monkeypatch.setattr(progress, "DELAY", 0)


def test_sentences_within_a_batch_are_not_counted_again(shown, capsys):
    bar = progress.DecodingProgress(10, hidden=False)
    bar.advance(2)
    bar.advance(1)
    bar.finish_batch(4)
    bar.finish_batch(3)  # a batch without intermediate steps
    bar.advance(3)
    bar.finish_batch(2)  # padding sentences may have been counted
    bar.close()
    assert "translating: 100%" in capsys.readouterr().err


def test_a_hidden_bar_prints_nothing(shown, capsys):
    bar = progress.DecodingProgress(10, hidden=True)
    bar.advance(5)
    bar.finish_batch(10)
    bar.close()
    assert capsys.readouterr().err == ""
