"""Decoding with overlapping windows; each sentence is taken from the window that scores it best."""

from dataclasses import replace
from typing import Dict, Iterator, List

import numpy as np
import torch

from fairseq_docmt.data import DocumentIndex, window_spans
from fairseq_docmt.data.decoding_units import DecodingUnit
from fairseq_docmt.generation.hypotheses import Hypothesis, sentence_score
from fairseq_docmt.generation.joint import JointSearch
from fairseq_docmt.generation.search import NBestLists
from fairseq_docmt.spans import with_next_sentences


class OverlapSearch(JointSearch):
    """Search that translates every window that contains a sentence, and keeps the best translation.

    For each sentence of a document there is one window that ends with it.  These windows overlap,
    so each sentence is in up to ``--window-size`` windows.  If several windows give the same
    translation of a sentence, the translation gets the mean of their scores.  The translation with
    the highest score is kept.  Only the best translations of the windows compete to be the first
    of an n-best list; the rest of the list is taken from all others with lower scores.
    """

    decoding = "overlap"
    description = (
        "translate a window for each sentence and take each sentence from the surest window"
    )
    joint = True

    def spans(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        """Return the spans of the units, each of which is a whole document.

        The result is (documents, 2): first sentence of each document, and sentence after its last.
        """
        return np.stack([index.starts[:-1], index.starts[1:]], axis=1)

    def count_short_windows(self, units: List[DecodingUnit]) -> int:
        """Return how many windows of the units lost source sentences to the model's positions."""
        size, number = self.task.options["window_size"], self.task.options["next_sentences"]
        return sum(
            len(window.source) < min(size, end)
            or len(window.following) < min(number, len(unit.source) + len(unit.following) - end)
            for unit in units
            for end, window in enumerate(self._windows(unit), start=1)
        )

    def translate(self, generator, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Translate all windows of each unit, and return a merged n-best list for each sentence."""
        cut = [self._windows(unit) for unit in units]
        all_windows = [window for windows in cut for window in windows]
        found = self._outputs(generator, models, all_windows, sum(map(_size, units)))
        results = []
        for unit, windows in zip(units, cut):
            candidates: List[NBestLists] = [[] for _ in unit.source]
            for end, window in enumerate(windows, start=1):
                for place, hypotheses in zip(range(end - len(window.source), end), next(found)):
                    candidates[place].append(hypotheses)
            rows = candidates[unit.num_context :]
            results.append([_merged(row, generator)[: generator.nbest] for row in rows])
        return results

    def score(self, scorer, models, units: List[DecodingUnit]) -> List[NBestLists]:
        """Score the reference of each sentence once, in the window whose last sentence it is."""
        results = []
        for unit in units:
            windows = [
                replace(window, line_ids=[line])
                for line, window in zip(unit.line_ids, self._windows(unit)[unit.num_context :])
            ]
            results.append([row for (row,) in self.score_spans(scorer, models, windows)])
        return results

    def _outputs(self, generator, models, windows, most: int) -> Iterator[NBestLists]:
        """Yield the n-best lists of windows, which are translated in batches.

        A batch has at most ``most`` source tokens.
        """
        group: List[DecodingUnit] = []
        for window in windows:
            if group and sum(map(_size, group)) + _size(window) > most:
                yield from self.translate_spans(generator, models, group)
                group = []
            group.append(window)
        yield from self.translate_spans(generator, models, group)

    def _windows(self, unit: DecodingUnit) -> List[DecodingUnit]:
        """Return, for each sentence of a unit, a unit for the window that ends with it.

        The new units have no line ids (-1), because a line id belongs to a row of the batch, and
        the batch has a row for each line of the whole ``unit``.
        """
        options, source = self.task.options, [*unit.source, *unit.following]
        limits = self.task.limits(np.array([len(sentence) for sentence in source]))
        index = DocumentIndex.from_lengths([len(source)])
        spans = window_spans(index, options["window_size"], limits)[: len(unit.source)]
        read = with_next_sentences(spans, index, options["next_sentences"], limits[0])
        return [
            replace(
                unit,
                line_ids=[-1] * (end - first),
                source=unit.source[first:end],
                following=source[end:last],
                target=unit.target and unit.target[first:end],
                at_start=unit.at_start and first == 0,
                target_context=None,
            )
            for (first, end), (_, last) in zip(spans.tolist(), read.tolist())
        ]


def _size(unit: DecodingUnit) -> int:
    return sum(map(len, unit.source))


def _merged(lists: NBestLists, generator) -> List[Hypothesis]:
    """Merge the n-best lists of one sentence from several windows into one without repetitions."""
    firsts = _surest([hypotheses[0] for hypotheses in lists], generator)
    if max(map(len, lists)) == 1:
        return firsts
    best = firsts[0]
    rest = _surest([hypothesis for hypotheses in lists for hypothesis in hypotheses], generator)
    return [
        best,
        *(
            each
            for each in rest
            if each["score"] <= best["score"] and not torch.equal(each["tokens"], best["tokens"])
        ),
    ]


def _surest(hypotheses: List[Hypothesis], generator) -> List[Hypothesis]:
    """Merge hypotheses with the same tokens; return each with its mean score, best first.

    Args:
        hypotheses: hypotheses of one sentence from several windows.
        generator: generator that has the options of score normalisation.
    """
    agreeing: Dict[tuple, List[Hypothesis]] = {}
    for hypothesis in hypotheses:
        agreeing.setdefault(tuple(hypothesis["tokens"].tolist()), []).append(hypothesis)
    found = []
    for same in agreeing.values():
        scores = [sentence_score(each["positional_scores"], generator) for each in same]
        found.append({**same[0], "score": torch.stack(scores).mean()})
    return sorted(found, key=lambda hypothesis: -float(hypothesis["score"]))
