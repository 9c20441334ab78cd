"""Tiny corpora, binarised data, models and command lines for the tests."""

import contextlib
import io
import logging
import multiprocessing
import os
import random
import re
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Dict, List, Sequence
from unittest import mock

import torch

ROOT = Path(__file__).resolve().parent.parent
USER_DIR = str(ROOT / "fairseq_docmt")

MODEL = (
    "--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 "
    "--decoder-embed-dim 16 --encoder-ffn-embed-dim 32 --decoder-ffn-embed-dim 32 "
    "--encoder-attention-heads 2 --decoder-attention-heads 2"
).split()
ONE_CONTEXT_LAYER = [
    *["--encoder-context-layers", "1", "--decoder-context-layers", "1"],
    *["--cross-context-layers", "1"],
]
RECURRENT_MODEL = (
    "--arch lstm --encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-hidden-size 16 "
    "--decoder-hidden-size 16 --decoder-out-embed-dim 16"
).split()


def rfa(*options: str) -> list:
    """Command line of a tiny random feature attention model."""
    sizes = ["--cross-feature-dim", "8", "--causal-feature-dim", "4"]
    return ["--arch", "rfa_transformer", *MODEL[2:], *sizes, *options]


def lst(*options: str) -> list:
    """Command line of a tiny model with long-short term attention."""
    return ["--arch", "lst_transformer", *MODEL[2:], *options]


def group(*options: str) -> list:
    """Command line of a tiny model with group attention."""
    return ["--arch", "g_transformer", *MODEL[2:], *ONE_CONTEXT_LAYER, *options]


def han(*options: str) -> list:
    """Command line of a tiny model with hierarchical attention to previous sentences."""
    return ["--arch", "han_transformer", *MODEL[2:], *options]


def multi_encoder(*options: str) -> list:
    """Command line of a tiny model with encoders of previous sentences."""
    return ["--arch", "multi_encoder_transformer", *MODEL[2:], *options]


def memory(*options: str) -> list:
    """Command line of a tiny model with recurrent memory."""
    return ["--arch", "memory_transformer", *MODEL[2:], "--memory-size", "4", *options]


def rnnsearch(*options: str) -> list:
    """Command line of a tiny recurrent model."""
    sizes = ["--encoder-embed-dim", "12", "--decoder-embed-dim", "12", "--attention-dim", "6"]
    sizes += ["--encoder-hidden-size", "8", "--decoder-hidden-size", "10"]
    return ["--arch", "rnnsearch", *sizes, *options]


def cache(*options: str) -> list:
    """Command line of a tiny recurrent model with a cache."""
    return ["--arch", "cache_rnn", *rnnsearch()[2:], "--cache-size", "6", *options]


def context(*options: str) -> list:
    """Return the command line of a tiny recurrent model with a few sentences of context."""
    return ["--arch", "context_rnn", *rnnsearch()[2:], *options]


def memnet(*options: str) -> list:
    """Command line of a tiny recurrent model with memories of documents."""
    sizes = ["--sentence-lm-embed-dim", "5", "--sentence-lm-hidden-size", "7"]
    return ["--arch", "memnet_rnn", *rnnsearch()[2:], *sizes, *options]


def window(*options: str) -> list:
    """Command line of a tiny window attention model."""
    arch = ["--arch", "window_attn_transformer", "--attention-window", "4"]
    return [*arch, *MODEL[2:], *options]


TRAINING = (
    "--optimizer adam --lr 0.003 --criterion label_smoothed_cross_entropy "
    "--cpu --num-workers 0 --log-format simple --log-interval 1000 --no-progress-bar "
    "--no-epoch-checkpoints"
).split()

#: where fairseq-generate runs
DEVICE = ["--cpu"]
SELDOM = ["--validate-interval", "1000", "--save-interval", "1000"]


def documents(lengths: Sequence[int], seed: int = 0, words: int = 12) -> List[List[str]]:
    """Documents of the given numbers of random sentences of 2 to 6 words."""
    generator = random.Random(seed)
    return [
        [
            " ".join(f"w{generator.randrange(words)}" for _ in range(generator.randint(2, 6)))
            for _ in range(length)
        ]
        for length in lengths
    ]


def text_of(docs: Sequence[Sequence[str]]) -> str:
    return "\n\n".join("\n".join(doc) for doc in docs) + "\n"


def translate(docs: Sequence[Sequence[str]]) -> List[List[str]]:
    """The target side of the tiny language: word-by-word translation in the same order."""
    return [[sentence.replace("w", "v") for sentence in doc] for doc in docs]


def write_split(folder: Path, split: str, docs) -> None:
    (folder / f"{split}.src").write_text(text_of(docs), encoding="utf-8")
    (folder / f"{split}.tgt").write_text(text_of(translate(docs)), encoding="utf-8")


