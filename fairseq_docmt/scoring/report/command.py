r"""Write an HTML page that compares systems by scores, plots and translations side by side.

    fairseq-docmt report --out report.html --source test.zh --reference test.en \
        sentence=sentence.out window=window.out

The page is self-contained: it needs no other files and no network.  Scores are computed as by
the command `metrics`.  --contrastive adds results of the command `contrastive`.  --tags adds
phenomena such as pronouns; the page can then show only the sentences that contain one of them.
"""

import argparse
import base64
import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from fairseq_docmt.bleu import build_bleu
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import finite_number, read_text, write_text
from fairseq_docmt.readers.record_files import parsed_json
from fairseq_docmt.scoring._tables import Table
from fairseq_docmt.scoring.corpus import metrics
from fairseq_docmt.scoring.corpus.corpus_metrics import Options, counts_of_ranges
from fairseq_docmt.scoring.report.difference import Run, runs
from fairseq_docmt.scoring.report.plots import line_plot
from fairseq_docmt.scoring.texts import translations
from fairseq_docmt.scoring.texts.layout import named
from fairseq_docmt.scoring.texts.test_set import Translations
from fairseq_docmt.scoring.words import tags

#: Maximum number of ranges in the plot of BLEU by position, so that their labels fit.
MOST_RANGES = 12
#: Least number of segments or items behind a plotted point.
FEWEST = 20


class Sentence(NamedTuple):
    """A row of the document browser, the part of the report with translations side by side.

    Attributes:
        number: number of the sentence in its document, from 1.
        source: source sentence; None if unknown.
        references: reference translations.
        systems: for each system, its translation as a list of stretches, see :class:`Run`.
        tags: names of the phenomena in the sentence.
        same: whether all systems have the same translation.
    """

    number: int
    source: Optional[str]
    references: List[str]
    systems: List[List[Run]]
    tags: List[str]
    same: bool

    def as_json(self) -> list:
        """Return the attributes as a list, in the order that the script report.js expects."""
        cells = [_cell(found) for found in self.systems]
        return [self.source, self.references, cells, self.tags, self.same, self.number]


class Document(NamedTuple):
    """A document in the document browser, which shows its translations side by side.

    Attributes:
        name: name of the document.
        bleu: BLEU of each system on the document.
        sentences: sentences of the document, with their references and translations.
    """

    name: str
    bleu: List[float]
    sentences: List[Sentence]

    def as_json(self) -> dict:
        """Return the attributes as a dictionary, for report.js, the script of the HTML page."""
        sentences = [sentence.as_json() for sentence in self.sentences]
        bleu = [round(score, 2) for score in self.bleu]
        return {"name": self.name, "bleu": bleu, "sentences": sentences}


def _cell(found: List[Run]):
    """Return a translation in the format that report.js, the script of the page, reads.

    Args:
        found: the translation, split into stretches whose words carry the same marks.

    Returns:
        If no word is marked, the text as one string.  Otherwise, a list of ``[text, mark]`` for
        each stretch.  The mark is 1 for words that are not in the reference, 2 for words that are
        not in the translation of the first system, 3 for both, and 0 for neither.
    """
    if all(not (run.off or run.changed) for run in found):
        return "".join(run.text for run in found)
    return [[run.text, run.off + 2 * run.changed] for run in found]


