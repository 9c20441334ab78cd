"""Previous sentences of each row of a stream, whose tokens are in the document state."""

from typing import List, NamedTuple

import torch
from torch import Tensor

from fairseq_docmt.errors import UserError
from fairseq_docmt.modules.stream import DocumentState, Stream, of_equal_width

#: beginnings of names in the document state
TARGET_KEY = "context.target_tokens"
KEY = "context.tokens"


def _names_of(key: str, count: int) -> List[str]:
    """Return the names of the last ``count`` sentences in a document state, the farthest first.

    They are ``KEY.1`` for the last sentence, ``KEY.2`` for the one before it, and so on. Each is a
    tensor of its own width: in a single tensor all would be padded to the longest ever read.
    """
    return [f"{key}.{back}" for back in range(count, 0, -1)]


def state_of(key: str, sentences: List[Tensor]) -> DocumentState:
    """Return the document state of the last sentences (lanes, W, ...), the farthest first."""
    return dict(zip(_names_of(key, len(sentences)), sentences))


def with_previous(batch: Tensor, stream: Stream, count: int, key: str) -> List[Tensor]:
    """Return the last ``count`` sentences before a batch, then the batch, a tensor for each step.

    Args:
        batch: (rows, W, ...) sentences of the batch.
        stream: layout of the batch, and the document state before it.
        count: number of sentences.
        key: beginning of their names in the document state.

    Returns:
        (lanes, W, ...) sentences, each of its own width, which is 0 without a document state.

    Raises:
        UserError: the document state has another number of sentences, as in a checkpoint of an
            earlier version, which does not store the option.
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
    """Exchange the padding index and 0, with which document states are padded."""
    return tokens.masked_fill(tokens.eq(0), pad).masked_fill(tokens.eq(pad), 0)


class PreviousSentences(NamedTuple):
    """Sentences of a batch and of its document state, with the previous sentences of each row.

    Attributes:
        tokens: (M, W) padded sentences, those of the incoming document state first.
        place: (rows, n) index in ``tokens`` of the n previous sentences of each row, the farthest
            first.
        known: (rows, n) True if they belong to the row's document.
        doc_state: document state after the batch.
    """

    tokens: Tensor
    place: Tensor
    known: Tensor
    doc_state: DocumentState

    @classmethod
    def of(
        cls, src_tokens: Tensor, stream: Stream, count: int, pad: int, key: str = KEY
    ) -> "PreviousSentences":
        """Find the previous sentences of each row.

        Args:
            src_tokens: (rows, S) tokens with padding on either side.
            stream: documents of the rows, and the document state before them.
            count: number n of previous sentences.
            pad: padding index.
            key: name of the tokens in the document state.

        Raises:
            UserError: the document state has another number of sentences.
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
