"""Print the epoch with the best mean accuracy on the consistency sets.

    python best_epoch.py SAVE

SAVE has the results of consistency.sh for each epoch, consistency.EPOCH.json.  All sets have the
same weight, as in the code of Wu et al. (2022); the first of several best epochs is chosen.
"""

import argparse
import json
import sys
from pathlib import Path


def mean_accuracy(path: Path) -> float:
    """Return the mean accuracy over the sets of a results file.

    The program ends with a message if the file has no such results.
    """
    try:
        sets = json.loads(path.read_text(encoding="utf-8")).values()
        return sum(float(figures["all"]["accuracy"]) for figures in sets) / len(sets)
    except (ValueError, AttributeError, TypeError, KeyError, ZeroDivisionError):
        sys.exit(f"error: {path} is damaged; run consistency.sh again for this epoch")


def best_epoch(folder: Path) -> int:
    """Return the epoch with the best results; the program ends with a message if there are none."""
    numbered = [(path.suffixes[-2][1:], path) for path in folder.glob("consistency.*.json")]
    found = {int(epoch): path for epoch, path in numbered if epoch.isdecimal()}
    if not found:
        sys.exit(f"error: {folder} has no results of consistency.sh (consistency.EPOCH.json)")
    return max(sorted(found), key=lambda epoch: mean_accuracy(found[epoch]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("save", metavar="SAVE", type=Path)
    print(best_epoch(parser.parse_args().save))
