"""Scorer ``--scoring document_bleu`` of fairseq-generate: BLEU over documents and sentences.

fairseq gives a scorer only texts, in the order of its batches, and scorer and task cannot access
each other.  Before each batch, the document tasks therefore announce to all scorers which document
and line the next texts come from.
"""

import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import Deque, List, Tuple

from fairseq.dataclass import FairseqDataclass
from fairseq.scoring import BaseScorer, register_scorer
from sacrebleu.metrics import BLEU

from fairseq_docmt.bleu import build_bleu, mark_unknown
from fairseq_docmt.errors import UserError

#: scorers that have not been deleted
_open: "weakref.WeakSet[DocumentBleuScorer]" = weakref.WeakSet()


def announce(sample: dict) -> None:
    """Tell all open document-level BLEU scorers which documents and lines the next texts are from.

    Args:
        sample: batch that is decoded next.  Its entry ``units`` is described in
            :mod:`fairseq_docmt.data.decoding_units`.
    """
    places = [(unit.document, line) for unit in sample["units"] for line in unit.line_ids]
    for scorer in _open:
        scorer.coming.extend(places)


@dataclass
class DocumentBleuConfig(FairseqDataclass):
    """Options of ``--scoring document_bleu``: tokenizer and case sensitivity."""

    sacrebleu_tokenizer: str = field(
        default="13a", metadata={"help": "tokenizer of sacreBLEU: 13a, intl, zh, none ..."}
    )
    sacrebleu_lowercase: bool = field(default=False, metadata={"help": "score case-insensitively"})


@register_scorer("document_bleu", dataclass=DocumentBleuConfig)
class DocumentBleuScorer(BaseScorer):
    """Scorer that computes BLEU over whole documents (d-BLEU) and over sentences (s-BLEU).

    For d-BLEU the sentences of a document are joined, so that n-grams can span several sentences.

    Attributes:
        coming: document number and line id of each text that will be scored next.

    Raises:
        UserError: sacreBLEU does not have the requested tokenizer, or a package that the tokenizer
            needs is missing.
    """

    def __init__(self, cfg):
        super().__init__(cfg)
        if cfg.sacrebleu_tokenizer not in BLEU.TOKENIZERS:
            raise UserError(
                f"--sacrebleu-tokenizer {cfg.sacrebleu_tokenizer} is not one of "
                f"{', '.join(BLEU.TOKENIZERS)}"
            )
        # Silences sacreBLEU's warning about tokenized text: the signature names the tokenizer.
        self._metric = build_bleu(
            cfg.sacrebleu_tokenizer, lowercase=cfg.sacrebleu_lowercase, force=True
        )
        self.coming: Deque[Tuple[int, int]] = deque()
        self._places: List[Tuple[int, int]] = []
        _open.add(self)

    def add_string(self, ref, pred):
        """Add a reference and its hypothesis.

        They belong to the next document and line that :func:`announce` has announced.

        Raises:
            UserError: nothing was announced, because the task is not a document task.
        """
        if not self.coming:
            raise UserError(
                "--scoring document_bleu needs a document task; use --scoring sacrebleu here"
            )
        self._places.append(self.coming.popleft())
        super().add_string(mark_unknown(ref, True), mark_unknown(pred, False))

    def score(self) -> float:
        """Return document BLEU (d-BLEU), for which n-grams are matched over whole documents."""
        return self._over_documents()[0].score

    def result_string(self) -> str:
        """Return a line with document BLEU (d-BLEU), sentence BLEU (s-BLEU) and their signature."""
        over_documents, count = self._over_documents()
        over_sentences = self._metric.corpus_score(self.pred, [self.ref])
        signature = f"docs:{count}|sents:{len(self.pred)}|{self._metric.get_signature()}"
        found = (("d-BLEU", over_documents), ("s-BLEU", over_sentences))
        scores = ", ".join(str(score).replace("BLEU", name, 1) for name, score in found)
        return f"{scores} [{signature}]"

    def _over_documents(self):
        documents: dict = {}
        for (number, _), hypothesis, reference in sorted(zip(self._places, self.pred, self.ref)):
            sides = documents.setdefault(number, ([], []))
            sides[0].append(hypothesis)
            sides[1].append(reference)
        joined = [[" ".join(side) for side in sides] for sides in documents.values()]
        hypotheses, references = zip(*joined)
        return self._metric.corpus_score(hypotheses, [references]), len(joined)
