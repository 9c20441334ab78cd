"""The documentation names only existing folders and files."""

import re

import pytest
import tiny

#: a line of the tree in the README, ``  folder/   description``
FOLDER = re.compile(r"(?P<indent> *)(?P<name>\w+)/ +(?P<description>\S.*)")
#: folders whose sub-folders are all in the tree
LISTED = ["", "data_prep", "examples", "fairseq_docmt", "fairseq_docmt/modules", "tests"]
SOURCES = {".py", ".sh", ".md"}
BUILT = {"build", "dist"}
PAGES = sorted(tiny.ROOT.glob("examples/guide/*.md"))


def tree(text: str) -> list:
    """Paths of the folders in the tree under the heading Layout.

    Raises:
        AssertionError: a line that is no folder, or is not indented by two spaces a level.
    """
    block = re.search(r"^## Layout\n+```\n(.*?)```", text, flags=re.M | re.S)
    assert block, "README.md has no tree under ## Layout"
    found, above = [], []
    for line in block.group(1).splitlines():
        match = FOLDER.fullmatch(line)
        assert match, f"{line!r} is not a folder with a description"
        depth, odd = divmod(len(match["indent"]), 2)
        assert not odd and depth <= len(above), f"{line!r} is not indented by two spaces a level"
        above = [*above[:depth], match["name"]]
        found.append("/".join(above))
    return found


def sub_folders(path) -> set:
    """Names of the folders with sources in them; hidden folders and built ones do not count."""
    return {
        folder.name
        for folder in path.iterdir()
        if folder.is_dir()
        and not folder.name.startswith((".", "__"))
        and folder.name not in BUILT
        and any(SOURCES & {file.suffix} for file in folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def named():
    return tree((tiny.ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", LISTED)
def test_the_tree_names_every_folder_and_no_other(named, folder):
    prefix = f"{folder}/" if folder else ""
    below = [path[len(prefix) :] for path in named if path.startswith(prefix)]
    assert sorted(name for name in below if "/" not in name) == sorted(
        sub_folders(tiny.ROOT / folder)
    )


def test_the_tree_goes_no_deeper(named):
    parents = {path.rpartition("/")[0] for path in named}
    assert parents <= set(LISTED)


@pytest.mark.parametrize(
    "text",
    [
        "no heading",
        "## Layout\n\n```\nfolder without a slash\n```",
        "## Layout\n\n```\nfolder/\n```",
        "## Layout\n\n```\na/  one\n   b/  indented by three\n```",
        "## Layout\n\n```\na/  one\n    b/  a level left out\n```",
    ],
)
def test_a_damaged_tree_is_noticed(text):
    with pytest.raises(AssertionError):
        tree(text)


def test_a_tree_is_read():
    text = "## Layout\n\n```\na/    one\n  b/  two\n    c/  three\n  d/  four\ne/    five\n```"
    assert tree(text) == ["a", "a/b", "a/b/c", "a/d", "e"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_are_there(page):
    """Paths in code font that begin with a folder of the project."""
    text = page.read_text(encoding="utf-8")
    tops = "|".join(sub_folders(tiny.ROOT))
    paths = re.findall(rf"`((?:{tops})/[\w/.-]+)`", text)
    missing = [path for path in paths if not (tiny.ROOT / path).exists()]
    assert not missing
