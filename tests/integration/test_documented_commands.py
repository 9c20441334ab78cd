"""Every command of the documentation is run, or there is a reason here why not.

The blocks of a page are run in order in one copy of the project, so each reads what those before it
wrote.  Models and corpora are small; nothing is downloaded.
"""

import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Dict, List, NamedTuple, Union

import pytest
import tiny
from commands import Shell

LANGUAGES = ("bash", "sh", "console", "python")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.M | re.S)


class Run(NamedTuple):
    """A block that is run.

    Attributes:
        folder: folder to run in, from the top of the project.
        status: exit status.
        replaced: text for placeholders.
        said: text that must be in the output.
    """

    folder: str = "."
    status: int = 0
    replaced: Dict[str, str] = {}
    said: str = ""


#: A block, or the reason why it is not run.
Block = Union[Run, str]
INSTALLS = "installs packages; .ci/run does it on a clean clone"
CLUSTER = "needs GPUs or several machines"
MEASURES = "measures speed for minutes to hours; test_recurrent.py builds its systems"
DOWNLOADS = "downloads a corpus; the readers run on small files of the same form in data_prep/"
DRY = "needs a corpus that is not free; its script is tried without programs by test_recipes.py"

TOUR, ZH_EN = "sliding_window_translation", "data/zh-en"
GENERATE = f"--task {TOUR} --path checkpoints/window4/checkpoint_best.pt"
TRAIN = (
    "data/zh-en/bin --user-dir fairseq_docmt --task sliding_window_translation --arch transformer "
    "--optimizer adam --lr 0.01 --criterion cross_entropy --max-tokens 300 --save-dir checkpoints/2"
)
RANK = {"…": TRAIN, "23456": str(random.SystemRandom().randrange(20000, 40000))}

#: blocks of each page, in their order
PAGES: Dict[str, List[Block]] = {
    "README.md": [
        INSTALLS,
        Run(said="s-BLEU"),
        Run(said="[['"),
    ],
    "examples/guide/training.md": [Run(), CLUSTER, Run(replaced=RANK)],
    "examples/guide/decoding.md": [Run(said="D-0"), Run(said="[['")],
    "examples/guide/evaluation.md": [
        Run(said="window4"),
        Run(said="d-BLEU"),
        Run(said="accuracy"),
    ],
    "data_prep/README.md": [
        Run(said="in order"),
        Run(status=1, said="error: corpus/train.de: line 7 is blank, but not in corpus/train.en"),
        Run(),
        Run(replaced={"…": GENERATE.replace("checkpoints", "checkpoints/de")}, said="s-BLEU"),
        Run(said="BLEU"),
        Run(status=1, said="line 7 has 0 tabs"),
        Run(),
    ],
    "examples/tvsub_zh_en/README.md": [Run("examples/tvsub_zh_en", said="window4_window_test")],
    "examples/context_probe/README.md": [
        Run(replaced={"make quickstart": "true", "[FOLDER]": "probe"}, said="ellipsis"),
        "reads the cache that run_cache.sh trains; tests/system/test_cache.py runs both",
        "trains for an hour; tests/system/test_document_memory.py runs it",
    ],
    "examples/guide/installation.md": [INSTALLS, INSTALLS],
    "examples/guide/adding_a_system.md": ["overwrites golden files; tests/golden/ calls the same"],
    "examples/benchmarks/decoding_speed/README.md": [MEASURES],
    "examples/benchmarks/document_length/README.md": [MEASURES],
    "examples/benchmarks/recurrent/README.md": [MEASURES, MEASURES],
    "examples/benchmarks/sequential_decoding/README.md": [MEASURES],
    "examples/benchmarks/training_memory/README.md": [MEASURES],
    "examples/feng2022_memory/README.md": [DRY, DRY, DRY],
    "examples/herold2023_window_attention/README.md": [DRY, DOWNLOADS, DOWNLOADS, DRY, DRY, DRY],
    "examples/maruf2018_memnet/README.md": [DRY],
    "examples/tu2018_cache/README.md": [DRY],
    "examples/wu2022_rfa/README.md": [DRY, DRY, DRY],
}


def blocks_of(page: str) -> list:
    """Language and text of the blocks of a page that a user may type."""
    found = BLOCK.findall((tiny.ROOT / page).read_text(encoding="utf-8"))
    return [(language, text) for language, text in found if language in LANGUAGES]


def typed(language: str, text: str) -> str:
    """Commands of a block, without the output that a console shows."""
    if language == "python":
        return f"cat > block.py <<'END'\n{_with_output(text)}\nEND\npython block.py"
    if language != "console":
        return text
    commands, goes_on = [], False
    for line in text.splitlines():
        if goes_on or line.startswith("$ "):
            commands.append(line if goes_on else line[2:])
            goes_on = line.split("    #")[0].rstrip().endswith("\\")
    return "\n".join(commands)


def _with_output(text: str) -> str:
    """Python code that shows the value of its last expression, as a console does."""
    import ast

    *before, last = ast.parse(text).body
    code = text.splitlines()
    shown = "\n".join(code[last.lineno - 1 : last.end_lineno])
    return "\n".join([*code[: last.lineno - 1], f"print({shown.split('  #')[0]}\n)"])


def test_every_page_is_listed():
    pages = {
        str(path.relative_to(tiny.ROOT))
        for top in ("*.md", "data_prep/**/*.md", "examples/**/*.md", "tests/*.md")
        for path in tiny.ROOT.glob(top)
        if "work" not in path.relative_to(tiny.ROOT).parts
    }
    assert {page for page in pages if blocks_of(page)} == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_listed(page):
    assert len(blocks_of(page)) == len(PAGES[page])


