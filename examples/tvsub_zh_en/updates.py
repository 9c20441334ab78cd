"""Write to a file the number of updates in which fairseq-train reads a number of target tokens.

    python updates.py FILE TOKENS DATA [options of fairseq-train]

Tokens of a window that occur in other windows too count each time.
"""

import argparse
from pathlib import Path

from fairseq_docmt.errors import UserError


def updates(tokens: int, arguments: list) -> int:
    """Return the number of updates that read about this number of target tokens.

    Args:
        tokens: target tokens, counted in every window in which they occur.
        arguments: data folder and options of ``fairseq-train``.

    Raises:
        UserError: ``--arch`` is missing, or is not known without ``--user-dir``.
    """
    # After the command line is parsed, because this takes seconds and logs messages.
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    try:
        args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    except RuntimeError as error:
        if str(error):
            raise
        raise UserError("give --user-dir and --arch of fairseq-train") from None
    cfg = convert_namespace_to_omegaconf(args)
    task = tasks.setup_task(cfg.task)
    task.load_dataset(cfg.dataset.train_subset)
    data = task.dataset(cfg.dataset.train_subset)
    batches = task.get_batch_iterator(
        data,
        max_tokens=cfg.dataset.max_tokens,
        max_sentences=cfg.dataset.batch_size,
        max_positions=task.max_positions(),
        ignore_invalid_inputs=True,
        required_batch_size_multiple=cfg.dataset.required_batch_size_multiple,
        seed=cfg.common.seed,
    )
    an_epoch = len(batches) / cfg.optimization.update_freq[0]
    return max(1, round(tokens / int(data.tgt_sizes.sum()) * an_epoch))


def parse_args() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("tokens", metavar="TOKENS", type=int)
    parser.add_argument("data", metavar="DATA")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of fairseq-train")
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_args()
    number = updates(args.tokens, [args.data, *args.options])
    args.file.write_text(f"{number}\n", encoding="utf-8")
