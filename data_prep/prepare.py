r"""Prepare raw parallel documents for training: from text to binarised data.

    python data_prep/prepare.py --source-lang zh --target-lang en \
        --train corpus/train --valid corpus/valid --test corpus/test --destdir data/zh-en

After an interruption, run it again: finished stages are kept, and stages whose input has changed
are repeated.
"""

import argparse
import errno
import io
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import line_functions
import sanity
from check_documents import CorpusError, Parser, check_files, iterate_lines
from documents import check_not_read
from stages import PARTIAL, Stages, count_lines, map_lines, progress, run_together, write_lines
from subwords import learn_codes, learn_sentencepiece, pieces_of

# File in the binarised folder that says how its text was made; fairseq_docmt reads it.
TEXT_FORM = "text_form.json"
# Flag of a word of a dictionary that is a symbol of fairseq's too.
OVERWRITE = "#fairseq:overwrite"
# Runs fairseq-preprocess until its standard input closes, as it does when this process ends or is
# killed.
PREPROCESS = """
import os, sys, threading
sys.argv[0] = "fairseq-preprocess"
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
from fairseq_cli.preprocess import cli_main
cli_main()
"""
BPE, SENTENCEPIECE = "bpe", "sentencepiece"
MODEL_FILES = ("truecaser", "bpe_codes", SENTENCEPIECE)


class Step(NamedTuple):
    """A preprocessing step for the text of one language, such as tokenization.

    If one of its files or options changes, the step is repeated.

    Attributes:
        build: function that returns the line function, which converts a single line.
        arguments: arguments of ``build``.
        files: model files on which the results depend.
        options: options on which the results depend.
    """

    build: Callable
    arguments: Sequence[str]
    files: Sequence[Path] = ()
    options: Sequence[str] = ()


