"""Compare memory and time of training on one long document with window and with full attention.

    python benchmark.py --out FOLDER             # small models, a few minutes
    python benchmark.py --out FOLDER --paper     # transformer base, half an hour on 2 cores

One update (forward, backward, Adam) on one document with the same number of source and target
tokens, as in table 2 of Herold and Ney (2023).  Systems take turns, on a CPU each run in its own
process.  Memory is the peak minus model and optimizer state.  On a CPU the linear layers of window
attention are computed by oneDNN, as in the document tasks; fused full attention is measured with
and without oneDNN.  All systems run with the allocator settings of ``--keep-memory``.  Writes
``results.json``, ``results.md`` and ``results.png``.
"""

import argparse
import gc
import json
import logging
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List, Optional

import fairseq_docmt  # noqa: F401  (registers window_attn_transformer; before fairseq, which logs)

# isort: split
import matplotlib
import torch
import torch.nn.functional as F
from fairseq import options
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from tabulate import tabulate

from fairseq_docmt.errors import UserError
from fairseq_docmt.modules.cpu import use_onednn

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parent.parent))
from common import (  # noqa: E402
    SMALL,
    add_keep_memory,
    add_numbers,
    add_threads,
    count,
    describe_machine,
    devices_of,
    invented_dictionary,
    keep_memory,
    make_folder,
    new_parser,
    peak_memory,
    positive,
    start_measuring_memory,
    wait_for,
)
from fused_attention import use_fused_attention  # noqa: E402

LENGTHS = (736, 1472, 2208, 8832)  # table 2 of the paper, and four times its longest document
SDPA = "transformer with SDPA"
#: Suffix of systems whose linear layers are computed by oneDNN, as in the document tasks.
ONEDNN = ", oneDNN"
SYSTEMS = {
    "transformer": ["--arch", "transformer"],
    SDPA: ["--arch", "transformer"],
    SDPA + ONEDNN: ["--arch", "transformer"],
    **{
        f"window {size}{ONEDNN}": ["--arch", "window_attn_transformer", "--attention-window", size]
        for size in ("10", "20")
    },
    f"LST{ONEDNN}": ["--arch", "lst_transformer"],
}
#: Baselines: fairseq unchanged, with torch's fused attention, and with oneDNN as well.
BASES = ("transformer", SDPA, SDPA + ONEDNN)
#: Model options and size of the vocabulary.
SCALES = {"small": (SMALL, 8000), "paper": ([], 30000)}


def build(name: str, scale: str):
    """Build a model with random weights, in training mode, and its dictionary."""
    sizes, vocabulary = SCALES[scale]
    dictionary = invented_dictionary(vocabulary)
    positions = ["--max-source-positions", "9000", "--max-target-positions", "9000"]
    arguments = ["data", *SYSTEMS[name], *sizes, *positions]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    model = task.build_model(args).train()
    if name.startswith(SDPA):
        use_fused_attention(model)
    if name.endswith(ONEDNN):
        use_onednn(model)
    return model, dictionary


def run(job: dict) -> Dict[str, float]:
    """Return bytes of an update, and the median seconds of the updates after it."""
    device = torch.device(job["device"])
    torch.set_num_threads(job["threads"])
    model, dictionary = build(job["system"], job["scale"])
    model = model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    first, last = dictionary.nspecial, len(dictionary)
    tokens = torch.randint(first, last, (1, job["length"]), device=device)

    def update():
        lengths = torch.tensor([tokens.size(1)], device=device)
        logits, _ = model(tokens, lengths, tokens)
        F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        wait_for(device)

    # Allocate gradients and the state of Adam before memory is measured.
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    before = start_measuring_memory(device)
    update()
    peak = peak_memory(device) - before
    for _ in range(job["warm_up"] - 1):
        update()
    seconds = []
    for _ in range(job["updates"]):
        begin = time.perf_counter()
        update()
        seconds.append(time.perf_counter() - begin)
    return {"seconds": statistics.median(seconds), "bytes": peak}


def measure(job: dict, limit: float) -> Optional[dict]:
    """Run a job; return None if it does not fit into ``limit`` GB, or on the GPU.

    On a CPU it has its own process, because memory is that of the process.
    """
    if job["device"] == "cuda":
        try:
            return run(job)
        except torch.OutOfMemoryError:
            return None
        finally:
            gc.collect()
            torch.cuda.empty_cache()
    most = int(limit * 1e9)

    def limit_memory():
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    command = [sys.executable, "-W", "ignore", __file__, "--job", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit_memory)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if "memory" in done.stderr or done.returncode < 0:
        return None
    reason = done.stderr.strip().rpartition("\n")[2]
    raise UserError(f"a run with --memory {limit} failed ({reason}); give more")


