"""Mutations of a file: the operators of mutmut and two additional ones.

Only the operators are mutmut's, not its trampolines: those leave out functions with two decorators
(``backward`` of every autograd function), properties, constants of modules and fields of classes.
"""

from collections import Counter
from pathlib import Path
from typing import Iterator, List, NamedTuple, Tuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

#: keywords of what users read
TEXTS = {"help", "metavar", "metadata"}
#: calls that only talk, or that fail whatever else they are given
TALK = {"getLogger", "warn", "info", "warning", "debug", "error", "exception", "print"}
CERTAIN = {"len", "isinstance", "super", "hasattr"}
TYPES = {"Callable", "Dict", "List", "Optional", "Sequence", "Tuple", "TypeVar", "Union"}


class Mutant(NamedTuple):
    """One change.

    Attributes:
        file: path in the tree. function: qualified name, ``<module>`` outside of functions.
        change: the lines before and after; a number tells apart what a function repeats.
        line: the first. reached: lines of the statement up to the change.
        body: lines of the function, (0, 0) for what runs at import.
        edit: from where to where in the file, and by what it is replaced.
    """

    file: str
    function: str
    change: str
    line: int
    reached: Tuple[int, int]
    body: Tuple[int, int]
    edit: Tuple[int, int, str]

    @property
    def key(self) -> Tuple[str, str, str]:
        """Key of the mutant that unrelated edits do not change."""
        return self.file, self.function, self.change

    def apply(self, source: str) -> str:
        """Return the source with the change applied."""
        start, end, text = self.edit
        return source[:start] + text + source[end:]


def mutants(root: Path, file: str) -> Iterator[Mutant]:
    """Yield all mutants of a file; a few may not compile."""
    source = (root / file).read_text(encoding="utf-8")
    visitor = _Visitor(source)
    MetadataWrapper(cst.parse_module(source)).visit(visitor)
    seen, repeated = {source}, Counter()
    for function, line, reached, body, edit in visitor.found:
        mutant = Mutant(file, function, _difference(source, edit), line, reached, body, edit)
        if mutant.apply(source) not in seen:
            seen.add(mutant.apply(source))
            repeated[mutant.key] += 1
            count = repeated[mutant.key]
            yield mutant._replace(change=f"{mutant.change} #{count}") if count > 1 else mutant


def compiles(source: str) -> bool:
    """Return whether the source compiles."""
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _difference(source: str, edit: Tuple[int, int, str]) -> str:
    """Return the changed lines as ``- before | + after``."""
    start, end, text = edit
    first, last = source.rfind("\n", 0, start) + 1, (source + "\n").index("\n", end)
    before = _lines(source[first:last])
    after = _lines(source[first:start] + text + source[end:last])
    while len(before) > 1 and len(after) > 1 and before[-1] == after[-1]:
        del before[-1], after[-1]
    while len(before) > 1 and len(after) > 1 and before[0] == after[0]:
        del before[0], after[0]
    return " | ".join([f"- {line}" for line in before] + [f"+ {line}" for line in after])


def _lines(text: str) -> List[str]:
    return [line.strip() for line in text.split("\n")]


def _name(node) -> str:
    if isinstance(node, cst.Call):
        node = node.func
    if isinstance(node, cst.Subscript):
        node = node.value
    node = node.attr if isinstance(node, cst.Attribute) else node
    return node.value if isinstance(node, cst.Name) else ""


def _negated(node):
    if not isinstance(node.test, (cst.Comparison, cst.UnaryOperation)):  # these have their own
        test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield node.test, cst.UnaryOperation(cst.Not(), test)


def _arguments(node):
    if _name(node) not in CERTAIN:
        keywords = [arg.keyword.value if arg.keyword else "" for arg in node.args]
        if not TEXTS.intersection(keywords):
            yield from mutators.operator_arg_removal(node)


_REPLACED = {mutators.operator_string: None, mutators.operator_arg_removal: _arguments}
OPERATORS = [(kind, _REPLACED.get(make, make)) for kind, make in mutators.mutation_operators]
OPERATORS = [(kind, make) for kind, make in OPERATORS if make]


class _Visitor(cst.CSTVisitor):
    """Visitor of a file; collects function, line, reached lines, body lines and edit."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: List[tuple] = []
        self._source, self._offsets = source, [0]
        for line in source.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))
        self._names, self._bodies, self._statements = [], [], []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self._is_text(node):
            return False
        if isinstance(node, (cst.BaseStatement, cst.BaseSmallStatement)):
            self._statements.append(node)
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self._names.append(node.name.value)
        if isinstance(node, cst.FunctionDef):
            self._bodies.append(node)
        if isinstance(node, (cst.If, cst.While)):
            for old, new in _negated(node):
                self._add(old, new)
        if isinstance(node, cst.Raise) or (
            isinstance(node, cst.Expr) and isinstance(node.value, cst.Call)
        ):
            self._add(node, cst.Pass())
        if isinstance(node, cst.Raise):
            self._statements.pop()
            return False
        for kind, operator in OPERATORS:
            if isinstance(node, kind):
                for changed in operator(node):
                    self._add(node, changed)
        return True

    def on_leave(self, node: cst.CSTNode) -> None:
        for stack in (self._statements, self._bodies):
            if stack and stack[-1] is node:
                stack.pop()
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            self._names.pop()

    def _is_text(self, node) -> bool:
        """Return whether code is left alone: annotations, imports, decorators, messages, types."""
        if isinstance(node, (cst.Annotation, cst.Import, cst.ImportFrom, cst.Decorator)):
            return True
        if isinstance(node, cst.Arg):
            return node.keyword is not None and node.keyword.value in TEXTS
        if isinstance(node, cst.Expr):
            return _name(node.value) in TALK
        return isinstance(node, cst.Assign) and _name(node.value) in TALK | TYPES

    def _add(self, old: cst.CSTNode, new: cst.CSTNode) -> None:
        place = self.get_metadata(PositionProvider, old)
        if hasattr(new, "lpar") and type(new) is type(old):  # parentheses are outside of a place
            new = new.with_changes(lpar=[], rpar=[])
        text = cst.Module([]).code_for_node(new)
        start = self._offsets[place.start.line - 1] + place.start.column
        end = self._offsets[place.end.line - 1] + place.end.column
        if not self._source[start].isspace():
            text = text.strip()
        first = place.start.line
        if self._statements:
            first = self.get_metadata(PositionProvider, self._statements[-1]).start.line
        body = (0, 0)
        if self._bodies:
            lines = self.get_metadata(PositionProvider, self._bodies[-1].body)
            body = (lines.start.line, lines.end.line)
        edit = (start, end, text)
        function = ".".join(self._names) or "<module>"
        self.found.append((function, place.start.line, (first, place.end.line), body, edit))
