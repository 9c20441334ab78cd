"""Print the directory that fairseq takes as --user-dir.

    fairseq-docmt user-dir
    fairseq-train DATA --user-dir "$(fairseq-docmt user-dir)" --task T --arch A

The directory is that of the package, wherever it is installed.
"""

import argparse
import sys
from typing import List

from fairseq_docmt import command_line
from fairseq_docmt.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options but ``--help``."""


def main(args: argparse.Namespace, others: List[str]) -> None:
    """Print the directory of this package, which fairseq takes as ``--user-dir``.

    Raises:
        UserError: the command line has arguments, which this command does not take.
    """
    if others:
        name = command_line.USER_DIR
        raise UserError(f"{name} takes no arguments; leave out {' '.join(others)}")
    print(command_line.PACKAGE)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.argv.append(command_line.USER_DIR)
    command_line.main()
