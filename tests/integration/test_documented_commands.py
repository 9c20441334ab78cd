"""Every command of the documentation is run, or there is a reason here why not.

The blocks of a page are run in order in one copy of the project, so each reads what those before it
wrote.  Models and corpora are small; nothing is downloaded.
"""

import gzip
import io
import json
import os
import random
import re
import shutil
import tarfile
import textwrap
from pathlib import Path
from typing import Dict, List, NamedTuple, Union

import pytest
import tiny
from commands import Shell

LANGUAGES = ("bash", "sh", "console", "python")
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", flags=re.M | re.S)


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
SPACY = "needs models of spaCy; tests/scoring/words/test_pronouns.py runs the command without them"

TOUR, ZH_EN = "sliding_window_translation", "data/zh-en"
GENERATE = f"--task {TOUR} --path checkpoints/window4/checkpoint_best.pt"
#: outputs of the test, and no alignment, which needs a package
EVALUATED = {"mine.out": "window4.out", "answers.jsonl": "sentence.out", "--align en ": ""}
TRAIN = (
    "data/zh-en/bin --user-dir fairseq_docmt --task sliding_window_translation --arch transformer "
    "--optimizer adam --lr 0.01 --criterion cross_entropy --max-tokens 300 --save-dir checkpoints/2"
)
REGULARIZED = "--optimizer adam --lr 0.01 --max-tokens 300 --max-epoch 2 --save-dir checkpoints/5"
PIECES = (
    "--source-lang de --target-lang en --train corpus/train --valid corpus/valid "
    "--test corpus/talks --destdir data/pieces"
)
RANK = {"…": TRAIN, "23456": str(random.SystemRandom().randrange(20000, 40000))}

FENG, HEROLD = "examples/feng2022_memory", "examples/herold2023_window_attention"
MARUF, TU, WU = "examples/maruf2018_memnet", "examples/tu2018_cache", "examples/wu2022_rfa"
VOITA = "examples/voita2019_docrepair"
BAO, HAN = "examples/bao2021_group", "examples/miculicich2018_han"
LI = "examples/li2020_multi_encoder"
FENG_FIGURES = {
    "OUT1": "OUT",
    "OUT2": "OUT",
    "SIZE16.pt SIZE64.pt": "SAVE/checkpoint_best.pt",
    "--document 3 --sentence 7": "--document 1 --sentence 2",
}
HEROLD_SYSTEM = {"SYSTEM": "concat2", "DECODING": "sequential"}
# Models here have one layer.
GROUP = {"WORK group SAVE --": "WORK group SAVE --context-layers 1 --"}
MEMORY = {"--fp16 --fp16-no-flatten-grads": "--memory-layers 0"}
SMALL_LM = {"dict.de.txt LM": "dict.de.txt LM --lm-size 7", "--lm LM": "--lm LM --lm-size 7"}

