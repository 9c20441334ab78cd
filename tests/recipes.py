"""Dry runs of the recipes in examples/ that record every program call with its arguments.

A script runs in bash, in a folder of its own, with all it needs of the environment; programs on its
way are replaced by one that only notes name and arguments.
"""

import functools
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import List, NamedTuple, Tuple

import tiny
from fairseq import options

EXAMPLES = tiny.ROOT / "examples"
# The scripts of the context probe share their commands; the long tests run them all.  corpus.sh
# has settings only.
SCRIPTS = sorted(
    str(path.relative_to(EXAMPLES))
    for path in EXAMPLES.glob("*/*.sh")
    if path.parent.name != "context_probe" and path.name != "corpus.sh"
)
PROGRAMS = ("fairseq-train", "fairseq-generate", "fairseq-interactive", "fairseq-preprocess")
PROGRAMS += ("fairseq-docmt", "sacrebleu", "python")
#: notes how it was called, and leaves what later commands of the recipes look for
NOTING = r"""#!/usr/bin/env bash
call=$(printf '%s\037' "${0##*/}" "$@")
printf '%s\036' "$call" >> "$CALLS"
case $* in
  "-m fairseq_docmt" | *find_spec*) echo "$USER_DIR" ;;
  *updates.py*)
    file=$* file=${file#*updates.py } file=${file%% *}
    mkdir -p "$(dirname "$file")"
    echo 7 > "$file" ;;
  *"results.py best"*) echo 1.2 ;;
  *"contexts.py make"*) mkdir -p "${!#}" && touch "${!#}"/{own,other}.{zh,en,de} ;;
esac
case $* in "convert "* | *add_noise.py*) writes=--out ;; *) writes=none ;; esac
while [ $# -gt 1 ]; do
  case $1 in
    --results-path)
      mkdir -p "$2"
      for split in train valid test test1; do
        printf 'S-0\ta\nT-0\ta\nH-0\t-1\ta\nD-0\t-1\ta\n' > "$2/generate-$split.txt"
      done ;;
    "$writes")
      mkdir -p "$(dirname "$2")"
      echo a > "$2" ;;
    --destdir)
      mkdir -p "$2"
      for side in en de; do
        for end in bin idx; do touch "$2/train.$side-None.$side.$end"; done
      done ;;
  esac
  shift
done
"""


class Call(NamedTuple):
    """A program with its arguments; Python scripts and modules have their own names."""

    program: str
    arguments: List[str]


class Run(NamedTuple):
    """Variant of a script call: a system of the recipe on one of the corpora."""

    script: str
    arguments: str
    system: str = ""
    corpus: str = ""

    @property
    def recipe(self) -> str:
        """Folder of the script."""
        return self.script.split("/")[0]

    def calls(self, *more: str) -> List[Call]:
        """Return the calls of the script, without the one that looks for the package."""
        return list(_calls(self.script, (*self.arguments.split(), *more)))

    def __str__(self):
        return " ".join(filter(None, [self.script, self.system, self.corpus]))


@functools.lru_cache(maxsize=None)
def _calls(script: str, arguments: Tuple[str, ...]) -> List[Call]:
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        return calls_in(Path(folder), script, *arguments)


def run_in(folder: Path, script: str, *arguments: str, **more) -> subprocess.CompletedProcess:
    """Run a script in a folder with the programs of :func:`write_files`."""
    return subprocess.run(
        ["bash", str(EXAMPLES / script), *arguments],
        cwd=folder,
        env={
            "PATH": f"{folder}/bin:{os.environ['PATH']}",
            "CALLS": str(folder / "calls"),
            "USER_DIR": tiny.USER_DIR,
            **more,
        },
        capture_output=True,
        text=True,
    )


def calls_in(folder: Path, script: str, *arguments: str) -> List[Call]:
    """Return the calls of a script in a folder, without the one that looks for the package."""
    done = run_in(folder, script, *arguments)
    assert done.returncode == 0, f"{script} {' '.join(arguments)}: {done.stderr}"
    calls = (folder / "calls").read_text()
    noted = [call.split("\037")[:-1] for call in calls.split("\036")[:-1]]
    found = [_named(*call) for call in noted]
    return [call for call in found if call != Call("fairseq_docmt", [])]


def _named(program: str, *arguments: str) -> Call:
    if program != "python" or arguments[0] == "-c":
        return Call(program, list(arguments))
    name, *rest = arguments[1:] if arguments[0] == "-m" else arguments
    if name.endswith("measured.py"):
        record, *command = rest
        return _named(*command)
    return Call(Path(name).name, rest)


