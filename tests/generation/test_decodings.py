"""What each decoding says of itself, and the table of decodings."""

from types import SimpleNamespace

import pytest
import tiny

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.decodings import SEARCHES, build_search, decoding_option

WINDOWS, DOCUMENTS, ROWS, STREAMS = (
    "sliding_window_translation",
    "full_document_translation",
    "document_rows_translation",
    "sentence_stream_translation",
)


def search_of(task_name, decoding=None, window_size=None):
    """A search of a task; other tasks than windows have no size."""
    task = SimpleNamespace(
        task_name=task_name,
        target_dictionary=tiny.dictionary(5),
        options={} if window_size is None else {"window_size": window_size},
        cfg=SimpleNamespace(gold_context=False),
    )
    return build_search(task, decoding)


@pytest.mark.parametrize(
    "task_name, decoding, size, window, true",
    [
        (WINDOWS, "sequential", 3, 3, "keeps_order one_by_one reads_prefix"),
        (WINDOWS, "sequential", 1, 1, "single one_by_one reads_prefix"),
        (WINDOWS, "window", 3, 3, "joint"),
        (WINDOWS, "window", 1, 1, "joint single"),
        (WINDOWS, "segment", 3, None, "joint"),
        (WINDOWS, "segment", 1, None, "joint"),
        (DOCUMENTS, "segment", None, None, "joint"),
        (DOCUMENTS, "sequential", None, None, "one_by_one reads_prefix"),
        (DOCUMENTS, "sequential-full-source", None, None, "one_by_one reads_prefix"),
        (ROWS, "iterative", None, None, "single reads_memories"),
        (STREAMS, "stream", None, 1, "single keeps_order one_by_one"),
    ],
)
def test_decodings_describe_themselves(task_name, decoding, size, window, true):
    search = search_of(task_name, decoding, size)
    assert (search.decoding, search.window) == (decoding, window)
    names = ("joint", "single", "keeps_order", "one_by_one", "reads_prefix", "reads_memories")
    assert {name for name in names if getattr(search, name)} == set(true.split())


@pytest.mark.parametrize(
    "task_name, default", [(WINDOWS, "sequential"), (DOCUMENTS, "segment"), (STREAMS, "stream")]
)
def test_the_first_of_a_task_is_its_default(task_name, default):
    assert search_of(task_name).decoding == default
    text = decoding_option(task_name).metadata["help"]
    assert text.count("; default)") == 1
    for search in SEARCHES[task_name]:
        end = "; default)" if search.decoding == default else ")"
        assert f"{search.decoding} ({search.description}{end}" in text


def test_a_decoding_of_another_task_is_refused():
    with pytest.raises(UserError) as raised:
        search_of(DOCUMENTS, "stream")
    assert str(raised.value) == (
        "--decoding stream is not for --task full_document_translation; choose from segment, "
        "sequential, sequential-full-source"
    )
