"""Original sentences of a training or validation batch, to decode them for validation BLEU."""

from typing import List, Tuple

import torch
from torch import Tensor

from fairseq_docmt.data import pad_rows, split_sentences
from fairseq_docmt.data.symbols import BEGIN_OF_DOCUMENT, SENTENCE_SEPARATOR


def rows_of_view(sample: dict, task) -> dict:
    """Turn joined examples back into a sample of units with their reference context.

    Args:
        sample: batch of a :class:`~fairseq_docmt.data.DocumentView`.
        task: document task.

    Returns:
        Sample of units whose ``target`` (rows, T) holds single sentences, ``id`` (rows,) their
        rows in the corpus.
    """
    src_dict, tgt_dict = task.source_dictionary, task.target_dictionary
    window = task.options.get("window_size", 0)
    units, references, ids = [], [], []
    tokens = sample["net_input"]
    for source, previous, target, first in zip(
        tokens["src_tokens"], tokens["prev_output_tokens"], sample["target"], sample["id"].tolist()
    ):
        # The last target position is the only one that prev_output_tokens does not show.
        whole = torch.cat(
            [previous[previous.ne(tgt_dict.pad())][1:], target.new_tensor([tgt_dict.eos()])]
        )
        sources, at_start = _sentences(source[source.ne(src_dict.pad())], src_dict)
        targets, _ = _sentences(whole, tgt_dict)
        rows = 1 if window else len(sources)
        units.append(
            {
                "source": sources,
                "target": targets,
                "rows": rows,
                "document": 0,
                "position": 0,
                "at_start": at_start,
                "history": [t[:-1].cpu() for t in targets[: len(targets) - rows]],
            }
        )
        references.extend(targets[-rows:])
        # Windows are named after their only row, others after the first of rows in sequence.
        ids.extend(range(first, first + rows))
    return {"units": units, "target": pad_rows(references, tgt_dict), "id": torch.tensor(ids)}


def rows_of_stream(sample: dict, task) -> dict:
    """Turn a batch of a stream into a sample of units, whose documents are its lanes.

    Args:
        sample: batch of a :class:`~fairseq_docmt.data.stream_view.StreamView`.
        task: document task.

    Returns:
        Sample of units whose ``target`` (rows, T) holds their sentences and ``id`` (rows,) their
        rows in the corpus; fillers are left out.
    """
    src_dict, tgt_dict = task.source_dictionary, task.target_dictionary
    net_input, units, references = sample["net_input"], [], []
    real = sample["id"].ge(0)
    for row in real.nonzero().view(-1).tolist():
        source, target = net_input["src_tokens"][row], sample["target"][row]
        sources, at_start = _sentences(source[source.ne(src_dict.pad())], src_dict)
        targets, _ = _sentences(target[target.ne(tgt_dict.pad())], tgt_dict)
        units.append(
            {
                "source": sources,
                "target": targets,
                "rows": 1,
                "document": row % net_input["lanes"],
                "position": 0 if net_input["starts"][row] else 1,
                "at_start": at_start,
            }
        )
        references.extend(targets)
    ids = sample["id"][real]
    return {"units": units, "target": pad_rows(references, tgt_dict), "id": ids}


def rows_of_documents(sample: dict, task) -> dict:
    """Turn a batch of documents whose sentences are rows into a sample of units.

    Args:
        sample: batch of a :class:`~fairseq_docmt.data.rows_view.RowsView`.
        task: document task.

    Returns:
        Sample of units, the documents, whose ``target`` (rows, T) holds their sentences and ``id``
        (rows,) their rows in the corpus.
    """
    src_dict, tgt_dict = task.source_dictionary, task.target_dictionary
    net_input, units, references = sample["net_input"], [], []
    for document in net_input["documents"].unique().tolist():
        unit = {"source": [], "target": [], "document": document, "position": 0, "drafts": None}
        for row in net_input["documents"].eq(document).nonzero().view(-1).tolist():
            source, target = net_input["src_tokens"][row], sample["target"][row]
            sources, marked = _sentences(source[source.ne(src_dict.pad())], src_dict)
            targets, _ = _sentences(target[target.ne(tgt_dict.pad())], tgt_dict)
            unit.setdefault("at_start", marked)
            unit["source"] += sources
            unit["target"] += targets
        units.append({**unit, "rows": len(unit["source"])})
        references.extend(unit["target"])
    return {"units": units, "target": pad_rows(references, tgt_dict), "id": sample["id"]}


def _sentences(joined: Tensor, dictionary) -> Tuple[List[Tensor], bool]:
    """Sentences of a joined sequence, each ending in ``</s>``, and whether ``<bod>`` was there."""
    marked = bool(joined[0] == dictionary.index(BEGIN_OF_DOCUMENT))
    eos = joined[-1:]
    parts = split_sentences(joined[int(marked) : -1], dictionary.index(SENTENCE_SEPARATOR))
    return [torch.cat([part, eos]) for part in parts], marked
