"""Reader of the SGM of older WMT and NIST tasks: ``srcset``, ``refset`` and ``tstset``.

These files are not XML: attributes may lack quotes, and ``<`` need not be escaped.
"""

import bisect
import re
from typing import Callable, Dict, List, NamedTuple, Optional

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import segment_number
from fairseq_docmt.readers.inputs import Documents
from fairseq_docmt.readers.records import Row, Wanted, numbered_document

#: A comment that hides a part of a set from readers of SGML, but not from a search for tags.
_COMMENT = re.compile(r"<!--(?:(?!-->).)*?<(srcset|refset|tstset|doc|seg)\b", flags=re.I | re.S)
SEG = re.compile(r"(<seg\b[^>]*>)(.*?)(</seg>)", flags=re.I | re.S)
_OPENED = re.compile(r"<seg\b", flags=re.I)
DOC = re.compile(r"<doc\b[^>]*\bdocid\s*=[^>]*>", flags=re.I)
_SET = re.compile(r"<(srcset|refset|tstset)\b[^>]*>", flags=re.I)
_ATTRIBUTE = re.compile(r"([\w:-]+)\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>]+)")
#: Kinds of sets that are read for each role.
KINDS = {"source": ("srcset",), "reference": ("refset", "tstset"), "system": ("tstset", "refset")}
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}


class SgmDocument(NamedTuple):
    """A document of an SGM file, with attributes of the set to which it belongs.

    Attributes:
        id: its ``docid``.
        kind: kind of the set: ``srcset``, ``refset`` or ``tstset``.
        name: ``sysid`` or ``refid`` of the document or of its set; "" if there is none.
        attributes: attributes of the set and of the document; the latter take precedence.
        rows: segments of the document.
    """

    id: str
    kind: str
    name: str
    attributes: Dict[str, str]
    rows: List[Row]


def is_sgm(text: str) -> bool:
    """Return whether a text looks like SGM, with ``<doc>`` and ``<seg>`` tags."""
    return text.lstrip().startswith("<") and bool(DOC.search(text) and SEG.search(text))


def read(text: str, path: str, wanted: Wanted) -> Documents:
    """Read the source, a reference or the output of a system from an SGM file.

    Raises:
        UserError: the file has no set with the wanted role or name, or it has several sets with the
            role and the user named none; two documents have the same id; segment numbers are
            incomplete or repeated; or the file is damaged, see :func:`documents_of`.
    """
    documents = documents_of(text, path)
    kinds = {document.kind for document in documents}
    kind = next((kind for kind in KINDS[wanted.role] if kind in kinds), None)
    if kind is None:
        raise UserError(
            f"{path} has no {KINDS[wanted.role][0]}, only {', '.join(sorted(kinds))}; give the "
            f"{wanted.role} file of the task"
        )
    documents = [document for document in documents if document.kind == kind]
    names = [*dict.fromkeys(document.name for document in documents)]
    name = _name(names, path, wanted)
    found = [document for document in documents if document.name == name]
    refuse_repeated(found, path)
    made = [numbered_document(d.id, _grouped(d, wanted)) for d in found]
    return Documents(path, made, language_of(found))


def refuse_repeated(documents: List[SgmDocument], path: str) -> None:
    """Raise a UserError if two of the documents have the same id."""
    seen = set()
    for document in documents:
        if document.id in seen:
            where = document.rows[0].where if document.rows else path
            raise UserError(f"{where}: the file already has a document {document.id}; rename one")
        seen.add(document.id)


def language_of(documents: List[SgmDocument]) -> Optional[str]:
    """Return the language that documents of one kind declare; None if they do not agree."""
    languages = {
        document.attributes.get("srclang" if document.kind == "srcset" else "trglang")
        for document in documents
    } - {"any"}
    return languages.pop() if len(languages) == 1 else None


def _grouped(document: SgmDocument, wanted: Wanted) -> List[Row]:
    group = document.attributes.get(wanted.by.lower()) if wanted.by else None
    return [row._replace(group=group) for row in document.rows]


def _name(names: List[str], path: str, wanted: Wanted) -> str:
    for name in filter(None, (wanted.chosen, wanted.name)):
        if name in names:
            return name
        if name == wanted.chosen:
            raise UserError(f"{path} has no {name}, only {', '.join(filter(None, names))}")
    if len(names) > 1:
        raise UserError(f"{path} has several: {', '.join(names)}; choose one as FILE#NAME")
    return names[0]


def documents_of(text: str, path: str) -> List[SgmDocument]:
    """Return the documents of all sets in an SGM file.

    Raises:
        UserError: a document is not in a set, a segment has no end tag, or a comment has a part of
            a set in it or is in a segment.
    """
    sets, starts = list(_SET.finditer(text)), list(DOC.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    line_ends = [match.start() for match in re.finditer("\n", text)]

    def where_of(place: int) -> str:
        return f"{path}: line {bisect.bisect_left(line_ends, place) + 1}"

    hidden = _COMMENT.search(text)
    if hidden:
        raise UserError(f"{where_of(hidden.start())}: the comment has a <{hidden[1]}>; remove it")
    found = []
    for match, end in zip(starts, ends):
        where = where_of(match.start())
        inside = [each for each in sets if each.start() < match.start()]
        if not inside:
            raise UserError(f"{where}: the document is in no srcset, refset or tstset")
        of_set, own = _attributes(inside[-1][0]), _attributes(match[0])
        names = (each.get(field) for each in (own, of_set) for field in ("sysid", "refid"))
        rows = _rows(text, match.end(), end, where_of)
        kind, name = inside[-1][1].lower(), next(filter(None, names), "")
        found.append(SgmDocument(own["docid"], kind, name, {**of_set, **own}, rows))
    return found


def _rows(text: str, begin: int, end: int, where_of: Callable[[int], str]) -> List[Row]:
    segs = list(SEG.finditer(text, begin, end))
    opened = [match.start() for match in _OPENED.finditer(text, begin, end)]
    for place, seg in zip(opened, [*segs, None]):
        if seg is None or seg.start() != place:
            raise UserError(f"{where_of(place)}: the seg has no end")
        if "<!--" in seg[2]:
            raise UserError(f"{where_of(place)}: the seg has a comment; remove it")
    return [
        Row(
            where_of(seg.start()),
            segment_number(_attributes(seg[1]).get("id")),
            " ".join(plain(seg[2]).split()),
        )
        for seg in segs
    ]


def plain(text: str) -> str:
    """Replace the entities of a text, such as ``&amp;``, by the characters that they stand for."""
    for entity, character in _ENTITIES.items():
        text = text.replace(entity, character)
    return text


def _attributes(tag: str) -> Dict[str, str]:
    return {
        name.lower(): plain(value[1:-1] if value[0] in "\"'" else value)
        for name, value in _ATTRIBUTE.findall(tag)
    }
