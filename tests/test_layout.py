"""The documentation names only existing folders and files, and every module has a test file."""

import ast
import re

import pytest
import tiny

SOURCES = {".py", ".sh", ".md"}
BUILT = {"build", "dist"}
PAGES = sorted(tiny.ROOT.glob("examples/guide/*.md"))


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_pages_name_are_there(page):
    """Paths in code font that begin with a folder of the project exist."""
    text = page.read_text(encoding="utf-8")
    tops = "|".join(sub_folders(tiny.ROOT))
    paths = re.findall(rf"`((?:{tops})/[\w/.-]+)`", text)
    missing = [path for path in paths if not (tiny.ROOT / path).exists()]
    assert not missing


def test_the_glossary_is_that_of_the_code():
    text = (tiny.ROOT / "examples/guide/developing.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w ,]+) \| .* \| `(\w+)` in `([\w/.]+)` \|$", text, flags=re.M)
    table = text.split("## Glossary")[1].split("\n## ")[0]
    assert len(rows) == table.count("\n|") - 2 <= 25
    for word, name, path in rows:
        assert re.search(rf"\b{name}\b", (tiny.ROOT / path).read_text(encoding="utf-8")), word


def test_changes_without_effect_are_of_lines_that_are_there():
    """Those that mutation testing does not draw."""
    rows = (tiny.ROOT / "tests/mutants/equivalents.tsv").read_text(encoding="utf-8").splitlines()
    for path, _, change, _ in (row.split("\t") for row in rows[1:]):
        line = change.split(" | ")[0].replace("- ", "", 1)
        assert line in (tiny.ROOT / path).read_text(encoding="utf-8"), line


# ---- test files of modules -----------------------------------------------------------------------

PACKAGE, TESTS = tiny.ROOT / "fairseq_docmt", tiny.ROOT / "tests"
MODULES = sorted(
    path.relative_to(PACKAGE).as_posix()
    for path in PACKAGE.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)
TEST_FILES = sorted(TESTS.rglob("test_*.py"))


def covered(text: str) -> list:
    """Modules that a test file covers besides the one of its name.

    They are listed in the last paragraph of its docstring: ``Covers spans.py, ....py.``
    """
    docstring = ast.get_docstring(ast.parse(text)) or ""
    last = docstring.split("\n\n")[-1]
    return re.findall(r"[\w/]+\.py", last) if last.startswith("Covers ") else []


def own_test_file(module: str):
    """The test file that has the name and the folder of a module."""
    folder, _, name = module.rpartition("/")
    return TESTS / folder / f"test_{name.lstrip('_')}"


@pytest.fixture(scope="module")
def covers():
    return {path: covered(path.read_text(encoding="utf-8")) for path in TEST_FILES}


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_its_test_file_or_is_covered_by_another(covers, module):
    named = any(module in modules for modules in covers.values())
    assert own_test_file(module).exists() or named, (
        f"write {own_test_file(module).relative_to(TESTS)}, or name {module} in the docstring of "
        "the test file that covers it"
    )


def test_covered_modules_exist_and_have_no_test_file_of_their_own(covers):
    named = {module for modules in covers.values() for module in modules}
    assert named <= set(MODULES)
    assert not [module for module in named if own_test_file(module).exists()]


@pytest.mark.parametrize(
    "text, want",
    [
        ('"""Spans."""', []),
        ("import re", []),
        (
            '"""Spans.\n\nCovers spans.py,\ndata/lanes.py.\n"""',
            ["spans.py", "data/lanes.py"],
        ),
        ('"""Spans.\n\nCovers spans.py.\n\nAnd more."""', []),
    ],
)
def test_covered_modules_are_read_from_the_docstring(text, want):
    assert covered(text) == want
