"""Links between the pages of the documentation have existing targets."""

import re
from pathlib import Path
from typing import List, Tuple

import pytest
import tiny

PAGES = sorted(
    path
    for path in tiny.ROOT.rglob("*.md")
    if not any(part.startswith(".") for part in path.relative_to(tiny.ROOT).parts)
)
FENCE = re.compile(r"^( *)```.*?^\1```", flags=re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
ELSEWHERE = ("http://", "https://", "mailto:")


def links(text: str) -> List[Tuple[str, str]]:
    """(path, anchor) of the relative links of a page, outside of blocks of code."""
    found = LINK.findall(FENCE.sub("", text))
    return [link.partition("#")[::2] for link in found if not link.startswith(ELSEWHERE)]


def anchors(page: Path) -> set:
    """Anchors of the headings of a page, as GitHub makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+?) *$", text, flags=re.M)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(tiny.ROOT).as_posix())
def test_links_lead_somewhere(page):
    for path, anchor in links(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), f"{path} is missing"
        if anchor:
            assert anchor in anchors(target), f"{path} has no heading #{anchor}"


def test_pages_were_found():
    names = {page.relative_to(tiny.ROOT).as_posix() for page in PAGES}
    assert {"README.md", "data_prep/README.md", "examples/guide/training.md"} <= names


def test_every_guide_page_is_linked_from_the_readme():
    linked = {path for path, _ in links((tiny.ROOT / "README.md").read_text(encoding="utf-8"))}
    assert {
        f"examples/guide/{page.name}" for page in PAGES if page.parent.name == "guide"
    } <= linked


def test_links_of_a_page():
    text = "[a](b.md#c) ![d](e.png) [f](https://g)\n```\n[h](i)\n```\n[j](#k)\n"
    assert links(text) == [("b.md", "c"), ("e.png", ""), ("", "k")]
