"""Print the epoch with the best mean accuracy on the consistency sets.

    python best_epoch.py SAVE

SAVE has the results of consistency.sh for each epoch, consistency.EPOCH.json.  All sets have the
same weight, as in the code of Wu et al. (2022); the first of several best epochs is chosen.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Dict


def accuracies(path: Path) -> Dict[str, float]:
    """Return the accuracy on each set of a results file.

    The program ends with a message if the file has no such results.
    """
    try:
        sets = json.loads(path.read_text(encoding="utf-8")).items()
        found = {name: float(figures["all"]["accuracy"]) for name, figures in sets}
        if found and all(0 <= accuracy <= 1 for accuracy in found.values()):
            return found
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        pass
    sys.exit(f"error: {path} is damaged; run consistency.sh again for this epoch")


def best_epoch(folder: Path) -> int:
    """Return the epoch with the best results; the program ends with a message if there are none."""
    numbered = [(path.suffixes[-2][1:], path) for path in folder.glob("consistency.*.json")]
    found = {int(epoch): path for epoch, path in numbered if epoch.isdecimal()}
    if not found:
        sys.exit(f"error: {folder} has no results of consistency.sh (consistency.EPOCH.json)")
    measured = {epoch: accuracies(found[epoch]) for epoch in sorted(found)}
    first, *others = measured
    for epoch in others:
        if measured[epoch].keys() != measured[first].keys():
            sys.exit(
                f"error: {found[first]} and {found[epoch]} are of different sets; run "
                "consistency.sh for both with the same options"
            )
    return max(measured, key=lambda epoch: sum(measured[epoch].values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("save", metavar="SAVE", type=Path)
    print(best_epoch(parser.parse_args().save))