#: blocks of each page, in their order
WINDOW4 = {"checkpoint_best.pt": "checkpoints/window4/checkpoint_best.pt"}
PAGES: Dict[str, List[Block]] = {
    "README.md": [
        INSTALLS,
        Run(said="s-BLEU"),
        Run(said="[['"),
        "names files of the reader; tests/scoring/ runs the command",
    ],
    "examples/guide/training.md": [
        Run(),
        Run(replaced={"-checkpoints 5": "-checkpoints 2"}, said="average of"),
        CLUSTER,
        Run(replaced=RANK),
    ],
    "examples/yin2021_attention/README.md": [
        Run(replaced={"…": REGULARIZED}, said="attention_mass"),
    ],
    "examples/guide/pretrained.md": [
        "needs a published model; test_pretrained.py starts from tiny ones in the same way"
    ],
    "examples/benchmarks/gpu/results.md": [
        "needs a GPU; tests/benchmarks/test_gpu.py tries it",
        "needs a GPU; tests/benchmarks/test_papers.py tries it",
    ],
    "examples/benchmarks/launches/results.md": [
        "tests/benchmarks/test_launches.py counts the same"
    ],
    "examples/guide/configurations.md": [Run(), Run()],
    "examples/guide/decoding.md": [
        "needs a language model; tests/generation/test_ensembles.py uses one",
        Run(said="D-0"),
        Run(said="[['"),
    ],
    "examples/guide/translate_documents.md": [
        Run(replaced=WINDOW4),
        Run(replaced=WINDOW4, said="[["),
        "needs ctranslate2; tests/translate/test_exported.py exports a model",
    ],
    "examples/guide/evaluation.md": [
        Run(replaced=EVALUATED, said="llm"),
        Run(replaced={"mine.out": "window4.out"}),
    ],
    "examples/guide/context_tests.md": [
        Run(said="accuracy"),
        Run(said="CXMI"),
        "reads sets that others publish; tests/scoring/words/test_ctxpro.py has small ones",
        Run(said="F1 over sentence"),
    ],
    "data_prep/README.md": [
        Run(said="in order"),
        Run(status=1, said="error: corpus/train.de: line 7 is blank, but not in corpus/train.en"),
        Run(),
        Run(),
        Run(replaced={"…": PIECES}, said="binarised data"),
        Run(replaced={"…": GENERATE.replace("checkpoints", "checkpoints/de")}, said="s-BLEU"),
        Run(said="BLEU"),
        Run(status=1, said="line 7 has 0 tabs"),
    ],
    "examples/tvsub_zh_en/README.md": [
        "trains for hours; tests/tvsub_zh_en/ tests its scripts",
        "trains on a GPU",
        "reads results of run.sh; tests/tvsub_zh_en/test_passages.py tests passages.py",
        Run("examples/tvsub_zh_en", said="window4_window_test"),
    ],
    "examples/ende_docs/README.md": [
        "trains for hours; tests/tvsub_zh_en/ tests its scripts",
    ],
    "examples/tu2018_cache/subtitle/README.md": [
        "trains for hours; tests/tvsub_zh_en/test_subtitle.py runs it at toy size",
    ],
    "examples/evaluate_any_system/README.md": [
        "downloads outputs of other systems; the next block is run on made files",
        "tests/scoring/test_any_system.py runs it on the made files",
        "tests/scoring/test_any_system.py compares its output",
    ],
    "examples/context_probe/README.md": [
        Run(replaced={"make quickstart": "true", "[FOLDER]": "probe"}, said="ellipsis"),
    ],
    "examples/context_probe/results.md": [
        "reads the cache that run_cache.sh trains; tests/system/test_cache.py runs both",
        "trains for an hour; tests/system/test_document_memory.py runs it",
    ],
    "examples/guide/installation.md": [
        INSTALLS,
        "builds packages; tests/system/test_wheel.py does it",
    ],
    "examples/benchmarks/decoding_speed/results.md": [MEASURES],
    "examples/benchmarks/document_length/results.md": [MEASURES],
    "examples/benchmarks/recurrent/results.md": [MEASURES, MEASURES],
    "examples/benchmarks/sequential_decoding/results.md": [MEASURES],
    "examples/benchmarks/stream_training/results.md": [MEASURES],
    "examples/benchmarks/training_memory/results.md": [MEASURES],
    "examples/bao2021_group/README.md": [
        Run(BAO, said="d-BLEU", replaced=GROUP),
    ],
    "examples/miculicich2018_han/README.md": [Run(HAN, said="BLEU over sentences")],
    "examples/li2020_multi_encoder/README.md": [Run(LI, said="BLEU over sentences")],
    "examples/feng2022_memory/README.md": [
        Run(FENG),
        Run(FENG, replaced={"corpus/": "WORK/corpus/", "WORK/data": "OWN"}),
        Run(FENG, said="BLEU as published", replaced=MEMORY),
        Run(FENG, replaced=FENG_FIGURES),
    ],
    "examples/herold2023_window_attention/README.md": [
        DOWNLOADS,
        DOWNLOADS,
        Run(HEROLD, replaced=HEROLD_SYSTEM, said="BLEU"),
        Run(HEROLD, said="layer 1"),
        Run(HEROLD, replaced={"context K": "context 1", "AFTER": "0"}, said="accuracy"),
        SPACY,
    ],
    "examples/maruf2018_memnet/README.md": [
        DOWNLOADS,
        Run(MARUF, replaced=SMALL_LM, said="BLEU-1"),
    ],
    "examples/tu2018_cache/README.md": [Run(TU, said="BLEU over sentences")],
    "examples/voita2019_docrepair/README.md": [
        Run(VOITA, said="s-BLEU"),
    ],
    "examples/wu2022_rfa/README.md": [
        Run(WU),
        DOWNLOADS,
        Run(
            WU,
            replaced={"SYSTEM": "rfa-sgate", "window-size L": "window-size 2"},
            said="BLEU over documents",
        ),
        "differs from the block before in the corpus alone, which must be downloaded",
        "trains epoch by epoch; test_consistency_training.py runs the script",
    ],
}


