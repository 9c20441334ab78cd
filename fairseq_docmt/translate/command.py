r"""Translate files of documents.

    fairseq-docmt translate --model checkpoint_best.pt talk.txt --out talk.de
    fairseq-docmt translate --model checkpoint_best.pt wmt.xml --out translated.xml
    fairseq-docmt translate --model checkpoint_best.pt book/ --out translated/ --split-sentences en

The output has the format of the input.  Translations replace the source or are added to it:

  text       one sentence per line, documents separated by blank lines or given by --docids; with
             --split-sentences lines are paragraphs and a file is one document
  jsonl      one JSON object per segment or document, with doc_id and source or text; the field
             hypothesis is added and, with --nbest, the field nbest
  table      the same fields as columns separated by tabs; the column hypothesis is added
  WMT XML    documents with a src element; a hyp element is added to each
  SGM        a srcset of older WMT tasks; it becomes a tstset
  folder     every file is a document; the output is a folder with files of the same names
  -          standard input

Tokenizer, BPE, languages and decoding are as in the checkpoint.  In addition to the options
below, any option of fairseq-generate can be given, such as --decoding window or
--no-repeat-ngram-size 4.  Finished documents are kept in OUT.partial until all are done.  If the
command is interrupted, run it again, and it continues with the next document.
"""

import argparse
import ast
import dataclasses
import inspect
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from tqdm import tqdm

import fairseq_docmt
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.readers import read_docids
from fairseq_docmt.readers.files import files_below, write_text
from fairseq_docmt.translate.engine import Settings, batches, running
from fairseq_docmt.translate.exported import SEARCH, has_gpu, is_exported, read_info
from fairseq_docmt.translate.formats import Document, Layout, PlainText, Translations, read_source
from fairseq_docmt.translate.journal import Journal, fingerprint

#: device -> documents and segments that are translated side by side, and tokens of a batch
SIZES = {"cpu": (32, 2000, 4000), "cuda": (256, 20000, 16000)}


