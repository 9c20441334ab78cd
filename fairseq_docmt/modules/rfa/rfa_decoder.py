"""Layers and decoder of ``rfa_transformer``: linear-time training, constant-time decoding steps.

The attention of all layers is random feature attention (Wu et al. 2022).
"""

from typing import Optional

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

from fairseq_docmt.modules.decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.layers import DecoderLayer
from fairseq_docmt.modules.rfa.feature_map import FeatureOptions, SharedMatrices
from fairseq_docmt.modules.rfa.rfa_attention import (
    BIAS,
    CausalRFA,
    CrossRFA,
    EncoderRFA,
    SentenceGate,
)


def feature_options(cfg, random_vectors: int, shared_pool: bool = False) -> FeatureOptions:
    """Return the options of random feature attention, most of which are options of the model.

    Args:
        cfg: options of the model.
        random_vectors: number of random vectors of each head.
        shared_pool: whether all layers draw their random matrices from one pool.
    """
    floor = cfg.denominator_floor
    return FeatureOptions(random_vectors, cfg.feature_map, cfg.random_matrices, floor, shared_pool)


def _rescale(cfg) -> dict:
    return {"rescale": not cfg.no_key_rescale, "padding_counts": cfg.key_rescale_with_padding}


def _gate(cfg, embed_dim: int, heads: int) -> Optional[SentenceGate]:
    if cfg.sentence_gate == "none":
        return None
    bias = BIAS[cfg.sentence_gate] if cfg.gate_bias_init is None else cfg.gate_bias_init
    gates = 1 if cfg.shared_gate else heads
    return SentenceGate(embed_dim, gates, average=cfg.sentence_gate == "average", bias=bias)


class RFAEncoderLayer(TransformerEncoderLayerBase):
    """Transformer encoder layer whose self-attention uses random features."""

    def build_self_attention(self, embed_dim, cfg):
        """Build random feature self-attention instead of softmax attention."""
        options = feature_options(cfg, cfg.cross_feature_dim)
        return EncoderRFA(embed_dim, cfg.encoder.attention_heads, options, **_rescale(cfg))


class RFADecoderLayer(DecoderLayer):
    """Decoder layer whose self-attention and cross-attention use random features.

    Both can have a sentential gate.
    """

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """Build causal random feature attention, optionally with a sentential gate."""
        heads = cfg.decoder.attention_heads
        options = feature_options(cfg, cfg.causal_feature_dim, cfg.share_random_matrices)
        return CausalRFA(embed_dim, heads, options, _gate(cfg, embed_dim, heads))

    def build_encoder_attention(self, embed_dim, cfg):
        """Build random feature attention to the source, optionally with a sentential gate."""
        heads = cfg.decoder.attention_heads
        options = feature_options(cfg, cfg.cross_feature_dim, cfg.share_random_matrices)
        key_dim = cfg.encoder.embed_dim
        gate = _gate(cfg, key_dim, heads) if cfg.gate_cross_attention else None
        return CrossRFA(embed_dim, heads, options, gate, key_dim=key_dim, **_rescale(cfg))


class RFATransformerDecoder(StatefulDecoder):
    """Transformer decoder with random feature attention (Wu et al. 2022).

    For whole sequences, the extra outputs include ``log_decay``: (layers, H, B, T) logarithms of
    the sentential gates, which are 0 except at the first token of a sentence. H is the number of
    gates: one per head, or 1 for a shared gate. Without a gate ``log_decay`` is None.
    """

    layer_class = RFADecoderLayer

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
        """Return a list with the random matrices of each layer, drawn from a shared pool.

        If there is no shared pool, the list has None for each layer, which then draws from its own
        pool.
        """
        return [None] * len(self.layers) if shared is None else shared.draw()

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """Compute features by linear-time attention over whole sequences (teacher forcing).

        The only extra output is ``log_decay``, the logarithms of the sentential gates. There are no
        attention weights, so ``weights_of`` has no effect.
        """
        source, padding, separators = batch_first_source(encoder_out)
        causal, cross = self._draw(self.causal_matrices), self._draw(self.cross_matrices)
        marks, log_decays = {"separators": separators, "queries": x.size(1)}, []
        (x,), _, _ = self.run_layers(
            [x],
            lambda n, layer, _: [layer.init_state(source, padding, matrices=cross[n], **marks)],
            padding=self._padding(tokens),
            separators=self._separators(tokens),
            matrices=causal,
            keep_log_decay=log_decays.append,
        )
        # LayerDrop may have left out all layers.
        log_decay = torch.stack(log_decays).detach() if log_decays else None
        return x, {"log_decay": log_decay}

    def init_layers(self, encoder_out):
        """Return the initial state of each layer, and None because the layers share no state.

        Each state has one row per sentence and includes the projected source.
        """
        source, padding, separators = batch_first_source(encoder_out)
        layers = [
            layer.init_state(source, padding, separators=separators, matrices=matrices)
            for layer, matrices in zip(self.layers, self._draw(self.cross_matrices))
        ]
        return layers, None

    def marks(self, tokens, rest):
        """Return the keyword arguments that the layers need for new tokens, and their shared state.

        The arguments are ``separators``, the separator mask of the tokens (None without a gate),
        and ``matrices``, a list with the random matrices of each layer. The layers share no state,
        so the state before these tokens, ``rest``, and the state after them are always None.
        """
        separators = self._separators(tokens)
        return {"separators": separators, "matrices": self._draw(self.causal_matrices)}, None

    def step(self, x, tokens, state):
        """Run the decoder over one new token of each row without building (rows, T, C) tensors.

        Args:
            x: (rows, C) embeddings.
            tokens: (rows,) new token of each row.
            state: state before these tokens.

        Returns:
            (rows, C) features, new layer states, and None because the layers share no state.
        """
        marks, _ = self.marks(tokens, None)
        if marks["separators"] is not None and not marks["separators"].any():
            marks["separators"] = None
        return (*self.extend_layers(x, state, bsz=state.bsz, **marks), None)

    def _separators(self, tokens):
        """Return a mask that is True at ``<sep>``; None if the model has no sentential gate."""
        return tokens.eq(self.separator) if self.gated else None
