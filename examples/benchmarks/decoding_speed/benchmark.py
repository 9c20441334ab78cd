"""Compare the decoding speed of rfa_transformer and the stock transformer.

    python benchmark.py --out FOLDER             # small models on a CPU, under 10 minutes
    python benchmark.py --out FOLDER --paper     # sizes of the paper; hours on a CPU

Models have random weights.  All decode the same windows of L sentences with the beam search of
fairseq_docmt, which differs from the stock one only in how it finds the best words.  Outputs are
forced to 22 tokens per sentence, so that all systems do the same work (as in Wu et al. 2022,
section 5 and A.3, who decode every L with one model).  The transformer is measured as fairseq has
it, with packed weights, and with torch's fused attention as well; the first ratio is to the fastest
of them.  Runs alternate between the systems; speeds are medians, ratios are medians over
consecutive runs.  All run with the allocator settings of ``--keep-memory``.  On a machine with a
GPU both CPU and GPU are measured.  Writes ``results.json``, ``results.md`` and ``results.png``.
"""

import argparse
import json
import logging
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple

import fairseq_docmt  # noqa: F401  (registers rfa_transformer; before fairseq, which logs)

# isort: split
import matplotlib
import torch
from fairseq import options
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from tabulate import tabulate

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.sentence_search import FewWordsBeamSearch
from fairseq_docmt.modules.cpu import pack_weights
from fairseq_docmt.ops import step_kernels

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
    median_and_range,
    new_parser,
    peak_memory,
    start_measuring_memory,
    wait_for,
)
from fused_attention import use_fused_attention  # noqa: E402

TOKENS_PER_SENTENCE = 22  # target side of IWSLT 2015 zh-en, table 2 of the paper
WINDOWS = (1, 2, 3, 4, 5, 8, 10, 15, 30)
#: Batch sizes of the paper, table 3, for a 32 GB GPU, except for L = 8 and 30.
GPU_BATCHES = {1: 1024, 2: 512, 3: 512, 4: 256, 5: 256, 8: 160, 10: 128, 15: 96, 30: 48}
#: GB for the runs with the largest batches on a GPU, as the paper's has.
GPU_MEMORY = 32.0
#: Names of the ratios of rfa_transformer's speed.
TO_FASTEST, TO_STOCK = "to the fastest transformer", "to fairseq's"
PACKED, FUSED = " packed", " fused"
STOCK, RFA = "transformer", "rfa_transformer"
#: Compared systems of each device.  On a CPU the tasks decode with packed weights.
SYSTEMS = {
    "cpu": (STOCK, STOCK + PACKED, STOCK + PACKED + FUSED, RFA + PACKED),
    "cuda": (STOCK, STOCK + FUSED, RFA),
}


class Scale(NamedTuple):
    """Sizes of a benchmark.

    Attributes:
        model: options of the models.
        vocabulary: number of types.
        batches: window size L -> batch size of the runs with equal batches.
        memory: GB for the runs with the largest batches on a CPU, without the model.
        repeats: runs of each system.
    """

    model: List[str]
    vocabulary: int
    batches: Dict[int, int]
    memory: float
    repeats: int


