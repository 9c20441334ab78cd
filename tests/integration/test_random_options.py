"""Random options of fairseq-generate and fairseq-interactive with every decoding.

A trial draws a system, a decoding and some options.  It must be refused in one sentence, or
translate every line once, with finite scores, best hypothesis first; with another batch size and by
fairseq-interactive the translations must be the same, unless they are random.

Covers generation/option_checks.py and tasks/_option_checks.py.
"""

import functools
import math
import random
import re
from typing import Callable, List, NamedTuple, Optional

import numpy as np
import pytest
import tiny
import torch
from long_tests import LONG, long_but_for

from fairseq_docmt.error_sentences import reason_of

DOCS = tiny.documents((1, 5, 2, 7), 2)
ROWS = tiny.rows_of(DOCS)
LINES = tiny.text_of(DOCS).rstrip("\n").split("\n")
WINDOW = ["--task", "sliding_window_translation"]
DOCUMENT = ["--task", "full_document_translation"]
STREAM = ["--task", "sentence_stream_translation"]
ROWS_OF_DOCUMENTS = ["--task", "document_rows_translation"]
OF_WINDOWS = ("sequential", "window", "segment", "overlap")
OF_DOCUMENTS = ("segment", "sequential", "sequential-full-source")
THREE = ["--window-size", "3"]
PARTS = ["--max-document-tokens", "20"]
LANES = ["--batch-size", "3", "--chunk-sentences", "2"]


class System(NamedTuple):
    """A trained model: options of its task, further ones of training, decodings, architecture."""

    task: List[str]
    training: List[str]
    decodings: tuple
    model: List[str] = tiny.MODEL


SYSTEMS = {
    "windows": System(WINDOW, THREE, OF_WINDOWS),
    "sentences": System(WINDOW, ["--window-size", "1"], OF_WINDOWS),
    "next": System(WINDOW, [*THREE, "--next-sentences", "1", "--mark-document-start"], OF_WINDOWS),
    "rfa": System(WINDOW, THREE, OF_WINDOWS, tiny.rfa("--sentence-gate", "decay")),
    "rnnsearch": System(WINDOW, THREE, OF_WINDOWS, tiny.rnnsearch("--decoder-layers", "2")),
    "lstm": System(WINDOW, THREE, OF_WINDOWS, tiny.RECURRENT_MODEL),
    "align": System(
        WINDOW,
        THREE,
        OF_WINDOWS,
        ["--arch", "transformer_align", *tiny.MODEL[2:], "--alignment-layer", "0"],
    ),
    "documents": System(DOCUMENT, PARTS, OF_DOCUMENTS),
    "marked": System(DOCUMENT, [*PARTS, "--mark-document-start"], OF_DOCUMENTS),
    "window-attention": System(
        DOCUMENT, PARTS, OF_DOCUMENTS, tiny.window("--train-alignment", "sentence")
    ),
    "lst": System(DOCUMENT, PARTS, OF_DOCUMENTS, tiny.lst()),
    "group": System(DOCUMENT, PARTS, OF_DOCUMENTS, tiny.group()),
    "memnet": System(
        ROWS_OF_DOCUMENTS,
        [*PARTS, "--gold-drafts", "--lr", "0.03"],
        ("iterative",),
        tiny.memnet("--context-side", "target"),
    ),
    "memory": System(STREAM, LANES, ("stream",), tiny.memory()),
    "cache": System(STREAM, [*LANES, "--lr", "0.03"], ("stream",), tiny.cache()),
    "context": System(
        STREAM, [*LANES, "--lr", "0.03"], ("stream",), tiny.context("--context", "hierarchical")
    ),
    "han": System(STREAM, LANES, ("stream",), tiny.han("--context-sentences", "2")),
    "multi-encoder": System(
        STREAM, LANES, ("stream",), tiny.multi_encoder("--context-side", "both")
    ),
}
#: systems of make test, which other tests train too
FEW = ("windows", "documents", "memory")

