"""Collation that keeps the order of the examples."""

from typing import Callable, Dict, List

import torch


def sample_in_order(examples: List[dict], collate: Callable[[List[dict]], dict]) -> dict:
    """Collate examples as fairseq does, without its sorting by length.

    Args:
        examples: examples of a stock dataset, each with ``id``.
        collate: stock collater.

    Returns:
        Sample whose rows are in the order of the examples.
    """
    # Row numbers in place of ids make it possible to undo the sorting.
    sample = collate([{**example, "id": number} for number, example in enumerate(examples)])
    order = sample["id"].argsort()
    net_input: Dict[str, torch.Tensor] = sample["net_input"]
    for key in ("src_tokens", "src_lengths", "prev_output_tokens"):
        if key in net_input:
            net_input[key] = net_input[key][order]
    if sample["target"] is not None:
        sample["target"] = sample["target"][order]
    sample["id"] = torch.tensor([example["id"] for example in examples])
    return sample
