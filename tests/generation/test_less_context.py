"""Messages about sentences that are decoded with less source context than asked for.

Covers DocumentSearch.count_short_windows, and ``parts`` and ``source_spans`` of the tasks.
"""

import pytest
import tiny

DOCS = tiny.documents((1, 5, 2, 7), 2)
WINDOWS = ["--task", "sliding_window_translation"]
SIZES = [[len(sentence.split()) + 1 for sentence in doc] for doc in DOCS]
LIMIT = 12  # two sentences on average, three seldom
SHORT = "windows that were read with less source context or none, because they would exceed the "
SHORT += "source positions of the model (--max-source-positions): "


def fits(sizes) -> bool:
    return sum(sizes) <= LIMIT


def short_windows() -> int:
    """Count the windows of up to 3 sentences that are too long, in a loop over sentences."""
    ends = [(sizes, end) for sizes in SIZES for end in range(1, len(sizes) + 1)]
    return sum(not fits(sizes[max(0, end - 3) : end]) for sizes, end in ends)


@pytest.mark.parametrize("decoding", ["window", "sequential", "overlap"])
@pytest.mark.parametrize("limit", [LIMIT, 40])
def test_windows(binarised, window_checkpoint, caplog, decoding, limit):
    options = [*WINDOWS, "--decoding", decoding, "--max-source-positions", str(limit)]
    tiny.generate(binarised, window_checkpoint, *options)
    wanted = [f"{SHORT}{short_windows()}"] if limit == LIMIT else []
    assert short_windows() > 3
    assert [text for text in caplog.messages if text.startswith(SHORT)] == wanted


@pytest.mark.parametrize("buffer", ["1", "2", "100"])
def test_windows_of_interactive_input(binarised, window_checkpoint, caplog, buffer):
    """Context sentences may come from earlier buffers."""
    options = [*WINDOWS, "--decoding", "window", "--max-source-positions", str(LIMIT)]
    lines = tiny.text_of(DOCS).splitlines()
    tiny.interactive(binarised, window_checkpoint, lines, *options, "--buffer-size", buffer)
    found = [text for text in caplog.messages if text.startswith(SHORT)]
    assert sum(int(text[len(SHORT) :]) for text in found) == short_windows()


@pytest.mark.parametrize("limit", [LIMIT, 40])
def test_segments(binarised, window_checkpoint, caplog, limit):
    options = [*WINDOWS, "--decoding", "segment", "--max-source-positions", str(limit)]
    tiny.generate(binarised, window_checkpoint, *options)
    wanted = sum(-(-len(sizes) // 3) for sizes in SIZES)
    found = [text for text in caplog.messages if text.startswith(f"{wanted} windows are cut into ")]
    assert len(found) == (limit == LIMIT)


@pytest.mark.parametrize("limit", [LIMIT, 80])
def test_documents(binarised, barely_trained, caplog, limit):
    caplog.set_level("INFO")
    options = ["--task", "full_document_translation"]
    checkpoint = barely_trained(*options)
    tiny.generate(binarised, checkpoint, *options, "--max-source-positions", str(limit))
    found = [text for text in caplog.messages if text.startswith("4 documents are cut into ")]
    assert len(found) == (limit == LIMIT)


@pytest.mark.parametrize("limit", [LIMIT, 40])
def test_next_sentences(binarised, barely_trained, caplog, limit):
    caplog.set_level("INFO")
    checkpoint = barely_trained(*WINDOWS, "--window-size", "1", "--next-sentences", "2")
    tiny.generate(binarised, checkpoint, *WINDOWS, "--max-source-positions", str(limit))
    short = sum(not fits(sizes[at : at + 3]) for sizes in SIZES for at in range(len(sizes)))
    assert short > 3
    message = f"{short} of 15 windows are read with fewer than --next-sentences 2, because they "
    assert any(text.startswith(message) for text in caplog.messages) == (limit == LIMIT)
