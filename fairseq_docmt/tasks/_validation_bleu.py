"""Document BLEU in validation (``d_bleu``), for documents that extend over several batches."""

import json
import logging
from collections import Counter
from dataclasses import fields
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.distributed as dist
from fairseq import registry, utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.logging import metrics
from fairseq.tasks.translation import EVAL_BLEU_ORDER
from sacrebleu.metrics import BLEU
from sacrebleu.metrics.bleu import BLEUScore
from torch import Tensor

from fairseq_docmt.bleu import (
    ENTITY,
    SUBWORD,
    UNKNOWN_IN_HYPOTHESIS,
    UNKNOWN_IN_REFERENCE,
    sign_in,
)
from fairseq_docmt.data import DocumentIndex, DocumentView, SequenceFormat, pad_rows
from fairseq_docmt.data.decoding_units import DecodingUnit
from fairseq_docmt.errors import UserError, flag, refuse_unknown
from fairseq_docmt.generation.hub import check_types
from fairseq_docmt.tasks._option_checks import check_subwords

logger = logging.getLogger(__name__)

SIDES = ("sys_len", "ref_len")
#: where the search of validation is given, in messages
SEARCH = " in --eval-bleu-args"
#: options of fairseq-generate that are read by the command, or that make no translation to score
WITHOUT_EFFECT = ("score_reference", "nbest", "replace_unk", "print_alignment", "prefix_size")
WITHOUT_EFFECT += ("retain_dropout", "retain_dropout_modules", "lm_path", "lm_weight")
WITHOUT_EFFECT += ("constraints", "no_seed_provided")
ORDERS = [f"{kind}_{n}" for kind in ("counts", "totals") for n in range(1, 5)]


def check_options(cfg) -> None:
    """Check the options of validation BLEU before training, because fairseq reads them much later.

    Args:
        cfg: options of the task.

    Raises:
        UserError: an option is invalid; the message names it.
    """
    metric = cfg.best_checkpoint_metric
    if metric in ("bleu", "d_bleu") and not cfg.eval_bleu:
        raise UserError(f"--best-checkpoint-metric {metric} needs --eval-bleu; give both")
    if metric in ("bleu", "d_bleu") and not cfg.maximize_best_checkpoint_metric:
        raise UserError(
            f"--best-checkpoint-metric {metric} would select the checkpoint with the lowest BLEU; "
            "add --maximize-best-checkpoint-metric"
        )
    if metric in ("loss", "nll_loss", "ppl") and cfg.maximize_best_checkpoint_metric:
        raise UserError(
            "--maximize-best-checkpoint-metric would select the checkpoint with the highest "
            f"{metric}; leave it out, or give another --best-checkpoint-metric"
        )


def check_search(cfg) -> None:
    """Check the search and detokenization of ``--eval-bleu``, which fairseq reads unchecked.

    Args:
        cfg: options of the task.

    Raises:
        UserError: an option is unknown, has no effect in validation, or has a value of the wrong
            type; the message names it.
    """
    _json_object(cfg, "eval_bleu_detok_args")
    check_subwords("eval_bleu_remove_bpe", cfg.eval_bleu_remove_bpe)
    known, name = sorted(registry.REGISTRIES["tokenizer"]["registry"]), cfg.eval_bleu_detok
    if name not in known:
        raise UserError(f"--eval-bleu-detok must be {' or '.join(known)}, not {name}")
    given = _json_object(cfg, "eval_bleu_args")
    for name in given:
        if name in WITHOUT_EFFECT:
            raise UserError(f"{name} has no place in validation; leave it out of --eval-bleu-args")
        if name in cfg:
            raise UserError(f"{name} is no option of --eval-bleu-args; give {flag(name)} beside it")
    refuse_unknown(given, {option.name for option in fields(GenerationConfig)}, SEARCH)
    check_types(given, SEARCH)


def _json_object(cfg, name: str) -> dict:
    """Return the JSON object that an option has as its value.

    Raises:
        UserError: the value is something else; the message names the option.
    """
    text = getattr(cfg, name)
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise UserError(
            f"{flag(name)} must be a JSON object such as "
            f"""'{{"beam": 4, "max_len_a": 1.2}}', not {text}"""
        )
    return given


