"""Progress of decoding: every sentence counts once, also within long documents."""

import pytest
import tiny

from fairseq_docmt.generation import search


@pytest.fixture
def bars(monkeypatch):
    """Bars of the commands that are run, shown from the start."""
    made = []

    class Bar(search.tqdm):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **{**options, "delay": 0})
            self.steps, self.hidden = [], self.disable
            made.append(self)

        def update(self, n=1):
            self.steps.append(n)
            return super().update(n)

    monkeypatch.setattr(search, "tqdm", Bar)
    return made


TASKS = {
    "document": ["--task", "full_document_translation"],
    "window": ["--task", "sliding_window_translation"],
}


@pytest.mark.parametrize(
    "kind, decoding, steps",
    [
        ("window", "sequential", None),
        ("window", "segment", None),
        ("document", "segment", None),
        ("document", "sequential", [4, 3, 2, 2, 2, 1, 1]),  # documents of 1, 5, 2 and 7 sentences
        ("document", "sequential-full-source", [4, 3, 2, 2, 2, 1, 1]),
    ],
)
def test_every_sentence_counts_once(binarised, request, bars, capsys, kind, decoding, steps):
    checkpoint = request.getfixturevalue(f"{kind}_checkpoint")
    options = [*TASKS[kind], "--decoding", decoding, "--max-tokens", "4000"]
    options += ["--override-checkpoint-options", "--max-document-tokens", "400"] if steps else []
    from fairseq_cli import generate

    arguments = [binarised, "--user-dir", tiny.USER_DIR, "--path", checkpoint, "--cpu", *options]
    tiny.run_main(generate.cli_main, *arguments, "--beam", "1", "--max-len-b", "8")
    bar = [bar for bar in bars if bar.total == 15][-1]
    assert bar.n == 15 and not bar.hidden
    assert [step for step in bar.steps if step] == steps or not steps
    assert "translating: 100%" in capsys.readouterr().err


def test_it_can_be_hidden(binarised, window_checkpoint, bars, capsys):
    tiny.generate(binarised, window_checkpoint, *TASKS["window"])  # with --no-progress-bar
    assert "translating" not in capsys.readouterr().err
    assert bars and all(bar.hidden for bar in bars)


def test_sentences_within_a_batch_are_not_counted_again(monkeypatch, capsys):
    monkeypatch.setattr(search, "DELAY", 0)
    bar = search.DecodingProgress(10, hidden=False)
    bar.advance(2)
    bar.advance(1)
    bar.finish_batch(4)
    bar.finish_batch(3)  # a batch without intermediate steps
    bar.advance(3)
    bar.finish_batch(2)  # padding sentences may have been counted
    bar.close()
    assert "translating: 100%" in capsys.readouterr().err
