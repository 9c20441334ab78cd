"""Measure how often a model prefers the translation that fits the context (contrastive test sets).

    fairseq-docmt contrastive --path checkpoint_best.pt --context 3 deixis_test.json

The test sets of Voita et al. (2019), Müller et al. (2018, ContraPro), Lopes et al. (2020) and
Bawden et al. (2018) are read as published, others in the JSON lines that
fairseq_docmt/scoring/contrastive/items.py describes.  Ties count as wrong.  The chance level is the
expected accuracy of random guessing.  --protocol chooses the score of a candidate:

  plain      log-probability of the current sentence, given its context in both languages
  voita      the same with label smoothing of 0.1, as in the code of Voita et al.
  wu         mean log-probability of all tokens of the window, as in the code of Wu et al. (2022)
  contrapro  as plain, but an item that lists the correct text twice counts as wrong, as in the
             script of ContraPro
"""

import json
import logging
import os
import sys
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

import numpy as np

import fairseq_docmt
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.readers.files import finite_number, lines_of, read_text, write_text
from fairseq_docmt.readers.record_files import parsed_json
from fairseq_docmt.scoring import _intervals, _tables
from fairseq_docmt.scoring._tables import Table
from fairseq_docmt.scoring.context.reference_scores import MANY_UNKNOWN, PROTOCOLS, Scored
from fairseq_docmt.scoring.context.scorer_options import (
    add_model_arguments,
    given_model_options,
    load_scorer,
)
from fairseq_docmt.scoring.contrastive.accuracy import Accuracy, Verdict, by_label, judge, summarise
from fairseq_docmt.scoring.contrastive.formats import read_set, takes_documents
from fairseq_docmt.scoring.contrastive.items import Item, json_lines

logger = logging.getLogger(__name__)


class SetResult(NamedTuple):
    """Items of a contrastive set, with the candidate scores and the verdict of each item."""

    items: List[Item]
    scores: List[List[float]]
    verdicts: List[Verdict]


def add_arguments(parser) -> None:
    """Add the options of ``fairseq-docmt contrastive``."""
    add = parser.add_argument
    add("sets", nargs="+", metavar="SET", help="test sets: .json as published, or .jsonl")
    scores = parser.add_mutually_exclusive_group(required=True)
    scores.add_argument("--path", help="checkpoint, or several joined by ':'")
    scores.add_argument(
        "--losses",
        metavar="FILE",
        help="losses of the candidates, one a line, instead of a model",
    )
    scores.add_argument(
        "--convert", type=Path, metavar="FILE", help="only convert the items of all sets to .jsonl"
    )
    add("--protocol", choices=list(PROTOCOLS), default="plain", help="see above; default: plain")
    add("--context", type=int, metavar="K", help="at most K sentences of context; default: all")
    add(
        "--context-after",
        type=int,
        default=0,
        metavar="K",
        help="at most K sentences after the scored one, only read; default: 0",
    )
    add("--documents", metavar="DIR", help="folder of the documents with ContraPro's context")
    add_model_arguments(parser)
    add("--items", type=Path, metavar="FILE", help="write scores and verdict of each item, .jsonl")
    add(
        "--baseline",
        metavar="FILE",
        help="--items of another model: also show the difference",
    )
    _tables.add_arguments(parser)


