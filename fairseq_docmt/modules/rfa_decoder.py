"""Decoder of ``rfa_transformer``: whole sequences in linear time, steps in constant time."""

from typing import List, NamedTuple, Optional

import torch
import torch.nn.functional as F
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor

from fairseq_docmt.modules.beam_rows import split_order
from fairseq_docmt.modules.rfa_decoder_layer import LayerState, RFADecoderLayer

STATE = "rfa"


class DecoderState(NamedTuple):
    """What the decoder remembers between tokens; its size does not depend on their number.

    Attributes:
        layers: state of each layer.
        positions: (B * N,) tokens that each row has read, the N beams of a sentence side by side.
        most: no row has read more.
        bsz: sentences B.
        beams: rows of each sentence N.
    """

    layers: List[LayerState]
    positions: Tensor
    most: int
    bsz: int
    beams: int

    def reorder(self, order: Tensor) -> "DecoderState":
        """Rows in a new order (B * N,): beams change places, sentences end, beam search begins."""
        positions = self.positions.index_select(0, order)
        rows = split_order(order, self.bsz, self.beams)
        if rows is None:
            return self._separate().reorder(order)
        layers = [layer.reorder(rows) for layer in self.layers]
        bsz = self.bsz if rows.sentences is None else len(rows.sentences)
        return DecoderState(layers, positions, self.most, bsz, rows.beams)

    def _separate(self) -> "DecoderState":
        rows = torch.arange(self.bsz * self.beams, device=self.positions.device)
        owners = torch.div(rows, self.beams, rounding_mode="floor")
        layers = [layer.separate(owners) for layer in self.layers]
        return DecoderState(layers, self.positions, self.most, len(rows), 1)


class RFATransformerDecoder(TransformerDecoderBase):
    """Transformer decoder with random feature attention (Wu et al. 2022).

    Extra outputs: ``log_decay``, (layers, H, B, T) logarithm of the sentential gates before each
    token, None without gates.

    Args:
        cfg, dictionary, embed_tokens: as in the stock decoder, with the options of the model.
        separator: index of ``<sep>``.
    """

    has_attention_weights = False

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens)
        self.separator = separator
        self.gated = cfg.sentence_gate != "none"

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        layer = RFADecoderLayer(cfg, no_encoder_attn)
        if cfg.checkpoint_activations:
            return fsdp_wrap(checkpoint_wrapper(layer, cfg.offload_activations), min_num_params=0)
        return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)

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
        """As in the stock decoder; there are no attention weights to be returned."""
        if incremental_state is None:
            return self._all_tokens(prev_output_tokens, encoder_out)
        state = self._state(incremental_state, encoder_out, len(prev_output_tokens))
        x, state = self._step(prev_output_tokens[:, -1], state)
        incremental_state[STATE] = {"state": state}
        return x.unsqueeze(1), {"attn": [None], "inner_states": []}

    def read_prefix(self, new_tokens, encoder_out, incremental_state):
        """Read (B, T) right-padded tokens in one pass after those that a state has read.

        Returns:
            (B, T, C) features and extra outputs; ``incremental_state`` is updated.
        """
        state = self._state(incremental_state, encoder_out, len(new_tokens))
        positions = state.positions.unsqueeze(1)
        x = self._embed(new_tokens, positions, state.most + new_tokens.size(1))
        padding, separators = self._masks(new_tokens)
        layers = []
        for layer, before in zip(self.layers, state.layers):
            x, after, _ = layer.read(x, before, separators, padding)
            layers.append(after)
        read = new_tokens.ne(self.padding_idx).sum(dim=1)
        most = state.most + new_tokens.size(1)
        state = state._replace(layers=layers, positions=state.positions + read, most=most)
        incremental_state[STATE] = {"state": state}
        return self._project(x), {"attn": [None], "inner_states": []}

    def reorder_incremental_state(self, incremental_state, new_order):
        """New order of the rows; called by the generator after each step."""
        if STATE in incremental_state:
            state = incremental_state[STATE]["state"].reorder(new_order)
            incremental_state[STATE] = {"state": state}

    # ---- whole sequences -----------------------------------------------------------------------

    def _all_tokens(self, tokens, encoder_out):
        x = self._embed(tokens, None, tokens.size(1))
        source, source_padding, source_separators = _source(encoder_out)
        padding, separators = self._masks(tokens)
        inner_states, gates = [x], []
        for layer in self.layers:
            x, log_decay = layer(x, source, source_padding, source_separators, separators, padding)
            inner_states.append(x)
            gates.append(log_decay)
        log_decay = torch.stack(gates).detach() if self.gated else None
        extra = {"attn": [None], "inner_states": inner_states, "log_decay": log_decay}
        return self._project(x), extra

    def _masks(self, tokens):
        """Where padding stands, None if nowhere, and separators, None if they do not matter."""
        padding = tokens.eq(self.padding_idx)
        separators = tokens.eq(self.separator) if self.gated else None
        return padding if padding.any() else None, separators

    # ---- one token after the other -------------------------------------------------------------

    def _state(self, incremental_state, encoder_out, rows: int) -> DecoderState:
        """The state so far; at the beginning one that has read the source alone."""
        if STATE in incremental_state:
            return incremental_state[STATE]["state"]
        source, padding, separators = _source(encoder_out)
        bsz = len(source)
        layers = [
            LayerState(None, layer.remember_source(source, padding, separators))
            for layer in self.layers
        ]
        positions = torch.zeros(rows, dtype=torch.long, device=source.device)
        return DecoderState(layers, positions, 0, bsz, rows // bsz)

    def _step(self, tokens, state: DecoderState):
        x = self._embed(tokens.unsqueeze(1), state.positions.unsqueeze(1), state.most + 1)
        x = x.squeeze(1)
        separators = tokens.eq(self.separator) if self.gated else None
        if separators is not None and not separators.any():
            separators = None
        layers = []
        for layer, before in zip(self.layers, state.layers):
            x, after = layer.step(x, state.bsz, separators, before)
            layers.append(after)
        positions = state.positions + 1
        state = state._replace(layers=layers, positions=positions, most=state.most + 1)
        return self._project(x), state

    # ---- below and above the layers ------------------------------------------------------------

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


def _source(encoder_out):
    """Source (B, S, C), where padding stands in it, None if nowhere, and separators (B, S)."""
    source = encoder_out["encoder_out"][0].transpose(0, 1)
    padding = encoder_out["encoder_padding_mask"][0]
    separators = encoder_out["separators"][0]
    return source, padding if padding.any() else None, separators
