"""Every fairseq command of a recipe is understood by the real parsers."""

import re
import shlex

import pytest
import tiny
from fairseq import options

RECIPES = sorted((tiny.ROOT / "examples").glob("*/*.sh"))
VARIABLES = {"user_dir": tiny.USER_DIR}
PARSERS = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-preprocess": options.get_preprocessing_parser,
}


def commands(path):
    """(program, arguments) of each stock command in a script; variables become a plain number."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        line = line.split("#")[0]
        found = re.search(r"\b(fairseq-(?:train|generate|preprocess))\s+([^>|&]*)", line)
        if found:
            arguments = re.sub(r'"\$@"', "", found.group(2))
            arguments = re.sub(r"\$user_dir\b", tiny.USER_DIR, arguments)
            arguments = re.sub(
                r'"[^"]*\$\{?\w+[^"]*"', "4", arguments.replace(f'"{tiny.USER_DIR}"', tiny.USER_DIR)
            )
            arguments = re.sub(r"\$\w+", "4", arguments)
            yield found.group(1), shlex.split(arguments)


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_commands_are_understood(path):
    for program, arguments in commands(path):
        if "--decoding" in arguments:
            place = arguments.index("--decoding") + 1
            assert arguments[place] in ("4", "window", "sequential", "segment")
            arguments[place] = "window"
        parser = PARSERS[program]()
        if program == "fairseq-preprocess":
            parser.parse_args(arguments)
        elif program == "fairseq-generate":
            parser.add_argument("--arch", "-a", default="wav2vec2")
            options.parse_args_and_arch(parser, arguments)
        else:
            options.parse_args_and_arch(parser, arguments)


def test_recipes_were_found():
    programs = [program for path in RECIPES for program, _ in commands(path)]
    assert programs.count("fairseq-train") >= 2 and programs.count("fairseq-generate") >= 2