class Preparation:
    """All stages that turn the corpus of a language pair into binarised data.

    Args:
        args: options of the command line.
    """

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.languages = (args.source_lang, args.target_lang)
        self.folder = Path(args.destdir)
        self.stages = Stages(self.folder)
        given = args.sentencepiece_model is not None
        self.subwords = SENTENCEPIECE if given else args.subword
        if self.subwords == BPE and args.bpe_operations == 0:
            self.subwords = None
        self.separate = args.separate_bpe and not given
        self.prefixes: Dict[str, str] = {"train": args.train, "valid": args.valid}
        for number, prefix in enumerate(args.test or []):
            self.prefixes[f"test{number or ''}"] = prefix

    def run(self) -> Path:
        """Run all stages that are not finished yet, from raw text to binarised data.

        Returns:
            Path of the binarised folder.

        Raises:
            CorpusError: the input is invalid; the message names the file and line.
        """
        with self.stages.locked():
            return self._run()

    def _run(self) -> Path:
        self._check_and_copy()
        kind = self._map_files("raw", "tokenized", self._tokenizer)
        self._check_splits(kind)
        if self.args.truecase:
            self._learn_truecasing()
            kind = self._map_files(kind, "truecased", self._truecaser)
        if self.subwords:
            self._learn_subwords(kind)
            kind = self._map_files(kind, "subwords", self._segmenter)
        return self._binarise(kind)

    def text(self, kind: str, split: str, language: str) -> Path:
        """Return the path of a text file in the working folder.

        Args:
            kind: state of the text, such as ``raw`` or ``tokenized``.
            split: ``train``, ``valid``, ``test``, ...
            language: language of the side.
        """
        return self.folder / "text" / kind / f"{split}.{language}"

    def _check_and_copy(self) -> None:
        """Check each split of the corpus, and copy it to ``text/raw`` in the working folder.

        In the copies, lines are stripped of white space and end with LF.

        Raises:
            CorpusError: the text of a split is invalid, or a copy would overwrite another split.
        """
        given = {
            split: [f"{prefix}.{language}" for language in self.languages]
            for split, prefix in self.prefixes.items()
        }
        for split in given:
            copies = [str(self.text("raw", split, language)) for language in self.languages]
            others = [paths for other, paths in given.items() if other != split]
            problem = f"is given as another split, but {split} is written there; copy it elsewhere"
            check_not_read(copies, others, problem)
        for split, paths in given.items():
            counts = check_files(*paths)
            print(f"{split}: {counts.documents:,} documents, {counts.sentences:,} sentence pairs")
            for language, path in zip(self.languages, paths):

                def copy(output: Path, path=path):
                    write_lines(output, map(str.strip, iterate_lines(path)))

                raw = self.text("raw", split, language)
                self.stages.run(f"raw.{split}.{language}", [Path(path)], raw, {}, copy)

    def _check_splits(self, kind: str) -> None:
        """Refuse validation and test sets with swapped sides; warn about text that splits share.

        Args:
            kind: state of the text to check, see :meth:`text`.

        Raises:
            CorpusError: the sides of a set are swapped.
        """

        def sides(split: str) -> List[sanity.Side]:
            lines = (iterate_lines(str(self.text(kind, split, name))) for name in self.languages)
            files = (f"{self.prefixes[split]}.{name}" for name in self.languages)
            return [sanity.Side(*side) for side in zip(files, self.languages, lines)]

        def lines(split: str) -> sanity.Sides:
            source, target = sides(split)
            return source.lines, target.lines

        others = [split for split in self.prefixes if split != "train"]
        known = sanity.KnownWords(sides("train"))
        for split in others:
            fault = known.swapped(sides(split))
            if fault:
                raise CorpusError(fault)
        sanity.check_repetition(lines("train"), {split: lines(split) for split in others})

    def _map_files(self, before: str, after: str, choose: Callable[[str], Step]) -> str:
        """Apply a preprocessing step to both sides of all splits.

        Args:
            before, after: states of the text before and after the step, such as ``raw`` and
                ``tokenized``.
            choose: function that returns the step for a language.

        Returns:
            The new state of the text, ``after``.
        """
        for split, prefix in self.prefixes.items():
            for language in self.languages:
                source = self.text(before, split, language)
                step = choose(language)
                name = f"{after}.{split}.{language}"
                user_file = f"{prefix}.{language}"

                def work(output: Path, source=source, step=step, name=name, user_file=user_file):
                    lines, total = iterate_lines(str(source)), count_lines(source)
                    build, arguments, workers = step.build, step.arguments, self.args.workers
                    mapped = map_lines(lines, build, arguments, name, user_file, workers, total)
                    write_lines(output, mapped)

                inputs = [source, *step.files]
                output = self.text(after, split, language)
                self.stages.run(name, inputs, output, {"options": list(step.options)}, work)
        return after

    def _tokenizer_name(self, language: str) -> str:
        is_source = language == self.args.source_lang
        wanted = self.args.source_tokenizer if is_source else self.args.target_tokenizer
        if wanted == "auto" and self.subwords == SENTENCEPIECE:
            return "none"
        return line_functions.choose_tokenizer(wanted, language)

    def _tokenizer(self, language: str) -> Step:
        arguments = (self._tokenizer_name(language), language)
        return Step(line_functions.tokenizer, arguments, options=arguments)

    def _truecaser(self, language: str) -> Step:
        path = self.folder / f"truecase.{language}"
        return Step(line_functions.truecaser, [str(path)], [path], ["known words stay"])

    def _segmenter(self, language: str) -> Step:
        path = self._subword_model(language)
        build = {
            BPE: line_functions.subword_segmenter,
            SENTENCEPIECE: line_functions.sentencepiece_segmenter,
        }
        return Step(build[self.subwords], [str(path)], files=[path])

    def _subword_model(self, language: str) -> Path:
        name, end = ("codes", "") if self.subwords == BPE else ("sentencepiece", ".model")
        return self.folder / (f"{name}.{language}{end}" if self.separate else f"{name}{end}")

    # ---- models learned from the training text ---------------------------------------------------

    def _learn_truecasing(self) -> None:
        from sacremoses import MosesTruecaser

        for language in self.languages:
            source = self.text("tokenized", "train", language)

            def work(output: Path, source=source):
                lines, name = iterate_lines(str(source)), f"truecase.{source.name}"
                sentences = (s.split() for s in progress(lines, name, count_lines(source)) if s)
                MosesTruecaser().train(sentences, save_to=str(output))

            path = self.folder / f"truecase.{language}"
            self.stages.run(f"truecase.{language}", [source], path, {}, work)

    def _learn_subwords(self, kind: str) -> None:
        sides = [[language] for language in self.languages]
        sides = sides if self.separate else [list(self.languages)]
        learn = self._learn_merges if self.subwords == BPE else self._learn_pieces
        run_together([partial(learn, kind, side) for side in sides], self.args.workers)

    def _learn_merges(self, kind: str, languages: Sequence[str]) -> None:
        sources = [self.text(kind, "train", language) for language in languages]

        def work(output: Path):
            learn_codes(sources, output, self.args.bpe_operations, self.args.bpe_total_symbols)

        path = self._subword_model(languages[0])
        options = {"operations": self.args.bpe_operations}
        if self.args.bpe_total_symbols:
            options["total_symbols"] = True
        self.stages.run(path.name, sources, path, options, work)

    def _learn_pieces(self, kind: str, languages: Sequence[str]) -> None:
        sources = [self.text(kind, "train", language) for language in languages]
        given = self.args.sentencepiece_model

        def work(output: Path):
            if given:
                pieces_of(given)
                shutil.copyfile(given, output)
            else:
                learn_sentencepiece(sources, output, self.args.vocabulary_size)

        path = self._subword_model(languages[0])
        options = {"pieces": None if given else self.args.vocabulary_size}
        self.stages.run(path.name, [Path(given)] if given else sources, path, options, work)

    # ---- binarised data --------------------------------------------------------------------------

    def _binarise(self, kind: str) -> Path:
        names = list(self.prefixes)
        text_form = {language: self._text_form(language) for language in self.languages}
        paths = [self.text(kind, split, lang) for split in names for lang in self.languages]

        def work(output: Path):
            output.mkdir()
            self._write_dictionaries(kind, output)
            tests = [split for split in names if split.startswith("test")]
            command = [sys.executable, "-c", PREPROCESS]
            command += ["--source-lang", self.languages[0], "--target-lang", self.languages[1]]
            command += ["--trainpref", "train", "--validpref", "valid"]
            command += ["--testpref", ",".join(tests)] if tests else []
            for side, language in zip(("src", "tgt"), self.languages):
                command += [f"--{side}dict", str(output.resolve() / f"dict.{language}.txt")]
            command += ["--destdir", str(output.resolve())]
            command += ["--workers", str(parts_for(self.args.workers))]
            print("binarising", file=sys.stderr)
            # Relative paths, because fairseq splits lists of files at commas.
            _run(command, self.folder / "text" / kind)
            for file in {f.get(key) for f in text_form.values() for key in MODEL_FILES} - {None}:
                shutil.copyfile(self.folder / file, output / file)
            write_lines(output / TEXT_FORM, [json.dumps(text_form, indent=1)])

        given = [Path(self.args.dictionary)] if self.args.dictionary else []
        options = {"joined": self.args.joined_dictionary, "splits": names, "text": text_form}
        if self.args.words:
            options["words"] = self.args.words
        self.stages.run("binarised", [*paths, *given], self.folder / "bin", options, work)
        return self.folder / "bin"

    def _text_form(self, language: str) -> Dict[str, Optional[str]]:
        """Return the entry of a language in ``text_form.json``: tokenizer and model file names."""
        truecaser = f"truecase.{language}" if self.args.truecase else None
        model = self._subword_model(language).name
        form = {"tokenizer": self._tokenizer_name(language), "truecaser": truecaser}
        form["bpe_codes"] = model if self.subwords == BPE else None
        return {**form, SENTENCEPIECE: model} if self.subwords == SENTENCEPIECE else form

    def _write_dictionaries(self, kind: str, folder: Path) -> None:
        """Write dictionaries as fairseq-preprocess does, but faster.

        With SentencePiece, a dictionary has all pieces of the model, so that other text has no
        unknown words.  With ``--dictionary``, the given file is copied for both sides instead.

        Args:
            kind: state of the text to read, see :meth:`text`.
            folder: folder to write to.

        Raises:
            CorpusError: a word of the text is reserved as a symbol of the model.
        """
        import fairseq_docmt  # noqa: F401, I001  first: it imports fairseq without its messages
        from fairseq.data import Dictionary

        counts = {language: self._count_words(kind, language) for language in self.languages}
        if self.args.dictionary:
            known = Dictionary.load(self.args.dictionary)
            for language, words in counts.items():
                unknown = sum(count for word, count in words.items() if word not in known)
                share = unknown / sum(words.values())
                print(f"{language}: {share:.2%} of the training words are not in the dictionary")
                shutil.copyfile(self.args.dictionary, folder / f"dict.{language}.txt")
            return
        if self.subwords == SENTENCEPIECE:
            for language, words in counts.items():
                words.update(dict.fromkeys(pieces_of(self._subword_model(language)), 0))
        if self.args.joined_dictionary:
            joined: Counter = Counter()
            for words in counts.values():
                joined.update(words)
            counts = {language: joined for language in self.languages}
        for language, words in counts.items():
            dictionary = Dictionary()
            for word, count in words.items():
                dictionary.add_symbol(word, count)
            most = self.args.words and self.args.words + dictionary.nspecial
            dictionary.finalize(nwords=most or -1)
            if most:
                known = sum(words[word] for word in dictionary.symbols[dictionary.nspecial :])
                print(
                    f"{language}: {1 - known / sum(words.values()):.2%} of the training words are "
                    f"not among the {self.args.words:,} in the dictionary"
                )
            dictionary.save(str(folder / f"dict.{language}.txt"))

    def _count_words(self, kind: str, language: str) -> Counter:
        """Count the words of the training text, and check that no split has reserved words.

        Args:
            kind: state of the text to read, see :meth:`text`.
            language: side to read.

        Raises:
            CorpusError: a word is reserved as a symbol of the model.
        """
        from fairseq_docmt.symbols import complaint, first_reserved

        counts: Counter = Counter()
        for split, prefix in self.prefixes.items():
            for number, line in enumerate(iterate_lines(str(self.text(kind, split, language))), 1):
                words = line.split()
                found = first_reserved(words) if "<" in line else None
                if found:
                    place = f"{prefix}.{language}: line {number}"
                    raise CorpusError(f"{complaint(place, found)}; write it differently")
                if split == "train":
                    counts.update(words)
        return counts


