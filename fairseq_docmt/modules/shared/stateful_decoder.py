"""A transformer decoder whose layers remember what they have read in a state of their own.

fairseq's decoder keeps keys and values of every token and copies them at every step of beam
search.  Decoders here say themselves what a layer remembers; the state of all layers is one value,
reordered as a whole.
"""

from typing import Any, List, NamedTuple, Optional

import torch
import torch.nn.functional as F
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor

from fairseq_docmt.modules.shared.beam_rows import split_order

KEY = "layers of the decoder"


class DecoderState(NamedTuple):
    """What a decoder remembers between tokens.

    Attributes:
        layers: state of each layer, with ``reorder(rows: BeamRows)`` and ``separate()``.
        rest: what all layers share, with the same methods; or None.
        positions: (B * N,) tokens that each row has read, the N beams of a sentence side by side.
        most: no row has read more.
        bsz: sentences B.
        beams: rows of each sentence N.
    """

    layers: List[Any]
    rest: Any
    positions: Tensor
    most: int
    bsz: int
    beams: int

    def reorder(self, order: Tensor) -> "DecoderState":
        """Rows in a new order (B * N,): beams change places, sentences end, beam search begins."""
        rows = split_order(order, self.bsz, self.beams)
        if rows is None:
            return self._unshare_beams().reorder(order)
        return self._replace(
            layers=[layer.reorder(rows) for layer in self.layers],
            rest=None if self.rest is None else self.rest.reorder(rows),
            positions=self.positions.index_select(0, order),
            bsz=self.bsz if rows.sentences is None else len(rows.sentences),
            beams=rows.beams,
        )

    def _unshare_beams(self) -> "DecoderState":
        """The same with every beam as a sentence of its own, so that rows can go anywhere."""
        return self._replace(
            layers=[layer.unshare_beams() for layer in self.layers],
            rest=None if self.rest is None else self.rest.unshare_beams(),
            bsz=self.bsz * self.beams,
            beams=1,
        )


