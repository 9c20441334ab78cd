"""Gather the results of run.sh in one file.

    python results.py collect WORK RECIPE TEST_SET ... > results.json
    python results.py best SCORES.json

``best`` prints the name of the system with the highest BLEU.
"""

import argparse
import csv
import json
import re
from pathlib import Path
from typing import Dict, List

import gains
from sacrebleu.metrics import BLEU

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import read_text
from fairseq_docmt.scoring.texts.translations import read_translations

#: passages of passages.py that are kept: the corpus is not part of this project
PASSAGES = 5


def read(path: Path):
    """Read a JSON file.

    Raises:
        UserError: it is missing or damaged.
    """
    text = read_text(str(path))
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{path} is damaged; make it again") from None


def settings(path: Path) -> dict:
    """Read the lines of systems.txt or tried.txt: name -> start, decodings and options.

    Without the file there are none: a recipe need not have a tried.txt.
    """
    systems = {}
    if not path.exists():
        return systems
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, start, decodings, options = (part.strip() for part in line.split("|"))
            systems[name] = {"start": start, "decodings": decodings.split(","), "options": options}
    return systems


def published(path: Path) -> List[Dict[str, str]]:
    """Read scores of a paper: its system, ours, and its score on each test set; [] without any."""
    if not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def read_log(folder: Path) -> str:
    """Read the log of the training of a system."""
    return (folder / "train.log").read_text(encoding="utf-8", errors="replace")


def curve(log: str) -> List[dict]:
    """Return the validation losses in the log of fairseq-train."""
    pattern = r"valid on 'valid' subset \| loss ([\d.]+) .*? num_updates (\d+)"
    return [{"updates": int(n), "loss": float(loss)} for loss, n in re.findall(pattern, log)]


def budget(log: str, sentences: int) -> Dict[str, float]:
    """Return what training has read, by the log of fairseq-train: epochs, target tokens, sentences.

    A sentence that an epoch shows in several windows counts once, its tokens each time.

    Args:
        log: the log.
        sentences: number of sentences of the training set.
    """
    lengths = re.findall(r"grouped total_num_itrs = (\d+)", log)
    sizes = [float(n.replace(",", "")) for n in re.findall(r"train_inner .* wpb=([\d.,]+),", log)]
    updates = max((point["updates"] for point in curve(log)), default=0)
    if not lengths or not sizes:
        return {}
    epochs = updates / int(lengths[-1])
    tokens = updates * sum(sizes) / len(sizes)
    return {"epochs": epochs, "tokens": tokens, "sentences": epochs * sentences}


def training_sentences(work: Path) -> int:
    """Return the number of sentences of the training set; 0 if its text is not there."""
    text = next((work / "data" / "text" / "raw").glob("train.*"), None)
    if text is None:
        return 0
    with open(text, encoding="utf-8") as lines:
        return sum(not line.isspace() for line in lines)


def begun_anew(log: str) -> str:
    """Return how many tensors of a model its base does not have, with an example."""
    pattern = r"(\d+) tensors are not in the checkpoint and keep .* for example (\S+)"
    found = re.search(pattern, log)
    return f"{found[1]}: {found[2]} ..." if found else ""


def length_ratios(folder: Path) -> Dict[str, float]:
    """Return the length ratio of the test set by each decoding with a beam of 4, by its record.

    Translations without a record were interrupted.
    """
    ratios = {}
    for record in sorted(folder.glob("*/test-4.json")):
        path = record.with_suffix("") / "generate-test.txt"
        command = read(record)[-1]["command"]
        subset, language = (
            command[command.index(option) + 1] for option in ("--gen-subset", "--target-lang")
        )
        reference = folder.parent / "data" / "text" / "raw" / f"{subset}.{language}"
        texts = read_translations({"system": str(path)}, [str(reference)])
        score = BLEU().corpus_score(texts.systems["system"], texts.references)
        ratios[str(path.parent.relative_to(folder))] = score.ratio
    return ratios


