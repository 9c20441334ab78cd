"""Compare the training time of sentence streams with that of single sentences, on a real corpus.

    python benchmark.py DATA --out FOLDER        # DATA: folder of binarised documents

A system reads some updates of a stream of ``--lanes`` documents; its sentence-level baseline,
fairseq's transformer or ``rnnsearch``, reads the same sentences in as many updates, sorted by
length, in batches of ``--sorted-rows`` so that they have little padding.  Systems take turns; times
are CPU seconds of an update (forward, backward, Adam) on all threads, ratios are taken within a
turn.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Dict, List

import fairseq_docmt  # noqa: F401  (registers tasks; before fairseq, which logs)

# isort: split
import torch
from fairseq import options, tasks
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from tabulate import tabulate

from fairseq_docmt.errors import UserError

sys.path.append(str(Path(__file__).resolve().parent.parent))
from common import (  # noqa: E402
    SMALL,
    add_keep_memory,
    begin,
    count,
    describe_machine,
    median_and_range,
    new_parser,
)

#: system -> its sentence-level baseline, and its options
SYSTEMS = {
    "memory_transformer": ("transformer", []),
    "han_transformer": ("transformer", []),
    "multi_encoder_transformer": ("transformer", []),
    "cache_rnn": ("rnnsearch", []),
    "context_rnn": ("rnnsearch", ["--context", "previous-target"]),
}
SMALL_RNN = (
    "--encoder-embed-dim 256 --encoder-hidden-size 256 --attention-dim 256 "
    "--decoder-embed-dim 256 --decoder-hidden-size 256 --decoder-layers 1"
).split()
#: updates of the stream that are left out, because its first ones begin all documents
SKIPPED = 5


class Trainer:
    """A model with its optimizer.

    Args:
        args: command line of the benchmark.
        *arguments: options of task and architecture.
    """

    def __init__(self, args, *arguments: str):
        small = SMALL if "transformer" in args.system else SMALL_RNN
        parsed = options.parse_args_and_arch(
            options.get_training_parser(),
            [args.data, *arguments, *(small if args.small else []), "--cpu", "--num-workers", "0"],
        )
        self.task = tasks.setup_task(convert_namespace_to_omegaconf(parsed).task)
        self.task.load_dataset("train")
        torch.manual_seed(1)
        self.model = self.task.build_model(parsed)
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-5)
        self._criterion = LabelSmoothedCrossEntropyCriterion(self.task, False, 0.1)

    def seconds(self, updates: List[List[dict]]) -> float:
        """Measure the CPU seconds of updates on some batches each, of a stream in this order."""
        outputs: List[tuple] = []
        hook = self.model.register_forward_hook(
            lambda model, inputs, output: outputs.append(output)
        )
        begin = time.process_time()
        for batches in updates:
            for batch in batches:
                if "lanes" in batch["net_input"]:
                    before = outputs[-1][1]["doc_state"] if outputs else {}
                    state = {name: value.detach() for name, value in before.items()} or None
                    batch = {**batch, "net_input": {**batch["net_input"], "doc_state": state}}
                self._criterion(self.model, batch)[0].backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        hook.remove()
        return time.process_time() - begin


def batches_of_stream(trainer: Trainer, args) -> List[dict]:
    """Return some batches of a stream.

    Raises:
        UserError: the corpus has fewer.
    """
    view = trainer.task.dataset("train")
    iterator = trainer.task.get_batch_iterator(view, max_sentences=args.lanes)
    found = []
    for batch in iterator.next_epoch_itr(shuffle=False):
        found.append(batch)
        if len(found) == SKIPPED + args.updates:
            return found[SKIPPED:]
    raise UserError(f"{args.data} has only {len(found)} updates; give fewer --lanes or --updates")


def sorted_updates(trainer: Trainer, stream: List[dict], rows: int) -> List[List[dict]]:
    """Return the sentences of updates of a stream, sorted by length.

    Each update has several batches of ``rows`` sentences, so that the longest and the shortest of
    them are not padded to the same length.
    """
    view = trainer.task.dataset("train")
    place = {line: item for item, line in enumerate(view.ids.tolist())}
    lines = [line for batch in stream for line in batch["id"].tolist() if line >= 0]
    items = sorted((place[x] for x in lines), key=lambda i: (view.tgt_sizes[i], view.src_sizes[i]))
    parts = [items[first : first + rows] for first in range(0, len(items), rows)]
    batches = [view.collater([view[item] for item in part]) for part in parts]
    each = -(-len(batches) // len(stream))
    return [batches[first : first + each] for first in range(0, len(batches), each)]


def together(batch: dict) -> dict:
    """Return a batch of a stream without its groups of rows."""
    return {**batch, "net_input": {**batch["net_input"], "row_groups": None}}


def padding(updates: List[List[dict]]) -> float:
    """Return the share of padding among the target positions."""
    batches = sum(updates, [])
    total = sum(batch["target"].numel() for batch in batches)
    return 1 - sum(batch["ntokens"] for batch in batches) / total


def compare(args) -> List[list]:
    """Measure all systems and return the rows of the table."""
    chunk = ["--batch-size", str(args.lanes), "--chunk-sentences", str(args.chunk_sentences)]
    stream_task = ["--task", "sentence_stream_translation", *chunk]
    baseline, more = SYSTEMS[args.system]
    ours = Trainer(args, *stream_task, "--arch", args.system, *more)
    single = ["--task", "sliding_window_translation", "--window-size", "1"]
    stock = Trainer(args, *single, "--arch", baseline)
    stream, sentence_level = batches_of_stream(ours, args), f"{baseline}, sorted sentences"
    updates = {
        sentence_level: sorted_updates(stock, stream, args.sorted_rows),
        args.system: [[batch] for batch in stream],
        f"{args.system}, all rows together": [[together(batch)] for batch in stream],
    }
    seconds: Dict[str, List[float]] = {name: [] for name in updates}
    for turn in range(args.repeats + 1):
        for name, given in updates.items():
            found = (stock if name == sentence_level else ours).seconds(given)
            if turn > 0:  # the first turn warms up
                seconds[name].append(found)
    sentences = sum(batch["id"].ge(0).sum().item() for batch in stream)
    rows = []
    for name, found in seconds.items():
        ratios = [a / b for a, b in zip(found, seconds[sentence_level])]
        spread = median_and_range(ratios)
        each = f"{1000 * statistics.median(found) / sentences:.1f}"
        rows.append([name, f"{padding(updates[name]):.0%}", each, spread])
    return rows


def main() -> None:
    """Run the benchmark."""
    parser = new_parser(__doc__)
    parser.add_argument("data", help="folder of binarised documents")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument(
        "--system",
        choices=list(SYSTEMS),
        default="memory_transformer",
        help="system to compare with its baseline",
    )
    parser.add_argument("--lanes", type=count, default=8, help="documents read side by side")
    parser.add_argument("--chunk-sentences", type=count, default=20, help="of each in an update")
    parser.add_argument("--updates", type=count, default=6, help="timed updates of a turn")
    parser.add_argument(
        "--sorted-rows", type=count, default=32, help="sentences in a batch of the baseline"
    )
    parser.add_argument("--repeats", type=count, default=3, help="turns of each system")
    parser.add_argument("--threads", type=count, default=1, help="CPU threads")
    parser.add_argument(
        "--small", action="store_true", help="width 256; default: sizes of the papers"
    )
    add_keep_memory(parser)
    args = parser.parse_args()
    begin(args)
    rows = compare(args)
    headers = ["system", "padding", "ms a sentence", "to single sentences"]
    machine = describe_machine(torch.device("cpu"), args.threads)
    settings = f"{args.lanes} documents, {args.chunk_sentences} sentences of each in an update"
    text = f"{machine}\n{settings}\n\n{tabulate(rows, headers=headers, tablefmt='github')}\n"
    (args.out / "results.md").write_text(text, encoding="utf-8")
    results = {"machine": machine, "settings": settings, "rows": rows}
    (args.out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
