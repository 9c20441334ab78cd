"""Average the parameters of checkpoints of one training run (Vaswani et al., 2017, section 6.1).

    fairseq-docmt average --inputs FOLDER --num-epoch-checkpoints 5 --output FILE
    fairseq-docmt average --inputs FILE FILE ... --output FILE

The output can be used like any other checkpoint to translate, or with --finetune-from-model.
Only the parameters are averaged; everything else, such as the options, is copied from the last
input.  The output has no optimizer state.
"""

import argparse
import io
import os
import sys
from typing import Any, Dict, List, Optional, Sequence

import torch
from fairseq.checkpoint_utils import checkpoint_paths
from fairseq.tasks import TASK_REGISTRY
from torch import Tensor

from fairseq_docmt.checkpoint_file import DROPOUTS, CheckpointFile, load_state, read_checkpoint
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.readers.files import write_bytes
from fairseq_docmt.tasks._stored_options import KEY as OPTIONS
from fairseq_docmt.tasks._training_text import KEY as TEXT

#: fairseq's names of checkpoints; the group is the number of the epoch or update
AFTER_EPOCHS = r"checkpoint(\d+)\.pt"
AFTER_UPDATES = r"checkpoint_\d+_(\d+)\.pt"


def average(paths: Sequence[str]) -> dict:
    """Return the content of the last checkpoint, but with parameters averaged over all checkpoints.

    The optimizer state is left out.  If the checkpoints seem to come from different training runs,
    a note is printed.

    Args:
        paths: checkpoints, the oldest first.

    Raises:
        UserError: a checkpoint cannot be read, its training has diverged, or it differs from the
            last one in its architecture, parameter shapes, task, document options, languages,
            dictionaries or preprocessing.
    """
    files = [read_checkpoint(path) for path in paths]
    last = files[-1]
    for file in files:
        file.refuse_diverged("leave it out")
    for file in files[:-1]:
        _check_agreement(file, last)
        _note_other_training(file, last)
    state = load_state(last.path)
    state["model"] = {name: _mean([file.weights[name] for file in files]) for name in last.weights}
    state.pop("last_optimizer_state", None)
    return state


def _note_other_training(file: CheckpointFile, last: CheckpointFile) -> None:
    """Print notes if two checkpoints seem to come from different training runs.

    One note is about model options that differ, except for dropout, and another about a different
    ``--seed`` or ``--save-dir``.  This is not an error, because training can be resumed with other
    options.
    """
    options = [of.model_options for of in (file, last)]
    changed = [
        name
        for name, value in options[1].items()
        if options[0].get(name) != value and not name.endswith(DROPOUTS)
    ]
    if changed:
        found = [", ".join(f"{flag(name)} {of.get(name)}" for name in changed) for of in options]
        print(
            f"note: {file.path} was trained with {found[0]}, {last.path} with {found[1]}; the "
            "average has the options of the latter",
            file=sys.stderr,
        )
    for group, option in (("common", "seed"), ("checkpoint", "save_dir")):
        known = [of.settings.get(group, {}).get(option) for of in (file, last)]
        if known[0] != known[1]:
            print(
                f"note: {file.path} was trained with {flag(option)} {known[0]}, "
                f"{last.path} with {known[1]}; averages are meant for one training",
                file=sys.stderr,
            )
            return


def _mean(values: List[Tensor]) -> Tensor:
    """Return the mean of tensors, computed in single precision or better.

    The mean has the data type of the last tensor.  Integer tensors are counters, which are not
    averaged: the last one is returned.
    """
    last = values[-1]
    if not last.is_floating_point():
        return last
    precision = torch.promote_types(last.dtype, torch.float32)
    return (sum(value.to(precision) for value in values) / len(values)).to(last.dtype)


def _check_agreement(file: CheckpointFile, last: CheckpointFile) -> None:
    """Check that two checkpoints have the same architecture, shapes, task and dictionaries.

    Raises:
        UserError: the checkpoints differ; the message tells how.
    """
    options = [_document_options(of) for of in (file, last)]
    shapes = [{name: [*value.shape] for name, value in f.weights.items()} for f in (file, last)]
    if file.arch != last.arch:
        problem = f"they have --arch {file.arch} and {last.arch}"
    elif shapes[0] != shapes[1]:
        name = _first_difference(*shapes)
        known = [of.get(name, "missing") for of in shapes]
        problem = f"{name} is {known[0]} in the first and {known[1]} in the second"
    elif options[0] != options[1]:
        name = _first_difference(*options)
        known = [of.get(name) for of in options]
        problem = f"they were trained with {flag(name)} {known[0]} and {known[1]}"
    elif file.task_state.get(TEXT) != last.task_state.get(TEXT):
        problem = "they were trained with other languages, dictionaries or subwords"
    elif any(not file.weights[name].equal(last.weights[name]) for name in _random_matrices(last)):
        problem = "they have other random matrices, which are drawn once for a training"
    else:
        return
    raise UserError(
        f"{file.path} and {last.path} cannot be averaged: {problem}; give checkpoints of one "
        "training"
    )


def _random_matrices(file: CheckpointFile) -> List[str]:
    """Return the names of the matrices of random feature attention, which are not trained."""
    return [name for name in file.weights if name.endswith(".pool")]


