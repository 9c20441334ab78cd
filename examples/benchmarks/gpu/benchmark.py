"""Compare time and memory of all architectures with fairseq's transformer on a GPU.

    python benchmark.py --out FOLDER             # one GPU, under 4 minutes
    python benchmark.py --out FOLDER --profile   # and what the GPU does meanwhile

Models have random weights, documents have random words.  An update is forward, loss, backward and
Adam on 4,096 source and 4,096 target tokens; decoding is beam search in the document tasks with
sentences of equal length.  Transformers are compared with fairseq's transformer, recurrent models
with rnnsearch, on the same tokens in rows of the same length.  Systems take turns, and the first
turns are a warm-up.  Results are medians; ratios are taken within a turn.  Memory is the peak
without parameters and state of the optimizer.  Measurements that would begin after ``--limit``
seconds are left out.  Writes ``results.json`` after each group, and ``results.md``.
"""

import argparse
import copy
import gc
import inspect
import json
import logging
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

import fairseq_docmt  # noqa: F401  (registers tasks; before fairseq, which logs)

# isort: split
import torch
import torch.nn.functional as F
from fairseq import utils
from tabulate import tabulate

sys.path.append(str(Path(__file__).resolve().parent.parent))
from common import (  # noqa: E402
    count,
    describe_machine,
    document_task,
    make_folder,
    new_parser,
    peak_memory,
    positive,
    start_measuring_memory,
    wait_for,
)

SENTENCE = ["--task", "sliding_window_translation", "--window-size", "1"]
WINDOWS = ["--task", "sliding_window_translation", "--window-size", "3"]
DOCUMENTS = ["--task", "full_document_translation"]
ROWS = ["--task", "document_rows_translation"]
STREAM = ["--task", "sentence_stream_translation"]
#: (rows, tokens of a row) of an update
SHAPES = {"sentences": (128, 32), "windows": (32, 128), "documents": (4, 1024)}
SENTENCE_LENGTH, LANES = 32, 16


class System(NamedTuple):
    """A system to compare.

    Attributes:
        arch: options of the architecture.
        base: name of the system to compare with.
        shapes: rows of its updates, keys of :data:`SHAPES`.
        decodings: pairs of a task with its options and ``--decoding``.
    """

    arch: List[str]
    base: str
    shapes: Tuple[str, ...]
    decodings: Tuple[Tuple[List[str], str], ...]


ALONE = (SENTENCE, "window")
OF_WINDOWS = ((WINDOWS, "window"), (WINDOWS, "sequential"))
OF_DOCUMENTS = ((DOCUMENTS, "segment"), (DOCUMENTS, "sequential"))
OF_STREAM = ((STREAM, "stream"),)
TRANSFORMER, RNNSEARCH = "transformer", "rnnsearch"


def of_arch(name, base, shape, decodings, *arch: str) -> System:
    """Return a system with rows of one shape."""
    return System(["--arch", name, *arch], base, (shape,), decodings)


SYSTEMS: Dict[str, System] = {
    TRANSFORMER: System(
        ["--arch", "transformer"], TRANSFORMER, tuple(SHAPES), (ALONE, *OF_WINDOWS, *OF_DOCUMENTS)
    ),
    "rfa_transformer": of_arch("rfa_transformer", TRANSFORMER, "windows", OF_WINDOWS),
    "rfa_transformer, decay": of_arch(
        "rfa_transformer", TRANSFORMER, "windows", OF_WINDOWS, "--sentence-gate", "decay"
    ),
    **{
        name: of_arch(name, TRANSFORMER, "documents", OF_DOCUMENTS)
        for name in ("window_attn_transformer", "lst_transformer", "g_transformer")
    },
    **{
        name: of_arch(name, TRANSFORMER, "sentences", OF_STREAM)
        for name in ("memory_transformer", "han_transformer", "multi_encoder_transformer")
    },
    RNNSEARCH: of_arch("rnnsearch", RNNSEARCH, "sentences", (ALONE,)),
    "cache_rnn": of_arch("cache_rnn", RNNSEARCH, "sentences", OF_STREAM),
    "context_rnn": of_arch("context_rnn", RNNSEARCH, "sentences", OF_STREAM),
    "memnet_rnn": of_arch("memnet_rnn", RNNSEARCH, "sentences", ((ROWS, "iterative"),)),
}
#: decodings that are compared with the sentence level
COMPARED_WITH_SENTENCES = ("stream", "iterative")


