"""Fixtures: small documents in files."""

import os

import pytest
import tiny

from fairseq_docmt import command_line


@pytest.fixture
def scoring():
    """Run the command and return its output."""

    def run(*arguments):
        return tiny.run_main(command_line.main, *arguments)

    return run


@pytest.fixture
def write(tmp_path):
    """Write documents or text to a file and return its path."""

    def write(name, documents):
        text = documents if isinstance(documents, str) else tiny.text_of(documents)
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def pipe():
    """Return a function that gives text as bash does for ``<(cat FILE)``: it is read once."""

    def pipe(text):
        read, written = os.pipe()
        os.write(written, text.encode())
        os.close(written)
        return f"/dev/fd/{read}"

    return pipe