def parts_for(workers: int) -> int:
    """Return how many ``--workers`` fairseq-preprocess needs to keep ``workers`` cores busy.

    fairseq-preprocess cuts a text into as many parts as it has workers.  It reads the first part
    only after all others are finished, so the parts must be small.
    """
    return 1 if workers == 1 else min(4 * workers, workers + 32)


def _run(command: List[str], folder: Path) -> None:
    read, written = os.pipe()  # closed by the system when this process ends
    try:
        result = subprocess.run(
            command, cwd=str(folder), stdin=read, capture_output=True, text=True
        )
    finally:
        os.close(read)
        os.close(written)
    if result.returncode != 0:
        printed = result.stderr.strip() or result.stdout.strip()
        last = printed.splitlines()[-1:] or ["no message"]
        raise CorpusError(f"fairseq-preprocess failed (status {result.returncode}): {last[0]}")


def check_dictionary(path: str) -> None:
    """Check that fairseq can read a dictionary file.

    Raises:
        CorpusError: the file is missing or is not a dictionary; the message names the line.
    """
    if not Path(path).is_file():
        raise CorpusError(f"--dictionary {path} not found")
    import fairseq_docmt  # noqa: F401, I001  first: it imports fairseq without its messages
    from fairseq.data import Dictionary

    known, number = Dictionary(), 0
    for number, line in enumerate(iterate_lines(path), start=1):
        where = f"--dictionary {path}: line {number}"
        if line.rstrip().endswith(OVERWRITE):
            raise CorpusError(
                f"{where} has the flag {OVERWRITE}, which fairseq-preprocess drops, so that the "
                "binarised data could not be read; write the word differently"
            )
        try:
            known.add_from_file(io.StringIO(f"{line}\n"))
        except ValueError:
            raise CorpusError(
                f"{where} ({line.strip()[:60]!r}) must be a word, a space and its count; give the "
                "dict.*.txt of a model"
            ) from None
        except RuntimeError:
            word = line.rpartition(" ")[0]
            raise CorpusError(f"{where} repeats the word {word!r}; remove it there") from None
    if not number:
        raise CorpusError(f"--dictionary {path}: the file has no words; give another one")


