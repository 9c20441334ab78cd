"""``python -m fairseq_docmt`` prints the directory to give to ``--user-dir``."""

import os

if __name__ == "__main__":
    print(os.path.dirname(os.path.abspath(__file__)))