def main(args) -> None:
    """Run ``fairseq-docmt contrastive``: score and judge the items, and report the accuracies."""
    _refuse_unused(args)
    sets = _read_sets(args)
    if args.convert:
        everything = [item for items in sets.values() for item in items]
        write_text(args.convert, "".join(line + "\n" for line in json_lines(everything)))
        stream = sys.stderr if str(args.convert) == "-" else sys.stdout
        print(f"wrote {len(everything)} items to {args.convert}", file=stream)
        return
    items = [item for items in sets.values() for item in items]
    scored = _scores(args, items)
    if scored.unknown > MANY_UNKNOWN:
        logger.warning(
            "%.0f%% of the target tokens are unknown to the model; segment the texts as its "
            "training data (--bpe-codes)",
            100 * scored.unknown,
        )
    if None not in (scored.room, args.context) and args.context > scored.room:
        logger.warning(
            "--context %d: this model reads at most %d sentence(s) before the scored one",
            *(args.context, scored.room),
        )
    results = judge_sets(sets, scored.scores, PROTOCOLS[args.protocol].equal)
    signatures = {
        name: _signature(name, args, result, scored.window) for name, result in results.items()
    }
    rows = [row for name, result in results.items() for row in _rows(name, result)]
    headers = ["set", "part", "items", "accuracy %", "95 % interval", "ties", "chance %"]
    tables = [Table("Contrastive sets", headers, rows)]
    figures = {
        name: {"signature": signatures[name], **_figures(result)}
        for name, result in results.items()
    }
    if args.baseline:
        compared = compare(results, read_verdicts(args.baseline, results, _protocol_of(args)))
        tables.append(_table_of_comparison(compared))
        for name, found in compared.items():
            figures[name]["baseline"] = found._asdict()
    _tables.show(args, tables, [*signatures.values()], figures)
    if args.items:
        lines = _item_lines(results, _protocol_of(args))
        write_text(args.items, "".join(f"{line}\n" for line in lines))


def _refuse_unused(args) -> None:
    """Refuse options that have no effect with ``--losses`` or ``--convert``.

    Raises:
        UserError: such an option is given, or ``--documents`` is not a folder.
    """
    if args.documents and not os.path.isdir(args.documents):
        raise UserError(f"--documents {args.documents} is no folder")
    if args.path:
        return
    unused = dict.fromkeys(given_model_options(args), True)
    if args.convert:
        by = "--convert"
        unused.update({name: getattr(args, name) for name in ("items", "out", "baseline")})
        unused.update(format=args.format != "text", protocol=args.protocol != "plain")
    else:
        by = "--losses"
        unused.update(context=args.context is not None, context_after=args.context_after)
        unused.update(protocol=args.protocol in ("voita", "wu"))
    for option, given in unused.items():
        if given:
            raise UserError(f"{flag(option)} has no effect with {by}; leave it out")


# ---- scores ------------------------------------------------------------------------------------


def _read_sets(args) -> Dict[str, List[Item]]:
    sets: Dict[str, List[Item]] = {}
    for path in args.sets:
        name = Path(path).stem
        if name in sets:
            raise UserError(f"two test sets are called {name}; rename one")
        sets[name] = read_set(path, args.context, args.documents, args.context_after)
    if args.documents and not any(map(takes_documents, args.sets, sets.values())):
        raise UserError("--documents is for ContraPro and Lopes et al. (2020); leave it out")
    if args.losses and len(sets) > 1:
        raise UserError("--losses belongs to one test set; give one set at a time")
    for name, items in sets.items():
        _warn_about_short_context(name, items, args)
    return sets


def _warn_about_short_context(name: str, items: List[Item], args) -> None:
    """Warn if no item of a set has as much context as ``--context`` or ``--context-after`` allows.

    Args:
        name: name of the set.
        items: its items, with the context that is scored.
        args: options of the command.
    """
    before = max(len(item.source) - 1 - item.after for item in items)
    after = max(item.after for item in items)
    for option, wanted, longest, place in (
        ("--context", args.context, before, "before"),
        ("--context-after", args.context_after, after, "after"),
    ):
        if wanted is not None and wanted > longest:
            logger.warning(
                "%s %d: the items of %s have at most %d sentence(s) %s the scored one",
                *(option, wanted, name, longest, place),
            )


def _scores(args, items: List[Item]) -> Scored:
    if args.losses:
        return read_losses(args.losses, items)
    return load_scorer(args.path, args).score(items, PROTOCOLS[args.protocol])


def read_losses(path: str, items: List[Item]) -> Scored:
    """Read the losses that another program computed for all candidates, and turn them into scores.

    The score of a candidate is its negated loss, so that higher scores are better.

    Args:
        path: file with one loss per line, in the order of the candidates of the items.
        items: the items of the set.

    Returns:
        The scores.  The proportion of unknown tokens, which is not known, is set to 0.

    Raises:
        UserError: the file does not exist or is not UTF-8, a line is not a finite number, or the
            numbers of lines and candidates differ.
    """
    if not os.path.exists(path):
        raise UserError(f"--losses {path} not found")
    losses = []
    for number, line in enumerate(lines_of(read_text(path)), start=1):
        try:
            losses.append(finite_number(line))
        except ValueError:
            raise UserError(
                f"{path}, line {number} is not a finite number: {line[:40]!r}"
            ) from None
    candidates = sum(len(item.candidates) for item in items)
    if len(losses) != candidates:
        raise UserError(f"{path} has {len(losses)} losses, but {candidates} candidates need one")
    rest = iter(losses)
    return Scored([[-next(rest) for _ in item.candidates] for item in items], 0.0)