class Contrastive(NamedTuple):
    """Results of ``fairseq-docmt contrastive`` for several systems.

    Attributes:
        sets: name of the set -> system -> results on the set, as in the JSON output of the command.
    """

    sets: Dict[str, Dict[str, dict]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt report``."""
    translations.add_arguments(parser)
    metrics.add_metric_arguments(parser)
    # If None is left, main() chooses a significance test.
    parser.set_defaults(tests=None)
    parser.add_argument("--out", metavar="FILE", required=True, help="HTML file to write")
    parser.add_argument("--title", default="Translations of documents", help="title of the page")
    parser.add_argument(
        "--range",
        type=int,
        metavar="N",
        help=f"sentences of a position range; default: 10, or more for {MOST_RANGES} ranges",
    )
    parser.add_argument(
        "--documents",
        type=int,
        default=0,
        metavar="N",
        help="show the text of the first N; default: all",
    )
    parser.add_argument(
        "--tags",
        action="append",
        default=[],
        metavar="FILE",
        help="phenomena, which `pronouns`, `muda`, `dropped-pronouns` write; may be repeated",
    )
    parser.add_argument(
        "--contrastive",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="JSON of `contrastive`; may be repeated for other systems",
    )


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt report``: compute scores and plots, and write the HTML page."""
    texts = translations.from_arguments(args)
    if args.documents < 0:
        raise UserError(f"--documents must not be negative, got {args.documents}")
    if args.tests is None:
        args.tests = ("bootstrap",) if len(texts.systems) > 1 else ()
    contrastive = read_contrastive(args.contrastive)
    for name in {name for systems in contrastive.sets.values() for name in systems}:
        if name not in texts.names:
            raise UserError(f"--contrastive {name}: no system is called {name}")
    phenomena = tags.read(args.tags, texts)
    results = metrics.measure(args, texts)
    options = metrics.options_of(args, texts)
    size = size_of_ranges(texts) if args.range is None else args.range
    positions = metrics.by_position(texts, size, options)
    plots = []
    ranges = counts_of_ranges(texts.position, size)
    counts = enough(ranges)
    if len(counts) > 1:  # not for documents of a few sentences
        metrics.note_places(args, texts)
        plot = line_plot(positions, "place of the sentence", "BLEU", counts)
        plots.append((_caption("BLEU by place in the document", ranges, "sentences"), plot))
    elif args.range is not None:
        texts.notes.append(
            f"--range {size}: no plot, as fewer than two ranges have at least {FEWEST} sentences"
        )
    page = page_of(
        args.title,
        texts,
        tables=[*metrics.tables_of(results), *contrastive_tables(contrastive)],
        notes=[*metrics.notes_of(results, texts), *_signatures(contrastive)],
        plots=[*plots, *contrastive_plots(contrastive)],
        documents=list(documents_of(texts, phenomena, options, args.documents)),
    )
    write_text(args.out, page)
    print(f"wrote {args.out}", file=sys.stderr if args.out == "-" else sys.stdout)


def enough(counts: Dict[str, int]) -> Dict[str, int]:
    """Drop the points of a plot that are based on fewer than 20 segments or items.

    Args:
        counts: label of the point -> number of segments or items.

    Returns:
        The counts of the remaining points.
    """
    return {place: count for place, count in counts.items() if count >= FEWEST}


def _caption(text: str, counts: Dict[str, int], unit: str) -> str:
    """Return the caption of a plot, which names the points that :func:`enough` drops."""
    gone = [place for place in counts if place not in enough(counts)]
    why = f" (not shown, with fewer than {FEWEST} {unit}: {named(gone)})"
    return text + why if gone else text


def size_of_ranges(texts: Translations) -> int:
    """Choose the number of sentence positions in each range of the plot of BLEU by position.

    It is the smallest multiple of 10 for which the longest document has at most 12 ranges.
    """
    longest = int(texts.position.max()) + 1
    return 10 * max(1, math.ceil(longest / MOST_RANGES / 10))


def page_of(
    title: str,
    texts: Translations,
    tables: List[Table],
    notes: List[str],
    plots: List[Tuple[str, Markup]],
    documents: List[Document],
) -> str:
    """Return the report as an HTML page, in which all text is escaped.

    Args:
        title: title of the page.
        texts: test set.
        tables: tables of scores.
        notes: notes to show below the tables.
        plots: caption and SVG of each plot.
        documents: documents to show side by side.
    """
    templates = Environment(
        loader=PackageLoader("fairseq_docmt.scoring.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = Path(__file__).with_name("report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    several = len(texts.references) > 1
    data = {
        "systems": list(texts.systems),
        "references": [
            f"reference {number + 1}" if several else "reference"
            for number in range(len(texts.references))
        ],
        "source": texts.source is not None,
        "documents": [document.as_json() for document in documents],
    }
    found = {tag for d in documents for sentence in d.sentences for tag in sentence.tags}
    return templates.get_template("report.html").render(
        title=title,
        documents=texts.index.num_documents,
        sentences=texts.index.num_sentences,
        systems=list(texts.systems),
        tables=tables,
        notes=notes,
        plots=plots,
        document_names=[document.name for document in documents],
        tags=sorted(found),
        left_out=texts.index.num_documents - len(documents),
        data=_json_in_html(data),
        script=Markup(script),
        script_hash=f"sha256-{digest}",
    )


def _json_in_html(data: dict) -> Markup:
    """Return data as JSON for a ``<script>`` element of the page.

    The characters ``<``, ``>`` and ``&`` are escaped, so that text in the data cannot end the
    element.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def documents_of(
    texts: Translations, phenomena: List[List[str]], options: Options, most: int = 0
) -> Iterator[Document]:
    """Yield the documents to show in the report, with translations and the BLEU of each system.

    Args:
        texts: test set.
        phenomena: (sentences,) list of the phenomena in each sentence.
        options: settings of BLEU.
        most: maximum number of documents; 0 for all.
    """
    # With `effective_order`, documents of fewer than four words do not score 0 for want of 4-grams.
    metric = build_bleu(
        options.tokenize, lowercase=options.lowercase, force=True, effective_order=True
    )
    numbers = (texts.position + 1).tolist()
    for number, (first, end) in enumerate(texts.index.spans[: most or None]):
        references = [[" ".join(reference[first:end])] for reference in texts.references]
        bleu = [
            metric.corpus_score([" ".join(found[first:end])], references).score
            for found in texts.systems.values()
        ]
        sentences = [_sentence(texts, phenomena, i, numbers[i]) for i in range(first, end)]
        yield Document(texts.name_of(number), bleu, sentences)


def _sentence(texts: Translations, phenomena: List[List[str]], i: int, number: int) -> Sentence:
    found = [sentences[i] for sentences in texts.systems.values()]
    reference, base = texts.references[0][i], found[0]
    cells = [runs(base, reference), *(runs(text, reference, base) for text in found[1:])]
    source = texts.source[i] if texts.source else None
    same = all(text == base for text in found)
    return Sentence(number, source, [r[i] for r in texts.references], cells, phenomena[i], same)


# ---- results of contrastive sets ---------------------------------------------------------------


def read_contrastive(arguments: List[str]) -> Contrastive:
    """Read the results of ``fairseq-docmt contrastive`` from the files of ``--contrastive``.

    Args:
        arguments: values of the option, each ``NAME=FILE`` with the name of a system and its
            results in JSON.

    Raises:
        UserError: an argument has no name, a set is given twice for a system, or a file does not
            exist or is not JSON output of that command.
    """
    sets: Dict[str, Dict[str, dict]] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not (name and equals and path):
            raise UserError(f"--contrastive {argument}: give results as NAME=FILE")
        found = parsed_json(read_text(path), path)
        try:
            for set_name, figures in found.items():
                # Access every value that the page shows, so that a wrong file is detected early.
                parts = [figures["all"], *figures.get("by label", {}).get("distance", {}).values()]
                for part in parts:
                    for field in ("accuracy", "chance", "ties", "items"):
                        finite_number(part[field] + 0)  # no text
                if name in sets.get(set_name, {}):
                    twice = f"--contrastive {name}={path}: {name} already has results of {set_name}"
                    raise UserError(f"{twice}; give each system its own name")
                sets.setdefault(set_name, {})[name] = {"signature": "", **figures}
        except UserError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path} is not a JSON file of the command contrastive") from None
    return Contrastive(sets)


def contrastive_tables(contrastive: Contrastive) -> List[Table]:
    """Return a list with a table of the accuracies on all sets; empty if there are no results."""
    rows = [
        [set_name, system, *_cells(figures["all"])]
        for set_name, systems in contrastive.sets.items()
        for system, figures in systems.items()
    ]
    headers = ["set", "system", "accuracy %", "ties", "by chance %"]
    return [Table("Contrastive sets", headers, rows)] if rows else []


def _cells(found: dict) -> List[str]:
    return [f"{100 * found['accuracy']:.1f}", str(found["ties"]), f"{100 * found['chance']:.1f}"]


def contrastive_plots(contrastive: Contrastive) -> List[Tuple[str, Markup]]:
    """Plot the accuracy on each set by how many sentences back the needed context is.

    Only distances with at least 20 items are plotted, and only sets with two or more such
    distances.

    Returns:
        Caption and SVG of each plot.
    """
    plots = []
    for set_name, systems in contrastive.sets.items():
        distances = {n: f.get("by label", {}).get("distance", {}) for n, f in systems.items()}
        longest = max(distances.values(), key=len)
        items = {distance: int(found["items"]) for distance, found in longest.items()}
        counts = enough(items)
        if len(counts) < 2:
            continue
        lines = {n: _in_percent(parts, "accuracy") for n, parts in distances.items() if parts}
        chance = _in_percent(longest, "chance")
        plot = line_plot(lines, f"distance in sentences, {set_name}", "accuracy %", counts, chance)
        plots.append((_caption(f"{set_name} by distance", items, "items"), plot))
    return plots


def _in_percent(parts: Dict[str, dict], field: str) -> Dict[str, float]:
    return {distance: 100 * found[field] for distance, found in parts.items()}


def _signatures(contrastive: Contrastive) -> List[str]:
    return [
        f"{system}: {figures['signature']}"
        for systems in contrastive.sets.values()
        for system, figures in systems.items()
        if figures["signature"]
    ]
