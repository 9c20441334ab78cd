"""fairseq-docmt options: what it lists, and the page that is made from it."""

import pytest
import tiny

from fairseq_docmt import command_line, options
from fairseq_docmt.errors import UserError

PAGE = tiny.ROOT / "examples/guide/options.md"
BEGIN = "<!-- written by fairseq-docmt options --format markdown -->\n"


@pytest.fixture
def shown():
    """Run the command and return its output."""

    def run(*arguments):
        return tiny.run_main(command_line.main, "options", *arguments)

    return run


def test_the_page_is_what_the_command_writes(shown):
    intro, text = PAGE.read_text(encoding="utf-8").split(BEGIN)
    assert text.strip() == shown("--format", "markdown").strip()
    assert intro.startswith("# Options\n")


def test_an_option_of_a_task(shown):
    text = shown("--task", "sliding_window_translation")
    assert "  --window-size N\n      number of sentences of a window, the current" in text
    assert "  --decoding sequential|window|segment|overlap\n" in text
    assert "  --mark-document-start\n" in text  # of all document tasks
    assert "--max-document-tokens" not in text
    assert "\n  --source-lang" not in text  # of fairseq's translation


def test_options_of_an_architecture_have_its_sizes(shown):
    text = shown("--arch", "rnnsearch_512")
    assert "size of source embeddings (default: 512)" in text
    assert "size of source embeddings (default: 620)" in shown("--arch", "rnnsearch")
    cache = shown("--arch", "cache_rnn")
    assert "--cache-size N\n      number of slots of the cache; 0: no cache (default: 25)" in cache
    assert "--encoder-hidden-size" not in cache  # of rnnsearch
    memory = shown("--arch", "memory_transformer")
    assert "--context-side both|source|target" in memory
    assert "--dropout" not in memory  # of transformer


def test_a_default_of_zero_is_shown(shown):
    assert "the mean of all heads (default: 0)" in shown("--search", "regularized-head")


def test_a_task_and_an_architecture_are_listed_together(shown):
    text = shown("--task", "sentence_stream_translation", "--arch", "cache_rnn")
    assert text.index("--chunk-sentences") < text.index("--cache-size")
    assert shown("--task", "sentence_stream_translation", "--search", "CHUNK").count("\n  --") == 2


def test_options_of_fairseq_are_found(shown):
    text = shown("--search", "warmup_updates")
    assert "--lr-scheduler inverse_sqrt\n  --warmup-updates N\n" in text
    assert "(default: 4000)" in text
    assert "every command, generation\n  --lenpen" not in text
    assert "every command, generation\n  --lenpen X\n" in shown("--search", "lenpen")
    assert "--arch transformer\n" in shown("--search", "encoder-ffn-embed-dim")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--task", "translation"], "--task translation is no document task; choose from document"),
        (["--arch", "lstm"], "--arch lstm is no architecture of this package; choose from cache_r"),
        (["--search", "xyzzy"], "no option has xyzzy in its name or meaning; try another word"),
        (
            ["--search", "xyzzy", "--arch", "rfa_transformer"],
            "no option of rfa_transformer has xyzzy in its name or meaning; search without --task",
        ),
    ],
)
def test_mistakes(shown, arguments, message):
    with pytest.raises(UserError, match=message):
        shown(*arguments)


def test_the_list_is_written_to_a_file(shown, tmp_path):
    want = shown("--search", "regularized-head")
    assert shown("--search", "regularized-head", "--out", tmp_path / "new" / "list") == ""
    assert (tmp_path / "new" / "list").read_text(encoding="utf-8") == want


def test_every_option_has_a_meaning():
    """Fields that follow an option of fairseq have none, and no flag."""
    sections = options.all_sections()
    assert len({section.title for section in sections}) == len(sections) == 18
    for section in sections:
        assert section.summary.endswith("."), section.title
        assert section.options or section.title.endswith("g_transformer"), section.title
        assert all(option.meaning for option in section.options)
