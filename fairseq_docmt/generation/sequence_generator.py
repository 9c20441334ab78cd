"""fairseq's sequence generators with a length limit for each batch row.

In beam search, a row is done only when no unfinished hypothesis could still enter the n-best list
by ending at the next step.
"""

import logging
import math
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq import sequence_generator
from fairseq.ngram_repeat_block import NGramRepeatBlock
from fairseq.search import BeamSearch, DiverseBeamSearch, Sampling
from fairseq.token_generation_constraints import unpack_constraints
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.ensembles import ShallowFusion
from fairseq_docmt.generation.sentence_search import FewWordsBeamSearch, SentenceSearch

logger = logging.getLogger(__name__)


class RowLimits(NamedTuple):
    """Length limits, required sentences and target context for the rows of a batch.

    Attributes:
        most: maximum number of tokens of each row's output, without ``</s>``.
        sentences: for each row, the numbers of source tokens of the sentences that its output must
            have.  The list of a row is empty if it may have any number of sentences.  None if this
            holds for all rows.
        marks: number of forced tokens before each translation (language tag, ``<bod>``), which do
            not count towards ``--min-len``; None if there are none.
        context: (bsz,) log-probability and (bsz,) length of the target context, if hypotheses are
            to be ranked together with it; otherwise None.
        before: previous target sentences of each row, without ``</s>``, for a language model.
    """

    most: Sequence[int]
    sentences: Optional[Sequence[Sequence[int]]] = None
    marks: Optional[Sequence[int]] = None
    context: Optional[Tuple[Tensor, Tensor]] = None
    before: Sequence[Sequence[Tensor]] = ()