SCALES = {
    "small": Scale(SMALL, 8000, {L: max(4, 64 // L) for L in WINDOWS}, 0.2, 3),
    "paper": Scale([], 30000, {L: 64 if L == 1 else 24 for L in WINDOWS}, 2.0, 3),
}


def build(name: str, sizes: List[str], vocabulary: int):
    """Build an untrained model and its dictionary.

    Raises:
        UserError: fairseq does not know the architecture.
    """
    dictionary = invented_dictionary(vocabulary)
    arguments = ["data", "--arch", name, "--max-target-positions", "9000", *sizes]
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    torch.manual_seed(1)
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    return task.build_model(args), dictionary


class Decoder:
    """A system with a beam search of size 4.

    Args:
        name: architecture, followed by `` packed`` for packed weights and `` fused`` for fused
            attention.
        scale: sizes.
        device, dtype: device and precision.
    """

    def __init__(self, name: str, scale: Scale, device: torch.device, dtype: torch.dtype):
        model, self.dictionary = build(name.split()[0], scale.model, scale.vocabulary)
        self.model = model.eval().to(device=device, dtype=dtype)
        # As in fairseq-generate, which computes attention weights only on request.
        self.model.make_generation_fast_(need_attn=False)
        if FUSED in name:
            use_fused_attention(self.model)
            self.model.eval()
        if PACKED in name:
            pack_weights(self.model)
        self.device = device

    def seconds(self, window: int, bsz: int) -> float:
        """Measure the time to decode ``bsz`` windows of ``window`` sentences in one batch."""
        length = window * TOKENS_PER_SENTENCE
        generator = torch.Generator().manual_seed(window)
        first, last = self.dictionary.nspecial, len(self.dictionary)
        source = torch.randint(first, last, (bsz, length), generator=generator)
        source[:, -1] = self.dictionary.eos()
        search = SequenceGenerator(
            [self.model],
            self.dictionary,
            beam_size=4,
            min_len=length - 1,
            max_len_a=0,
            max_len_b=length - 1,
            # The same search for all systems: that of the document tasks.
            search_strategy=FewWordsBeamSearch(self.dictionary),
        )
        lengths = torch.full((bsz,), length, device=self.device)
        sample = {"net_input": {"src_tokens": source.to(self.device), "src_lengths": lengths}}
        wait_for(self.device)
        begin = time.perf_counter()
        search.generate([self.model], sample)
        wait_for(self.device)
        return time.perf_counter() - begin


def compare(decoders: Dict[str, Decoder], window: int, batches: Dict[str, int], repeats: int):
    """Measure the speeds of all systems in turn, and how much faster rfa_transformer is."""
    speeds: Dict[str, list] = {name: [] for name in decoders}
    for _ in range(repeats):
        for name, decoder in decoders.items():
            tokens = batches[name] * window * TOKENS_PER_SENTENCE
            speeds[name].append(tokens / decoder.seconds(window, batches[name]))
    *others, rfa = speeds.values()
    return {
        "window": window,
        "batches": batches,
        "speeds": {name: statistics.median(values) for name, values in speeds.items()},
        "ratios": {
            TO_FASTEST: [own / max(run) for own, *run in zip(rfa, *others)],
            TO_STOCK: [own / base for own, base in zip(rfa, others[0])],
        },
    }


# ---- the largest batch ---------------------------------------------------------------------------


def largest_batches(
    decoders: Dict[str, Decoder], scale_name: str, window: int, device, dtype
) -> Dict[str, int]:
    """Find the largest batch of 2^k or 3 * 2^k windows that fits the memory, for each system.

    The memory of each additional window is measured with two small batches, on a CPU each in its
    own process.
    """
    found = {}
    memory = GPU_MEMORY if device.type == "cuda" else SCALES[scale_name].memory
    for name, decoder in decoders.items():
        small, large = (
            _peak_memory_on_gpu(decoder, window, bsz)
            if device.type == "cuda"
            else _peak_memory(name, scale_name, window, bsz, device, dtype)
            for bsz in (4, 12)
        )
        each = (large - small) / 8
        if each <= 0:
            raise UserError("the memory of a window could not be measured; give --largest no value")
        most = max(memory * 1e9 / each, 1)
        found[name] = max(b for k in range(10) for b in (2**k, 3 * 2**k) if b <= most)
    return found


def _peak_memory(name, scale_name, window, bsz, device, dtype) -> float:
    """Return the peak number of bytes while decoding one batch."""
    job = {"name": name, "scale": scale_name, "window": window, "bsz": bsz}
    job.update(device=device.type, dtype=str(dtype).split(".")[1])
    command = [sys.executable, "-W", "ignore", __file__, "--peak-memory", json.dumps(job)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(output.splitlines()[-1])


def _peak_memory_on_gpu(decoder: Decoder, window: int, bsz: int) -> int:
    """Return the peak number of bytes while decoding one batch."""
    before = start_measuring_memory(decoder.device)
    decoder.seconds(window, bsz)
    return peak_memory(decoder.device) - before


def _print_peak_memory(job: dict) -> None:
    device = torch.device(job["device"])
    decoder = Decoder(job["name"], SCALES[job["scale"]], device, getattr(torch, job["dtype"]))
    decoder.seconds(1, 1)
    start_measuring_memory(device)
    decoder.seconds(job["window"], job["bsz"])
    print(peak_memory(device))


# ---- output --------------------------------------------------------------------------------------


def table(rows: List[dict]) -> str:
    """Format the results as a Markdown table; ratios are given with their range."""
    lines = []
    for row in rows:
        line = [row["device"], row["window"], " / ".join(map(str, _batches(row)))]
        line += [f"{speed:.0f}" for speed in row["speeds"].values()]
        for ratios in row["ratios"].values():
            line.append(median_and_range(ratios))
        lines.append(line)
    headers = ["device", "L", "batch", *rows[0]["speeds"], *rows[0]["ratios"]]
    return tabulate(lines, headers=headers, tablefmt="github")


def _batches(row: dict) -> List[int]:
    sizes = list(row["batches"].values())
    return sizes[:1] if len(set(sizes)) == 1 else sizes


def plot(rows: List[dict], path: Path) -> None:
    """Plot the ratios to the transformer against the window size."""
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for device in dict.fromkeys(row["device"] for row in rows):
        for kind in ("equal", "largest"):
            chosen = [row for row in rows if row["device"] == device and row["kind"] == kind]
            for name in (TO_FASTEST, TO_STOCK) if chosen else []:
                values = [statistics.median(row["ratios"][name]) for row in chosen]
                style = "-o" if kind == "equal" else "--s"
                label = f"{name}, {device}, {kind} batch"
                axes.plot([row["window"] for row in chosen], values, style, label=label)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xlabel("sentences in a window")
    axes.set_ylabel("decoding speed over the transformer's")
    axes.legend(fontsize="x-small")
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def measure(args, device: torch.device) -> Iterator[dict]:
    """Measure all rows for one device; yield and print each when it is finished."""
    scale, dtype = SCALES[args.scale], getattr(torch, args.dtype)
    decoders = {name: Decoder(name, scale, device, dtype) for name in SYSTEMS[device.type]}
    for decoder in decoders.values():
        decoder.seconds(1, 4)
    batches = GPU_BATCHES if device.type == "cuda" and args.paper else scale.batches
    plans = [("equal", window) for window in args.windows]
    plans += [("largest", window) for window in args.windows if window in args.largest]
    for kind, window in plans:
        if kind == "equal":
            sizes = dict.fromkeys(decoders, batches[window])
        else:
            sizes = largest_batches(decoders, args.scale, window, device, dtype)
        row = compare(decoders, window, sizes, args.repeats or scale.repeats)
        row = {"device": device.type, "kind": kind, **row}
        print(table([row]).splitlines()[-1], flush=True)
        yield row


def main() -> None:
    """Run the benchmark."""
    parser = new_parser(__doc__)
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--paper", action="store_true", help="sizes of the paper")
    add_numbers(parser, "--windows", WINDOWS, "L", "sentences of a window")
    parser.add_argument(
        "--largest",
        type=count,
        nargs="*",
        metavar="L",
        help="window sizes at which the largest batches are compared too; default: 15",
    )
    parser.add_argument("--repeats", type=count, help="runs of each system; default: 3")
    add_threads(parser)
    parser.add_argument("--device", choices=["cpu", "cuda"], help="default: all there are")
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16", "float16"],
        default="float32",
        help="type of the weights",
    )
    add_keep_memory(parser)
    parser.add_argument("--peak-memory", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    keep_memory(args)
    logging.disable(logging.INFO)
    args.scale = "paper" if args.paper else "small"
    torch.set_num_threads(args.threads)
    if args.peak_memory:
        _print_peak_memory(args.peak_memory)
        return
    if args.out is None:
        raise UserError("--out FOLDER is needed for the results")
    unknown = set(args.windows) - set(WINDOWS)
    if unknown:
        raise UserError(f"--windows {min(unknown)} is not measured; choose from {WINDOWS}")
    if args.largest is None:
        args.largest = [15]
    elif set(args.largest) - set(args.windows):
        raise UserError(f"--largest {args.largest} must be of --windows {args.windows}")
    devices = devices_of(args.device)
    make_folder(args.out)
    rows, machines = [], []
    for name in devices:
        device = torch.device(name)
        machines.append(describe_machine(device, args.threads))
        print(machines[-1], flush=True)
        for row in measure(args, device):
            rows.append(row)
            results = json.dumps({"machines": machines, "rows": rows}, indent=1)
            (args.out / "results.json").write_text(results)
    kernels = "compiled kernels" if step_kernels.is_compiled() else "no compiled kernels"
    settings = f"scale: {args.scale}, dtype: {args.dtype}, beam 4, {kernels}, tokens a second"
    text = "\n\n".join([settings, *machines, table(rows)]) + "\n"
    (args.out / "results.md").write_text(text, encoding="utf-8")
    plot(rows, args.out / "results.png")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
