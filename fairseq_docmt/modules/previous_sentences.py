"""Previous sentences of each batch row, taken from the document state and from the batch itself."""

from typing import List, NamedTuple

import torch
from torch import Tensor

from fairseq_docmt.errors import UserError
from fairseq_docmt.modules.stream import DocumentState, Stream, of_equal_width

#: beginnings of names in the document state
TARGET_KEY = "context.target_tokens"
KEY = "context.tokens"


def _names_of(key: str, count: int) -> List[str]:
    """Return the keys of the last ``count`` sentences in the document state, oldest first.

    The last sentence has the key ``<key>.1``, the one before it ``<key>.2``, and so on. Each
    sentence is a tensor of its own width. In a common tensor, all would stay padded to the longest
    sentence ever read.
    """
    return [f"{key}.{back}" for back in range(count, 0, -1)]


def state_of(key: str, sentences: List[Tensor]) -> DocumentState:
    """Return the document state that holds the last sentences of each lane.

    With the next batch, :func:`with_previous` reads these sentences again. A lane is one of the
    document sequences that are processed in parallel.

    Args:
        key: prefix of the keys in the document state.
        sentences: (lanes, W, ...) tensors, one for each of the last sentences, oldest first; each
            has its own width W.
    """
    return dict(zip(_names_of(key, len(sentences)), sentences))


def with_previous(batch: Tensor, stream: Stream, count: int, key: str) -> List[Tensor]:
    """Return the last ``count`` sentences before a batch, followed by the sentences of the batch.

    The batch reads several lanes (document sequences) in parallel, one sentence of each at a time.

    Args:
        batch: (rows, W, ...) sentences of the batch.
        stream: layout of the batch, and the document state before it.
        count: number of previous sentences.
        key: prefix of the keys of previous sentences in the document state.

    Returns:
        List of (lanes, W, ...) tensors with one sentence of each lane, in document order. Each
        tensor has its own width W. Without a document state, the first ``count`` tensors have width
        0.

    Raises:
        UserError: the document state does not hold ``count`` previous sentences. This can happen
            with checkpoints of earlier versions, which do not record the number of sentences.
    """
    doc_state, steps = stream.doc_state, batch.unflatten(0, (-1, stream.lanes)).unbind()
    if doc_state is None:
        return [steps[0][:, :0]] * count + list(steps)
    if key in doc_state:  # of an earlier version: (lanes, W, n, ...), in this order
        found = doc_state[key].unbind(2)
    else:
        present = sum(name.startswith(f"{key}.") for name in doc_state)
        found = [doc_state[name] for name in _names_of(key, present)]
    if len(found) != count:
        raise UserError(
            "the checkpoint was saved in the middle of an epoch with --context-sentences "
            f"{len(found)}, not {count}, which the document states in it do not fit; give the same "
            "again, or begin a new epoch with --reset-dataloader"
        )
    return [*(sentence.to(batch.dtype) for sentence in found), *steps]


def _swapped(tokens: Tensor, pad: int) -> Tensor:
    """Exchange the padding index and 0 in ``tokens``.

    Document states are padded with zeros, so 0 has to stand for padding in them. A second call
    restores the tokens.
    """
    return tokens.masked_fill(tokens.eq(0), pad).masked_fill(tokens.eq(pad), 0)


class PreviousSentences(NamedTuple):
    """Sentences in and before a batch, with the indices of each row's previous sentences.

    Attributes:
        tokens: (M, W) padded tokens of all M sentences: first sentences of the document state, then
            sentences of the batch.
        place: (rows, n) indices in ``tokens`` of the n previous sentences of each row, oldest
            first.
        known: (rows, n) True where a previous sentence exists and belongs to the row's document.
        doc_state: document state after the batch, with the last n sentences of each lane.
    """

    tokens: Tensor
    place: Tensor
    known: Tensor
    doc_state: DocumentState

    @classmethod
    def of(
        cls, src_tokens: Tensor, stream: Stream, count: int, pad: int, key: str = KEY
    ) -> "PreviousSentences":
        """Find the previous sentences of each row of a batch.

        Args:
            src_tokens: (rows, S) tokens of the batch, padded on the left or right.
            stream: layout of the batch, and the document state before it.
            count: number n of previous sentences.
            pad: padding index.
            key: prefix of the keys of these tokens in the document state.

        Raises:
            UserError: the document state does not hold ``count`` previous sentences.
        """
        # Convert to right padding.
        src_tokens = src_tokens.gather(1, src_tokens.eq(pad).int().argsort(dim=1, stable=True))
        sentences = with_previous(_swapped(src_tokens, pad), stream, count, key)
        stacked = torch.stack(of_equal_width(sentences))
        filled = stacked[:count].any(dim=2).sum(dim=0)
        place, known, kept = stream.previous(filled, count)
        last = [
            x * still_known.unsqueeze(1) for x, still_known in zip(sentences[-count:], kept.t())
        ]
        tokens = _swapped(stacked, pad).flatten(0, 1)
        return cls(tokens, place, known, state_of(key, last))
