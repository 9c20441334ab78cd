"""Data of full documents with one batch row per sentence."""

from fairseq_docmt.data import DocumentCorpus
from fairseq_docmt.data.rows_view import RowsView, open_drafts
from fairseq_docmt.data.text_checks import Symbols
from fairseq_docmt.tasks._validation_bleu import units_of_documents


class DocumentRows:
    """Training and decoding data of models whose batch rows are the sentences of documents.

    Maruf and Haffari (2018).  The methods correspond to those of the task.

    Args:
        task: ``full_document_translation``.
    """

    def __init__(self, task):
        self.task = task

    def limits(self, src_sizes, tgt_sizes=None) -> list:
        """Return the limits of a span: the batch size in training, none otherwise.

        The maximum positions of the model apply to sentences, not to spans.
        """
        batch = self.task.cfg.max_batch_tokens if tgt_sizes is not None else None
        return [(sizes, batch) for sizes in (src_sizes, tgt_sizes)] if batch else []

    def training_view(self, corpus: DocumentCorpus, trains: bool) -> RowsView:
        """Return the training or validation examples of a corpus."""
        fits = corpus.within(self.task.most_tokens)
        read = corpus.without(~fits)
        return RowsView(
            read,
            self.task.training_spans(read, trains),
            self.drafts_of(corpus),
            self.task.formats,
            self.task.cfg.seed,
            corpus.index.line_ids[~fits].tolist(),
        )

    def validation_units(self, sample: dict) -> dict:
        """Return the documents of a batch as units, for validation BLEU."""
        return units_of_documents(sample, self.task)

    def drafts_of(self, corpus: DocumentCorpus):
        """Return the earlier translations of a corpus."""
        split = corpus.name.rsplit("/", 1)[-1].rsplit(".", 1)[0]
        cfg, symbols = self.task.cfg, Symbols.of_task(self.task, self.task.tgt_dict)
        return open_drafts(cfg.drafts, split, cfg.target_lang, corpus.index, symbols)