def blocks_of(page: str) -> list:
    """Language and text of the blocks of a page that a user may type."""
    found = BLOCK.findall((tiny.ROOT / page).read_text(encoding="utf-8"))
    return [
        (language, textwrap.dedent(text)) for _, language, text in found if language in LANGUAGES
    ]


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
    "fr": "nous vous il ils va loin vit le livre ce est cela quoi quand vient".split(),
    "de": "wir du er sie geht weg sah das Buch dies ist jenes was wann kommt".split(),
    "ru": "мы ты он она идёт прочь видел эта книга это есть то что когда".split(),
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


def write_marked_text(folder: Path) -> None:
    """Sentences with a marked word, and contexts with a word that supports it, as in SCAT."""
    folder.mkdir(parents=True)
    for language in ("en", "fr"):
        words = WORDS[language]
        for part, mark in (("train", "<p>{}</p>"), ("train.context", "<hon>{}<hoff>")):
            lines = [f"{mark.format(word)} {words[number]}.\n" for number, word in enumerate(words)]
            (folder / f"highlighted.{part}.{language}").write_text("".join(lines))


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


@pytest.mark.system  # half a minute; test_hydra.py has the same kinds of commands
def test_configuration_files(shell, binarised):
    shutil.copytree(binarised, shell.top / ZH_EN / "bin")
    run_page(shell, "examples/guide/configurations.md")
    assert len(list(shell.top.glob("outputs/*/*/checkpoints/checkpoint_best.pt"))) == 1
    runs = list(shell.top.glob("multirun/*/*/?/checkpoints/checkpoint_best.pt"))
    assert sorted(path.parts[-3] for path in runs) == ["0", "1", "2", "3"]


@pytest.mark.system  # minutes: it prepares, trains and translates several times
def test_a_corpus_of_your_own(shell):
    """From training to decoding to evaluation, each with the results of the page before."""
    write_splits(shell.top / "corpus", ("zh", "en"))
    write_text(shell.top / "corpus", "valid", ("en", "fr"), [3, 4])
    write_marked_text(shell.top / "scat")
    run_page(shell, "examples/guide/training.md")
    for name in ("test.zh", "test.en"):
        shutil.copy(shell.top / ZH_EN / "text" / "raw" / name, shell.top / name)
    shutil.copy(shell.top / "test.zh", shell.top / "documents.zh")
    run_page(shell, "examples/guide/decoding.md")
    _write_documents_to_translate(shell.top)
    run_page(shell, "examples/guide/translate_documents.md")
    shutil.copy(shell.top / "window4.out", shell.top / "sentence.out")
    _write_contrastive_sets(shell.top)
    run_page(shell, "examples/guide/evaluation.md")
    run_page(shell, "examples/guide/context_tests.md")
    run_page(shell, "examples/yin2021_attention/README.md")
    assert (shell.top / "report.html").exists()
    assert len((shell.top / "items.jsonl").read_text().splitlines()) == 2


def _write_documents_to_translate(top: Path) -> None:
    shutil.copy(top / "test.zh", top / "talk.txt")
    seg = '<dataset><doc id="a"><src><seg id="1">我 走</seg></src></doc></dataset>'
    (top / "newstest.xml").write_text(seg, encoding="utf-8")
    (top / "book").mkdir()
    (top / "book" / "1.txt").write_text("我 走. 你 看\n", encoding="utf-8")


def _write_contrastive_sets(top: Path) -> None:
    voita = {"src": "我 走 _eos 你 看", "dst": ["go _eos you", "go _eos we"], "true_ind": 0}
    for name in ("deixis_test.json", "lex_cohesion_test.json"):
        (top / name).write_text(json.dumps([{**voita, "ctx_dist": 1}]))
    _write_contrapro(top, ("zh", "en"), folder="documents")
    for pair in ("en-ru", "en-de"):
        os.symlink("zh-en", top / "data" / pair)