def write_files(folder: Path) -> None:
    """Programs that note how they are called, and what the scripts read."""
    (folder / "bin").mkdir()
    for name in PROGRAMS:
        program = folder / "bin" / name
        program.write_text(NOTING)
        program.chmod(0o755)
    for name in ("test", "test1", "zpdev"):
        for side in ("en", "de", "it"):
            text = folder / "WORK" / "data" / "text" / "raw" / f"{name}.{side}"
            text.parent.mkdir(parents=True, exist_ok=True)
            text.write_text("a\n")
    (folder / "CORPUS").mkdir()
    (folder / "WORK" / "corpus").mkdir()
    (folder / "WORK" / "corpus" / "test.marked.zh").write_text("A\n")
    (folder / "CORPUS" / "zpdev.zp.zh").write_text("A\n")
    for name in ("train", "valid", "DICT"):
        (folder / name).write_text("a b\n\nc\n")
    for sets in ("SETS", "37"):  # any value of --sets
        (folder / sets).mkdir()
        for name in ("deixis_dev", "lex_cohesion_dev"):
            (folder / sets / f"{name}.json").touch()
    for texts in ("TEXTS", "MONO"):
        (folder / texts).mkdir()
        for name in ("train", "valid", "test"):
            for side in ("de", "en"):
                (folder / texts / f"{name}.{side}").write_text("A\n")


# ---- every way to call every script ------------------------------------------------------------


def _wu2022() -> List[Run]:
    train = "wu2022_rfa/train.sh"
    systems = {"transformer": "1 4", "rfa": "1 4", "rfa-sgate": "4", "rfa-sgate-avg": "4"}
    runs = [
        Run(train, f"WORK {system} SAVE --window-size {size}", f"{system}:{size}", "iwslt")
        for system, sizes in systems.items()
        for size in sizes.split()
    ]
    for corpus, small in (("opensubtitles", "1"), ("consistency", "1 2 3")):
        for system, sizes in systems.items():
            for size in [*(s for s in small.split() if s != "1" or "1" in sizes), "group"]:
                arguments = f"WORK {system} SAVE --corpus {corpus} --window-size {size}"
                runs.append(Run(train, arguments, f"{system}:{size}", corpus))
    for corpus, decoding in (
        ("iwslt", "sequential"),
        ("iwslt", "window"),
        ("opensubtitles", "sequential"),
        ("opensubtitles", "window"),
        ("opensubtitles", "segment"),
    ):
        arguments = f"WORK rfa MODEL OUT --corpus {corpus} --decoding {decoding}"
        runs.append(Run("wu2022_rfa/generate.sh", arguments, decoding, corpus))
    for part in ("dev", "test"):
        arguments = f"WORK MODEL OUT --sets SETS --part {part}"
        runs.append(Run("wu2022_rfa/consistency.sh", arguments, part, "consistency"))
    for size in ("2", "group"):
        arguments = f"WORK rfa-sgate SAVE --sets SETS --window-size {size}"
        script = "wu2022_rfa/train_consistency.sh"
        runs.append(Run(script, arguments, f"rfa-sgate:{size}", "consistency"))
    runs.append(Run("wu2022_rfa/prepare_iwslt15.sh", "zh-en WORK", corpus="iwslt"))
    runs.append(Run("wu2022_rfa/prepare_opensubtitles.sh", "CORPUS WORK", corpus="opensubtitles"))
    return runs


def _herold2023() -> List[Run]:
    runs, systems = [], ["sentence", "concat2", "concat1000", "lst"]
    systems += ["window", "window-abs", "relative1000"]
    folder = "herold2023_window_attention"
    for corpus in ("news", "ted", "os"):
        for system in systems:
            arguments = f"WORK {system} SAVE --corpus {corpus}"
            runs.append(Run(f"{folder}/train.sh", arguments, system, corpus))
        for system, task in (("concat2", "window"), ("lst", "document")):
            for decoding in ("segment", "sequential"):
                arguments = f"WORK {system} MODEL OUT --corpus {corpus} --decoding {decoding}"
                runs.append(Run(f"{folder}/generate.sh", arguments, f"{task}-{decoding}", corpus))
        runs.append(Run(f"{folder}/prepare.sh", f"DOWNLOADS WORK --corpus {corpus}", corpus=corpus))
    return runs


def _feng2022() -> List[Run]:
    runs = []
    for system in ("sentence", "both", "source", "target"):
        for corpus in ("ted", "news", "europarl"):
            arguments = f"WORK {system} SAVE --corpus {corpus}"
            runs.append(Run("feng2022_memory/train.sh", arguments, system, corpus))
        runs.append(Run("feng2022_memory/generate.sh", f"WORK {system} MODEL OUT", system))
    return [*runs, Run("feng2022_memory/prepare.sh", "CORPUS WORK")]


def _tu2018() -> List[Run]:
    systems = ("base", "cache", "cache-shallow", "cache-no-overwrite", "wang2017", "jean2017")
    train, generate = "tu2018_cache/train.sh", "tu2018_cache/generate.sh"
    runs = [Run(train, f"WORK {system} SAVE", system) for system in systems]
    return runs + [Run(generate, f"WORK {system} MODEL OUT", system) for system in systems]


