"""The source sentences before each row of a stream, carried as tokens."""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_docmt.modules.shared.document_state import DocumentState
from fairseq_docmt.modules.shared.stream import Stream

#: carried as (lanes, W, n), filled up with 0, which is no word of a sentence
KEY = "context.tokens"


class PreviousSentences(NamedTuple):
    """Sentences of a batch and those carried into it, each once, and which each row looks back on.

    Attributes:
        tokens: (M, W) sentences with padding, first those carried.
        place: (rows, n) which of them come before each row, the farthest first.
        known: (rows, n) whether they are of the row's document.
        carry: what the lanes carry on.
    """

    tokens: Tensor
    place: Tensor
    known: Tensor
    doc_state: DocumentState

    @classmethod
    def of(cls, src_tokens: Tensor, stream: Stream, count: int, pad: int) -> "PreviousSentences":
        """Of (rows, S) tokens; ``count`` sentences are looked back on."""
        lanes, chunk = stream.lanes, len(src_tokens) // stream.lanes
        carried = src_tokens.new_zeros(lanes, 1, count)
        if stream.doc_state is not None:
            carried = stream.doc_state[KEY]
        # Padding behind the words, wherever it was.
        src_tokens = src_tokens.gather(1, src_tokens.eq(pad).int().argsort(dim=1, stable=True))
        # (count + chunk, lanes, W), by time
        width = max(carried.size(1), src_tokens.size(1))
        sentences = src_tokens.new_full((count + chunk, lanes, width), pad)
        sentences[:count, :, : carried.size(1)] = carried.permute(2, 0, 1)
        sentences[:count][sentences[:count].eq(0)] = pad
        sentences[count:, :, : src_tokens.size(1)] = src_tokens.unflatten(0, (chunk, lanes))
        filled = sentences[:count].ne(pad).any(dim=2).sum(dim=0)
        back = torch.arange(count, 0, -1, device=src_tokens.device)  # the farthest first
        known = []
        for starts in stream.starts.unflatten(0, (chunk, lanes)):
            filled = filled.masked_fill(starts, 0)
            known.append(back <= filled.unsqueeze(1))
            filled = (filled + 1).clamp(max=count)
        time = torch.arange(count, count + chunk, device=src_tokens.device).view(-1, 1, 1)
        lane = torch.arange(lanes, device=src_tokens.device).view(1, -1, 1)
        place = (time - back) * lanes + lane
        after = sentences[chunk:].masked_fill(sentences[chunk:].eq(pad), 0)
        after = after * (back.unsqueeze(1) <= filled).unsqueeze(2)
        return cls(
            sentences.flatten(0, 1),
            place.flatten(0, 1),
            torch.cat(known),
            {KEY: after.permute(1, 2, 0).contiguous()},
        )
