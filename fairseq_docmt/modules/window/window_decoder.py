"""Decoder of ``window_attn_transformer``, which attends to source windows around aligned tokens."""

import torch

from fairseq_docmt.modules.decoder import StatefulDecoder, batch_first_source
from fairseq_docmt.modules.layers import AttendedSource
from fairseq_docmt.modules.search_state import store_state, stored_state
from fairseq_docmt.modules.window.alignment import (
    LengthRatio,
    SourcePointer,
    SourceSentences,
    align_references,
)
from fairseq_docmt.modules.window.window_layers import WindowDecoderLayer


class WindowTransformerDecoder(StatefulDecoder):
    """Transformer decoder with window attention (Herold and Ney 2023).

    In training, the decoder averages the ratio of source to target length over the rows of all
    batches, which are documents or parts of documents. The ``linear`` alignment uses this average
    in decoding.
    """

    layer_class = WindowDecoderLayer

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.alignment, self.train_alignment = cfg.alignment, cfg.train_alignment
        self.length_ratio = LengthRatio()

    @property
    def train_ratio(self) -> float:
        """Source tokens per target token, averaged over training; 1 before training."""
        return self.length_ratio.value()

    def forward_sequence(self, x, tokens, encoder_out, weights_of):
        """Compute features with window attention around aligned tokens (teacher forcing).

        Arguments and results are the same as for :meth:`StatefulDecoder.forward_sequence`. In
        training, the batch is also included in the average ratio of source to target length,
        :attr:`train_ratio`.
        """
        source, source_padding, separators = batch_first_source(encoder_out)
        sentences = SourceSentences.of(separators, source_padding)
        if self.training:
            lengths = sentences.last - sentences.first + 1
            self.length_ratio.count(lengths, tokens.ne(self.padding_idx).sum(dim=1))
        centers = align_references(
            tokens, sentences, self.separator, self.padding_idx, self.train_alignment
        )
        (x,), _, weights = self.run_layers(
            [x],
            lambda number, layer, _: [layer.init_state(source, source_padding)],
            weights_of=weights_of,
            padding=self._padding(tokens),
            centers=centers,
        )
        return x, {"attn": weights or [None]}

    def init_layers(self, encoder_out):
        """Return the initial state of each layer, and the alignment before the first target token.

        Both have one batch row per sentence. The alignment is the state that all layers share, as
        in :meth:`StatefulDecoder.init_layers`.
        """
        layers, _ = super().init_layers(encoder_out)
        _, padding, separators = batch_first_source(encoder_out)
        return layers, SourcePointer.init_state(SourceSentences.of(separators, padding))

    def marks(self, tokens, rest):
        """Align new tokens to source positions, which the layers get as an additional input.

        Args:
            tokens: (rows, T) new tokens, right-padded.
            rest: alignment after the previous token, the state that all layers share.

        Returns:
            Dict with ``centers``, the (rows, T) aligned source positions; and the alignment after
            the last new token, as the new shared state.
        """
        ratio = self.train_ratio if self.alignment == "linear" else 1.0
        options = (self.separator, self.padding_idx, self.alignment, ratio)
        centers, pointer = rest.advance(tokens, *options)
        return {"centers": centers}, pointer

    def step(self, x, tokens, state):
        """Run the decoder over one new token of each row.

        The source window of each token is computed only once for all layers.

        Args:
            x: (rows, C) embeddings of the new tokens.
            tokens: (rows,) indices of the new tokens.
            state: decoder state before the new tokens.

        Returns:
            (rows, C) features, new layer states and the new alignment.
        """
        marks, pointer = self.marks(tokens.unsqueeze(1), state.rest)
        source = state.layers[0].source
        seen = self.layers[0].encoder_attn.around(source, marks["centers"].squeeze(1))
        return (*self.extend_layers(x, state, centers=seen), pointer)

    def independent(self, tokens, encoder_out, incremental_state, final):
        """Count the leading tokens whose outputs will not change when the source is extended.

        The decoder state after these tokens can be kept while a document grows, see
        :meth:`with_source`. If cross attention is not limited to a window, there are no such
        tokens.

        Args:
            tokens: (B, T) next tokens, right-padded.
            encoder_out: encoder output.
            incremental_state: state before these tokens.
            final: (B,) number of leading source positions whose encoder output will not change.

        Returns:
            (B,) number of leading tokens that attend to these positions only.
        """
        window = self.layers[0].encoder_attn.window
        if window is None:
            return torch.zeros_like(final)
        state = self.current_state(incremental_state, encoder_out, len(tokens))
        marks, _ = self.marks(tokens, state.rest)
        changes = (marks["centers"] + window >= final.unsqueeze(1)) | tokens.eq(self.padding_idx)
        return changes.long().cumsum(dim=1).eq(0).sum(dim=1)

    def with_source(self, incremental_state, encoder_out, unchanged: int):
        """Return the incremental state for a source that has become longer.

        The target tokens need not be read again. All tokens read so far must be :meth:`independent`
        of the new source tokens.

        Args:
            incremental_state: state with the shorter source.
            encoder_out: encoder output of the longer source.
            unchanged: number of leading source positions whose encoder output is unchanged in all
                rows.
        """
        state = stored_state(incremental_state)
        source, padding, separators = batch_first_source(encoder_out)
        layers = []
        for layer, old in zip(self.layers, state.layers):
            new = layer.encoder_attn.project_source(source[:, unchanged:], None)
            keys, values = (
                torch.cat([x[:, :, :unchanged], y], dim=2) for x, y in zip(old.source[:2], new[:2])
            )
            layers.append(old._replace(source=AttendedSource(keys, values, padding)))
        pointer = state.rest._replace(source=SourceSentences.of(separators, padding))
        longer: dict = {}
        store_state(longer, state._replace(layers=layers, rest=pointer))
        return longer
