"""NLTK's METEOR as a sacreBLEU metric, so that sacreBLEU's significance tests apply.

METEOR (Banerjee and Lavie, 2005) matches words, stems and WordNet synonyms, for English.  NLTK's
version lacks the paraphrases and the tuned weights of METEOR 1.5, so the scores of the two cannot
be compared.  The score of a corpus is the mean over its sentences, times 100.
"""

from importlib.util import find_spec
from typing import Any, Dict, List, Sequence

from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from fairseq_docmt.errors import UserError


class MeteorSignature(Signature):
    """sacreBLEU signature with case, tokenizer and the version of NLTK."""

    def __init__(self, args: dict):
        import nltk

        super().__init__(args)
        self.info.update({"case": "lc", "tok": "13a", "nltk": nltk.__version__})


class Meteor(Metric):
    """Mean METEOR (NLTK) over sentences, times 100.

    The text is lowercased and tokenized by sacreBLEU's tokenizer 13a.

    Args:
        wordnet: object whose method ``synsets(word)`` looks up synonyms; None for NLTK's WordNet.

    Raises:
        UserError: NLTK or its WordNet is not installed.
    """

    _SIGNATURE_TYPE = MeteorSignature

    def __init__(self, wordnet=None):
        super().__init__()
        self._tokenizer = Tokenizer13a()
        self._wordnet = wordnet or _wordnet()

    def _preprocess_segment(self, sent: str) -> str:
        return self._tokenizer(sent.lower())

    def _extract_reference_info(self, refs: Sequence[str]) -> Dict[str, Any]:
        return {"references": [ref.split() for ref in refs]}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: Dict) -> List[float]:
        from nltk.translate.meteor_score import meteor_score

        words = hypothesis.split()
        return [meteor_score(ref_kwargs["references"], words, wordnet=self._wordnet), 1]

    def _compute_score_from_stats(self, stats: List[float]) -> Score:
        return Score("METEOR", 100 * stats[0] / stats[1])

    def _aggregate_and_compute(self, stats: List[List[float]]) -> Score:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats)])


def _wordnet():
    if find_spec("nltk") is None:
        raise UserError("METEOR needs NLTK; install it with `pip install nltk`")
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError:
        raise UserError(
            "METEOR needs the WordNet of NLTK; fetch it with `python -m nltk.downloader wordnet`"
        ) from None
    return wordnet
