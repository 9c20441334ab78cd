"""Every fairseq command of a recipe is understood by the real parsers."""

import re
import shlex

import pytest
import tiny
from fairseq import options

# The scripts of the context probe share their commands; the long tests run them all.
RECIPES = sorted(
    path for path in (tiny.ROOT / "examples").glob("*/*.sh") if path.parent.name != "context_probe"
)
VARIABLES = {"user_dir": tiny.USER_DIR}
PARSERS = {
    "fairseq-train": options.get_training_parser,
    "fairseq-generate": options.get_generation_parser,
    "fairseq-preprocess": options.get_preprocessing_parser,
}


def lines_of(path):
    """Commands of a script, one a line; a call of a function stands for its body."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.split(" #")[0] for line in text.splitlines() if not line.startswith("#")]
    functions = {}
    for name, body in re.findall(r"^(\w+)\(\) \{\n(.*?)^\}", text, flags=re.M | re.S):
        inside = [line for line in body.splitlines() if "fairseq-" in line]
        if inside and '"$@"' in inside[0]:
            functions[name] = inside[0]
    called, found = set(), []
    for line in lines:
        call = re.search(r"(?:^|\)|\w=\S*)\s*(\w+) (--\w.*?)(?:;;|$)", line)
        if call and call.group(1) in functions:
            called.add(functions[call.group(1)])
            found.append(functions[call.group(1)].replace('"$@"', call.group(2)))
        else:
            found.append(line)
    return [line for line in found if line not in called]


def commands(path):
    """(program, arguments) of each stock command in a script; variables become a plain number."""
    for line in lines_of(path):
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
            arguments[place] = "sequential"
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


def test_every_system_of_a_recipe_is_parsed():
    """Functions are called with the options of each system, not only defined."""
    path = tiny.ROOT / "examples" / "herold2023_window_attention" / "train.sh"
    archs = [a[a.index("--arch") + 1] for _, a in commands(path) if "--arch" in a]
    assert archs.count("window_attn_transformer") == 2 and "lst_transformer" in archs


def test_every_system_of_wu2022_is_parsed_with_windows_and_with_groups():
    found = [a for _, a in commands(tiny.ROOT / "examples" / "wu2022_rfa" / "train.sh")]
    for task in ("sliding_window_translation", "full_document_translation"):
        systems = [a for a in found if task in a]
        gates = [a[a.index("--sentence-gate") + 1] for a in systems if "--sentence-gate" in a]
        archs = [a[a.index("--arch") + 1] for a in systems]
        assert archs == ["transformer_iwslt_de_en"] + 3 * ["rfa_transformer_iwslt"]
        assert gates == ["decay", "average"]


def test_every_system_of_feng2022_is_parsed():
    found = [a for _, a in commands(tiny.ROOT / "examples" / "feng2022_memory" / "train.sh")]
    sides = [a[a.index("--memory-side") + 1] for a in found if "--memory-side" in a]
    archs = [a[a.index("--arch") + 1] for a in found]
    assert sides == ["both", "source", "target"]
    assert archs == ["transformer"] + 3 * ["memory_transformer"]
    program = tiny.ROOT / "examples" / "feng2022_memory" / "generate.sh"
    tasks = [a[a.index("--task") + 1] for _, a in commands(program)]
    assert tasks == ["sliding_window_translation", "sentence_stream_translation"]


def test_every_system_of_tu2018_is_parsed():
    found = [a for _, a in commands(tiny.ROOT / "examples" / "tu2018_cache" / "train.sh")]
    assert [a[a.index("--arch") + 1] for a in found] == ["rnnsearch"] + 3 * ["cache_rnn"]
    assert [a[a.index("--fusion") + 1] for a in found if "--fusion" in a] == ["shallow"]


def test_every_system_of_maruf2018_is_parsed():
    found = [a for _, a in commands(tiny.ROOT / "examples" / "maruf2018_memnet" / "train.sh")]
    archs = [a[a.index("--arch") + 1] for a in found]
    assert archs == ["rnnsearch_512"] + 3 * ["memnet_rnn"] + 3 * ["context_rnn"]
    assert [a[a.index("--memory") + 1] for a in found if "--memory" in a] == [
        "source",
        "target",
        "both",
    ]