class DocumentsInProgress:
    """Documents of a validation split whose translations are being collected.

    A document may extend over several batches.

    Args:
        index: index of the documents and sentences of the split.
        line_ids: lines of the sentences that will be translated.  A document is complete when all
            of its sentences among these lines have been translated.
    """

    def __init__(self, index: DocumentIndex, line_ids: Iterable[int]):
        self._document = dict(zip(index.line_ids.tolist(), index.document.tolist()))
        self._missing = Counter(self._document[line_id] for line_id in set(line_ids))
        self._texts: Dict[int, Dict[int, Tuple[str, str]]] = {}

    @classmethod
    def of_batches(cls, view: DocumentView, batches: Iterable) -> "DocumentsInProgress":
        """Return an object to collect the translations of all documents in the given batches.

        Args:
            view: dataset of the split.
            batches: lists of dataset indices, one list for each batch.
        """
        line_ids = (n for batch in batches for item in batch for n in view.line_ids_of(item))
        return cls(view.index, line_ids)

    def add(
        self, line_ids: Sequence[int], texts: Sequence[Tuple[str, str]]
    ) -> List[Tuple[str, str]]:
        """Add translated sentences, and return the documents that they complete.

        Args:
            line_ids: lines of the sentences.  Lines that were added before, from a repeated batch,
                are ignored.
            texts: hypothesis and reference of each sentence.

        Returns:
            Hypothesis and reference of each completed document, each a single string.
        """
        finished = []
        for line_id, text in zip(line_ids, texts):
            number = self._document[line_id]
            found = self._texts.setdefault(number, {})
            if line_id in found:
                continue
            found[line_id] = text
            if len(found) == self._missing[number]:
                sides = zip(*(found[key] for key in sorted(found)))
                finished.append(tuple(" ".join(side) for side in sides))
        return finished


class ValidationBleu:
    """Document BLEU of a validation split, computed while its batches are being translated.

    Documents may extend over several batches, so translations are kept until a document is
    complete.

    Attributes:
        statistics: BLEU statistics of the documents that the last batch completed.
    """

    def __init__(self):
        self.statistics: Dict[str, int] = {}
        self._documents: Optional[DocumentsInProgress] = None
        self._next: Optional[tuple] = None
        self._warned = False

    def begin(self, view: DocumentView, iterator) -> None:
        """Prepare for validation on a split, given its dataset and the iterator of its batches."""
        self._next = view, iterator

    def score(self, task, units: dict, found: list) -> BLEUScore:
        """Compute the BLEU of a batch, and the statistics of the documents that it completes.

        The statistics are stored in :attr:`statistics`.

        Args:
            task: document task with ``--eval-bleu``.
            units: sample with references as ``target``; empty if only other processes still have
                sentences.
            found: hypotheses of each sentence, the best first; only the best is scored.

        Returns:
            sacreBLEU's ``BLEUScore`` of the sentences of the batch.
        """
        hypotheses = [_text(task, best["tokens"], UNKNOWN_IN_HYPOTHESIS) for best, *_ in found]
        targets = (utils.strip_pad(row, task.tgt_dict.pad()) for row in units["target"])
        references = [_text(task, tokens, UNKNOWN_IN_REFERENCE) for tokens in targets]
        if task.cfg.eval_bleu_print_samples and hypotheses:
            logger.info("example hypothesis: %s", hypotheses[0])
            logger.info("example reference: %s", references[0])
        self._warn(references, task.cfg.eval_tokenized_bleu)
        metric = BLEU(tokenize="none" if task.cfg.eval_tokenized_bleu else None, force=True)
        self._add(units["id"].tolist(), list(zip(hypotheses, references)), metric)
        if not hypotheses:
            zeros = [0] * EVAL_BLEU_ORDER
            return BLEU.compute_bleu(zeros, zeros, sys_len=0, ref_len=0)
        return metric.corpus_score(hypotheses, [references])

    def _warn(self, references: List[str], tokenized: bool) -> None:
        """Warn once if BLEU is computed over subwords or over tokens with entities (``&quot;``).

        Args:
            references: references of a batch, in which to look for subwords and entities.
            tokenized: value of ``--eval-tokenized-bleu``; if True, entities are accepted.
        """
        piece, entity = sign_in(references, SUBWORD), sign_in(references, ENTITY)
        if self._warned or not (piece or entity and not tokenized):
            return
        self._warned = True
        if piece:
            what, how = f"of subwords (such as {piece})", "--eval-bleu-remove-bpe"
        else:
            what = (
                f"of tokens with entities (such as {entity}), each of which counts as three words"
            )
            how = "--eval-bleu-detok moses"
        logger.warning(
            "validation BLEU is %s, and higher than that of text; for BLEU of text add %s",
            what,
            how,
        )

    def _add(self, line_ids: List[int], texts: List[Tuple[str, str]], metric: BLEU) -> None:
        if self._next is not None:
            view, iterator = self._next
            self._documents = DocumentsInProgress.of_batches(view, iterator.frozen_batches)
            self._next = None
        found = _of_all_processes(line_ids, texts)
        self.statistics = _statistics(self._documents.add(*found), metric)