class Scale(NamedTuple):
    """Sizes of models.

    Attributes:
        layers: numbers of layers of encoder and decoder of a transformer.
        width, inner: widths of layers and of feed-forward layers.
        heads: attention heads.
        types: size of the vocabulary.
    """

    layers: Tuple[int, int]
    width: int
    inner: int
    heads: int
    types: int

    def options(self, arch: str) -> List[str]:
        """Return the options of an architecture."""
        sizes: Dict[str, int] = {}
        for side, layers in zip(("encoder", "decoder"), self.layers):
            sizes[f"{side}-embed-dim"] = self.width
            if arch.endswith("rnn") or arch == RNNSEARCH:
                sizes[f"{side}-hidden-size"] = self.width
                continue
            sizes[f"{side}-layers"] = layers
            sizes[f"{side}-ffn-embed-dim"] = self.inner
            sizes[f"{side}-attention-heads"] = self.heads
            if arch == "g_transformer":
                sizes[f"{side}-context-layers"] = min(2, layers)
                sizes["cross-context-layers"] = min(2, self.layers[1])
        if arch.endswith("rnn") or arch == RNNSEARCH:
            sizes["attention-dim"] = self.width
        found = ["--dropout", "0.1"]
        for name, value in sizes.items():
            found += [f"--{name}", str(value)]
        return found


SCALES = {
    "base": Scale((6, 6), 512, 2048, 8, 16000),
    "small": Scale((3, 2), 256, 1024, 4, 16000),
    "tiny": Scale((1, 1), 16, 32, 2, 100),
}
#: groups of measurements, the most interesting first: size, what, precision
GROUPS = (
    ("base", "update", "half"),
    ("base", "decoding", "half"),
    ("base", "update", "single"),
    ("base", "update", "amp"),
    ("small", "update", "half"),
    ("small", "decoding", "half"),
    ("base", "decoding", "single"),
    ("small", "update", "single"),
    ("small", "decoding", "single"),
)
#: types of ``half`` in training and in decoding; fairseq decodes in float16 only
HALF = {"update": torch.bfloat16, "decoding": torch.float16}
#: precision of fairseq's --amp: parameters in single precision, most operations in half precision
AMP = "amp"


# ---- systems -------------------------------------------------------------------------------------


def task_of(system: System, task: List[str], decoding: str, scale: Scale):
    """Return a task without data, and the options of the model."""
    positions = ["--max-source-positions", "2048", "--max-target-positions", "2048"]
    command = [*task, "--decoding", decoding, *system.arch]
    command += [*scale.options(system.arch[1]), *positions]
    if decoding == "iterative":
        command.append("--gold-drafts")
    return document_task(command, scale.types)


def build(system: System, scale: Scale):
    """Return a model with random weights, on the CPU, and its dictionary."""
    task, parsed = task_of(system, *system.decodings[0], scale)
    torch.manual_seed(1)
    return task.build_model(parsed, from_checkpoint=True), task.target_dictionary


def words(dictionary, rows: int, length: int) -> torch.Tensor:
    """Return (rows, length) random words closed by ``</s>``, the same at every call."""
    generator = torch.Generator().manual_seed(rows)
    last = len(dictionary) - 2  # before the document symbols
    found = torch.randint(dictionary.nspecial, last, (rows, length), generator=generator)
    found[:, -1] = dictionary.eos()
    return found


