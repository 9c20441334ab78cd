"""Corpora with document boundaries, their datasets and batches."""

from fairseq_docmt.data.corpus import DocumentCorpus, open_corpus, target_ratio
from fairseq_docmt.data.decoding_units import Cut, DecodingUnits, Lines
from fairseq_docmt.data.document_view import DocumentView
from fairseq_docmt.data.sequence_format import (
    Formats,
    SequenceFormat,
    add_document_symbols,
    join_sentences,
    pad_rows,
)
from fairseq_docmt.data.tokenizers import JiebaTokenizer
from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.spans import (
    part_spans,
    spans_of_sampled_lengths,
    spans_of_several_lengths,
    stride_spans,
    window_spans,
    with_next_sentences,
)

__all__ = [
    "Cut",
    "DecodingUnits",
    "DocumentCorpus",
    "DocumentIndex",
    "DocumentView",
    "Formats",
    "JiebaTokenizer",
    "Lines",
    "SequenceFormat",
    "add_document_symbols",
    "join_sentences",
    "open_corpus",
    "pad_rows",
    "part_spans",
    "spans_of_sampled_lengths",
    "spans_of_several_lengths",
    "stride_spans",
    "target_ratio",
    "window_spans",
    "with_next_sentences",
]
