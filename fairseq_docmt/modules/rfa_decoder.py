"""Decoder of ``rfa_transformer``: whole sequences in linear time, steps in constant time."""

import torch

from fairseq_docmt.modules.rfa_layers import LayerState, RFADecoderLayer
from fairseq_docmt.modules.shared_source_encoder import wrapped
from fairseq_docmt.modules.stateful_decoder import StatefulDecoder, batch_first_source


class RFATransformerDecoder(StatefulDecoder):
    """Transformer decoder with random feature attention (Wu et al. 2022).

    Extra output of whole sequences: ``log_decay``, (layers, H, B, T) logarithm of the sentential
    gates before each token, None without gates.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.gated = cfg.sentence_gate != "none"

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        return wrapped(RFADecoderLayer(cfg, no_encoder_attn), cfg)

    def all_tokens(self, x, tokens, encoder_out, weights_of):
        source, source_padding, source_separators = batch_first_source(encoder_out)
        padding, separators = self._padding(tokens), self._separators(tokens)
        inner_states, gates = [x], []
        for layer in self.layers:
            x, log_decay = layer(x, source, source_padding, source_separators, separators, padding)
            inner_states.append(x)
            gates.append(log_decay)
        log_decay = torch.stack(gates).detach() if self.gated else None
        return x, {"inner_states": inner_states, "log_decay": log_decay}

    def begin(self, encoder_out):
        source, padding, separators = batch_first_source(encoder_out)
        layers = [
            LayerState(None, layer.remember_source(source, padding, separators))
            for layer in self.layers
        ]
        return layers, None

    def read(self, x, tokens, state):
        padding, separators = self._padding(tokens), self._separators(tokens)
        layers = []
        for layer, before in zip(self.layers, state.layers):
            x, after, _ = layer.read(x, before, separators, padding)
            layers.append(after)
        return x, layers, None, {}

    def step(self, x, tokens, state):
        separators = self._separators(tokens)
        if separators is not None and not separators.any():
            separators = None
        layers = []
        for layer, before in zip(self.layers, state.layers):
            x, after = layer.step(x, state.bsz, separators, before)
            layers.append(after)
        return x, layers, None, {}

    def _separators(self, tokens):
        """Where separators stand, None if they do not matter."""
        return tokens.eq(self.separator) if self.gated else None
