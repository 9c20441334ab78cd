"""Alignment of target tokens to source tokens (Herold and Ney 2023, section 3.3)."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_docmt.modules.search_state import BeamRows
from fairseq_docmt.ops.window_attention import linear_centers

#: alignments for decoding
ALIGNMENTS = ("sentence", "linear", "one-to-one")
#: alignments of references in training
TRAINING_ALIGNMENTS = ("linear", "sentence")


class LengthRatio(nn.Module):
    """Average ratio of source to target length over training documents, for linear alignment.

    Every document has the same weight, whatever its length. The sum of the ratios is stored as an
    integer, in units of ``1 / UNITS``, so that it stays exact when a model is converted to half
    precision.
    """

    UNITS = 2**32

    def __init__(self):
        super().__init__()
        self.register_buffer("documents", torch.zeros((), dtype=torch.long))
        self.register_buffer("total", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def count(self, sources: Tensor, targets: Tensor) -> None:
        """Include B documents in the average.

        Args:
            sources, targets: (B,) numbers of source and target tokens of each document.
        """
        ratios = (2 * self.UNITS * sources + targets).div(2 * targets, rounding_mode="floor")
        self.total += ratios.sum()
        self.documents += len(targets)

    def value(self) -> float:
        """Return the average ratio of source to target length so far; 1 before any document."""
        documents = int(self.documents)
        return int(self.total) / (documents * self.UNITS) if documents > 0 else 1.0

    @classmethod
    def of_totals(cls, sources: int, targets: int) -> "LengthRatio":
        """Create a ratio from the token counts of an older checkpoint.

        All training data are counted as a single document. If there are no target tokens, nothing
        is counted, and :meth:`value` is 1.

        Args:
            sources, targets: total numbers of source and target tokens in training.
        """
        ratio = cls()
        if targets > 0:
            ratio.count(*(torch.tensor([tokens]) for tokens in (sources, targets)))
        return ratio


class SourceSentences(NamedTuple):
    """Start positions of the source sentences of each batch row.

    Attributes:
        starts: (B, N) first position of each of up to N sentences; rows with fewer sentences repeat
            the start of their last sentence.
        first: (B,) first position that is not padding.
        last: (B,) last position that is not padding.
    """

    starts: Tensor
    first: Tensor
    last: Tensor

    @classmethod
    def of(cls, separators: Tensor, padding: Optional[Tensor]) -> "SourceSentences":
        """Find the sentences in source tokens.

        Args:
            separators: (B, S) True at ``<sep>``, after which the next sentence starts.
            padding: (B, S) True at padding; None without padding.
        """
        bsz, length = separators.shape
        columns = torch.arange(length, device=separators.device).expand(bsz, -1)
        if padding is None:
            first, last = columns[:, 0], columns[:, -1]
        else:
            first = columns.masked_fill(padding, length).amin(dim=1)
            last = columns.masked_fill(padding, -1).amax(dim=1)
        number = separators.cumsum(dim=1)
        most = int(number[:, -1].max()) + 1
        starts = first.unsqueeze(1).repeat(1, most)
        # A sentence starts after each separator.
        starts.scatter_reduce_(1, number, (columns + 1) * separators, reduce="amax")
        starts = torch.minimum(starts.cummax(dim=1).values, last.unsqueeze(1))
        return cls(starts, first, last)

    def of_rows(self, rows: Tensor) -> "SourceSentences":
        """Select the batch rows with the indices ``rows``."""
        return SourceSentences(*(x.index_select(0, rows) for x in self))


class SourcePointer(NamedTuple):
    """Source position that the latest target token of each row is aligned to.

    In decoding, :meth:`advance` computes it anew for each target token.

    Attributes:
        source: source sentences of each row.
        column: (rows,) aligned source position; it may exceed the source length.
        sentence: (rows,) number of the current target sentence, from 0.
        read: (rows,) number of target tokens read so far.
    """

    source: SourceSentences
    column: Tensor
    sentence: Tensor
    read: Tensor

    @classmethod
    def init_state(cls, source: SourceSentences) -> "SourcePointer":
        """Return the pointer before the first target token.

        It points to the position before the first source token.
        """
        none = torch.zeros_like(source.first)
        return cls(source, source.first - 1, none, none)

    def reorder(self, rows: BeamRows) -> "SourcePointer":
        """Return the pointer with its batch rows in the new order ``rows``."""
        state = (x.index_select(0, rows.order) for x in self[1:])
        return SourcePointer(self.source.of_rows(rows.order), *state)

    def advance(
        self, tokens: Tensor, separator: int, padding: int, kind: str, ratio: float
    ) -> Tuple[Tensor, "SourcePointer"]:
        """Align the next decoder inputs to source positions.

        Args:
            tokens: (rows, T) decoder input, right-padded.
            separator, padding: indices of ``<sep>`` and padding.
            kind: kind of alignment: ``sentence``, ``linear`` or ``one-to-one``.
            ratio: source tokens per target token, for ``linear``.

        Returns:
            (rows, T) aligned source positions, limited to the last source token; and the pointer
            after the last target token that is not padding.
        """
        is_token = tokens.ne(padding)
        read = self.read.unsqueeze(1) + is_token.cumsum(dim=1)
        starts_sentence = tokens.eq(separator)
        sentence = self.sentence.unsqueeze(1) + starts_sentence.cumsum(dim=1)
        if kind == "one-to-one":
            columns = self.source.first.unsqueeze(1) + read - 1
        elif kind == "linear":
            aligned = (ratio * read + 0.5).floor().long().clamp(min=1)
            columns = self.source.first.unsqueeze(1) + aligned - 1
        else:
            columns = self._by_sentence(starts_sentence, sentence, read)
        held = torch.minimum(columns, self.source.last.unsqueeze(1))
        # With right padding, columns do not change after the last token.
        after = SourcePointer(self.source, columns[:, -1], sentence[:, -1], read[:, -1])
        return held, after

    def _by_sentence(self, starts_sentence, sentence, read) -> Tensor:
        """Align target tokens one to one with source tokens within each sentence.

        The aligned position increases by one per token. At a separator it jumps to the start of the
        source sentence with the same number as the new target sentence, or to the start of the last
        source sentence if the source has fewer sentences.

        Args:
            starts_sentence: (rows, T) True at separators.
            sentence: (rows, T) sentence number of each token.
            read: (rows, T) position of each token in the decoder input, from 1.

        Returns:
            (rows, T) aligned source positions, which may exceed the source length.
        """
        number = sentence.clamp(max=self.source.starts.size(1) - 1)
        starts = self.source.starts.gather(1, number)
        # Number of tokens read at the last sentence start, -1 if that is before these tokens.
        began = torch.where(starts_sentence, read, torch.full_like(read, -1)).cummax(dim=1).values
        since = read - self.read.unsqueeze(1)
        going_on = self.column.unsqueeze(1) + since
        return torch.where(began < 0, going_on, starts + read - began)


def align_references(
    tokens: Tensor, source: SourceSentences, separator: int, padding: int, kind: str
) -> Tensor:
    """Align the tokens of whole references to source positions in training.

    Args:
        tokens: (B, T) decoder input, right-padded.
        source: source sentences of each row.
        separator, padding: indices of ``<sep>`` and padding.
        kind: ``linear`` to use the ratio of source to target length of each row; ``sentence`` to
            align tokens one to one within each sentence.

    Returns:
        (B, T) aligned source positions.
    """
    if kind == "sentence":
        return SourcePointer.init_state(source).advance(tokens, separator, padding, kind, 1.0)[0]
    targets = tokens.ne(padding).sum(dim=1)
    lengths = source.last - source.first + 1
    return source.first.unsqueeze(1) + linear_centers(targets, lengths, tokens.size(1))
