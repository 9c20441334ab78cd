"""Compare the time of an update of memory_transformer and the stock transformer.

    python training.py --threads 1

Transformer base on random sentences: K consecutive sentences of each of B documents, against the
same number of single sentences.  An update is forward, backward and Adam.  Systems take turns, and
the first turn is a warm-up.
"""

import logging
import statistics
import time
from pathlib import Path

import torch
from benchmark import BASE, SCALES, SYSTEMS
from common import (
    add_threads,
    count,
    describe_machine,
    invented_dictionary,
    median_and_range,
    new_parser,
)
from fairseq import options
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from tabulate import tabulate

MEMORY = "memory_transformer"


class Trainer:
    """A system with its optimizer."""

    def __init__(self, system: str):
        sizes, types = SCALES["paper"]
        arch = SYSTEMS[system][SYSTEMS[system].index("--arch") :]
        args = options.parse_args_and_arch(options.get_training_parser(), ["data", *arch, *sizes])
        self.dictionary = invented_dictionary(types)
        task = TranslationTask(TranslationConfig(), self.dictionary, self.dictionary)
        self.model = task.build_model(args).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.stream = system == MEMORY

    def seconds(self, chunk: int, lanes: int, length: int) -> float:
        """Measure the time of one update."""
        first, last = self.dictionary.nspecial, len(self.dictionary)
        tokens = torch.randint(first, last, (chunk * lanes, length))
        lengths = torch.full((chunk * lanes,), length)
        starts = torch.arange(chunk * lanes) < lanes
        follow = {"starts": starts, "lanes": lanes} if self.stream else {}
        begin = time.perf_counter()
        logits, _ = self.model(tokens, lengths, tokens, **follow)
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - begin


def main() -> None:
    """Run the benchmark."""
    parser = new_parser(__doc__)
    parser.add_argument(
        "--chunk", type=count, default=8, metavar="K", help="sentences per document"
    )
    parser.add_argument("--lanes", type=count, default=8, metavar="B", help="documents")
    parser.add_argument("--length", type=count, default=25, help="tokens of a sentence")
    parser.add_argument("--repeats", type=count, default=5, help="turns of each system")
    add_threads(parser)
    parser.add_argument("--out", type=Path, help="file for the table")
    args = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    trainers = {name: Trainer(name) for name in (BASE, MEMORY)}
    times = {name: [] for name in trainers}
    for _ in range(args.repeats + 1):
        for name, trainer in trainers.items():
            times[name].append(trainer.seconds(args.chunk, args.lanes, args.length))
    times = {name: values[1:] for name, values in times.items()}
    ratios = [b / a for a, b in zip(times[BASE], times[MEMORY])]
    rows = [[name, f"{statistics.median(values):.2f}"] for name, values in times.items()]
    rows.append(["ratio", median_and_range(ratios)])
    text = f"{describe_machine(torch.device('cpu'), args.threads)}\n\n"
    text += tabulate(rows, headers=["system", "seconds"], tablefmt="github")
    print(text)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
