"""From raw parallel documents to a binarised folder, in one command.

    python data_prep/prepare.py --source-lang zh --target-lang en \\
        --train corpus/train --valid corpus/valid --test corpus/test --destdir data/zh-en

Run it again after an interruption: what is finished is kept, what changed is made anew.
"""

import argparse
import io
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

import tokenizers
from check_documents import CorpusError, check_lines, read_lines
from stages import Stages, map_lines, write_lines


class Preparation:
    """All stages for one pair of languages.

    Args:
        args: options of the command line.
    """

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.languages = (args.source_lang, args.target_lang)
        self.folder = Path(args.destdir)
        self.stages = Stages(self.folder)
        self.prefixes: Dict[str, str] = {"train": args.train, "valid": args.valid}
        for number, prefix in enumerate(args.test or []):
            self.prefixes[f"test{number or ''}"] = prefix

    def run(self) -> Path:
        """Run every stage.

        Returns:
            Path of the binarised folder.

        Raises:
            CorpusError: bad input, named with file and line.
        """
        self._check_and_copy()
        step = self._map_files("raw", "tokenized", self._tokenizer)
        if self.args.truecase:
            self._learn_truecasing()
            step = self._map_files(step, "truecased", self._truecaser)
        if self.args.bpe_operations > 0:
            self._learn_subwords(step)
            step = self._map_files(step, "subwords", self._segmenter)
        return self._binarise(step)

    def text(self, step: str, split: str, language: str) -> Path:
        return self.folder / "text" / step / f"{split}.{language}"

    def _check_and_copy(self) -> None:
        """Check every split before any work is done; copies have uniform line ends."""
        for split, prefix in self.prefixes.items():
            paths = [f"{prefix}.{language}" for language in self.languages]
            src, tgt = (read_lines(path) for path in paths)
            counts = check_lines(src, tgt, *paths)
            print(f"{split}: {counts.documents:,} documents, {counts.sentences:,} sentence pairs")
            for language, path, lines in zip(self.languages, paths, (src, tgt)):
                self.stages.run(
                    f"raw.{split}.{language}",
                    [Path(path)],
                    self.text("raw", split, language),
                    {},
                    lambda output, lines=lines: write_lines(output, map(str.strip, lines)),
                )

    def _map_files(self, before: str, after: str, choose) -> str:
        """Apply a line function to every file; returns the name of the new step."""
        for split in self.prefixes:
            for language in self.languages:
                build, arguments, files = choose(language)
                source = self.text(before, split, language)
                name = f"{after}.{split}.{language}"

                def work(output: Path, source=source, name=name, build=build, arguments=arguments):
                    lines = read_lines(str(source))
                    mapped = map_lines(lines, build, arguments, name, self.args.workers)
                    write_lines(output, mapped)

                options = {"arguments": [str(a) for a in arguments]}
                output = self.text(after, split, language)
                self.stages.run(name, [source, *files], output, options, work)
        return after

    # ---- line functions: (builder, its arguments, files it reads) --------------------------------

    def _tokenizer(self, language: str):
        is_source = language == self.args.source_lang
        wanted = self.args.source_tokenizer if is_source else self.args.target_tokenizer
        return tokenizers.tokenizer, (tokenizers.choose(wanted, language), language), []

    def _truecaser(self, language: str):
        path = self.folder / f"truecase.{language}"
        return tokenizers.truecaser, (str(path),), [path]

    def _segmenter(self, language: str):
        path = self._codes(language)
        return tokenizers.subword_segmenter, (str(path),), [path]

    def _codes(self, language: str) -> Path:
        return self.folder / (f"codes.{language}" if self.args.separate_bpe else "codes")

    # ---- what is learned from the training text --------------------------------------------------

    def _learn_truecasing(self) -> None:
        from sacremoses import MosesTruecaser

        for language in self.languages:
            source = self.text("tokenized", "train", language)

            def work(output: Path, source=source):
                print(f"learning truecasing from {source.name}", file=sys.stderr)
                sentences = [line.split() for line in read_lines(str(source)) if line]
                MosesTruecaser().train(sentences, save_to=str(output))

            path = self.folder / f"truecase.{language}"
            self.stages.run(f"truecase.{language}", [source], path, {}, work)

    def _learn_subwords(self, step: str) -> None:
        from subword_nmt.learn_bpe import learn_bpe

        sides = [[language] for language in self.languages]
        for languages in sides if self.args.separate_bpe else [list(self.languages)]:
            sources = [self.text(step, "train", language) for language in languages]

            def work(output: Path, sources=sources):
                print("learning subwords", file=sys.stderr)
                lines = [line for source in sources for line in read_lines(str(source)) if line]
                text = io.StringIO("\n".join(lines) + "\n")
                with open(output, "w", encoding="utf-8") as codes:
                    learn_bpe(text, codes, self.args.bpe_operations)

            path = self._codes(languages[0])
            options = {"operations": self.args.bpe_operations}
            self.stages.run(path.name, sources, path, options, work)

    # ---- binarised data --------------------------------------------------------------------------

    def _binarise(self, step: str) -> Path:
        names = list(self.prefixes)
        paths = [self.text(step, split, lang) for split in names for lang in self.languages]

        def work(output: Path):
            def prefix(split: str) -> str:
                return str(self.text(step, split, "")).rstrip(".")

            tests = [prefix(split) for split in names if split.startswith("test")]
            command = [sys.executable, "-m", "fairseq_cli.preprocess"]
            command += ["--source-lang", self.languages[0], "--target-lang", self.languages[1]]
            command += ["--trainpref", prefix("train"), "--validpref", prefix("valid")]
            command += ["--testpref", ",".join(tests)] if tests else []
            command += ["--joined-dictionary"] if self.args.joined_dictionary else []
            command += ["--destdir", str(output), "--workers", str(self.args.workers)]
            print("binarising", file=sys.stderr)
            _run(command)

        options = {"joined": self.args.joined_dictionary, "splits": names}
        self.stages.run("binarised", paths, self.folder / "bin", options, work)
        return self.folder / "bin"


