"""Encoder and decoder of ``han_transformer``."""

from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_docmt.modules.hierarchical.hierarchical_attention import (
    AttendedSentences,
    HierarchicalAttention,
)
from fairseq_docmt.modules.hierarchical.previous_states import PreviousStates
from fairseq_docmt.modules.shared.beam_rows import BeamRows
from fairseq_docmt.modules.shared.row_groups import packed, target_groups, training_groups
from fairseq_docmt.modules.shared.stateful_decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.shared.stream import Stream
from fairseq_docmt.modules.shared.stream_encoder import StreamEncoder


def _build_attention(cfg, side) -> HierarchicalAttention:
    """Create the attention to previous sentences of ``cfg.encoder`` or ``cfg.decoder``."""
    sizes = (side.embed_dim, side.attention_heads, side.ffn_embed_dim)
    return HierarchicalAttention(*sizes, cfg.dropout, cfg.attention_dropout)


class HANEncoder(StreamEncoder):
    """Transformer encoder whose output attends to previous source sentences.

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.count, self.hierarchical = cfg.context_sentences, None
        if cfg.context_side != "target":
            self.hierarchical = _build_attention(cfg, cfg.encoder)

    def with_context(self, output, src_tokens, stream, groups):
        """Let the states attend to those of previous sentences."""
        if self.hierarchical is None:
            return output
        x, present = output["encoder_out"][0].transpose(0, 1), src_tokens.ne(self.padding_idx)
        previous = PreviousStates.of("encoder", x, present, stream, self.count)
        x = groups.apply(self.hierarchical, x, self.hierarchical.attended(previous))
        return {**output, "encoder_out": [x.transpose(0, 1)], "doc_state": previous.doc_state}


class SharedSentences(NamedTuple):
    """Previous sentences of each sentence in a search, shared by its beams."""

    sentences: AttendedSentences

    def reorder(self, rows: BeamRows) -> "SharedSentences":
        """Select sentences."""
        return self if rows.sentences is None else self.unshare_beams(rows.sentences)

    def unshare_beams(self, owners: Tensor) -> "SharedSentences":
        """Return the state with each beam as a separate sentence."""
        return SharedSentences(self.sentences.of_sentences(owners))


class HANDecoder(StatefulDecoder):
    """Transformer decoder whose output attends to previous target sentences.

    Args:
        cfg, dictionary, embed_tokens, separator: see the base class.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.count, self.hierarchical = cfg.context_sentences, None
        if cfg.context_side != "source":
            self.hierarchical = _build_attention(cfg, cfg.decoder)

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """See the base class; the extra outputs include the new document state, ``doc_state``."""
        stream = encoder_out["stream"].for_rows(len(tokens))
        groupings = training_groups(encoder_out, len(tokens), weights_of)
        targets, sources = target_groups(groupings)
        source, padding, _ = batch_first_source(encoder_out)
        encoded = list(zip(sources.split(source), sources.split(padding)))
        groups, _, weights = self.run_layers(
            targets.split(x),
            lambda number, layer, _: [layer.init_state(*each) for each in encoded],
            weights_of=weights_of,
        )
        x = super()._project(targets.join(groups, x.size(1)))
        doc_state = dict(encoder_out["doc_state"])
        if self.hierarchical is not None:
            previous = self._previous(x, tokens.ne(self.padding_idx), stream)
            x = targets.apply(self.hierarchical, x, self.hierarchical.attended(previous))
            doc_state.update(previous.doc_state)
        extra = {"attn": weights or [None], "doc_state": doc_state}
        return packed(x, extra, groupings)

    def init_layers(self, encoder_out):
        """See the base class."""
        layers, _ = super().init_layers(encoder_out)
        if self.hierarchical is None:
            return layers, None
        # The sentence itself is not among those before it, so its states do not matter.
        bsz, size = len(encoder_out["stream"].starts), self.hierarchical.gate.out_features
        x = self.embed_tokens.weight.new_zeros(bsz, 1, size)
        present = torch.zeros_like(x[..., 0], dtype=torch.bool)
        previous = self._previous(x, present, encoder_out["stream"])
        return layers, SharedSentences(self.hierarchical.attended(previous))

    def read(self, x, tokens, state):
        """See the base class."""
        x, layers = self.extend_layers(x, state, self._padding(tokens))
        x = super()._project(x)
        if self.hierarchical is not None:
            x = self.hierarchical(x, state.rest.sentences)
        return x, layers, state.rest, {}

    def _previous(self, x: Tensor, present: Tensor, stream: Stream) -> PreviousStates:
        return PreviousStates.of("decoder", x, present, stream, self.count)

    def _project(self, x):
        # The final norm comes before the attention to previous sentences, in the methods above.
        return x
