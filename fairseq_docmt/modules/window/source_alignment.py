"""Which source token each target token is aligned to (Herold and Ney 2023, section 3.3)."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_docmt.modules.shared.beam_rows import BeamRows
from fairseq_docmt.ops.window_attention import linear_centers

#: how to align while decoding
ALIGNMENTS = ("sentence", "linear", "one-to-one")
#: how to align whole references in training
TRAINING_ALIGNMENTS = ("linear", "sentence")


class LengthRatio(nn.Module):
    """Average over documents of source tokens for each target token (``train_ratio``).

    Every document counts alike, however long it is.  Sums are whole numbers, which half precision
    leaves as they are: a ratio is kept in units of ``1 / UNITS``.
    """

    UNITS = 2**32

    def __init__(self):
        super().__init__()
        self.register_buffer("documents", torch.zeros((), dtype=torch.long))
        self.register_buffer("total", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def count(self, sources: Tensor, targets: Tensor) -> None:
        """Add documents of so many source and target tokens, (B,) each."""
        ratios = (2 * self.UNITS * sources + targets).div(2 * targets, rounding_mode="floor")
        self.total += ratios.sum()
        self.documents += len(targets)

    def value(self) -> float:
        """The average so far; 1 before the first document."""
        documents = int(self.documents)
        return int(self.total) / (documents * self.UNITS) if documents > 0 else 1.0

    @classmethod
    def of_totals(cls, sources: int, targets: int) -> "LengthRatio":
        """From tokens of all documents together, as older checkpoints have them: one document."""
        ratio = cls()
        if targets > 0:
            ratio.count(*(torch.tensor([tokens]) for tokens in (sources, targets)))
        return ratio


class SourceSentences(NamedTuple):
    """Where the sentences of sources lie among the columns of a batch.

    Attributes:
        starts: (B, N) first column of each sentence; of sentences that a row lacks, that of its
            last one.
        first: (B,) first column that is no padding.
        last: (B,) last such column.
    """

    starts: Tensor
    first: Tensor
    last: Tensor

    @classmethod
    def of(cls, separators: Tensor, padding: Optional[Tensor]) -> "SourceSentences":
        """From where separators and padding stand, (B, S) each."""
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
        # After a separator the next sentence starts.
        starts.scatter_reduce_(1, number, (columns + 1) * separators, reduce="amax")
        starts = torch.minimum(starts.cummax(dim=1).values, last.unsqueeze(1))
        return cls(starts, first, last)

    def of_rows(self, rows: Tensor) -> "SourceSentences":
        """Of some of the rows, by index."""
        return SourceSentences(*(x.index_select(0, rows) for x in self))


class SourcePointer(NamedTuple):
    """The alignment of the token read last, for each row of a beam search.

    Attributes:
        source: sentences of the source of each row.
        column: (rows,) aligned column, not yet held inside of the source.
        sentence: (rows,) number of the current target sentence, from 0.
        read: (rows,) tokens read.
    """

    source: SourceSentences
    column: Tensor
    sentence: Tensor
    read: Tensor

    @classmethod
    def init_state(cls, source: SourceSentences) -> "SourcePointer":
        """Before the first token."""
        none = torch.zeros_like(source.first)
        return cls(source, source.first - 1, none, none)

    def reorder(self, rows: BeamRows) -> "SourcePointer":
        """Rows in a new order."""
        state = (x.index_select(0, rows.order) for x in self[1:])
        return SourcePointer(self.source.of_rows(rows.order), *state)

    def unshare_beams(self) -> "SourcePointer":
        """Rows share nothing here."""
        return self

    def advance(
        self, tokens: Tensor, separator: int, padding: int, kind: str, ratio: float
    ) -> Tuple[Tensor, "SourcePointer"]:
        """Align the queries whose inputs are the next tokens.

        Args:
            tokens: (rows, T) decoder input, right-padded.
            separator, padding: their indices.
            kind: one of :data:`ALIGNMENTS`.
            ratio: source tokens for each target token, for ``linear``.

        Returns:
            (rows, T) aligned columns, and the pointer after the last token that is no padding.
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
        # Padding stands behind the tokens of a row: the last column of each is its state.
        after = SourcePointer(self.source, columns[:, -1], sentence[:, -1], read[:, -1])
        return held, after

    def _by_sentence(self, starts_sentence, sentence, read) -> Tensor:
        """One token further with each token, to its own source sentence with each separator."""
        number = sentence.clamp(max=self.source.starts.size(1) - 1)
        starts = self.source.starts.gather(1, number)
        # Tokens read when the current sentence began, -1 where it began before these tokens.
        began = torch.where(starts_sentence, read, torch.full_like(read, -1)).cummax(dim=1).values
        since = read - self.read.unsqueeze(1)
        going_on = self.column.unsqueeze(1) + since
        return torch.where(began < 0, going_on, starts + read - began)


def align_references(
    tokens: Tensor, source: SourceSentences, separator: int, padding: int, kind: str
) -> Tensor:
    """Alignment of whole references in training.

    Args:
        tokens: (B, T) decoder input, right-padded.
        source: sentences of the sources.
        separator, padding: their indices.
        kind: ``linear``, with the true lengths of each pair, or ``sentence``.

    Returns:
        (B, T) aligned columns of the source.
    """
    if kind == "sentence":
        return SourcePointer.init_state(source).advance(tokens, separator, padding, kind, 1.0)[0]
    targets = tokens.ne(padding).sum(dim=1)
    lengths = source.last - source.first + 1
    return source.first.unsqueeze(1) + linear_centers(targets, lengths, tokens.size(1))
