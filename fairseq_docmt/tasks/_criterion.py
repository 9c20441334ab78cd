"""How the tasks call criteria, and which they refuse."""

import torch

from fairseq_docmt.errors import UserError


def refuse_copies_of_rows(criterion) -> None:
    """Refuse R-Drop for models for which the rows of a batch form documents.

    Raises:
        UserError: the criterion computes R-Drop.
    """
    if getattr(criterion, "rdrop_alpha", 0):
        raise UserError(
            "--rdrop-alpha duplicates the sentences of a batch, which would follow one another "
            "in their document; use another --criterion"
        )


def in_rows_if_needed(sample: dict, criterion) -> dict:
    """Keep the logits in rows for a criterion that ignores the first targets of each row."""
    if not (getattr(criterion, "ignore_prefix_size", 0) and "row_groups" in sample["net_input"]):
        return sample
    return {**sample, "net_input": {**sample["net_input"], "row_groups": None}}


def in_bfloat16(criterion):
    """Return the criterion under autocast on the CPU, without autocast in the backward pass."""

    @torch.autocast("cpu", torch.bfloat16)
    def computed(model, sample):
        return criterion(model, sample)

    return computed
