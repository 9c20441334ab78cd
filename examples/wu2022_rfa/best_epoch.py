"""Print the epoch with the best mean accuracy on the consistency sets.

    python best_epoch.py SAVE

SAVE has the results of consistency.sh for each epoch, consistency.EPOCH.json.  All sets have the
same weight, as in the code of Wu et al. (2022); the first of several best epochs is chosen.
"""

import argparse
import json
from pathlib import Path


def mean_accuracy(path: Path) -> float:
    """Return the mean accuracy over the sets of a results file."""
    sets = json.loads(path.read_text(encoding="utf-8")).values()
    return sum(figures["all"]["accuracy"] for figures in sets) / len(sets)


def best_epoch(folder: Path) -> int:
    """Return the epoch with the best results; 0 if there are none."""
    found = {int(path.suffixes[-2][1:]): path for path in folder.glob("consistency.*.json")}
    return max(sorted(found), key=lambda epoch: mean_accuracy(found[epoch]), default=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("save", metavar="SAVE", type=Path)
    print(best_epoch(parser.parse_args().save))
