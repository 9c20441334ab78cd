"""Reduce a checkpoint to what decoding and a second stage need: its weights, in half precision.

    python keep_weights.py CHECKPOINT

The state of the optimizer and of the iterator over the training set go.  The file is replaced.
"""

import argparse
from pathlib import Path

import torch

from fairseq_docmt.checkpoint_file import load_state

#: what fairseq reads of the iterator even if a second stage begins its own
ITERATOR = ("version", "epoch", "iterations_in_epoch")


def keep_weights(path: Path) -> None:
    """Replace a checkpoint by one with its weights alone, in half precision."""
    state = load_state(str(path))
    state["model"] = {
        name: value.half() if value.is_floating_point() else value
        for name, value in state["model"].items()
    }
    state.pop("last_optimizer_state", None)
    iterator = state["extra_state"]["train_iterator"]
    state["extra_state"]["train_iterator"] = {name: iterator[name] for name in ITERATOR}
    new = path.with_suffix(".new")
    torch.save(state, new)
    new.replace(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", type=Path)
    keep_weights(parser.parse_args().checkpoint)
