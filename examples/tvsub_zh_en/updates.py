"""Print the number of updates in which fairseq-train reads a number of target tokens.

Usage: ``python updates.py TOKENS DATA [options of fairseq-train]``
"""

import contextlib
import sys

from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf


def updates(tokens: int, arguments: list) -> int:
    """Return the number of updates that read about this number of target tokens.

    Args:
        tokens: target tokens, including those of a window that occur in other windows too.
        arguments: data folder and options of ``fairseq-train``.
    """
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
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


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        number = updates(int(sys.argv[1]), sys.argv[2:])
    print(number)