def run_main(main, *arguments: str) -> str:
    """Run a stock command line in this process and return its standard output."""
    printed = io.StringIO()
    with mock.patch.object(sys, "argv", ["command", *map(str, arguments)]):
        with contextlib.redirect_stdout(printed):
            try:
                main()
            finally:
                _forget_run()
    return printed.getvalue()


def _forget_run() -> None:
    """Delete the best score of a run, which fairseq stores as an attribute of functions."""
    from fairseq import checkpoint_utils
    from fairseq_cli import train

    for function in (checkpoint_utils.save_checkpoint, train.should_stop_early):
        for name in ("best", "num_runs"):
            if hasattr(function, name):
                delattr(function, name)


def preprocess(folder: Path, splits: Sequence[str], *extra: str) -> Path:
    from fairseq_cli import preprocess

    destination = folder / "bin"
    prefixes = [f"--{split}pref" for split in ("train", "valid", "test")]
    names = ["train", "valid", ",".join(str(folder / s) for s in splits if s.startswith("test"))]
    arguments = []
    for option, name in zip(prefixes, names):
        if name:
            arguments += [option, name if "/" in name else str(folder / name)]
    run_main(
        preprocess.cli_main,
        *["-s", "src", "-t", "tgt", "--destdir", str(destination), "--workers", "1"],
        *arguments,
        *extra,
    )
    return destination


def binarise_here(command: Sequence[str], folder: Path) -> None:
    """Run the fairseq-preprocess of prepare.py in this process; in place of ``prepare._run``."""
    from fairseq_cli import preprocess

    before, handlers = os.getcwd(), list(preprocess.logger.handlers)
    os.chdir(folder)
    try:
        run_main(preprocess.cli_main, *command[3:])
    finally:
        os.chdir(before)
        # It logs into a folder that prepare.py renames, later runs in this process too.
        preprocess.logger.handlers[:] = handlers


