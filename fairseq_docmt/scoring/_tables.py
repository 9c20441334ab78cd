"""Output of results, as tables in plain text or Markdown, or as JSON."""

import argparse
import json
from typing import Any, List, NamedTuple, Optional, Sequence

from tabulate import tabulate

from fairseq_docmt.readers.files import write_text

STYLES = {"text": "simple", "markdown": "github"}


class Table(NamedTuple):
    """A table of formatted cells; the first column names the rows."""

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options ``--format`` and ``--out``, which :func:`show` reads."""
    parser.add_argument("--format", choices=[*STYLES, "json"], default="text", help="default: text")
    parser.add_argument("--out", metavar="FILE", help="output file; default: standard output")


def show(args: argparse.Namespace, tables: List[Table], notes: List[str], results: Any) -> None:
    """Print results, or write them to the file of ``--out``.

    Args:
        args: parsed options ``format`` (``text``, ``markdown`` or ``json``) and ``out`` (a file or
            None).
        tables: the results as tables, for text and Markdown.
        notes: sentences to show below the tables.
        results: the same results as dictionaries and lists, for JSON.

    Raises:
        UserError: the file cannot be written.
    """
    if args.format == "json":
        text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        before = "* " if args.format == "markdown" else ""
        lines = [*(_as_text(table, args.format) for table in tables)]
        text = "\n".join([*lines, *(before + note for note in notes)]) + "\n"
    if args.out:
        write_text(args.out, text)
    else:
        print(text, end="")


def ratio(part: float, whole: float) -> Optional[float]:
    """Return the ratio of two numbers; None if the second is 0."""
    return part / whole if whole else None


def percent(value: Optional[float]) -> str:
    """Format a value from 0 to 1 in percent, such as ``12.5``; None becomes ``-``."""
    return "-" if value is None else f"{100 * value:.1f}"


def p_value(p: float) -> str:
    """Format a p-value with four decimals, or as ``<0.0001`` if it is smaller."""
    return f"{p:.4f}" if p >= 0.0001 else "<0.0001"


def _markdown_cells(rows: Sequence[Sequence[Any]]) -> List[list]:
    """Escape ``|`` and replace line breaks in text cells, because in Markdown they end a cell."""
    return [
        [
            " ".join(each.splitlines()).replace("|", "\\|") if isinstance(each, str) else each
            for each in row
        ]
        for row in rows
    ]


def _as_text(table: Table, style: str) -> str:
    if style == "markdown":
        headers, *rows = _markdown_cells([table.headers, *table.rows])
        title = f"**{table.title}**\n\n"
    else:
        headers, rows, title = table.headers, table.rows, f"{table.title}\n"
    sides = ["left", *["right"] * (len(headers) - 1)]
    cells = tabulate(rows, headers, STYLES[style], disable_numparse=True, colalign=sides)
    return f"{title}{cells}\n"