def cores() -> int:
    """Return the number of cores that this process may use."""
    may_use = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))
    return len(may_use(0))


def parse_args(arguments=None) -> argparse.Namespace:
    """Parse the command line, check the options, and set the defaults that depend on other options.

    Raises:
        CorpusError: an option is invalid, or a file is missing.
    """
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--source-lang", required=True, help="suffix of the source files")
    add("--target-lang", required=True, help="suffix of the target files")
    add("--train", required=True, help="prefix of the training files, e.g. corpus/train")
    add("--valid", required=True, help="prefix of the validation files")
    add("--test", nargs="+", help="prefixes of the test files, renamed to test, test1, test2 ...")
    add("--destdir", required=True, help="folder for all results; binarised data goes to bin/")
    choices = ["auto", "moses", "jieba", "none"]
    for side in ("source", "target"):
        add(
            f"--{side}-tokenizer",
            choices=choices,
            default="auto",
            help="default: none with SentencePiece, else jieba for Chinese, Moses for others",
        )
    _add_text_options(add)
    add("--workers", type=int, default=cores(), help="number of processes; default: all cores")
    args = parser.parse_args(arguments)
    _check(args)
    return args


def _add_text_options(add) -> None:
    """Add the options for truecasing, subwords and dictionaries.

    Args:
        add: ``add_argument`` method of the parser.
    """
    add("--truecase", action="store_true", help="truecase with a model of the training text")
    add(
        "--subword",
        choices=[BPE, SENTENCEPIECE],
        default=BPE,
        help="bpe: merges of subword-nmt (default); sentencepiece: unigram model on raw text",
    )
    add("--bpe-operations", type=int, help="number of merges; 0: no subwords; default: 30000")
    add(
        "--words",
        type=int,
        metavar="N",
        help="with --bpe-operations 0: keep the N most frequent words in each dictionary, others "
        "are <unk>; default: all",
    )
    add(
        "--bpe-total-symbols",
        action="store_true",
        help="let --bpe-operations be the size of the vocabulary, characters included "
        "(--total-symbols of subword-nmt)",
    )
    add(
        "--vocabulary-size",
        type=int,
        metavar="N",
        help="number of pieces that SentencePiece learns; default: 30000",
    )
    add(
        "--sentencepiece-model",
        metavar="FILE",
        help="use this model of SentencePiece for both sides, learn none",
    )
    add("--separate-bpe", action="store_true", help="learn separate subwords for each side")
    add("--joined-dictionary", action="store_true", help="one dictionary for both sides")
    add(
        "--dictionary",
        metavar="FILE",
        help="use this dictionary, of a pre-trained model, for both sides",
    )