# ---- small corpora -------------------------------------------------------------------------------

WORDS = {
    "zh": "我 你 他 们 走 吧 看 见 了 书 这 是 那 个 什 么 时 候 来".split(),
    "en": "we you he they go away saw the book this is that what when comes".split(),
    "de": "wir du er sie geht weg sah das Buch dies ist jenes was wann kommt".split(),
}


def write_text(folder: Path, name: str, languages, lengths) -> None:
    """Documents with the given numbers of sentences of random words in each language."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in languages:
        draw = random.Random(f"{name}.{language}")
        join, end = ("", "。") if language == "zh" else (" ", ".")
        documents = [
            [join.join(draw.choices(WORDS[language], k=draw.randint(3, 6))) + end for _ in range(n)]
            for n in lengths
        ]
        text = "\n\n".join("\n".join(document) for document in documents) + "\n"
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def write_splits(folder: Path, languages, *more: str) -> None:
    lengths = {"train": [6] * 12, "valid": [3, 4], "test": [4, 1, 3], **{n: [2, 3] for n in more}}
    for name, sizes in lengths.items():
        write_text(folder, name, languages, sizes)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    running = Shell(tmp_path_factory.mktemp("documented"))
    yield running
    running.close()


def run(shell, page: str, number: int) -> str:
    """Run a block and return what it printed."""
    block, (language, text) = PAGES[page][number], blocks_of(page)[number]
    for placeholder, value in block.replaced.items():
        assert placeholder in text, f"{placeholder} is no longer in the block"
        text = text.replace(placeholder, value)
    done = shell.run(typed(language, text), block.folder)
    printed = done.stdout + done.stderr
    assert done.returncode == block.status, f"{text}\n{printed[-3000:]}"
    assert block.said in printed, printed[-3000:]
    return printed


def run_page(shell, page: str) -> None:
    for number, block in enumerate(PAGES[page]):
        if isinstance(block, Run):
            run(shell, page, number)


# ---- pages ---------------------------------------------------------------------------------------


def test_the_tour(shell):
    run_page(shell, "README.md")


def test_the_context_probe(shell):
    run_page(shell, "examples/context_probe/README.md")


def test_a_corpus_of_your_own(shell):
    """From training to decoding to evaluation, each with the results of the page before."""
    write_splits(shell.top / "corpus", ("zh", "en"))
    run_page(shell, "examples/guide/training.md")
    for name in ("test.zh", "test.en"):
        shutil.copy(shell.top / ZH_EN / "text" / "raw" / name, shell.top / name)
    shutil.copy(shell.top / "test.zh", shell.top / "documents.zh")
    run_page(shell, "examples/guide/decoding.md")
    shutil.copy(shell.top / "window4.out", shell.top / "sentence.out")
    _write_contrastive_sets(shell.top)
    run_page(shell, "examples/guide/evaluation.md")
    assert (shell.top / "report.html").exists()
    assert len((shell.top / "items.jsonl").read_text().splitlines()) == 2


def _write_contrastive_sets(top: Path) -> None:
    voita = {"src": "我 走 _eos 你 看", "dst": ["go _eos you", "go _eos we"], "true_ind": 0}
    for name in ("deixis_test.json", "lex_cohesion_test.json"):
        (top / name).write_text(json.dumps([{**voita, "ctx_dist": 1}]))
    contrapro = {
        **{"document id": "film.en", "segment id": 3, "src segment": "我走", "src pronoun": "我"},
        **{"ref segment": "we go", "ref pronoun": "we", "ante distance": 1},
        **{"intrasegmental": False, "errors": [{"contrastive": "you go"}]},
    }
    (top / "contrapro.json").write_text(json.dumps([contrapro]))
    (top / "documents" / "1999").mkdir(parents=True)
    for language, lines in (("zh", "你看\n他走\n我走\n"), ("en", "you saw\nhe go\nwe go\n")):
        (top / "documents" / "1999" / f"film.{language}").write_text(lines, encoding="utf-8")
    for pair in ("en-ru", "en-de"):
        os.symlink("zh-en", top / "data" / pair)


def test_preparation(shell):
    corpus = shell.top / "corpus"
    write_splits(corpus, ("de", "en"), "talks", "news")
    page = "data_prep/README.md"
    run(shell, page, 0)
    whole = (corpus / "train.de").read_text(encoding="utf-8")
    assert whole.splitlines()[6] == ""
    shorter = (corpus / "train.en").read_text(encoding="utf-8").replace("\n\n", "\n", 1)
    kept = (corpus / "train.en").read_text(encoding="utf-8")
    (corpus / "train.en").write_text(shorter, encoding="utf-8")
    run(shell, page, 1)
    (corpus / "train.en").write_text(kept, encoding="utf-8")
    run(shell, page, 2)
    train = TRAIN.replace("zh-en", "de-en").replace("checkpoints/2", "checkpoints/de/window4")
    assert shell.run(f"fairseq-train {train}").returncode == 0
    run(shell, page, 3)
    run(shell, page, 4)
    rows = ["ein Satz\ta sentence"] * 6 + ["no tab"]
    import gzip

    with gzip.open(shell.top / "news-commentary-v14.de-en.tsv.gz", "wt") as stream:
        stream.write("\n".join(rows) + "\n")
    run(shell, page, 5)
    write_text(corpus, "all", ("de", "en"), [2] * 12)
    run(shell, page, 6)


def test_the_recipe_of_tvsub(shell):
    corpus = shell.top / "examples" / "tvsub_zh_en" / "CORPUS"
    write_splits(corpus, ("zh", "en"), "zpdev")
    run_page(shell, "examples/tvsub_zh_en/README.md")
