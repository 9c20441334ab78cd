"""The systems whose checkpoints are kept, and how they are made, translated with and resumed.

    python tests/golden/systems.py [NAME ...]      # makes checkpoints and outputs anew

A checkpoint is saved in the middle of an epoch.  What it prints, and what it prints after training
has gone on from it, lies beside it.  Make one anew only for a reason, and name it in
examples/guide/changes.md.
"""

import gzip
import json
import logging
import os
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

FOLDER = Path(__file__).resolve().parent
KEPT = FOLDER / "checkpoints"
if __name__ == "__main__":
    sys.path[:0] = [str(FOLDER.parent), str(FOLDER.parent.parent)]

import tiny  # noqa: E402

WINDOWS = ["--task", "sliding_window_translation"]
DOCUMENTS = ["--task", "full_document_translation"]
ROWS = ["--task", "document_rows_translation"]
STREAM = ["--task", "sentence_stream_translation"]
DECODINGS = {
    WINDOWS[1]: ["window", "sequential", "segment"],
    DOCUMENTS[1]: ["segment", "sequential", "sequential-full-source"],
    ROWS[1]: ["iterative"],
    STREAM[1]: ["stream"],
}
TRAINING = {
    WINDOWS[1]: ["--window-size", "3", "--max-tokens", "60"],
    DOCUMENTS[1]: ["--max-document-tokens", "20", "--max-tokens", "60"],
    ROWS[1]: ["--max-document-tokens", "20", "--max-tokens", "60"],
    STREAM[1]: ["--batch-size", "2", "--chunk-sentences", "2"],
}
SAVED, RESUMED = 61, 67  # updates; neither is at the end of an epoch


class System(NamedTuple):
    """A task with its options, and the options of a model."""

    task: List[str]
    model: List[str]
    decodings: List[str]


def system(task: List[str], model: List[str], decodings: List[str] = ()) -> System:
    return System(task, narrow(model), list(decodings) or DECODINGS[task[1]])


def narrow(model: List[str]) -> List[str]:
    """A tiny model with half the width."""
    half = {"16": "8", "32": "16", "12": "8", "10": "8"}
    return [half.get(option, option) for option in model]


SYSTEMS: Dict[str, System] = {
    "transformer-windows": system(WINDOWS, tiny.MODEL),
    "transformer-documents": system(DOCUMENTS, tiny.MODEL),
    "rfa-decay": system(WINDOWS, tiny.rfa("--sentence-gate", "decay")),
    "rfa-average": system(DOCUMENTS, tiny.rfa("--sentence-gate", "average", "--rfa-encoder")),
    "window": system(DOCUMENTS, tiny.window()),
    "lst": system(DOCUMENTS, tiny.lst()),
    "group": system(DOCUMENTS, tiny.group()),
    "han": system(STREAM, tiny.han("--context-sentences", "2")),
    "multi-encoder": system(STREAM, tiny.multi_encoder("--context-side", "both")),
    "multi-encoder-inside": system(STREAM, tiny.multi_encoder("--context-integration", "inside")),
    "memory": system(STREAM, tiny.memory()),
    "rnnsearch": system(WINDOWS, tiny.rnnsearch()),
    "cache-deep": system(STREAM, tiny.cache()),
    "cache-shallow": system(STREAM, tiny.cache("--context-integration", "shallow")),
    "memnet": system(ROWS, tiny.memnet()),
    "previous-target": system(STREAM, tiny.context()),
    "jean": system(STREAM, tiny.context("--context", "previous-source-attention")),
    "wang": system(STREAM, tiny.context("--context", "hierarchical")),
}


def train(name: str, data: Path, folder: Path, updates: int) -> Path:
    """Train a system and return its last checkpoint."""
    task, model, _ = SYSTEMS[name]
    arguments = [*task, *TRAINING[task[1]], "--lr", "0.02", "--label-smoothing", "0.1"]
    if name == "memnet":
        lm = folder.parent / f"{folder.name}-lm"
        lm.mkdir()
        arguments += ["--gold-drafts", "--sentence-lm", tiny.sentence_lm(data, lm)]
    return tiny.train(data, folder, *arguments, updates=updates, model=model)


def outputs(
    name: str, data: Path, checkpoint: Path, decodings: Optional[List[str]] = None
) -> Dict[str, Dict[str, str]]:
    """Return printed score and text by decoding, all by default, and line number."""
    task, _, every = SYSTEMS[name]
    found = {}
    for decoding in decodings or every:
        printed = tiny.generate(data, checkpoint, *task, "--decoding", decoding)
        lines = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", printed, flags=re.M)
        found[decoding] = {
            row: f"{float(score):.4f} {text}" for row, score, text in sorted(lines, key=_row)
        }
    return found


def _row(line) -> int:
    return int(line[0])


def make(name: str, data: Path, scratch: Path) -> None:
    """Write the checkpoint of a system and its output before and after further training."""
    trained = train(name, data, scratch / name, updates=SAVED)
    KEPT.mkdir(exist_ok=True)
    # Without a time stamp, so that equal checkpoints are equal files.
    (KEPT / f"{name}.pt.gz").write_bytes(gzip.compress(trained.read_bytes(), mtime=0))
    printed = {"saved": outputs(name, data, trained)}
    printed["resumed"] = outputs(name, data, resume(name, data, scratch / f"{name}-resumed"))
    text = json.dumps(printed, indent=1) + "\n"
    (KEPT / f"{name}.json").write_text(text, encoding="utf-8")
    print(f"{name}: {(KEPT / f'{name}.pt.gz').stat().st_size // 1000} kB", file=sys.stderr)


def unpack(name: str, folder: Path) -> Path:
    """Copy the stored checkpoint into a new folder as the last one of a training."""
    folder.mkdir()
    checkpoint = folder / "checkpoint_last.pt"
    checkpoint.write_bytes(gzip.decompress((KEPT / f"{name}.pt.gz").read_bytes()))
    return checkpoint


def resume(name: str, data: Path, folder: Path) -> Path:
    """Continue training from the stored checkpoint."""
    unpack(name, folder)
    return train(name, data, folder, updates=RESUMED)


def corpus(folder: Path) -> Path:
    """Return the binarised corpus of all systems."""
    for path in (FOLDER / "corpus").iterdir():
        shutil.copy(path, folder)
    return tiny.preprocess(folder, ["train", "valid", "test"])


def _write_corpus() -> None:
    folder = FOLDER / "corpus"
    folder.mkdir()
    splits = {"train": (4, 1, 6, 3, 5, 4, 5), "valid": (3, 1), "test": (1, 4, 3)}
    for seed, (split, lengths) in enumerate(splits.items()):
        tiny.write_split(folder, split, tiny.documents(lengths, seed, words=8))


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    import torch

    torch.set_num_threads(1)
    if not (FOLDER / "corpus").exists():
        _write_corpus()
    with tempfile.TemporaryDirectory() as scratch:
        binarised = corpus(Path(scratch))
        for wanted in sys.argv[1:] or SYSTEMS:
            folder = Path(scratch) / f"scratch-{wanted}"
            folder.mkdir()
            make(wanted, binarised, folder)
