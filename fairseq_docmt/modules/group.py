"""Group attention of ``g_transformer`` (Bao et al. 2021), optionally combined with full attention.

In group attention, a token attends only to its own sentence or, in cross attention, to the
corresponding source sentence. Combined attention mixes this with attention to the whole document,
by a gate.

Shapes: B batch rows, H heads, T target or S source positions, model size C, head size d.
"""

from typing import List, Optional, Tuple

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_docmt.modules.encoder import wrapped
from fairseq_docmt.modules.layers import (
    AttendedSource,
    AttentionDropout,
    AttentionProjections,
    DecoderLayer,
)
from fairseq_docmt.modules.sentences import (
    CausalSentenceAttention,
    EncoderSentenceAttention,
    SentenceDecoder,
    SentenceEncoder,
    source_sentences,
)
from fairseq_docmt.ops.precision import masked_attention


class _GroupAttention(AttentionProjections):
    """Attention to one sentence; :meth:`combine` adds attention to the whole document.

    The parameters of sentence attention have the same names as in a plain transformer. Combined
    attention has 2 H heads: tensors of queries, keys and values contain first the H heads of
    sentence attention, then the H heads of document attention.

    Args:
        embed_dim: size of queries and outputs.
        heads: number of attention heads H.
        dropout: dropout probability of attention weights.
        key_dim: size of the inputs of keys and values; default: ``embed_dim``.
    """

    def __init__(self, embed_dim: int, heads: int, dropout: float, key_dim: Optional[int] = None):
        super().__init__(embed_dim, heads, key_dim)
        self.dropout = AttentionDropout(dropout, self)
        self.document: Optional[AttentionProjections] = None

    def combine(self) -> None:
        """Build the projections of attention to the whole document.

        A gate that mixes this attention with sentence attention is also built.
        """
        embed_dim, key_dim = self.q_proj.in_features, self.k_proj.in_features
        self.document = AttentionProjections(embed_dim, self.num_heads, key_dim)
        self.gate = nn.Linear(2 * embed_dim, embed_dim)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def _parts(self) -> List[AttentionProjections]:
        return [self] if self.document is None else [self, self.document]

    def queries(self, x: Tensor) -> Tensor:
        """Project inputs (B, T, C) to queries (B, H, T, d).

        In combined attention they are (B, 2 H, T, d).
        """
        return torch.cat([part.split_heads(part.q_proj(x)) for part in self._parts()], dim=1)

    def all_keys_and_values(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        """Project inputs (B, S, C) to keys and values, each (B, H, S, d).

        In combined attention they are (B, 2 H, S, d).
        """
        keys, values = zip(*(part.keys_and_values(x) for part in self._parts()))
        return torch.cat(keys, dim=1), torch.cat(values, dim=1)

    def project(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """Project inputs (B, T, C) to queries, keys and values, each (B, H, T, d).

        In combined attention they are (B, 2 H, T, d).
        """
        return (self.queries(x), *self.all_keys_and_values(x))

    def attend(self, q, k, v, seen: Tensor, same_sentence: Tensor) -> Tensor:
        """Compute the (B, T, C) output of group attention, or of combined attention.

        Args:
            q, k, v: queries, keys and values, projected as by :meth:`project`.
            seen: (B, T, S) or (B, 1, S), True where attention is allowed.
            same_sentence: (B, T, S) True where query and key are in the same sentence.
        """
        outputs = self._outputs(q, k, v, seen, same_sentence)
        if self.document is None:
            return outputs[0]
        gate = self._gate(outputs)
        return gate * outputs[0] + (1 - gate) * outputs[1]

    def _outputs(self, q, k, v, seen: Tensor, same_sentence: Tensor) -> List[Tensor]:
        """Compute the outputs of sentence attention and, if combined, of document attention.

        The arguments are the same as for :meth:`attend`.

        Returns:
            List of one or two (B, T, C) tensors.
        """
        dropout, parts = self.dropout.rate, self._parts()
        heads = zip(*(x.chunk(len(parts), dim=1) for x in (q, k, v)))
        outputs = []
        for part, head, mask in zip(parts, heads, (seen & same_sentence, seen)):
            output = masked_attention(*head, mask.unsqueeze(1), dropout)
            outputs.append(part.out_proj(output.transpose(1, 2).flatten(2)))
        return outputs

    def _gate(self, outputs: List[Tensor]) -> Tensor:
        """Compute the (B, T, C) gate of combined attention from its two outputs.

        The gate is between 0 (only document attention) and 1 (only sentence attention).
        """
        return self.gate(torch.cat(outputs, dim=-1)).sigmoid()


class EncoderGroupAttention(EncoderSentenceAttention, _GroupAttention):
    """Self-attention of source tokens to their sentence and optionally to the whole document."""


class CausalGroupAttention(CausalSentenceAttention, _GroupAttention):
    """Causal attention of target tokens to their sentence and optionally to the whole document."""


class SourceGroupAttention(_GroupAttention):
    """Attention of each target sentence to the source sentence with the same number.

    Target sentences after the last source sentence attend to the last one. Combined attention also
    attends to the whole source.
    """

    def project_source(
        self, source: Tensor, padding: Optional[Tensor], separators: Tensor
    ) -> AttendedSource:
        """Compute the keys and values of a source, and the sentence number of each of its tokens.

        Args:
            source: (B, S, C) encoder output.
            padding: (B, S) True at padding; None without padding.
            separators: (B, S) True at ``<sep>``.
        """
        keys, values = self.all_keys_and_values(source)
        return AttendedSource(keys, values, padding, source_sentences(separators))

    def forward(self, x: Tensor, source: AttendedSource, sentences: Tensor) -> Tensor:
        """Attend from target tokens to the source.

        Args:
            x: (B * N, T, C) inputs of the queries; the N rows (beams) of a source are adjacent.
            source: keys and values of B sources.
            sentences: (B * N, T) sentence number of each query.

        Returns:
            (B * N, T, C) output.
        """
        bsz = len(source.keys)
        by_source = x.unflatten(0, (bsz, -1)).flatten(1, 2)
        seen, same = self._masks(source, sentences.unflatten(0, (bsz, -1)).flatten(1, 2))
        q = self.queries(by_source)
        return self.attend(q, source.keys, source.values, seen, same).view_as(x)

    def weights(self, x: Tensor, source: AttendedSource, sentences: Tensor) -> Tensor:
        """Compute the (B, H, T, S) attention weights of target tokens.

        In combined attention, each head has a weighted average of its sentence and document
        weights. The weight of sentence attention is the gate of the query, averaged over its C
        dimensions.

        Args:
            x: (B, T, C) inputs of the queries.
            source: keys and values of B sources.
            sentences: (B, T) sentence number of each query.
        """
        seen, same = self._masks(source, sentences)
        q, parts = self.queries(x), len(self._parts())
        logits = (q * self.head_dim**-0.5) @ source.keys.transpose(-1, -2)
        hidden = (~(seen & same), ~seen)
        weights = [
            part.masked_fill(mask.unsqueeze(1), -float("inf")).softmax(dim=-1)
            for part, mask in zip(logits.chunk(parts, dim=1), hidden)
        ]
        if self.document is None:
            return weights[0]
        outputs = self._outputs(q, source.keys, source.values, seen, same)
        group = self._gate(outputs).mean(dim=-1)[:, None, :, None]
        return group * weights[0] + (1 - group) * weights[1]

    @staticmethod
    def _masks(source: AttendedSource, sentences: Tensor) -> Tuple[Tensor, Tensor]:
        last = source.sentences.amax(dim=1, keepdim=True)
        same = sentences.minimum(last).unsqueeze(2) == source.sentences.unsqueeze(1)
        if source.padding is None:
            return torch.ones_like(same[:, :1]), same
        return ~source.padding.unsqueeze(1), same


class GroupEncoderLayer(TransformerEncoderLayerBase):
    """Transformer encoder layer with group attention."""

    def build_self_attention(self, embed_dim, cfg):
        """Build group self-attention instead of full self-attention."""
        heads = cfg.encoder.attention_heads
        return EncoderGroupAttention(embed_dim, heads, cfg.attention_dropout)


class GroupTransformerEncoder(SentenceEncoder):
    """Transformer encoder with group attention, and also document attention in the top layers."""

    _layers_built = 0

    def build_encoder_layer(self, cfg):
        """Build a layer with group attention; the top layers also attend to the whole document."""
        layer = GroupEncoderLayer(cfg)
        if cfg.encoder.layers - self._layers_built <= cfg.encoder_context_layers:
            layer.self_attn.combine()
        self._layers_built += 1
        return wrapped(layer, cfg)


class GroupDecoderLayer(DecoderLayer):
    """Decoder layer with group attention to the target and to the source."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """Build causal group attention instead of full causal attention."""
        heads = cfg.decoder.attention_heads
        return CausalGroupAttention(embed_dim, heads, cfg.attention_dropout)

    def build_encoder_attention(self, embed_dim, cfg):
        """Build attention to the source sentence with the same number, not to the whole source."""
        heads, dropout = cfg.decoder.attention_heads, cfg.attention_dropout
        return SourceGroupAttention(embed_dim, heads, dropout, key_dim=cfg.encoder.embed_dim)


class GroupTransformerDecoder(SentenceDecoder):
    """Transformer decoder with group attention, and also document attention in the top layers."""

    layer_class = GroupDecoderLayer
    _layers_built = 0

    def layer_built(self, layer):
        """Add document attention to a newly built layer, if it is one of the top layers.

        Self-attention and cross-attention may have it in different numbers of top layers.
        """
        top = self.cfg.decoder.layers - self._layers_built
        if top <= self.cfg.decoder_context_layers:
            layer.self_attn.combine()
        if top <= self.cfg.cross_context_layers:
            layer.encoder_attn.combine()
        self._layers_built += 1
