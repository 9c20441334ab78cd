"""Every mistake gets one sentence and a non-zero exit status, and leaves nothing half written.

A case is a way to break things, the command line of a user, and the whole message.  Commands run in
this process; test_errors.py shows once what a process makes of their exceptions.

Covers checkpoint_file.py, tasks/starts/checkpoints.py, tasks/_text_folders.py and
tasks/_training_examples.py.
"""

import gc
import json
import runpy
import shutil
from pathlib import Path
from typing import Callable, NamedTuple, Sequence

import check_documents
import hold_out
import prepare
import pytest
import tab_separated
import tiny
import torch
from fairseq.data import indexed_dataset

from fairseq_docmt import command_line
from fairseq_docmt.error_sentences import reason_of
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator

NO_PLACE = "%s has no place in validation; leave it out of --eval-bleu-args"
WINDOWS = ["--task", "sliding_window_translation"]
DOCUMENTS = ["--task", "full_document_translation"]
ROWS = ["--task", "document_rows_translation"]
STREAM = ["--task", "sentence_stream_translation", "--batch-size", "2"]
CHECK = "run data_prep/check_documents.py on the text and binarise it again"
COPY = "copy the data folder again, or binarise the split again"
CORRECT = "give the data folder of training, or binarise the text with its dictionaries "
CORRECT += "(--srcdict, --tgtdict of fairseq-preprocess)"
ALL_THE_SAME = "or add --override-checkpoint-options to use it anyway"
OTHER_DIRECTION = "the checkpoint translates tgt to src, not src to tgt; give data in its "
OTHER_DIRECTION += "languages (with a command of fairseq: --source-lang tgt --target-lang src, "
OTHER_DIRECTION += f"{ALL_THE_SAME})"
OTHER_VALUE = "leave the option out, or add --override-checkpoint-options to use another "
OTHER_VALUE += "value anyway"
RESUMED = "training would resume from {folder}/ck/checkpoint_last.pt, which was trained "
GO_ON = "give another --save-dir to begin a new training, leave the option out, or add "
GO_ON += "--override-checkpoint-options to go on with another value"
PREFIX = "--prefix-size is for fairseq-generate with references, whose first words it takes; leave "
PREFIX += "it out"
RESERVED = "which is reserved for a symbol of the model"
DAMAGED = "is damaged or not a checkpoint; copy it again, use an earlier one or train again"


class Case(NamedTuple):
    """A mistake.

    Attributes:
        message: what the user reads after ``error: ``, ``{…}`` for paths of the test.
        arguments: command line, or keyword arguments of Python calls.
        break_it: changes the files of the test before.
        model: options of the model.
    """

    message: str
    arguments: Sequence = ()
    break_it: Callable = lambda place: None
    model: Sequence = tuple(tiny.MODEL)


class Place:
    """Folder of a test: the data of the checkpoint in ``data/``, the checkpoint as ``ck/…``."""

    def __init__(self, folder: Path, binarised: Path, checkpoint: Path):
        self.folder, self.data, self.save_dir = folder, folder / "data", folder / "ck"
        shutil.copytree(binarised, self.data)
        self.save_dir.mkdir()
        self.checkpoint = folder / "trained.pt"
        shutil.copy(checkpoint, self.checkpoint)

    def filled(self, text: str) -> str:
        """Text with the paths of this test."""
        names = {"folder": self.folder, "data": self.data, "checkpoint": self.checkpoint}
        for name, path in names.items():
            text = text.replace(f"{{{name}}}", str(path))
        return text

    def arguments(self, case: Case) -> list:
        return [self.filled(argument) for argument in case.arguments]

    def files(self) -> dict:
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.suffix != ".lock"
        }


