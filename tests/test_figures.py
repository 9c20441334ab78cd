"""Figures that stand on two pages are the same: pages repeat what the results have."""

import json
import re

import pytest
import tiny

EXAMPLES = tiny.ROOT / "examples"
TVSUB, EN_DE, SUBTITLES = "tvsub_zh_en", "ende_docs", "tu2018_cache/subtitle/small"


def read(path: str) -> str:
    return (tiny.ROOT / path).read_text(encoding="utf-8")


def page(path: str) -> str:
    """Text of a page on one line."""
    return " ".join(read(path).split())


def results(folder: str) -> dict:
    return json.loads((EXAMPLES / folder / "results.json").read_text(encoding="utf-8"))


def bleu(system: str, decoding: str = "", testset: str = "test", folder: str = TVSUB) -> float:
    """BLEU of a system with a beam of 4, by default with its first decoding."""
    found = results(folder)["systems"][system]
    metrics = found["scores"][testset]["metrics"]
    scores = next(metric["scores"] for metric in metrics if metric["label"] == "s-BLEU")
    return scores[f"{system}-{decoding or found['decodings'][0]}-4"]


def gain(system: str, folder: str) -> float:
    """Gain of a system's own context over another document's, in bits per sentence."""
    usage = results(folder)["systems"][system]["scores"]["usage"]["usage"]
    return next(found for name, found in usage.items() if " over " in name)["sentence"]["mean"]


def gold_gain() -> float:
    metrics = results(TVSUB)["systems"]["memory-control2"]["scores"]["with-gold-test"]["metrics"]
    scores = next(metric["scores"] for metric in metrics if metric["label"] == "s-BLEU")
    return scores["memory-both2-gold"] - scores["memory-control2"]


def pronoun_gains() -> list:
    systems = [system["scores"] for system in results(TVSUB)["systems"].values()]
    return [scores["usage"]["dropped_pronouns"]["mean"] for scores in systems if "usage" in scores]


FULL = "sequential-full-source"
GUIDE, OF_TVSUB = "examples/guide/", f"examples/{TVSUB}/README.md"
#: page, its words with # for a figure, and a function that returns the figure
QUOTED = [
    (f"{GUIDE}decoding.md", "has # BLEU with it", lambda: bleu("group3", FULL)),
    (f"{GUIDE}decoding.md", "BLEU with it, # with `segment`", lambda: bleu("group3", "segment")),
    (
        f"{GUIDE}decoding.md",
        "window attention model has # with `sequential`",
        lambda: bleu("window-attn3", testset="zpdev"),
    ),
    (f"{GUIDE}training.md", "gave # BLEU", lambda: bleu("group3")),
    (f"{GUIDE}training.md", "in place of #", lambda: bleu("group2", FULL)),
    (
        f"{GUIDE}systems.md",
        "better than 20 by # BLEU",
        lambda: bleu("window-attn3") - bleu("window-attn2"),
    ),
    (OF_TVSUB, "`--restart-positions`: # BLEU", lambda: bleu("group3")),
    (OF_TVSUB, "BLEU, control #", lambda: bleu("control2")),
    (OF_TVSUB, "of 7 tokens has #", lambda: bleu("window-attn3")),
    (OF_TVSUB, "in the paper) #", lambda: bleu("window-attn2")),
    (OF_TVSUB, "`memory-both2` gains # BLEU", gold_gain),
    (OF_TVSUB, "up to # bits each", lambda: max(pronoun_gains())),
    (f"examples/{EN_DE}/README.md", "own context by # bits", lambda: gain("memory-both", EN_DE)),
    (f"examples/{EN_DE}/README.md", "gains (# bits", lambda: gain("cache-shallow", EN_DE)),
    ("README.md", "has # BLEU with three", lambda: bleu("base", "", "references", SUBTITLES)),
    (
        f"examples/{SUBTITLES}/README.md",
        "Windows of 2 are # BLEU below the control",
        lambda: bleu("control", folder=SUBTITLES) - bleu("window2", folder=SUBTITLES),
    ),
    (
        f"examples/{SUBTITLES}/README.md",
        "another document's (# bits a sentence)",
        lambda: gain("memory-both", SUBTITLES),
    ),
]


@pytest.mark.parametrize("path, words, of_results", QUOTED, ids=[words for _, words, _ in QUOTED])
def test_pages_repeat_the_results(path, words, of_results):
    pattern = re.escape(words).replace(r"\#", r"(\d+(?:\.\d+)?)")
    (figure,) = re.findall(pattern, page(path))
    digits = len(figure.partition(".")[2])
    assert figure == f"{of_results():.{digits}f}"


#: architecture in the table of README.md -> systems of TVSub whose BLEU it shows, and their control
SHOWN = {
    "transformer": (["window2", "window4"], "control"),
    "rfa_transformer": (["rfa-decay"], "control"),
    "memory_transformer": (["memory-source"], "control"),
    "window_attn_transformer": (["window-attn"], "control"),
    "g_transformer": (["group3"], "control2"),
    "han_transformer": (["han-source"], "control"),
    "multi_encoder_transformer": (["multi-source"], "control"),
}


def of_first_page(arch: str, column: int) -> str:
    """Cell of a system in the table of README.md."""
    (row,) = re.findall(rf"^\|.*\| `{arch}` \|.*$", read("README.md"), flags=re.M)
    return row.strip("| ").split(" | ")[column]


