"""Long-short term attention (Zhang et al. 2020; Herold and Ney 2023, section 3.2)."""

from typing import List

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_docmt.modules.encoder import wrapped
from fairseq_docmt.modules.layers import AttentionDropout, AttentionProjections, DecoderLayer
from fairseq_docmt.modules.sentences import (
    CausalSentenceAttention,
    EncoderSentenceAttention,
    SentenceDecoder,
    SentenceEncoder,
)
from fairseq_docmt.ops.precision import masked_attention


class _LongShortTermAttention(AttentionProjections):
    """Attention of each token to its own sentence and, in parallel, to the whole sequence.

    The two outputs are concatenated and projected.

    Args:
        embed_dim: size of inputs and outputs.
        heads: number of attention heads.
        dropout: dropout probability of attention weights.
        separate: whether attention to the whole sequence has query, key and value projections of
            its own. By default it shares the projections of sentence attention.
    """

    def __init__(self, embed_dim: int, heads: int, dropout: float = 0.0, separate: bool = False):
        super().__init__(embed_dim, heads, contexts=2)
        self.dropout, self.separate = AttentionDropout(dropout, self), separate
        if separate:
            self.long = nn.ModuleDict({name: nn.Linear(embed_dim, embed_dim) for name in "qkv"})
            for projection in self.long.values():
                nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)

    def upgrade_state_dict_named(self, state_dict, name):
        """Initialise both kinds of attention from the checkpoint of a plain transformer.

        The weights of the output projection are repeated for the two concatenated outputs and
        divided by 2. A single sentence is therefore translated as by the plain transformer. A
        checkpoint of this model is not changed.
        """
        output = state_dict.get(f"{name}.out_proj.weight")
        if output is None or output.size(1) != self.q_proj.out_features:
            return
        state_dict[f"{name}.out_proj.weight"] = torch.cat([output, output], dim=1) / 2
        if self.separate:
            for letter in "qkv":
                for kind in ("weight", "bias"):
                    trained = state_dict[f"{name}.{letter}_proj.{kind}"]
                    state_dict[f"{name}.long.{letter}.{kind}"] = trained.clone()

    def project(self, x: Tensor) -> List[Tensor]:
        """Project inputs (B, T, C) to queries, keys and values, each (B, H, T, d).

        With separate projections they are (B, 2 H, T, d): first the H heads of sentence attention,
        then the H heads of attention to the whole sequence.
        """
        parts = [self.split_heads(self.q_proj(x)), *self.keys_and_values(x)]
        if not self.separate:
            return parts
        own = (self.split_heads(self.long[name](x)) for name in "qkv")
        return [torch.cat(pair, dim=1) for pair in zip(parts, own)]

    def attend(self, q, k, v, seen, same_sentence) -> Tensor:
        """Attend to the sentence and to the whole sequence; return the (B, T, C) output.

        Args:
            q, k, v: queries, keys and values, projected as by :meth:`project`.
            seen: (B, T, S) or (B, 1, S) True where attention is allowed.
            same_sentence: (B, T, S) True where query and key are in the same sentence.
        """
        dropout = self.dropout.rate
        parts = zip(*(x.chunk(2, dim=1) if self.separate else (x, x) for x in (q, k, v)))
        outputs = [
            masked_attention(*part, mask.unsqueeze(1), dropout)
            for part, mask in zip(parts, (seen & same_sentence, seen))
        ]
        return self.out_proj(torch.cat([x.transpose(1, 2).flatten(2) for x in outputs], dim=-1))


class EncoderLSTAttention(EncoderSentenceAttention, _LongShortTermAttention):
    """Self-attention of each token to its own sentence and, in parallel, to the whole source."""


class CausalLSTAttention(CausalSentenceAttention, _LongShortTermAttention):
    """Causal attention of each token to its own sentence and, in parallel, to all tokens so far."""


class LSTEncoderLayer(TransformerEncoderLayerBase):
    """Transformer encoder layer with long-short term self-attention (LST)."""

    def build_self_attention(self, embed_dim, cfg):
        """Build long-short term self-attention instead of full self-attention."""
        options = (cfg.attention_dropout, cfg.separate_projections)
        return EncoderLSTAttention(embed_dim, cfg.encoder.attention_heads, *options)


class LSTTransformerEncoder(SentenceEncoder):
    """Transformer encoder with long-short term self-attention."""

    def build_encoder_layer(self, cfg):
        """Build an encoder layer with long-short term self-attention."""
        return wrapped(LSTEncoderLayer(cfg), cfg)


class LSTDecoderLayer(DecoderLayer):
    """Decoder layer with long-short term self-attention and full cross attention."""

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """Build causal long-short term attention instead of full causal attention."""
        options = (cfg.attention_dropout, cfg.separate_projections)
        return CausalLSTAttention(embed_dim, cfg.decoder.attention_heads, *options)


class LSTTransformerDecoder(SentenceDecoder):
    """Transformer decoder with long-short term self-attention."""

    layer_class = LSTDecoderLayer
