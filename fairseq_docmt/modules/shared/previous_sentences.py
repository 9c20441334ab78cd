"""Previous sentences of each row of a stream; the document state holds their tokens."""

from typing import NamedTuple

from torch import Tensor

from fairseq_docmt.errors import UserError
from fairseq_docmt.modules.shared.document_state import DocumentState
from fairseq_docmt.modules.shared.stream import Stream

#: names in the document state: (lanes, W, n) tokens, padded with 0, which no sentence contains
TARGET_KEY = "context.target_tokens"
KEY = "context.tokens"


def check_count(found: int, count: int) -> None:
    """Check that an incoming document state has as many previous sentences as a model reads.

    Args:
        found: number of sentences in the document state.
        count: number that the model reads.

    Raises:
        UserError: it has not, as in a checkpoint of an earlier version, which does not store the
            option.
    """
    if found != count:
        raise UserError(
            f"the checkpoint was saved in the middle of an epoch with --context-sentences {found}, "
            f"not {count}, which the document states in it do not fit; give the same again, or "
            "begin a new epoch with --reset-dataloader"
        )


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
        lanes, chunk = stream.lanes, len(src_tokens) // stream.lanes
        incoming = src_tokens.new_zeros(lanes, 1, count)
        if stream.doc_state is not None:
            incoming = stream.doc_state[key]
            check_count(incoming.size(2), count)
        # Convert to right padding.
        src_tokens = src_tokens.gather(1, src_tokens.eq(pad).int().argsort(dim=1, stable=True))
        # (count + chunk, lanes, W)
        width = max(incoming.size(1), src_tokens.size(1))
        sentences = src_tokens.new_full((count + chunk, lanes, width), pad)
        sentences[:count, :, : incoming.size(1)] = incoming.permute(2, 0, 1)
        sentences[:count][sentences[:count].eq(0)] = pad
        sentences[count:, :, : src_tokens.size(1)] = src_tokens.unflatten(0, (chunk, lanes))
        filled = sentences[:count].ne(pad).any(dim=2).sum(dim=0)
        place, known, kept = stream.previous(filled, count)
        after = sentences[chunk:].masked_fill(sentences[chunk:].eq(pad), 0)
        after = after * kept.t().unsqueeze(2)
        doc_state = {key: after.permute(1, 2, 0).contiguous()}
        return cls(sentences.flatten(0, 1), place, known, doc_state)