def collect(args, device: str) -> Iterator[List[dict]]:
    """Measure all systems at all lengths; yield and print the rows of each length."""
    rows: List[dict] = []
    for length in args.lengths:
        found: Dict[str, list] = {name: [] for name in args.systems}
        for _ in range(args.repeats):
            for name, results in found.items():
                if None in results:
                    continue
                job = {"system": name, "length": length, "device": device}
                job.update(scale=args.scale, threads=args.threads)
                job.update(warm_up=args.warm_up, updates=args.updates)
                results.append(measure(job, args.memory))
        new = [
            {"device": device, "length": length, "system": name, "runs": results}
            for name, results in found.items()
        ]
        rows += new
        print("\n".join(table(new, rows).splitlines()[2:]), flush=True)
        yield new


def median(row: dict, what: str) -> Optional[float]:
    """Return the median of a value over runs; None if a run did not fit into memory."""
    if None in row["runs"]:
        return None
    return statistics.median(run[what] for run in row["runs"])


def table(rows: List[dict], all_rows: List[dict]) -> str:
    """Format a Markdown table with ratios to all baselines."""
    lines = []
    for row in rows:
        line = [row["device"], row["length"], row["system"]]
        seconds, size = median(row, "seconds"), median(row, "bytes")
        if seconds is None:
            lines.append([*line, "does not fit", "", "", ""])
            continue
        line += [f"{seconds:.2f}", f"{size / 1e6:.0f}"]
        for what in ("seconds", "bytes"):
            ratios = []
            for name in BASES:
                bases = (
                    median(r, what)
                    for r in all_rows
                    if (r["device"], r["length"], r["system"]) == (*line[:2], name)
                )
                base = next(bases, None)
                ratios.append("-" if base is None else f"{median(row, what) / base:.2f}")
            line.append(" / ".join(ratios))
        lines.append(line)
    headers = ["device", "tokens", "system", "seconds", "peak MB above static"]
    headers += [f"{what} to full / SDPA / SDPA{ONEDNN}" for what in ("time", "memory")]
    return tabulate(lines, headers=headers, tablefmt="github")


def plot(rows: List[dict], path: Path) -> None:
    """Plot memory and time against the length of the document."""
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4))
    for panel, what, label in zip(
        panels, ("bytes", "seconds"), ("peak above static, GB", "seconds")
    ):
        for device in dict.fromkeys(row["device"] for row in rows):
            for name in SYSTEMS:
                chosen = [r for r in rows if r["system"] == name and r["device"] == device]
                chosen = [r for r in chosen if median(r, what) is not None]
                scale = 1e9 if what == "bytes" else 1
                values = [median(r, what) / scale for r in chosen]
                panel.plot([r["length"] for r in chosen], values, "-o", label=f"{name}, {device}")
        panel.set_xlabel("target tokens of the document")
        panel.set_ylabel(label)
    panels[0].legend(fontsize="x-small")
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main() -> None:
    """Run the benchmark."""
    parser = new_parser(__doc__)
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--paper", action="store_true", help="transformer base")
    add_numbers(parser, "--lengths", LENGTHS, "N", "tokens of the document")
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=SYSTEMS,
        default=list(SYSTEMS),
        metavar="NAME",
        help="default: all",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: all there are")
    parser.add_argument("--repeats", type=count, default=3, help="turns of each system")
    parser.add_argument("--warm-up", type=count, default=1, help="updates before the timed ones")
    parser.add_argument("--updates", type=count, default=1, help="timed updates")
    add_threads(parser)
    parser.add_argument(
        "--memory", type=positive, default=12.0, help="memory limit of a run on a CPU, in GB"
    )
    add_keep_memory(parser)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    logging.disable(logging.INFO)
    if args.job:
        print(json.dumps(run(args.job)))
        return
    if args.out is None:
        raise UserError("--out FOLDER is needed for the results")
    keep_memory(args)
    args.scale = "paper" if args.paper else "small"
    devices = devices_of(args.device)
    make_folder(args.out)
    rows, machines = [], []
    for device in devices:
        machines.append(describe_machine(torch.device(device), args.threads))
        print(machines[-1], flush=True)
        for new in collect(args, device):
            rows += new
            results = json.dumps({"machines": machines, "rows": rows}, indent=1)
            (args.out / "results.json").write_text(results)
    text = "\n\n".join([f"scale: {args.scale}", *machines, table(rows, rows)]) + "\n"
    (args.out / "results.md").write_text(text, encoding="utf-8")
    plot(rows, args.out / "results.png")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
