"""Progress bar of decoding: sentences done, sentences per second and time left."""

import sys

from tqdm import tqdm

#: seconds before a bar appears
DELAY = 5
#: seconds between two updates on a terminal, and in a log file
INTERVALS = (0.5, 30)


class DecodingProgress:
    """Progress over the sentences of a run, also within batches of long documents.

    Args:
        sentences: number of sentences of the run.
        hidden: show nothing (``--no-progress-bar``).
    """

    def __init__(self, sentences: int = 0, hidden: bool = True):
        is_terminal = sys.stderr.isatty()
        self._in_batch = 0
        self._bar = tqdm(
            total=sentences,
            desc="translating",
            unit=" sentences",
            mininterval=INTERVALS[0 if is_terminal else 1],
            delay=DELAY,
            leave=not is_terminal,
            disable=hidden,
        )

    def advance(self, sentences: int) -> None:
        """Count sentences of a batch that is not finished yet."""
        self._in_batch += sentences
        self._bar.update(sentences)

    def finish_batch(self, sentences: int) -> None:
        """Count those of all sentences of a batch that have not been counted before."""
        self._bar.update(max(sentences - self._in_batch, 0))
        self._in_batch = 0

    def close(self) -> None:
        """Finish the bar."""
        self._bar.close()