def _first_difference(one: dict, other: dict) -> str:
    """Return the first key whose values differ, or that one of two dictionaries lacks."""
    return next(name for name in {**one, **other} if one.get(name) != other.get(name))


def _document_options(file: CheckpointFile) -> Dict[str, Any]:
    """Return the task of a checkpoint and its options, without values estimated in training."""
    estimated = getattr(TASK_REGISTRY.get(file.task), "learned_defaults", {})
    stored = {"task": file.task, **file.task_state.get(OPTIONS, {})}
    return {name: value for name, value in stored.items() if name not in estimated}


def newest(folder: str, pattern: str, number: int, most: Optional[int] = None) -> List[str]:
    """Return the newest checkpoints of a training run, in order from oldest to newest.

    Args:
        folder: folder of the checkpoints (``--save-dir``).
        pattern: pattern of the file names to consider: ``AFTER_EPOCHS`` or ``AFTER_UPDATES``.
        number: number of checkpoints to return.
        most: last epoch or update to consider; None for no bound.

    Raises:
        UserError: the folder has fewer such checkpoints than ``number``.
    """
    found = checkpoint_paths(folder, pattern, keep_match=True)
    paths = [path for path, at in found if most is None or at <= most]
    if len(paths) < number:
        example, keep = "checkpoint12.pt", "--keep-last-epochs"
        if pattern == AFTER_UPDATES:
            example, keep = "checkpoint_3_1500.pt", "--keep-interval-updates"
        limit = "" if most is None else f" up to {most}"
        raise UserError(
            f"{folder} has {len(paths)} checkpoints with names like {example}{limit}, not "
            f"{number}; take fewer, or keep more in training ({keep})"
        )
    return paths[:number][::-1]


def chosen(args: argparse.Namespace) -> List[str]:
    """Return the paths of the checkpoints that the command line selects.

    Files given by name are returned in the given order, checkpoints of a folder from oldest to
    newest.

    Raises:
        UserError: the options contradict each other, a file is given twice, or the folder is
            missing or has too few checkpoints.
    """
    folders = [path for path in args.inputs if os.path.isdir(path)]
    number = args.num_epoch_checkpoints or args.num_update_checkpoints
    if number is None:
        if folders:
            raise UserError(
                f"{folders[0]} is a folder; say which of its checkpoints to average with "
                "--num-epoch-checkpoints or --num-update-checkpoints, or give files"
            )
        if args.checkpoint_upper_bound is not None:
            raise UserError("--checkpoint-upper-bound is for a folder; leave it out")
        files = [os.path.realpath(path) for path in args.inputs]
        twice = [path for path, file in zip(args.inputs, files) if files.count(file) > 1]
        if twice:
            raise UserError(f"--inputs {twice[0]} is given twice; give each checkpoint once")
        return args.inputs
    missing = [path for path in args.inputs if not os.path.exists(path)]
    if missing:
        raise UserError(f"--inputs {missing[0]} not found; give the folder of a training")
    if folders != args.inputs or len(folders) > 1:
        raise UserError(
            "--num-epoch-checkpoints and --num-update-checkpoints are for one folder; got --inputs "
            + " ".join(args.inputs)
        )
    pattern = AFTER_EPOCHS if args.num_epoch_checkpoints else AFTER_UPDATES
    return newest(folders[0], pattern, number, args.checkpoint_upper_bound)


def check_output(path: str) -> None:
    """Check that the output file can be written.

    Raises:
        UserError: the path is a folder or device, or the folder of the file is missing or not
            writable.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.exists(path) and not os.path.isfile(path):
        kind = "folder" if os.path.isdir(path) else "device"
        raise UserError(f"--output {path} is a {kind}; give a file")
    if not os.path.isdir(folder):
        raise UserError(f"folder {folder} of --output not found; make it first")
    if not os.access(folder, os.W_OK):
        raise UserError(f"folder {folder} of --output cannot be written to; choose another")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fairseq-docmt average",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--inputs", nargs="+", required=True, metavar="PATH", help="checkpoints, or one folder"
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="checkpoint to write")
    of_folder = parser.add_mutually_exclusive_group()
    of_folder.add_argument(
        "--num-epoch-checkpoints",
        type=_positive,
        metavar="N",
        help="the last N checkpoints after epochs (checkpoint12.pt)",
    )
    of_folder.add_argument(
        "--num-update-checkpoints",
        type=_positive,
        metavar="N",
        help="the last N checkpoints of --save-interval-updates (checkpoint_3_1500.pt)",
    )
    parser.add_argument(
        "--checkpoint-upper-bound",
        type=_positive,
        metavar="N",
        help="take none after this epoch or update",
    )
    return parser


def main() -> None:
    """Average the checkpoints that the command line names, and write the result."""
    args = _parser().parse_args()
    check_output(args.output)
    paths = chosen(args)
    if os.path.realpath(args.output) in map(os.path.realpath, paths):
        raise UserError(f"--output {args.output} is one of the checkpoints; give another file")
    content = io.BytesIO()
    torch.save(average(paths), content)
    write_bytes(args.output, content.getbuffer())
    print(f"average of {', '.join(paths)} in {args.output}")