def judge_sets(
    sets: Dict[str, List[Item]], scores: List[List[float]], equal: str
) -> Dict[str, SetResult]:
    """Judge all items of several contrastive sets.

    Args:
        sets: name of the set -> items.
        scores: for each item, the scores of its candidates.  The items of all sets follow each
            other in the order of ``sets``.
        equal: treatment of candidates that have the same text, see
            :func:`~fairseq_docmt.scoring.contrastive.accuracy.judge`.

    Returns:
        Name of the set -> its items, scores and verdicts.
    """
    results, rest = {}, iter(scores)
    for name, items in sets.items():
        own = [next(rest) for _ in items]
        places = (f"{name}: item {number}" for number in range(1, len(items) + 1))
        verdicts = [judge(*each, equal) for each in zip(places, items, own)]
        results[name] = SetResult(items, own, verdicts)
    return results


# ---- another model -----------------------------------------------------------------------------


class Comparison(NamedTuple):
    """Comparison of this model with another model on a contrastive set.

    Attributes:
        accuracy: accuracy of the other model, from 0 to 1.
        difference: accuracy of this model minus accuracy of the other model.
        low, high: ends of the 95 % confidence interval of the difference; None if the set has only
            one item.
        better, worse: number of items that only this model gets right, and number of items that
            only the other model gets right.
        p: p-value of a two-sided sign test of ``better`` against ``worse``.
    """

    accuracy: float
    difference: float
    low: Optional[float]
    high: Optional[float]
    better: int
    worse: int
    p: float


def read_verdicts(
    path: str, results: Dict[str, SetResult], protocol: Optional[str] = None
) -> Dict[str, List[bool]]:
    """Read which items another model gets right, from a file written by ``--items``.

    Args:
        path: file written by ``--items`` when the other model was run on the same sets.
        results: results of this model, by name of the set.
        protocol: protocol of these results; None if it is not known.

    Returns:
        Name of the set -> for each of its items, whether the other model gets it right.

    Raises:
        UserError: the file was not written by ``--items``, was written with another protocol, or
            does not list exactly the items of each set, in order, with the same labels and
            candidates.  The texts may differ, because models may read them in different forms.
    """
    found: Dict[str, List[bool]] = {name: [] for name in results}
    for number, line in enumerate(lines_of(read_text(path)), start=1):
        entry = parsed_json(line, path, number)
        try:
            name, place, is_right = entry["set"], entry["item"], entry["correct"]
            if [*map(type, (name, place, is_right))] != [str, int, bool]:
                raise ValueError
            known = entry["labels"], entry["right"], len(entry["scores"])
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path}: line {number} is no item that --items wrote") from None
        other = entry.get("protocol")  # missing in files of older versions
        if None not in (other, protocol) and other != protocol:
            raise UserError(
                f"{path} was written with --protocol {other}, not {protocol}; use the same for both"
            )
        if name in found:
            if place != len(found[name]) + 1:
                raise UserError(f"{path}: line {number} is not item {len(found[name]) + 1}")
            items = results[name].items[place - 1 : place]
            if any(known != (item.labels, item.correct, len(item.candidates)) for item in items):
                raise UserError(
                    f"{path}: line {number} is item {place} of another set called {name}, with "
                    "other labels or candidates; write it again with --items"
                )
            found[name].append(is_right)
    for name, right in found.items():
        if len(right) != len(results[name].items):
            raise UserError(
                f"{path} has {len(right)} items of {name}, but the set has "
                f"{len(results[name].items)}; write it again with --items"
            )
    return found


