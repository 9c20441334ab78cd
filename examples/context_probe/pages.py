"""Write the tables of README.md and results.md from results.json.

    python pages.py
    python pages.py --table sampling --scores FOLDER/scores.json

With --table, the results that a script has left in FOLDER are first stored in results.json: for
each system a column of the table, in place of an earlier column of that name.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import List, Optional, Union

from score import EQUAL, LENGTH
from tabulate import tabulate

HERE = Path(__file__).parent
HEADERS = ["phenomenon", "distance", "questions", "ceiling without context"]
MARKED = r"(<!-- written by pages.py: ([\w-]+) -->\n).*?(<!-- end of pages.py -->\n)"


def markdown(table: dict) -> str:
    """Format a table of results.json as Markdown.

    Args:
        table: ``rows`` has phenomenon, distance, number of questions and ceiling of each row, None
            where there is no such value; ``systems`` has the figures of each system.
    """
    columns = [*zip(*table["rows"]), *table["systems"].values()]
    rows = zip(*([_formatted(value) for value in column] for column in columns))
    return tabulate(rows, [*HEADERS, *table["systems"]], "github", disable_numparse=True)


def _formatted(value: Union[str, int, float, None]) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def figure(system: dict, row: list) -> Optional[float]:
    """Return the figure of a system in a row of a table; None for rows that score.py does not fill.

    Args:
        system: results of the system in the JSON of score.py.
        row: phenomenon, distance (such as ``2``, ``1 to 3`` or ``all``), number of questions, and
            ceiling.

    Raises:
        ValueError: the system has answered another number of questions.
    """
    phenomenon, distance, number, ceiling = row
    sentences = system["sentences"]
    if phenomenon == LENGTH:
        return round(sentences["length_ratio"], 2)
    if phenomenon == EQUAL:
        return round(sentences["equal"] / sentences["sentences"], 2)
    if ceiling is None:
        return None
    limits = [int(limit) for limit in re.findall(r"\d+", distance)] or [0, sys.maxsize]
    asked = [
        question
        for question in system["questions"]
        if question["phenomenon"] == phenomenon and limits[0] <= question["distance"] <= limits[-1]
    ]
    found = sum(question["total"] for question in asked)
    if found != number:
        raise ValueError(
            f"{found} questions of {phenomenon}, distance {distance}; the table has {number}: "
            "give results on the same test set"
        )
    return round(sum(question["right"] for question in asked) / found, 2)


def add(table: dict, scores: dict) -> None:
    """Add the systems in the JSON of score.py to a table of results.json, in place."""
    for name, system in scores.items():
        table["systems"][name] = [figure(system, row) for row in table["rows"]]


def dumped(results: dict) -> str:
    """Return results as JSON, with one line for each row and for each system."""

    def block(items: List[str], brackets: str) -> str:
        return f"{brackets[0]}\n   " + ",\n   ".join(items) + f"\n  {brackets[1]}"

    tables = []
    for name, table in results.items():
        rows = [json.dumps(row) for row in table["rows"]]
        systems = [f"{json.dumps(n)}: {json.dumps(v)}" for n, v in table["systems"].items()]
        inner = f'  "rows": {block(rows, "[]")},\n  "systems": {block(systems, "{}")}\n'
        tables.append(f" {json.dumps(name)}: {{\n{inner} }}")
    return "{\n" + ",\n".join(tables) + "\n}\n"


def inserted(page: str, results: dict) -> str:
    """Return a page with the tables that its comments name."""
    return re.sub(
        MARKED, lambda m: f"{m[1]}\n{markdown(results[m[2]])}\n\n{m[3]}", page, flags=re.S
    )


def main(arguments: Optional[List[str]] = None) -> None:
    """Write the tables; report invalid options or files in one sentence."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    results = json.loads((HERE / "results.json").read_text(encoding="utf-8"))
    parser.add_argument("--table", choices=results, metavar="TABLE", help=", ".join(results))
    parser.add_argument("--scores", metavar="FILE", help="JSON of score.py")
    args = parser.parse_args(arguments)
    if (args.table is None) != (args.scores is None):
        parser.error("--table and --scores belong together")
    if args.table:
        try:
            add(results[args.table], json.loads(Path(args.scores).read_text(encoding="utf-8")))
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
            sys.exit(f"error: {args.scores} was not written by score.py --format json")
        except (OSError, ValueError) as error:
            sys.exit(f"error: {args.scores}: {error}")
        (HERE / "results.json").write_text(dumped(results), encoding="utf-8")
    for name in ("README.md", "results.md"):
        page = (HERE / name).read_text(encoding="utf-8")
        (HERE / name).write_text(inserted(page, results), encoding="utf-8")


if __name__ == "__main__":
    main()
