"""Order of the examples in a batch, which fairseq sorts by length."""

from typing import Callable, Dict, List, Tuple

import torch
from torch import Tensor


def sample_and_order(
    examples: List[dict], collate: Callable[[List[dict]], dict]
) -> Tuple[dict, Tensor]:
    """Collate examples as fairseq does, and return which example each row is.

    Args:
        examples: examples of a stock dataset, each with ``id``; several may have the same.
        collate: stock collater.

    Returns:
        Sample, and the (rows,) numbers of the examples.
    """
    # Numbers in place of ids survive the sorting.
    sample = collate([{**example, "id": number} for number, example in enumerate(examples)])
    order = sample["id"]
    sample["id"] = torch.tensor([example["id"] for example in examples])[order]
    return sample, order


def sample_in_order(examples: List[dict], collate: Callable[[List[dict]], dict]) -> dict:
    """Collate examples as fairseq does, without its sorting by length.

    Args:
        examples, collate: see :func:`sample_and_order`.

    Returns:
        Sample whose rows are in the order of the examples.
    """
    sample, order = sample_and_order(examples, collate)
    rows = order.argsort()
    net_input: Dict[str, Tensor] = sample["net_input"]
    for key in ("src_tokens", "src_lengths", "prev_output_tokens"):
        if key in net_input:
            net_input[key] = net_input[key][rows]
    if sample["target"] is not None:
        sample["target"] = sample["target"][rows]
    sample["id"] = sample["id"][rows]
    return sample
