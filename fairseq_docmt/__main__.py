"""Command ``python -m fairseq_docmt``: print the directory for ``--user-dir``."""

import os

if __name__ == "__main__":
    print(os.path.dirname(os.path.abspath(__file__)))
