"""Encoder and decoder of ``multi_encoder_transformer``, with encoders of previous sentences.

The model follows Li et al. (2020). In this module, a context is the encoded previous sentences of
one side, source or target.
"""

import copy
from typing import List, NamedTuple, Optional, Sequence

import torch
from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from fairseq_docmt.modules.decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.layers import AttendedSource, DecoderLayer, SourceAttention
from fairseq_docmt.modules.previous_sentences import TARGET_KEY, PreviousSentences
from fairseq_docmt.modules.stream import RowGroups, Stream
from fairseq_docmt.modules.stream_encoder import StreamEncoder


class EncodedContext(NamedTuple):
    """Previous sentences of each of B sentences, encoded as one sequence of L tokens.

    Attributes:
        states: (B, L, C) outputs of the context encoder.
        padding: (B, L) True at padding.
        known: (B,) True if the sentence has a previous sentence.
    """

    states: Tensor
    padding: Tensor
    known: Tensor

    def of_sentences(self, sentences: Tensor) -> "EncodedContext":
        """Select the contexts of some sentences by an (n,) tensor of indices."""
        return EncodedContext(*(x.index_select(0, sentences) for x in self))

    def for_rows(self, num_rows: int) -> "EncodedContext":
        """Repeat each sentence's context for its beams, giving ``num_rows`` rows in all.

        This is for decoding without incremental state.
        """
        if num_rows == len(self.known):
            return self
        owners = torch.arange(len(self.known), device=self.known.device)
        return self.of_sentences(owners.repeat_interleave(num_rows // len(owners)))


def context_tokens(previous: PreviousSentences, pad: int, eos: int) -> Tensor:
    """Join the previous sentences of each row into one sequence of tokens.

    Previous sentences that do not exist become padding. If a row has none at all, its sequence
    begins with ``</s>``, so that it is not empty.

    Args:
        previous: n previous sentences of each row, padded to W tokens each.
        pad, eos: indices of padding and ``</s>``.

    Returns:
        (rows, n * W) tokens.
    """
    tokens = previous.tokens[previous.place].masked_fill(~previous.known.unsqueeze(2), pad)
    tokens = tokens.flatten(1)
    nothing = ~previous.known.any(dim=1)
    first = tokens[:, :1].masked_fill(nothing.unsqueeze(1), eos)
    return torch.cat([first, tokens[:, 1:]], dim=1)


class ContextEncoder(TransformerEncoderBase):
    """Transformer encoder that reads previous sentences with the main model's word embeddings.

    Args:
        cfg: options of the model, with ``context_layers`` and ``context_sentences``.
        side: ``cfg.encoder`` or ``cfg.decoder``, which gives the sizes of the layers.
        most: maximum number of positions of one previous sentence.
        dictionary: dictionary of the previous sentences.
        embed_tokens: word embeddings. They are not registered as a module here, as they belong to
            the main encoder or decoder.
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
        """Add fairseq's version entry to a checkpoint that lacks this encoder.

        Without this entry, fairseq would drop the final layer norm.
        """
        state_dict.setdefault(f"{name}.version", self.version)
        return super().upgrade_state_dict_named(state_dict, name)


def encode_context(
    encoder: TransformerEncoderBase,
    previous: PreviousSentences,
    embed_tokens: nn.Embedding,
) -> EncodedContext:
    """Encode the previous sentences of each row, as one sequence, with a transformer encoder.

    Args:
        encoder: transformer encoder.
        previous: previous sentences of each row.
        embed_tokens: embeddings of their words.
    """
    tokens = context_tokens(previous, encoder.padding_idx, encoder.dictionary.eos())
    lengths = tokens.ne(encoder.padding_idx).sum(dim=1)
    output = TransformerEncoderBase.forward(
        encoder, tokens, lengths, token_embeddings=embed_tokens(tokens)
    )
    states = output["encoder_out"][0].transpose(0, 1)
    return EncodedContext(states, tokens.eq(encoder.padding_idx), previous.known.any(dim=1))


class AttendedContext(NamedTuple):
    """Keys and values of the encoded context (the previous sentences) for a batch of B sentences.

    Attributes:
        source: keys and values.
        known: (B,) True if the sentence has any context.
    """

    source: AttendedSource
    known: Tensor

    def of_sentences(self, sentences: Tensor) -> "AttendedContext":
        """Select the keys and values of some sentences by an (n,) tensor of indices."""
        known = self.known.index_select(0, sentences)
        return AttendedContext(self.source.of_sentences(sentences), known)


class ContextAttention(nn.Module):
    """Attention to encoded previous sentences, and fusion of its output with the input vectors.

    As in Li et al. (2020), a vector h and the output of attention are combined either by a gate g,
    as ``g * h + (1 - g) * attention``, or by their sum.

    Args:
        embed_dim: size C of queries and outputs.
        heads: number of attention heads.
        dropout: dropout probability of attention weights.
        context_dim: size of the encoded previous sentences.
        gated: whether to use the gate; otherwise the sum.
    """

    def __init__(self, embed_dim: int, heads: int, dropout: float, context_dim: int, gated: bool):
        super().__init__()
        self.attention = SourceAttention(embed_dim, heads, dropout, key_dim=context_dim)
        self.gate = None
        if gated:
            self.gate = nn.Linear(2 * embed_dim, embed_dim)
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

    def attended(self, context: EncodedContext) -> AttendedContext:
        """Project encoded previous sentences to keys and values for :meth:`forward`."""
        source = self.attention.project_source(context.states, context.padding)
        return AttendedContext(source, context.known)

    def forward(self, x: Tensor, query: Tensor, context: AttendedContext) -> Tensor:
        """Attend to the context, and combine the output of attention with ``x``.

        Args:
            x: (B * N, T, C) input vectors; the N rows (beams) of a sentence are adjacent.
            query: (B * N, T, C) queries of the attention.
            context: keys and values of the context of B sentences.

        Returns:
            (B * N, T, C) vectors; the input vectors themselves for sentences without context.
        """
        read = self.attention(query, context.source)
        if self.gate is None:
            output = x + read
        else:
            gate = self.gate(torch.cat([x, read], dim=-1)).sigmoid()
            output = gate * x + (1 - gate) * read
        known = context.known.repeat_interleave(len(x) // len(context.known))
        return torch.where(known[:, None, None], output, x)


def build_attentions(cfg, embed_dim: int, side, context_dims: Sequence[int]) -> nn.ModuleList:
    """Create one attention module for each context that the model reads.

    Args:
        cfg: options of the model, with ``context_fusion``.
        embed_dim: size of queries.
        side: ``cfg.encoder`` or ``cfg.decoder``, which gives the number of heads.
        context_dims: state size of each context, as returned by :func:`context_sizes`. If it is
            empty, no module is created.
    """
    gated, heads = cfg.context_fusion == "gate", side.attention_heads
    return nn.ModuleList(
        ContextAttention(embed_dim, heads, cfg.attention_dropout, size, gated)
        for size in context_dims
    )


def context_sizes(cfg) -> List[int]:
    """Return the state size of each context that the model reads.

    The previous source sentences come first, then the previous target sentences.
    """
    sizes = {"source": cfg.encoder.embed_dim, "target": cfg.decoder.embed_dim}
    return [size for side, size in sizes.items() if cfg.context_side in (side, "both")]


class MultiEncoderEncoder(StreamEncoder):
    """Transformer encoder that encodes previous source sentences separately from the current one.

    It has a second encoder for them, unless ``--share-context-encoder`` is given. With
    ``--context-side target``, it reads no previous sentences.

    Args:
        cfg, dictionary, embed_tokens: see fairseq's transformer.
        separator: index of ``<sep>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.count, self.reads_context = cfg.context_sentences, cfg.context_side != "target"
        self.context_encoder = None
        if self.reads_context and not cfg.share_context_encoder:
            most = cfg.max_source_positions
            self.context_encoder = ContextEncoder(cfg, cfg.encoder, most, dictionary, embed_tokens)

    def with_context(self, output, src_tokens, stream):
        """Add the encoded previous source sentences to the encoder output, as a list ``contexts``.

        The new ``doc_state`` is also added. If the model does not read previous source sentences,
        the list is empty and ``doc_state`` does not change.
        """
        if not self.reads_context:
            return {**output, "contexts": []}
        previous = PreviousSentences.of(src_tokens, stream, self.count, self.padding_idx)
        encoder = self if self.context_encoder is None else self.context_encoder
        context = encode_context(encoder, previous, self.embed_tokens)
        return {**output, "contexts": [context], "doc_state": previous.doc_state}

    def _select(self, encoder_out, sentences, beams):
        contexts = [context.of_sentences(sentences) for context in encoder_out["contexts"]]
        return {**super()._select(encoder_out, sentences, beams), "contexts": contexts}


class MultiEncoderDecoderLayer(DecoderLayer):
    """Decoder layer that can also attend to previous sentences ("inside" integration)."""

    def __init__(self, cfg, no_encoder_attn=False):
        super().__init__(cfg, no_encoder_attn)
        sizes = context_sizes(cfg) if cfg.context_integration == "inside" else []
        self.context_attn = build_attentions(cfg, self.embed_dim, cfg.decoder, sizes)

    def begin(self, source: Tensor, padding: Optional[Tensor], contexts: List[EncodedContext]):
        """Return the layer state before the first token, with projected source and contexts.

        Args:
            source: (B, S, C) encoder output.
            padding: (B, S) True at padding; None without padding.
            contexts: encoded previous sentences of the source, the target or both, in this order.
        """
        attended = (attention.attended(x) for attention, x in zip(self.context_attn, contexts))
        return self.init_state(source, padding)._replace(memory=tuple(attended))

    def cross(self, x, state, **marks):
        """Attend from target tokens to the source and to each context, and fuse the results.

        Args:
            x: (rows, T, C) target states.
            state: state of the layer, with keys and values of the source and the contexts.
            **marks: ignored.

        Returns:
            (rows, T, C) output.
        """
        output = self.encoder_attn(x, state.source)
        for attention, context in zip(self.context_attn, state.memory):
            output = attention(output, x, context)
        return output


class MultiEncoderDecoder(StatefulDecoder):
    """Transformer decoder that reads the previous sentences of the source, the target or both.

    With ``--context-side target`` or ``both``, it has an encoder of previous target sentences.

    Args:
        cfg, dictionary, embed_tokens: see fairseq's transformer.
        separator: index of ``<sep>``.
    """

    layer_class = MultiEncoderDecoderLayer

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.count, self.eos, self.context_encoder = cfg.context_sentences, dictionary.eos(), None
        if cfg.context_side != "source":
            most = cfg.max_target_positions
            self.context_encoder = ContextEncoder(cfg, cfg.decoder, most, dictionary, embed_tokens)
        sizes = context_sizes(cfg) if cfg.context_integration == "outside" else []
        self.context_attn = build_attentions(cfg, cfg.encoder.embed_dim, cfg.encoder, sizes)

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """Compute features with attention to previous sentences (teacher forcing).

        Arguments and results are the same as for :meth:`StatefulDecoder.forward_sequence`. The
        extra outputs include the new document state, ``doc_state``.
        """
        stream = encoder_out["stream"].for_rows(len(tokens))
        contexts = [context.for_rows(len(tokens)) for context in encoder_out["contexts"]]
        doc_state = dict(encoder_out["doc_state"])
        if self.context_encoder is not None:
            previous = self._previous(tokens, stream)
            contexts.append(self._encode(previous))
            doc_state.update(previous.doc_state)
        stream = stream if weights_of is None else stream.ungrouped()
        targets, sources = stream.groups("target"), stream.groups("attended")
        source, padding = self._source(encoder_out, contexts)
        parts = sources.split(source), sources.split(padding), _in_groups(contexts, sources)
        encoded = list(zip(*parts))
        groups, _, weights = self.run_layers(
            targets.split(x),
            lambda number, layer, _: [layer.begin(*each) for each in encoded],
            weights_of=weights_of,
        )
        extra = {"attn": weights or [None], "doc_state": doc_state, **stream.positions()}
        return stream.at_loss(targets.join(groups, x.size(1))), extra

    def init_layers(self, encoder_out):
        """Return the initial state of each layer, and None, as the layers share no state.

        The states have one row per sentence. With "inside" integration, they contain the keys and
        values of previous sentences.
        """
        contexts, stream = list(encoder_out["contexts"]), encoder_out["stream"]
        if self.context_encoder is not None:
            # The sentence itself is not among those before it, so its tokens do not matter.
            tokens = torch.full_like(stream.starts, self.eos, dtype=torch.long).unsqueeze(1)
            contexts.append(self._encode(self._previous(tokens, stream)))
        source, padding = self._source(encoder_out, contexts)
        return [layer.begin(source, padding, contexts) for layer in self.layers], None

    def _source(self, encoder_out: dict, contexts: List[EncodedContext]):
        """Return the encoder states that the decoder attends to, and their padding mask.

        With "outside" integration, the states have first attended to the previous sentences.

        Returns:
            (B, S, C) states, and (B, S) True at padding or None without padding.
        """
        source, padding, _ = batch_first_source(encoder_out)
        for attention, context in zip(self.context_attn, contexts):
            source = attention(source, source, attention.attended(context))
        return source, padding

    def _previous(self, tokens: Tensor, stream: Stream) -> PreviousSentences:
        return PreviousSentences.of(tokens, stream, self.count, self.padding_idx, TARGET_KEY)

    def _encode(self, previous: PreviousSentences) -> EncodedContext:
        return encode_context(self.context_encoder, previous, self.embed_tokens)


def _in_groups(contexts: List[EncodedContext], groups: RowGroups) -> List[List[EncodedContext]]:
    """Split the contexts of a batch by groups of rows.

    Returns:
        For each group, the list of its contexts.
    """
    if groups.rows is None:
        return [contexts]
    return [[context.of_sentences(rows) for context in contexts] for rows in groups.rows]