def _write_contrapro(top: Path, languages, folder: str) -> None:
    """A set in the form of ContraPro, and the documents that its scripts extract."""
    lines = {language: lines_of(language, "film", 4) for language in languages}
    source, target = (lines[language] for language in languages)
    item = {
        **{"document id": f"film.{languages[1]}", "segment id": 3, "ante distance": 1},
        **{"src segment": source[2], "src pronoun": source[2].split()[0]},
        **{"ref segment": target[2], "ref pronoun": target[2].split()[0]},
        **{"intrasegmental": False, "errors": [{"contrastive": target[3]}]},
    }
    (top / "contrapro.json").write_text(json.dumps([item]), encoding="utf-8")
    (top / folder / "1999").mkdir(parents=True)
    for language in languages:
        text = "\n".join(lines[language]) + "\n"
        (top / folder / "1999" / f"film.{language}").write_text(text, encoding="utf-8")


@pytest.mark.long
def test_preparation(shell):
    corpus = shell.top / "corpus"
    write_splits(corpus, ("de", "en"), "talks", "news")
    page = "data_prep/README.md"
    run(shell, page, 0)
    whole = (corpus / "train.de").read_text(encoding="utf-8")
    assert whole.splitlines()[6] == ""
    shorter = (corpus / "train.en").read_text(encoding="utf-8").replace("\n\n", "\n", 1)
    (corpus / "train.en").write_text(shorter, encoding="utf-8")
    run(shell, page, 1)
    write_text(corpus, "all", ("de", "en"), [2] * 12)
    run(shell, page, 2)
    write_splits(corpus, ("de", "en"), "talks", "news")
    run(shell, page, 3)
    train = TRAIN.replace("zh-en", "de-en").replace("checkpoints/2", "checkpoints/de/window4")
    assert shell.run(f"fairseq-train {train}").returncode == 0
    run(shell, page, 4)
    run(shell, page, 5)
    run(shell, page, 6)
    rows = ["ein Satz\ta sentence"] * 6 + ["no tab"]
    with gzip.open(shell.top / "news-commentary-v14.de-en.tsv.gz", "wt") as stream:
        stream.write("\n".join(rows) + "\n")
    run(shell, page, 7)


@pytest.mark.long  # half a minute; tests/tvsub_zh_en/ tests its scripts
def test_the_recipe_of_tvsub(shell):
    corpus = shell.top / "examples" / "tvsub_zh_en" / "CORPUS"
    write_splits(corpus, ("zh", "en"), "zpdev")
    run_page(shell, "examples/tvsub_zh_en/README.md")


# ---- recipes of papers ---------------------------------------------------------------------------


def lines_of(language: str, name: str, number: int) -> list:
    draw = random.Random(f"{name}.{language}")
    return [" ".join(draw.choices(WORDS[language], k=5)) + "." for _ in range(number)]


def in_tags(lines, kind: str) -> str:
    """Two documents in the form of TED talks (``train``, ``set``) or of WMT (``sgm``)."""
    middle = len(lines) // 2
    if kind == "train":
        heads = [f"<url>http://talk/{i}</url>\n<talkid>{i}</talkid>\n" for i in (1, 2)]
        parts = ["\n".join(part) + "\n" for part in (lines[:middle], lines[middle:])]
        return "".join(head + part for head, part in zip(heads, parts))
    documents = [
        f'<doc docid="{number}">\n'
        + "".join(f'<seg id="{i}"> {line} </seg>\n' for i, line in enumerate(part, 1))
        + "</doc>\n"
        for number, part in enumerate((lines[:middle], lines[middle:]))
    ]
    inside = f'<refset setid="s">\n{"".join(documents)}</refset>\n'
    return f'<?xml version="1.0"?>\n<mteval>\n{inside}</mteval>\n' if kind == "set" else inside


def write_ted(archive: Path) -> None:
    """IWSLT 2015 as it is published: an archive in an archive."""
    texts = {f"train.tags.zh-en.{lang}": ("train", lang, "train", 40) for lang in ("zh", "en")}
    for name in ("dev2010", "tst2010", "tst2011", "tst2012", "tst2013"):
        for lang in ("zh", "en"):
            texts[f"IWSLT15.TED.{name}.zh-en.{lang}.xml"] = (name, lang, "set", 4)

    def packed(members, mode):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode=mode) as tar:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return file.getvalue()

    inner = {
        f"zh-en/{file}": in_tags(lines_of(lang, name, number), kind).encode()
        for file, (name, lang, kind, number) in texts.items()
    }
    outer = {"2015-01/texts/zh/en/zh-en.tgz": packed(inner, "w:gz")}
    archive.write_bytes(packed(outer, "w:gz"))


