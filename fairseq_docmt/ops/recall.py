"""Attention to the memory cells of the other sentences of a document (Maruf and Haffari 2018)."""

import torch
from torch import Tensor

from fairseq_docmt.ops.precision import at_least_single


def recall_others(queries: Tensor, cells: Tensor, documents: Tensor) -> Tensor:
    """Attend from each sentence to the memory cells of the other sentences of its document.

    The weights are ``softmax(q_t . c_u)`` for the query of sentence t and the cells of the other
    sentences u.

    Args:
        queries: (R, d) query of each of R sentences.
        cells: (R, d) memory cell of each sentence.
        documents: (R,) document number of each sentence.

    Returns:
        (R, d) weighted sums of cells; zeros for the only sentence of a document.
    """
    same = documents.unsqueeze(1) == documents
    others = same.fill_diagonal_(False)
    logits = queries @ cells.t()
    logits = logits.to(at_least_single(logits.dtype))
    weights = logits.masked_fill(~others, -float("inf")).softmax(dim=-1)
    weights = weights.masked_fill(~others.any(dim=-1, keepdim=True), 0.0)
    return weights.to(cells.dtype) @ cells


def sentences_per_document(documents: Tensor) -> list:
    """Return the number of sentences of each document, in order.

    Args:
        documents: (R,) document number of each of R sentences; the sentences of a document are
            consecutive.
    """
    return torch.unique_consecutive(documents, return_counts=True)[1].tolist()