# ---- measurements --------------------------------------------------------------------------------


class Update:
    """Updates of a model on one batch.

    Args:
        model: model in training mode on its device.
        dictionary: dictionary of both sides.
        shape: key of :data:`SHAPES`.
        times: factor of the number of rows.
        amp: whether to compute as with ``--amp``.
    """

    def __init__(self, model, dictionary, shape: str, times: float = 1, amp: bool = False):
        self.model, self.amp = model, amp
        device = next(model.parameters()).device
        rows, length = SHAPES[shape]
        rows = max(LANES if shape == "sentences" else 1, int(rows * times))
        source = words(dictionary, rows, length)
        source[:, SENTENCE_LENGTH - 1 : -1 : SENTENCE_LENGTH] = dictionary.index("<sep>")
        previous = torch.cat([source[:, -1:], source[:, :-1]], dim=1)
        self.target = source.to(device)
        row = torch.arange(rows, device=device)
        self.inputs = {
            "src_tokens": self.target,
            "src_lengths": torch.full((rows,), length, device=device),
            "prev_output_tokens": previous.to(device),
        }
        known = inspect.signature(model.forward).parameters
        if "lanes" in known:
            self.inputs.update(starts=row < LANES, lanes=LANES)
        if "documents" in known:
            self.inputs.update(documents=row // (rows // LANES))
        trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=1e-5)
        self.scaler = torch.amp.GradScaler(device.type, enabled=amp)
        self.units = rows * length

    def __call__(self) -> None:
        """Do an update."""
        with torch.autocast(self.target.device.type, enabled=self.amp):
            logits, _ = self.model(**self.inputs)
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(), self.target.flatten(), label_smoothing=0.1
        )
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()


class Decoding:
    """Decoding of some documents with beams of 4.

    Args:
        model: model in evaluation mode on its device, prepared for generation.
        task: task with its ``--decoding``.
        args: command line with the numbers of documents, sentences and tokens.
    """

    def __init__(self, model, task, args):
        self.model, self.task, self.args = model, task, args
        size = args.length
        search = argparse.Namespace(beam=4, min_len=size - 1, max_len_a=0, max_len_b=size - 1)
        self.generator = task.build_generator([model], search)
        self.units = args.documents * args.sentences
        self.tokens = 0

    @torch.no_grad()
    def __call__(self) -> None:
        """Translate all documents."""
        end = torch.tensor([self.task.source_dictionary.eos()])
        lines: List[torch.Tensor] = []
        for number, line in enumerate(words(self.task.source_dictionary, self.units, 24)):
            if number and number % self.args.sentences == 0:
                lines.append(end)
            lines.append(line)
        dataset = self.task.build_dataset_for_inference(lines, [len(line) for line in lines])
        batches = self.task.get_batch_iterator(
            dataset, max_sentences=self.args.documents, disable_iterator_cache=True
        ).next_epoch_itr(shuffle=False)
        device, self.tokens = next(self.model.parameters()).device, 0
        for sample in batches:
            sample = utils.apply_to_sample(lambda x: x.to(device), sample)
            found = self.task.inference_step(self.generator, [self.model], sample)
            self.tokens += sum(len(h[0]["tokens"]) for h in found if len(h[0]["tokens"]) > 1)


def measured(job, device: torch.device) -> Tuple[float, int]:
    """Return seconds and bytes of a job."""
    before = start_measuring_memory(device)
    wait_for(device)
    begin = time.perf_counter()
    job()
    wait_for(device)
    return time.perf_counter() - begin, peak_memory(device) - before


def count_waits(job, device: torch.device) -> Optional[int]:
    """Return how often Python waits for the GPU in a job, as torch reports it; None on a CPU."""
    if device.type != "cuda":
        return None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            job()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum("called a synchronizing" in str(warning.message) for warning in caught)


