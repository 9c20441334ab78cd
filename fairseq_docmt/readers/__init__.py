"""Readers of translated documents in the formats in which people publish them.

:func:`read_input` detects the format by the content of a file, which it reads once, so that
``<(command)`` works.  Formats with several texts take the name of one of them after the file:
``FILE#NAME``.
"""

import argparse
import json
import re
from pathlib import Path
from typing import List, Optional, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import records, wmt_xml
from fairseq_docmt.readers.files import lines_of, read_text, refuse_long
from fairseq_docmt.readers.inputs import Document, Documents, Input, Lines, Output

__all__ = ["Document", "Documents", "Input", "Lines", "Output", "read_docids", "read_input"]
__all__ += ["refuse_unknown"]

_OUTPUT_LINE = re.compile(r"^([DHT])-(\d+)\t(?:[^\t\n]*\t)?([^\t\n]*)$", flags=re.M)


#: Beginning of the SGM files of older WMT tasks and of other mark-up.
_MARKUP = re.compile(r"\s*<(!doctype|refset|srcset|tstset|mteval|doc|seg|html)\b", flags=re.I)


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option whose value is ``plain`` of :func:`read_input`."""
    parser.add_argument(
        "--input-format",
        choices=["auto", "text"],
        default="auto",
        help="text: read all files as one sentence per line; default: auto, by their content",
    )


def read_input(path: str, role: str, name: Optional[str] = None, plain: bool = False) -> Input:
    """Read a text of a test set.

    Args:
        path: file, or ``FILE#NAME`` for the text ``NAME`` of a file with several.
        role: ``source``, ``reference`` or ``system``; decides which text of a file is meant.
        name: name of the system, for files with several systems.
        plain: whether the file is plain text, whatever it looks like.

    Raises:
        UserError: the file is missing, empty, not UTF-8 or not in its format, does not say which
            of its texts is meant, or is an output of ``fairseq-generate`` but no system.
    """
    path, chosen = _selection(path)
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path} has no text; check the command that wrote it")
    found = Lines(path, lines_of(text)) if plain else _by_content(text, path, role, name, chosen)
    if isinstance(found, Documents):
        for document in found.documents:
            refuse_long(f"{path}: document {document.id}", document.segments)
    else:
        refuse_long(path, found.lines if isinstance(found, Lines) else found.hypotheses.values())
    return found


def _by_content(text: str, path: str, role: str, name: Optional[str], chosen: Optional[str]):
    """Read a text in the format that its content shows, see :func:`read_input`."""
    wanted = records.Wanted(role, name, chosen)
    if wmt_xml.is_xml(text):
        return wmt_xml.read(text, path, wanted)
    if records.is_jsonl(text):
        return records.read_jsonl(text, path, wanted)
    if records.is_tsv(text):
        return records.read_tsv(text, path, wanted)
    if chosen:
        raise UserError(f"{path} is plain text, which has no {chosen}; remove #{chosen}")
    if re.search(r"^[DHT]-\d+\t", text, flags=re.M):
        if role != "system":
            raise UserError(f"{path} is an output of fairseq-generate; give the {role} as text")
        return _output(text, path)
    refuse_unknown(text, path)
    return Lines(path, lines_of(text))


def refuse_unknown(text: str, path: str) -> None:
    """Refuse a text in a format that is not read.

    Raises:
        UserError: the text is no plain text.
    """
    kind = None
    header = text.lstrip("\n").split("\n", 1)[0]
    if _is_json(text):
        kind = "JSON in another form than one object per line"
    elif _MARKUP.match(text):
        kind = "SGM or HTML"
    elif records.is_header(header.split("\t")):
        kind = "a table without a column doc_id"
    elif any(records.is_header(header.split(mark)) for mark in ",;"):
        kind = "a table separated by commas or semicolons"
    if kind:
        raise UserError(
            f"{path} seems to be {kind}; convert it to JSON lines with doc_id and text, or give "
            "--input-format text if it is one sentence per line"
        )


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON array or object over one or several lines."""
    if text.lstrip()[0] not in "[{":
        return False
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) or any(isinstance(each, (dict, list, str)) for each in found)


def read_docids(path: str) -> List[str]:
    """Read the document of each line; of several columns, the last one counts (as in WMT).

    Raises:
        UserError: the file is missing, not UTF-8, empty or has a blank line.
    """
    text = read_text(path)
    if not text.strip():
        raise UserError(f"{path} has no text; check the command that wrote it")
    ids = [line.rsplit("\t", 1)[-1].strip() for line in lines_of(text)]
    if "" in ids:
        raise UserError(f"{path}: line {ids.index('') + 1} has no document id")
    return ids


def _selection(path: str) -> Tuple[str, Optional[str]]:
    """Split ``FILE#NAME``; a file may itself have the character ``#`` in its name."""
    file, mark, name = path.rpartition("#")
    if mark and file and name and not Path(path).exists():
        return file, name
    return path, None


def _output(text: str, path: str) -> Output:
    """Read an output of ``fairseq-generate``, preferring detokenized (D-) lines."""
    lines = {"D": {}, "H": {}, "T": {}}
    for kind, number, words in _OUTPUT_LINE.findall(text):
        lines[kind].setdefault(int(number), words)
    hypotheses = lines["D"] or lines["H"]
    if not hypotheses:
        raise UserError(f"{path} has no translations (H- or D- lines); run fairseq-generate again")
    return Output(path, hypotheses, lines["T"])
