"""Conversion of validation batches into decoding units, for validation BLEU.

Each function returns a sample whose rows are the original sentences: ``units``, the references
``target`` (rows, T), and ``id`` (rows,), the line of each sentence in the corpus.  A batch of a
stream with only fillers gives no rows.
"""

from typing import List, Tuple

import torch
from torch import Tensor

from fairseq_docmt.data import SequenceFormat, pad_rows
from fairseq_docmt.data.decoding_units import DecodingUnit


def units_of_view(sample: dict, task) -> dict:
    """Convert joined examples into units with their reference context.

    Args:
        sample: batch of a :class:`~fairseq_docmt.data.DocumentView`.
        task: document task.
    """
    is_window = task.options.get("window_size", 0) > 0
    format, units = task.formats.target, []
    # prev_output_tokens has all target tokens but the last, </s>.
    end = torch.tensor([format.dictionary.eos()])
    previous = sample["net_input"]["prev_output_tokens"].cpu()
    whole = [torch.cat([row[row.ne(format.dictionary.pad())][1:], end]) for row in previous]
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
    """Convert a batch of a stream into units whose documents are the lanes, without fillers.

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
    """Convert a batch whose rows are sentences into units that are the documents.

    Args:
        sample: batch of a :class:`~fairseq_docmt.data.rows_view.RowsView`.
        task: document task.
    """
    sources, targets = _sources(sample, task), _targets(sample, task)
    documents = sample["net_input"]["documents"].cpu()
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
            )
        )
    return _sample(units, task)


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
    """Split the rows of padded (bsz, T) tokens into sentences, see :meth:`SequenceFormat.split`."""
    rows = (row[row.ne(format.dictionary.pad())] for row in tokens.cpu())
    return [format.split(row) for row in rows]
