"""Transformer encoder for batches of consecutive sentences from several documents."""

from typing import Optional

from torch import Tensor

from fairseq_docmt.modules.encoder import SharedSourceEncoder
from fairseq_docmt.modules.stream import DocumentState, Stream


class StreamEncoder(SharedSourceEncoder):
    """Transformer encoder of consecutive sentences, whose output includes the document state.

    Its output also has ``stream``, the layout of the batch, and ``doc_state``, the document state
    of the encoder. Subclasses that add context after the last layer define :meth:`with_context`.
    Subclasses whose layers read context define :meth:`encode`, as
    :class:`~fairseq_docmt.modules.recurrent_memory.MemoryTransformerEncoder` does.

    Args:
        cfg, dictionary, embed_tokens: see fairseq's encoder; with ``cfg.no_context`` every sentence
            is a document of its own.
        separator: index of ``<sep>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens, separator: int):
        super().__init__(cfg, dictionary, embed_tokens, separator)
        self.no_context = cfg.no_context

    def forward(
        self,
        src_tokens,
        src_lengths=None,
        starts: Optional[Tensor] = None,
        lanes: Optional[int] = None,
        doc_state: Optional[DocumentState] = None,
        row_groups: Optional[dict] = None,
    ):
        """Encode a batch of consecutive sentences.

        Args:
            src_tokens: (rows, S) padded tokens.
            src_lengths: unused.
            starts, lanes, doc_state, row_groups: see :class:`Stream`.

        Returns:
            Output of :class:`SharedSourceEncoder` with ``stream``, ``doc_state`` and entries that
            subclasses add (:class:`~fairseq_docmt.modules.encoder_output.EncoderOutput`).
        """
        starts = None if self.no_context else starts
        stream = Stream.of(src_tokens, starts, lanes, doc_state, row_groups)
        output = {"doc_state": {}, **self.encode(src_tokens, stream), "stream": stream}
        return self.with_context(output, src_tokens, stream)

    def encode(self, src_tokens: Tensor, stream: Stream) -> dict:
        """Encode sentences without context, and return the encoder output.

        Groups of rows of similar length are encoded one after another.
        """
        if stream.row_groups is None:
            return super().forward(src_tokens)
        groups = stream.groups("source")
        outputs = [super(StreamEncoder, self).forward(part) for part in groups.split(src_tokens)]
        states = [output["encoder_out"][0].transpose(0, 1) for output in outputs]
        states = groups.join(states, src_tokens.size(1)).transpose(0, 1)
        padding = src_tokens.eq(self.padding_idx)
        output = {
            "encoder_out": [states],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [],
            "src_lengths": [(~padding).sum(dim=1, keepdim=True)],
        }
        return self._shared({**outputs[0], **output}, src_tokens)

    def with_context(self, output: dict, src_tokens: Tensor, stream: Stream) -> dict:
        """Add context from previous sentences and the new document state to the encoder output.

        This is a hook for subclasses. By default the output is returned unchanged, without any
        context.
        """
        return output

    def _select(self, encoder_out, sentences, beams):
        stream = encoder_out["stream"].of_rows(sentences)
        selected = super()._select(encoder_out, sentences, beams)
        return {**selected, "stream": stream, "doc_state": {}}
