"""Decoder of ``rfa_transformer``: linear-time training, constant-time decoding steps."""

from typing import Optional

import torch

from fairseq_docmt.modules.rfa.random_feature_map import SharedMatrices
from fairseq_docmt.modules.rfa.rfa_layers import RFADecoderLayer, RFALayerState, feature_options
from fairseq_docmt.modules.shared.shared_source_encoder import wrapped
from fairseq_docmt.modules.shared.stateful_decoder import StatefulDecoder, batch_first_source


class RFATransformerDecoder(StatefulDecoder):
    """Transformer decoder with random feature attention (Wu et al. 2022).

    For whole sequences the extra outputs include ``log_decay``, the (layers, H, B, T) logarithm of
    the sentential gate before each token. H is 1 if heads share a gate; without a gate it is None.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.gated = cfg.sentence_gate != "none"
        self.causal_matrices = self._shared_matrices(cfg, cfg.causal_feature_dim)
        self.cross_matrices = self._shared_matrices(cfg, cfg.cross_feature_dim)

    @staticmethod
    def _shared_matrices(cfg, random_vectors: int) -> Optional[SharedMatrices]:
        if not cfg.share_random_matrices:
            return None
        heads, options = cfg.decoder.attention_heads, feature_options(cfg, random_vectors)
        sizes = (cfg.decoder.layers, heads, cfg.decoder.embed_dim // heads)
        return SharedMatrices(*sizes, options, same=cfg.same_matrices_in_decoding)

    def _draw(self, shared: Optional[SharedMatrices]) -> list:
        """Return the random matrices of each layer; None for layers with their own pool."""
        return [None] * len(self.layers) if shared is None else shared.draw()

    def build_decoder_layer(self, cfg, no_encoder_attn=False):
        """See the base class."""
        return wrapped(RFADecoderLayer(cfg, no_encoder_attn), cfg)

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """See the base class."""
        source, source_padding, source_separators = batch_first_source(encoder_out)
        padding, separators = self._padding(tokens), self._separators(tokens)
        inner_states, gates = [x], []
        matrices = zip(self._draw(self.causal_matrices), self._draw(self.cross_matrices))
        for layer, own in zip(self.layers, matrices):
            x, log_decay = layer(
                x, source, source_padding, source_separators, separators, padding, *own
            )
            inner_states.append(x)
            gates.append(log_decay)
        # LayerDrop may have left out all layers.
        log_decay = torch.stack(gates).detach() if self.gated and gates else None
        return x, {"inner_states": inner_states, "log_decay": log_decay}

    def init_layers(self, encoder_out):
        """See the base class."""
        source, padding, separators = batch_first_source(encoder_out)
        layers = [
            RFALayerState(None, layer.project_source(source, padding, separators, matrices))
            for layer, matrices in zip(self.layers, self._draw(self.cross_matrices))
        ]
        return layers, None

    def read(self, x, tokens, state):
        """See the base class."""
        padding, separators = self._padding(tokens), self._separators(tokens)
        layers, matrices = [], self._draw(self.causal_matrices)
        for layer, before, own in zip(self.layers, state.layers, matrices):
            x, after, _ = layer.read(x, before, separators, padding, own)
            layers.append(after)
        return x, layers, None, {}

    def step(self, x, tokens, state):
        """See the base class."""
        separators = self._separators(tokens)
        if separators is not None and not separators.any():
            separators = None
        layers, matrices = [], self._draw(self.causal_matrices)
        for layer, before, own in zip(self.layers, state.layers, matrices):
            x, after = layer.step(x, state.bsz, separators, before, own)
            layers.append(after)
        return x, layers, None, {}

    def _separators(self, tokens):
        """Return the mask of separators, None without a gate."""
        return tokens.eq(self.separator) if self.gated else None
