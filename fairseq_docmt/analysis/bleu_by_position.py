r"""Compute BLEU by the position of sentences in their documents.

    python -m fairseq_docmt.analysis.bleu_by_position --out FOLDER \
        sentence=sentence.out memory=memory.out

Feng et al. (2022), section 5.2 and figure 3, ask whether later sentences, which have more context,
are translated better.  The inputs are outputs of ``fairseq-generate`` for documents; gaps in their
line numbers are document boundaries.  Each score is corpus BLEU (sacreBLEU) over all sentences of a
range of ten positions; the paper averages scores of single positions.  The plot shows the
difference to the first system.
"""

import argparse
import re
from collections import defaultdict
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence

from matplotlib import pyplot
from sacrebleu.metrics import BLEU
from tabulate import tabulate

from fairseq_docmt.analysis._documents import write_results
from fairseq_docmt.errors import UserError


class Output(NamedTuple):
    """Hypotheses and references by line number of the corpus, from 0."""

    hypotheses: Dict[int, str]
    references: Dict[int, str]


def read_output(path: str) -> Output:
    """Read an output of ``fairseq-generate``, preferring detokenised (D-) lines.

    Raises:
        UserError: the file does not exist, or has no hypotheses with references.
    """
    if not Path(path).is_file():
        raise UserError(f"{path} not found; give the output of fairseq-generate")
    lines: Dict[str, Dict[int, str]] = defaultdict(dict)
    pattern = r"^([DHT])-(\d+)\t(?:[^\t\n]*\t)?([^\t\n]*)$"
    text = Path(path).read_text(encoding="utf-8")
    for kind, number, words in re.findall(pattern, text, flags=re.M):
        lines[kind].setdefault(int(number), words)
    hypotheses = lines["D"] or lines["H"]
    if not hypotheses or hypotheses.keys() != lines["T"].keys():
        raise UserError(f"{path} is not an output of fairseq-generate with references")
    return Output(hypotheses, lines["T"])


def places(line_ids) -> Dict[int, int]:
    """Return the position in its document, from 0, of each line; gaps end documents."""
    found, place = {}, 0
    for line_id in sorted(line_ids):
        place = place + 1 if line_id - 1 in found else 0
        found[line_id] = place
    return found


def bleu_by_range(output: Output, size: int, metric: BLEU) -> Dict[str, float]:
    """Compute BLEU for each range of ``size`` positions, named e.g. ``1-10``."""
    place = places(output.hypotheses)
    hypotheses = [output.hypotheses[line_id] for line_id in place]
    references = [output.references[line_id] for line_id in place]
    return bleu_of_ranges(list(place.values()), hypotheses, [references], size, metric)


def bleu_of_ranges(
    place: Sequence[int],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    size: int,
    metric: BLEU,
) -> Dict[str, float]:
    """Compute BLEU for each range of positions.

    Args:
        place: (sentences,) position of each sentence in its document, from 0.
        hypotheses: (sentences,)
        references: one or more lists of (sentences,).
        size: number of positions in a range.
        metric: BLEU.

    Returns:
        Scores by range, in order; ranges are named e.g. ``1-10``.
    """
    ranges: Dict[int, List[int]] = defaultdict(list)
    for sentence, at in enumerate(place):
        ranges[at // size].append(sentence)
    scores = {}
    for number, sentences in sorted(ranges.items()):
        found = metric.corpus_score(
            [hypotheses[i] for i in sentences], [[r[i] for i in sentences] for r in references]
        )
        scores[f"{number * size + 1}-{(number + 1) * size}"] = found.score
    return scores


def _systems(arguments: List[str]) -> Dict[str, Output]:
    systems = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals:
            raise UserError(f"{argument}: give systems as NAME=FILE")
        systems[name] = read_output(path)
    first = next(iter(systems.values()))
    for name, output in systems.items():
        if output.references != first.references:
            raise UserError(f"{name} and {next(iter(systems))} have different references")
    return systems


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("systems", nargs="+", metavar="NAME=FILE", help="fairseq-generate output")
    parser.add_argument("--out", required=True, type=Path, help="folder for scores and plot")
    parser.add_argument("--range", type=int, default=10, help="positions in a range")
    parser.add_argument("--tokenize", help="tokenizer of sacreBLEU; default: 13a")
    args = parser.parse_args()
    if args.range < 1:
        raise UserError(f"--range must be at least 1, not {args.range}")
    metric = BLEU(tokenize=args.tokenize)
    systems = _systems(args.systems)
    scores = {name: bleu_by_range(x, args.range, metric) for name, x in systems.items()}
    base, *others = scores
    rows = [[name, *(f"{s[name]:.1f}" for s in scores.values())] for name in scores[base]]
    print(tabulate(rows, headers=["sentences", *scores], tablefmt="github"))
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
    results = {"signature": signature, "scores": scores}
    write_results(args.out, "bleu_by_position", results, figure)


if __name__ == "__main__":
    main()
