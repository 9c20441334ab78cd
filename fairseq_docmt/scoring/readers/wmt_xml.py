"""Reader of the XML of the WMT shared tasks: documents with sources, references and systems."""

import re
from typing import List

from lxml import etree

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.readers.inputs import Document, Documents
from fairseq_docmt.scoring.readers.records import Wanted

#: Role -> element and the attribute that tells several of them apart.
ELEMENTS = {
    "source": ("src", "translator"),
    "reference": ("ref", "translator"),
    "system": ("hyp", "system"),
}


def is_xml(text: str) -> bool:
    """Return whether the text begins as the XML of WMT does."""
    return re.match(r"\s*(<\?xml\b|<dataset\b)", text) is not None


def read(text: str, path: str, wanted: Wanted) -> Documents:
    """Read the documents of a WMT XML file.

    Raises:
        UserError: the file is not valid XML, a document lacks the wanted text, there are several
            and none is named, or two documents or segments have the same id.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    try:
        root = etree.fromstring(text.lstrip().encode("utf-8"), parser)
    except etree.XMLSyntaxError as error:
        raise UserError(f"{path}, line {error.lineno} is not valid XML: {error.msg}") from None
    documents = list(root.iter("doc"))
    if not documents:
        raise UserError(f"{path} has no documents (elements doc)")
    _check_ids(documents, path, "the file already has a document")
    return Documents(path, [_document(element, path, wanted) for element in documents])


def _check_ids(elements, path: str, already: str) -> None:
    """Raise a UserError if two elements have the same id; elements without one do not count."""
    seen = set()
    for element in elements:
        name = element.get("id")
        if name and name in seen:
            raise UserError(f"{path}, line {element.sourceline}: {already} {name}; rename one")
        seen.add(name)


def _document(element, path: str, wanted: Wanted) -> Document:
    name = element.get("id")
    where = f"{path}, line {element.sourceline}"
    if not name:
        raise UserError(f"{where}: the document has no id")
    segments = list(_chosen(element, f"{where}: document {name}", wanted).iter("seg"))
    _check_ids(segments, path, f"document {name} already has a segment")
    numbers = [segment.get("id") for segment in segments]
    if all(number and number.isdecimal() for number in numbers):
        segments.sort(key=lambda segment: int(segment.get("id")))
        numbers.sort(key=int)
    texts = [" ".join("".join(segment.itertext()).split()) for segment in segments]
    return Document(name, texts, None if None in numbers else numbers)


def _chosen(element, where: str, wanted: Wanted):
    tag, attribute = ELEMENTS[wanted.role]
    found = element.findall(tag)
    names: List[str] = [text.get(attribute, "") for text in found]
    for name in filter(None, (wanted.chosen, wanted.name)):
        if name in names:
            return found[names.index(name)]
        if name == wanted.chosen:
            raise UserError(f"{where} has no {tag} {name}, only {', '.join(names) or 'none'}")
    if not found:
        raise UserError(f"{where} has no {tag}")
    if len(found) > 1:
        raise UserError(f"{where} has several: {', '.join(names)}; choose one as FILE#NAME")
    return found[0]