def corpus(folder: Path, train=(4, 1, 6, 3, 5), valid=(3, 1, 4), test=(1, 5, 2, 7)) -> Path:
    """A binarised corpus of documents with the given numbers of sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (split, lengths) in enumerate((("train", train), ("valid", valid), ("test", test))):
        write_split(folder, split, documents(lengths, seed))
    return preprocess(folder, ["train", "valid", "test"])


def train(data: Path, save_dir: Path, *arguments: str, updates: int = 12, model=MODEL) -> Path:
    """Train with stock ``fairseq-train`` and return the last checkpoint.

    Validation and checkpoints come at the last update alone, or else after every epoch.
    """
    from fairseq_cli import train as command

    run_main(
        command.cli_main,
        str(data),
        *["--user-dir", USER_DIR, *model, *TRAINING, "--max-update", str(updates)],
        *["--save-dir", str(save_dir)],
        *([] if "--max-tokens" in arguments else ["--max-tokens", "200"]),
        *([] if "--max-epoch" in arguments else SELDOM),
        *arguments,
    )
    return save_dir / "checkpoint_last.pt"


def interactive(data: Path, checkpoint, lines, *arguments: str) -> str:
    """Translate lines with stock ``fairseq-interactive`` and return its output."""
    from fairseq_cli import interactive as command

    text = "".join(line + "\n" for line in lines)
    # As in the C locale, other bytes than UTF-8 are read as surrogates.
    coding = {"encoding": "utf-8", "errors": "surrogateescape"}
    stream = io.TextIOWrapper(io.BytesIO(text.encode(**coding)), **coding)
    with mock.patch.object(sys, "stdin", stream):
        return run_main(
            command.cli_main,
            *[str(data), "--user-dir", USER_DIR, "--path", str(checkpoint), "--cpu"],
            *["--beam", "3", "--max-len-b", "12", *arguments],
        )


def hydra_train(folder: Path, name: str, *overrides: str) -> str:
    """Train with stock ``fairseq-hydra-train`` in the working directory, in ``run``.

    Args:
        folder, name: folder and name of the configuration.
        overrides: overrides; flags such as ``--multirun`` come first.
    """
    from fairseq_cli import hydra_train as command

    before = os.getcwd()
    options = ["--config-dir", str(folder), "--config-name", name]
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none", "hydra.output_subdir=null"]
    try:
        return run_main(command.cli_main, *options, *overrides, "hydra.run.dir=run", *quiet)
    finally:
        os.chdir(before)


def start_training(output: Path, *arguments: str, **environment: str):
    """A process of stock ``fairseq-train``, forked from this one, which has imported everything.

    Args:
        output: file for what it prints.
    """
    forking = multiprocessing.get_context("fork")
    arguments = ("--user-dir", USER_DIR, *TRAINING, *map(str, arguments))
    process = forking.Process(target=_train_here, args=(output, arguments, environment))
    process.start()
    return process


def _train_here(output: Path, arguments: Sequence[str], environment: Dict[str, str]) -> None:
    from fairseq_cli import train as command

    with open(output, "w", buffering=1, encoding="utf-8") as stream:
        for number in (1, 2):
            os.dup2(stream.fileno(), number)
        sys.stdout = sys.stderr = stream
        logging.basicConfig(stream=stream, level="INFO", force=True)
        os.environ.update(environment)
        sys.argv = ["fairseq-train", *arguments]
        try:
            command.cli_main()
        except Exception:
            traceback.print_exc()
            raise SystemExit(1) from None


def train_in_processes(data: Path, save_dir: Path, *arguments: str, model=MODEL) -> List[str]:
    """Train with two processes of stock ``fairseq-train`` on the CPU and return their outputs."""
    # Processes that find each other by a file need no free port; it must be new.  as_uri() would
    # write spaces as %20, which torch takes as they are.
    run = Path(tempfile.mkdtemp(prefix=f"{save_dir.name}.", dir=save_dir.parent))
    command = [
        *[data, *model, "--save-dir", save_dir],
        *["--distributed-world-size", "2", "--distributed-no-spawn"],
        *["--distributed-init-method", f"file://{run}/rendezvous"],
        *["--distributed-backend", "gloo", "--ddp-backend", "legacy_ddp", *arguments],
    ]
    outputs = [run / f"output.{rank}" for rank in (0, 1)]
    processes = [
        start_training(output, *command, "--distributed-rank", str(rank))
        for rank, output in enumerate(outputs)
    ]
    for process, output in zip(processes, outputs):
        process.join(timeout=300)
        if process.exitcode != 0:
            for other in processes:
                other.kill()
            raise RuntimeError(f"exit status {process.exitcode}: {output.read_text()[-3000:]}")
    return [output.read_text() for output in outputs]


def _language_model(words: Path, text: str, folder: Path, save_dir: Path, *arguments: str) -> Path:
    """Train a language model with the text, which is also its validation and test set.

    Args:
        words: dictionary.
        text: sentences with blank lines between documents.
        folder: where to write the text and its binarised form, in ``bin``.
        save_dir: where to write the checkpoint that is returned.
    """
    from fairseq_cli import preprocess
    from fairseq_cli import train as command

    folder.mkdir(exist_ok=True)
    (folder / "text").write_text(text, encoding="utf-8")
    splits = [f"--{name}pref={folder / 'text'}" for name in ("train", "valid", "test")]
    options = ["--only-source", "--srcdict", words, "--destdir", folder / "bin", *splits]
    run_main(preprocess.cli_main, *options)
    run_main(
        command.cli_main,
        *[folder / "bin", "--task", "language_modeling", "--sample-break-mode", "complete_doc"],
        *[*TRAINING, "--criterion", "cross_entropy", "--save-dir", save_dir, *arguments],
    )
    return save_dir / "checkpoint_last.pt"


def sentence_lm(data: Path, folder: Path) -> str:
    """Two barely trained language models of the source, for ``--sentence-lm``."""
    options = "--arch lstm_lm --decoder-embed-dim 5 --decoder-hidden-size 7 "
    options += "--decoder-out-embed-dim 7 --tokens-per-sample 100 --max-tokens 200 --max-update 3"
    lines = [line.split() for document in documents((4, 6), 9) for line in document]
    paths = []
    for step, name in ((1, "forward"), (-1, "backward")):
        text = text_of([[" ".join(line[::step])] for line in lines])
        made = folder / name
        words = data / "dict.src.txt"
        paths.append(str(_language_model(words, text, made, made, *options.split())))
    return os.pathsep.join(paths)


def document_lm(words: Path, folder: Path, docs: Sequence[Sequence[str]]) -> Path:
    """A barely trained language model of documents, in ``lm``, with its data in ``bin``.

    Args:
        words: dictionary.
        folder: where to write.
        docs: documents to train and test with.
    """
    options = "--arch transformer_lm --decoder-layers 1 --decoder-embed-dim 16 "
    options += "--decoder-ffn-embed-dim 32 --decoder-attention-heads 2 --tokens-per-sample 50 "
    options += "--max-tokens 60 --max-update 15 --lr 0.02"
    return _language_model(words, text_of(docs), folder, folder / "lm", *options.split())


def weights(checkpoint: Path) -> dict:
    """Tensors of a trained model."""
    return torch.load(checkpoint, map_location="cpu", weights_only=False)["model"]


def assert_same_weights(one: Path, other: Path) -> None:
    """Assert that all tensors of two checkpoints are equal to the bit."""
    wanted, found = weights(one), weights(other)
    assert wanted.keys() == found.keys()
    for name, value in wanted.items():
        assert torch.equal(value, found[name]), name


def generate(data: Path, checkpoint, *arguments: str) -> str:
    """Translate the test split with stock ``fairseq-generate`` and return its output."""
    from fairseq_cli import generate as command

    return run_main(
        command.cli_main,
        str(data),
        *["--user-dir", USER_DIR, "--path", str(checkpoint), *DEVICE, "--num-workers", "0"],
        *["--beam", "3", "--max-len-b", "12", "--no-progress-bar", *arguments],
    )


def valid_bleu(data: Path, checkpoint, *arguments: str) -> float:
    """BLEU of the validation split by ``fairseq-generate``, as validation searches in the tests."""
    search = ["--gen-subset", "valid", "--beam", "2", "--max-len-b", "10"]
    output = generate(data, checkpoint, *arguments, *search, "--scoring", "sacrebleu")
    return float(re.search(r"BLEU\S* = ([\d.]+)", output).group(1))


def dictionary(words: int = 12):
    """A dictionary of the tiny language with the document symbols."""
    from fairseq.data import Dictionary

    from fairseq_docmt.data import add_document_symbols

    words_only = Dictionary()
    for number in range(words):
        words_only.add_symbol(f"w{number}")
    return add_document_symbols(words_only)


def as_built(*arguments: str, seed: int = 0):
    """A model in evaluation mode and float64, with its initial parameters."""
    import torch
    from fairseq import options
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    args = options.parse_args_and_arch(options.get_training_parser(), ["data", *arguments])
    torch.manual_seed(seed)
    task = TranslationTask(TranslationConfig(), dictionary(), dictionary())
    return task.build_model(args).double().eval()


def model(*arguments: str, seed: int = 0):
    """As :func:`as_built`, with random values for parameters that are initialised as constants.

    Biases, norms and what begins as zeros get them too, so that nothing hides behind them.
    """
    import torch

    built = as_built(*arguments, seed=seed)
    for name, parameter in built.named_parameters():
        if parameter.dim() == 1 or not parameter.any():
            torch.nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)
    return built


def diverged(checkpoint: Path, folder: Path) -> str:
    """A copy of a checkpoint with a parameter that is NaN."""
    state = torch.load(checkpoint, weights_only=False)
    next(weight for weight in state["model"].values() if weight.dim() > 1)[0, 0] = torch.nan
    torch.save(state, folder / "diverged.pt")
    return str(folder / "diverged.pt")


def with_noise(checkpoint: Path, deviation: float = 0.3) -> Path:
    """The checkpoint with noise on all parameters, so that none is near where it began.

    What vectors are divided by stays.
    """
    import torch
    from fairseq import checkpoint_utils

    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    generator = torch.Generator().manual_seed(4)
    for name, value in state["model"].items():
        if value.is_floating_point() and not name.endswith((".version", ".deviation")):
            value += deviation * torch.randn(value.shape, generator=generator)
    checkpoint_utils.torch_persistent_save(state, str(checkpoint))
    return checkpoint


def lines_of(output: str, kind: str = "H") -> Dict[int, str]:
    """Text of the lines ``H-12 <score> text`` of an output by number; the first of several."""
    found: Dict[int, str] = {}
    for match in re.finditer(rf"^{kind}-(\d+)\t(.*)$", output, flags=re.M):
        text = match.group(2).split("\t")[-1]
        found.setdefault(int(match.group(1)), text)
    return found


def rows_of(docs: Sequence[Sequence[str]]) -> List[int]:
    """Line numbers of the sentences of documents with one blank line between them."""
    rows, row = [], 0
    for doc in docs:
        rows.extend(range(row, row + len(doc)))
        row += len(doc) + 1
    return rows


def scores_of(output: str) -> Dict[int, str]:
    """Scores of the first ``H-`` line of each number."""
    found: Dict[int, str] = {}
    for match in re.finditer(r"^H-(\d+)\t([^\t]*)\t", output, flags=re.M):
        found.setdefault(int(match.group(1)), match.group(2))
    return found


def links_within_sentences(output: str) -> int:
    """Number of links of all ``A-`` lines; raises if one is outside its sentence pair."""
    count = 0
    sources, hypotheses = lines_of(output, "S"), lines_of(output)
    for row, text in lines_of(output, "A").items():
        for link in text.split():
            source, target = map(int, link.split("-"))
            inside = 0 <= source < len(sources[row].split())
            assert inside and 0 <= target < len(hypotheses[row].split()), (row, link)
            count += 1
    return count
