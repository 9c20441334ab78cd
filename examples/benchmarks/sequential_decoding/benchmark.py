"""Measure the cost of translating a document sentence by sentence without future source sentences.

    python benchmark.py                              # small model, some minutes on a CPU
    python benchmark.py --paper --sentences 15 40    # sizes of Herold and Ney (2023)

One document of random sentences of 25 tokens, random weights, outputs as long as the sentences, a
beam of 12, decoded by the task as in ``fairseq-generate`` on a CPU, one thread.  Three ways are
compared: ``--decoding sequential-full-source``, which encodes the source once; ``sequential``; and
``sequential`` without reusing states, which encodes and reads the whole context again for each
sentence, as systems without windows do.  They take turns; results are medians of CPU seconds.
"""

import argparse
import logging
import statistics
import sys
import time
from pathlib import Path
from typing import Dict, List
from unittest import mock

import torch
from tabulate import tabulate

import fairseq_docmt  # noqa: F401  (registers tasks and architectures)
from fairseq_docmt.generation.ensembles import PrefixEnsemble

sys.path.append(str(Path(__file__).resolve().parent.parent))
from common import (  # noqa: E402
    SMALL,
    add_numbers,
    count,
    describe_machine,
    document_task,
    median_and_range,
    new_parser,
    prepare_for_inference,
)

SENTENCE = 25
BASE = "sequential-full-source"
AGAIN = "sequential, everything again"
WAYS = (BASE, "sequential", AGAIN)
#: model options and vocabulary
SCALES = {"small": (SMALL, 8000), "paper": ([], 15000)}


class Decoder:
    """A system that translates documents of random tokens.

    Args:
        way: one of ``WAYS``.
        arch: architecture.
        scale: key of ``SCALES``.
    """

    def __init__(self, way: str, arch: str, scale: str):
        sizes, types = SCALES[scale]
        arguments = ["--task", "full_document_translation"]
        arguments += ["--decoding", way.split(",")[0], "--max-document-tokens", "9000"]
        for side in ("source", "target"):
            arguments += [f"--max-{side}-positions", "9000"]
        arguments += ["--arch", arch, *sizes]
        self.task, parsed = document_task(arguments, types)
        torch.manual_seed(1)
        self.model = self.task.build_model(parsed).eval()
        prepare_for_inference(self.model)
        self.again = way == AGAIN

    def seconds(self, sentences: int) -> float:
        """Measure the CPU time of a document of ``sentences`` sentences."""
        dictionary = self.task.src_dict
        generator = torch.Generator().manual_seed(1)
        first, last = dictionary.nspecial, len(dictionary) - 2
        lines = torch.randint(first, last, (sentences, SENTENCE), generator=generator)
        lines[:, -1] = dictionary.eos()
        length = SENTENCE - 1
        search = argparse.Namespace(beam=12, min_len=length, max_len_a=0, max_len_b=length)
        generator = self.task.build_generator([self.model], search)
        dataset = self.task.build_dataset_for_inference(list(lines), [SENTENCE] * sentences)
        batches = self.task.get_batch_iterator(
            dataset, max_sentences=1, disable_iterator_cache=True
        ).next_epoch_itr(shuffle=False)
        begin = time.process_time()
        for sample in batches:
            if self.again:
                with mock.patch.object(PrefixEnsemble, "grows", False):
                    self.task.inference_step(generator, [self.model], sample)
            else:
                self.task.inference_step(generator, [self.model], sample)
        return time.process_time() - begin


def compare(decoders: Dict[str, Decoder], sentences: int, repeats: int) -> List[str]:
    """Return a line of the table: medians, and median ratios to the first with their range."""
    seconds: Dict[str, List[float]] = {way: [] for way in decoders}
    for _ in range(repeats):
        for way, decoder in decoders.items():
            seconds[way].append(decoder.seconds(sentences))
    line = [f"{sentences} x {SENTENCE}"]
    for way, values in seconds.items():
        cell = f"{statistics.median(values):.1f}"
        if way != BASE:
            ratios = [value / base for value, base in zip(values, seconds[BASE])]
            cell += f", {median_and_range(ratios)}"
        line.append(cell)
    return line


def main() -> None:
    """Run the benchmark and print its table."""
    parser = new_parser(__doc__)
    parser.add_argument("--paper", action="store_true", help="transformer base, 15,000 types")
    parser.add_argument("--arch", default="window_attn_transformer", help="architecture")
    add_numbers(parser, "--sentences", [15, 60], "N", "sentences of the document")
    parser.add_argument("--repeats", type=count, default=3, help="turns of each way")
    args = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    scale = "paper" if args.paper else "small"
    ways = WAYS if args.arch == "window_attn_transformer" else WAYS[:2]
    with torch.no_grad():
        decoders = {way: Decoder(way, args.arch, scale) for way in ways}
        for decoder in decoders.values():
            decoder.seconds(2)
        lines = [compare(decoders, sentences, args.repeats) for sentences in args.sentences]
    headers = ["sentences x tokens", f"{BASE}: s", *(f"{way}: s, ratio" for way in ways[1:])]
    print(tabulate(lines, headers=headers, tablefmt="github"))
    print(f"\n{args.arch}, {scale}; {describe_machine(torch.device('cpu'), 1)}")


if __name__ == "__main__":
    main()