def _check(args: argparse.Namespace) -> None:
    """Check the options of the command line, and set missing subword options to their defaults.

    Raises:
        CorpusError: an option is invalid, or a file is missing.
    """
    if args.source_lang == args.target_lang:
        raise CorpusError(f"--source-lang and --target-lang are both {args.source_lang!r}")
    if Path(args.destdir).exists() and not Path(args.destdir).is_dir():
        raise CorpusError(f"--destdir {args.destdir} is a file; give a folder")
    _check_subwords(args)
    if args.workers < 1:
        raise CorpusError(f"--workers must be at least 1, got {args.workers}")
    if args.words is not None:
        _check_words(args)
    _check_prefixes(args)
    model = args.sentencepiece_model
    if model is not None and not Path(model).is_file():
        raise CorpusError(f"--sentencepiece-model {model} not found")
    if args.dictionary is not None:
        check_dictionary(args.dictionary)
    if model is not None and args.separate_bpe:
        raise CorpusError(
            "--separate-bpe learns subwords, which --sentencepiece-model gives; leave one of them "
            "out"
        )


def _check_subwords(args: argparse.Namespace) -> None:
    """Refuse subword options that contradict each other; set missing ones to their defaults.

    Raises:
        CorpusError: an option is invalid or would have no effect.
    """
    if args.vocabulary_size is not None and args.vocabulary_size < 1:
        raise CorpusError(f"--vocabulary-size must be at least 1, got {args.vocabulary_size}")
    sentencepiece = args.subword == SENTENCEPIECE or args.sentencepiece_model is not None
    if sentencepiece and args.bpe_operations is not None:
        raise CorpusError("--bpe-operations is for --subword bpe; leave it out with SentencePiece")
    if args.vocabulary_size is not None and (not sentencepiece or args.sentencepiece_model):
        raise CorpusError("--vocabulary-size is for --subword sentencepiece, which learns pieces")
    if args.bpe_operations is not None and args.bpe_operations < 0:
        raise CorpusError(f"--bpe-operations must not be negative, got {args.bpe_operations}")
    for option in ("separate_bpe", "bpe_total_symbols"):
        if args.bpe_operations == 0 and getattr(args, option):
            name = option.replace("_", "-")
            raise CorpusError(f"--{name} is for subwords; leave it out with --bpe-operations 0")
    args.bpe_operations = 30000 if args.bpe_operations is None else args.bpe_operations
    args.vocabulary_size = args.vocabulary_size or 30000


