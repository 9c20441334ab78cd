"""Supporting words of the training and validation sets, for attention regularization."""

import logging

import numpy as np

from fairseq_docmt.criterions.attention_regularization import AttentionRegularization
from fairseq_docmt.data import DocumentCorpus, DocumentView
from fairseq_docmt.data.supporting_words import SupportingWords, path_of
from fairseq_docmt.errors import UserError

logger = logging.getLogger(__name__)


def is_needed(task, criterion, rows_form_documents: bool) -> bool:
    """Return whether a criterion needs supporting words, after checking that they can be used.

    Args:
        task: document task.
        criterion: criterion.
        rows_form_documents: whether each row of a batch is a single sentence.

    Raises:
        UserError: the task or the model cannot use them.
    """
    if not isinstance(criterion, AttentionRegularization):
        return False
    if rows_form_documents:
        raise UserError(
            "--criterion attention_regularization is for models that read several sentences as "
            "one sequence; choose another --criterion, or --arch transformer"
        )
    if task.cfg.truncate_source:
        raise UserError(
            "--criterion attention_regularization does not work with --truncate-source; leave "
            "one of them out"
        )
    return True


def add_to(view: DocumentView, corpus: DocumentCorpus, required: bool) -> None:
    """Read the supporting words of a corpus from the files beside it; its examples get theirs.

    A warning says if no example has any.

    Args:
        view: examples of the training or validation set.
        corpus: the set.
        required: whether there must be some.

    Raises:
        UserError: there are none, or a file does not fit the corpus.
    """
    words = view.supporting_words = SupportingWords.read(corpus)
    if required and not words.of_line:
        raise UserError(
            f"{path_of(corpus)} not found or empty, but --criterion attention_regularization "
            "needs it; write it with data_prep/supporting_words.py"
        )
    if words.of_line and not _any_together(words, view):
        logger.warning(
            "%s: no example has an ambiguous word together with its supporting words, so that no "
            "attention is regularized; read longer windows or documents",
            corpus.name,
        )


def _any_together(words: SupportingWords, view: DocumentView) -> bool:
    """Return whether an ambiguous word and a supporting word are in the same example."""
    place = {line: number for number, line in enumerate(view.index.line_ids.tolist())}
    first, end = view.source_spans.T
    # Last end of the spans that begin at a sentence or before it.
    reach = np.zeros(len(place), dtype=np.int64)
    np.maximum.at(reach, first, end)
    reach = np.maximum.accumulate(reach)
    pairs = (
        sorted((place[line], place[other]))
        for line, ambiguities in words.of_line.items()
        for ambiguity in ambiguities
        for supporting in ambiguity.supporting.values()
        for other, _ in supporting
    )
    return any(last < reach[earlier] for earlier, last in pairs)
