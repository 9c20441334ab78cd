"""Decoding speed of rfa_transformer and the stock transformer, side by side in one run.

    python examples/benchmarks/decoding_speed/benchmark.py --out results             # under 10 minutes
    python examples/benchmarks/decoding_speed/benchmark.py --out results --paper     # paper sizes

Random weights, same sizes, the stock beam search for both; windows of L sentences whose outputs
are forced to a length of 22 tokens a sentence, so that both do the same work (the set-up of Wu et
al. 2022, section 5 and A.3).  Runs alternate between the systems; figures are medians, ratios are
medians over pairs of neighbouring runs.
"""

import statistics
import time
from typing import Dict, List, NamedTuple

import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import fairseq_docmt  # noqa: F401  (registers rfa_transformer)
from fairseq_docmt.modules.packed_linear import pack_linear_layers

TOKENS_PER_SENTENCE = 22  # target side of IWSLT 2015 zh-en, table 2 of the paper
WINDOWS = (1, 2, 3, 4, 5, 10, 15, 30)
#: largest batches that fit both systems into one 32 GB GPU, table 3 of the paper; 30 is ours
PAPER_BATCHES = {1: 1024, 2: 512, 3: 512, 4: 256, 5: 256, 10: 128, 15: 96, 30: 48}
SYSTEMS = {
    "transformer": ["--arch", "transformer"],
    "rfa_transformer": ["--arch", "rfa_transformer"],
}


class Setting(NamedTuple):
    """What is decoded: a batch of ``bsz`` windows of ``window`` sentences."""

    window: int
    bsz: int


def build(arguments: List[str], sizes: List[str], vocabulary: int):
    """An untrained model with its own random weights."""
    dictionary = Dictionary()
    for number in range(vocabulary - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", *arguments, *sizes])
    torch.manual_seed(1)
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    return task.build_model(args).eval(), dictionary


class Decoder:
    """One system with its beam search; measures seconds of whole batches.

    Args:
        beam: hypotheses kept.
        device, dtype: where and in which precision.
    """

    def __init__(self, arguments, sizes, vocabulary, beam, device, dtype, packed=False):
        model, self.dictionary = build(arguments, sizes, vocabulary)
        self.model = model.to(device=device, dtype=dtype)
        if packed:
            pack_linear_layers(self.model)
        self.beam, self.device = beam, device

    def seconds(self, setting: Setting, tokens_per_sentence: int) -> float:
        """Time to decode one batch, every output of the same forced length."""
        length = setting.window * tokens_per_sentence
        generator = torch.Generator().manual_seed(setting.window)
        first = self.dictionary.nspecial
        shape = (setting.bsz, length)
        source = torch.randint(first, len(self.dictionary), shape, generator=generator)
        source[:, -1] = self.dictionary.eos()
        source = source.to(self.device)
        search = SequenceGenerator(
            [self.model],
            self.dictionary,
            beam_size=self.beam,
            min_len=length - 1,
            max_len_a=0,
            max_len_b=length - 1,
        )
        lengths = torch.full((setting.bsz,), length, device=self.device)
        sample = {"net_input": {"src_tokens": source, "src_lengths": lengths}}
        self._wait()
        begin = time.perf_counter()
        search.generate([self.model], sample)
        self._wait()
        return time.perf_counter() - begin

    def _wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def compare(decoders: Dict[str, Decoder], setting: Setting, tokens: int, repeats: int) -> dict:
    """Tokens per second of each system, in turn, and the median ratio to the first."""
    speeds: Dict[str, list] = {name: [] for name in decoders}
    produced = setting.bsz * setting.window * tokens
    for _ in range(repeats):
        for name, decoder in decoders.items():
            speeds[name].append(produced / decoder.seconds(setting, tokens))
    base, other = speeds.values()
    ratios = [b / a for a, b in zip(base, other)]
    row = {"window": setting.window, "batch": setting.bsz}
    row.update({name: statistics.median(values) for name, values in speeds.items()})
    row.update(ratio=statistics.median(ratios), lowest=min(ratios), highest=max(ratios))
    return row
