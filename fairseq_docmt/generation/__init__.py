"""Document decoding for the stock commands and the Python interface."""

from fairseq_docmt.generation.iterative import IterativeSearch
from fairseq_docmt.generation.joint import JointSearch
from fairseq_docmt.generation.option_checks import check_decoding, refuse_unsupported
from fairseq_docmt.generation.search import DocumentSearch
from fairseq_docmt.generation.sequential import SequentialSearch
from fairseq_docmt.generation.stream import StreamSearch
from fairseq_docmt.generation.translator import DocumentTranslator

#: search class of each value of ``--decoding``
SEARCHES = {
    "window": JointSearch,
    "segment": JointSearch,
    "sequential": SequentialSearch,
    "sequential-full-source": SequentialSearch,
    "stream": StreamSearch,
    "iterative": IterativeSearch,
}

__all__ = [
    "SEARCHES",
    "DocumentSearch",
    "DocumentTranslator",
    "check_decoding",
    "refuse_unsupported",
]
