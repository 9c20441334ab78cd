"""Recipes set what their tables say: examples/*/settings.tsv, one line for each hyper-parameter.

Columns: the script and the program that it calls; the systems (of sacrebleu: the texts, by their
suffix; of fairseq-interactive: search or sample) and corpora that a line is about, as patterns; the
setting, by the name that the program's own parser gives it; its value; what the paper has
(``same``, ``not given`` or another value); and where it says so.  Lines whose program is ``none``
are about what no option sets.
"""

import csv
import fnmatch
import functools
from argparse import Namespace
from importlib import import_module
from pathlib import Path
from typing import List, NamedTuple

import pytest
import recipes
import sacrebleu.sacrebleu
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_docmt import command_line
from fairseq_docmt.models.base import with_defaults

RECIPES = ["bao2021_group", "feng2022_memory", "herold2023_window_attention"]
RECIPES += ["li2020_multi_encoder", "maruf2018_memnet", "miculicich2018_han", "tu2018_cache"]
RECIPES += ["voita2019_docrepair", "wu2022_rfa"]
#: a comparison, whose page says how it differs from the paper
COMPARISON = "tu2018_cache/subtitle.sh"
RUNS = [run for run in recipes.RUNS if run.recipe in RECIPES and run.script != COMPARISON]
#: options that are not called as what they set
NAMES = {
    **{"-i": "input", "-m": "metrics", "-lc": "bleu_lowercase"},
    **{"-s": "source_lang", "-t": "target_lang", "--remove-bpe": "post_process"},
    **{f"--{name}": f"bleu_{name.replace('-', '_')}" for name in ("tokenize", "smooth-method")},
}
#: flags that choose among a few, or are languages of the text
CHOICES = {"--corpus", "--decoding", "--part", "--window-size", "--source-lang", "--target-lang"}
#: what names files, languages and machines, and not how a system is trained or evaluated
NO_SETTINGS = {
    "fairseq-train": {
        *("user_dir", "save_dir", "drafts", "gold_drafts", "sentence_lm", "no_epoch_checkpoints"),
        "max_epoch",
    },
    "fairseq-generate": {
        *("user_dir", "path", "results_path", "drafts", "source_lang", "target_lang", "task"),
        *("max_tokens", "batch_size", "gen_subset", "cpu", "skip_invalid_size_inputs_valid_test"),
    },
    "fairseq-interactive": {
        *("user_dir", "path", "input", "buffer_size", "source_lang", "target_lang", "task"),
        "max_tokens",
    },
    "fairseq-preprocess": {
        *("source_lang", "target_lang", "destdir", "trainpref", "validpref", "testpref"),
        *("srcdict", "tgtdict", "only_source"),
    },
    "prepare.py": {
        *("source_lang", "target_lang", "train", "valid", "test", "destdir", "workers"),
    },
    "tab_separated.py": {"out"},
    "tagged_documents.py": {"source", "target", "out"},
    "opus_documents.py": {"out"},
    "hold_out.py": {"out"},
    "add_noise.py": {"out", "dictionary"},
    "sacrebleu": {"input", "force", "metrics"},
    "fairseq-docmt": {
        *("path", "data", "bpe_codes", "format", "source", "reference", "to", "empty", "out"),
    },
}


class Row(NamedTuple):
    """A line of a settings table."""

    script: str
    program: str
    systems: str
    corpora: str
    setting: str
    value: str
    paper: str
    source: str

    def is_about(self, script: str, program: str, system: str, corpus: str) -> bool:
        """Return whether a line applies to a call."""
        return (
            fnmatch.fnmatchcase(script, self.script)
            and program == self.program
            and any(fnmatch.fnmatchcase(system, pattern) for pattern in self.systems.split())
            and any(fnmatch.fnmatchcase(corpus, pattern) for pattern in self.corpora.split())
        )


class Parsed(NamedTuple):
    """A call of a program with its parsed arguments."""

    script: str
    program: str
    system: str
    corpus: str
    values: dict
    given: set