@pytest.fixture(scope="module", autouse=True)
def imports_are_no_garbage():
    """The configuration of each command is a lot of small objects, which set off the collector."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def place(tmp_path, binarised, window_checkpoint):
    return Place(tmp_path / "place", binarised, window_checkpoint)


def complaint(run, capsys):
    """Exit status and last line on standard error of a command."""
    try:
        run()
    except UserError as error:
        return 1, f"error: {error}"
    except SystemExit as stop:
        if isinstance(stop.code, str):
            return 1, stop.code
        return stop.code, capsys.readouterr().err.splitlines()[-1]
    except Exception as error:  # of fairseq, which the hook turns into a sentence
        sentence = reason_of(error)
        if sentence is None:
            raise
        return 1, f"error: {sentence}"
    return 0, ""


def assert_refused(run, case, place, capsys):
    case.break_it(place)
    before = place.files()
    status, said = complaint(run, capsys)
    assert (status, said) == (1, f"error: {place.filled(case.message)}")
    assert "\n" not in said
    assert place.files() == before


# ---- breaking things -----------------------------------------------------------------------------


def remove(*names):
    def break_it(place):
        for name in names:
            for path in place.folder.glob(name):
                path.unlink() if path.is_file() else shutil.rmtree(path)

    return break_it


def write(name, text):
    def break_it(place):
        path = place.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else place.filled(text).encode())

    return break_it


def cut(name, by=9):
    def break_it(place):
        path = place.folder / name
        path.write_bytes(path.read_bytes()[:-by])

    return break_it


def both(*ways):
    def break_it(place):
        for way in ways:
            way(place)

    return break_it


def as_last(place):
    """The checkpoint is the last one of an earlier training."""
    shutil.copy(place.checkpoint, place.save_dir / "checkpoint_last.pt")


def binarise(split, src, tgt):
    """Replace a split by text in which 7 is a word and 2 the end of a sentence."""

    def break_it(place):
        for side, lines in (("src", src), ("tgt", tgt)):
            path = str(place.data / f"{split}.src-tgt.{side}")
            builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", vocab_size=20)
            for length in lines:
                builder.add_item(torch.tensor([7] * length + [2]))
            builder.finalize(f"{path}.idx")

    return break_it


def words_of(split, src, tgt, folder="data"):
    """Replace a split by lines of token numbers."""

    def break_it(place):
        for side, lines in (("src", src), ("tgt", tgt)):
            path = str(place.folder / folder / f"{split}.src-tgt.{side}")
            builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", vocab_size=200)
            for line in lines:
                builder.add_item(torch.tensor(line))
            builder.finalize(f"{path}.idx")

    return break_it


def changed_checkpoint(change, name="trained.pt"):
    def break_it(place):
        state = torch.load(place.checkpoint, weights_only=True)
        change(state)
        torch.save(state, place.folder / name)

    return break_it


def _swapped(place):
    """The checkpoint translates the other way round, with the same dictionaries."""

    def change(state):
        text = state["task_state"]["training_text"]
        text["languages"] = text["languages"][::-1]

    changed_checkpoint(change)(place)


def _stock(state):
    state["task_state"] = {}
    state["cfg"]["task"]["_name"] = "translation"


def _not_a_number(state):
    state["model"]["decoder.layers.0.fc1.weight"][0, 0] = float("nan")


class _RunsPrograms:
    def __reduce__(self):
        return (open, ("was_here", "w"))


def more_words(place):
    with open(place.data / "dict.src.txt", "a", encoding="utf-8") as words:
        words.write("another 1\nandanother 1\nandone 1\n")


def other_words(place):
    path = place.data / "dict.tgt.txt"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([lines[1], lines[0], *lines[2:]]), encoding="utf-8")


FORM = '{{"src": {src}, "tgt": {tgt}}}'
PLAIN = '{"tokenizer": "none", "truecaser": null, "bpe_codes": null}'


def form(src=PLAIN, tgt=PLAIN):
    text = FORM.replace("{{", "{").replace("}}", "}").replace("{src}", src).replace("{tgt}", tgt)
    return write("data/text_form.json", text)


def trained_with(src, tgt):
    """The checkpoint knows the form of its text."""

    def change(state):
        form = {"truecaser": None, "bpe_codes": None}
        state["task_state"]["training_text"]["forms"] = [{**form, **src}, {**form, **tgt}]

    return changed_checkpoint(change)


MOSES, JIEBA = {"tokenizer": "moses"}, {"tokenizer": "jieba"}
SUBWORDS = {"tokenizer": "none", "bpe_codes": "0123"}

# ---- training ------------------------------------------------------------------------------------

NEW = ["--max-tokens", "200"]
OTHER_MODEL = (
    "training would resume from {{folder}}/ck/checkpoint_last.pt, which was trained with --arch "
    "transformer, not {}; start from it with --finetune-from-model and another --save-dir"
)
LEAVE_OUT = ["--max-source-positions", "8", "--skip-invalid-size-inputs-valid-test"]
NONE_FITS = (
    "{data}/valid.src-tgt: all sentences have more than 8 source or 1024 target tokens; split "
    "them, or allow more (--max-source-positions, --max-target-positions, --max-tokens)"
)
TOO_LONG = (
    "{data}/valid.src-tgt: line %d has more than %d source or %d target tokens; split it, allow "
    "more (--max-source-positions, --max-target-positions, --max-tokens), or leave it out with "
    "--skip-invalid-size-inputs-valid-test"
)
FROM = [*WINDOWS, *NEW, "--finetune-from-model", "{folder}/other.pt"]
BY_OPTIMIZER = "fairseq cannot use the options of this {0} ({1}); fairseq-train {0} NAME --help "
BY_OPTIMIZER += "lists them with their defaults"
TRAINING = {
    "no data": Case(
        "data directory {data} not found; give the folder of fairseq-preprocess",
        [*WINDOWS, *NEW],
        remove("data"),
    ),
    "targets padded on the left": Case(
        "--left-pad-target is not supported by document tasks; leave it out",
        [*WINDOWS, *NEW, "--left-pad-target"],
    ),
    "batches in buckets": Case(
        "--num-batch-buckets is not supported by document tasks; leave it out",
        [*WINDOWS, *NEW, "--num-batch-buckets", "4"],
    ),
    "windows of the training set for validation": Case(
        (
            "--valid-subset has the training set, train, which fairseq would read with one "
            "iterator for both, so that every validation ends an epoch of training; binarise "
            "sentences of it as a validation set of its own"
        ),
        [*WINDOWS, *NEW, "--valid-subset", "valid,train"],
    ),
    "documents of the training set for validation": Case(
        (
            "--valid-subset has the training set, valid, which fairseq would read with one "
            "iterator for both, so that every validation ends an epoch of training; binarise "
            "sentences of it as a validation set of its own"
        ),
        [*DOCUMENTS, *NEW, "--train-subset", "valid"],
    ),
    "a metric that is not computed": Case(
        "--best-checkpoint-metric d_bleu needs --eval-bleu; give both",
        [*WINDOWS, *NEW, "--best-checkpoint-metric", "d_bleu"],
    ),
    "one number for two betas": Case(
        BY_OPTIMIZER.format("--optimizer", "cannot unpack non-iterable float object"),
        [*WINDOWS, *NEW, "--adam-betas", "0.9"],
    ),
    "unclear betas": Case(
        BY_OPTIMIZER.format("--optimizer", "name 'x' is not defined"),
        [*WINDOWS, *NEW, "--adam-betas", "x"],
    ),
    "an optimizer of a package": Case(
        BY_OPTIMIZER.format("--optimizer", "--fp16-adam-stats is only supported with FusedAdamV1"),
        [*WINDOWS, *NEW, "--fp16-adam-stats"],
    ),
    "a negative momentum": Case(
        BY_OPTIMIZER.format("--optimizer", "Invalid momentum value: -1.0"),
        [*WINDOWS, *NEW, "--optimizer", "sgd", "--momentum", "-1"],
    ),
    "a schedule without warm-up": Case(
        BY_OPTIMIZER.format("--lr-scheduler", "float division by zero"),
        [*WINDOWS, *NEW, "--lr-scheduler", "inverse_sqrt", "--warmup-updates", "0"],
    ),
    "layers to keep of context layers": Case(
        "--decoder-layers-to-keep is not supported by g_transformer; leave it out",
        [*WINDOWS, *NEW, "--decoder-layers-to-keep", "0"],
        model=tiny.group(),
    ),
    "a criterion of speech": Case(
        (
            "--criterion ctc is not for translation; give label_smoothed_cross_entropy or another "
            "one"
        ),
        [*WINDOWS, *NEW, "--criterion", "ctc"],
    ),
    "a criterion for another wrapper": Case(
        (
            "AdaptiveLoss is not compatible with the PyTorch version of DistributedDataParallel. "
            "Please use `--ddp-backend=legacy_ddp` instead."
        ),
        [*WINDOWS, *NEW, "--criterion", "adaptive_loss"],
    ),
    "feed-forward layers of no size": Case(
        "--decoder-ffn-embed-dim must be at least 1, got 0",
        [*WINDOWS, *NEW, "--decoder-ffn-embed-dim", "0"],
    ),
    "fewer than no positions": Case(
        "--max-source-positions must be at least 1, got -1",
        [*WINDOWS, *NEW, "--max-source-positions", "-1"],
    ),
    "no multiple of batches": Case(
        "--required-batch-size-multiple must be at least 1, got 0",
        [*WINDOWS, *NEW, "--required-batch-size-multiple", "0"],
    ),
    "no multiple of lengths": Case(
        "--required-seq-len-multiple must be at least 1, got 0",
        [*WINDOWS, *NEW, "--required-seq-len-multiple", "0"],
    ),
    "a word for a number": Case(
        "--max-tokens-valid cannot be x; --help shows what it can be",
        [*WINDOWS, *NEW, "--max-tokens-valid", "x"],
    ),
    "a list for a number": Case(
        "--max-tokens-valid cannot be []; --help shows what it can be",
        [*WINDOWS, *NEW, "--max-tokens-valid", "[]"],
    ),
    "no update frequency": Case(
        "--update-freq has no value, which is needed; --help shows what it can be",
        [*WINDOWS, *NEW, "--update-freq", "[]"],
    ),
    "no dictionary of overrides": Case(
        "--optimizer-overrides must be a dictionary such as \"{'lr': 0.1}\"",
        [*WINDOWS, *NEW, "--optimizer-overrides", "x"],
    ),
    "no architecture": Case(
        "--arch is missing; give the architecture of the model",
        [*WINDOWS, *NEW],
        model=(),
    ),
    "an unknown metric": Case(
        (
            "validation does not compute 'x'; give another --best-checkpoint-metric, such as loss, "
            "and no negative --max-valid-steps"
        ),
        [*WINDOWS, *NEW, "--best-checkpoint-metric", "x"],
    ),
    "an absent file of quantization": Case(
        "nowhere: No such file or directory",
        [*WINDOWS, *NEW, "--quantization-config-path", "nowhere"],
    ),
    "a profile of no GPU": Case(
        "an option (--profile, --quant-noise-scalar ...) needs a GPU, but torch is for CPUs",
        [*WINDOWS, *NEW, "--profile"],
    ),
    "a schedule of no updates": Case(
        BY_OPTIMIZER.format("--lr-scheduler", "AssertionError"),
        [*WINDOWS, *NEW, "--lr-scheduler", "polynomial_decay", "--total-num-update", "0"],
    ),
    "the worst BLEU": Case(
        (
            "--best-checkpoint-metric bleu would select the checkpoint with the lowest BLEU; add "
            "--maximize-best-checkpoint-metric"
        ),
        [*WINDOWS, *NEW, "--eval-bleu", "--best-checkpoint-metric", "bleu"],
    ),
    "the worst loss": Case(
        (
            "--maximize-best-checkpoint-metric would select the checkpoint with the highest loss; "
            "leave it out, or give another --best-checkpoint-metric"
        ),
        [*WINDOWS, *NEW, "--maximize-best-checkpoint-metric"],
    ),
    "groups of a beam that is not given": Case(
        "--beam 5 must be divisible by --diverse-beam-groups 3; change one of them",
        [*WINDOWS, *NEW, "--eval-bleu", "--eval-bleu-args", '{"diverse_beam_groups": 3}'],
    ),
    "a batch of no token": Case(
        "--max-tokens must be at least 1, got 0", [*WINDOWS, *NEW, "--max-tokens", "0"]
    ),
    "a batch of no sentence": Case(
        "--batch-size must be at least 1, got 0", [*WINDOWS, *NEW, "--batch-size", "0"]
    ),
    "updates of no batch": Case(
        "--update-freq must be at least 1, got 0", [*WINDOWS, *NEW, "--update-freq", "0"]
    ),
    "a log that is never written": Case(
        "--log-interval must be at least 1, got 0", [*WINDOWS, *NEW, "--log-interval", "0"]
    ),
    "validation after no epochs": Case(
        "--validate-interval must be at least 1, got 0",
        [*WINDOWS, *NEW, "--validate-interval", "0"],
    ),
    "a negative number of updates": Case(
        "--save-interval-updates must not be negative, got -3",
        [*WINDOWS, *NEW, "--save-interval-updates", "-3"],
    ),
    "a negative number of processes": Case(
        "--num-workers must not be negative, got -1", [*WINDOWS, *NEW, "--num-workers", "-1"]
    ),
    "half precision without a GPU": Case(
        "--fp16 needs a GPU, or --fp16-no-flatten-grads; give that, train with --amp, or leave "
        "it out",
        [*WINDOWS, *NEW, "--fp16"],
    ),
    "half precision of TPUs": Case(
        "--bf16 of fairseq-train is for TPUs, with torch_xla; give --amp, or leave it out",
        [*WINDOWS, *NEW, "--bf16"],
    ),
    "a negative rate": Case("--lr must not be negative, got -1.0", [*WINDOWS, *NEW, "--lr", "-1"]),
    "dropout above 1": Case(
        "--dropout must be between 0 and 1, got 1.5", [*WINDOWS, *NEW, "--dropout", "1.5"]
    ),
    "negative dropout": Case(
        "--attention-dropout must be between 0 and 1, got -0.5",
        [*WINDOWS, *NEW, "--attention-dropout", "-0.5"],
    ),
    "more smoothing than there is": Case(
        "--label-smoothing must be between 0 and 1, got 1.5",
        [*WINDOWS, *NEW, "--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "1.5"],
    ),
    "options of validation that are no JSON": Case(
        (
            """--eval-bleu-args must be a JSON object such as '{"beam": 4, "max_len_a": 1.2}', """
            "not {beam: 1}"
        ),
        [*WINDOWS, *NEW, "--eval-bleu", "--eval-bleu-args", "{beam: 1}"],
    ),
    "a misspelt option of validation": Case(
        "unknown option beem in --eval-bleu-args; do you mean beam?",
        [*WINDOWS, *NEW, "--eval-bleu", "--eval-bleu-args", '{"beem": 1}'],
    ),
    **{
        f"{name} in the search of validation": Case(
            message,
            [*WINDOWS, *NEW, "--eval-bleu", "--eval-bleu-args", json.dumps({name: value})],
        )
        for name, value, message in (
            ("beam", 1.5, "beam in --eval-bleu-args must be a whole number, got 1.5"),
            ("lenpen", "2", "lenpen in --eval-bleu-args must be a number, got '2'"),
            (
                *("unnormalized", "false"),
                "unnormalized in --eval-bleu-args must be True or False, got 'false'",
            ),
            ("score_reference", True, NO_PLACE % "score_reference"),
            ("replace_unk", "", NO_PLACE % "replace_unk"),
            (
                *("decoding", "window"),
                "decoding is no option of --eval-bleu-args; give --decoding beside it",
            ),
        )
    },
    "subwords of validation that fairseq does not know": Case(
        "--eval-bleu-remove-bpe foo is unknown to fairseq; give subword_nmt, sentencepiece or "
        "wordpiece, or leave it out",
        [*WINDOWS, *NEW, "--eval-bleu", "--eval-bleu-remove-bpe", "foo"],
    ),
    "a detokenizer of validation that does not exist": Case(
        "--eval-bleu-detok must be jieba or moses or nltk or space, not nosuch",
        [*WINDOWS, *NEW, "--eval-bleu", "--eval-bleu-detok", "nosuch"],
    ),
    "a long sentence in the validation set": Case(
        TOO_LONG % (7, 6, 1024), [*WINDOWS, *NEW, "--max-source-positions", "6"]
    ),
    "nothing but long sentences in the validation set": Case(
        NONE_FITS, [*WINDOWS, *NEW, *LEAVE_OUT], binarise("valid", [9, 0, 8], [9, 0, 8])
    ),
    "nothing but long sentences in the validation set of a stream": Case(
        NONE_FITS,
        [*STREAM, *LEAVE_OUT],
        binarise("valid", [9, 0, 8], [9, 0, 8]),
        model=tiny.memory(),
    ),
    "a long sentence in a document with memories": Case(
        TOO_LONG % (5, 6, 1024),
        [*ROWS, *NEW, "--gold-drafts", "--max-source-positions", "6"],
        binarise("valid", [5, 0, 5, 5, 6, 0, 6], [5, 0, 5, 5, 5, 0, 5]),
        model=tiny.memnet("--context-side", "target"),
    ),
    "nothing but long sentences in documents with memories": Case(
        NONE_FITS,
        [*ROWS, *NEW, "--gold-drafts", *LEAVE_OUT],
        binarise("valid", [9, 0, 8], [9, 0, 8]),
        model=tiny.memnet("--context-side", "target"),
    ),
    "nothing but long sentences in the training set": Case(
        NONE_FITS.replace("valid.", "train."),
        [*STREAM, *LEAVE_OUT],
        binarise("train", [9, 0, 8], [9, 0, 8]),
        model=tiny.memory(),
    ),
    "sentences of a stream in duplicate": Case(
        (
            "--rdrop-alpha duplicates the sentences of a batch, which would follow one another in "
            "their document; use another --criterion"
        ),
        [*STREAM, "--criterion", "label_smoothed_cross_entropy_with_rdrop", "--rdrop-alpha", "5"],
        model=tiny.memory(),
    ),
    "empty data": Case(
        (
            "{data} has no binarised corpus; give the directory that fairseq-preprocess wrote "
            "(bin/ of data_prep/prepare.py)"
        ),
        [*WINDOWS, *NEW],
        both(remove("data"), write("data/text", "a")),
    ),
    "one language": Case(
        (
            "--source-lang tgt is given alone, but {data} has src to tgt; give both --source-lang "
            "and --target-lang, or neither"
        ),
        [*WINDOWS, *NEW, "--source-lang", "tgt"],
    ),
    "languages with a hyphen": Case(
        (
            "{data}/train.zh-CN-src.src.idx: the name does not show the two languages, as one has "
            "a hyphen; give both --source-lang and --target-lang"
        ),
        [*WINDOWS, *NEW, "--target-lang", "src"],
        # Of the dictionary's name alone, fairseq makes a pair zh to CN.
        both(
            remove("data"),
            both(write("data/train.zh-CN-src.src.idx", ""), write("data/dict.zh-CN.txt", "")),
        ),
    ),
    "no dictionary": Case(
        (
            "{data}/dict.src.txt not found; give the directory that fairseq-preprocess wrote, "
            "with its languages as --source-lang and --target-lang"
        ),
        [*WINDOWS, *NEW],
        remove("data/dict.src.txt"),
    ),
    "no training set": Case(
        (
            "{data}/train.src-tgt.* not found; check the data directory, --source-lang, "
            "--target-lang and the name of the split"
        ),
        [*WINDOWS, *NEW],
        remove("data/train.*"),
    ),
    "no validation set": Case(
        (
            "{data}/valid.src-tgt.* not found; check the data directory, --source-lang, "
            "--target-lang and the name of the split"
        ),
        [*WINDOWS, *NEW],
        remove("data/valid.*"),
    ),
    "no target side": Case(
        "{data}/train.src-tgt has no target side; training and validation need one",
        [*WINDOWS, *NEW],
        remove("data/train.src-tgt.tgt.*"),
    ),
    "truncated text": Case(
        (
            "{data}/train.src-tgt.tgt.bin is truncated: 197 bytes, but its index needs 206; "
            "binarise the split again"
        ),
        [*WINDOWS, *NEW],
        cut("data/train.src-tgt.tgt.bin"),
    ),
    "truncated index": Case(
        "{data}/train.src-tgt.tgt.idx is truncated: 293 bytes, but it needs 302; " + COPY,
        [*WINDOWS, *NEW],
        cut("data/train.src-tgt.tgt.idx"),
    ),
    "a part of a header": Case(
        "{data}/valid.src-tgt.src.idx is truncated: 20 bytes, but it needs 26; " + COPY,
        [*WINDOWS, *NEW],
        write("data/valid.src-tgt.src.idx", b"MMIDIDX\0\0" + b"\1" * 11),
    ),
    "an empty file": Case(
        "{data}/valid.src-tgt.src.bin is empty; " + COPY,
        [*DOCUMENTS, *NEW],
        write("data/valid.src-tgt.src.bin", ""),
    ),
    "targets without index": Case(
        "{data}/train.src-tgt.tgt.idx not found, but {data}/train.src-tgt.tgt.bin; " + COPY,
        [*WINDOWS, *NEW],
        remove("data/train.src-tgt.tgt.idx"),
    ),
    "sources without index": Case(
        "{data}/valid.src-tgt.src.idx not found, but {data}/valid.src-tgt.src.bin; " + COPY,
        STREAM,
        remove("data/valid.src-tgt.src.idx"),
    ),
    "index without sources": Case(
        "{data}/train.src-tgt.src.bin not found, but {data}/train.src-tgt.src.idx; " + COPY,
        [*WINDOWS, *NEW],
        remove("data/train.src-tgt.src.bin"),
    ),
    "a further training set without index": Case(
        "{data}/train1.src-tgt.tgt.idx not found, but {data}/train1.src-tgt.tgt.bin; " + COPY,
        [*WINDOWS, *NEW],
        both(binarise("train1", [3], [3]), remove("data/train1.src-tgt.tgt.idx")),
    ),
    "a further training set without targets": Case(
        "{data}/train1.src-tgt.tgt.idx not found, but {data}/train1.src-tgt.src.idx; " + COPY,
        [*WINDOWS, *NEW],
        both(binarise("train1", [3], [3]), remove("data/train1.src-tgt.tgt.*")),
    ),
    "a dictionary cut within a line": Case(
        "{data}/dict.tgt.txt is damaged (Incorrect dictionary format, expected '<token> <cnt> "
        '[flags]\': "v"); copy the data folder again, or binarise the text again',
        [*WINDOWS, *NEW],
        write("data/dict.tgt.txt", "v1 9\nv2 3\nv"),
    ),
    "a word twice in a dictionary": Case(
        "{data}/dict.tgt.txt is damaged (Duplicate word found); copy the data folder again, or "
        "binarise the text again",
        [*WINDOWS, *NEW],
        write("data/dict.tgt.txt", "v1 9\nv1 3\n"),
    ),
    "blank on one side": Case(
        (
            "{data}/train.src-tgt: line 2 is blank on the source side only, but blank lines end "
            "documents and must be the same on both sides; "
        )
        + CHECK,
        [*WINDOWS, *NEW],
        binarise("train", [3, 0, 4], [3, 4, 4]),
    ),
    "lines of one side": Case(
        "{data}/train.src-tgt: the two sides have different numbers of lines (src 2, tgt 1); "
        + CHECK,
        [*WINDOWS, *NEW],
        binarise("train", [3, 4], [3]),
    ),
    "no sentence": Case(
        "{data}/train.src-tgt holds no sentence; give it at least one non-blank line",
        [*WINDOWS, *NEW],
        binarise("train", [0, 0], [0, 0]),
    ),
    "symbol of fairseq in the text": Case(
        (
            f"{{data}}/train.src-tgt.src: line 3 has the word <s>, {RESERVED}; write it "
            "differently and binarise again"
        ),
        [*WINDOWS, *NEW],
        words_of("train", [[7, 2], [2], [7, 0, 8, 2]], [[7, 2], [2], [7, 2]]),
    ),
    "symbol in the sentence pairs to mix in": Case(
        (
            f"{{folder}}/more/train.src-tgt.tgt: line 2 has the word </s>, {RESERVED}; write it "
            "differently and binarise again"
        ),
        [*WINDOWS, *NEW, "--sentence-data", "{folder}/more"],
        both(
            lambda place: shutil.copytree(place.data, place.folder / "more"),
            words_of("train", [[7, 2], [8, 2]], [[7, 2], [2, 2]], "more"),
        ),
    ),
    "no end symbol": Case(
        (
            "{data}/train.src-tgt.tgt: line 1 does not end with the end symbol </s>; binarise the "
            "text again"
        ),
        [*WINDOWS, *NEW],
        words_of("train", [[7, 2], [7, 8, 2]], [[7, 8], [7, 2]]),
    ),
    "words of another dictionary": Case(
        (
            "{data}/train.src-tgt.src: line 2 has words that are not in the dictionary, which has "
            "18; binarise the text with the dictionary of the folder"
        ),
        [*WINDOWS, *NEW],
        words_of("train", [[7, 2], [99, 2]], [[7, 2], [7, 2]]),
    ),
    "symbol in the text": Case(
        (
            "{data}/dict.src.txt: the text has the word <sep>, which is reserved for a symbol of "
            "the model; write it differently and binarise again"
        ),
        [*WINDOWS, *NEW],
        write("data/dict.src.txt", "w1 9\n<sep> 5\nw2 3\n"),
    ),
    "window of 0": Case(
        "--window-size must be at least 1, got 0",
        [*WINDOWS, *NEW, "--window-size", "0"],
    ),
    "stride beyond the window": Case(
        (
            "--window-stride must be from 1 to --window-size 4, got 5; a larger one would leave "
            "sentences out"
        ),
        [*WINDOWS, *NEW, "--window-stride", "5"],
    ),
    "stride of last sentences": Case(
        (
            "--window-stride 2 with --loss-on last would train on one sentence in 2 only; leave "
            "one of them out"
        ),
        [*WINDOWS, *NEW, "--window-stride", "2", "--loss-on", "last"],
    ),
    "nothing to draw": Case(
        (
            "--sample-window-size draws sizes from --window-stride to --window-size, which are "
            "both 1; give a larger --window-size or leave it out"
        ),
        [*WINDOWS, *NEW, "--window-size", "1", "--sample-window-size"],
    ),
    "all words dropped": Case(
        "--coword-dropout must be a probability below 1, got 1.5; 0 replaces no words",
        [*WINDOWS, *NEW, "--coword-dropout", "1.5"],
    ),
    "words of both sides dropped": Case(
        "--word-dropout must be a probability below 1, got 1.0; 0 replaces no words",
        [*DOCUMENTS, *NEW, "--word-dropout", "1"],
    ),
    "fewer than no epochs of word dropout": Case(
        "--word-dropout-epochs must not be negative, got -1",
        [*DOCUMENTS, *NEW, "--word-dropout", "0.1", "--word-dropout-epochs", "-1"],
    ),
    "epochs without word dropout": Case(
        "--word-dropout-epochs needs --word-dropout; give both or neither",
        [*WINDOWS, *NEW, "--word-dropout-epochs", "3"],
    ),
    "word dropout in a stream": Case(
        "--word-dropout is not for streams; leave it out",
        [*STREAM, "--word-dropout", "0.1"],
        model=tiny.memory(),
    ),
    "word dropout and memories of documents": Case(
        "--word-dropout is not for --task document_rows_translation; leave it out",
        [*ROWS, *NEW, "--gold-drafts", "--word-dropout", "0.1"],
        model=tiny.memnet("--context-side", "target"),
    ),
    "no supporting words": Case(
        (
            "{data}/train.src-tgt.supporting.jsonl not found or empty, but --criterion "
            "attention_regularization needs it; write it with data_prep/supporting_words.py"
        ),
        [*WINDOWS, *NEW, "--criterion", "attention_regularization"],
    ),
    "supporting words in a stream": Case(
        (
            "--criterion attention_regularization is for models that read several sentences as "
            "one sequence; choose another --criterion, or --arch transformer"
        ),
        [*STREAM, "--criterion", "attention_regularization"],
        model=tiny.memory(),
    ),
    "supporting words of truncated sources": Case(
        (
            "--criterion attention_regularization does not work with --truncate-source; leave one "
            "of them out"
        ),
        [*WINDOWS, *NEW, "--criterion", "attention_regularization", "--truncate-source"],
    ),
    "fewer than no next sentences": Case(
        "--next-sentences must not be negative, got -1",
        [*WINDOWS, *NEW, "--next-sentences", "-1"],
    ),
    "ratio of no sentence pairs": Case(
        "--sentence-ratio is for --sentence-data; leave it out",
        [*WINDOWS, *NEW, "--sentence-ratio", "0.5"],
    ),
    "random chunks of one sentence": Case(
        (
            "--sample-chunk-sentences draws from 1 to --chunk-sentences, which is 1; give more "
            "--chunk-sentences, or leave it out"
        ),
        [*STREAM, "--sample-chunk-sentences"],
        model=tiny.memory(),
    ),
    "no sentence pairs": Case(
        "--sentence-data: folder {folder}/pairs not found; give a folder of binarised data",
        [*WINDOWS, *NEW, "--sentence-data", "{folder}/pairs"],
    ),
    "sentence pairs with other words": Case(
        (
            "--sentence-data: {folder}/pairs/dict.src.txt has other words than the dictionary of "
            "the documents; binarise the sentence pairs with it (--srcdict, --tgtdict of "
            "fairseq-preprocess)"
        ),
        [*DOCUMENTS, *NEW, "--sentence-data", "{folder}/pairs"],
        write("pairs/dict.src.txt", "w1 9\n"),
    ),
    "no training set of sentence pairs": Case(
        (
            "{folder}/pairs/train.src-tgt.* not found; check the data directory, --source-lang, "
            "--target-lang and the name of the split"
        ),
        [*DOCUMENTS, *NEW, "--sentence-data", "{folder}/pairs"],
        lambda place: shutil.copytree(
            place.data, place.folder / "pairs", ignore=shutil.ignore_patterns("train.*")
        ),
    ),
    "no ratio": Case(
        (
            "--sentence-ratio must be a positive number, got 0.0; to train on documents alone, "
            "leave --sentence-data out"
        ),
        [*WINDOWS, *NEW, "--sentence-data", "{data}", "--sentence-ratio", "0"],
    ),
    "sentence pairs in a stream": Case(
        (
            "--sentence-data is not for streams; add sentence pairs to the training set as "
            "documents of one sentence"
        ),
        [*STREAM, "--sentence-data", "{data}"],
        model=tiny.memory(),
    ),
    "checkpointed activations of a stream": Case(
        "--checkpoint-activations is not supported by memory_transformer; leave it out",
        [*STREAM, "--checkpoint-activations"],
        model=tiny.memory(),
    ),
    "offloaded activations of a stream": Case(
        "--offload-activations is not supported by memory_transformer; leave it out",
        [*STREAM, "--offload-activations"],
        model=tiny.memory(),
    ),
    "memory without a layer": Case(
        (
            "--encoder-layers 0 leaves no layer for a memory; set it to 1 or more, or choose the "
            "other side with --context-side"
        ),
        STREAM,
        model=tiny.memory("--encoder-layers", "0"),
    ),
    "merged dictionaries": Case(
        (
            "--merge-src-tgt-embed changes the dictionaries of text that is already binarised; "
            "binarise it with --joined-dictionary and use --share-all-embeddings instead"
        ),
        [*WINDOWS, *NEW, "--merge-src-tgt-embed"],
    ),
    "LayerDrop with memories": Case(
        "--decoder-layerdrop is not supported by memory_transformer; leave it out",
        [*STREAM, "--decoder-layerdrop", "0.5"],
        model=tiny.memory(),
    ),
    "sentence pairs for memories of documents": Case(
        (
            "--sentence-data is not for --task document_rows_translation, whose memories are of "
            "documents; start from a model trained on sentence pairs instead "
            "(--finetune-from-model)"
        ),
        [*ROWS, *NEW, "--gold-drafts", "--sentence-data", "{data}"],
        model=tiny.memnet("--context-side", "target"),
    ),
    "parts of documents": Case(
        "--document-parts must be numbers of at least 1, such as 1,2,4,8; got 2,a",
        [*DOCUMENTS, *NEW, "--document-parts", "2,a"],
    ),
    "no part": Case(
        "--document-parts must be numbers of at least 1, such as 1,2,4,8; got 0",
        [*DOCUMENTS, *NEW, "--document-parts", "0"],
    ),
    "parts given twice": Case(
        "--document-parts 2,1,2 names a number twice; give each once",
        [*DOCUMENTS, *NEW, "--document-parts", "2,1,2"],
    ),
    "parts to draw": Case(
        (
            "--sample-document-parts needs several numbers to draw from; give --document-parts "
            "1,2,4,8, for example"
        ),
        [*DOCUMENTS, *NEW, "--sample-document-parts"],
    ),
    "documents of 0": Case(
        "--max-document-tokens must be at least 1, got 0",
        [*DOCUMENTS, *NEW, "--max-document-tokens", "0"],
    ),
    "chunks of 0": Case(
        "--chunk-sentences must be at least 1, got 0",
        [*STREAM, "--chunk-sentences", "0"],
        model=tiny.memory(),
    ),
    "batches too small": Case(
        (
            "{data}/valid.src-tgt: line 1: its example has 4 tokens, but a batch has at most 3 "
            "(--max-tokens, in validation --max-tokens-valid); give at least 7"
        ),
        [*WINDOWS, "--max-tokens", "3"],
    ),
    "batches too small for documents": Case(
        (
            "{data}/valid.src-tgt: line 1: its example has 4 tokens, but a batch has at most 3 "
            "(--max-tokens, in validation --max-tokens-valid); give at least 7"
        ),
        [*DOCUMENTS, "--max-tokens", "3"],
    ),
    "smaller batches of validation": Case(
        (
            "--max-tokens-valid 16 is too small: examples of validation are cut as those of "
            "training, to --max-tokens 60; give at least as many"
        ),
        [*WINDOWS, "--max-tokens", "60", "--max-tokens-valid", "16"],
    ),
    "no lanes": Case(
        (
            "give --batch-size, the number of documents to read side by side; --max-tokens has "
            "no effect on streams, which read the same number of sentences from each"
        ),
        [*STREAM[:2], *NEW],
        model=tiny.memory(),
    ),
    "stream of windows": Case(
        (
            "--arch transformer has no document state; train it with --task "
            "sliding_window_translation, where --window-size 1 is sentence level"
        ),
        STREAM,
    ),
    "alignments": Case(
        "--load-alignments is not supported by document tasks; leave it out",
        [*WINDOWS, *NEW, "--load-alignments"],
    ),
    "passes": Case(
        "--decode-passes must not be negative, got -1", [*ROWS, *NEW, "--decode-passes", "-1"]
    ),
    "two kinds of drafts": Case(
        "--drafts and --gold-drafts exclude each other; leave one out",
        [*ROWS, *NEW, "--gold-drafts", "--drafts", "d"],
    ),
    "no drafts": Case(
        (
            "a target memory needs --drafts, translations of the training and validation sets "
            "(examples/maruf2018_memnet/make_drafts.sh), or --gold-drafts"
        ),
        [*ROWS, *NEW],
        model=tiny.memnet("--context-side", "target"),
    ),
    "missing drafts": Case(
        (
            "--drafts: {folder}/drafts/valid.tgt-None.tgt.idx not found; "
            "examples/maruf2018_memnet/make_drafts.sh makes it"
        ),
        [*ROWS, *NEW, "--drafts", "{folder}/drafts"],
        model=tiny.memnet("--context-side", "target"),
    ),
    "no language models": Case(
        (
            "--context-side source and both need --sentence-lm FORWARD:BACKWARD, two language "
            "models of the source; examples/maruf2018_memnet/train_sentence_lm.sh trains them"
        ),
        [*ROWS, *NEW],
        model=tiny.memnet("--context-side", "source"),
    ),
    "missing language models": Case(
        "--sentence-lm: checkpoint a not found",
        [*ROWS, *NEW],
        model=tiny.memnet("--context-side", "source", "--sentence-lm", "a:b"),
    ),
    "damaged language models": Case(
        "checkpoint {folder}/lm.pt " + DAMAGED,
        [*ROWS, *NEW],
        write("lm.pt", "PK"),
        model=tiny.memnet(
            "--context-side", "source", "--sentence-lm", "{folder}/lm.pt:{folder}/ck/best.pt"
        ),
    ),
    "feature size": Case(
        "--cross-feature-dim must be at least 1, got 0",
        [*WINDOWS, *NEW],
        model=tiny.rfa("--cross-feature-dim", "0"),
    ),
    "gate of nothing": Case(
        "--shared-gate needs --sentence-gate decay or average",
        [*WINDOWS, *NEW],
        model=tiny.rfa("--shared-gate"),
    ),
    "too few matrices": Case(
        "--random-matrices 0 is not enough for 2 attention heads; set it to 2 or more",
        [*WINDOWS, *NEW],
        model=tiny.rfa("--random-matrices", "0"),
    ),
    "cache size": Case(
        "--cache-size must not be negative, got -1", STREAM, model=tiny.cache("--cache-size", "-1")
    ),
    "memory layers": Case(
        "--memory-layers 7 must name layers from 0 to 0 of the encoder, separated by commas",
        STREAM,
        model=tiny.memory("--memory-layers", "7"),
    ),
    "no layers": Case(
        "--encoder-layers must be at least 1, got 0",
        [*WINDOWS, *NEW],
        model=tiny.rnnsearch("--encoder-layers", "0"),
    ),
    "no attention units": Case(
        "--attention-dim must be at least 1, got 0",
        [*WINDOWS, *NEW],
        model=tiny.rnnsearch("--attention-dim", "0"),
    ),
    "no state of language models": Case(
        "--sentence-lm-hidden-size must be at least 1, got 0",
        [*ROWS, *NEW],
        model=tiny.memnet("--sentence-lm-hidden-size", "0"),
    ),
    "dropout of more than all": Case(
        "--memory-dropout must be between 0 and 1, got 2.0",
        [*ROWS, *NEW],
        model=tiny.memnet("--memory-dropout", "2"),
    ),
    "attention window": Case(
        "--attention-window must not be negative, got -1",
        [*DOCUMENTS, *NEW],
        model=tiny.window("--attention-window", "-1"),
    ),
    "nothing to train": Case(
        (
            "--freeze-pretrained leaves nothing to train: this --arch adds no parameters to a "
            "pre-trained model"
        ),
        [*FROM, "--freeze-pretrained"],
        changed_checkpoint(lambda state: None, "other.pt"),
    ),
    "numbers that are not finite": Case(
        "--denominator-floor must be a finite number, got inf",
        [*WINDOWS, *NEW],
        model=tiny.rfa("--denominator-floor", "inf"),
    ),
    "bias that is no number": Case(
        "--gate-bias-init must be a finite number, got nan",
        [*WINDOWS, *NEW],
        model=tiny.rfa("--sentence-gate", "decay", "--gate-bias-init", "nan"),
    ),
    "nothing that is pre-trained": Case(
        (
            "--freeze-pretrained needs a model to start from; give --finetune-from-model, or leave "
            "it out"
        ),
        [*WINDOWS, *NEW, "--freeze-pretrained"],
        model=tiny.group(),
    ),
    "no positions to extend": Case(
        "--extend-positions needs a model to start from; give --finetune-from-model, or leave it "
        "out",
        [*WINDOWS, *NEW, "--extend-positions", "repeat"],
    ),
    "positions that are not learned": Case(
        (
            "--extend-positions is for learned positions, which this --arch does not have; leave "
            "it out, or give --encoder-learned-pos and --decoder-learned-pos"
        ),
        [*FROM, "--extend-positions", "repeat"],
        changed_checkpoint(lambda state: None, "other.pt"),
    ),
    "added tags of no model": Case(
        "--add-language-tags needs --language-tags", [*WINDOWS, *NEW, "--add-language-tags"]
    ),
    "options of BLEU that is not computed": Case(
        "--eval-bleu-remove-bpe is for --eval-bleu; give both or neither",
        [*WINDOWS, *NEW, "--eval-bleu-remove-bpe"],
    ),
    "BLEU without validation": Case(
        "--eval-bleu has no effect with --disable-validation; leave one of them out",
        [*WINDOWS, *NEW, "--eval-bleu", "--disable-validation"],
    ),
    "memory in windows": Case(
        (
            "--arch memory_transformer gets no context from --task sliding_window_translation; "
            "give --task sentence_stream_translation"
        ),
        [*WINDOWS, *NEW],
        model=tiny.memory(),
    ),
    "previous sentences in whole documents": Case(
        (
            "--arch han_transformer gets no context from --task full_document_translation; give "
            "--task sentence_stream_translation"
        ),
        [*DOCUMENTS, *NEW],
        model=tiny.han(),
    ),
    "memories of documents in a stream": Case(
        (
            "--arch memnet_rnn gets no context from --task sentence_stream_translation; give "
            "--task document_rows_translation"
        ),
        STREAM,
        model=tiny.memnet("--context-side", "target"),
    ),
    "documents as one sequence for memories": Case(
        (
            "--arch memnet_rnn gets no context from --task full_document_translation; give "
            "--task document_rows_translation"
        ),
        [*DOCUMENTS, *NEW],
        model=tiny.memnet("--context-side", "target"),
    ),
    "rows for a model of sequences": Case(
        (
            "--arch transformer does not read a row for each sentence; give --task "
            "full_document_translation, or another"
        ),
        [*ROWS, *NEW],
    ),
    "no new parameters": Case(
        (
            "--optimizer grouped_adam finds no new parameters: choose an --arch that adds some "
            "to a transformer (memory_transformer, rfa_transformer ...), and with --fp16 give "
            "--fp16-no-flatten-grads too"
        ),
        [*WINDOWS, *NEW, "--optimizer", "grouped_adam"],
    ),
    "no model to start from": Case("checkpoint {folder}/other.pt not found", FROM),
    "two models to start from": Case(
        (
            "--restore-file and --finetune-from-model name two models to start from; give one of "
            "them"
        ),
        [*FROM, "--restore-file", "{folder}/trained.pt"],
    ),
    "a model to go on with and another to start from": Case(
        (
            "--continue-once and --finetune-from-model name two models to start from; give one of "
            "them"
        ),
        [*FROM, "--continue-once", "{folder}/trained.pt"],
    ),
    "a new training that forgets": Case(
        (
            "--finetune-from-model begins a new training, without the need of "
            "--reset-lr-scheduler; leave it out"
        ),
        [*FROM, "--reset-lr-scheduler"],
    ),
    "folder to start from": Case(
        "checkpoint {folder}/ck is a folder; give a file in it",
        [*WINDOWS, *NEW, "--finetune-from-model", "{folder}/ck"],
    ),
    "empty file to start from": Case(
        "checkpoint {folder}/other.pt is empty; use an earlier one or train again",
        FROM,
        write("other.pt", ""),
    ),
    "text to start from": Case(
        "checkpoint {folder}/other.pt " + DAMAGED, FROM, write("other.pt", "a text\n")
    ),
    "half a model to start from": Case(
        "checkpoint {folder}/other.pt " + DAMAGED,
        FROM,
        both(changed_checkpoint(lambda state: None, "other.pt"), cut("other.pt", 2000)),
    ),
    "no numbers to start from": Case(
        "{folder}/other.pt has parameters that are NaN or infinite, so its training has diverged; "
        "use an earlier checkpoint",
        FROM,
        changed_checkpoint(_not_a_number, "other.pt"),
    ),
    "tensors to start from": Case(
        "{folder}/other.pt is not a checkpoint of fairseq; give a file that it has saved",
        FROM,
        lambda place: torch.save({"a": torch.ones(2)}, place.folder / "other.pt"),
    ),
    "foreign model to start from": Case(
        (
            "checkpoint {folder}/other.pt (--arch transformer) does not fit the model (--arch "
            "rnnsearch): "
            "encoder.embed_tokens.weight has the shape [18, 16] in the checkpoint, but [18, 12] in "
            "the model; give the options of that training"
        ),
        FROM,
        changed_checkpoint(lambda state: None, "other.pt"),
        model=tiny.rnnsearch(),
    ),
    "other dictionary to start from": Case(
        "the checkpoint was trained with another target dictionary than dict.tgt.txt; " + CORRECT,
        FROM,
        both(changed_checkpoint(lambda state: None, "other.pt"), other_words),
    ),
    "larger dictionary to start from": Case(
        "dict.src.txt has 15 words, but checkpoint {folder}/other.pt was trained with 12; "
        + CORRECT,
        FROM,
        both(changed_checkpoint(lambda state: None, "other.pt"), more_words),
    ),
    "no file to restore": Case(
        "--restore-file {folder}/no.pt not found; leave it out to train a new model",
        [*WINDOWS, *NEW, "--restore-file", "{folder}/no.pt"],
    ),
    "resumed with another window": Case(
        RESUMED + "with --window-size 3, not 5; " + GO_ON,
        [*WINDOWS, *NEW, "--window-size", "5"],
        as_last,
    ),
    "resumed with another loss": Case(
        RESUMED + "with --loss-on window, not last; " + GO_ON,
        [*WINDOWS, *NEW, "--loss-on", "last"],
        as_last,
    ),
    "resumed with another task": Case(
        (
            RESUMED + "with --task sliding_window_translation, not full_document_translation; give "
            "another --save-dir to begin a new training, or use --task sliding_window_translation"
        ),
        [*DOCUMENTS, *NEW],
        as_last,
    ),
    "resumed with another architecture": Case(
        OTHER_MODEL.format("rfa_transformer"),
        [*WINDOWS, *NEW],
        as_last,
        model=tiny.rfa(),
    ),
    "resumed with another architecture that has the same parameters": Case(
        OTHER_MODEL.format("g_transformer"),
        [*WINDOWS, *NEW],
        as_last,
        model=tiny.group(
            *("--encoder-context-layers", "0", "--decoder-context-layers", "0"),
            *("--cross-context-layers", "0"),
        ),
    ),
    "resumed with another size": Case(
        (
            "checkpoint {folder}/ck/checkpoint_last.pt (--arch transformer) does not fit the "
            "model (--arch transformer): decoder.layers.0.fc1.weight has the shape [32, 16] in "
            "the checkpoint, but [48, 16] in the model; give the options of that training, or "
            "another --save-dir"
        ),
        [*WINDOWS, *NEW, "--decoder-ffn-embed-dim", "48"],
        as_last,
    ),
    "resumed in the other direction": Case(
        OTHER_DIRECTION,
        [*WINDOWS, *NEW],
        both(_swapped, as_last),
    ),
    "resumed after a stock task": Case(
        (
            "{folder}/ck/checkpoint_last.pt was trained with --task translation, not "
            "sliding_window_translation; start from it with --finetune-from-model and another "
            "--save-dir"
        ),
        [*WINDOWS, *NEW],
        both(changed_checkpoint(_stock), as_last),
    ),
    "resumed with half a checkpoint": Case(
        "checkpoint {folder}/ck/checkpoint_last.pt " + DAMAGED,
        [*WINDOWS, *NEW],
        both(as_last, cut("ck/checkpoint_last.pt", 2000)),
    ),
    "resumed with other text": Case(
        (
            "the text of the data folder was prepared in another way than that of the checkpoint "
            "(tokenizer of src, tokenizer of tgt differ); give the data folder of training "
            "(with a command of fairseq, add --override-checkpoint-options to use it anyway)"
        ),
        [*WINDOWS, *NEW],
        both(trained_with(MOSES, MOSES), form(), as_last),
    ),
    "damaged description": Case(
        (
            "{data}/text_form.json is damaged; run data_prep/prepare.py again, or remove the "
            "file to give tokenizer and BPE yourself"
        ),
        [*WINDOWS, *NEW],
        write("data/text_form.json", "{"),
    ),
    "description without codes": Case(
        "{data}/codes not found; copy the folder again, or make it again",
        [*WINDOWS, *NEW],
        form(tgt='{"tokenizer": "moses", "bpe_codes": "codes"}'),
    ),
}


@pytest.mark.parametrize("name", TRAINING)
def test_training(place, capsys, name):
    case = TRAINING[name]
    model = [place.filled(option) for option in case.model]
    arguments = [*tiny.TRAINING, "--max-update", "1", "--save-dir", place.save_dir]

    def run():
        from fairseq_cli import train

        tiny.run_main(
            train.cli_main,
            *[place.data, "--user-dir", tiny.USER_DIR, *model, *arguments],
            *place.arguments(case),
        )

    assert_refused(run, case, place, capsys)


# ---- decoding ------------------------------------------------------------------------------------

DECODING = {
    "no checkpoint": Case("checkpoint {checkpoint} not found", WINDOWS, remove("trained.pt")),
    "folder as checkpoint": Case(
        "checkpoint {folder}/ck is a folder; give a file in it", [*WINDOWS, "--path", "{folder}/ck"]
    ),
    "empty checkpoint": Case(
        "checkpoint {checkpoint} is empty; use an earlier one or train again",
        WINDOWS,
        write("trained.pt", ""),
    ),
    "text as checkpoint": Case(
        "checkpoint {checkpoint} " + DAMAGED, WINDOWS, write("trained.pt", "a text\n")
    ),
    "half a checkpoint": Case(
        "checkpoint {checkpoint} " + DAMAGED, WINDOWS, cut("trained.pt", 2000)
    ),
    "tensors as checkpoint": Case(
        "{checkpoint} is not a checkpoint of fairseq; give a file that it has saved",
        WINDOWS,
        lambda place: torch.save([torch.ones(2)], place.checkpoint),
    ),
    "checkpoint with a program": Case(
        (
            "checkpoint {checkpoint} has objects that may run programs when they are loaded, "
            "which torch refuses (weights only); use a checkpoint with tensors and options alone"
        ),
        WINDOWS,
        changed_checkpoint(lambda state: state.update(extra=_RunsPrograms())),
    ),
    "no numbers": Case(
        (
            "{checkpoint} has parameters that are NaN or infinite, so its training has diverged; "
            "use an earlier checkpoint"
        ),
        WINDOWS,
        changed_checkpoint(_not_a_number),
    ),
    "no data for decoding": Case(
        "data directory {data} not found; give the folder of fairseq-preprocess",
        WINDOWS,
        remove("data"),
    ),
    "no such split": Case(
        (
            "{data}/nosplit.src-tgt.* not found; check the data directory, --source-lang, "
            "--target-lang and the name of the split"
        ),
        [*WINDOWS, "--gen-subset", "nosplit"],
    ),
    "index without references": Case(
        "{data}/test.src-tgt.tgt.bin not found, but {data}/test.src-tgt.tgt.idx; " + COPY,
        WINDOWS,
        remove("data/test.src-tgt.tgt.bin"),
    ),
    "an empty file of references": Case(
        "{data}/test.src-tgt.tgt.bin is empty; " + COPY,
        WINDOWS,
        write("data/test.src-tgt.tgt.bin", ""),
    ),
    "truncated test set": Case(
        (
            "{data}/test.src-tgt.src.bin is truncated: 157 bytes, but its index needs 166; "
            "binarise the split again"
        ),
        WINDOWS,
        cut("data/test.src-tgt.src.bin"),
    ),
    "another task": Case(
        (
            "the checkpoint was trained with --task sliding_window_translation, not "
            "full_document_translation; use --task sliding_window_translation, or add "
            "--override-checkpoint-options to decode it in another way"
        ),
        DOCUMENTS,
    ),
    "another window": Case(
        "--window-size 2 contradicts the checkpoint, which was trained with --window-size 3; "
        + OTHER_VALUE,
        [*WINDOWS, "--window-size", "2"],
    ),
    "positions that the checkpoint does not know": Case(
        "--restart-positions True contradicts the checkpoint, which was trained with "
        "--restart-positions False; " + OTHER_VALUE,
        [*WINDOWS, "--restart-positions"],
        changed_checkpoint(
            lambda state: state["task_state"]["document_options"].pop("restart_positions")
        ),
    ),
    "gold context of windows": Case(
        (
            "--gold-context needs a decoding that translates sentences one after the other "
            "(sequential, sequential-full-source, stream), not window"
        ),
        [*WINDOWS, "--gold-context", "--decoding", "window"],
    ),
    "forced sentence count of single sentences": Case(
        (
            "--force-sentence-count has no meaning with --decoding sequential, which translates "
            "one sentence at a time; leave it out"
        ),
        [*WINDOWS, "--force-sentence-count"],
    ),
    "weight of no language model": Case(
        "--lm-weight needs --lm-path; give both or neither",
        [*WINDOWS, "--lm-weight", "0.3"],
    ),
    "normalised context": Case(
        (
            "--normalize-with-context has no meaning with --decoding segment, which does not "
            "read target context before the search; leave it out"
        ),
        [*WINDOWS, "--normalize-with-context", "--decoding", "segment"],
    ),
    "another direction": Case(
        OTHER_DIRECTION,
        WINDOWS,
        _swapped,
    ),
    "another direction, and other sizes of dictionaries": Case(
        OTHER_DIRECTION,
        WINDOWS,
        both(_swapped, more_words),
    ),
    "another dictionary": Case(
        "the checkpoint was trained with another target dictionary than dict.tgt.txt; " + CORRECT,
        WINDOWS,
        other_words,
    ),
    "larger dictionary": Case(
        "dict.src.txt has 15 words, but checkpoint {checkpoint} was trained with 12; " + CORRECT,
        WINDOWS,
        more_words,
    ),
    "shards that fairseq ignores": Case(
        (
            "--num-shards 2 is ignored by fairseq, so that each process would translate "
            "everything; give --distributed-world-size and --distributed-rank instead"
        ),
        [*WINDOWS, "--num-shards", "2"],
    ),
    "beam of 0": Case("--beam must be at least 1, got 0", [*WINDOWS, "--beam", "0"]),
    "two searches": Case(
        "--sampling and --diverse-beam-groups are different searches; give one of them",
        [*WINDOWS, "--sampling", "--diverse-beam-groups", "3", "--nbest", "3"],
    ),
    "samples without sampling": Case(
        "--sampling-topk needs --sampling; give both or neither",
        [*WINDOWS, "--sampling-topk", "5"],
    ),
    "nucleus without sampling": Case(
        "--sampling-topp needs --sampling; give both or neither",
        [*WINDOWS, "--sampling-topp", "0.9"],
    ),
    "groups of the beam": Case(
        "--beam 4 must be divisible by --diverse-beam-groups 3; change one of them",
        [*WINDOWS, "--beam", "4", "--diverse-beam-groups", "3"],
    ),
    "temperature of 0": Case(
        "--temperature must be positive, got 0.0", [*WINDOWS, "--temperature", "0"]
    ),
    "samples of more words than there are": Case(
        ("--sampling-topk must be from 1 to 18, the words of the target dictionary, got 1000"),
        [*WINDOWS, "--sampling", "--nbest", "3", "--sampling-topk", "1000"],
    ),
    "samples of no words": Case(
        "--sampling-topp must be above 0 and at most 1, got 0.0",
        [*WINDOWS, "--sampling", "--nbest", "3", "--sampling-topp", "0"],
    ),
    "two ways to sample": Case(
        "fairseq ignores --sampling-topk with --sampling-topp; give one of them",
        [*WINDOWS, "--sampling", "--nbest", "3", "--sampling-topp", "0.5", "--sampling-topk", "3"],
    ),
    "strength of no groups": Case(
        "--diverse-beam-strength needs --diverse-beam-groups; give both or neither",
        [*WINDOWS, "--diverse-beam-strength", "2"],
    ),
    "a rate that favours siblings": Case(
        "--diversity-rate must not be negative, got -0.5", [*WINDOWS, "--diversity-rate", "-0.5"]
    ),
    "an end before the length of the source": Case(
        "--prefix-size can end a translation before --match-source-len lets it; leave one of them "
        "out",
        [*WINDOWS, "--prefix-size", "50", "--match-source-len", "--decoding", "sequential"],
    ),
    "siblings of more words than there are": Case(
        (
            "--diversity-rate needs a --beam below half of the 18 words of the target dictionary, "
            "got 9"
        ),
        [*WINDOWS, "--diversity-rate", "0.5", "--beam", "9"],
    ),
    "modules without dropout": Case(
        "--retain-dropout-modules needs --retain-dropout; give both or neither",
        [*WINDOWS, "--retain-dropout-modules", "TransformerDecoder"],
    ),
    "modules that the model lacks": Case(
        "--retain-dropout-modules: no Decoder of the model has dropout; choose from "
        "MultiheadAttention, TransformerDecoder, TransformerDecoderLayerBase, TransformerEncoder, "
        "TransformerEncoderLayerBase",
        [*WINDOWS, "--retain-dropout", "--retain-dropout-modules", "TransformerDecoder,Decoder"],
    ),
    "no dropout": Case(
        "--retain-dropout has no effect, as the model has none; leave it out",
        [*WINDOWS, "--retain-dropout", "--model-overrides", "{'dropout': 0.0}"],
    ),
    "more hypotheses than beams": Case(
        "--nbest 4 is more than --beam 3; give a wider beam", [*WINDOWS, "--nbest", "4"]
    ),
    "no room for words": Case(
        "--max-len-a 0.0 with --max-len-b 0 leaves no room for a word; give larger ones",
        [*WINDOWS, "--max-len-b", "0"],
    ),
    "a negative length": Case(
        "--max-len-b must not be negative, got -5",
        [*WINDOWS, "--max-len-a", "1", "--max-len-b", "-5"],
    ),
    "a huge length penalty": Case(
        "--lenpen must be from -10 to 10, got 1000.0", [*WINDOWS, "--lenpen", "1000"]
    ),
    "lengths below 0": Case(
        "--max-len-a -1.0 with --max-len-b 40 leaves no room for a word; give larger ones",
        [*WINDOWS, "--max-len-a", "-1", "--max-len-b", "40"],
    ),
    "minimum above the maximum": Case(
        "--min-len 20 is more than --max-len-b 12; change one of them",
        [*WINDOWS, "--min-len", "20"],
    ),
    "minimum below 0": Case(
        "--min-len must not be negative, got -1", [*WINDOWS, "--min-len", "-1"]
    ),
    "length penalty that is no number": Case(
        "--lenpen must be a finite number, got nan", [*WINDOWS, "--lenpen", "nan"]
    ),
    "length penalty of sums": Case(
        "--lenpen has no effect with --unnormalized; leave one of them out",
        [*WINDOWS, "--lenpen", "0.6", "--unnormalized"],
    ),
    "speech": Case(
        "--beam-mt is for translation of speech; leave it out", [*WINDOWS, "--beam-mt", "2"]
    ),
    "iterations": Case(
        "--iter-decode-max-iter is for non-autoregressive models; leave it out",
        [*WINDOWS, "--iter-decode-max-iter", "2"],
    ),
    "old option for BLEU": Case(
        "fairseq ignores --sacrebleu; give --scoring sacrebleu instead", [*WINDOWS, "--sacrebleu"]
    ),
    "kept counts of single sentences": Case(
        (
            "--wrong-sentence-count keep has no meaning with --decoding sequential, which "
            "translates one sentence at a time; leave it out"
        ),
        [*WINDOWS, "--wrong-sentence-count", "keep"],
    ),
    "nothing to keep": Case(
        (
            "--force-sentence-count leaves nothing to --wrong-sentence-count keep; leave one of "
            "them out"
        ),
        [*WINDOWS, "--decoding", "window", "--force-sentence-count"]
        + ["--wrong-sentence-count", "keep"],
    ),
    "rank without processes": Case(
        "--distributed-rank must be below --distributed-world-size 1, got 1",
        [*WINDOWS, "--distributed-rank", "1"],
    ),
    "no processes": Case(
        "--distributed-world-size must be at least 1, got 0",
        [*WINDOWS, "--distributed-world-size", "0"],
    ),
    "workers below 0": Case(
        "--num-workers must not be negative, got -1", [*WINDOWS, "--num-workers", "-1"]
    ),
    "batches of 0": Case("--batch-size must be at least 1, got 0", [*WINDOWS, "--batch-size", "0"]),
    "no shard of the checkpoint": Case(
        "checkpoint {folder}/trained_2.pt not found",
        [*WINDOWS, "--checkpoint-suffix", "_2"],
    ),
    "checkpoint of no shards": Case(
        "--checkpoint-shard-count must be at least 1, got 0",
        [*WINDOWS, "--checkpoint-shard-count", "0"],
    ),
    "an override of another type": Case(
        "--model-overrides: dropout must be a number, got 'much'",
        [*WINDOWS, "--model-overrides", "{'dropout': 'much'}"],
    ),
    "an override of the task": Case(
        "--model-overrides: window_size is an option of the task; give --window-size with "
        "--override-checkpoint-options",
        [*WINDOWS, "--model-overrides", "{'window_size': 2}"],
    ),
    "an unknown override": Case(
        "unknown option dropuot in --model-overrides; do you mean dropout?",
        [*WINDOWS, "--model-overrides", "{'dropuot': 0.1}"],
    ),
    "overrides that are no dictionary": Case(
        """--model-overrides must be a dictionary such as "{'dropout': 0.1}", not 3""",
        [*WINDOWS, "--model-overrides", "3"],
    ),
    "unknown postprocessing": Case(
        (
            "--post-process bpe is unknown to fairseq; give subword_nmt, sentencepiece or "
            "wordpiece, or leave it out"
        ),
        [*WINDOWS, "--post-process", "bpe"],
    ),
    "proteins": Case(
        "--dataset-impl fasta has no texts with a target side; leave it out",
        [*WINDOWS, "--dataset-impl", "fasta"],
    ),
    "no best": Case("--nbest must be at least 1, got 0", [*WINDOWS, "--nbest", "0"]),
    "prefix of windows": Case(
        (
            "--prefix-size applies to one sentence, but --decoding window translates several in "
            "one output; use --decoding sequential"
        ),
        [*WINDOWS, "--decoding", "window", "--prefix-size", "1"],
    ),
    "soft alignment": Case(
        "--print-alignment soft gives weights over all context; use --print-alignment hard",
        [*WINDOWS, "--print-alignment", "soft"],
    ),
    "length of the source": Case(
        "--match-source-len compares with the source of the whole window; leave it out",
        [*WINDOWS, "--match-source-len"],
    ),
    "soft alignment of references": Case(
        (
            "--print-alignment soft gives the weights of a search; use --print-alignment hard with "
            "--score-reference"
        ),
        [*WINDOWS, "--score-reference", "--print-alignment", "soft"],
    ),
    "history": Case(
        "--retain-iter-history is for non-autoregressive models; leave it out",
        [*WINDOWS, "--retain-iter-history"],
    ),
    "steps": Case(
        "--print-step is for non-autoregressive models; leave it out", [*WINDOWS, "--print-step"]
    ),
    "unknown words without a dictionary": Case(
        "--replace-unk needs a dictionary; give its file, or --replace-unk '' to copy the words",
        [*WINDOWS, "--dataset-impl", "raw", "--replace-unk"],
        both(write("data/test.src-tgt.src", "w1\n"), write("data/test.src-tgt.tgt", "v1\n")),
    ),
    "unknown words with alignments": Case(
        "--replace-unk prints no alignments; leave out it or --print-alignment",
        [
            *WINDOWS,
            "--replace-unk",
            "{data}/dict.src.txt",
            "--dataset-impl",
            "raw",
            "--print-alignment",
            "hard",
        ],
        both(write("data/test.src-tgt.src", "w1\n"), write("data/test.src-tgt.tgt", "v1\n")),
    ),
    "unknown words of references": Case(
        "--replace-unk changes translations; leave it out with --score-reference",
        [
            *WINDOWS,
            "--replace-unk",
            "{data}/dict.src.txt",
            "--dataset-impl",
            "raw",
            "--score-reference",
        ],
        both(write("data/test.src-tgt.src", "w1\n"), write("data/test.src-tgt.tgt", "v1\n")),
    ),
    "unknown words of cut sources": Case(
        (
            "--replace-unk needs the text of source and reference, and has none of the source; use "
            "fairseq-generate --dataset-impl raw without --truncate-source"
        ),
        [
            *WINDOWS,
            "--replace-unk",
            "{data}/dict.src.txt",
            "--dataset-impl",
            "raw",
            "--truncate-source",
        ],
        both(write("data/test.src-tgt.src", "w1\n"), write("data/test.src-tgt.tgt", "v1\n")),
    ),
    "constraints without lines": Case(
        (
            "--constraints is for fairseq-interactive, which reads them after the source sentence "
            "of a line; use that, or leave it out"
        ),
        [*WINDOWS, "--constraints"],
    ),
    "prefix without references": Case(
        PREFIX,
        [*WINDOWS, "--prefix-size", "1"],
        remove("data/test.src-tgt.tgt.*"),
    ),
    "absent language model": Case("checkpoint lm.pt not found", [*WINDOWS, "--lm-path", "lm.pt"]),
    "no language model": Case(
        (
            "{checkpoint} was trained with --task sliding_window_translation; give a language "
            "model (--task language_modeling)"
        ),
        [*WINDOWS, "--lm-path", "{checkpoint}"],
    ),
    "normalised references": Case(
        (
            "--normalize-with-context changes the search; leave it out with --score-reference, "
            "which scores each sentence by its own tokens"
        ),
        [*WINDOWS, "--score-reference", "--normalize-with-context"],
    ),
    "long sentence": Case(
        (
            "{data}/test.src-tgt: line 2 has more tokens than the model's 1024 source positions; "
            "split it, cut it with --truncate-source, or leave it untranslated with "
            "--skip-invalid-size-inputs-valid-test"
        ),
        WINDOWS,
        binarise("test", [3, 2000], [3, 3]),
    ),
    "no references to score": Case(
        "--score-reference needs references; this input has no target side",
        [*WINDOWS, "--score-reference"],
        remove("data/test.src-tgt.tgt.*"),
    ),
    "no references as context": Case(
        "--gold-context needs references; this input has no target side",
        [*WINDOWS, "--gold-context"],
        remove("data/test.src-tgt.tgt.*"),
    ),
    "too many processes": Case(
        (
            "{data}/test.src-tgt is too small for 2 processes: nothing is left for process 1; "
            "use fewer, or a smaller --max-tokens or --batch-size"
        ),
        [*WINDOWS, "--decoding", "window", "--max-tokens", "4000"]
        + ["--distributed-world-size", "2", "--distributed-rank", "1"],
    ),
    "unlike ensemble": Case(
        "checkpoints of one ensemble must agree in --window-size: number 1 was trained with 3, "
        "number 2 with 2; leave one out",
        [*WINDOWS, "--path", "{checkpoint}:{folder}/other.pt"],
        changed_checkpoint(
            lambda state: state["task_state"]["document_options"].update(window_size=2), "other.pt"
        ),
    ),
    "another tokenizer": Case(
        (
            "--tokenizer space contradicts the checkpoint, whose text was tokenized with jieba "
            "and moses; give --tokenizer jieba or --tokenizer moses, "
        )
        + ALL_THE_SAME,
        [*WINDOWS, "--tokenizer", "space"],
        trained_with(JIEBA, MOSES),
    ),
    "a tokenizer for tokens": Case(
        (
            "--tokenizer jieba contradicts the checkpoint, whose text was not tokenized; leave "
            "it out, "
        )
        + ALL_THE_SAME,
        [*WINDOWS, "--tokenizer", "jieba"],
        trained_with({"tokenizer": "none"}, {"tokenizer": "none"}),
    ),
    "no codes": Case(
        "BPE codes {folder}/no not found",
        [*WINDOWS, "--bpe", "subword_nmt", "--bpe-codes", "{folder}/no"],
    ),
    "other codes": Case(
        (
            "--bpe-codes {folder}/codes: not the merges of the text of the checkpoint; give the "
            "codes in the data folder of training, "
        )
        + ALL_THE_SAME,
        [*WINDOWS, "--bpe", "subword_nmt", "--bpe-codes", "{folder}/codes"],
        both(trained_with(SUBWORDS, SUBWORDS), write("codes", "#version: 0.2\na b\n")),
    ),
    "codes for whole words": Case(
        ("--bpe subword_nmt contradicts the checkpoint, whose text has whole words; leave it out, ")
        + ALL_THE_SAME,
        [*WINDOWS, "--bpe", "subword_nmt", "--bpe-codes", "{folder}/codes"],
        both(trained_with(MOSES, MOSES), write("codes", "#version: 0.2\na b\n")),
    ),
    "another BPE": Case(
        "--bpe gpt2 contradicts the checkpoint, whose text has --bpe subword_nmt; give that, "
        + ALL_THE_SAME,
        [*WINDOWS, "--bpe", "gpt2"],
        trained_with(SUBWORDS, SUBWORDS),
    ),
    "subwords without codes": Case(
        "--bpe subword_nmt needs --bpe-codes; give the codes of the training data",
        [*WINDOWS, "--bpe", "subword_nmt"],
    ),
    "text as codes": Case(
        "{folder}/codes is not a file of merges of subword-nmt",
        [*WINDOWS, "--bpe", "subword_nmt", "--bpe-codes", "{folder}/codes"],
        write("codes", "some text of more than two words\n"),
    ),
    "other prepared text": Case(
        (
            "the text of the data folder was prepared in another way than that of the checkpoint "
            "(tokenizer of src, tokenizer of tgt differ); give the data folder of training "
            "(with a command of fairseq, add --override-checkpoint-options to use it anyway)"
        ),
        WINDOWS,
        both(trained_with(MOSES, MOSES), form()),
    ),
}


@pytest.mark.parametrize("name", DECODING)
def test_decoding(place, capsys, name):
    case = DECODING[name]
    run = lambda: tiny.generate(place.data, place.checkpoint, *place.arguments(case))  # noqa: E731
    assert_refused(run, case, place, capsys)
    assert not Path("was_here").exists()


INTERACTIVE = {
    "typed symbol": Case(
        (
            "line 2 of the input has the word <sep>, which is reserved for a symbol of the "
            "model; write it differently"
        ),
        [],
        write("input", "w1 w2\nw3 <sep> w1\n"),
    ),
    "symbol as constraint": Case(
        f"a constraint in line 2 of the input has the word <sep>, {RESERVED}; write it differently",
        ["--constraints"],
        write("input", "w1 w2\tv1\nw3\tv2\tv1 <sep>\n"),
    ),
    "symbol of fairseq": Case(
        f"line 2 of the input has the word </s>, {RESERVED}; write it differently",
        [],
        write("input", "w1 w2\nw3 </s> w4\n"),
    ),
    "constraints beyond the length limit": Case(
        "no translation of up to 2 tokens (--max-len-a, --max-len-b, and the positions of the "
        "model) has the constraints 'v1 v2 v3'; give fewer, or a higher limit",
        ["--constraints", "--max-len-b", "2"],
        write("input", "w1 w2\tv1 v2\nw3\tv1 v2\tv3\n"),
    ),
    "symbol of fairseq in a constraint": Case(
        f"a constraint in line 1 of the input has the word <s>, {RESERVED}; write it differently",
        ["--constraints"],
        write("input", "w1 w2\tv1 <s> v2\n"),
    ),
    "symbol of fairseq at the end of a constraint": Case(
        f"a constraint of the input has the word <s>, {RESERVED}; write it differently",
        ["--constraints"],
        write("input", "w1 w2\tv1 <s>\n"),
    ),
    "blank constraint": Case(
        (
            "a constraint in line 1 of the input is blank or has the word <s>; give it words, or "
            "leave it out with its tab"
        ),
        ["--constraints"],
        write("input", "w1 w2\t\tv1\n"),
    ),
    "typed long sentence": Case(
        (
            "input: line 1 has more tokens than the model's 1024 source positions; split it, cut "
            "it with --truncate-source, or leave it untranslated with "
            "--skip-invalid-size-inputs-valid-test"
        ),
        [],
        write("input", "w1 " * 2000),
    ),
    "typed controls": Case(
        (
            "line 3 of the input ('\\x01\\x02') has no words after tokenization and would be read "
            "as the end of a document; remove it"
        ),
        ["--tokenizer", "moses", "--source-lang", "src", "--target-lang", "tgt"],
        write("input", "w1\nw2\n\x01\x02\nw3\n"),
    ),
    "tokenizer of the target": Case(
        (
            "--tokenizer moses contradicts the checkpoint, whose source text was tokenized with "
            "jieba; give --tokenizer jieba, "
        )
        + ALL_THE_SAME,
        ["--tokenizer", "moses", "--source-lang", "src", "--target-lang", "tgt"],
        both(write("input", "w1\n"), trained_with(JIEBA, MOSES)),
    ),
    "constraints of more beams than there are words": Case(
        (
            "--constraints needs a --beam below half of the 18 words of the target dictionary, "
            "got 10"
        ),
        ["--constraints", "--beam", "10"],
        write("input", "w1 w2\tv1\n"),
    ),
    "constraints of samples": Case(
        "--sampling and --constraints are different searches; give one of them",
        ["--constraints", "--sampling", "--nbest", "2"],
        write("input", "w1\tv1\n"),
    ),
    "absent input": Case(
        "--input {folder}/input not found; give a text file, or - for standard input",
        [],
    ),
    "input that is not UTF-8": Case(
        "--input {folder}/input: line 2 is not UTF-8; convert the file",
        [],
        lambda place: (place.folder / "input").write_bytes(b"w1\nw\xff\n"),
    ),
    "folder as input": Case(
        "--input {folder}/input is a folder; give a text file", [], write("input/a", "w1\n")
    ),
    "prefix of typed text": Case(PREFIX, ["--prefix-size", "1"], write("input", "w1\n")),
    "soft alignment of typed text": Case(
        (
            "--print-alignment soft fails in fairseq-interactive; use fairseq-generate, or "
            "--print-alignment hard"
        ),
        ["--print-alignment", "soft"],
        write("input", "w1\n"),
    ),
    "results in a folder": Case(
        "--results-path is for fairseq-generate; leave it out",
        ["--results-path", "{folder}/results"],
        write("input", "w1\n"),
    ),
    "typed split": Case(
        "--gen-subset is for fairseq-generate; leave it out",
        ["--gen-subset", "valid"],
        write("input", "w1\n"),
    ),
    "gold context of typed text": Case(
        "--gold-context needs references; this input has no target side",
        ["--gold-context"],
        write("input", "w1\nw2\n"),
    ),
}


@pytest.mark.parametrize("name", INTERACTIVE)
def test_interactive(place, capsys, name):
    from fairseq_cli import interactive

    case = INTERACTIVE[name]
    arguments = [place.data, "--user-dir", tiny.USER_DIR, *WINDOWS, "--path", place.checkpoint]
    arguments += ["--cpu", "--beam", "2", "--buffer-size", "9", "--input", place.folder / "input"]
    run = lambda: tiny.run_main(interactive.cli_main, *arguments, *place.arguments(case))  # noqa: E731
    assert_refused(run, case, place, capsys)


# ---- Python --------------------------------------------------------------------------------------

LOADING = {
    "no file": Case("checkpoint {checkpoint} not found", {}, remove("trained.pt")),
    "no dictionaries": Case(
        "data directory nowhere not found; give the one with the dictionaries", {"data": "nowhere"}
    ),
    "misspelt option": Case(
        "unknown option windw_size; do you mean window_size?", {"windw_size": 2}
    ),
    "unknown option": Case("unknown option qqq; leave it out", {"qqq": 2}),
    "option of the commands": Case(
        "skip_invalid_size_inputs_valid_test is for fairseq's commands and has no effect here; "
        "give skip_invalid_size_inputs=True to translate",
        {"skip_invalid_size_inputs_valid_test": True},
    ),
    "option of output": Case(
        "post_process is for fairseq's commands and has no effect here; leave it out",
        {"post_process": "letter"},
    ),
    "option of training": Case(
        "lr is for fairseq's commands and has no effect here; leave it out", {"lr": [0.1]}
    ),
    "words dropped in training": Case(
        "word_dropout is for training and has no effect here; leave it out", {"word_dropout": 0.1}
    ),
    "validation BLEU": Case(
        "eval_bleu is for training and has no effect here; leave it out", {"eval_bleu": True}
    ),
    "dropout": Case(
        "attention_dropout has no effect without retain_dropout; give both or neither",
        {"attention_dropout": 0.1},
    ),
    "target positions": Case(
        "max_target_positions is that of training and has no effect here; to limit translations "
        "give max_len_b",
        {"max_target_positions": 9},
    ),
    "task": Case(
        "task is for fairseq's commands and has no effect here; it is the task of training; leave "
        "it out",
        {"task": "full_document_translation"},
    ),
    "group of options": Case(
        "generation is for fairseq's commands and has no effect here; leave it out",
        {"generation": {}},
    ),
    "package": Case(
        "user_dir nowhere not found; give the folder of the package", {"user_dir": "nowhere"}
    ),
    "n-best lists": Case(
        "nbest is for fairseq's commands and has no effect here; give it to translate_nbest",
        {"nbest": 2},
    ),
    "tags for a model without tags": Case(
        "{checkpoint} was trained without language tags; leave source_tag out",
        {"source_tag": "de_DE"},
    ),
    "kind of tags for a model without tags": Case(
        "{checkpoint} was trained without language tags; leave language_tags out",
        {"language_tags": "mbart50"},
    ),
    "languages of tags": Case(
        "tag_languages is for training and has no effect here; leave it out",
        {"tag_languages": "de,en"},
    ),
    "new tags": Case(
        "add_language_tags is for training and has no effect here; leave it out",
        {"add_language_tags": True},
    ),
    "cut sentences": Case(
        "truncate_source is for fairseq's commands and has no effect here; cut the text before",
        {"truncate_source": True},
    ),
    "copies of a corpus": Case(
        "upsample_primary is for fairseq's commands and has no effect here; leave it out",
        {"upsample_primary": 2},
    ),
    "copy of an option": Case("unknown option input_file; leave it out", {"input_file": "x"}),
    "no folder of dictionaries": Case(
        "give the path of the folder of dictionaries, not 3", {"data": 3}
    ),
    "processor": Case(
        "cpu is for fairseq's commands and has no effect here; give the device cpu", {"cpu": True}
    ),
    "no dictionary of words": Case(
        "a file cannot be read ([Errno 2] No such file or directory: 'nowhere'); check replace_unk "
        "and bpe",
        {"replace_unk": "nowhere"},
    ),
    "no merges": Case(
        'bpe="subword_nmt" needs bpe_codes, the file of its merges; give both or neither',
        {"bpe": "subword_nmt"},
    ),
    "no pieces": Case(
        'bpe="sentencepiece" needs sentencepiece_model, the file of its model; give both or '
        "neither",
        {"bpe": "sentencepiece"},
    ),
    "overrides": Case(
        "model_overrides is for fairseq's commands and has no effect here; give options of the "
        'model themselves, such as alignment="linear"',
        {"model_overrides": "{}"},
    ),
    "window": Case(
        "--window-size 2 contradicts the checkpoint, which was trained with --window-size 3; "
        + OTHER_VALUE,
        {"window_size": 2},
    ),
    "direction": Case(
        (
            "the checkpoint translates src to tgt, not tgt to src; give data in its languages "
            "(with a command of fairseq: --source-lang src --target-lang tgt, "
        )
        + ALL_THE_SAME
        + ")",
        {"source_lang": "tgt", "target_lang": "src"},
    ),
    "decoding": Case(
        "decoding: Invalid value 'greedy', expected one of [iterative, overlap, segment, "
        "sequential, sequential-full-source, stream, window]",
        {"decoding": "greedy"},
    ),
    "decoding of another task": Case(
        "--decoding stream is not for --task sliding_window_translation; choose from sequential, "
        "window, segment, overlap",
        {"decoding": "stream"},
    ),
    "no codes": Case(
        f"bpe_codes {__file__} are no merges of subword-nmt",
        {"bpe": "subword_nmt", "bpe_codes": __file__},
    ),
    "codes": Case("BPE codes nowhere not found", {"bpe": "subword_nmt", "bpe_codes": "nowhere"}),
    "tokenizer": Case(
        (
            "--tokenizer space contradicts the checkpoint, whose source text was tokenized with "
            "moses; give --tokenizer moses, "
        )
        + ALL_THE_SAME,
        {"tokenizer": "space"},
        trained_with(MOSES, MOSES),
    ),
}


@pytest.mark.parametrize("name", LOADING)
def test_loading_in_python(place, capsys, name):
    case = LOADING[name]
    options = {"data": str(place.data), **dict(case.arguments)}
    run = lambda: DocumentTranslator.from_pretrained(str(place.checkpoint), **options)  # noqa: E731
    assert_refused(run, case, place, capsys)


@pytest.fixture(scope="module")
def translator(window_checkpoint):
    return DocumentTranslator.from_pretrained(window_checkpoint)


TRANSLATING = [
    ("w1 w2", {}, "give a list of documents, each a list of sentences, not 'w1 w2'"),
    (None, {}, "give a list of documents, each a list of sentences, not None"),
    ({"a": ["w1"]}, {}, "give a list of documents, each a list of sentences, not {'a': ['w1']}"),
    (
        [{"w1"}],
        {},
        (
            "document 1 is {'w1'}; a document is a list of sentences, so translate a single one "
            "as [[sentence, sentence]]"
        ),
    ),
    (
        ["w1 w2"],
        {},
        (
            "document 1 is 'w1 w2'; a document is a list of sentences, so translate a single one "
            "as [[sentence, sentence]]"
        ),
    ),
    (
        [3],
        {},
        (
            "document 1 is 3; a document is a list of sentences, so translate a single one as "
            "[[sentence, sentence]]"
        ),
    ),
    ([["w1", 3]], {}, "document 1, sentence 2 is 3; give a string"),
    ([["w1"], ["w1", " "]], {}, "document 2, sentence 2 is empty; leave it out"),
    (
        [["w1 <bod>"]],
        {},
        (
            "document 1, sentence 1 has the word <bod>, which is reserved for a symbol of the "
            "model; write it differently"
        ),
    ),
    (
        [["w1"], ["w2", "w1 <pad>"]],
        {},
        f"document 2, sentence 2 has the word <pad>, {RESERVED}; write it differently",
    ),
    ([["w1 \udcff"]], {}, "document 1, sentence 1 is not UTF-8; convert the input"),
    ([["w1"]], {"beem": 3}, "unknown option beem; do you mean beam?"),
    ([["w1"]], {"lengthpenalty": 1.0}, "unknown option lengthpenalty; do you mean lenpen?"),
    ([["w1"]], {"length_penalty": 1.0}, "unknown option length_penalty; do you mean lenpen?"),
    ([["w1"]], {"numBeams": 2}, "unknown option numBeams; do you mean beam?"),
    ([["w1"]], {"max_lenb": 9}, "unknown option max_lenb; do you mean max_len_b?"),
    ([["w1"]], {"max_tokens": 9}, "max_tokens is an option of from_pretrained; give it there"),
    (
        [["w1"]],
        {"seed": 3},
        "seed is for fairseq's commands and has no effect here; in Python, call torch.manual_seed",
    ),
    ([["w1"]], {"decoding": "window"}, "decoding is an option of from_pretrained; give it there"),
    (
        [["w1"]],
        {"retain_dropout": True},
        "retain_dropout is an option of from_pretrained; give it there",
    ),
    (
        [["w1"]],
        {"prefix_allowed_tokens_fn": print},
        "prefix_allowed_tokens_fn does not fit document tasks, whose searches have other rows than "
        "the batch; leave it out",
    ),
    ([["w1"]], {"colour": 9}, "unknown option colour; leave it out"),
    ([["w1"]], {"lenpen": "high"}, "lenpen must be a number, got 'high'"),
    ([["w1"]], {"max_len_b": 1.5}, "max_len_b must be a whole number, got 1.5"),
    ([["w1"]], {"sampling": 1}, "sampling must be True or False, got 1"),
    ([["w1"]], {"beam": 0}, "--beam must be at least 1, got 0"),
    ([["w1"]], {"beam": "4"}, "beam must be a whole number, got '4'"),
    ([["w1"]], {"beam": True}, "beam must be a whole number, got True"),
    ([["w1"]], {"print_alignment": "hard"}, "translate gives no alignments; use translate_nbest"),
    ([["w1"]], {"print_alignment": "all"}, 'print_alignment must be "hard" or "soft", got \'all\''),
    ([["w1"]], {"beam": 2.0}, "beam must be a whole number, got 2.0"),
    (
        [["w1"]],
        {"score_reference": True},
        "--score-reference needs references; this input has no target side",
    ),
]


@pytest.mark.parametrize("documents, options, message", TRANSLATING)
def test_translating_in_python(translator, documents, options, message):
    with pytest.raises(UserError) as refused:
        translator.translate(documents, **options)
    assert str(refused.value) == message


# ---- preparation ---------------------------------------------------------------------------------

TEXT = "one two two\nthree three one\n\nfour five four five\n"
PREPARATION = {
    "missing file": Case(
        "{folder}/valid.en: cannot be read (No such file or directory)", [], remove("valid.en")
    ),
    "folder for a file": Case(
        "{folder}/valid.en: cannot be read (Is a directory)",
        [],
        both(remove("valid.en"), write("valid.en/a", "")),
    ),
    "not UTF-8": Case(
        ("{folder}/train.de: line 2 is not valid UTF-8; convert the file, for example with iconv"),
        [],
        write("train.de", b"one\n\xe4\n"),
    ),
    "byte order mark": Case(
        (
            "{folder}/train.de: line 1 begins with a byte order mark, which fairseq would read "
            "as part of the first word; save the file as UTF-8 without it"
        ),
        [],
        write("train.de", "\ufeff" + TEXT),
    ),
    "carriage return": Case(
        (
            "{folder}/train.en: line 1 ends with a carriage return alone, other lines with a "
            "line feed; remove the carriage return, or end all lines alike"
        ),
        [],
        write("train.en", TEXT.replace("two two", "two\rtwo")),
    ),
    "line separator": Case(
        (
            "{folder}/train.en: line 1 has the line break U+2028, where some programs would "
            "split it in two; replace the character by a space"
        ),
        [],
        write("train.en", TEXT.replace("two two", "two\u2028two")),
    ),
    "control characters": Case(
        (
            "{folder}/train.de: line 2 has only control characters, which Moses removes; put a "
            "sentence there or remove the line from both sides"
        ),
        [],
        write("train.de", TEXT.replace("three three one", "\x01")),
    ),
    "missing line": Case(
        (
            "{folder}/train.en: line 2 is blank, but not in {folder}/train.de (4 lines against "
            "3); blank lines end documents and must be the same on both sides, so look for a "
            "missing or an extra line before this one"
        ),
        [],
        write("train.en", TEXT.replace("one two two\n", "")),
    ),
    "missing lines at the end": Case(
        (
            "{folder}/test.de: line 2 has no counterpart, {folder}/test.en ends before it (4 "
            "lines against 1); line i of one side must be the translation of line i of the "
            "other, so add the missing lines"
        ),
        [],
        write("test.en", TEXT[:12]),
    ),
    "missing boundary": Case(
        (
            "{folder}/test.en: line 3 is blank, but not in {folder}/test.de (3 lines against 4); "
            "blank lines end documents and must be the same on both sides, so look for a missing "
            "or an extra line before this one"
        ),
        [],
        write("test.de", TEXT.replace("\n\n", "\n")),
    ),
    "empty files": Case(
        "{folder}/test.de: the file has no sentences; add at least one non-blank line",
        [],
        both(write("test.de", ""), write("test.en", "")),
    ),
    "one language": Case("--source-lang and --target-lang are both 'de'", ["--target-lang", "de"]),
    "negative merges": Case(
        "--bpe-operations must not be negative, got -1", ["--bpe-operations", "-1"]
    ),
    "no workers": Case("--workers must be at least 1, got 0", ["--workers", "0"]),
    "nothing to merge": Case(
        (
            "the training text has no word of two characters, so no merges can be learned; use "
            "--bpe-operations 0"
        ),
        ["--bpe-operations", "9"],
        both(*(write(f"train.{lang}", "a b\n\nc d\n") for lang in ("de", "en"))),
    ),
    "no pair twice": Case(
        (
            "no character pair occurs twice in the training text, so no BPE merges can be learned; "
            "give more text, or use --bpe-operations 0"
        ),
        ["--bpe-operations", "9"],
        both(*(write(f"train.{lang}", text) for lang, text in (("de", "ab\n"), ("en", "cd\n")))),
    ),
    "small vocabulary": Case(
        (
            "--bpe-operations 2 leaves nothing to merge, as the training text has 14 symbols of "
            "one character; give more, or leave out --bpe-total-symbols"
        ),
        ["--bpe-operations", "2", "--bpe-total-symbols"],
    ),
    "symbol as a word": Case(
        (
            "{folder}/test.de: line 4 has the word <sep>, which is reserved for a symbol of the "
            "model; write it differently"
        ),
        [],
        write("test.de", TEXT.replace("five", "<sep>")),
    ),
    "dictionary that overwrites symbols": Case(
        (
            "--dictionary {folder}/words: line 2 has the flag #fairseq:overwrite, which "
            "fairseq-preprocess drops, so that the binarised data could not be read; write the "
            "word differently"
        ),
        ["--dictionary", "{folder}/words"],
        write("words", "one 3\n<s> 2 #fairseq:overwrite\n"),
    ),
    "one text for two splits": Case(
        "--train {folder}/train and --valid {folder}/out/../train are the same text; give others",
        ["--valid", "{folder}/out/../train"],
    ),
    "one test set twice": Case(
        "--test {folder}/test and --test {folder}/test are the same text; give others",
        ["--test", "{folder}/test", "{folder}/test"],
    ),
    "sides in the script of the other": Case(
        (
            "{folder}/train.ru is in Latin script and {folder}/train.en in Cyrillic; the sides are "
            "swapped: exchange the two files"
        ),
        ["--source-lang", "ru"],
        both(
            *(write(f"{split}.ru", TEXT) for split in ("train", "valid", "test")),
            write("train.en", "раз два два\nтри три раз\n\nчетыре пять четыре пять\n"),
        ),
    ),
    "sides with the words of the other": Case(
        (
            "{folder}/test.de: 100% of the words are words of {folder}/train.en, and 0% of "
            "{folder}/train.de; the sides are swapped: exchange the file and {folder}/test.en"
        ),
        [],
        both(
            *(write(f"{split}.de", 9 * "ein Wort\n") for split in ("train", "valid")),
            *(write(f"{split}.en", 9 * "this is one word\n") for split in ("train", "valid")),
            write("test.de", 50 * "one word\n"),
            write("test.en", 50 * "ein Wort\n"),
        ),
    ),
    "file for a folder": Case(
        "--destdir {folder}/train.de is a file; give a folder", ["--destdir", "{folder}/train.de"]
    ),
}


@pytest.mark.parametrize("name", PREPARATION)
def test_preparation(place, capsys, monkeypatch, name):
    """Finished stages are complete; nothing is binarised."""
    case = PREPARATION[name]
    for split in ("train", "valid", "test"):
        for language in ("de", "en"):
            write(f"{split}.{language}", TEXT)(place)
    arguments = ["--source-lang", "de", "--target-lang", "en", "--destdir", "{folder}/out"]
    arguments += [a for s in ("train", "valid", "test") for a in (f"--{s}", f"{{folder}}/{s}")]
    arguments += ["--source-tokenizer", "none", "--target-tokenizer", "none", "--workers", "1"]
    case.break_it(place)
    command = [place.filled(a) for a in (*arguments, "--bpe-operations", "0", *case.arguments)]
    assert complaint(lambda: prepare.main(command), capsys) == (
        1,
        f"error: {place.filled(case.message)}",
    )
    made = [str(path) for path in place.folder.glob("out/**/*")]
    assert not any(path.endswith("/bin") or "partial" in path for path in made)


def _read_tab_separated():
    runpy.run_path(tab_separated.__file__, run_name="__main__")


READERS = {
    "unlike sides": (
        check_documents.main,
        ["{folder}/a", "{folder}/b"],
        (
            "{folder}/a: line 2 is blank, but not in {folder}/b (3 lines against 2); blank lines "
            "end documents and must be the same on both sides, so look for a missing or an extra "
            "line before this one"
        ),
    ),
    "no such file": (
        check_documents.main,
        ["{folder}/a", "{folder}/no"],
        "{folder}/no: cannot be read (No such file or directory)",
    ),
    "a line of megabytes": (
        check_documents.main,
        ["{folder}/long", "{folder}/long"],
        (
            "{folder}/long: line 1 has 500,001 characters, and lines are limited to 500,000; check "
            "the line ends of the file"
        ),
    ),
    "one suffix": (
        hold_out.main,
        ["a.en", "b.en", "--valid", "1", "--test", "1", "--out", "o"],
        "both files end in '.en'; give each language a suffix",
    ),
    "everything held out": (
        hold_out.main,
        ["{folder}/c.x", "{folder}/c.y", "--valid", "1", "--test", "1", "--out", "{folder}"],
        "holding out 2 of 1 documents leaves none for training; draw fewer",
    ),
    "no tab": (
        _read_tab_separated,
        ["{folder}/a", "--out", "{folder}/x", "{folder}/y"],
        (
            "{folder}/a: line 1 has 0 tabs; expected a sentence, one tab and its translation, or "
            "a blank line between documents"
        ),
    ),
    "columns of the other language": (
        _read_tab_separated,
        ["{folder}/russian", "--out", "{folder}/x.ru", "{folder}/x.en"],
        (
            "{folder}/x.ru is in Latin script and {folder}/x.en in Cyrillic; the sides are "
            "swapped: exchange the two files"
        ),
    ),
    "no folder to write to": (
        _read_tab_separated,
        ["{folder}/tabs", "--out", "{folder}/a/x", "{folder}/a/y"],
        "{folder}/a/x cannot be written (File exists)",
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_readers(place, capsys, name):
    main, arguments, message = READERS[name]
    texts = {"a": "one\n\ntwo\n", "b": "one\ntwo\n", "tabs": "one\tuno\n", "russian": "one\tраз\n"}
    texts.update({"c.x": "a\n", "c.y": "b\n", "long": "a" * 500_001})
    for file, text in texts.items():
        write(file, text)(place)
    run = lambda: tiny.run_main(main, *map(place.filled, arguments))  # noqa: E731
    assert_refused(run, Case(message), place, capsys)


# ---- scoring -------------------------------------------------------------------------------------

USAGE = ["cxmi", "--path", "{checkpoint}", "--data", "{data}", "--cpu"]
USAGE += ["--source", "{folder}/a", "--reference", "{folder}/b"]
METRICS = ["metrics", "x={folder}/a", "--reference", "{folder}/b"]
SCORING = {
    "a table without a header": Case(
        (
            "{folder}/b seems to be a table whose first line does not name its columns "
            "(FILE#doc=1,text=2 names them); give it in one of the formats that `convert --help` "
            "lists, or give --input-format text if it is one sentence per line"
        ),
        METRICS,
        write("b", "d1\tv1\nd1\tv2\n"),
    ),
    "a line of megabytes": Case(
        (
            "{folder}/b: sentence 3 has 700,000 characters, and scores are limited to 500,000; "
            "check its line ends"
        ),
        METRICS,
        write("b", "v1\n\n" + "v" * 700_000 + "\n"),
    ),
    "nothing to score": Case(
        (
            "{folder}/b: nothing is left to score; left out, marked as bad (is_bad_source): 1 "
            "documents (d)"
        ),
        METRICS,
        both(
            write("a", "w1\n"),
            write("b", '{"doc_id": "d", "text": "v1", "is_bad_source": true}\n'),
        ),
    ),
    "unlike lines": Case(
        "{folder}/a has 3 lines, but {folder}/b has 1; both need a line for each sentence",
        USAGE,
        write("b", "v1\n"),
    ),
    "blank in one": Case(
        (
            "line 2 is blank in only one of {folder}/a and {folder}/b; a blank line separates "
            "documents on both sides"
        ),
        USAGE,
        write("b", "v1\nv2\nv3\n"),
    ),
    "no source": Case("{folder}/a cannot be read: No such file or directory", USAGE, remove("a")),
    "context": Case(
        "--context some: give positive numbers of sentences, all, or other-document:K",
        [*USAGE, "--context", "some"],
    ),
    "no codes": Case("BPE codes no not found", [*USAGE, "--bpe-codes", "no"]),
    "no truecaser": Case("truecasing model no not found", [*USAGE, "--source-truecaser", "no"]),
    "codes of other text": Case(
        (
            "--bpe-codes {folder}/codes: not the merges of the training data; leave the option "
            "out, or give the codes in its folder"
        ),
        [*USAGE, "--bpe-codes", "{folder}/codes"],
        both(
            write("codes", "#version: 0.2\na b\n"),
            write("data/own", "#version: 0.2\na c\n"),
            form(*2 * ['{"bpe_codes": "own"}']),
        ),
    ),
    "prepared text with codes": Case(
        "--as-prepared is for text that needs no tokenizer, truecasing or BPE",
        [*USAGE, "--as-prepared", "--bpe-codes", "{folder}/a"],
    ),
    "half precision": Case("--fp16 needs a GPU; leave it out", [*USAGE, "--fp16"]),
    "no room": Case(
        "--max-tokens and --batch-size must be at least 1", [*USAGE, "--max-tokens", "0"]
    ),
    "broken checkpoint": Case("checkpoint {checkpoint} " + DAMAGED, USAGE, cut("trained.pt", 2000)),
}


@pytest.mark.parametrize("name", SCORING)
def test_scoring(place, capsys, name):
    case = SCORING[name]
    write("a", "w1\n\nw2\n")(place)
    write("b", "v1\n\nv2\n")(place)
    run = lambda: tiny.run_main(command_line.main, *place.arguments(case))  # noqa: E731
    assert_refused(run, case, place, capsys)