class _DocumentGenerator:
    """Mixin that gives fairseq's generators a length limit per row and a stricter stopping rule.

    In beam search, a row is done when no unfinished hypothesis could still enter the n-best list,
    not when ``beam`` hypotheses are finished; see
    :class:`~fairseq_docmt.generation.sentence_search.SentenceSearch`.

    Args:
        models, tgt_dict, **options: arguments of fairseq's generator.
        separator: index of ``<sep>``.
        nbest: number of hypotheses to print for each sentence.
        ensemble: ensemble to decode with; None for fairseq's own.
        forbidden: indices of symbols that are never generated within a translation.
        lm_model: language model for shallow fusion, the same as that of ``ensemble``; or None.
    """

    def __init__(
        self,
        models,
        tgt_dict,
        *,
        separator: int,
        nbest: int,
        ensemble=None,
        forbidden: Sequence[int] = (),
        lm_model: Optional[ShallowFusion] = None,
        **options,
    ):
        super().__init__(models, tgt_dict, lm_model=lm_model, **options)
        self.words = tgt_dict
        if ensemble is not None:
            self.model = ensemble.eval()
        self.nbest = nbest
        inner = FewWordsBeamSearch(tgt_dict) if type(self.search) is BeamSearch else self.search
        if isinstance(inner, DiverseBeamSearch):
            # As in beam search.  With fairseq's 1, hypotheses that have ended would go on.
            inner.candidate_multiple = 2
        #: whether hypotheses are samples
        self.samples = isinstance(inner, Sampling)
        #: whether n-best lists are written, of different hypotheses
        self._lists = nbest > 1 and not self.samples
        len_penalty = self.len_penalty if self.normalize_scores else 0.0
        self.search = SentenceSearch(
            inner, tgt_dict, separator, self.beam_size, nbest, len_penalty, forbidden
        )
        if self.repeat_ngram_blocker is not None:
            size = self.repeat_ngram_blocker.no_repeat_ngram_size
            self.repeat_ngram_blocker = SentenceNgramBlock(size, separator, self.eos)
        #: stock limits of one sentence; ``max_len_*`` are set for each batch
        self._most_tokens_a, self._most_tokens_b = self.max_len_a, self.max_len_b
        # The search forbids the end symbol, as only it knows which rows have reached their limit.
        self._min_len, self.min_len = self.min_len, 0
        self._noted_min_len = False
        self._done: List[bool] = []

    def most_tokens(self, source_tokens: int, sentences: int) -> int:
        """Return the length limit of an output, from ``--max-len-a`` and ``--max-len-b``.

        It is ``a * source_tokens + b * sentences``, as the options apply to single sentences.
        """
        return max(0, int(self._most_tokens_a * source_tokens + self._most_tokens_b * sentences))

    def generate(self, models, sample: dict, limits: Optional[RowLimits] = None, **kwargs):
        """Search as fairseq does, but within the limits of each row.

        A forced prefix that exceeds the limit of its row is truncated.  n-best lists have equal
        hypotheses once, which a prefix that ends a sentence or groups of beams can repeat.

        Returns:
            The hypotheses of each row as in fairseq; ``at_limit`` of a hypothesis is a list with
            the positions of the end symbols that the length limit has forced.

        Raises:
            UserError: the constraints of a row do not fit in a translation.
        """
        if limits is not None:
            prefixes = kwargs.get("prefix_tokens")
            self._restrict(limits, sample["net_input"], prefixes)
            if prefixes is not None:
                columns = torch.arange(prefixes.size(1), device=prefixes.device)
                beyond = columns >= self.search.limits.unsqueeze(1)
                kwargs["prefix_tokens"] = prefixes.masked_fill(beyond, self.pad)
        found = super().generate(models, sample, **kwargs)
        for row, hypotheses in enumerate(found):
            for each in hypotheses:
                each["at_limit"] = self._forced_ends(each["tokens"], row)
        if kwargs.get("constraints") is not None:
            self._check_constrained(found, kwargs["constraints"])
        repeats = kwargs.get("prefix_tokens") is not None or isinstance(
            self.search.inner, DiverseBeamSearch
        )
        return [_distinct(each) for each in found] if repeats and self._lists else found

    def _forced_ends(self, tokens: Tensor, row: int) -> List[int]:
        # --match-source-len asks for outputs that end at their limit.
        return [] if self.match_source_len else self.search.forced_ends(tokens, row)

    def _check_constrained(self, found: List[list], constraints: Tensor) -> None:
        for row, hypotheses in enumerate(found):
            if not hypotheses:
                words = self.words.string(torch.cat(unpack_constraints(constraints[row])))
                raise UserError(
                    f"no translation of up to {int(self.search.limits[row])} tokens (--max-len-a, "
                    f"--max-len-b, and the positions of the model) has the constraints {words!r}; "
                    "give fewer, or a higher limit"
                )

    def _restrict(self, limits: RowLimits, net_input: dict, prefixes: Optional[Tensor]) -> None:
        device, most = net_input["src_tokens"].device, limits.most
        if self.match_source_len:  # fairseq's search lets nothing end before, whatever the limits
            most = net_input["src_lengths"].tolist()
        marks = limits.marks or [0] * len(most)
        # What stands before the sentences is always written.
        most = [min(max(limit, n), self.max_len - 1) for limit, n in zip(most, marks)]
        if self.lm_model is not None:
            most = [min(limit, self.lm_model.most_tokens) for limit in most]
            self.lm_model.begin(limits.before, marks)
        least = [self._min_len + n for n in marks]
        notes_min_len = self._min_len > 1 and not self._noted_min_len
        if notes_min_len and any(n > limit for n, limit in zip(least, most)):
            self._noted_min_len = True
            logger.warning(
                "--min-len %d is more than the length limit of some outputs (--max-len-a, "
                "--max-len-b), which end at their limit",
                self._min_len,
            )
        if prefixes is not None:
            # A prefix with its end may be shorter than --min-len, as in fairseq.
            least = [0 if self.eos in prefix else n for prefix, n in zip(prefixes.tolist(), least)]
        self.max_len_a, self.max_len_b = 0, max(most)
        sizes = [
            torch.tensor(row, dtype=torch.long) for row in limits.sentences or [[]] * len(most)
        ]
        self.search.restrict(
            torch.tensor(most, device=device),
            pad_sequence(sizes, batch_first=True).to(device),
            torch.tensor(least, device=device),
            limits.context,
            torch.tensor(marks, device=device),
        )

    def finalize_hypos(
        self,
        step: int,
        bbsz_idx: Tensor,
        eos_scores: Tensor,
        tokens: Tensor,
        scores: Tensor,
        finalized: List[List[Dict[str, Tensor]]],
        finished: List[bool],
        beam_size: int,
        attn: Optional[Tensor],
        src_lengths: Tensor,
        max_len: int,
    ) -> List[int]:
        """Add finished hypotheses to their rows, and return the rows that are now done.

        In beam search a row keeps its ``beam_size`` best hypotheses, and not the first ones as in
        fairseq.  The arguments and the form of the result are the same as for fairseq's method.
        """
        batch = (tokens, scores, finalized, finished, beam_size, attn, src_lengths, max_len)
        if not self.search.keeps_best:
            known = [len(hypotheses) for hypotheses in finalized]
            newly_finished = super().finalize_hypos(step, bbsz_idx, eos_scores, *batch)
            self._count_context(h[n:] for h, n in zip(finalized, known))
            return newly_finished
        new: List[List[Dict[str, Tensor]]] = [[] for _ in finalized]
        self._done = self.search.done.tolist()
        newly_finished = super().finalize_hypos(
            step, bbsz_idx, eos_scores, *batch[:2], new, *batch[3:]
        )
        self._count_context(new)
        for row in self.search.nothing_new.nonzero().view(-1).tolist():
            new[row] = []
        _merge(finalized, new, beam_size)
        return newly_finished

    def _count_context(self, new: Iterable[List[Dict[str, Tensor]]]) -> None:
        """Add the scores of the target context to the scores of new hypotheses, if requested."""
        if self.search.context is None:
            return
        for row, hypotheses in enumerate(new):
            for hypothesis in hypotheses:
                scores = hypothesis["positional_scores"]
                hypothesis["score"] = self.search.normalised(scores.sum(), len(scores), row)

    def is_finished(
        self, step: int, unfin_idx: int, max_len: int, finalized_sent_len: int, beam_size: int
    ) -> bool:
        """Return whether the search for a batch row is done.

        In beam search, a row is done at ``max_len``, or earlier if no unfinished hypothesis could
        be among the n best by ending at the next step.  Sampling, diverse and greedy search stop
        as in fairseq, with ``beam_size`` hypotheses.
        """
        if self.search.keeps_best:
            return step == max_len or self._done[unfin_idx]
        return super().is_finished(step, unfin_idx, max_len, finalized_sent_len, beam_size)