@functools.lru_cache(maxsize=None)
def table(recipe: str) -> List[Row]:
    """Lines of the table of a recipe."""
    with open(recipes.EXAMPLES / recipe / "settings.tsv", encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    names = ["script", "program", "systems", "corpora", "setting", "value", "paper", "where"]
    assert header == names
    assert all(len(row) == len(header) and all(row) for row in rows), recipe
    return [Row(*row) for row in rows]


@functools.lru_cache(maxsize=None)
def parsed(recipe: str) -> List[Parsed]:
    """Return all calls of a recipe to programs that have settings."""
    found = []
    for run in RUNS:
        for call in run.calls() if run.recipe == recipe else ():
            if call.program not in NO_SETTINGS:
                continue
            values, given = understood(call.program, call.arguments)
            system = run.system
            if call.program == "sacrebleu":
                system = Path(call.arguments[0]).suffix[1:]
            if call.program == "fairseq-interactive":
                system = "sample" if "--sampling" in call.arguments else "search"
            script = Path(run.script).name
            found.append(Parsed(script, call.program, system, run.corpus, values, given))
    return found


def understood(program: str, arguments: List[str]):
    """Values by the program's own parser, and the names of those that were given."""
    if program.endswith(".py"):
        values = import_module(Path(program).stem).parse_args(arguments)
    elif program == "sacrebleu":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", [program, *arguments])
            values = sacrebleu.sacrebleu.parse_args()
    elif program == "fairseq-docmt":
        name, *rest = arguments
        values = command_line.parser_of(name).parse_args(rest)
    else:
        values = recipes.parse(program, arguments)
        model = ARCH_MODEL_REGISTRY.get(getattr(values, "arch", None))
        if hasattr(model, "architecture"):  # it sets what is not given
            decided = with_defaults(values, model.architecture)
            values = Namespace(**{**vars(values), **vars(decided)})
    found = [word for word in arguments if word.startswith("--") or word in NAMES]
    return vars(values), {NAMES.get(word, word[2:].replace("-", "_")) for word in found}


def written(value) -> str:
    """Text of a parsed value, as written in tables."""
    if isinstance(value, (list, tuple)):
        return " ".join(written(each) for each in value)
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(getattr(value, "value", value))


def is_same(expected: str, value) -> bool:
    """Return whether a parsed value equals that of a table, ignoring blanks in texts."""
    found = written(value)
    try:
        return float(expected) == float(found)
    except ValueError:
        return expected.replace(" ", "") == found.replace(" ", "")


@pytest.mark.parametrize("recipe", RECIPES)
def test_commands_agree_with_the_table(recipe):
    wrong = []
    for call in parsed(recipe):
        for row in table(recipe):
            if row.is_about(*call[:4]) and not is_same(row.value, call.values[row.setting]):
                found = written(call.values[row.setting])
                wrong.append(f"{call[:4]}: {row.setting} is {found}, not {row.value}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_line_is_about_a_command(recipe):
    """Every line is used, and no line contradicts another."""
    calls = parsed(recipe)
    for row in table(recipe):
        if row.program != "none":
            assert any(row.is_about(*call[:4]) for call in calls), row
    for call in calls:
        names = [row.setting for row in table(recipe) if row.is_about(*call[:4])]
        assert len(names) == len(set(names)), (call[:4], names)


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_option_has_a_line(recipe):
    for call in parsed(recipe):
        listed = {row.setting for row in table(recipe) if row.is_about(*call[:4])}
        assert call.given <= listed | NO_SETTINGS[call.program], call[:4]


@pytest.mark.parametrize("recipe", RECIPES)
def test_readme_names_the_table(recipe):
    text = (recipes.EXAMPLES / recipe / "README.md").read_text(encoding="utf-8")
    assert "(settings.tsv)" in text


@pytest.mark.parametrize(
    "run, name, kind",
    [
        pytest.param(run, name, kind, id=f"{run.script} {name}")
        for run in {run.script: run for run in RUNS}.values()
        for name, kind, _ in recipes.flags(run.script)
        if name not in CHOICES
    ],
)
def test_a_flag_changes_a_value(run, name, kind):
    """For at least one system; not every flag applies to all systems."""
    runs = [other for other in RUNS if other.script == run.script]
    value = "0.37" if kind == ":share" else "37"
    calls = (call for other in runs for call in other.calls(name, value))
    assert any(value in word for call in calls for word in call.arguments)
