"""Train, decode and score with an installed package, away from the checkout.

    python tests/system/try_installation.py ENVIRONMENT/bin/python [--no-kernels]

Prints the versions, and fails if the package is not that of the environment, if the kernels are not
compiled (or are, with --no-kernels), or if a command fails.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path
from typing import List

VERSIONS = """
import platform, sys, torch, fairseq, fairseq_docmt
from fairseq_docmt.ops import step_kernels
assert fairseq_docmt.__file__.startswith(sys.prefix), fairseq_docmt.__file__
print(f"Python {platform.python_version()}, torch {torch.__version__},",
      f"fairseq {fairseq.__version__}, numpy {__import__('numpy').__version__},",
      "kernels compiled" if step_kernels.is_compiled() else "no kernels")
"""
SIZES = """--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32
--encoder-attention-heads 2 --decoder-attention-heads 2 --cross-feature-dim 8
--causal-feature-dim 4"""
TRAINING = """--optimizer adam --lr 0.01 --criterion cross_entropy --max-tokens 200 --max-update 20
--cpu --num-workers 0 --no-epoch-checkpoints --save-dir model"""
LINES = 9


def write_corpus(folder: Path) -> None:
    """Write a corpus of three documents, and use it as all splits."""
    sentences = [f"w{number % 4} w{number % 3} w{number % 5}" for number in range(LINES)]
    documents = ["\n".join(sentences[start : start + 3]) for start in range(0, LINES, 3)]
    for side, letter in (("src", "w"), ("tgt", "v")):
        text = "\n\n".join(documents).replace("w", letter) + "\n"
        (folder / f"corpus.{side}").write_text(text, encoding="utf-8")


def run(python: str, folder: Path, *arguments: str) -> str:
    """Run Python and return what it prints.

    Raises:
        SystemExit: it fails.
    """
    done = subprocess.run(
        [python, "-W", "ignore", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(arguments)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
    return done.stdout


def try_installation(python: str, kernels: bool = True) -> str:
    """Train, decode and score; return a line with versions and scores.

    Args:
        python: interpreter of the environment.
        kernels: whether compiled kernels are expected.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        versions = run(python, folder, "-c", VERSIONS).strip()
        if kernels == versions.endswith("no kernels"):
            raise SystemExit(f"{versions}: expected {'compiled' if kernels else 'no'} kernels")
        user_dir = run(python, folder, "-m", "fairseq_docmt").strip()
        run(python, folder, *preprocess(user_dir))
        common = ["bin", "--user-dir", user_dir, "--task", "sliding_window_translation"]
        training = ["--window-size", "3", "--arch", "rfa_transformer", *SIZES.split()]
        run(python, folder, "-m", "fairseq_cli.train", *common, *training, *TRAINING.split())
        checkpoint = ["--path", "model/checkpoint_last.pt", "--cpu", "--num-workers", "0"]
        output = run(python, folder, "-m", "fairseq_cli.generate", *common, *checkpoint)
        (folder / "output").write_text(output, encoding="utf-8")
        decoded = sum(line.startswith("H-") for line in output.splitlines())
        if decoded != LINES:
            raise SystemExit(f"{decoded} of {LINES} sentences were decoded")
        metrics = ["metrics", "--metrics", "s-bleu,d-bleu", "--reference", "corpus.tgt"]
        table = run(python, folder, "-m", "fairseq_docmt", *metrics, "system=output")
        usage = ["cxmi", "--path", "model/checkpoint_last.pt", "--cpu"]
        usage += ["--source", "corpus.src", "--reference", "corpus.tgt"]
        run(python, folder, "-m", "fairseq_docmt", *usage)
        return f"{versions}: {' '.join(table.split())}"


def preprocess(user_dir: str) -> List[str]:
    """Return the command that binarises the corpus."""
    splits = [word for split in ("train", "valid", "test") for word in (f"--{split}pref", "corpus")]
    languages = ["-s", "src", "-t", "tgt", "--destdir", "bin", "--workers", "1"]
    return ["-m", "fairseq_cli.preprocess", "--user-dir", user_dir, *languages, *splits]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", help="interpreter of the environment")
    parser.add_argument("--no-kernels", action="store_true", help="no kernels are expected")
    given = parser.parse_args()
    # Links to interpreters of environments must stay links.
    print(try_installation(str(Path(given.python).absolute()), not given.no_kernels))
