"""Encoder of previous sentences."""

import copy
from typing import NamedTuple

import torch
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from fairseq_docmt.modules.shared.previous_sentences import PreviousSentences


class EncodedContext(NamedTuple):
    """Encoded previous sentences of B sentences.

    Attributes:
        states: (B, L, C).
        padding: (B, L) True at padding.
        known: (B,) True if there is a previous sentence.
    """

    states: Tensor
    padding: Tensor
    known: Tensor

    def of_sentences(self, sentences: Tensor) -> "EncodedContext":
        """Select sentences by index."""
        return EncodedContext(*(x.index_select(0, sentences) for x in self))

    def for_rows(self, num_rows: int) -> "EncodedContext":
        """Repeat each sentence for its beams, when decoding without incremental state."""
        if num_rows == len(self.known):
            return self
        owners = torch.arange(len(self.known), device=self.known.device)
        return self.of_sentences(owners.repeat_interleave(num_rows // len(owners)))


def context_tokens(previous: PreviousSentences, pad: int, eos: int) -> Tensor:
    """Join the previous sentences of each row, giving (rows, n * W) tokens.

    Sentences that the row's document does not have are padding; without any, there is one ``</s>``.
    """
    tokens = previous.tokens[previous.place].masked_fill(~previous.known.unsqueeze(2), pad)
    tokens = tokens.flatten(1)
    nothing = ~previous.known.any(dim=1)
    first = tokens[:, :1].masked_fill(nothing.unsqueeze(1), eos)
    return torch.cat([first, tokens[:, 1:]], dim=1)


class ContextEncoder(TransformerEncoderBase):
    """Transformer encoder of previous sentences, with the embeddings of the sentences themselves.

    Args:
        cfg: options of the model, with ``context_layers`` and ``context_sentences``.
        side: ``cfg.encoder`` or ``cfg.decoder``, which gives the sizes of the layers.
        most: maximum positions of a sentence of this side.
        dictionary: dictionary of the sentences.
        embed_tokens: their embeddings, which remain a module of the model that owns them.
    """

    def __init__(self, cfg, side, most: int, dictionary, embed_tokens: nn.Embedding):
        cfg = copy.deepcopy(cfg)
        cfg.max_source_positions = cfg.context_sentences * most
        for name in ("ffn_embed_dim", "attention_heads", "normalize_before", "learned_pos"):
            setattr(cfg.encoder, name, getattr(side, name))
        cfg.encoder.embed_dim, cfg.encoder.layers = embed_tokens.embedding_dim, cfg.context_layers
        super().__init__(cfg, dictionary, embed_tokens)
        self.embed_tokens = None

    def upgrade_state_dict_named(self, state_dict, name):
        """Add fairseq's version entry if the checkpoint lacks this encoder.

        Without it fairseq would drop the final layer norm.
        """
        state_dict.setdefault(f"{name}.version", self.version)
        return super().upgrade_state_dict_named(state_dict, name)


def encode_context(
    encoder: TransformerEncoderBase,
    previous: PreviousSentences,
    embed_tokens: nn.Embedding,
) -> EncodedContext:
    """Encode the previous sentences of each row with a transformer encoder.

    Args:
        encoder: transformer encoder of width C.
        previous: previous sentences of R rows.
        embed_tokens: embeddings of their words.

    Returns:
        (R, S, C) states, (R, S) padding, and (R,) whether there are previous sentences.
    """
    tokens = context_tokens(previous, encoder.padding_idx, encoder.dictionary.eos())
    lengths = tokens.ne(encoder.padding_idx).sum(dim=1)
    output = TransformerEncoderBase.forward(
        encoder, tokens, lengths, token_embeddings=embed_tokens(tokens)
    )
    states = output["encoder_out"][0].transpose(0, 1)
    return EncodedContext(states, tokens.eq(encoder.padding_idx), previous.known.any(dim=1))
