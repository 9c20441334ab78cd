"""Supporting words of the training and validation sets, for attention regularization."""

from fairseq_docmt.criterions.attention_regularization import AttentionRegularization
from fairseq_docmt.data import DocumentCorpus
from fairseq_docmt.data.supporting_words import SupportingWords, path_of
from fairseq_docmt.errors import UserError


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


def read(corpus: DocumentCorpus, required: bool) -> SupportingWords:
    """Read the supporting words of a corpus from the files beside it.

    Args:
        corpus: training or validation set.
        required: whether there must be some.

    Raises:
        UserError: there are none, or a file does not fit the corpus.
    """
    words = SupportingWords.read(corpus)
    if required and not words.of_line:
        raise UserError(
            f"{path_of(corpus)} not found or empty, but --criterion attention_regularization "
            "needs it; write it with data_prep/supporting_words.py"
        )
    return words