@pytest.mark.system
def test_the_recipe_of_tu(shell):
    write_ted(shell.top / TU / "2015-01.tgz")
    run_page(shell, "examples/tu2018_cache/README.md")


@pytest.mark.system
def test_the_recipe_of_wu(shell):
    write_ted(shell.top / WU / "2015-01.tgz")
    run_page(shell, "examples/wu2022_rfa/README.md")


def write_marked_documents(folder: Path) -> None:
    """TED in the form of Maruf et al. (2019)."""
    folder.mkdir(parents=True)
    for split, number in (("train", 40), ("dev", 6), ("test", 6)):
        for language in ("en", "de"):
            lines = lines_of(language, split, number)
            text = "\n".join(["<d>", *lines[:3], "<d>", *lines[3:]]) + "\n"
            (folder / f"concatenated_en2de_{split}_{language}.txt").write_text(text)


@pytest.mark.system
def test_the_recipe_of_feng(shell):
    write_marked_documents(shell.top / FENG / "DocNMT" / "iwslt17")
    run_page(shell, "examples/feng2022_memory/README.md")


@pytest.mark.system
def test_the_recipe_of_bao(shell):
    write_marked_documents(shell.top / BAO / "DocNMT" / "iwslt17")
    run_page(shell, "examples/bao2021_group/README.md")


@pytest.mark.system
def test_the_recipe_of_miculicich(shell):
    write_ted(shell.top / HAN / "2015-01.tgz")
    run_page(shell, "examples/miculicich2018_han/README.md")


@pytest.mark.system
def test_the_recipe_of_li(shell):
    folder = shell.top / LI / "data_to_publish" / "context_aware"
    folder.mkdir(parents=True)
    for split, number in (("train", 40), ("dev", 8), ("test", 8)):
        for language in ("en", "ru"):
            lines = lines_of(language, split, number)
            groups = [" _eos ".join(lines[i : i + 4]) for i in range(0, number, 4)]
            text = "\n".join(groups) + "\n"
            (folder / f"{language}_{split}").write_text(text, encoding="utf-8")
    run_page(shell, "examples/li2020_multi_encoder/README.md")


@pytest.mark.system
def test_the_recipe_of_maruf(shell):
    corpus = shell.top / MARUF / "CORPUS"
    write_splits(corpus, ("de", "en"))
    # fairseq's language models are trained on batches of eight sentences.
    write_text(corpus, "valid", ("de", "en"), [8, 8])
    run_page(shell, "examples/maruf2018_memnet/README.md")


@pytest.mark.system
def test_the_recipe_of_voita(shell):
    top = shell.top / VOITA
    corpus, languages = top / "CORPUS", ("en", "de")
    write_splits(corpus, languages)
    (top / "MONO").mkdir()
    prepare = "python ../../data_prep/prepare.py --source-lang en --target-lang de --destdir DATA"
    splits = " ".join(f"--{name} CORPUS/{name}" for name in ("train", "valid", "test"))
    commands = [f"{prepare} --bpe-operations 50 {splits}", "cp DATA/text/raw/test.* ."]
    for name, sides in (("BACK", "-s de -t en"), ("FORTH", "-s en -t de")):
        options = TRAIN.replace("data/zh-en", "DATA").replace("checkpoints/2", name)
        commands.append(f"fairseq-train {options} --window-size 1 {sides}")
    done = shell.run("\n".join(commands), VOITA)
    assert done.returncode == 0, done.stderr[-3000:]
    run_page(shell, "examples/voita2019_docrepair/README.md")


@pytest.mark.system
def test_the_recipe_of_herold(shell):
    folder = shell.top / HEROLD / "DOWNLOADS"
    folder.mkdir()
    pairs = [*zip(*(lines_of(language, "train", 40) for language in ("de", "en")))]
    rows = ["\t".join(pair) for pair in pairs]
    with gzip.open(folder / "news-commentary-v14.de-en.tsv.gz", "wt") as stream:
        stream.write("\n".join([*rows[:20], "\t", *rows[20:]]) + "\n")
    for year in (2015, 2018):
        for side, language in (("src", "en"), ("ref", "de")):
            text = in_tags(lines_of(language, str(year), 6), "sgm")
            (folder / f"newstest{year}-ende-{side}.{language}.sgm").write_text(text)
    _write_contrapro(shell.top / HEROLD, ("en", "de"), folder="DOCUMENTS")
    run_page(shell, "examples/herold2023_window_attention/README.md")
