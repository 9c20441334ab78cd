"""Compare the parameters and speed of the recurrent systems.

    python benchmark.py --out FOLDER             # small models, a few minutes
    python benchmark.py --out FOLDER --paper     # sizes of Tu et al. (2018), an hour on 2 cores

After table 5 of Tu et al. (2018) and table 3 of Maruf and Haffari (2018), with random weights and
words, and the same number of sentences in all documents.  Training is forward, backward and Adam on
the parameters that the last training stage of each system trains; decoding is beam search in the
document tasks.  Systems take turns, and the first turn is a warm-up.  Results are medians; ratios
are taken within a turn.  On a CPU, seconds are CPU time of all threads of the process, which
other work on the machine changes little.  Writes ``results.json`` and ``results.md``.
"""

import argparse
import copy
import json
import logging
import statistics
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

import torch
from tabulate import tabulate

import fairseq_docmt  # noqa: F401  (registers tasks and architectures)
from fairseq_docmt.errors import UserError
from fairseq_docmt.optim.grouped_adam import freeze_pretrained

sys.path.append(str(Path(__file__).resolve().parent.parent))
from common import (  # noqa: E402
    add_threads,
    count,
    describe_machine,
    document_task,
    make_folder,
    new_parser,
    prepare_for_inference,
)

SENTENCE = ["--task", "sliding_window_translation", "--window-size", "1", "--decoding", "window"]
STREAM = ["--task", "sentence_stream_translation"]
DOCUMENT = ["--task", "document_rows_translation", "--gold-drafts"]
MEMNET = ["--arch", "memnet_rnn", "--decoder-layers", "1"]
#: Sizes of states and embeddings, size of the vocabulary.
SCALES = {"small": (256, 256, 8000), "paper": (1000, 620, 30000)}


class System(NamedTuple):
    """A system to compare.

    Attributes:
        arguments: options of task and architecture.
        frozen: whether the last training stage trains only the new parameters.
        decodes: whether decoding is measured.
    """

    arguments: List[str]
    frozen: bool = False
    decodes: bool = True


BASE = "rnnsearch"
SYSTEMS: Dict[str, System] = {
    "lstm (fairseq)": System(
        [*SENTENCE, "--arch", "lstm", "--encoder-bidirectional"], decodes=False
    ),
    BASE: System([*SENTENCE, "--arch", "rnnsearch"]),
    **{
        f"cache_rnn, {slots}": System(
            [*STREAM, "--arch", "cache_rnn", "--cache-size", str(slots)], frozen=True
        )
        for slots in (25, 500, 1000)
    },
    **{
        f"memnet_rnn, {memory}, {place}": System(
            [*DOCUMENT, *MEMNET, "--context-side", memory, "--context-integration", place]
        )
        for place in ("context", "output")
        for memory in ("source", "target", "both")
    },
    **{
        f"context_rnn, {context}": System(
            [*STREAM, "--arch", "context_rnn", "--decoder-layers", "1", "--context", context]
        )
        for context in ("previous-target", "previous-source-attention", "hierarchical")
    },
}


