"""JSON that Python cannot parse, because it is nested too deeply, is refused in every file of it.

Covers readers/record_files.py.
"""

from pathlib import Path

import pytest

from fairseq_docmt import text_form
from fairseq_docmt.data import supporting_words
from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import read_input
from fairseq_docmt.scoring.contrastive import command as contrastive
from fairseq_docmt.scoring.contrastive import formats
from fairseq_docmt.scoring.report import command as report
from fairseq_docmt.scoring.texts.test_set import Translations
from fairseq_docmt.scoring.words import ctxpro, tags
from fairseq_docmt.translate import exported
from fairseq_docmt.translate.journal import Journal

NESTED = "[" * 99999
TEXTS = Translations(DocumentIndex.from_lengths([1]), {}, [])

#: name of a file -> function that reads it
READERS = {
    "a.jsonl": lambda path: read_input(path, "system"),
    "set.jsonl": formats.read_set,
    "set.json": formats.read_set,
    "ctxpro.json": ctxpro.read_targets,
    "results.json": lambda path: report.read_contrastive([f"a={path}"]),
    "items.jsonl": lambda path: contrastive.read_verdicts(path, {}),
    "tags.jsonl": lambda path: tags.read([path], TEXTS),
    exported.INFO: lambda path: exported.read_info(str(Path(path).parent)),
    text_form.FILE: lambda path: text_form.read_text_forms(str(Path(path).parent)),
    "supporting": lambda path: [*supporting_words._read_file(path, 0, None)],
    "journal": lambda path: Journal(path, "run"),
}


@pytest.mark.parametrize("name", READERS)
def test_json_that_is_nested_too_deeply(tmp_path, name):
    path = tmp_path / name
    path.write_text(f'{{"a": {NESTED}\n')
    with pytest.raises(UserError, match=f"{name}.* (line 1|is damaged)"):
        READERS[name](str(path))
