"""Helpers that the analyses share: options, documents of a binarised split, and output files."""

import argparse
import contextlib
import io
import json
import os
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

import matplotlib
import numpy as np
import torch
from fairseq import checkpoint_utils
from torch import Tensor

from fairseq_docmt.checkpoint_file import read_translation_model
from fairseq_docmt.data.document_view import DocumentView
from fairseq_docmt.data.sequence_format import separator_index
from fairseq_docmt.data.stream_view import Place, StreamView
from fairseq_docmt.errors import UserError
from fairseq_docmt.modules.recurrent_memory import SentenceMemory
from fairseq_docmt.modules.sentences import source_sentences
from fairseq_docmt.readers.files import write_bytes, write_text

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402


class Document(NamedTuple):
    """A single example with its references, as a batch for the model.

    Depending on the task, an example is a whole document, a part of one, or a window of sentences.
    S and T are the lengths of the source and target rows.  Sentences are numbered from 0 within the
    example.

    Attributes:
        sample: the batch, either with a row for each sentence or with a single row in which all
            sentences are joined.
        of_source: (rows, S) sentence number of each source token, -1 for padding.
        of_target: (rows, T) sentence number of each target token, -1 where the loss ignores it.
        of_input: (rows, T) sentence number of each token of the decoder's input, -1 for padding;
            the first one, ``</s>``, belongs to the sentence after it.
    """

    sample: dict
    of_source: Tensor
    of_target: Tensor
    of_input: Tensor


def parser_of(description: str) -> argparse.ArgumentParser:
    """Create a command-line parser with the options that all analyses share.

    Args:
        description: text at the beginning of ``--help``.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="binarised corpus")
    parser.add_argument("--split", default="test", help="split to analyse; default: test")
    parser.add_argument(
        "--documents", type=int, metavar="N", help="analyse the first N; default: all"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder for numbers and plots")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse and check the command line of an analysis.

    Raises:
        UserError: ``--documents`` is below 1, or ``--out`` cannot be a folder.
    """
    args = parser.parse_args()
    if args.documents is not None and args.documents < 1:
        raise UserError(f"--documents must be at least 1, got {args.documents}")
    check_folder(args.out)
    return args


def check_folder(out: Path) -> None:
    """Check, before an analysis begins, that its output folder exists or can be created.

    Raises:
        UserError: the path or one of its parents is a file.
    """
    for path in (out, *out.parents):
        if os.path.exists(path) and not os.path.isdir(path):  # not even if the name is too long
            raise UserError(f"--out {out}: {path} is a file; give a folder")


def load(path: str, data: str):
    """Load a checkpoint, and return its model in evaluation mode together with its task.

    Args:
        path: checkpoint.
        data: folder of the binarised data to analyse, instead of the training data.

    Raises:
        UserError: the file does not exist, is damaged or holds no translation model, or its
            training has diverged.
    """
    read_translation_model(path).refuse_diverged()
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [path], arg_overrides={"data": data, "eval_bleu": False}
    )
    return models[0].eval(), task


def documents_of(task, split: str, most: Optional[int] = None) -> Iterator[Document]:
    """Yield the documents of a split with their references, each as a :class:`Document`.

    If the task joins sentences, its examples are yielded one by one.  A document that is divided
    into several windows or parts then gives several items.

    Args:
        task: task of the checkpoint.
        split: name of the split.
        most: maximum number of documents; None for all.

    Raises:
        UserError: the checkpoint was not trained with a document task.
    """
    task.load_dataset(split)
    view = task.dataset(split)
    if not isinstance(view, DocumentView):
        raise UserError("the checkpoint is of sentence pairs; give one of a document task")
    most = most or view.index.num_documents
    if isinstance(view, StreamView):
        yield from _streams(view, task.target_dictionary.pad(), most)
    else:
        yield from _joined(view, task, most)


def require_streams(task) -> None:
    """Refuse a task that does not read documents sentence by sentence.

    Raises:
        UserError: the task is not ``sentence_stream_translation``.
    """
    if task.cfg._name != "sentence_stream_translation":
        raise UserError(
            f"the checkpoint is of {task.cfg._name}, which has no document states; give one of "
            "sentence_stream_translation"
        )


def document_of(task, split: str, number: int) -> Document:
    """Return a document of a split by its number, counted from 1.

    Raises:
        UserError: the number is below 1, or the split has fewer documents.
    """
    if number < 1:
        raise UserError(f"--document must be at least 1, got {number}")
    documents = list(documents_of(task, split, number))
    if len(documents) < number:
        raise UserError(
            f"--document {number}: {split} has {len(documents)} documents; give one of these"
        )
    return documents[-1]


def _streams(view: StreamView, pad: int, most: int) -> Iterator[Document]:
    for first, end in view.index.spans[:most]:
        places = [Place(sentence, sentence == first, 0, 1) for sentence in range(first, end)]
        sample = _ungrouped(view.collater([view[place] for place in places]))
        numbers = torch.arange(end - first).unsqueeze(1)
        net_input = sample["net_input"]
        sides = [net_input["src_tokens"], sample["target"], net_input["prev_output_tokens"]]
        yield Document(sample, *(torch.where(x.ne(pad), numbers, -1) for x in sides))


def _joined(view, task, most: int) -> Iterator[Document]:
    source_words, words = task.source_dictionary, task.target_dictionary
    for item in np.flatnonzero(view.index.document[view.spans[:, 0]] < most).tolist():
        sample = _ungrouped(view.collater([view[item]]))
        source, previous = (sample["net_input"][k] for k in ("src_tokens", "prev_output_tokens"))
        of_source = source_sentences(source.eq(separator_index(source_words)))
        # The targets do not have the context of a window with --loss-on last, the inputs do.
        number = previous.eq(separator_index(words)).cumsum(dim=1)
        yield Document(
            sample,
            of_source.masked_fill(source.eq(source_words.pad()), -1),
            number.masked_fill(sample["target"].eq(words.pad()), -1),
            torch.cat([number[:, :1], number[:, :-1]], dim=1).masked_fill(
                previous.eq(words.pad()), -1
            ),
        )


def _ungrouped(sample: dict) -> dict:
    """Return a batch without its row groups, so that model outputs have one row per sentence.

    Row groups let a model process rows of similar length together.
    """
    groups = ("row_groups", "draft_groups")
    net_input = {key: x for key, x in sample["net_input"].items() if key not in groups}
    return {**sample, "net_input": net_input}


@contextlib.contextmanager
def gradients_through_all_sentences(model):
    """Let gradients pass through recurrent memories over any number of sentences.

    This holds within the ``with`` block.  Afterwards the limit that the model was trained with,
    ``--memory-gradient-sentences``, applies again.
    """
    memories = [m for m in model.modules() if isinstance(m, SentenceMemory)]
    before = [memory.gradient_sentences for memory in memories]
    for memory in memories:
        memory.gradient_sentences = 0
    try:
        yield
    finally:
        for memory, sentences in zip(memories, before):
            memory.gradient_sentences = sentences


def write_results(folder: Path, name: str, results, figure) -> None:
    """Write results to ``NAME.json`` and a figure to ``NAME.png``, and print where they are.

    The folder is created if it does not exist.

    Raises:
        UserError: a file cannot be written.
    """
    write_text(str(folder / f"{name}.json"), json.dumps(results, indent=1))
    figure.tight_layout()
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150)
    pyplot.close(figure)
    write_bytes(str(folder / f"{name}.png"), drawn.getvalue())
    print(f"wrote {folder / name}.json and .png")