#: Name of the system in formats that have one.
SYSTEM = "fairseq_docmt"
#: Other name of an option in fairseq-generate -> its name here.
ALIASES = {"max_sentences": "batch_size"}
LONG_SENTENCES = ", which cuts sentences that are too long for the model into pieces; leave it out"
#: Options of fairseq-generate whose value is a file.
OF_FILES = ("--bpe-codes", "--lm-path", "--sentencepiece-model", "--user-dir")
#: Options of fairseq-generate that say what translate says in another way, or not at all.
OF_OTHER_COMMANDS = {
    "path": "; give --model",
    "cpu": "; give --device cpu",
    "fp16": "; give --precision fp16",
    "bf16": "; give --precision bf16",
    "skip_invalid_size_inputs_valid_test": LONG_SENTENCES,
    "skip_invalid_size_inputs": LONG_SENTENCES,
    "truncate_source": LONG_SENTENCES,
    "model_overrides": "; give the options of the model themselves, such as --alignment linear",
    "task": ", which translates with the task of training; leave it out",
    **dict.fromkeys(
        ("drafts", "gold_drafts"), ", whose input is no binarised corpus; use fairseq-generate"
    ),
    **dict.fromkeys(
        ("post_process", "remove_bpe"), ", which joins the subwords itself; leave it out"
    ),
    "no_seed_provided": "; give another --seed for other samples",
    "constraints": "; use fairseq-interactive, or leave it out",
    "replace_unk": "; use fairseq-generate or fairseq-interactive",
    "print_alignment": ", whose formats have no place for alignments; use fairseq-generate",
    **dict.fromkeys(
        "gen_subset results_path scoring sacrebleu num_shards shard_id quiet log_format "
        "dataset_impl left_pad_source".split(),
        "; leave it out",
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command-line options of ``fairseq-docmt translate``."""
    add = parser.add_argument
    add("inputs", metavar="INPUT", nargs="+", help="file, folder, or - for standard input")
    add(
        "--model",
        metavar="FILE",
        required=True,
        help="checkpoint, several joined by :, or exported",
    )
    add(
        "--out", metavar="PATH", help="file, or folder for several inputs; default: standard output"
    )
    add(
        "--data",
        metavar="DIR",
        default="",
        help="folder with the dictionaries; default: training's",
    )
    add(
        "--input-format",
        choices=["auto", "text"],
        default="auto",
        help="text: whatever it seems; default: auto",
    )
    add("--docids", metavar="FILE", help="document of each line of a text")
    add(
        "--split-sentences",
        metavar="LANG",
        help="cut lines or segments into sentences: en, de, ...",
    )
    add("--system", default=SYSTEM, help=f"name in XML and SGM; default: {SYSTEM}")
    add("--decoding", help="sequential, window, ...; default: that of the task")
    add("--beam", type=int, help="default: 5")
    add("--lenpen", type=float, help="weight of the length; above 1 favours long; default: 1")
    add("--nbest", type=int, default=1, help="translations of a segment, for jsonl; default: 1")
    add("--seed", type=int, metavar="N", help="of --sampling and --retain-dropout; default: 1")
    add(
        "--batch-size", type=int, metavar="N", help="sentences of a batch; default: by --max-tokens"
    )
    add("--max-tokens", type=int, metavar="N", help="default: 4000, on a GPU 16000")
    add("--device", help="cpu, cuda, cuda:1, ...; default: a GPU if there is one")
    add("--precision", choices=["fp32", "fp16", "bf16"], default="fp32", help="default: fp32")
    add("--workers", type=int, default=1, metavar="N", help="processes on a CPU; default: 1")


def with_values(words: List[str], parser: argparse.ArgumentParser) -> List[str]:
    """Join each option that the parser does not know with its value, as ``--name=value``.

    Options of fairseq-generate are unknown to the parser, which would take their values for input
    files.  The word after such an option is its value, unless it is another option or, with options
    that take no file, the path of an existing file or folder.

    Args:
        words: words of the command line.
        parser: parser of the command.

    Returns:
        The words, with such options and values joined.
    """
    joined: List[str] = []
    for word in words:
        last = joined[-1] if joined else ""
        unknown = last.startswith("--") and "=" not in last
        unknown = unknown and last not in parser._option_string_actions
        is_value = re.fullmatch(r"-[\d.]+|[^-].*|", word)
        if unknown and is_value and (last in OF_FILES or not os.path.exists(word)):
            joined[-1] = f"{last}={word}"
        else:
            joined.append(word)
    return joined


class File(NamedTuple):
    """An input file and where its translation goes.

    Attributes:
        source: content of the input, an instance of a class of
            :mod:`fairseq_docmt.translate.formats`.
        target: path of the translation; None for standard output.
    """

    source: object
    target: Optional[str]


def main(args: argparse.Namespace, others: List[str]) -> None:
    """Run ``fairseq-docmt translate``.

    Args:
        args: options that :func:`add_arguments` defines.
        others: words of the command line that the parser does not know, taken as fairseq options.
    """
    exported = is_exported(args.model)
    paths = args.model.split(os.pathsep)
    if "" in paths:
        raise UserError(f"--model {args.model} has an empty path; leave out the : beside it")
    if len(paths) > 1 and any(map(is_exported, paths)):
        raise UserError(f"--model {args.model}: exported models cannot be joined; give one model")
    if not exported:
        fairseq_docmt.register()
    device = args.device or ("cuda" if (has_gpu if exported else _has_gpu)() else "cpu")
    settings = _settings(args, others, device)
    if args.workers < 1 or (args.workers > 1 and device != "cpu"):
        raise UserError(f"--workers must be 1, or on a CPU more; got {args.workers} on {device}")
    files = _files(args)
    if args.system != SYSTEM and not any(file.source.holds_system for file in files):
        raise UserError("--system names the system in XML and SGM; leave it out")
    if not args.system.strip() or not args.system.isprintable():
        raise UserError(f"--system is {args.system!r}; give a name of printable characters")
    documents = [d for file in files for d in file.source.documents]
    if not any(segment for document in documents for segment in document.segments):
        raise UserError("the input has no text to translate")
    journal = _journal(args, settings, documents)
    done = False
    try:
        _run(files, documents, journal, settings, args, _sizes(device)[:2])
        done = True
    except KeyboardInterrupt:
        again = "; run the same command again to continue" if journal else ""
        raise UserError(f"interrupted{again}") from None
    finally:
        if journal:
            journal.close(keep=not done)


def _settings(args: argparse.Namespace, others: List[str], device: str) -> Settings:
    """Collect the model and all options that the translating processes need.

    Args:
        args: options of ``translate``.
        others: fairseq options, as words of the command line.
        device: device on which to translate.

    Raises:
        UserError: an option has no effect in this command, a word belongs to no option, or the
            device is unknown.
    """
    options = _other_options(others)
    for name in options:
        if name in OF_OTHER_COMMANDS:
            raise UserError(f"{flag(name)} has no effect in translate{OF_OTHER_COMMANDS[name]}")
    search = {*SEARCH} if is_exported(args.model) else _options_of_search()
    given = {"beam": args.beam, "lenpen": args.lenpen}
    given = {name: value for name, value in given.items() if value is not None}
    given.update({name: value for name, value in options.items() if name in search})
    model = {name: value for name, value in options.items() if name not in search}
    if args.decoding is not None:
        model["decoding"] = args.decoding
    model.update(data=args.data, device=device, precision=args.precision)
    model["max_tokens"] = _sizes(device)[2] if args.max_tokens is None else args.max_tokens
    if args.batch_size is not None:
        model["batch_size"] = args.batch_size
    seed = _seed(args, random=bool(options.get("sampling") or options.get("retain_dropout")))
    return Settings(args.model, model, given, args.nbest, args.split_sentences, seed)


def _seed(args: argparse.Namespace, random: bool) -> Optional[int]:
    """Return the seed if the search makes random choices (default 1, as in fairseq), else None.

    Raises:
        UserError: the search makes no random choices, or the seed is out of range.
    """
    if args.seed is not None and not random:
        raise UserError("--seed is for --sampling and --retain-dropout; leave it out")
    if args.seed is not None and not 0 <= args.seed < 2**32:
        raise UserError(f"--seed must be from 0 to {2**32 - 1}, got {args.seed}")
    return (1 if args.seed is None else args.seed) if random else None


def _options_of_search() -> Set[str]:
    from fairseq.dataclass.configs import GenerationConfig
    from fairseq.hub_utils import GeneratorHubInterface

    from fairseq_docmt.generation.translator import OF_LOADING

    options = {field.name for field in dataclasses.fields(GenerationConfig)} - {*OF_LOADING}
    return options | {*inspect.signature(GeneratorHubInterface.generate).parameters}


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _sizes(device: str) -> Tuple[int, int, int]:
    """Return how much text to translate together on a device.

    Returns:
        Three limits: documents translated together, their segments, and tokens in a batch.

    Raises:
        UserError: the device is unknown.
    """
    kind = device.partition(":")[0]
    if kind not in SIZES:
        raise UserError(f"--device {device} is unknown; choose from {', '.join(SIZES)}")
    return SIZES[kind]


def _other_options(words: List[str]) -> dict:
    """Parse fairseq options into a dictionary from option names, with underscores, to values.

    Values that look like Python literals, such as numbers, are converted.  An option without a
    value, such as ``--sampling``, gets the value True.

    Raises:
        UserError: a word belongs to no option.
    """
    found, name = {}, None
    for word in words:
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            name = name.replace("-", "_")
            name = ALIASES.get(name, name)
            found[name] = _value(value) if has_value else True
            name = None if has_value else name
        elif name is None:
            raise UserError(f"{word} belongs to no option; put inputs before the options")
        else:
            found[name], name = _value(word), None
    return found


def _value(word: str):
    try:
        return ast.literal_eval(word)
    except (SyntaxError, ValueError):
        return word


def _files(args: argparse.Namespace) -> List[File]:
    """Read all inputs, and determine the output file of each.

    Raises:
        UserError: an input cannot be read; an output exists already; or ``--out``, ``--docids`` or
            ``--nbest`` does not suit the inputs.
    """
    folders = [path for path in args.inputs if os.path.isdir(path)]
    several = bool(folders) or len(args.inputs) > 1
    if several and (args.out is None or "-" in args.inputs):
        raise UserError("several files need --out FOLDER, and cannot be standard input")
    if several and os.path.exists(args.out) and not os.path.isdir(args.out):
        raise UserError(f"{args.out} is a file; several files need --out FOLDER")
    for folder in folders:
        if _is_within(args.out, folder):
            raise UserError(
                f"--out {args.out} is in {folder}, whose files are translated; give another folder"
            )
    if args.docids and (several or args.split_sentences):
        raise UserError("--docids names the documents of one text, whose lines are sentences")
    if args.out and args.out.endswith(".gz"):
        raise UserError("--out: translations are not compressed; leave out .gz, and run gzip after")
    docids = read_docids(args.docids) if args.docids else None
    source_language, language = _languages(args)

    def read(path: str, whole: bool) -> object:
        layout = Layout(whole or args.split_sentences is not None, docids)
        found = read_source(path, layout, args.input_format == "text", args.system, language)
        if _differ(getattr(found, "source_language", None), source_language):
            print(
                f"note: {path} declares its source as {found.source_language}, but the model "
                f"translates {source_language}",
                file=sys.stderr,
            )
        if args.nbest > 1 and not found.holds_nbest:
            raise UserError(f"--nbest {args.nbest} needs JSON lines as input, and {path} is not")
        return found

    if not several:
        target = None if args.out in (None, "-") else args.out
        if target and (os.path.isdir(target) or target.endswith(os.sep)):
            target = os.path.join(target, os.path.basename(args.inputs[0]))
        target = _new(target, args)
        return [File(read(args.inputs[0], False), target)]
    targets = {}
    for path, target, whole in _below(args.inputs):
        target = os.path.join(args.out, target)
        if target in targets:
            raise UserError(f"{path} and {targets[target][0]} have the same name; rename one")
        targets[target] = path, whole
    files, with_blanks = [], []
    for target, (path, whole) in targets.items():
        target = _new(target, args)
        files.append(File(read(path, whole), target))
        source = files[-1].source
        if whole and isinstance(source, PlainText) and source.has_blank_lines:
            with_blanks.append(path)
    if with_blanks:
        print(
            f"note: {len(with_blanks)} files have blank lines ({with_blanks[0]}), which do not end "
            "documents here: each file of a folder is one document",
            file=sys.stderr,
        )
    return files


def _is_within(path: str, folder: str) -> bool:
    """Return whether a path, which need not exist, is a folder or lies below it."""
    path, folder = (os.path.join(os.path.realpath(each), "") for each in (path, folder))
    return path.startswith(folder)


def _differ(declared: Optional[str], wanted: Optional[str]) -> bool:
    """Return whether two codes, such as en-US and de, are of different languages.

    Codes of unequal lengths, such as eng and en, are not compared.
    """
    codes = [re.split("[-_]", code.lower())[0] for code in (declared, wanted) if code]
    return len({*codes}) == 2 and len({*map(len, codes)}) == 1


def _languages(args: argparse.Namespace) -> Tuple[Optional[str], Optional[str]]:
    """Return the source and target language of the model.

    Both are None if neither checkpoint nor data names them.
    """
    if is_exported(args.model):
        info = read_info(args.model)
        return info.source_lang, info.target_lang
    from fairseq import utils
    from fairseq.data import data_utils

    from fairseq_docmt.checkpoint_file import read_translation_model

    trained = read_translation_model(args.model.split(os.pathsep)[0]).settings["task"]
    folder = args.data or utils.split_paths(trained.get("data", ""))[0]
    if trained.get("target_lang") or not os.path.isdir(folder):
        return trained.get("source_lang"), trained.get("target_lang")
    return data_utils.infer_language_pair(folder)


def _below(inputs: List[str]) -> Iterator[Tuple[str, str, bool]]:
    """Find all input files, and where to write their translations.

    Args:
        inputs: files and folders; the files of a folder and its subfolders are read.

    Yields:
        For each file, its path, its output path relative to ``--out``, and whether the whole file
        is one document.  The last is True for files in folders only.
    """
    for path in inputs:
        if os.path.isdir(path):
            for file in files_below(path):
                yield str(file), str(file.relative_to(path)), True
        else:
            yield path, os.path.basename(path), False


def _new(target: Optional[str], args: argparse.Namespace) -> Optional[str]:
    """Return an output path after checking that it does not overwrite a file of another run.

    Args:
        target: the path; None, for standard output, is returned unchecked.
        args: options of the command.

    Raises:
        UserError: the path exists, and there is no interrupted run to continue.
    """
    if target and os.path.exists(target) and not os.path.exists(_partial(args)):
        raise UserError(f"{target} is already there; remove it, or give another --out")
    return target


def _partial(args: argparse.Namespace) -> str:
    return args.out.rstrip(os.sep) + ".partial"


def _journal(
    args: argparse.Namespace, settings: Settings, documents: List[Document]
) -> Optional[Journal]:
    if args.out in (None, "-"):
        return None
    models = [
        (os.path.abspath(file), os.stat(file).st_size, os.stat(file).st_mtime_ns)
        for path in settings.model.split(os.pathsep)
        for file in ([path] if os.path.isfile(path) else map(str, sorted(Path(path).iterdir())))
    ]
    values = {**settings._asdict(), "model": models}
    if values["seed"] is None:  # how much is translated at once changes nothing
        sizes = ("batch_size", "max_tokens")
        values["options"] = {k: v for k, v in settings.options.items() if k not in sizes}
        del values["seed"]
    return Journal(_partial(args), fingerprint(values, documents))


def _run(files, documents, journal, settings, args, size) -> None:
    """Translate documents, and write each file as soon as all its documents are translated.

    Args:
        files: input files with their outputs.
        documents: documents of all files, in order.
        journal: journal of documents finished by this run or an interrupted one; None for
            standard output.
        settings: model and options of the translating processes.
        args: options of the command.
        size: maximum numbers of documents and segments to translate together.
    """
    found = dict(journal.found) if journal else {}
    left = [*enumerate(documents)]
    if settings.seed is None:  # else documents stay in their groups, on which samples depend
        left = [each for each in left if each[0] not in found]
    if found:
        print(f"{len(found)} of {len(documents)} documents are already done", file=sys.stderr)
    most_documents, most_segments = size
    # Documents side by side cost less, but each process needs work.
    if args.workers > 1 and settings.seed is None:
        most_documents = max(1, min(most_documents, -(-len(left) // args.workers)))
        most_segments = max(1, min(most_segments, -(-_segments(left) // args.workers)))
    groups = batches(left, most_documents, most_segments)
    groups = [group for group in groups if any(number not in found for number, _ in group)]
    total = _segments(enumerate(documents))
    done = sum(len(each.translations) for each in found.values())
    bar = tqdm(total=total, initial=done, unit="segment", disable=None)
    with running(settings, args.workers if groups else 0) as translate, bar:
        results = translate(groups)

        def translations_of(number: int) -> list:
            while number not in found:
                for each, document in next(results):
                    if each in found:
                        continue
                    found[each] = document
                    if journal:
                        journal.add(each, document)
                    for note in document.notes:
                        tqdm.write(f"warning: {note}", file=sys.stderr)
                    bar.update(len(document.translations))
            return found[number].translations

        first = 0
        for file in files:
            _write(file, partial(lambda first, number: translations_of(first + number), first))
            first += len(file.source.documents)
    without = sum(file.source.without_nbest for file in files) if args.nbest > 1 else 0
    if without > 0:
        print(
            f"warning: {without} records have no nbest: they are empty, have several lines, were "
            "cut into sentences, or have only one translation",
            file=sys.stderr,
        )


def _segments(documents: Iterable[Tuple[int, Document]]) -> int:
    """Return the total number of segments in documents, which are given as (number, document)."""
    return sum(len(document.segments) for _, document in documents)


def _write(file: File, translations: Translations) -> None:
    """Write the translation of a file.

    On standard output, each line is printed as soon as it is translated.  XML and SGM files are
    printed as a whole.

    Args:
        file: file to write.
        translations: function from the number of a document in the file to the translations of its
            segments.

    Raises:
        UserError: a file with other text is there.
    """
    pieces = (
        piece.replace("\n", file.source.line_end) for piece in file.source.pieces(translations)
    )
    if file.target is not None:
        text = "".join(pieces)
        if not os.path.isfile(file.target):
            write_text(file.target, text)
        elif Path(file.target).read_bytes() != text.encode():  # not that of an interrupted run
            raise UserError(
                f"{file.target} is there by now, with other text; move it, and run this again"
            )
        return
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