#: option -> values to draw from, "" for none
OPTIONS = {
    "--beam": ["1", "2", "4", "7", "30"],
    "--nbest": ["2", "3"],
    "--max-len-a": ["0.5", "1", "2"],
    "--max-len-b": ["1", "3", "40"],
    "--min-len": ["0", "2", "6"],
    "--match-source-len": [""],
    "--unnormalized": [""],
    "--no-early-stop": [""],
    "--lenpen": ["0", "0.6", "3", "-1"],
    "--unkpen": ["1000", "-2"],
    "--temperature": ["0.05", "0.5", "3"],
    "--no-repeat-ngram-size": ["1", "2", "3"],
    "--sampling": [""],
    "--diverse-beam-groups": ["1", "2", "3"],
    "--diversity-rate": ["0", "0.5"],
    "--print-alignment": ["", "hard", "soft"],
    "--prefix-size": ["1", "2", "50"],
    "--constraints": ["", "unordered"],
    "--score-reference": [""],
    "--retain-dropout": [""],
    "--force-sentence-count": [""],
    "--wrong-sentence-count": ["keep"],
    "--gold-context": [""],
    "--normalize-with-context": [""],
    "--truncate-source": [""],
    "--max-source-positions": ["6", "40"],
    "--max-target-positions": ["3", "40"],
    "--skip-invalid-size-inputs-valid-test": [""],
    "--left-pad-source": [""],
    "--decode-passes": ["0", "2"],
    "--decode-order": ["in-turn"],
    "--post-process": ["", "sentencepiece"],
    "--model-overrides": ["{'dropout': 0.5}"],
    "--fp16": [""],
    "--bf16": [""],
    "--batch-size": ["1", "2", "5"],
    "--max-tokens": ["1", "25", "60"],
    "--data-buffer-size": ["0"],
    "--seed": ["5"],
    "--no-seed-provided": [""],
    "--log-format": ["json", "none"],
    "--scoring": ["sacrebleu", "chrf"],
    "--tokenizer": ["space"],
    "--dataset-impl": ["mmap"],
    "--eval-bleu": [""],
}
LEAVE_OUT = "; leave it out"
NEEDS = "; give both or neither"
#: sentences that any of these options may end with, in one decoding, system or combination
SENTENCES = [
    "--max-len-a .* with --max-len-b .* leaves no room for a word; give larger ones",
    "--min-len .* is more than --max-len-b .*; change one of them",
    "--nbest .* is more than --beam .*; give a wider beam",
    "--lenpen has no effect with --unnormalized; leave one of them out",
    "--beam .* must be divisible by --diverse-beam-groups .*; change one of them",
    "--(div|con).* needs a --beam below half of the 18 words of the target dictionary, got 30",
    "--.* are different searches; give one of them",
    "--sampling requires --nbest to be equal to --beam",
    "--prefix-size can end a translation before --match-source-len lets it; leave one of them out",
    "--match-source-len compares with the source of the whole window" + LEAVE_OUT,
    "--print-alignment needs attention weights, which a .* does not give while decoding"
    + LEAVE_OUT,
    "--print-alignment soft gives weights over all context; use --print-alignment hard",
    "--print-alignment soft gives the weights of a search; use --print-alignment hard with "
    "--score-reference",
    "--print-alignment soft fails in fairseq-interactive; use .*",
    "--print-alignment of a model trained with alignments needs the whole output at once; use .*",
    "--(prefix-size|constraints) applies to one sentence, but .*; use --decoding sequential",
    "--constraints is for fairseq-interactive, which reads them .*; use that, or leave it out",
    "--(force|wrong)-sentence-count.* has no meaning with --decoding .*" + LEAVE_OUT,
    "--force-sentence-count leaves nothing to --wrong-sentence-count keep; leave one of them out",
    "--normalize-with-context has no meaning with --decoding .*" + LEAVE_OUT,
    "--gold-context needs a decoding that translates sentences one after the other .*, not .*",
    "--normalize-with-context changes the search; leave it out with --score-reference.*",
    ".*line .* has more tokens than the model's 6 source positions; split it.*",
    "Cannot combine --fp16 and --tpu.*",
]
#: mistakes, each with the beginning of its sentence
MISTAKES = {
    "--beam 0": "--beam must be at least 1, got 0",
    "--nbest 0": "--nbest must be at least 1, got 0",
    "--max-len-a -1": "--max-len-a -1.0 with",
    "--max-len-a nan": "--max-len-a must be a finite number, got nan",
    "--max-len-b 0": "--max-len-a 0.0 with --max-len-b 0 leaves no room",
    "--min-len -1": "--min-len must not be negative, got -1",
    "--lenpen inf": "--lenpen must be a finite number, got inf",
    "--lenpen-mt 2": "--lenpen-mt is for translation of speech",
    "--unkpen nan": "--unkpen must be a finite number, got nan",
    "--temperature 0": "--temperature must be positive, got 0.0",
    "--temperature nan": "--temperature must be a finite number, got nan",
    "--no-repeat-ngram-size -1": "--no-repeat-ngram-size must not be negative, got -1",
    "--prefix-size -1": "--prefix-size must not be negative, got -1",
    "--sampling --nbest 3 --sampling-topk 1000": "--sampling-topk must be from 1 to 18, the words",
    "--sampling --nbest 3 --sampling-topp 2": "--sampling-topp must be above 0 and at most 1",
    "--sampling --nbest 3 --sampling-topk 3 --sampling-topp 0.5": "fairseq ignores --sampling-topk",
    "--sampling --nbest 2": "--sampling requires --nbest to be equal to --beam",
    "--sampling-topk 3": "--sampling-topk needs --sampling",
    "--diverse-beam-strength 2": "--diverse-beam-strength needs --diverse-beam-groups",
    "--diversity-rate -0.5": "--diversity-rate must not be negative, got -0.5",
    "--retain-dropout-modules TransformerDecoder": "--retain-dropout-modules needs",
    "--beam-mt 3": "--beam-mt is for translation of speech",
    "--eos-token v1": "--eos-token is for translation of speech",
    "--print-step": "--print-step is for non-autoregressive models",
    "--retain-iter-history": "--retain-iter-history is for non-autoregressive models",
    "--iter-decode-max-iter 3": "--iter-decode-max-iter is for non-autoregressive models",
    "--decoding-format vote": "--decoding-format is for non-autoregressive models",
    "--sacrebleu": "fairseq ignores --sacrebleu; give --scoring sacrebleu",
    "--replace-unk": "--replace-unk ",
    "--lm-weight 0.3": "--lm-weight needs --lm-path",
    "--post-process nothing": "--post-process nothing is unknown to fairseq",
    "--model-overrides {": "--model-overrides must be a dictionary such as",
    "--batch-size 0": "--batch-size must be at least 1, got 0",
    "--max-tokens 0": "--max-tokens must be at least 1, got 0",
    "--num-shards 2": "--num-shards 2 is ignored by fairseq",
    "--checkpoint-suffix x": "checkpoint ",
    "--checkpoint-shard-count 0": "--checkpoint-shard-count must be at least 1, got 0",
    "--dataset-impl fasta": "--dataset-impl fasta has no texts",
}
#: options of fairseq-generate alone
OF_CORPORA = {
    "--num-workers -1": "--num-workers must not be negative, got -1",
    "--distributed-world-size 0": "--distributed-world-size must be at least 1, got 0",
    "--distributed-rank 1": "--distributed-rank must be below --distributed-world-size 1, got 1",
    "--gen-subset nothing": "/",
}
#: options that some trials have in any case, as they go together
TOGETHER = [
    "",
    "--sampling",
    "--sampling --sampling-topk 3",
    "--sampling --sampling-topp 0.4 --temperature 0.02",
    "--diverse-beam-groups 2",
    "--diversity-rate 0.3",
    "--print-alignment hard",
    "--print-alignment hard --max-len-a 0.4 --max-len-b 0",
    "--match-source-len --max-len-b 1",
    "--score-reference",
    "--prefix-size 2",
    "--constraints",
    "--no-repeat-ngram-size 1",
]
#: with these, translations are random, or rounded in another way in other batches
RANDOM = ("--sampling", "--retain-dropout", "--fp16")
#: what fairseq-interactive lacks, or reads as something else
OF_GENERATE = ("--gold-context", "--prefix-size", "--score-reference", "--dataset-impl")