def kernel_seconds(job, device: torch.device) -> Optional[float]:
    """Return how long the kernels of a job run, by torch's profiler; None on a CPU."""
    if device.type != "cuda":
        return None
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        job()
        wait_for(device)
    on_gpu = (e for e in profile.key_averages() if e.device_type != torch.autograd.DeviceType.CPU)
    return sum(event.self_device_time_total for event in on_gpu) / 1e6


def jobs_of_updates(models, names, dtype, device, args, amp) -> Dict[tuple, Update]:
    """Return the updates by system and shape."""
    jobs = {}
    for name in names:
        model, dictionary = models[name]
        model = copy.deepcopy(model).to(device, dtype).train()
        for shape in SYSTEMS[name].shapes:
            jobs[name, shape] = Update(model, dictionary, shape, args.rows, amp)
    return jobs


def jobs_of_decoding(models, names, dtype, device, args, scale) -> Dict[tuple, Decoding]:
    """Return the decodings by system and name."""
    jobs = {}
    for name in names:
        system, prepared = SYSTEMS[name], None
        for task, decoding in system.decodings:
            made, _ = task_of(system, task, decoding, scale)
            if prepared is None:
                prepared = copy.deepcopy(models[name][0]).to(device, dtype).eval()
                prepared.prepare_for_inference_(argparse.Namespace(generation=argparse.Namespace()))
            label = "sentence" if task is SENTENCE else f"{task[1].split('_')[1]}, {decoding}"
            label = decoding if decoding in COMPARED_WITH_SENTENCES else label
            jobs[name, label] = Decoding(prepared, made, args)
    return jobs


def base_of(key: tuple) -> tuple:
    """Return the key of the job that a job is compared with."""
    name, kind = key
    return SYSTEMS[name].base, "sentence" if kind in COMPARED_WITH_SENTENCES else kind


def compare(jobs: dict, device: torch.device, args, deadline: float) -> List[dict]:
    """Run jobs in turns; stop early if ``deadline`` is near and five turns are done."""
    runs: Dict[tuple, list] = {key: [] for key in jobs}
    for turn in range(args.warm_up + args.repeats):
        begin = time.perf_counter()
        for key, job in jobs.items():
            found = measured(job, device)
            if turn >= args.warm_up:
                runs[key].append(found)
        took = time.perf_counter() - begin
        if turn + 1 - args.warm_up >= 5 and time.perf_counter() + took > deadline:
            break
    rows = []
    for key, job in jobs.items():
        base = runs.get(base_of(key))
        row = {"system": key[0], "kind": key[1], "units": job.units, "runs": runs[key]}
        row["seconds"], row["bytes"] = (statistics.median(x) for x in zip(*runs[key]))
        if base:
            turns = list(zip(runs[key], base))
            row["time"] = statistics.median(a[0] / b[0] for a, b in turns)
            row["memory"] = statistics.median(a[1] / max(b[1], 1) for a, b in turns)
        if args.profile:
            row["waits"] = count_waits(job, device)
            row["kernels"] = kernel_seconds(job, device)
        if isinstance(job, Decoding):
            row["tokens"] = job.tokens
        rows.append(row)
    return rows


