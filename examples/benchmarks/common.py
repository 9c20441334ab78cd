"""Shared parts of the benchmarks: model sizes, tasks without data, memory, the machine."""

import argparse
import logging
import math
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Iterable, List, Optional

import fairseq_docmt  # noqa: F401  (registers tasks; before fairseq, which logs)

# isort: split
import torch
from fairseq import options, tasks
from fairseq.data import Dictionary
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import OmegaConf

from fairseq_docmt.data import add_document_symbols
from fairseq_docmt.errors import UserError

SMALL = (
    "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 256 --decoder-embed-dim 256 "
    "--encoder-ffn-embed-dim 512 --decoder-ffn-embed-dim 512 --encoder-attention-heads 4 "
    "--decoder-attention-heads 4"
).split()
#: Keeps glibc from returning memory to the system after every update.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1000000000000"}


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Formatter that keeps the lines of a description and adds the defaults of options."""

    def _get_help_string(self, action: argparse.Action) -> str:
        """Add the default, unless it is no value or the text mentions it."""
        value = action.default
        if value is None or value is False or "default" in action.help:
            return action.help
        if isinstance(value, list):
            return f"{action.help} (default: {' '.join(map(str, value))})"
        return super()._get_help_string(action)


def new_parser(docstring: str) -> argparse.ArgumentParser:
    """Return a parser whose help begins with the docstring of a program and shows defaults."""
    return argparse.ArgumentParser(
        description=docstring.replace("``", ""), formatter_class=HelpFormatter
    )


def count(text: str) -> int:
    """Return the value of an option that is a whole number from 1.

    Raises:
        ArgumentTypeError: the number is smaller.
    """
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def positive(text: str) -> float:
    """Return the value of an option that is a finite number above 0.

    Raises:
        ArgumentTypeError: it is not.
    """
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0 and finite, got {text}")
    return number


def add_numbers(parser, option: str, default: Iterable[int], metavar: str, text: str) -> None:
    """Add an option that takes one or more whole numbers."""
    parser.add_argument(
        option, type=count, nargs="+", default=list(default), metavar=metavar, help=text
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--threads``."""
    parser.add_argument(
        "--threads", type=count, default=os.cpu_count(), help="CPU threads; default: all there are"
    )


def add_keep_memory(parser) -> None:
    """Add the option that :func:`keep_memory` reads."""
    parser.add_argument(
        "--keep-memory",
        type=int,
        choices=[0, 1],
        default=1,
        help="1: let glibc keep freed memory instead of returning it to the system (default)",
    )


def keep_memory(args) -> None:
    """Restart this program with the allocator settings, if requested."""
    if args.keep_memory and any(name not in os.environ for name in KEEP_MEMORY):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})


def begin(args) -> None:
    """Set what the options ``--out``, ``--keep-memory`` and ``--threads`` say, and log no messages.

    Raises:
        UserError: ``--out`` is missing.
    """
    if args.out is None:
        raise UserError("--out FOLDER is needed for the results")
    make_folder(args.out)
    keep_memory(args)
    logging.disable(logging.INFO)
    torch.set_num_threads(args.threads)


def make_folder(out: Path) -> None:
    """Make the folder of the results, if it is not there.

    Raises:
        UserError: it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be made ({error.strerror}); give a folder") from None


def devices_of(given: Optional[str]) -> List[str]:
    """Return the devices to run on: the given one, by default all there are.

    Raises:
        UserError: torch finds no GPU, and one is given.
    """
    if given == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no GPU; leave it out, or give cpu")
    return [given] if given else ["cpu", *["cuda"] * torch.cuda.is_available()]


def invented_dictionary(types: int) -> Dictionary:
    """Return a dictionary of the given size with artificial words."""
    dictionary = Dictionary()
    for number in range(types - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def document_task(arguments: List[str], types: int):
    """Return a document task without data, and the parsed options, with which it builds models.

    Args:
        arguments: options of the task, the architecture and its sizes.
        types: size of the vocabulary of both sides.
    """
    command = ["data", "-s", "src", "-t", "tgt", *arguments]
    parsed = options.parse_args_and_arch(options.get_training_parser(), command)
    # The options of the task alone, the others as by default: fairseq takes seconds for all.
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.task = tasks.TASK_DATACLASS_REGISTRY[parsed.task].from_namespace(parsed)
    dictionary = add_document_symbols(invented_dictionary(types))
    return tasks.TASK_REGISTRY[parsed.task](cfg.task, dictionary, dictionary), parsed


def prepare_for_inference(model) -> None:
    """Prepare a model as ``fairseq-generate`` does."""
    model.prepare_for_inference_(OmegaConf.structured(FairseqConfig))


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def median_and_range(ratios: List[float]) -> str:
    """Return the median of ratios, with the lowest and the highest."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def start_measuring_memory(device: torch.device) -> int:
    """Return the bytes in use and reset the peak (on a CPU: Linux only)."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak_memory(device: torch.device) -> int:
    """Return the peak number of bytes since :func:`start_measuring_memory`."""
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) * 1024


def describe_machine(device: torch.device, threads: int) -> str:
    """Return hardware and versions, to be printed with the results."""
    if device.type == "cuda":
        where = torch.cuda.get_device_name()
    else:
        where = f"{threads} threads of {_processor()}"
    return f"{where}, torch {torch.__version__}, Python {platform.python_version()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    raise SystemExit(
        "error: common.py is no command; examples/benchmarks/README.md lists the commands"
    )