def compare(results: Dict[str, SetResult], others: Dict[str, List[bool]]) -> Dict[str, Comparison]:
    """Compare the accuracy of this model and another model on each contrastive set.

    Args:
        results: results of this model, by name of the set.
        others: name of the set -> for each of its items, whether the other model gets it right.

    Returns:
        Name of the set -> comparison.
    """
    from scipy.stats import binomtest  # the import takes a second

    found = {}
    for name, right in others.items():
        own, other = _counts(results[name].verdicts), _of_bools(right)
        difference, base = _intervals.difference_interval(own, other), other[0]
        better, worse = int((own[0] > base).sum()), int((own[0] < base).sum())
        p = float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
        found[name] = Comparison(float(base.mean()), *difference, better, worse, p)
    return found


def _of_bools(right: Sequence[bool]) -> _intervals.Counts:
    return np.array(right, dtype=int), np.ones(len(right), dtype=int)


def _table_of_comparison(compared: Dict[str, Comparison]) -> Table:
    rows = [
        [
            name,
            f"{100 * c.accuracy:.2f}",
            f"{100 * c.difference:+.2f}",
            _intervals.ends_of(c.low, c.high, "+"),
            f"+{c.better} -{c.worse}",
            _tables.p_value(c.p),
        ]
        for name, c in compared.items()
    ]
    headers = ["set", "baseline %", "difference", "95 % interval", "better, worse", "p (sign test)"]
    return Table("Difference to the baseline", headers, rows)


# ---- results -----------------------------------------------------------------------------------


def _signature(name: str, args, result: SetResult, window: Optional[int]) -> str:
    """Return the settings that led to the results of a set, like a signature of sacreBLEU.

    With ``--losses``, another program has chosen the context and computed the scores, so that the
    signature leaves out the context.
    """
    parts = [f"set:{name}", f"items:{len(result.items)}"]
    protocol = _protocol_of(args)
    parts += [] if protocol is None else [f"protocol:{protocol}"]
    parts.append(f"scores:{'losses' if args.losses else 'model'}")
    if not args.losses:
        parts.append(f"context:{'all' if args.context is None else args.context}")
        parts += [f"after:{args.context_after}"] if args.context_after > 0 else []
        parts += [] if window is None else [f"window:{window}"]
    parts += ["ties:wrong", _intervals.PROCEDURE]
    return "|".join(["contrastive", *parts, f"version:{fairseq_docmt.__version__}"])


def _protocol_of(args) -> Optional[str]:
    """Return the protocol by which items are scored and judged; None if it is not known.

    With ``--losses``, another program has computed the scores, so that the protocol is known only
    if it determines how candidates with the same text are judged.
    """
    is_known = not args.losses or PROTOCOLS[args.protocol].equal != "merged"
    return args.protocol if is_known else None


def _rows(name: str, result: SetResult) -> List[list]:
    rows = [_row(name, "all", summarise(result.verdicts), _interval(result.verdicts))]
    for label, values in by_label(result.items, result.verdicts).items():
        if label != "phenomenon" or len(values) > 1:
            rows += [_row(name, f"{label} {value}", found) for value, found in values.items()]
    return rows


def _row(name: str, part: str, found: Accuracy, interval: str = "") -> List[str]:
    accuracy, chance = f"{100 * found.accuracy:.2f}", f"{100 * found.chance:.2f}"
    return [name, part, str(found.items), accuracy, interval, str(found.ties), chance]


def _counts(verdicts: Sequence[Verdict]) -> _intervals.Counts:
    return _of_bools([verdict.correct for verdict in verdicts])


def _interval(verdicts: Sequence[Verdict]) -> str:
    found = _intervals.share_interval(_counts(verdicts))
    return _intervals.ends_of(found.low, found.high)


def _figures(result: SetResult) -> dict:
    parts = by_label(result.items, result.verdicts)
    return {
        "all": _figure(summarise(result.verdicts)),
        "by label": {
            label: {value: _figure(found) for value, found in values.items()}
            for label, values in parts.items()
        },
    }


def _figure(found: Accuracy) -> dict:
    return {**found._asdict(), "accuracy": found.accuracy}


def _item_lines(results: Dict[str, SetResult], protocol: Optional[str]):
    for name, result in results.items():
        for number, (item, scores, verdict) in enumerate(zip(*result), start=1):
            entry = {"set": name, "item": number, "labels": item.labels, "right": item.correct}
            entry = {**entry, "protocol": protocol, "scores": scores, **verdict._asdict()}
            yield json.dumps(entry, ensure_ascii=False)