def _distinct(hypotheses: List[dict]) -> List[dict]:
    """Return the hypotheses without those that have the same tokens as one before."""
    first: Dict[tuple, dict] = {}
    for hypothesis in hypotheses:
        first.setdefault(tuple(hypothesis["tokens"].tolist()), hypothesis)
    return list(first.values())


def _merge(finalized: List[list], new: List[list], most: int) -> None:
    """Add new hypotheses to the earlier ones of each row, and keep the best ``most``.

    Args:
        finalized: finished hypotheses of each row, changed in place.
        new: hypotheses of each row that have just been finished.
        most: maximum number of hypotheses of a row.
    """
    rows = [row for row, hypotheses in enumerate(new) if hypotheses]
    for row in rows:
        finalized[row].extend(new[row])
    crowded = [row for row in rows if len(finalized[row]) > most]
    if not crowded:
        return
    # Copy all scores at once, as each copy from a GPU waits for it.
    scores = iter(torch.stack([h["score"] for row in crowded for h in finalized[row]]).tolist())
    for row in crowded:
        scored = [(next(scores), hypothesis) for hypothesis in finalized[row]]
        scored.sort(key=lambda pair: -pair[0])
        finalized[row][:] = [hypothesis for _, hypothesis in scored[:most]]


class DocumentGenerator(_DocumentGenerator, sequence_generator.SequenceGenerator):
    """fairseq's generator with the length limits and stopping rule of :class:`SentenceSearch`."""


