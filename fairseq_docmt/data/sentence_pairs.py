"""Sentence pairs that are mixed into the documents of a training set."""

import copy

import numpy as np
from fairseq.data import ConcatDataset

from fairseq_docmt.data.corpus import DocumentCorpus
from fairseq_docmt.data.document_index import DocumentIndex
from fairseq_docmt.data.document_view import Spans


def with_sentence_pairs(documents: DocumentCorpus, added: DocumentCorpus) -> DocumentCorpus:
    """Return a corpus of documents followed by sentence pairs, each a document of its own."""
    joined, pairs = copy.copy(documents), copy.copy(documents.pairs)
    for name in ("src", "tgt"):
        setattr(
            pairs, name, ConcatDataset([getattr(documents.pairs, name), getattr(added.pairs, name)])
        )
        sizes = f"{name}_sizes"
        for whole, parts in ((pairs, (documents.pairs, added.pairs)), (joined, (documents, added))):
            setattr(whole, sizes, np.concatenate([getattr(part, sizes) for part in parts]))
    index, count = documents.index, added.index.num_sentences
    joined.pairs = pairs
    joined.index = DocumentIndex(
        np.append(index.line_ids, added.index.line_ids + len(documents.pairs)),
        np.append(index.starts, index.num_sentences + 1 + np.arange(count)),
    )
    return joined


def mixed_spans(
    spans: Spans,
    tgt_sizes: np.ndarray,
    first_pair: int,
    ratio: float,
    loss_on_last: bool = False,
    *,
    random: np.random.RandomState,
) -> np.ndarray:
    """Return the spans of documents, then randomly chosen sentence pairs.

    Pairs are chosen until they have ``ratio`` times as many target tokens with loss as the
    documents; none is chosen again before all others are.

    Args:
        spans: spans of the documents.
        tgt_sizes: (sentences,) number of target tokens.
        first_pair: number of the first sentence pair; it and all that follow are pairs.
        ratio: target tokens of sentence pairs for each target token of documents.
        loss_on_last: the loss of a span is on its last sentence only.
        random: generator of the epoch.
    """
    spans = spans(random=random) if callable(spans) else spans
    total = np.append(0, np.cumsum(tgt_sizes))
    first, end = spans.T
    wanted = ratio * (total[end] - total[end - 1 if loss_on_last else first]).sum()
    sizes = tgt_sizes[first_pair:]
    times, rest = divmod(wanted, sizes.sum())
    shuffled = random.permutation(len(sizes))
    # The sum before a pair decides whether it is still needed.
    before = np.cumsum(sizes[shuffled]) - sizes[shuffled]
    chosen = np.concatenate([np.tile(np.arange(len(sizes)), int(times)), shuffled[before < rest]])
    chosen = np.sort(chosen) + first_pair
    return np.concatenate([spans, np.stack([chosen, chosen + 1], axis=1)])