def scores_of(folder: Path) -> dict:
    """Return all scores of a system, each with the command that made it."""
    scores = {
        path.stem: {**read(path), "made_by": read(path.with_name(f"{path.stem}-record.json"))[-1]}
        for path in sorted((folder / "scores").glob("*.json"))
        if not path.stem.endswith("-record")
    }
    if "usage" in scores:
        usage = scores["usage"]
        command = usage["made_by"]["command"]
        texts = (Path(command[command.index(side) + 1]) for side in ("--source", "--reference"))
        usage.update(gains.summary(usage, *texts, pronouns="pronouns" in scores))
        # Log-probabilities in single sentences would take megabytes.
        del usage["sentences"]
    return scores


def of_system(folder: Path, sentences: int) -> dict:
    """Return everything that was recorded about a system.

    Args:
        folder: folder of the system.
        sentences: number of sentences of the training set.
    """
    records = {
        str(path.relative_to(folder).with_suffix("")): read(path)
        for path in sorted(folder.glob("**/*.json"))
        if path.parent.name != "scores" and path.name != "valid.json"
    }
    log = read_log(folder)
    return {
        "curve": curve(log),
        "anew": begun_anew(log),
        "budget": budget(log, sentences),
        "length_ratios": length_ratios(folder),
        "runs": records,
        "scores": scores_of(folder),
    }


def of_trial(folder: Path) -> dict:
    """Return validation losses, GPU and scores, if any, of a training that may be unfinished."""
    log = read_log(folder)
    gpu = re.search(r"rank +0: .* name = (.*)", log)
    return {
        "curve": curve(log),
        "gpu": gpu[1].strip() if gpu else "",
        "scores": scores_of(folder),
    }


def collect(work: Path, recipe: Path, sets: List[str]) -> dict:
    """Return the results of all systems that have been scored, and of settings that were tried.

    Raises:
        UserError: the recipe has no systems.txt, or there is no work folder.
    """
    for needed in (recipe / "systems.txt", work):
        if not needed.exists():
            raise UserError(f"{needed} not found; give the folders of run.sh and of its recipe")
    sentences = training_sentences(work)
    found = {
        name: {**line, **of_system(work / name, sentences)}
        for name, line in settings(recipe / "systems.txt").items()
        if (work / name / "scored").exists()
    }
    trials = {
        name: {**line, **of_trial(work / name)}
        for name, line in settings(recipe / "tried.txt").items()
        if (work / name / "train.log").exists()
    }
    tried = {name: trial for name, trial in trials.items() if trial["curve"]}
    penalties = (
        read(work / "base" / "valid.json") if (work / "base" / "valid.json").exists() else {}
    )
    passages = work / "passages.json"
    return {
        "sets": sets,
        "published": published(recipe / "published.tsv"),
        "length_penalties": penalties,
        "systems": found,
        "tried": tried,
        "passages": read(passages)[:PASSAGES] if passages.exists() else [],
    }


def without_places(text: str, work: Path) -> str:
    """Return JSON without the paths of a machine: WORK is the work folder."""
    text = text.replace(json.dumps(str(work.resolve()))[1:-1], "WORK")
    return re.sub(r'"[^"\s]*/((?:fairseq_docmt|examples/)[^"]*)"', r'"\1"', text)


def best(scores: Path) -> str:
    """Return the name of the system with the highest score of the first metric.

    Raises:
        UserError: the file is no output of metrics.
    """
    found = read(scores)
    try:
        values = found["metrics"][0]["scores"]
        return max(values, key=values.get)
    except (LookupError, TypeError, ValueError, AttributeError):
        raise UserError(f"{scores} is no JSON of fairseq-docmt metrics; make it again") from None


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    of_collect = commands.add_parser("collect")
    of_collect.add_argument("work", metavar="WORK", type=Path)
    of_collect.add_argument("recipe", metavar="RECIPE", type=Path)
    of_collect.add_argument("sets", metavar="TEST_SET", nargs="+")
    commands.add_parser("best").add_argument("scores", metavar="SCORES.json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    if args.command == "best":
        print(best(args.scores))
    else:
        text = json.dumps(collect(args.work, args.recipe, args.sets), indent=1)
        print(without_places(text, args.work))