class Trial(NamedTuple):
    """A system, a decoding and options, of which a few are given in any case."""

    system: str
    decoding: str
    options: List[str]
    ensemble: bool

    def value(self, option: str, default: str) -> str:
        """Return the last value of an option."""
        places = [i for i, given in enumerate(self.options) if given == option]
        return self.options[places[-1] + 1] if places else default

    @property
    def nbest(self) -> int:
        """Number of hypotheses of a sentence."""
        return int(self.value("--nbest", "1"))

    def has(self, options) -> bool:
        """Return whether one of some options is given."""
        return any(option in self.options for option in options)


def drawn(seed: int, systems=tuple(SYSTEMS)) -> Trial:
    """Return the trial of a seed."""
    generator = random.Random(seed)
    name = systems[seed % len(systems)]
    decoding = generator.choice(SYSTEMS[name].decodings)
    options = generator.choice(TOGETHER).split()
    for option in generator.sample(sorted(OPTIONS), generator.choice([0, 1, 2, 2, 3, 4])):
        value = generator.choice(OPTIONS[option])
        of_rows = option.startswith("--decode-")
        if option in options or (of_rows and SYSTEMS[name].task is not ROWS_OF_DOCUMENTS):
            continue
        options += [option, value] if value else [option]
    trial = Trial(name, decoding, options, generator.random() < 0.15)
    if "--sampling" in options and generator.random() < 0.9:  # all samples are printed
        options += ["--nbest", trial.value("--beam", "3")]
    return trial


