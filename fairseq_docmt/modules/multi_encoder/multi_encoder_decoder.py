"""Encoder and decoder of ``multi_encoder_transformer``."""

from typing import List, Optional

import torch
from torch import Tensor

from fairseq_docmt.modules.multi_encoder.context_attention import (
    AttendedContexts,
    build_attentions,
)
from fairseq_docmt.modules.multi_encoder.context_encoder import (
    ContextEncoder,
    EncodedContext,
    encode_context,
)
from fairseq_docmt.modules.shared.decoder_layer import DecoderLayer
from fairseq_docmt.modules.shared.previous_sentences import TARGET_KEY, PreviousSentences
from fairseq_docmt.modules.shared.row_groups import (
    RowGroups,
    packed,
    target_groups,
    training_groups,
)
from fairseq_docmt.modules.shared.stateful_decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.shared.stream import Stream
from fairseq_docmt.modules.shared.stream_encoder import StreamEncoder


def context_sizes(cfg) -> List[int]:
    """Return the sizes of the states of previous source and previous target sentences, if used."""
    sizes = {"source": cfg.encoder.embed_dim, "target": cfg.decoder.embed_dim}
    return [size for side, size in sizes.items() if cfg.context_side in (side, "both")]


class MultiEncoderEncoder(StreamEncoder):
    """Transformer encoder with a second encoder for previous source sentences.

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.count, self.reads_context = cfg.context_sentences, cfg.context_side != "target"
        self.context_encoder = None
        if self.reads_context and not cfg.share_context_encoder:
            most = cfg.max_source_positions
            self.context_encoder = ContextEncoder(cfg, cfg.encoder, most, dictionary, embed_tokens)

    def with_context(self, output, src_tokens, stream, groups):
        """Encode previous source sentences, ``contexts``."""
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
    """Decoder layer whose cross attention may also attend to contexts ("inside")."""

    def __init__(self, cfg, no_encoder_attn=False):
        super().__init__(cfg, no_encoder_attn)
        sizes = context_sizes(cfg) if cfg.context_integration == "inside" else []
        self.context_attn = build_attentions(cfg, self.embed_dim, cfg.decoder, sizes)

    def begin(self, source: Tensor, padding: Optional[Tensor], contexts: List[EncodedContext]):
        """Return the state before the first token; see :meth:`init_state`."""
        attended = (attention.attended(x) for attention, x in zip(self.context_attn, contexts))
        return self.init_state(source, padding)._replace(memory=AttendedContexts(tuple(attended)))

    def cross(self, x, state, **marks):
        """See the base class."""
        output = self.encoder_attn(x, state.source)
        for attention, context in zip(self.context_attn, state.memory.contexts):
            output = attention(output, x, context)
        return output


class MultiEncoderDecoder(StatefulDecoder):
    """Transformer decoder that reads contexts, with an encoder of previous target sentences.

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class.
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
        """See the base class; the extra outputs include the new document state, ``doc_state``."""
        stream = encoder_out["stream"].for_rows(len(tokens))
        contexts = [context.for_rows(len(tokens)) for context in encoder_out["contexts"]]
        doc_state = dict(encoder_out["doc_state"])
        if self.context_encoder is not None:
            previous = self._previous(tokens, stream)
            contexts.append(self._encode(previous))
            doc_state.update(previous.doc_state)
        groupings = training_groups(encoder_out, len(tokens), weights_of)
        targets, sources = target_groups(groupings)
        source, padding = self._source(encoder_out, contexts)
        parts = sources.split(source), sources.split(padding), _in_groups(contexts, sources)
        encoded = list(zip(*parts))
        groups, _, weights = self.run_layers(
            targets.split(x),
            lambda number, layer, _: [layer.begin(*each) for each in encoded],
            weights_of=weights_of,
        )
        extra = {"attn": weights or [None], "doc_state": doc_state}
        return packed(targets.join(groups, x.size(1)), extra, groupings)

    def init_layers(self, encoder_out):
        """See the base class."""
        contexts, stream = list(encoder_out["contexts"]), encoder_out["stream"]
        if self.context_encoder is not None:
            # The sentence itself is not among those before it, so its tokens do not matter.
            tokens = torch.full_like(stream.starts, self.eos, dtype=torch.long).unsqueeze(1)
            contexts.append(self._encode(self._previous(tokens, stream)))
        source, padding = self._source(encoder_out, contexts)
        return [layer.begin(source, padding, contexts) for layer in self.layers], None

    def read(self, x, tokens, state):
        """See the base class."""
        return (*self.extend_layers(x, state, self._padding(tokens)), None, {})

    def _source(self, encoder_out: dict, contexts: List[EncodedContext]):
        """Return source states (B, S, C), with contexts if integrated outside, and padding."""
        source, padding, _ = batch_first_source(encoder_out)
        for attention, context in zip(self.context_attn, contexts):
            source = attention(source, source, attention.attended(context))
        return source, padding

    def _previous(self, tokens: Tensor, stream: Stream) -> PreviousSentences:
        return PreviousSentences.of(tokens, stream, self.count, self.padding_idx, TARGET_KEY)

    def _encode(self, previous: PreviousSentences) -> EncodedContext:
        return encode_context(self.context_encoder, previous, self.embed_tokens)


def _in_groups(contexts: List[EncodedContext], groups: RowGroups) -> List[List[EncodedContext]]:
    """Cut the contexts of a batch into those of its groups."""
    if groups.rows is None:
        return [contexts]
    return [[context.of_sentences(rows) for context in contexts] for rows in groups.rows]
