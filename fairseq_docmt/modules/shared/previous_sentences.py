"""Previous sentences of each row of a stream; the document state holds their tokens."""

from typing import List, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_docmt.errors import UserError
from fairseq_docmt.modules.shared.document_state import DocumentState, of_equal_width
from fairseq_docmt.modules.shared.stream import Stream

#: beginnings of names in the document state
TARGET_KEY = "context.target_tokens"
KEY = "context.tokens"


def names_of(key: str, count: int) -> List[str]:
    """Return the names of the last ``count`` sentences in a document state, the farthest first.

    They are ``KEY.1`` for the last sentence, ``KEY.2`` for the one before it, and so on. Each is a
    tensor of its own width: in a single tensor all would be padded to the longest ever read.
    """
    return [f"{key}.{back}" for back in range(count, 0, -1)]


def last_sentences(
    doc_state: Optional[DocumentState], key: str, count: int, none: Tensor
) -> List[Tensor]:
    """Return the last ``count`` sentences in a document state, the farthest first.

    Args:
        doc_state: document state, or None.
        key: beginning of their names.
        count: number of sentences.
        none: (lanes, 0, ...) what stands for each sentence if there is no document state.

    Raises:
        UserError: the document state has other names, as in the checkpoint of an earlier version.
    """
    if doc_state is None:
        return [none] * count
    names = names_of(key, count)
    if {name for name in doc_state if name.startswith(key)} != set(names):
        raise UserError(
            "the checkpoint was saved in the middle of an epoch, with document states of another "
            f"version or of another --context-sentences than {count}; give the number that it was "
            "trained with, or begin a new epoch with --reset-dataloader"
        )
    return [doc_state[name] for name in names]


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
        lanes = stream.lanes
        before = last_sentences(stream.doc_state, key, count, src_tokens.new_zeros(lanes, 0))
        # Convert to right padding; in the document state 0 stands for padding.
        src_tokens = src_tokens.gather(1, src_tokens.eq(pad).int().argsort(dim=1, stable=True))
        numbers = src_tokens.add(1).masked_fill(src_tokens.eq(pad), 0)
        sentences = [*before, *numbers.unflatten(0, (-1, lanes))]
        stacked = torch.stack(of_equal_width(sentences))
        filled = stacked[:count].any(dim=2).sum(dim=0)
        place, known, kept = stream.previous(filled, count)
        doc_state = {
            name: sentence * still_known.unsqueeze(1)
            for name, sentence, still_known in zip(
                names_of(key, count), sentences[-count:], kept.t()
            )
        }
        tokens = stacked.sub(1).masked_fill(stacked.eq(0), pad)
        return cls(tokens.flatten(0, 1), place, known, doc_state)
