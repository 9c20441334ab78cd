"""Measure the cost of reading new sentences with the frozen language models of memnet_rnn.

    python sentence_vectors.py

Sizes of Maruf and Haffari (2018), random weights and words, one document in an update, one thread.
Each update of new sentences is followed by an update of the same sentences, whose vectors are
cached; results are medians of CPU seconds.
"""

import logging
import statistics
import sys
import time
from pathlib import Path

import torch

import fairseq_docmt  # noqa: F401  (registers tasks and architectures)

sys.path.append(str(Path(__file__).resolve().parent.parent))
from common import count, document_task, new_parser  # noqa: E402

COMMAND = "--task document_rows_translation --arch memnet_rnn --context-side source"


def build(types: int):
    """Build a model of the paper's size and its dictionary."""
    task, parsed = document_task(COMMAND.split(), types)
    torch.manual_seed(1)
    return task.build_model(parsed, from_checkpoint=True).train(), task.source_dictionary


def update(model, optimizer, tokens) -> float:
    """Measure the CPU seconds of an update: forward, backward and optimizer step."""
    rows = len(tokens)
    lengths = torch.full((rows,), tokens.size(1))
    begin = time.process_time()
    logits, _ = model(tokens, lengths, tokens.roll(1, 1), documents=torch.zeros(rows).long())
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
    return time.process_time() - begin


def main() -> None:
    """Run the benchmark and print its table."""
    parser = new_parser(__doc__)
    parser.add_argument("--sentences", type=count, default=32, help="sentences of the document")
    parser.add_argument("--length", type=count, default=25, help="tokens of a sentence")
    parser.add_argument("--words", type=count, default=8000, help="size of the vocabulary")
    parser.add_argument("--repeats", type=count, default=5, help="updates of each kind")
    args = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    model, dictionary = build(args.words)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.01)
    found: dict = {"new sentences": [], "the same sentences again": []}
    for _ in range(args.repeats + 1):
        size = (args.sentences, args.length)
        tokens = torch.randint(dictionary.nspecial, len(dictionary) - 2, size)
        tokens[:, -1] = dictionary.eos()
        for seconds in found.values():
            seconds.append(update(model, optimizer, tokens))
    for name, seconds in found.items():
        print(f"{name}: {statistics.median(seconds[1:]):.2f} CPU seconds an update")


if __name__ == "__main__":
    main()