def _check_words(args: argparse.Namespace) -> None:
    """Check ``--words``, the number of words in a dictionary if there are no subwords.

    Raises:
        CorpusError: the number is below 1, or other options ask for subwords or give a dictionary.
    """
    if args.words < 1:
        raise CorpusError(f"--words must be at least 1, got {args.words}")
    if args.bpe_operations or args.subword != BPE or args.sentencepiece_model or args.dictionary:
        raise CorpusError(
            "--words limits dictionaries of words; give it with --bpe-operations 0 and without "
            "SentencePiece and --dictionary"
        )


def _check_prefixes(args: argparse.Namespace) -> None:
    """Check the prefixes of the text files, such as ``corpus/train``.

    Raises:
        CorpusError: a text is given twice, or a prefix ends in the suffix of a language.
    """
    given: Dict[Path, str] = {}
    options = [("--train", args.train), ("--valid", args.valid)]
    for option, prefix in (*options, *(("--test", prefix) for prefix in args.test or [])):
        for side in (args.source_lang, args.target_lang):
            if prefix.endswith(f".{side}") and not Path(f"{prefix}.{side}").exists():
                start = prefix[: -len(side) - 1]
                raise CorpusError(f"{option} takes the name without the language: {start}")
        path = Path(f"{prefix}.{args.source_lang}").resolve()
        if path in given:
            raise CorpusError(f"{given[path]} and {option} {prefix} are the same text; give others")
        given[path] = f"{option} {prefix}"


def main(arguments=None) -> None:
    """Run the preparation; if there is an error, print it and exit."""
    try:
        args = parse_args(arguments)
        folder = Preparation(args).run()
    except CorpusError as error:
        sys.exit(f"error: {error}")
    except ModuleNotFoundError as error:
        sys.exit(f"error: the package {error.name} is needed; install it with pip")
    except OSError as error:
        file = PARTIAL.sub("", str(error.filename or args.destdir))
        again = "; free some space and run the same command again"
        fix = again if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        sys.exit(f"error: {file}: {error.strerror or error}{fix}")
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        sys.exit(130)
    print(f"binarised data in {folder}")


if __name__ == "__main__":
    main()