class StatefulDecoder(TransformerDecoderBase):
    """Base of the decoders of this suite; layers take their input batch first.

    A decoder says how its layers see whole sequences (:meth:`all_tokens`), how a state begins
    (:meth:`begin`), and how it goes on by many tokens (:meth:`read`) or by one (:meth:`step`).

    Args:
        cfg, dictionary, embed_tokens: as in the stock decoder, with the options of the model.
        separator: index of ``<sep>``.
    """

    #: whether attention over the source comes with every step, as fairseq's does
    has_attention_weights = False

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens)
        self.separator = separator

    # ---- what a decoder defines ----------------------------------------------------------------

    def forward_sequence(
        self, x: Tensor, tokens: Tensor, encoder_out: dict, weights_of: Optional[int]
    ):
        """Whole sequences.

        Args:
            x: (B, T, C) embeddings.
            tokens: (B, T) of these tokens.
            encoder_out: encoder output.
            weights_of: layer to return attention over the source of, (B, T, S) as ``attn``, mean
                over heads; None for none.

        Returns:
            (B, T, C) features, extra outputs.
        """
        raise NotImplementedError

    def init_state(self, encoder_out: dict) -> tuple:
        """States of the layers before the first token, one row for each sentence, and the rest."""
        raise NotImplementedError

    def read(self, x: Tensor, tokens: Tensor, state: DecoderState):
        """(B, T, C) features of right-padded tokens (B, T) after a state, layers, rest, extra."""
        raise NotImplementedError

    def step(self, x: Tensor, tokens: Tensor, state: DecoderState):
        """(B * N, C) features of one token (B * N,) for each row, layers, rest, extra."""
        raise NotImplementedError

    # ---- what fairseq calls --------------------------------------------------------------------

    def extract_features(
        self,
        prev_output_tokens,
        encoder_out,
        incremental_state=None,
        full_context_alignment=False,
        alignment_layer=None,
        alignment_heads=None,
    ):
        """As in the stock decoder."""
        if incremental_state is None:
            x = self._embed(prev_output_tokens, None, 0)
            encoder_out = _for_rows(encoder_out, len(prev_output_tokens))
            x, extra = self.forward_sequence(x, prev_output_tokens, encoder_out, alignment_layer)
            return self._project(x), {"attn": [None], "inner_states": [], **extra}
        state = self._state(incremental_state, encoder_out, len(prev_output_tokens))
        tokens = prev_output_tokens[:, -1]
        x = self._embed(tokens.unsqueeze(1), state.positions.unsqueeze(1), state.most + 1)
        x, layers, rest, extra = self.step(x.squeeze(1), tokens, state)
        self._remember(incremental_state, state, layers, rest, torch.ones_like(tokens), 1)
        extra = {"attn": [None], "inner_states": [], **extra}
        return self._project(x).unsqueeze(1), extra

    def prefill(self, new_tokens, encoder_out, incremental_state):
        """Read (B, T) right-padded tokens in one pass after those that a state has read.

        Returns:
            (B, T, C) features and extra outputs; ``incremental_state`` is updated.
        """
        state = self._state(incremental_state, encoder_out, len(new_tokens))
        length = new_tokens.size(1)
        x = self._embed(new_tokens, state.positions.unsqueeze(1), state.most + length)
        x, layers, rest, extra = self.read(x, new_tokens, state)
        read = new_tokens.ne(self.padding_idx).sum(dim=1)
        self._remember(incremental_state, state, layers, rest, read, length)
        return self._project(x), {"attn": [None], "inner_states": [], **extra}

    def reorder_incremental_state(self, incremental_state, new_order):
        """New order of the rows; called by the generator after each step."""
        if KEY in incremental_state:
            state = incremental_state[KEY]["state"].reorder(new_order)
            incremental_state[KEY] = {"state": state}

    def _state(self, incremental_state, encoder_out, rows: int) -> DecoderState:
        """The state so far; at the beginning one that has read the source alone."""
        if KEY in incremental_state:
            return incremental_state[KEY]["state"]
        bsz = encoder_out["encoder_padding_mask"][0].size(0)
        layers, rest = self.init_state(encoder_out)
        positions = torch.zeros(bsz, dtype=torch.long, device=self.embed_tokens.weight.device)
        state = DecoderState(layers, rest, positions, 0, bsz, 1)
        if rows == bsz:
            return state
        return state.reorder(
            torch.arange(bsz, device=positions.device).repeat_interleave(rows // bsz)
        )

    @staticmethod
    def _remember(incremental_state, state, layers, rest, read, most: int) -> None:
        state = state._replace(
            layers=layers, rest=rest, positions=state.positions + read, most=state.most + most
        )
        incremental_state[KEY] = {"state": state}

    # ---- below and above the layers ------------------------------------------------------------

    def _padding(self, tokens: Tensor) -> Optional[Tensor]:
        """(B, T) where padding stands, None if nowhere."""
        padding = tokens.eq(self.padding_idx)
        return padding if padding.any() else None

    def _embed(self, tokens, read: Optional[Tensor], most: int):
        """(B, T, C) input of the first layer for tokens (B, T) after ``read`` (B, 1) others."""
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        if self.project_in_dim is not None:
            x = self.project_in_dim(x)
        if self.embed_positions is not None:
            if read is None:
                x = x + self.embed_positions(tokens)
            else:
                x = x + self._positions(tokens, read, most).to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def _positions(self, tokens, read, most: int):
        """Positional embeddings of rows that have read different numbers of tokens."""
        is_token = tokens.ne(self.padding_idx)
        positions = (is_token.cumsum(dim=1) + read) * is_token + self.padding_idx
        table = getattr(self.embed_positions, "weights", None)
        if table is None:
            return F.embedding(positions, self.embed_positions.weight)
        if len(table) <= most + self.padding_idx:
            # The sinusoidal table grows when a longer sequence asks for it.
            self.embed_positions(tokens.new_full((1, 2 * most), self.padding_idx))
            table = self.embed_positions.weights
        return F.embedding(positions, table)

    def _project(self, x):
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return x if self.project_out_dim is None else self.project_out_dim(x)


def _for_rows(encoder_out: dict, rows: int) -> dict:
    """Encoder output with a row of its own for each beam, as decoding without a state needs it."""
    bsz = encoder_out["encoder_padding_mask"][0].size(0)
    if rows == bsz:
        return encoder_out
    beams = rows // bsz
    return {
        **encoder_out,
        "encoder_out": [encoder_out["encoder_out"][0].repeat_interleave(beams, dim=1)],
        "encoder_padding_mask": [
            x.repeat_interleave(beams, 0) for x in encoder_out["encoder_padding_mask"]
        ],
        "separators": [x.repeat_interleave(beams, 0) for x in encoder_out["separators"]],
    }


def batch_first_source(encoder_out: dict):
    """Source (B, S, C), where padding stands in it, None if nowhere, and separators (B, S)."""
    source = encoder_out["encoder_out"][0].transpose(0, 1)
    padding = encoder_out["encoder_padding_mask"][0]
    return source, padding if padding.any() else None, encoder_out["separators"][0]