def collect(args) -> dict:
    """Measure all groups, and write the results after each."""
    device = torch.device(args.device)
    begin = time.perf_counter()
    results = {"machine": describe_machine(device, torch.get_num_threads()), "rows": []}
    results["arguments"] = {name: str(value) for name, value in vars(args).items()}
    models: Dict[str, dict] = {}
    for size, what, precision in GROUPS:
        if size not in args.sizes or what not in args.what or precision not in args.precisions:
            continue
        if time.perf_counter() - begin > args.limit:
            print(f"no time for {size}, {what}, {precision}", file=sys.stderr)
            continue
        scale = SCALES["tiny" if args.tiny else size]
        if size not in models:
            models[size] = {name: build(SYSTEMS[name], scale) for name in args.systems}
        dtype = HALF[what] if precision == "half" else torch.float32
        given = (models[size], args.systems, dtype, device, args)
        if what == "update":
            jobs = jobs_of_updates(*given, precision == AMP)
        else:
            jobs = jobs_of_decoding(*given, scale)
        name = AMP if precision == AMP else str(dtype).split(".")[1]
        group = {"size": size, "what": what, "precision": name}
        found = compare(jobs, device, args, begin + args.limit)
        results["rows"] += [{**group, **row} for row in found]
        del jobs
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        (args.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        took = time.perf_counter() - begin
        print(f"{size}, {what}, {precision}: {took:.0f} s so far", file=sys.stderr, flush=True)
    return results


def table(results: dict) -> str:
    """Format the results as Markdown tables, one for each group."""
    parts = [results["machine"]]
    groups: Dict[tuple, list] = {}
    for row in results["rows"]:
        groups.setdefault((row["size"], row["what"], row["precision"]), []).append(row)
    for (size, what, precision), rows in groups.items():
        speed = "ms per update" if what == "update" else "sentences/s"
        heads = ["system", "rows" if what == "update" else "decoding", speed, "time to stock"]
        heads += ["MB", "memory to stock"]
        waits = any(row.get("waits") is not None for row in rows)
        kernels = {(r["system"], r["kind"]): r["kernels"] for r in rows if r.get("kernels")}
        lines = []
        for row in rows:
            median, name, kind = row["seconds"], row["system"], row["kind"]
            value = f"{1000 * median:.1f}" if what == "update" else f"{row['units'] / median:.0f}"
            line = [name, kind, value, _ratio(row, "time")]
            line += [f"{row['bytes'] / 2**20:.0f}", _ratio(row, "memory")]
            line += [row["waits"]] if waits else []
            if kernels:
                own, base = (kernels.get(k) for k in ((name, kind), base_of((name, kind))))
                line += [f"{1000 * own:.1f}", f"{own / base:.2f}"] if own and base else ["", ""]
            lines.append(line)
        heads += ["waits"] if waits else []
        heads += ["ms of kernels", "kernels to stock"] if kernels else []
        shown = tabulate(lines, heads, tablefmt="github", disable_numparse=True)
        parts.append(f"{size}, {what}, {precision}\n\n{shown}")
    return "\n\n".join(parts) + "\n"


def _ratio(row: dict, what: str) -> str:
    return f"{row[what]:.2f}" if what in row else ""


def main() -> None:
    """Run the benchmark."""
    parser = new_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--device", default="cuda", help="device of torch")
    for name, choices, meaning in (
        ("--systems", list(SYSTEMS), "what to measure"),
        ("--sizes", ["base", "small"], "sizes of the models"),
        ("--what", ["update", "decoding"], "what to do with them"),
        ("--precisions", ["half", "single", AMP], "precisions of the numbers"),
    ):
        parser.add_argument(
            name, nargs="+", default=choices, choices=choices, help=f"{meaning}; default: all"
        )
    parser.add_argument("--documents", type=count, default=32, help="documents decoded in parallel")
    parser.add_argument("--sentences", type=count, default=3, help="sentences of a document")
    parser.add_argument("--length", type=count, default=16, help="tokens of a translation")
    parser.add_argument("--repeats", type=count, default=5, help="turns of each system")
    parser.add_argument("--warm-up", type=int, default=1, help="turns before the first that counts")
    parser.add_argument(
        "--limit", type=positive, default=220, help="seconds until the last group may begin"
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="count how often Python waits, and measure how long kernels run",
    )
    parser.add_argument("--tiny", action="store_true", help="tiny models, to try the program")
    parser.add_argument("--rows", type=positive, default=1, help="factor of the rows of an update")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch.cuda.is_available() is False; this program needs a GPU")
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")
    make_folder(args.out)
    found = table(collect(args))
    print(found)
    (args.out / "results.md").write_text(found)


if __name__ == "__main__":
    main()