class Runner:
    """A system with its optimizer.

    Args:
        name: key of ``SYSTEMS``.
        args: command line of the benchmark.
    """

    def __init__(self, name: str, args):
        self.system, self.args = SYSTEMS[name], args
        hidden, embedding, types = SCALES[args.scale]
        sizes = []
        for side in ("encoder", "decoder"):
            sizes += [f"--{side}-hidden-size", str(hidden), f"--{side}-embed-dim", str(embedding)]
        if "lstm" not in name:  # fairseq's lstm has no such option
            sizes += ["--attention-dim", str(hidden)]
        out = ["--decoder-out-embed-dim", str(embedding)] if "lstm" in name else []
        self.task, parsed = document_task([*self.system.arguments, *sizes, *out], types)
        torch.manual_seed(1)
        self.device = torch.device(args.device)
        self.model = self.task.build_model(parsed, from_checkpoint=True).to(self.device)
        self.parameters = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        if self.system.frozen:
            freeze_pretrained(self.model)
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.Adam(self.trained, lr=1e-4)
        self.prepared = copy.deepcopy(self.model).eval()
        prepare_for_inference(self.prepared)  # packs the weights

    def _sentences(self) -> torch.Tensor:
        first, last = self.task.src_dict.nspecial, len(self.task.src_dict) - 2
        rows = self.args.documents * self.args.sentences
        lines = torch.randint(first, last, (rows, self.args.length))
        lines[:, -1] = self.task.src_dict.eos()
        return lines

    def _seconds(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def train(self) -> float:
        """Measure the words per second of an update."""
        tokens = self._sentences().to(self.device)
        rows, lanes = len(tokens), self.args.documents
        lengths = torch.full((rows,), tokens.size(1), device=self.device)
        row = torch.arange(rows, device=self.device)
        follow = {}
        if self.system.arguments[:2] == STREAM:
            follow = {"starts": row < lanes, "lanes": lanes}
        if self.system.arguments[:2] == DOCUMENT[:2]:
            follow = {"documents": torch.div(row, self.args.sentences, rounding_mode="floor")}
        self.model.train()
        begin = self._seconds()
        logits, _ = self.model(tokens, lengths, tokens, **follow)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return tokens.numel() / (self._seconds() - begin)

    @torch.no_grad()
    def decode(self) -> Optional[float]:
        """Measure the words per second of decoding; None if the system is not decoded."""
        if not self.system.decodes:
            return None
        lines = list(self._sentences())
        typed, size = [], self.args.length
        for number, line in enumerate(lines):
            if number and number % self.args.sentences == 0:
                typed.append(line[-1:])
            typed.append(line)
        search = argparse.Namespace(
            beam=self.args.beam, min_len=size - 1, max_len_a=0, max_len_b=size - 1
        )
        generator = self.task.build_generator([self.prepared], search)
        dataset = self.task.build_dataset_for_inference(typed, [len(line) for line in typed])
        # The same number of sentences per batch, whether of one document or of several.
        whole = self.task.search.reads_memories
        together = self.args.documents // (self.args.sentences if whole else 1)
        batches = self.task.get_batch_iterator(
            dataset, max_sentences=max(1, together), disable_iterator_cache=True
        ).next_epoch_itr(shuffle=False)
        begin, words = self._seconds(), 0
        for sample in batches:
            for hypotheses in self.task.inference_step(generator, [self.prepared], sample):
                words += len(hypotheses[0]["tokens"]) if len(hypotheses[0]["tokens"]) > 1 else 0
        return words / (self._seconds() - begin)


def collect(args) -> List[dict]:
    """Measure parameters and words per second of all systems in all turns but the first."""
    runners = {name: Runner(name, args) for name in args.systems}
    rows = {
        name: {"system": name, "parameters": r.parameters, "training": [], "decoding": []}
        for name, r in runners.items()
    }
    for turn in range(args.repeats + 1):
        for name, runner in runners.items():
            found = {"training": runner.train(), "decoding": runner.decode()}
            for what, speed in found.items():
                if turn > 0:
                    rows[name][what].append(speed)
    return list(rows.values())


def table(rows: List[dict]) -> str:
    """Format the results as a Markdown table; ratios are to rnnsearch in the same turn."""
    base = next((row for row in rows if row["system"] == BASE), None)
    lines = []
    for row in rows:
        line = [row["system"], f"{row['parameters'] / 1e6:.1f}"]
        for what in ("training", "decoding"):
            if None in row[what]:
                line += ["", ""]
                continue
            line.append(f"{statistics.median(row[what]):.0f}")
            ratios = [a / b for a, b in zip(row[what], base[what])] if base else []
            line.append(f"{statistics.median(ratios):.2f}" if ratios else "")
        lines.append(line)
    headers = ["system", "million parameters", "training words/s", "to rnnsearch"]
    headers += ["decoding words/s", "to rnnsearch"]
    return tabulate(lines, headers=headers, tablefmt="github", disable_numparse=True)


def main() -> None:
    """Run the benchmark."""
    parser = new_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--paper", action="store_true", help="sizes of Tu et al. (2018)")
    parser.add_argument(
        "--systems", nargs="+", default=list(SYSTEMS), metavar="NAME", help="default: all"
    )
    parser.add_argument("--documents", type=count, default=16, help="documents in parallel")
    parser.add_argument("--sentences", type=count, default=5, help="sentences of a document")
    parser.add_argument("--length", type=count, default=25, help="tokens of a sentence")
    parser.add_argument("--beam", type=count, default=10, help="beam size; 10 in Tu et al.")
    parser.add_argument("--repeats", type=count, default=5, help="turns of each system")
    add_threads(parser)
    parser.add_argument("--device", default="cpu", help="device of torch")
    args = parser.parse_args()
    for name in args.systems:
        if name not in SYSTEMS:
            raise UserError(f"unknown system {name}; choose from {'; '.join(SYSTEMS)}")
    logging.disable(logging.INFO)
    torch.set_num_threads(args.threads)
    args.scale = "paper" if args.paper else "small"
    make_folder(args.out)
    machine = describe_machine(torch.device(args.device), args.threads)
    rows = collect(args)
    text = f"scale: {args.scale}\n\n{machine}\n\n{table(rows)}\n"
    (args.out / "results.md").write_text(text, encoding="utf-8")
    (args.out / "results.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1))
    print(text)


if __name__ == "__main__":
    main()