def _text(task, tokens, unknown: str) -> str:
    """Return the text of target tokens, with ``unknown`` in place of unknown words.

    Hypotheses and references use different placeholders, so that unknown words never match.
    """
    bpe = task.cfg.eval_bleu_remove_bpe
    text = task.tgt_dict.string(tokens.int().cpu(), bpe, unk_string=unknown)
    return task.tokenizer.decode(text) if task.tokenizer else text


def _of_all_processes(line_ids: Sequence[int], texts: Sequence[Tuple[str, str]]):
    """Gather the line ids and texts of the current batches of all processes.

    Returns:
        Line ids and texts.  With a single process, they are returned unchanged.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return line_ids, texts
    gathered: list = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, (list(line_ids), list(texts)))
    return tuple(sum(parts, []) for parts in zip(*gathered))


def _statistics(finished: Sequence[Tuple[str, str]], metric: BLEU) -> Dict[str, int]:
    """Compute the BLEU statistics of documents, which :func:`log_d_bleu` will sum.

    Because every process has the same documents, only the first process counts them; the others
    return zeros.

    Args:
        finished: hypothesis and reference of each document.
        metric: BLEU with the tokenisation to use.

    Returns:
        Name of each statistic in fairseq's logging output -> its value.
    """
    sums = dict.fromkeys((*SIDES, *ORDERS), 0)
    first = not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0
    if finished and first:
        hypotheses, references = zip(*finished)
        bleu = metric.corpus_score(hypotheses, [references])
        sums.update(zip(SIDES, (bleu.sys_len, bleu.ref_len)))
        sums.update(zip(ORDERS, (*bleu.counts, *bleu.totals)))
    return {f"_d_bleu_{key}": value for key, value in sums.items()}


def log_d_bleu(logging_outputs: List[dict]) -> None:
    """Log document BLEU (``d_bleu``), computed from the statistics of all batches and processes."""
    for key in (*SIDES, *ORDERS):
        total = sum(int(log.get(f"_d_bleu_{key}", 0)) for log in logging_outputs)
        metrics.log_scalar(f"_d_bleu_{key}", np.array(total))
    metrics.log_derived("d_bleu", _d_bleu)


def _d_bleu(meters) -> float:
    sums = {key: int(meters[f"_d_bleu_{key}"].sum) for key in (*SIDES, *ORDERS)}
    numbers = [sums[key] for key in ORDERS]
    counts, totals = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    score = BLEU.compute_bleu(counts, totals, sums["sys_len"], sums["ref_len"], smooth_method="exp")
    return round(score.score, 2)


# ---- units ---------------------------------------------------------------------------------------
# Each function converts a batch of validation into a sample whose rows are the original sentences:
# ``units``, the references ``target`` (rows, T), and ``id`` (rows,), the line of each sentence in
# the corpus.  A batch of a stream with only fillers gives no rows.


def units_of_view(sample: dict, task) -> dict:
    """Convert a batch of windows or documents into a sample to decode.

    When windows are decoded, the references of the previous sentences serve as target context.

    Args:
        sample: batch of a :class:`~fairseq_docmt.data.DocumentView`.
        task: document task.
    """
    is_window = task.options.get("window_size", 0) > 0
    format, units = task.formats.target, []
    whole = _of_decoder_input(sample["net_input"]["prev_output_tokens"], format.dictionary)
    sources = _sources(sample, task)
    targets = map(format.split, whole)
    for (source, at_start), (target, _), first in zip(sources, targets, sample["id"].tolist()):
        # A window translates one sentence, another span all; its id is the line of the first.
        translated = 1 if is_window else len(source)
        units.append(
            DecodingUnit(
                list(range(first, first + translated)),
                source[: len(target)],
                target,
                document=0,
                at_start=at_start,
                following=source[len(target) :],
                target_context=[t[:-1] for t in target[: len(target) - translated]],
            )
        )
    return _sample(units, task)


def units_of_stream(sample: dict, task) -> dict:
    """Convert a batch of a stream into a sample to decode.

    Filler rows, which stand for lanes that have no sentence left, are dropped.  A lane reads one
    document after another.  In the sample, all sentences of a lane count as one document.

    Args:
        sample: batch of a :class:`~fairseq_docmt.data.stream_view.StreamView`.
        task: document task.
    """
    net_input = sample["net_input"]
    sources, targets = _sources(sample, task), _targets(sample, task)
    starts, line_ids = net_input["starts"].tolist(), sample["id"].tolist()
    units = [
        DecodingUnit(
            [line_ids[row]],
            sources[row][0],
            targets[row][0],
            document=row % net_input["lanes"],
            position=0 if starts[row] else 1,
            at_start=sources[row][1],
        )
        for row in range(len(line_ids))
        if line_ids[row] >= 0
    ]
    return _sample(units, task)


def units_of_documents(sample: dict, task) -> dict:
    """Convert a batch with a row for each sentence into a sample that is decoded by document.

    Args:
        sample: batch of a :class:`~fairseq_docmt.data.rows_view.RowsView`.
        task: document task.
    """
    sources, targets = _sources(sample, task), _targets(sample, task)
    documents, drafts = sample["net_input"]["documents"].cpu(), _drafts(sample, task)
    units = []
    for document in documents.unique().tolist():
        rows = documents.eq(document).nonzero().view(-1).tolist()
        units.append(
            DecodingUnit(
                sample["id"][rows].tolist(),
                [sentence for row in rows for sentence in sources[row][0]],
                [sentence for row in rows for sentence in targets[row][0]],
                document=document,
                at_start=sources[rows[0]][1],
                drafts=drafts and [drafts[row] for row in rows],
            )
        )
    return _sample(units, task)


def _drafts(sample: dict, task) -> Optional[List[Tensor]]:
    """Return the draft of each row, which ends in ``</s>``; None without ``--drafts``."""
    if "drafts" not in sample["net_input"]:
        return None
    format = task.formats.target
    end = torch.tensor([format.dictionary.eos()])
    whole = _of_decoder_input(sample["net_input"]["drafts"], format.dictionary)
    return [next(iter(format.split(row)[0]), end) for row in whole]


def _of_decoder_input(tokens: Tensor, dictionary) -> List[Tensor]:
    """Return the target sequences of (rows, T) decoder input, which lacks their last ``</s>``."""
    end = torch.tensor([dictionary.eos()])
    return [torch.cat([row[row.ne(dictionary.pad())][1:], end]) for row in tokens.cpu()]


def _sample(units: List[DecodingUnit], task) -> dict:
    references = [target for unit in units for target in unit.target[unit.num_context :]]
    line_ids = torch.tensor([n for unit in units for n in unit.line_ids], dtype=torch.long)
    no_rows = torch.zeros(0, 0, dtype=torch.long)
    target = pad_rows(references, task.target_dictionary) if references else no_rows
    return {"units": units, "target": target, "id": line_ids}


def _sources(sample: dict, task) -> List[Tuple[List[Tensor], bool]]:
    return _split_rows(sample["net_input"]["src_tokens"], task.formats.source)


def _targets(sample: dict, task) -> List[Tuple[List[Tensor], bool]]:
    return _split_rows(sample["target"], task.formats.target)


def _split_rows(tokens: Tensor, format: SequenceFormat) -> List[Tuple[List[Tensor], bool]]:
    """Return the sentences of each padded row, and whether the row begins with ``<bod>``."""
    rows = (row[row.ne(format.dictionary.pad())] for row in tokens.cpu())
    return [format.split(row) for row in rows]
