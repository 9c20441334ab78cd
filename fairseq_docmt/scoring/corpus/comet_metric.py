"""COMET (Rei et al., 2020) as a sacreBLEU metric, so that sacreBLEU's significance tests apply.

Two variants score sentences together with context.  The metric ``comet-doc`` (Vernikos et al.,
2022) scores each sentence with the two sentences before it; the target side of this context is
always the reference.  The metric ``comet-slide`` scores blocks of consecutive sentences, as SLIDE
does (Raunak et al., 2024).  The package unbabel-comet runs in a separate process, because it needs
an older NumPy than fairseq.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Sequence

from sacrebleu.metrics.base import Signature

from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.scoring.corpus.segment_scores import SegmentMean
from fairseq_docmt.scoring.texts.test_set import Translations

#: Number of previous sentences as context (Vernikos et al., 2022).
CONTEXT = 2
#: Number of sentences in a block (after SLIDE, Raunak et al., 2024; the size is our choice).
WINDOW = 6
DEFAULT_MODEL = "Unbabel/wmt22-comet-da"
#: Function from samples to their COMET scores.  A sample is a dictionary with ``src``, ``mt`` and,
#: if the model needs it, ``ref``.
Scorer = Callable[[List[dict]], List[float]]


class CometSignature(Signature):
    """sacreBLEU signature with the COMET model, the unbabel-comet version and the context size."""

    def __init__(self, args: dict):
        super().__init__(args)
        for name in ("model", "comet", "context"):
            self.info[name] = args[name]
        if args["num_refs"] > 1:
            self.info["refs"] = "mean"


class Comet(SegmentMean):
    """Mean COMET score over segments, times 100.

    With several references, the score of a segment is the mean of its scores with each reference.

    Args:
        texts: test set with source.
        model: name or checkpoint of a COMET model; None for the default.
        python: Python executable with unbabel-comet installed; None for the running interpreter.
        context: number of previous sentences that COMET reads with each sentence; 0 for none.

    Raises:
        UserError: the test set has no source.
    """

    _SIGNATURE_TYPE = CometSignature

    def __init__(
        self, texts: Translations, model: Optional[str], python: Optional[str], context: int = 0
    ):
        super().__init__("COMET", scale=100)
        if texts.source is None:
            raise UserError("COMET also reads the source; give --source")
        self._texts, self._python = texts, python or sys.executable
        # A path in the signature would depend on the machine.
        self.model = model or DEFAULT_MODEL
        self.context = context
        self._version = "?"

    def get_signature(self) -> Signature:
        """Return the sacreBLEU signature, which gives the model, the version and the context size.

        A checkpoint is given by its file name, because its folder differs between machines.
        """
        return CometSignature(
            {
                "num_refs": len(self._texts.references),
                "model": Path(self.model).name,
                "comet": self._version,
                "context": self.context,
            }
        )

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> List[List[float]]:
        samples = [
            self._sample(i, text, reference)
            for reference in references
            for i, text in enumerate(hypotheses)
        ]
        found = run(self._python, self.model, samples, self.context > 0)
        self._version = found.version
        size = len(hypotheses)
        by_reference = [found.scores[n * size : (n + 1) * size] for n in range(len(references))]
        return [[sum(scores) / len(scores), 1] for scores in zip(*by_reference)]

    def _sample(self, i: int, text: str, reference: Sequence[str]) -> dict:
        if not self.context:
            return {"src": self._texts.source[i], "mt": text, "ref": reference[i]}
        first = i - min(int(self._texts.index.position[i]), self.context)
        before = list(reference[first:i])
        return {
            "src": list(self._texts.source[first : i + 1]),
            "mt": [*before, text],
            "ref": [*before, reference[i]],
        }


def windows_of(texts: Translations, size: int = WINDOW) -> Translations:
    """Return a test set in which consecutive sentences are joined into blocks, as in SLIDE.

    Blocks do not overlap and do not extend over the end of a document.

    Args:
        texts: test set.
        size: number of sentences in a block; the last block of a document may have fewer.

    Returns:
        Copy of the test set in which ``systems``, ``references`` and ``source`` hold blocks instead
        of sentences.  All other attributes, such as ``index``, still describe sentences.
    """
    spans = [
        (begin, min(begin + size, end))
        for first, end in texts.index.spans
        for begin in range(first, end, size)
    ]

    def join(sentences: Sequence[str]) -> List[str]:
        return [" ".join(sentences[a:b]) for a, b in spans]

    return texts._replace(
        systems={name: join(sentences) for name, sentences in texts.systems.items()},
        references=[join(sentences) for sentences in texts.references],
        source=texts.source and join(texts.source),
    )


def add_arguments(parser: argparse.ArgumentParser, model: str = DEFAULT_MODEL) -> None:
    """Add the options ``--comet-model`` and ``--comet-python``.

    Args:
        parser: parser of a command.
        model: name of the command's default model, for the help text.
    """
    parser.add_argument("--comet-model", metavar="NAME|FILE", help=f"for comet; default: {model}")
    parser.add_argument(
        "--comet-python",
        metavar="FILE",
        help="Python of another environment, with unbabel-comet; default: this one",
    )


def refuse_unused(args: argparse.Namespace, used: bool, by: str) -> None:
    """Refuse ``--comet-model`` and ``--comet-python`` if no COMET score is computed.

    Args:
        args: options of the command line.
        used: whether a COMET score is computed.
        by: options that would request COMET, for the error message.

    Raises:
        UserError: one of these options is given, but has no effect.
    """
    for option in ("comet_model", "comet_python"):
        if getattr(args, option) is not None and not used:
            raise UserError(f"{flag(option)} is for {by}; leave it out")


def scorer(args: argparse.Namespace, model: str = DEFAULT_MODEL) -> Scorer:
    """Return a function that scores samples with the COMET model of ``--comet-model``.

    Args:
        args: options of the command line.
        model: model to use if ``--comet-model`` is not given.

    Returns:
        Function from samples to their scores.  Samples are dictionaries with ``src``, ``mt`` and,
        if the model needs it, ``ref``.
    """
    python, name = args.comet_python or sys.executable, args.comet_model or model
    return lambda samples: run(python, name, samples).scores


class Scored(NamedTuple):
    """COMET scores of samples, and the version of unbabel-comet that computed them."""

    scores: List[float]
    version: str


def run(python: str, model: str, samples: List[dict], context: bool = False) -> Scored:
    """Score samples with COMET in a separate process; return the scores and the version of COMET.

    Args:
        python: Python executable with unbabel-comet installed.
        model: name or checkpoint of a COMET model.
        samples: dictionaries with ``src``, ``mt`` and, if the model needs it, ``ref``.  Each value
            is a sentence or, if ``context`` is True, a list of sentences.
        context: if True, the last sentence of each list is scored, and the sentences before it are
            its context.

    Raises:
        UserError: the Python executable, the package or the model cannot be used.
    """
    environment = dict(os.environ)
    if python != sys.executable:
        environment.pop("PYTHONPATH", None)  # its packages may be older
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.json"), Path(folder, "out.json")
        wanted = {"model": model, "samples": samples, "context": context, "batch_size": 16}
        source.write_text(json.dumps(wanted), encoding="utf-8")
        worker = Path(__file__).with_name("comet_worker.py")
        command = [python, str(worker), str(source), str(target)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
        except OSError as error:
            raise UserError(f"--comet-python {python} cannot be run: {error.strerror}") from None
        if done.returncode or not target.is_file():
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise UserError(f"COMET stopped with status {done.returncode}: {last[:300]}")
        found = json.loads(target.read_text(encoding="utf-8"))
    if "error" in found:
        raise UserError(found["error"])
    for sample, score in zip(samples, found["scores"]):
        if not math.isfinite(score):
            text = sample["mt"][-1] if context else sample["mt"]
            raise UserError(
                f"COMET gives {text[:60]!r} the score {score}, which is not finite; use another "
                "--comet-model"
            )
    return Scored(found["scores"], found["version"])
