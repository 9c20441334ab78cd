"""Reader of the XML of the WMT shared tasks: documents with sources, references and systems."""

import re
from typing import List

from lxml import etree

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.readers.inputs import Document, Documents
from fairseq_docmt.scoring.readers.records import Wanted, numbered_document

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
            and none is named or two have the name, two documents or segments have the same id, or
            only some segments of a document have one.
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    try:
        root = etree.fromstring(text.lstrip().encode("utf-8"), parser)
    except etree.XMLSyntaxError as error:
        raise UserError(f"{path}, line {error.lineno} is not valid XML: {error.msg}") from None
    documents = list(root.iter("doc"))
    if not documents:
        raise UserError(f"{path} has no documents (elements doc)")
    seen = set()
    for element in documents:
        name = element.get("id")
        if name and name in seen:
            raise UserError(
                f"{path}, line {element.sourceline}: the file already has a document {name}; "
                "rename one"
            )
        seen.add(name)
    return Documents(path, [_document(element, path, wanted) for element in documents])


def _document(element, path: str, wanted: Wanted) -> Document:
    name = element.get("id")
    where = f"{path}, line {element.sourceline}"
    if not name:
        raise UserError(f"{where}: the document has no id")
    rows = [
        (f"{path}, line {seg.sourceline}", seg.get("id") or None, "".join(seg.itertext()))
        for seg in _chosen(element, f"{where}: document {name}", wanted).iter("seg")
    ]
    return numbered_document(name, rows)


def _chosen(element, where: str, wanted: Wanted):
    tag, attribute = ELEMENTS[wanted.role]
    found = element.findall(tag)
    names: List[str] = [text.get(attribute, "") for text in found]
    for name in filter(None, (wanted.chosen, wanted.name)):
        if names.count(name) > 1:
            raise UserError(f"{where} has several {tag} elements of {name}; leave one")
        if name in names:
            return found[names.index(name)]
        if name == wanted.chosen:
            raise UserError(f"{where} has no {tag} {name}, only {', '.join(names) or 'none'}")
    if not found:
        raise UserError(f"{where} has no {tag}")
    if len(found) > 1:
        raise UserError(f"{where} has several: {', '.join(names)}; choose one as FILE#NAME")
    return found[0]