def seeded(run: Callable[[], str]) -> str:
    """Return the output of a command.

    Raises:
        Refused: with the sentence that the user reads; other errors come from the command.
    """
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    try:
        return run()
    except Exception as error:
        reason = reason_of(error)
        if reason is None:
            raise
        raise Refused(reason) from error


class Refused(Exception):
    """A command ends with one sentence."""


@pytest.fixture(scope="module")
def translate(binarised, barely_trained):
    """Return a function that runs a trial by fairseq-generate or -interactive."""

    @functools.lru_cache(maxsize=None)
    def checkpoint(name: str):
        system = SYSTEMS[name]
        return barely_trained(*system.task, *system.training, model=system.model)

    def run(trial: Trial, *more: str, lines: Optional[List[str]] = None) -> str:
        path = str(checkpoint(trial.system))
        path = f"{path}:{path}" if trial.ensemble else path
        options = [*SYSTEMS[trial.system].task, "--decoding", trial.decoding, *trial.options, *more]
        if lines is None:
            return seeded(lambda: tiny.generate(binarised, path, *options))
        options = ["--buffer-size", "100", *options]
        return seeded(lambda: tiny.interactive(binarised, path, lines, *options))

    return run


def checked(output: str, trial: Trial, rows: List[int]) -> dict:
    """Return the hypotheses of each line, after checking that an output is in order."""
    found: dict = {}
    scored = re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, flags=re.M)
    positional = re.findall(r"^P-(\d+)\t(.*)$", output, flags=re.M)
    for (row, score, text), (other, scores) in zip(scored, positional, strict=True):
        assert row == other
        found.setdefault(int(row), []).append((float(score), text))
        numbers = [float(score), *map(float, scores.split())]
        assert all(map(math.isfinite, numbers)), (row, numbers)
        if not trial.has(("--post-process", "--sampling", "--diversity-rate", "--retain-dropout")):
            assert len(numbers) == len(text.split()) + 2, (row, text)
        assert not re.search(r"<sep>|<bod>|<pad>|</s>", text)
    assert sorted(found) == sorted(rows)
    for hypotheses in found.values():
        scores = [score for score, _ in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert 1 <= len(hypotheses) <= trial.nbest
    if "--sampling" in trial.options and "--score-reference" not in trial.options:
        samples = min(trial.nbest, 17)  # fairseq draws no more than there are words
        numbers = {len(found[row]) for row in ROWS}
        # Equal samples of several windows are merged.
        assert numbers == {samples} or (trial.decoding == "overlap" and max(numbers) <= samples)
    return {row: [text for _, text in found[row]] for row in ROWS}


def refused_or(trial: Trial, run: Callable[[], str]) -> str:
    """Return the output of a trial, which may be refused by one of the sentences.

    Raises:
        Refused: with this sentence.
    """
    try:
        return run()
    except Refused as refusal:
        reason = str(refusal)
        assert any(re.fullmatch(sentence, reason) for sentence in SENTENCES), reason
        raise


def check(trial: Trial, translate) -> str:
    """Run a trial; return the sentence of its refusal, or "".

    Raises:
        AssertionError: the output is not in order.
    """
    reason = texts = ""
    fixed = not trial.has(RANDOM)
    try:
        texts = checked(refused_or(trial, lambda: translate(trial)), trial, ROWS)
    except Refused as refusal:
        reason = str(refusal)
    if texts and fixed and not trial.has(("--batch-size", "--max-tokens")):
        assert checked(translate(trial, "--batch-size", "1"), trial, ROWS) == texts
    if trial.has(OF_GENERATE):
        return reason
    lines = LINES
    if "--constraints" in trial.options:
        lines = [
            f"{line}\tv{len(line) % 7}" if line and n % 2 else line for n, line in enumerate(LINES)
        ]
    try:
        typed = refused_or(trial, lambda: translate(trial, lines=lines))
    except Refused as refusal:
        assert reason or "-interactive" in str(refusal)
        return reason or str(refusal)
    assert not reason or "--constraints is for" in reason
    found = checked(typed, trial, list(range(len(LINES))))
    if texts and fixed:
        assert found == texts
    if reason and fixed and not trial.has(("--batch-size", "--max-tokens")):
        again = translate(trial, "--batch-size", "4", lines=lines)
        assert checked(again, trial, list(range(len(LINES)))) == found
    return ""


def name_of(trial: Trial) -> str:
    """Return the name of a trial for a report."""
    return " ".join([trial.system, trial.decoding, *trial.options, *["ensemble"] * trial.ensemble])


#: trials of make test, and all of the long test
QUICK, TRIALS = 3, 300


@pytest.mark.parametrize("seed", range(QUICK))
def test_a_few_trials(translate, seed):
    check(drawn(seed, FEW), translate)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=LONG) for seed in range(TRIALS)])
def test_trials(translate, seed, record_property):
    trial = drawn(seed)
    record_property("trial", name_of(trial))
    record_property("outcome", check(trial, translate))


@pytest.mark.parametrize("mistake", long_but_for(["--max-len-b 0"], {**MISTAKES, **OF_CORPORA}))
def test_mistakes_with_each_decoding(translate, mistake):
    """Mistakes of single commands and their whole sentences are in test_mistakes.py."""
    for name in FEW:
        for decoding in SYSTEMS[name].decodings:
            trial = Trial(name, decoding, mistake.split(), False)
            commands = [dict()] if mistake in OF_CORPORA else [dict(), dict(lines=LINES)]
            for command in commands:
                with pytest.raises(Refused) as refusal:
                    translate(trial, **command)
                sentence = str(refusal.value)
                assert sentence.startswith({**MISTAKES, **OF_CORPORA}[mistake]), sentence
                assert "\n" not in sentence
