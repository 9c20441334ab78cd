"""Print the directory that fairseq takes as --user-dir."""

import sys

from fairseq_docmt import command_line

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.argv.append(command_line.USER_DIR)
    command_line.main()
