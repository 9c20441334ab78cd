r"""Write an HTML page that compares systems: scores, plots and their documents side by side.

    python -m fairseq_docmt.scoring report --out report.html --source test.zh --reference test.en \
        sentence=sentence.out window=window.out

The page is self-contained: it needs no other files, no network and no scripts.  Scores are those of
`metrics`; --contrastive adds results of `contrastive`.
"""

import argparse
import json
from typing import Dict, Iterator, List, NamedTuple, Tuple

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from sacrebleu.metrics import BLEU

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring import metrics, translations
from fairseq_docmt.scoring._difference import Run, runs
from fairseq_docmt.scoring._files import read_text, write_text
from fairseq_docmt.scoring._plots import line_plot
from fairseq_docmt.scoring._tables import Table
from fairseq_docmt.scoring.corpus_metrics import Options
from fairseq_docmt.scoring.translations import Translations


class Sentence(NamedTuple):
    """A row of the document browser: a sentence with its references and translations.

    Attributes:
        source: source sentence, empty if unknown.
        references: reference translations.
        systems: translation of each system, with its differences marked.
        same: whether all systems have the same translation.
    """

    source: str
    references: List[str]
    systems: List[List[Run]]
    same: bool


class Document(NamedTuple):
    """A document of the document browser, with BLEU of each system."""

    number: int
    bleu: Dict[str, float]
    sentences: List[Sentence]


class Contrastive(NamedTuple):
    """Results of `contrastive`: set -> system -> entry of the set in the system's JSON file."""

    sets: Dict[str, Dict[str, dict]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    translations.add_arguments(parser)
    metrics.add_metric_arguments(parser)
    # Reports run a significance test by default; main() chooses it.
    parser.set_defaults(tests=None)
    parser.add_argument("--out", metavar="FILE", required=True, help="HTML file to write")
    parser.add_argument("--title", default="Translations of documents", help="title of the page")
    parser.add_argument("--range", type=int, default=10, help="size of position ranges in the plot")
    parser.add_argument(
        "--documents", type=int, default=0, help="show the text of the first N; default: all"
    )
    parser.add_argument(
        "--contrastive",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="JSON file of the command contrastive; may be repeated for other systems",
    )


def main(args: argparse.Namespace) -> None:
    """Run the command."""
    texts = translations.from_arguments(args)
    if args.documents < 0:
        raise UserError(f"--documents must not be negative, got {args.documents}")
    if args.tests is None:
        args.tests = ("bootstrap",) if len(texts.systems) > 1 else ()
    contrastive = read_contrastive(args.contrastive)
    results = metrics.measure(args, texts)
    options = Options(args.tokenize, args.lowercase)
    positions = metrics.by_position(texts, args.range, options)
    plots = [
        ("BLEU by place in the document", line_plot(positions, "place of the sentence", "BLEU"))
    ]
    page = page_of(
        args.title,
        texts,
        tables=[*metrics.tables_of(results), *contrastive_tables(contrastive)],
        notes=[*metrics.notes_of(results, texts), *_signatures(contrastive)],
        plots=[*plots, *contrastive_plots(contrastive)],
        documents=list(documents_of(texts, options, args.documents)),
    )
    write_text(args.out, page)
    print(f"wrote {args.out}")


def page_of(
    title: str,
    texts: Translations,
    tables: List[Table],
    notes: List[str],
    plots: List[Tuple[str, Markup]],
    documents: List[Document],
) -> str:
    """Return the page as HTML, with all text escaped.

    Args:
        title: title of the page.
        texts: all translations.
        tables, notes: scores.
        plots: captions and SVG.
        documents: documents to show.
    """
    templates = Environment(
        loader=PackageLoader("fairseq_docmt.scoring", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template("report.html").render(
        title=title,
        documents=texts.index.num_documents,
        sentences=texts.index.num_sentences,
        systems=list(texts.systems),
        references=range(1, len(texts.references) + 1),
        has_source=texts.source is not None,
        tables=tables,
        notes=notes,
        plots=plots,
        browser=documents,
        left_out=texts.index.num_documents - len(documents),
    )


def documents_of(texts: Translations, options: Options, most: int = 0) -> Iterator[Document]:
    """Yield documents for the document browser.

    Args:
        texts: translations.
        options: settings of BLEU.
        most: maximum number of documents; 0 for all.
    """
    metric = BLEU(tokenize=options.tokenize, lowercase=options.lowercase, force=True)
    starts = texts.index.starts.tolist()
    spans = list(zip(starts[:-1], starts[1:]))
    for number, (first, end) in enumerate(spans[: most or None], start=1):
        references = [[" ".join(reference[first:end])] for reference in texts.references]
        bleu = {
            name: metric.corpus_score([" ".join(found[first:end])], references).score
            for name, found in texts.systems.items()
        }
        yield Document(number, bleu, [_sentence(texts, i) for i in range(first, end)])


def _sentence(texts: Translations, i: int) -> Sentence:
    found = [sentences[i] for sentences in texts.systems.values()]
    reference, base = texts.references[0][i], found[0]
    cells = [runs(base, reference), *(runs(text, reference, base) for text in found[1:])]
    source = texts.source[i] if texts.source else ""
    same = all(text == base for text in found)
    return Sentence(source, [r[i] for r in texts.references], cells, same)


# ---- results of contrastive sets ---------------------------------------------------------------


def read_contrastive(arguments: List[str]) -> Contrastive:
    """Read the arguments ``NAME=FILE`` of ``--contrastive``.

    Raises:
        UserError: an argument has no name, or the file does not exist or was not written by
            `contrastive`.
    """
    sets: Dict[str, Dict[str, dict]] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not (name and equals and path):
            raise UserError(f"--contrastive {argument}: give results as NAME=FILE")
        try:
            found = json.loads(read_text(path))
            for set_name, figures in found.items():
                # Access every value that the page shows, so that a wrong file is detected early.
                parts = [figures["all"], *figures.get("by label", {}).get("distance", {}).values()]
                for part in parts:
                    float(part["accuracy"]), float(part["chance"]), int(part["ties"])
                sets.setdefault(set_name, {})[name] = {"signature": "", **figures}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{path} is not a JSON file of the command contrastive") from None
    return Contrastive(sets)


def contrastive_tables(contrastive: Contrastive) -> List[Table]:
    """Return a table with the accuracy of each system on each set."""
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
    """Plot accuracy by distance, for sets with more than one distance."""
    plots = []
    for set_name, systems in contrastive.sets.items():
        distances = {n: f.get("by label", {}).get("distance", {}) for n, f in systems.items()}
        if max(len(parts) for parts in distances.values()) < 2:
            continue
        lines = {n: _in_percent(parts, "accuracy") for n, parts in distances.items() if parts}
        chance = _in_percent(max(distances.values(), key=len), "chance")
        plot = line_plot(lines, f"distance in sentences, {set_name}", "accuracy %", chance)
        plots.append((f"{set_name} by distance", plot))
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
