r"""Compute BLEU by the position of sentences in their documents.

    fairseq-docmt bleu-by-position --out FOLDER \
        sentence=sentence.out memory=memory.out

Feng et al. (2022), section 5.2 and figure 3, ask whether later sentences, which have more context,
are translated better.  The inputs are outputs of ``fairseq-generate`` for documents; gaps in their
line numbers are document boundaries, so a line that is lost within a document is taken for its end:
compare the printed numbers of sentences and documents with the test set's.  Each score is corpus
BLEU (sacreBLEU) over all sentences of a range of ten positions; the paper averages scores of single
positions.  The plot shows the difference from the first system.
"""

import argparse
from pathlib import Path
from typing import Dict, List

from matplotlib import pyplot
from sacrebleu.metrics import BLEU
from tabulate import tabulate

from fairseq_docmt.analysis._documents import check_folder, write_results
from fairseq_docmt.bleu import build_bleu, mark_unknown
from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Output, read_input
from fairseq_docmt.scoring.corpus.corpus_metrics import bleu_of_ranges, counts_of_ranges
from fairseq_docmt.scoring.texts.translations import named_files


def read_output(path: str) -> Output:
    """Read the hypotheses and references from the output of ``fairseq-generate``.

    The hypotheses are the detokenised ``D-`` lines or, if there are none, the ``H-`` lines.
    Unknown words of hypotheses and references are made different, so that they do not match.

    Raises:
        UserError: the file does not exist, is not output of ``fairseq-generate``, or has no
            references; or a sentence lacks its translation or reference.
    """
    found = read_input(path, "system")
    if not isinstance(found, Output) or not found.references:
        raise UserError(
            f"{path} is not an output of fairseq-generate with references; give one with T- lines"
        )
    alone = found.hypotheses.keys() ^ found.references.keys()
    if alone:
        raise UserError(
            f"{path} has only a translation or only a reference of sentence {min(alone)}, as if it "
            "were cut; run fairseq-generate again"
        )
    return found._replace(
        hypotheses={n: mark_unknown(text, False) for n, text in found.hypotheses.items()},
        references={n: mark_unknown(text, True) for n, text in found.references.items()},
    )


def places(line_ids) -> Dict[int, int]:
    """Find the position of each sentence in its document.

    Args:
        line_ids: line ids of the sentences; a gap between two ids is a document boundary.

    Returns:
        Line id -> position, counted from 0.
    """
    found, place = {}, 0
    for line_id in sorted(line_ids):
        place = place + 1 if line_id - 1 in found else 0
        found[line_id] = place
    return found


def bleu_by_range(output: Output, size: int, metric: BLEU) -> Dict[str, float]:
    """Compute corpus BLEU over the sentences in each range of ``size`` positions.

    Returns:
        Name of the range, such as ``1-10`` -> BLEU.
    """
    place = places(output.hypotheses)
    hypotheses = [output.hypotheses[line_id] for line_id in place]
    references = [output.references[line_id] for line_id in place]
    return bleu_of_ranges(list(place.values()), hypotheses, [references], size, metric)


def _systems(arguments: List[str]) -> Dict[str, Output]:
    systems = {name: read_output(path) for name, path in named_files(arguments).items()}
    first = next(iter(systems.values()))
    for name, output in systems.items():
        if output.references != first.references:
            raise UserError(
                f"{name} and {next(iter(systems))} have different references; give outputs for "
                "the same test set"
            )
    return systems


def main() -> None:
    """Compute and plot BLEU by position for the outputs given on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="+", metavar="NAME=FILE", help="fairseq-generate output")
    parser.add_argument("--out", required=True, type=Path, help="folder for scores and plot")
    parser.add_argument("--range", type=int, default=10, help="positions in a range")
    parser.add_argument(
        "--tokenize",
        choices=BLEU.TOKENIZERS,
        metavar="NAME",
        help="tokenizer of sacreBLEU; default: 13a",
    )
    args = parser.parse_args()
    if args.range < 1:
        raise UserError(f"--range must be at least 1, not {args.range}")
    check_folder(args.out)
    metric = build_bleu(args.tokenize)
    systems = _systems(args.systems)
    scores = {name: bleu_by_range(x, args.range, metric) for name, x in systems.items()}
    place = [*places(next(iter(systems.values())).references).values()]
    totals = {"sentences": len(place), "documents": place.count(0)}
    print(f"{totals['sentences']} sentences in {totals['documents']} documents")
    counts = counts_of_ranges(place, args.range)
    base, *others = scores
    rows = [
        [name, count, *(f"{s[name]:.1f}" for s in scores.values())]
        for name, count in counts.items()
    ]
    print(tabulate(rows, headers=["sentences", "segments", *scores], tablefmt="github"))
    signature = str(metric.get_signature())
    print(signature)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for name in others or [base]:
        lower = scores[base] if others else dict.fromkeys(scores[base], 0.0)
        values = [scores[name][at] - lower[at] for at in scores[base]]
        axes.plot(list(scores[base]), values, "-o", label=name)
    axes.set_xlabel("position of the sentence in its document")
    axes.set_ylabel(f"BLEU above {base}" if others else "BLEU")
    axes.tick_params(axis="x", rotation=45)
    axes.legend()
    results = {"signature": signature, **totals, "segments": counts, "scores": scores}
    write_results(args.out, "bleu_by_position", results, figure)