@pytest.mark.parametrize("arch", SHOWN)
def test_the_first_page_shows_bleu_of_the_results(arch):
    """With the better decoding of each system."""
    systems, control = SHOWN[arch]
    decodings = [results(TVSUB)["systems"][name]["decodings"] for name in [*systems, control]]
    wanted = [
        max(bleu(name, decoding) for decoding in names)
        for name, names in zip([*systems, control], decodings)
    ]
    cell = of_first_page(arch, -1)
    assert re.findall(r"\d+\.\d", cell) == [f"{figure:.1f}" for figure in wanted]


def test_the_first_page_has_memory_networks_beside_their_control():
    names = [name for name in results(TVSUB)["systems"] if name.startswith("memnet")]
    for testset, low, high, worse in re.findall(
        r"`(\w+)` ([\d.]+) to ([\d.]+) (more|less)", of_first_page("memnet_rnn", -1)
    ):
        control = bleu("rnn-control", testset=testset)
        found = [bleu(name, testset=testset) - control for name in names]
        found = sorted(-x if worse == "less" else x for x in found)
        assert (low, high) == (f"{found[0]:.1f}", f"{found[-1]:.1f}")


def test_the_first_page_says_what_systems_lose():
    lost = {
        arch: bleu(control) - max(map(bleu, systems)) for arch, (systems, control) in SHOWN.items()
    }
    apart = [lost.pop(f"{name}_transformer") for name in ("memory", "han", "multi_encoder")]
    (most,) = re.findall(r"lose at most ([\d.]+) BLEU and solve", page("README.md"))
    assert max(apart) <= float(most)
    assert lost.pop("g_transformer") < 0.1
    assert "the others in this table lose 1 to 4" in page("README.md")
    assert {round(value) for value in lost.values()} == {1, 4}


# ---- the context probe ---------------------------------------------------------------------------

NEAR = ["1", "2", "3", "1 to 3", "1 to 4", "all"]
#: columns of a system in the tables of results.json, and the distances that it can see
REACHED = {
    "transformer": [("quickstart", "window4", NEAR)],
    "rfa_transformer": [("random-features", "rfa_transformer, 2,000", NEAR)],
    "full": [("documents", name, ["1", "2", "8"]) for name in ("transformer", "lst", "group")],
    "g_transformer": [("documents", "group", ["1", "2", "8"])],
    "window_attn_transformer": [("documents", "window", ["1", "2"])],
    "memory_transformer": [("memory", name, NEAR) for name in ("both", "source", "target")],
    "han_transformer": [("previous-sentences", "han", NEAR)],
    "multi_encoder_transformer": [("previous-sentences", "multi-encoder", NEAR)],
    "context_rnn": [
        ("few-sentences", "hierarchical", NEAR),
        ("few-sentences", "previous-source-attention", ["1"]),
        ("few-sentences", "previous-target", [*NEAR, "4 to 10"]),
    ],
    "memnet_rnn": [("memory-networks", "memnet_rnn", NEAR)],
    "DocRepair": [("repair", "repaired", NEAR)],
    "reranking": [("reranking", "reranked", [*NEAR, "4 to 10"])],
}


def accuracies(system: str) -> str:
    """Range of the accuracies of a system within its reach, as pages show it."""
    found = [
        value
        for table, column, distances in REACHED[system]
        for row, value in zip(PROBE[table]["rows"], PROBE[table]["systems"][column])
        if row[1] in distances
        and not (system == "memnet_rnn" and "of 6" in row[0])
        and not (system == "DocRepair" and row[0] == "ellipsis")  # not in its texts
    ]
    return f"{min(found):.2f} to {max(found):.2f}"


PROBE = results("context_probe")
#: beginning of a row in the table of the probe's page -> systems in it
ROWS = {
    "`transformer`, windows of 4": ["transformer"],
    "`rfa_transformer`, windows of 4": ["rfa_transformer"],
    "`transformer`, `lst_transformer`": ["full"],
    "`window_attn_transformer`": ["window_attn_transformer"],
    "`memory_transformer`": ["memory_transformer"],
    "`han_transformer`, `multi_encoder_transformer`": ["han_transformer"],
    "`context_rnn`": ["context_rnn"],
    "`memnet_rnn`": ["memnet_rnn"],
    "DocRepair": ["DocRepair"],
    "reranking": ["reranking"],
}


@pytest.mark.parametrize("begins, systems", ROWS.items(), ids=list(ROWS))
def test_the_page_of_the_probe_has_accuracies_within_reach(begins, systems):
    text = read("examples/context_probe/README.md")
    (cells,) = re.findall(rf"^\| {re.escape(begins)}(.*)\|$", text, flags=re.M)
    assert f" | {accuracies(systems[0])}" in cells


@pytest.mark.parametrize("arch", [*SHOWN, "memnet_rnn"])
def test_the_first_page_has_accuracies_within_reach(arch):
    assert accuracies(arch) in of_first_page(arch, -2)


# ---- benchmarks ----------------------------------------------------------------------------------

ANSWERS = re.findall(
    r"^\| [^|]* \| ([^|]*) \|.*\((\w+)/results.md\) \|$",
    read("examples/benchmarks/README.md"),
    flags=re.M,
)


def numbers(text: str) -> list:
    """Numbers of a text, without commas for thousands."""
    found = re.findall(r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?!\w)", text)
    return [number.replace(",", "") for number in found]


@pytest.mark.parametrize("answer, folder", ANSWERS, ids=[folder for _, folder in ANSWERS])
def test_answers_have_the_figures_of_benchmarks(answer, folder):
    """As they stand or rounded."""
    measured = [float(x) for x in numbers(read(f"examples/benchmarks/{folder}/results.md"))]
    for figure in numbers(answer):
        digits = len(figure.partition(".")[2])
        assert figure in {f"{value:.{digits}f}" for value in measured}, figure