def _run(command: List[str]) -> None:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode != 0:
        last = result.stdout.strip().splitlines()[-1:] or ["no message"]
        raise CorpusError(f"fairseq-preprocess failed: {last[0]}")


def parse_args(arguments=None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--source-lang", required=True, help="suffix of the source files")
    add("--target-lang", required=True, help="suffix of the target files")
    add("--train", required=True, help="prefix of the training files: PREFIX.zh, PREFIX.en")
    add("--valid", required=True, help="prefix of the validation files")
    add("--test", nargs="+", help="prefixes of test files, which become test, test1, test2 ...")
    add("--destdir", required=True, help="folder for all results; binarised data in its bin/")
    choices = ["auto", "moses", "jieba", "none"]
    for side in ("source", "target"):
        add(
            f"--{side}-tokenizer",
            choices=choices,
            default="auto",
            help="auto: jieba for Chinese, Moses otherwise",
        )
    add("--truecase", action="store_true", help="truecase with a model of the training text")
    add("--bpe-operations", type=int, default=30000, help="merges to learn; 0: no subwords")
    add("--separate-bpe", action="store_true", help="learn merges for each side alone")
    add("--joined-dictionary", action="store_true", help="one dictionary for both sides")
    add("--workers", type=int, default=2, help="processes")
    args = parser.parse_args(arguments)
    if args.source_lang == args.target_lang:
        raise CorpusError(f"--source-lang and --target-lang are both {args.source_lang!r}")
    if args.bpe_operations < 0 or args.workers < 1:
        raise CorpusError("--bpe-operations must not be negative and --workers at least 1")
    return args


def main(arguments=None) -> None:
    try:
        folder = Preparation(parse_args(arguments)).run()
    except CorpusError as error:
        sys.exit(f"error: {error}")
    print(f"binarised data in {folder}")


if __name__ == "__main__":
    main()
