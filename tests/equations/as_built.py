"""Models with initial parameters, and checkpoints with noise on all parameters."""

from pathlib import Path

import tiny
import torch
from fairseq import checkpoint_utils, options
from fairseq.tasks.translation import TranslationConfig, TranslationTask


def as_built(*arguments: str, seed: int = 0):
    """Return a model in evaluation mode and float64 with its initial values."""
    args = options.parse_args_and_arch(options.get_training_parser(), ["data", *arguments])
    torch.manual_seed(seed)
    task = TranslationTask(TranslationConfig(), tiny.dictionary(), tiny.dictionary())
    return task.build_model(args).double().eval()


def with_noise(checkpoint: Path, deviation: float = 0.3) -> Path:
    """Add noise to all parameters of a checkpoint, so that none is near its initial value.

    What vectors are divided by stays.
    """
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    generator = torch.Generator().manual_seed(4)
    for name, value in state["model"].items():
        if value.is_floating_point() and not name.endswith((".version", ".deviation")):
            value += deviation * torch.randn(value.shape, generator=generator)
    checkpoint_utils.torch_persistent_save(state, str(checkpoint))
    return checkpoint
