"""Reading what the other sentences of a document have in memory (Maruf and Haffari 2018)."""

import torch
from torch import Tensor


def recall_others(queries: Tensor, cells: Tensor, documents: Tensor) -> Tensor:
    """``softmax(q_t . c_u) c_u`` over the sentences u of the document of t but t itself.

    Args:
        queries: (R, d) one for each sentence.
        cells: (R, d) what each sentence has in memory.
        documents: (R,) number of the document of each sentence.

    Returns:
        (R, d) readings; zeros for sentences that are alone in their document.
    """
    same = documents.unsqueeze(1) == documents
    others = same.fill_diagonal_(False)
    logits = (queries @ cells.t()).float() if queries.dtype.itemsize < 4 else queries @ cells.t()
    weights = logits.masked_fill(~others, -float("inf")).softmax(dim=-1)
    weights = weights.masked_fill(~others.any(dim=-1, keepdim=True), 0.0)
    return weights.to(cells.dtype) @ cells


def rows_of_documents(documents: Tensor) -> list:
    """Numbers of rows of each document; those of one document follow each other."""
    return torch.unique_consecutive(documents, return_counts=True)[1].tolist()