def _maruf2018() -> List[Run]:
    memories = [f"{side}{end}" for side in ("source", "target", "both") for end in ("", "-output")]
    systems = ["base", *memories, "prevtrg", "jean2017", "wang2017"]
    folder = "maruf2018_memnet"
    runs = []
    for system in systems:
        drafts = "--drafts DRAFTS" if system.startswith(("target", "both")) else ""
        runs.append(Run(f"{folder}/train.sh", f"WORK {system} SAVE {drafts}", system))
        runs.append(Run(f"{folder}/generate.sh", f"WORK {system} MODEL OUT {drafts}", system))
    runs.append(Run(f"{folder}/train.sh", "WORK target SAVE --gold-drafts", "target", "gold"))
    runs.append(Run(f"{folder}/make_drafts.sh", "DATA MODEL OUT train valid test --cpu"))
    runs.append(Run(f"{folder}/prepare.sh", "TEXTS WORK"))
    runs.append(Run(f"{folder}/prepare_ted.sh", "DOWNLOADS WORK"))
    return [*runs, Run(f"{folder}/train_sentence_lm.sh", "train valid DICT OUT")]


def _voita2019() -> List[Run]:
    folder = "voita2019_docrepair"
    return [
        Run(f"{folder}/round_trips.sh", "MONO WORK DATA BACK FORTH"),
        Run(f"{folder}/train.sh", "WORK SAVE", "docrepair"),
        Run(f"{folder}/repair.sh", "WORK MODEL FIRST SOURCE OUT"),
        Run(f"{folder}/translate.sh", "DATA MODEL INPUT OUTPUT -s en -t de"),
    ]


def _bao2021() -> List[Run]:
    folder, systems = "bao2021_group", ("sentence", "group", "group-scratch")
    runs = [Run(f"{folder}/train.sh", f"WORK {system} SAVE", system) for system in systems]
    runs += [Run(f"{folder}/generate.sh", f"WORK {system} MODEL OUT", system) for system in systems]
    return [*runs, Run(f"{folder}/prepare.sh", "CORPUS WORK")]


def _miculicich2018() -> List[Run]:
    folder, systems = "miculicich2018_han", ("sentence", "encoder", "decoder", "joint")
    runs = [Run(f"{folder}/train.sh", f"WORK {system} SAVE", system) for system in systems]
    return runs + [
        Run(f"{folder}/generate.sh", f"WORK {system} MODEL OUT", system) for system in systems
    ]


def _li2020() -> List[Run]:
    folder, sides = "li2020_multi_encoder", ("source", "target", "both")
    systems = [f"{place}-{side}" for place in ("outside", "inside") for side in sides]
    systems = ["sentence", *systems]
    runs = [Run(f"{folder}/train.sh", f"WORK {system} SAVE", system) for system in systems]
    runs += [Run(f"{folder}/generate.sh", f"WORK {system} MODEL OUT", system) for system in systems]
    return [*runs, Run(f"{folder}/prepare.sh", "CORPUS WORK")]


RUNS = [
    *_bao2021(),
    *_miculicich2018(),
    *_li2020(),
    *_wu2022(),
    *_herold2023(),
    *_feng2022(),
    *_tu2018(),
    *_maruf2018(),
    *_voita2019(),
    *(
        Run(f"tvsub_zh_en/{name}.sh", arguments)
        for name, arguments in (("prepare", "CORPUS WORK"), ("train", "WORK"), ("generate", "WORK"))
    ),
    Run("ende_docs/prepare.sh", "CORPUS WORK"),
    *(
        Run("tvsub_zh_en/run.sh", f"CORPUS WORK --recipe {EXAMPLES / corpus}", corpus=corpus)
        for corpus in ("tvsub_zh_en", "ende_docs")
    ),
    *(
        Run("tu2018_cache/subtitle.sh", f"CORPUS WORK --size {size}", size)
        for size in ("small", "transformer", "paper")
    ),
]


class Flag(NamedTuple):
    """Option of a script's own: its name, what its values have to be ("" if not said), default."""

    name: str
    kind: str
    default: str


def flags(script: str) -> List[Flag]:
    """Options of a script's own."""
    (declared,) = re.findall(
        r"^read_arguments (.*?) -- ", (EXAMPLES / script).read_text(), re.M | re.S
    )
    return [
        Flag(name, kind, default.strip('"'))
        for name, kind, default in re.findall(r'\s(--[a-z-]+)([^=\s]*)=("[^"]*"|\S*)', declared)
    ]


def parse(program: str, arguments: List[str]):
    """Parse the options of a stock command with its parser, architecture options included."""
    if program == "fairseq-preprocess":
        return options.get_preprocessing_parser().parse_args(arguments)
    if program == "fairseq-train":
        return options.parse_args_and_arch(options.get_training_parser(), arguments)
    interactive = program == "fairseq-interactive"
    parser = options.get_generation_parser(interactive=interactive)
    parser.add_argument("--arch", "-a", default="wav2vec2")
    return options.parse_args_and_arch(parser, arguments)
