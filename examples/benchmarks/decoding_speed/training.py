"""Compare the training speed of rfa_transformer and the transformer.

    python training.py --out FOLDER              # sizes of the paper; about 10 minutes on 2 cores

One update (forward, backward, Adam) on source and target sequences of the given lengths, with about
1,400 tokens per side in a batch.  Runs alternate between the systems; results are medians.  With
``--keep-memory`` (the default) freed memory stays in the process; otherwise both systems would
request it from the operating system again at every update.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Dict, List

import torch
from benchmark import build
from common import (
    add_keep_memory,
    add_numbers,
    add_threads,
    begin,
    count,
    describe_machine,
    devices_of,
    median_and_range,
    new_parser,
    wait_for,
)
from tabulate import tabulate

from fairseq_docmt.modules.cpu import use_onednn

LENGTHS = (88, 128, 1000, 4000)
TOKENS = 1400
#: Suffix of systems whose linear layers are computed by oneDNN, as in the document tasks.
ONEDNN = " oneDNN"
#: The transformer of fairseq unchanged and with oneDNN, and the system compared with both.
SYSTEMS = ("transformer", "transformer" + ONEDNN, "rfa_transformer" + ONEDNN)


class Trainer:
    """A system with its optimizer."""

    def __init__(self, name: str, device: torch.device):
        sizes = ["--max-source-positions", "9000"]
        model, self.dictionary = build(name.replace(ONEDNN, ""), sizes, vocabulary=30000)
        if name.endswith(ONEDNN):
            use_onednn(model)
        self.model = model.train().to(device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.device = device

    def seconds(self, length: int, bsz: int) -> float:
        """Measure the time of one update on ``bsz`` random pairs of ``length`` tokens."""
        shape = (bsz, length)
        tokens = torch.randint(self.dictionary.nspecial, len(self.dictionary), shape)
        tokens = tokens.to(self.device)
        lengths = torch.full((bsz,), length, device=self.device)
        wait_for(self.device)
        begin = time.perf_counter()
        logits, _ = self.model(tokens, lengths, tokens)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        wait_for(self.device)
        return time.perf_counter() - begin


def compare(trainers: Dict[str, Trainer], length: int, repeats: int) -> dict:
    """Measure target tokens per second of all systems, and ratios of the last to the others."""
    bsz = max(1, TOKENS // length)
    speeds: Dict[str, List[float]] = {name: [] for name in trainers}
    for number in range(repeats + 1):
        for name, trainer in trainers.items():
            speed = bsz * length / trainer.seconds(length, bsz)
            if number > 0:  # the first run of each length warms up
                speeds[name].append(speed)
    *bases, ours = (speeds[name] for name in SYSTEMS)
    ratios = [[b / a for a, b in zip(base, ours)] for base in bases]
    return {"length": length, "batch": bsz, "speeds": speeds, "ratios": ratios}


def table(rows: List[dict]) -> str:
    """Format the results as a Markdown table."""
    lines = []
    for row in rows:
        speeds = [f"{statistics.median(values):.0f}" for values in row["speeds"].values()]
        ratios = [median_and_range(runs) for runs in row["ratios"]]
        lines.append([row["device"], row["length"], row["batch"], *speeds, *ratios])
    headers = ["device", "tokens", "batch", *SYSTEMS, *(f"to {name}" for name in SYSTEMS[:-1])]
    return tabulate(lines, headers=headers, tablefmt="github")


def main() -> None:
    """Run the benchmark."""
    parser = new_parser(__doc__)
    parser.add_argument("--out", type=Path, help="folder for the results")
    add_numbers(parser, "--lengths", LENGTHS, "N", "tokens of a sequence")
    parser.add_argument("--repeats", type=count, default=5, help="runs of each system")
    add_threads(parser)
    add_keep_memory(parser)
    args = parser.parse_args()
    begin(args)
    rows, machines = [], []
    for name in devices_of(None):
        device = torch.device(name)
        machines.append(describe_machine(device, torch.get_num_threads()))
        trainers = {system: Trainer(system, device) for system in SYSTEMS}
        for length in args.lengths:
            rows.append({"device": name, **compare(trainers, length, args.repeats)})
            print(table(rows[-1:]).splitlines()[-1], flush=True)
    text = "\n\n".join([*machines, table(rows)]) + "\n"
    (args.out / "training.md").write_text(text, encoding="utf-8")
    results = {"machines": machines, "rows": rows}
    (args.out / "training.json").write_text(json.dumps(results, indent=1))
    print(f"\n{text}")


if __name__ == "__main__":
    main()
