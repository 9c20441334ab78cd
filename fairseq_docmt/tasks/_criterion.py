"""Adapt batches and criteria to the document tasks, and refuse criteria that do not fit."""

from contextlib import nullcontext

import torch
from fairseq.criterions import CRITERION_REGISTRY
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_docmt.errors import UserError

#: Up to this length, torch's fused attention in bfloat16 on a CPU is slower than plain products.
SHORT = 128


#: fairseq's criteria for translation
OF_TRANSLATION = ("cross_entropy", "label_smoothed_cross_entropy", "adaptive_loss")
OF_TRANSLATION += ("label_smoothed_cross_entropy_with_alignment",)
OF_TRANSLATION += ("label_smoothed_cross_entropy_with_rdrop", "vocab_parallel_cross_entropy")
OF_TRANSLATION += ("latency_augmented_label_smoothed_cross_entropy",)


def refuse_criteria_of_others(name: str) -> None:
    """Refuse fairseq's criteria for speech, language models and other tasks than translation.

    Args:
        name: value of ``--criterion``.

    Raises:
        UserError: the criterion is not for translation.
    """
    by_fairseq = CRITERION_REGISTRY[name].__module__.startswith("fairseq.")
    if by_fairseq and name not in OF_TRANSLATION:
        raise UserError(
            f"--criterion {name} is not for translation; give label_smoothed_cross_entropy or "
            "another one"
        )


def refuse_copies_of_rows(criterion) -> None:
    """Refuse R-Drop for models whose batch rows are the sentences of documents.

    R-Drop duplicates the rows, and the copies would be read as further sentences of a document.

    Raises:
        UserError: the criterion computes R-Drop.
    """
    if getattr(criterion, "rdrop_alpha", 0):
        raise UserError(
            "--rdrop-alpha duplicates the sentences of a batch, which would follow one another "
            "in their document; use another --criterion"
        )


def in_rows_if_needed(sample: dict, criterion) -> dict:
    """Return the batch, with row groups removed if the criterion must know where each row begins.

    With row groups, which group sentences by length, a model returns its outputs for all target
    positions of the loss in a single row.  A criterion with ``--ignore-prefix-size``, which ignores
    the first targets of each row, would then ignore only the first ones of the batch.
    """
    if not (getattr(criterion, "ignore_prefix_size", 0) and "row_groups" in sample["net_input"]):
        return sample
    return {**sample, "net_input": {**sample["net_input"], "row_groups": None}}


def in_bfloat16(criterion):
    """Return a function that computes a criterion under bfloat16 autocast on the CPU.

    The function takes a model and a sample, like the criterion.  Its backward pass runs without
    autocast.
    """

    @torch.autocast("cpu", torch.bfloat16)
    def computed(model, sample):
        with _fast_attention(sample["net_input"]):
            return criterion(model, sample)

    return computed


def _fast_attention(net_input: dict):
    """Return a context manager that selects the attention kernel by a batch's sequence lengths.

    On a CPU, torch's fused kernel is slower than plain matrix products for short sequences.
    """
    lengths = [net_input[name].size(-1) for name in ("src_tokens", "prev_output_tokens")]
    return sdpa_kernel(SDPBackend.MATH) if max(lengths) <= SHORT else nullcontext()
