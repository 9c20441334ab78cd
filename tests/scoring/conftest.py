"""Fixtures: small documents in files."""

import pytest
import tiny

from fairseq_docmt.scoring import __main__


@pytest.fixture
def scoring():
    """Runs the command; returns what it prints."""

    def run(*arguments):
        return tiny.run_main(__main__.main, *arguments)

    return run


@pytest.fixture
def write(tmp_path):
    """Writes documents, or text as it is, to a file of a name; returns its path."""

    def write(name, documents):
        text = documents if isinstance(documents, str) else tiny.text_of(documents)
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write