class DocumentGeneratorWithAlignment(
    _DocumentGenerator, sequence_generator.SequenceGeneratorWithAlignment
):
    """fairseq's generator with alignments, extended like :class:`DocumentGenerator`."""

    def generate(self, models, sample: dict, limits: Optional[RowLimits] = None, **kwargs):
        """Search within the limits of each row, and return hypotheses with alignments.

        To compute alignments, fairseq needs ``beam_size`` hypotheses in every row.  Rows with fewer
        are filled up with copies (see :meth:`_prepare_batch_for_alignment`), which are removed from
        the result.
        """
        self._first = kwargs.get("bos_token")
        found = super().generate(models, sample, limits=limits, **kwargs)
        return [hypotheses[:number] for hypotheses, number in zip(found, self._numbers)]

    def _prepare_batch_for_alignment(self, sample, hypothesis):
        """Prepare the batch from which fairseq computes alignments.

        fairseq expects ``beam_size`` hypotheses for each source sentence.  If there are fewer, the
        last one is repeated.  The decoder input begins with the same token as in the search.
        """
        self._numbers = [len(hypotheses) for hypotheses in hypothesis]
        for hypotheses in hypothesis:
            lacking = self.beam_size - len(hypotheses)
            hypotheses.extend(dict(hypotheses[-1]) for _ in range(lacking))
        source, lengths, previous, target = super()._prepare_batch_for_alignment(sample, hypothesis)
        if self._first is not None:
            previous[:, 0] = self._first
        return source, lengths, previous, target


class SentenceNgramBlock(NGramRepeatBlock):
    """fairseq's n-gram blocker, limited to repetitions within the current sentence.

    It does not use fairseq's CUDA extension.  Without the extension, fairseq's own blocker compares
    the padding after a hypothesis, and so blocks nothing.

    Args:
        no_repeat_ngram_size: number of tokens of an n-gram.
        separator: index of ``<sep>``, after which another sentence begins.
        end: index of ``</s>``, which is never forbidden; samples that have ended go on after it.
    """

    def __init__(self, no_repeat_ngram_size: int, separator: int, end: int):
        super().__init__(no_repeat_ngram_size, use_extension=False)
        self.separator, self.end = separator, end

    def forward(self, tokens, lprobs, bsz: int, beam_size: int, step: int):
        """Forbid words that would repeat an n-gram of the current sentence.

        If only one word is allowed, such as the next word of a forced prefix, it stays allowed.

        Args:
            tokens: (bsz * beams, any) hypotheses, with ``step`` tokens after the first.
            lprobs: (bsz * beams, V) log-probabilities of the next word, changed in place.
            bsz, beam_size: numbers of batch rows and of beams, not used here.
            step: number of tokens that each hypothesis has so far.

        Returns:
            lprobs.
        """
        size = self.no_repeat_ngram_size
        if step < size:
            return lprobs
        written = tokens[:, 1 : step + 1]
        ngrams = written.unfold(1, size, 1)
        repeated = ngrams[..., :-1].eq(written[:, None, step + 1 - size :]).all(dim=2)
        # An n-gram is of the current sentence if no separator is in it or after it.
        ends = written.eq(self.separator).flip(1).cumsum(1).flip(1)
        repeated &= ends[:, : ngrams.size(1)].eq(0)
        repeated &= lprobs.ne(-math.inf).sum(1, keepdim=True) > 1
        repeated &= ngrams[..., -1].ne(self.end)
        rows, places = repeated.nonzero(as_tuple=True)
        lprobs[rows, ngrams[rows, places, -1]] = -math.inf
        return lprobs
