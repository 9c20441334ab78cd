"""The program ``fairseq-docmt``, which runs the commands that this package adds to fairseq."""

import argparse
import ast
import difflib
import importlib
import inspect
import os
import runpy
import sys
from functools import partial
from pathlib import Path
from typing import List

import fairseq_docmt
from fairseq_docmt._quiet import quietly
from fairseq_docmt.errors import UserError, flag

PACKAGE = Path(__file__).resolve().parent
USER_DIR = "user-dir"
PREPARE = "prepare"
#: Group -> commands, and the module of each.  A module has a docstring, whose first line is shown
#: in the list, and ``main``, which parses ``sys.argv``; or ``add_arguments(parser)`` and
#: ``main(args)``, or ``main(args, others)`` if it takes any option of fairseq besides.
GROUPS = {
    "translate": {
        "translate": "translate.command",
        "export-ctranslate2": "translate.export_ctranslate2",
    },
    "evaluate translations": {
        "metrics": "scoring.corpus.metrics",
        "report": "scoring.report.command",
        "convert": "scoring.texts.convert",
        "ctxpro": "scoring.words.ctxpro",
        "muda": "scoring.words.muda",
        "pronouns": "scoring.words.pronouns",
        "dropped-pronouns": "scoring.words.dropped_pronouns",
    },
    "choose translations": {"mbr": "scoring.reranking.mbr", "rerank": "scoring.reranking.rerank"},
    "evaluate models": {
        "contrastive": "scoring.contrastive.command",
        "cxmi": "scoring.context.cxmi",
        "attention-share": "analysis.attention_share",
        "bleu-by-position": "analysis.bleu_by_position",
        "cache-matching": "analysis.cache_matching",
        "gradient-attribution": "analysis.gradient_attribution",
        "memory-attention": "analysis.memory_attention",
    },
    "models and data": {
        "average": "average_checkpoints",
        PREPARE: "prepare",
        "options": "options",
        USER_DIR: "__main__",
    },
}
#: commands that start without fairseq and torch; translate needs them for checkpoints only
LIGHT = {*GROUPS["evaluate translations"], "mbr", "translate", USER_DIR}
COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}


def main() -> None:
    """Run the command named on the command line.

    Raises:
        UserError: there is no such command.
    """
    name, words = (sys.argv[1:2] or ["--help"])[0], sys.argv[2:]
    if name in ("-h", "--help"):
        print(overview())
        return
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        fix = f"do you mean {close[0]}?" if close else f"choose from {', '.join(COMMANDS)}"
        raise UserError(f"{name} is no command; {fix}")
    dashes = [word for word in words if word.startswith("--") and word.endswith("=--")]
    if dashes:  # argparse of Python 3.8 to 3.12 makes a list of it
        raise UserError(f"{dashes[0]}: an option cannot have the value --; give another")
    sys.argv = [f"fairseq-docmt {name}", *words]
    if name == PREPARE:
        with quietly():
            _prepare()
    else:
        try:
            with quietly():
                if name not in LIGHT:
                    fairseq_docmt.register()
                _run(name, words)
        except KeyboardInterrupt:
            raise UserError("interrupted") from None


#: Options whose empty values the command itself refuses.
WITH_OWN_MESSAGE = ("separator",)
#: Options whose values are files that a command writes.
OUTPUTS = ("out", "write_docids", "items", "convert", "tags", "list")


