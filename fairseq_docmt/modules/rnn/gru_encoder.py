"""Encoder of ``rnnsearch`` (Bahdanau et al. 2015; baseline of Tu et al. 2018)."""

from typing import Optional, Tuple

import torch
from fairseq.models import FairseqEncoder
from fairseq.modules import FairseqDropout
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from fairseq_docmt.modules.search_state import SharedSource
from fairseq_docmt.modules.stream import Stream

#: recurrent models have no length limit; longer than any sentence
MAX_POSITIONS = 100000


def init_uniform(module: nn.Module, size: int) -> None:
    """Initialise parameters uniformly in [-b, b] with b = ``size ** -0.5``, like torch's GRU."""
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -(size**-0.5), size**-0.5)


class GRUEncoder(SharedSource, FairseqEncoder):
    """Bidirectional GRU over source tokens.

    Args:
        dictionary: source dictionary.
        embed_tokens: source embeddings.
        hidden_size: size of the state of each direction.
        layers: number of layers.
        dropout: dropout probability on embeddings, between layers and on the output.

    Attributes:
        no_context: whether every sentence is read as a document of its own.
    """

    no_context = False

    def __init__(
        self, dictionary, embed_tokens: nn.Embedding, hidden_size: int, layers: int, dropout: float
    ):
        super().__init__(dictionary)
        self.embed_tokens, self.padding_idx = embed_tokens, dictionary.pad()
        self.dropout = FairseqDropout(dropout, module_name=type(self).__name__)
        self.gru = nn.GRU(
            embed_tokens.embedding_dim,
            hidden_size,
            layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if layers > 1 else 0.0,
        )
        self.output_units = 2 * hidden_size

    def forward(
        self,
        src_tokens,
        src_lengths=None,
        starts=None,
        lanes=None,
        doc_state=None,
        row_groups=None,
        **_,
    ):
        """Encode a batch of source sentences.

        Args:
            src_tokens: (B, S) tokens, padded on either side.
            src_lengths: unused.
            starts, lanes, doc_state, row_groups: layout of the batch, for decoders with a document
                state; see :class:`Stream`.

        Returns:
            dict with ``encoder_out`` [(S, B, 2 d)], ``encoder_padding_mask`` [(B, S)], ``summary``
            [(B, 2 d)] (last forward and first backward state), ``stream``, ``beams`` (see
            :class:`SharedSource`) and ``remembered``, a dict in which the decoder keeps what it
            computes from the source.
        """
        starts = None if self.no_context else starts
        return self.encode(src_tokens, Stream.of(src_tokens, starts, lanes, doc_state, row_groups))

    def encode(self, src_tokens: Tensor, stream: Stream, initial: Optional[Tensor] = None) -> dict:
        """Encode a batch; return the encoder output as described in :meth:`forward`.

        Args:
            src_tokens: (B, S) tokens.
            stream: layout of the batch, which becomes part of the output.
            initial: (2 * layers, B, d) initial states; zeros by default.
        """
        output, last = self.read(self.gru, src_tokens, initial)
        return {
            "encoder_out": [self.dropout(output).transpose(0, 1)],
            "encoder_padding_mask": [src_tokens.eq(self.padding_idx)],
            "summary": [torch.cat([last[-2], last[-1]], dim=-1)],
            "stream": stream,
            "remembered": {},
            "beams": 1,
        }

    def read(self, gru: nn.GRU, tokens: Tensor, initial: Optional[Tensor] = None):
        """Embed tokens and run a GRU over them.

        Args:
            gru: batch-first GRU with one or two directions.
            tokens: (rows, S) tokens, padded on either side.
            initial: initial states of all layers and directions; zeros by default.

        Returns:
            (rows, S, d) states of the top layer, zeros at padding, where d is the size of all
            directions together; and the last states of all layers and directions.
        """
        lengths = tokens.ne(self.padding_idx).sum(dim=1)
        # Packed sequences need right padding; the output has the padding of the tokens again.
        left = tokens[:, 0].eq(self.padding_idx)
        shift = torch.where(left, tokens.size(1) - lengths, 0)
        x = self.dropout(self.embed_tokens(_rolled(tokens, shift)))
        places = torch.arange(tokens.numel(), device=tokens.device).view_as(tokens)
        return read_rows(gru, x, lengths.clamp(min=1), initial, _rolled(places, shift))

    def _select(self, encoder_out, sentences, beams):
        return {
            "encoder_out": [encoder_out["encoder_out"][0].index_select(1, sentences)],
            "encoder_padding_mask": [
                x.index_select(0, sentences) for x in encoder_out["encoder_padding_mask"]
            ],
            "summary": [x.index_select(0, sentences) for x in encoder_out["summary"]],
            "stream": encoder_out["stream"].of_rows(sentences),
            "remembered": {},
            "beams": beams,
        }

    def max_positions(self):
        """Return a number above any source length, because a GRU has no maximum length."""
        return MAX_POSITIONS


def read_rows(
    gru: nn.GRU,
    x: Tensor,
    lengths: Tensor,
    initial: Optional[Tensor] = None,
    places: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """Run a GRU over rows of different lengths.

    Args:
        gru: batch-first GRU with one or two directions.
        x: (rows, T, m) inputs of size m, padded on the right.
        lengths: (rows,) number of inputs of each row, at least 1.
        initial: initial states of all layers and directions, in torch's shape; zeros by default.
        places: (rows, T) index, in the flattened output, at which the state of each input is
            stored; by default the index of the input.

    Returns:
        (rows, T, d) states of the top layer, zeros at padding, where d is the size of all
        directions together; and the last states of all layers and directions.
    """
    lengths = lengths.cpu()
    if places is None:
        places = torch.arange(x[..., 0].numel(), device=x.device).view(x.shape[:2])
    packed, packed_places = (
        pack_padded_sequence(values, lengths, batch_first=True, enforce_sorted=False)
        for values in (x, places)
    )
    states, last = gru(packed, initial)
    flat = placed(states.data, packed_places.data, places.numel())
    return flat.unflatten(0, places.shape), last


def placed(values: Tensor, places: Tensor, size: int) -> Tensor:
    """Place N vectors at given indices of a tensor that is zero elsewhere.

    For packed sequences this replaces torch's ``pad_packed_sequence``. That function copies step by
    step, and its backward pass copies the gradients of the whole batch at every step.

    Args:
        values: (N, d) vectors.
        places: (N,) index of each vector in the result; no index occurs twice.
        size: number of vectors of the result.

    Returns:
        (size, d) vectors.
    """
    return values.new_zeros(size, values.size(1)).index_copy(0, places, values)


def _rolled(x: Tensor, shift: Tensor) -> Tensor:
    """Rotate the columns of each row of ``x``, (B, S, ...), to the left.

    ``shift`` (B,) is the number of columns by which each row is rotated. If this is the length of
    its left padding, the padding moves to the right.
    """
    columns = torch.arange(x.size(1), device=x.device) + shift.unsqueeze(1)
    columns = columns.remainder(x.size(1))
    rows = torch.arange(len(x), device=x.device).unsqueeze(1)
    return x[rows, columns]
