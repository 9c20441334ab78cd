"""Measure time and memory of decoding a document against its length, for all kinds of systems.

    python benchmark.py --out FOLDER             # small models, about half an hour on 2 cores
    python benchmark.py --out FOLDER --paper     # transformer base, hours on a CPU

After Feng et al. (2022), section 5.4 and figure 8: random weights, one document of random tokens,
the same number of source and target tokens.  Systems that work sentence by sentence get consecutive
sentences of 100 tokens; the others get the whole document.  Decoding is beam search of size 4 in
the document tasks, on a CPU with packed weights, as in ``fairseq-generate``.  Every run has its own
process; systems take turns, and results are medians.  Memory is the peak minus the memory before
decoding.  Writes ``results.json``, ``results.md`` and ``results.png``.
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Optional

import matplotlib
import torch
from tabulate import tabulate

import fairseq_docmt  # noqa: F401  (registers tasks and architectures)
from fairseq_docmt.errors import UserError

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

sys.path.append(str(Path(__file__).resolve().parent.parent))
from common import (  # noqa: E402
    SMALL,
    add_numbers,
    add_threads,
    count,
    describe_machine,
    devices_of,
    document_task,
    make_folder,
    median_and_range,
    new_parser,
    peak_memory,
    prepare_for_inference,
    start_measuring_memory,
    wait_for,
)

LENGTHS = (100, 500, 1000, 2000, 4000, 8000)
SENTENCE = 100  # tokens, as in the paper
WINDOW = ["--task", "sliding_window_translation", "--decoding", "sequential", "--window-size"]
DOCUMENT = ["--task", "full_document_translation", "--decoding", "segment"]
BASE = "sentence level"
SYSTEMS = {
    BASE: [*WINDOW, "1", "--arch", "transformer"],
    "memory_transformer": [
        *["--task", "sentence_stream_translation", "--arch", "memory_transformer"],
        *["--memory-size", "16"],
    ],
    "window of 4": [*WINDOW, "4", "--arch", "transformer"],
    "document, transformer": [*DOCUMENT, "--arch", "transformer"],
    "document, rfa_transformer": [*DOCUMENT, "--arch", "rfa_transformer"],
    "document, window_attn_transformer": [
        *[*DOCUMENT, "--arch", "window_attn_transformer", "--attention-window", "20"],
    ],
}
#: Model options and size of the vocabulary.
SCALES = {"small": (SMALL, 8000), "paper": ([], 30000)}


def build(system: str, scale: str):
    """Build a task and its untrained model."""
    sizes, types = SCALES[scale]
    positions = ["--max-source-positions", "9000", "--max-target-positions", "9000"]
    task, parsed = document_task([*SYSTEMS[system], *sizes, *positions], types)
    torch.manual_seed(1)
    model = task.build_model(parsed).eval()
    prepare_for_inference(model)
    return task, model


class Decoder:
    """A system that decodes documents of random tokens.

    Args:
        system: key of ``SYSTEMS``.
        scale: key of ``SCALES``.
        device: device of the model.
    """

    def __init__(self, system: str, scale: str, device: torch.device):
        self.task, model = build(system, scale)
        self.models, self.device = [model.to(device)], device
        self.whole = system.startswith("document")

    def seconds(self, length: int) -> float:
        """Measure the time to decode one document of ``length`` tokens."""
        size = length if self.whole else SENTENCE
        first, last = self.task.src_dict.nspecial, len(self.task.src_dict) - 2
        lines = [torch.randint(first, last, (size,)) for _ in range(length // size)]
        for line in lines:
            line[-1] = self.task.src_dict.eos()
        search = argparse.Namespace(beam=4, min_len=size - 1, max_len_a=0, max_len_b=size - 1)
        generator = self.task.build_generator(self.models, search)
        dataset = self.task.build_dataset_for_inference(lines, [size] * len(lines))
        batches = self.task.get_batch_iterator(
            dataset, max_sentences=1, disable_iterator_cache=True
        ).next_epoch_itr(shuffle=False)
        wait_for(self.device)
        begin = time.perf_counter()
        for sample in batches:
            for hypotheses in self.task.inference_step(generator, self.models, sample):
                if len(hypotheses[0]["tokens"]) != size:
                    raise RuntimeError("an output does not have the requested length")
        wait_for(self.device)
        return time.perf_counter() - begin


def run(job: dict) -> None:
    """Print seconds and bytes of one document, after a short one as a warm-up."""
    logging.disable(logging.INFO)
    torch.set_num_threads(job["threads"])
    device = torch.device(job["device"])
    decoder = Decoder(job["system"], job["scale"], device)
    decoder.seconds(SENTENCE)
    before = start_measuring_memory(device)
    seconds = decoder.seconds(job["length"])
    print(json.dumps({"seconds": seconds, "bytes": peak_memory(device) - before}))


def measure(job: dict) -> dict:
    """Run a job in its own process."""
    command = [sys.executable, "-W", "ignore", __file__, "--job", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def collect(args, device: str) -> List[dict]:
    """Measure all systems at all lengths and print each result when it is finished."""
    rows = []
    for length in args.lengths:
        systems = [
            s for s in args.systems if not s.startswith("document, t") or length <= args.most
        ]
        found: Dict[str, list] = {name: [] for name in systems}
        for _ in range(args.repeats):
            for name, results in found.items():
                job = {"system": name, "length": length, "device": device}
                results.append(measure({**job, "scale": args.scale, "threads": args.threads}))
        for name, results in found.items():
            row = {"device": device, "length": length, "system": name, "runs": results}
            base = found.get(BASE)
            row["ratios"] = base and [r["seconds"] / b["seconds"] for r, b in zip(results, base)]
            rows.append(row)
            print(table([row]).splitlines()[-1], flush=True)
    return rows


def median(row: dict, what: str) -> float:
    """Return the median of a value over the runs of a row."""
    return statistics.median(run[what] for run in row["runs"])


def table(rows: List[dict]) -> str:
    """Format a Markdown table; ratios are medians over consecutive runs, with their range."""
    lines = []
    for row in rows:
        ratios = row["ratios"] or []
        ratio = median_and_range(ratios)
        seconds, size = median(row, "seconds"), median(row, "bytes") / 1e6
        line = [row["device"], row["length"], row["system"], f"{seconds:.2f}"]
        lines.append([*line, ratio if ratios else "", f"{size:.0f}"])
    headers = ["device", "tokens", "system", "seconds", f"time to {BASE}", "peak MB above model"]
    return tabulate(lines, headers=headers, tablefmt="github")


def plot(rows: List[dict], path: Path) -> None:
    """Plot time and memory against the length of the document."""
    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4))
    labels = {"seconds": "seconds", "bytes": "peak above model, MB"}
    for panel, (what, label) in zip(panels, labels.items()):
        for device in dict.fromkeys(row["device"] for row in rows):
            for name in SYSTEMS:
                chosen = [r for r in rows if (r["device"], r["system"]) == (device, name)]
                values = [median(r, what) / (1e6 if what == "bytes" else 1) for r in chosen]
                panel.plot([r["length"] for r in chosen], values, "-o", label=f"{name}, {device}")
        panel.set_xlabel("tokens of the document")
        panel.set_ylabel(label)
        panel.set_yscale("log")
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
        "--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS, help="default: all"
    )
    parser.add_argument(
        "--most", type=count, default=4000, help="longest whole document for the stock transformer"
    )
    parser.add_argument("--repeats", type=count, default=3, help="turns of each system")
    add_threads(parser)
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    logging.disable(logging.INFO)
    if args.job:
        run(args.job)
        return
    if args.out is None:
        raise UserError("--out FOLDER is needed for the results")
    wrong: Optional[int] = next((n for n in args.lengths if n < 1 or n % SENTENCE), None)
    if wrong is not None:
        raise UserError(f"--lengths {wrong} is not a multiple of {SENTENCE}, the sentence length")
    args.scale = "paper" if args.paper else "small"
    make_folder(args.out)
    rows, machines = [], []
    for device in devices_of(None):
        machines.append(describe_machine(torch.device(device), args.threads))
        print(machines[-1], flush=True)
        rows += collect(args, device)
    text = "\n\n".join([f"scale: {args.scale}, beam 4", *machines, table(rows)]) + "\n"
    (args.out / "results.md").write_text(text, encoding="utf-8")
    (args.out / "results.json").write_text(
        json.dumps({"machines": machines, "rows": rows}, indent=1)
    )
    plot(rows, args.out / "results.png")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
