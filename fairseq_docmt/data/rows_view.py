"""Training and validation data of whole documents, with one batch row for each sentence."""

import logging
import os
from functools import partial
from typing import Optional, Sequence

import numpy as np
import torch

from fairseq_docmt.data.corpus import DocumentCorpus, open_side
from fairseq_docmt.data.document_view import DocumentView, sample_in_order
from fairseq_docmt.data.sequence_format import Formats
from fairseq_docmt.data.stream_view import group_rows
from fairseq_docmt.data.text_checks import Symbols, check_binarised
from fairseq_docmt.document_index import BLANK_SIZE
from fairseq_docmt.errors import UserError
from fairseq_docmt.parallel_text import unrelated_lengths

logger = logging.getLogger(__name__)


class RowsView(DocumentView):
    """Dataset of documents or parts of documents, batched with one row for each sentence.

    Args:
        corpus: corpus of the split.
        spans: (items, 2) first sentence of each document or part and the sentence after its last,
            or a function that draws these spans for an epoch with a random generator.
        drafts: dataset of earlier translations, one for each line of the corpus; or None.
        formats: formats of source and target; by default without language tags and ``<bod>``.
        seed: seed of the random choices in each epoch.
        too_long: lines of the sentences that were left out because they are too long.
    """

    def __init__(
        self,
        corpus: DocumentCorpus,
        spans,
        drafts=None,
        formats: Optional[Formats] = None,
        seed=1,
        too_long: Sequence[int] = (),
    ):
        super().__init__(corpus, spans, id_of_last=False, formats=formats, seed=seed)
        sentences = np.arange(corpus.index.num_sentences)
        alone = np.stack([sentences, sentences + 1], axis=1)
        self.sentences = DocumentView(corpus, alone, formats=formats)
        self.drafts = drafts
        self.too_long = too_long

    def __getitem__(self, item: int) -> dict:
        first, end = self.spans[item].tolist()
        rows = [self.sentences[sentence] for sentence in range(first, end)]
        if self.drafts is not None:
            for sentence, row in zip(range(first, end), rows):
                at_start = self.sentences.tgt.at_start[sentence]
                row["draft"] = self.formats.target.join([self.drafts[row["id"]]], at_start)
        return {"rows": rows}

    def filter_indices_by_size(self, indices, max_sizes):
        """Keep all documents, because the limits apply to sentences.

        Returns:
            All indices, and an empty list in place of the indices that were left out.
        """
        return indices, []

    def collater(self, samples, pad_to_length=None) -> dict:
        """Return a batch with a row for each sentence of the documents in ``samples``.

        Its keys are described in :mod:`fairseq_docmt.data.batch`.
        """
        rows = [row for sample in samples for row in sample["rows"]]
        if not rows:
            return {}
        stock = partial(super().collater, pad_to_length=pad_to_length)
        batch = sample_in_order(rows, stock)
        net_input = batch["net_input"]
        sizes = torch.tensor([len(sample["rows"]) for sample in samples])
        net_input["documents"] = torch.arange(len(samples)).repeat_interleave(sizes)
        net_input["row_groups"] = self._groups(rows, "target", batch["target"])
        if self.drafts is not None:
            drafts = self.formats.target.decoder_input([row["draft"] for row in rows])
            net_input["drafts"] = drafts
            net_input["draft_groups"] = self._groups(rows, "draft", drafts)
        return batch

    def _groups(self, rows, side: str, tokens: torch.Tensor) -> Optional[dict]:
        """Group rows by source length and by target or draft length (see :func:`group_rows`).

        Args:
            rows: examples, one for each batch row.
            side: ``target`` or ``draft``.
            tokens: (rows, T) targets or drafts, padded.

        Returns:
            The groups, or None for a small batch.
        """
        lengths = ([len(row[name]) for row in rows] for name in ("source", side))
        there = tokens.ne(self.tgt_dict.pad())
        return group_rows(*lengths, len(rows), self.left_pad_source, there)


def name_of_drafts(folder: str, split: str, language: str) -> str:
    """Return the path of the drafts of a split, without the endings ``.bin`` and ``.idx``."""
    return os.path.join(folder, f"{split}.{language}-None.{language}")


def open_drafts(
    folder: Optional[str], split: str, language: str, corpus: DocumentCorpus, symbols: Symbols
):
    """Open the drafts of a split: earlier translations that a model reads as further input.

    The file has a line for each line of the split, blank lines included.  It is written by
    ``fairseq-preprocess --only-source -s LANGUAGE --srcdict``.  A warning is logged if the lengths
    of the drafts and of the source sentences do not correlate.

    Args:
        folder: directory of the drafts, or None.
        split: name of the split, such as ``train``.
        language: target language.
        corpus: the split.
        symbols: special symbols of the target dictionary.

    Returns:
        Dataset of the drafts; None if ``folder`` is None.

    Raises:
        UserError: the file is missing or damaged, its lines do not match the lines of the split, or
            it was not binarised with the target dictionary.  A draft that contains a special
            symbol, such as ``<sep>``, as one of its words is refused, too.
    """
    if folder is None:
        return None
    name = name_of_drafts(folder, split, language)
    drafts = open_side(name)
    if drafts is None:
        raise UserError(
            f"--drafts: {name}.idx not found; examples/maruf2018_memnet/make_drafts.sh makes it"
        )
    blank, lines = np.ones(len(drafts), dtype=bool), corpus.index.line_ids
    blank[lines[lines < len(drafts)]] = False
    wrong = np.flatnonzero(blank & (drafts.sizes > BLANK_SIZE))
    if len(drafts) <= lines[-1] or len(wrong) > 0:
        line = wrong[0] + 1 if len(wrong) > 0 else len(drafts)
        raise UserError(
            f"--drafts: line {line} of {name} does not match the corpus, so these are translations "
            "of other text; make them again"
        )
    check_binarised(name, drafts, symbols)
    warning = unrelated_lengths(corpus.src_sizes, drafts.sizes[lines])
    if warning:
        logger.warning("--drafts: %s: %s", name, warning)
    return drafts
