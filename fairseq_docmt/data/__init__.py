"""Corpora with document boundaries, their datasets and batches."""

from fairseq_docmt.data.corpus import DocumentCorpus, open_corpus, target_ratio
from fairseq_docmt.data.decoding_units import DecodingUnits, collate_rows
from fairseq_docmt.data.document_index import DocumentIndex
from fairseq_docmt.data.document_view import DocumentView, pad_rows
from fairseq_docmt.data.jieba_tokenizer import JiebaTokenizer
from fairseq_docmt.data.spans import (
    part_spans,
    spans_of_sampled_lengths,
    spans_of_several_lengths,
    stride_spans,
    window_spans,
    with_next_sentences,
)
from fairseq_docmt.data.symbols import add_document_symbols, join_sentences, split_sentences

__all__ = [
    "DecodingUnits",
    "DocumentCorpus",
    "DocumentIndex",
    "DocumentView",
    "JiebaTokenizer",
    "add_document_symbols",
    "collate_rows",
    "join_sentences",
    "open_corpus",
    "pad_rows",
    "part_spans",
    "spans_of_sampled_lengths",
    "spans_of_several_lengths",
    "split_sentences",
    "stride_spans",
    "target_ratio",
    "window_spans",
    "with_next_sentences",
]
