"""Reader for XML of the WMT shared tasks: documents with sources, references and systems."""

import re
from typing import Iterator, List, Optional

from lxml import etree

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import segment_number
from fairseq_docmt.readers.inputs import Document, Documents
from fairseq_docmt.readers.records import Lacks, Row, Wanted, numbered_document

#: Role -> element and the attribute that tells several of them apart.
ELEMENTS = {
    "source": ("src", "translator"),
    "reference": ("ref", "translator"),
    "system": ("hyp", "system"),
}
_BEGIN = re.compile(r"<\?xml\b|<dataset\b")
_BLANK_OR_COMMENT = re.compile(r"\s*(<!--.*?-->)?", flags=re.S)
#: Tags that tell XML without a declaration from plain text.
_TAGS = (re.compile(r"<doc\s[^>]*\bid\s*="), re.compile(r"<seg\b"))


def is_xml(text: str) -> bool:
    """Return whether a text looks like the XML of the WMT shared tasks."""
    begin = after_comments(text)
    if _BEGIN.match(text, begin):
        return True
    return text.startswith("<", begin) and all(tag.search(text) for tag in _TAGS)


def after_comments(text: str) -> int:
    """Return the place in a text that follows white space and comments of XML at its beginning."""
    place = 0
    while (found := _BLANK_OR_COMMENT.match(text, place)).end() > place:
        place = found.end()
    return place


def read(text: str, path: str, wanted: Wanted) -> Documents:
    """Read the source, a reference or the output of a system from a WMT XML file.

    If references are read, some documents may lack one; all their segments then count as missing.

    Raises:
        UserError: the file is not valid XML; text stands outside of segments; a document (or, for
            references, every document) lacks the wanted text; a document has several texts and
            ``wanted`` does not choose one; two documents or segments have the same id; or only some
            segments of a document have an id.
    """
    documents = documents_of(parse(text, path), path)
    found, lacks = [], []
    for element in documents:
        try:
            found.append(_document(element, path, wanted))
        except Lacks as error:
            if wanted.role != "reference":
                raise
            lacks.append(error)
            found.append(_without_text(element, path))
    if len(lacks) == len(found):
        raise lacks[0]
    return Documents(path, found, language_of(documents, wanted.role))


def language_of(documents, role: str) -> Optional[str]:
    """Return the language declared by all texts of a role; None if they do not agree."""
    tag, _ = ELEMENTS[role]
    found = {text.get("lang") for element in documents for text in element.findall(tag)}
    return found.pop() if len(found) == 1 else None


def parse(text: str, path: str):
    """Parse the content of an XML file, and return its root element.

    Entities that a file declares itself are not resolved, so no other file is read.

    Raises:
        UserError: the file is not valid XML, or its text has such an entity.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    try:
        root = etree.fromstring(text.lstrip().encode("utf-8"), parser)
    except etree.XMLSyntaxError as error:
        raise UserError(f"{path}, line {error.lineno} is not valid XML: {error.msg}") from None
    entity = next(root.iter(etree.Entity), None)
    if entity is not None:
        raise UserError(
            f"{path}, line {entity.sourceline}: the entity {entity.text} is not one of XML; put "
            "the characters that it stands for in its place"
        )
    return root


def documents_of(root, path: str) -> list:
    """Return the ``doc`` elements of a file.

    Args:
        root: root element of the file.
        path: path of the file, for messages.

    Raises:
        UserError: the file has no documents, a document has no id, or two have the same id.
    """
    documents = list(root.iter("doc"))
    if not documents:
        raise UserError(f"{path} has no documents (elements doc)")
    seen = set()
    for element in documents:
        name, where = element.get("id"), f"{path}, line {element.sourceline}"
        if not name:
            raise UserError(f"{where}: the document has no id")
        if name in seen:
            raise UserError(f"{where}: the file already has a document {name}; rename one")
        seen.add(name)
    return documents


def text_of(element, path: str, wanted: Wanted):
    """Return the XML element (``src``, ``ref`` or ``hyp``) with the wanted text of a document.

    Args:
        element: XML element of the document.
        path: path of the file, for messages.
        wanted: which text to return.

    Raises:
        UserError: the document has no such text (:class:`Lacks`), or it has several and the user
            has named none of them.
    """
    where = f"{path}, line {element.sourceline}: document {element.get('id')}"
    return _chosen(element, where, wanted)


def _document(element, path: str, wanted: Wanted) -> Document:
    group = element.get(wanted.by) if wanted.by else None
    rows = [row._replace(group=group) for row in _rows(text_of(element, path, wanted), path)]
    return numbered_document(element.get("id"), rows)


def _without_text(element, path: str) -> Document:
    """Build a ``Document`` with all segments missing, for an element without the wanted text.

    The number and the ids of the segments come from another text of the document: the first source,
    reference or translation that has segments.

    Args:
        element: XML element of the document.
        path: path of the file, for messages.
    """
    texts = (text for text in element.iterchildren(*(tag for tag, _ in ELEMENTS.values())))
    rows = next((rows for rows in ([*_rows(text, path)] for text in texts) if rows), [])
    return numbered_document(element.get("id"), [row._replace(text=None) for row in rows])


def _rows(text, path: str) -> Iterator[Row]:
    for outside in text.xpath(".//text()[not(ancestor::seg)][normalize-space()]"):
        raise UserError(
            f"{path}, line {text.sourceline}: the {text.tag} has text outside of its segs, "
            f"{outside.strip()!r:.40}; put it into one"
        )
    for seg in text.iter("seg"):
        where = f"{path}, line {seg.sourceline}"
        yield Row(where, segment_number(seg.get("id")), "".join(seg.itertext()))


def _chosen(element, where: str, wanted: Wanted):
    tag, attribute = ELEMENTS[wanted.role]
    found = element.findall(tag)
    names: List[str] = [text.get(attribute, "") for text in found]
    for name in filter(None, (wanted.chosen, wanted.name)):
        if names.count(name) > 1:
            raise UserError(f"{where} has several {tag} elements of {name}; leave one")
        if name in names:
            return found[names.index(name)]
        if name == wanted.chosen and found and not any(names):
            raise UserError(f"{where}: its {tag} has no {attribute}; leave out #{name}")
        if name == wanted.chosen:
            raise Lacks(f"{where} has no {tag} {name}, only {', '.join(names) or 'none'}")
    if not found:
        raise Lacks(f"{where} has no {tag}")
    if len(found) > 1:
        if not any(names):
            raise UserError(f"{where} has several {tag} elements without a name; leave one")
        raise UserError(f"{where} has several: {', '.join(names)}; choose one as FILE#NAME")
    return found[0]
