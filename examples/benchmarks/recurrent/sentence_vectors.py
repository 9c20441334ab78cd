"""CPU seconds of updates of memnet_rnn whose sentences the frozen language models have read or not.

    python sentence_vectors.py

Sizes of Maruf and Haffari (2018), random weights and words, one document in an update, one thread.
An update of new sentences and one of the same sentences take turns; figures are medians.
"""

import argparse
import logging
import statistics
import time

import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import fairseq_docmt  # noqa: F401  (registers tasks and architectures)
from fairseq_docmt.data import add_document_symbols

COMMAND = "data -s src -t tgt --task full_document_translation --arch memnet_rnn --memory source"


def build(types: int):
    """Model of the size of the paper."""
    from benchmark import invented_dictionary

    parsed = options.parse_args_and_arch(options.get_training_parser(), COMMAND.split())
    dictionary = add_document_symbols(invented_dictionary(types))
    torch.manual_seed(1)
    cfg = convert_namespace_to_omegaconf(parsed).task
    task = tasks.TASK_REGISTRY[parsed.task](cfg, dictionary, dictionary)
    return task.build_model(parsed, from_checkpoint=True).train(), dictionary


def update(model, optimizer, tokens) -> float:
    """CPU seconds of forward, backward and step."""
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
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", type=int, default=32, help="of a document")
    parser.add_argument("--length", type=int, default=25, help="tokens of a sentence")
    parser.add_argument("--words", type=int, default=8000, help="in the vocabulary")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    model, dictionary = build(args.words)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.01)
    found: dict = {"sentences seen for the first time": [], "the same sentences again": []}
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
