"""What the benchmarks share: sizes, memory of a process, and words about the machine."""

import platform
from pathlib import Path

import torch
from fairseq.data import Dictionary

SMALL = (
    "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 256 --decoder-embed-dim 256 "
    "--encoder-ffn-embed-dim 512 --decoder-ffn-embed-dim 512 --encoder-attention-heads 4 "
    "--decoder-attention-heads 4"
).split()


def invented_dictionary(types: int) -> Dictionary:
    """A dictionary of the given size."""
    dictionary = Dictionary()
    for number in range(types - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def start_measuring_memory(device: torch.device) -> int:
    """Bytes in use; the peak is counted from here on (on a CPU: Linux only)."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak_memory(device: torch.device) -> int:
    """Bytes at the peak since :func:`start_measuring_memory`."""
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) * 1024


def describe_machine(device: torch.device, threads: int) -> str:
    """Hardware and versions, to stand beside the figures."""
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