def _check_files(name: str, parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Refuse empty option values, output files that are also read, and one file for two outputs.

    Args:
        name: name of the command.
        parser: parser of the command, for the defaults of its options.
        args: parsed options.

    Raises:
        UserError: a value is refused; the message names the option.
    """
    values = vars(args)
    given = {
        option: [_text_of(v) for v in (value if isinstance(value, list) else [value])]
        for option, value in values.items()
        if isinstance(value, (str, Path)) or isinstance(value, list) and value
    }
    for option, texts in given.items():
        if texts == [""] and parser.get_default(option) != "" and option not in WITH_OWN_MESSAGE:
            raise UserError(f"{flag(option)} is empty; give a file or a value")
    if name == "translate":  # writes no file that is there
        return
    written = [option for option in OUTPUTS if option in given]
    if name == "report" and "tags" in written:
        written.remove("tags")  # which other commands write
    outputs = {option: given[option][0] for option in written}
    read = [text for option, texts in given.items() if option not in outputs for text in texts]
    for option, output in outputs.items():
        same = [other for other in outputs if other != option and _same(output, outputs[other])]
        if same:
            raise UserError(f"{flag(option)} and {flag(same[0])} are both {output}; give two files")
        if any(_same(output, file) for text in read for file in _files_in(text)):
            raise UserError(f"{flag(option)} {output} is read, too; give another file to write")


def _text_of(value) -> str:
    """Return what was typed: the file of a score of ``rerank``, and other values as they are."""
    return str(value if isinstance(value, (str, Path)) else getattr(value, "name", value))


def _files_in(text: str) -> List[str]:
    """Return the files that an option's value may name: ``FILE``, ``NAME=FILE``, ``FILE#TEXT``."""
    files = [text, text.partition("=")[2]]
    return [*filter(None, [*files, *(file.rpartition("#")[0] for file in files)])]


def _same(one: str, other: str) -> bool:
    """Return whether two paths name the same file.

    The file need not exist yet.  Folders and devices, such as ``/dev/null``, never count as the
    same.
    """
    if os.path.isfile(one) and os.path.isfile(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other) and not os.path.exists(one)


def _run(name: str, words: List[str]) -> None:
    module = _module(name)
    if not hasattr(module, "add_arguments"):
        module.main()
    elif len(inspect.signature(module.main).parameters) == 2:
        parser = parser_of(name)
        words = getattr(module, "with_values", lambda words, _: words)(words, parser)
        args, others = parser.parse_known_args(words)
        _check_files(name, parser, args)
        module.main(args, others)
    else:
        parser = parser_of(name)
        args = parser.parse_args(words)
        _check_files(name, parser, args)
        module.main(args)


def _module(name: str):
    return importlib.import_module(f"fairseq_docmt.{COMMANDS[name]}")


def parser_of(name: str) -> argparse.ArgumentParser:
    """Build the argument parser of a command whose module has ``add_arguments``."""
    module = _module(name)
    parser = argparse.ArgumentParser(
        prog=f"fairseq-docmt {name}",
        description=module.__doc__,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=30),
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    parser.usage = _short_usage(parser)
    return parser


def _short_usage(parser: argparse.ArgumentParser) -> str:
    """Return a usage line with only the arguments that must be given."""
    words = ["%(prog)s [options]"]
    for action in parser._actions:
        if action.option_strings and action.required:
            words.append(f"{action.option_strings[-1]} {action.metavar or action.dest.upper()}")
    for action in parser._actions:
        if not action.option_strings:
            words.append(f"{action.metavar}{' ...' * (action.nargs == '+')}")
    return " ".join(words)


def _prepare() -> None:
    """Run the script data_prep/prepare.py of the project, which is not part of the package.

    Raises:
        UserError: the package was installed without the script.
    """
    script = _file_of(PREPARE)
    if not script.exists():
        raise UserError(f"{script} is missing; run prepare in a checkout of the project")
    sys.path.insert(0, os.fspath(script.parent))
    runpy.run_path(os.fspath(script), run_name="__main__")


def _file_of(name: str) -> Path:
    """Return the path of the Python file that implements a command."""
    if name == PREPARE:
        return PACKAGE.parent / "data_prep" / "prepare.py"
    return PACKAGE.joinpath(*COMMANDS[name].split(".")).with_suffix(".py")


def overview() -> str:
    """Return the help text of ``fairseq-docmt``: all commands by group, with one line on each."""
    lines = ["usage: fairseq-docmt COMMAND ...", ""]
    for group, commands in GROUPS.items():
        lines.append(f"{group}:")
        lines += [f"  {name:21s} {_first_line(_file_of(name))}" for name in commands]
        lines.append("")
    return "\n".join([*lines, "fairseq-docmt COMMAND --help shows the options of a command."])


def _first_line(path: Path) -> str:
    """Return the first line of the docstring of a Python file, without importing the file.

    If the file does not exist, the result is empty.
    """
    if not path.exists():  # the package was installed without data_prep
        return ""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).splitlines()[0]
