"""Convert a text of a test set to JSON lines, a table, WMT XML or plain text.

    fairseq-docmt convert --to jsonl --out system.jsonl system.xml
    fairseq-docmt convert --to text --write-docids docids --out system.txt 'all.csv#text=GPT'

Input formats of this and all other commands, optionally compressed by gzip:

  text       one sentence per line, with a blank line between documents or with --docids
  JSON       JSON lines or an array, with an object for each segment or document: doc_id, segment
             (its number, optional) and text, or the field names of the WMT shared tasks
  table      the same fields as columns separated by tabs, commas or semicolons, with a header
  WMT XML    documents with src, ref and hyp
  SGM        srcset, refset or tstset of older WMT and NIST tasks
  output     of fairseq-generate or fairseq-interactive, with --source or --reference to define the
             documents

FILE#NAME chooses one of several texts in a file: a field, a translator or a system.  Other field
names are given as FILE#doc=FIELD,segment=FIELD,text=FIELD,system=FIELD; in a table without a
header, FIELD is the number of the column.  With --reference, the text is also divided into the
documents and segments of the reference (see --align).  Fields such as domain
are not kept.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import List, Sequence, Tuple

from lxml import etree

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import (
    Document,
    Documents,
    Input,
    Output,
    read_docids,
    read_input,
    wmt_xml,
)
from fairseq_docmt.readers.files import whole_number, write_text
from fairseq_docmt.readers.record_files import TEXT_FIELDS, table_of
from fairseq_docmt.scoring.texts import translations, wrappers
from fairseq_docmt.scoring.texts.layout import Mismatch, documents_of, layout_of, named
from fairseq_docmt.scoring.texts.matching import Reading
from fairseq_docmt.scoring.texts.translations import read_translations


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``fairseq-docmt convert``."""
    parser.add_argument("file", metavar="FILE", help="text in any of the formats above")
    parser.add_argument(
        "--role", choices=TEXT_FIELDS, default="system", help="which text of FILE; default: system"
    )
    parser.add_argument("--to", choices=FORMATS, default="jsonl", help="default: jsonl")
    parser.add_argument("--out", metavar="FILE", required=True, help="file to write")
    parser.add_argument(
        "--write-docids",
        metavar="FILE",
        help="for --to text: write the document of each line to FILE, and no blank lines",
    )
    parser.add_argument("--reference", metavar="FILE", help="text with the wanted segments")
    parser.add_argument("--source", metavar="FILE", help="source of an output of fairseq-generate")
    parser.add_argument(
        "--empty",
        metavar="TEXT",
        default="",
        help="text of empty segments, which --to text refuses without --write-docids",
    )
    translations.add_layout_arguments(parser)
    translations.add_strip_wrappers(parser)


def main(args: argparse.Namespace) -> None:
    """Run ``fairseq-docmt convert``: read a text, and write it in another format."""
    if args.empty and (not args.empty.strip() or len(args.empty.splitlines()) > 1):
        raise UserError(f"--empty is {args.empty!r}; give text of one line, such as <unk>")
    documents, notes = read_documents(args)
    if args.empty:
        documents = [
            d._replace(segments=[text if text.strip() else args.empty for text in d.segments])
            for d in documents
        ]
    if args.write_docids and args.to != "text":
        raise UserError("--write-docids is for --to text; other formats hold the documents")
    if args.write_docids:
        _refuse_ids(documents, args.write_docids)
        for name in (document.id for document in documents):
            if name != name.strip():
                raise UserError(
                    f"{args.write_docids}: white space around the id {name!r} would be lost; use "
                    "--to jsonl"
                )
        _refuse_empty(documents, args.write_docids)
        write_text(args.out, _lines(documents))
        write_text(args.write_docids, "".join(f"{d.id}\n" * len(d.segments) for d in documents))
    else:
        write_text(args.out, FORMATS[args.to](documents, args.out, args.role))
    segments = sum(len(document.segments) for document in documents)
    notes = [*notes, f"wrote {len(documents)} documents with {segments} segments to {args.out}"]
    for note in notes:
        print(note, file=sys.stderr if args.out == "-" else sys.stdout)


def read_documents(args: argparse.Namespace):
    """Read the documents of the input file, matched with the source or reference if one is given.

    Args:
        args: options of the command.

    Returns:
        The documents, and notes on how they were read.

    Raises:
        UserError: the file cannot be read or does not match the source or reference; nothing says
            where documents end; both source and reference are given; or alignment is requested
            without a reference.
    """
    if args.reference and args.source:
        raise UserError("give --source or --reference, not both: each has the segments")
    if args.reference:
        return _divided_as_reference(args)
    if args.align or args.align_all:
        raise UserError("--align needs the text to align with; give --reference")
    plain = args.input_format == "text"
    text, stripped = read_input(args.file, args.role, plain=plain), []
    if args.strip_wrappers:
        text, changed = wrappers.stripped(text, wrappers.removed_for([]))
        stripped = [f"wrappers removed from {changed} segments"]
    if args.source:
        documents, notes = _matched(args, text, read_input(args.source, "source", plain=plain))
    elif isinstance(text, Documents):
        documents, notes = _without_missing(text.documents)
        if not documents:
            raise UserError(f"{args.file}: nothing is left to convert; {notes[0]}")
        if text.reordered:
            notes.append("segments sorted by document and number; the file has another order")
    elif isinstance(text, Output):
        raise UserError(
            f"{args.file} is an output of fairseq-generate, which does not say where documents "
            "end; give --source or --reference"
        )
    else:
        documents, notes = _matched(args, text, text)
    return documents, stripped + notes


def _divided_as_reference(args: argparse.Namespace) -> Tuple[List[Document], Sequence[str]]:
    """Return the documents of the text, with the segments of ``--reference``, and notes."""
    reading = Reading(
        args.docids,
        args.align,
        args.align_all,
        strip_wrappers=args.strip_wrappers,
        role=args.role,
        plain=args.input_format == "text",
    )
    texts = read_translations({args.file: args.file}, [args.reference], reading=reading)
    found = texts.systems[args.file]
    return documents_of(texts.index, texts.ids, found, texts.numbers), texts.notes


def _matched(
    args: argparse.Namespace, text: Input, wanted: Input
) -> Tuple[List[Document], List[str]]:
    """Return the documents of a text, divided as ``wanted``, which may be the same text, and notes.

    Args:
        args: options of the command.
        text: the text to convert.
        wanted: text that defines the documents and segments.

    Raises:
        UserError: the segments do not match.
    """
    layout = layout_of(wanted, read_docids(args.docids) if args.docids else None)
    try:
        found = layout.sentences(text)
    except Mismatch as mismatch:
        raise UserError(
            f"{mismatch}; give the text of the same segments, or align it: fairseq-docmt convert "
            "--reference FILE --align LANGUAGE"
        ) from None
    documents = documents_of(layout.index, layout.ids, found, layout.segment_numbers)
    return documents, layout.notes(args.file, text)


def _without_missing(documents: Sequence[Document]) -> Tuple[List[Document], List[str]]:
    """Drop segments that have no text or are marked as bad.

    Documents that lose all their segments are dropped too.

    Returns:
        The remaining documents, and a list with a note for the user, which is empty if nothing was
        dropped.
    """
    found, notes = [], []
    for document in documents:
        dropped = {*document.missing, *document.bad}
        keep = [at for at in range(len(document.segments)) if at not in dropped]
        numbers = document.numbers and [document.numbers[at] for at in keep]
        segments = [document.segments[at] for at in keep]
        if keep or not dropped:
            found.append(Document(document.id, segments, numbers))
        if document.missing:
            notes.append(f"{document.id} ({len(document.missing)} without text)")
        if document.bad:
            notes.append(f"{document.id} ({len(document.bad)} marked as bad)")
    if notes:
        notes = [f"segments left out of {named(notes)}"]
    return found, notes


def json_lines(documents: List[Document], path: str = "", role: str = "system") -> str:
    """Return documents as JSON lines: ``doc_id``, ``segment`` and ``text`` of each segment.

    A document without segments gives one line without ``segment``.

    Args:
        documents: documents to write.
        path, role: not used, but all functions in ``FORMATS`` have these arguments.
    """
    records = []
    for document in documents:
        for number, text in zip(_numbers(document), document.segments):
            records.append({"doc_id": document.id, "segment": number, "text": text})
        if not document.segments:
            records.append({"doc_id": document.id, "text": ""})
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def table(documents: List[Document], path: str, role: str = "system") -> str:
    """Return documents as a tab-separated table with the columns doc_id, segment and text.

    Args:
        documents: documents to write.
        path: output file, for messages.
        role: not used, but all functions in ``FORMATS`` have this argument.

    Raises:
        UserError: a document has no segments, or an id has a tab or line break.
    """
    _refuse_empty(documents, path)
    _refuse_ids(documents, path)
    rows = [
        (document.id, str(number), " ".join(text.split()))
        for document in documents
        for number, text in zip(_numbers(document), document.segments)
    ]
    return table_of([("doc_id", "segment", "text"), *rows])


def xml(documents: List[Document], path: str, role: str = "system") -> str:
    """Return documents in the XML format of WMT.

    Args:
        documents: documents to write.
        path: output file; its name up to the first dot becomes the name of the system or
            translator.
        role: ``source``, ``reference`` or ``system``; decides which XML element holds the text.

    Raises:
        UserError: a document has no segments, or a text or name has characters that XML cannot
            hold.
    """
    _refuse_empty(documents, path)
    tag, attribute = wmt_xml.ELEMENTS[role]
    root = etree.Element("dataset")
    for document in documents:
        try:
            element = etree.SubElement(root, "doc", id=document.id)
            text = etree.SubElement(element, tag)
            if role != "source":
                text.set(attribute, Path(path).name.split(".")[0])
        except ValueError:
            raise UserError(
                f"{path}: its name or the id {document.id!r} has control characters, which XML "
                "cannot hold; use --to jsonl"
            ) from None
        for number, segment in zip(_numbers(document), document.segments):
            try:
                etree.SubElement(text, "seg", id=str(number)).text = segment
            except ValueError:
                raise UserError(
                    f"{path}: segment {number} of document {document.id} has control characters, "
                    "which XML cannot hold; use --to jsonl"
                ) from None
    etree.indent(root)
    return etree.tostring(root, encoding="unicode") + "\n"


def plain_text(documents: List[Document], path: str, role: str = "system") -> str:
    """Return documents as text with one segment per line and a blank line between documents.

    Args:
        documents: documents to write.
        path: output file, for messages.
        role: not used, but all functions in ``FORMATS`` have this argument.

    Raises:
        UserError: a document has no segments, or a segment is empty and would be read as the end of
            a document.
    """
    _refuse_empty(documents, path)
    for document in documents:
        for number, text in zip(_numbers(document), document.segments):
            if not text.strip():
                raise UserError(
                    f"{path}: segment {number} of document {document.id} is empty and would end "
                    "the document in plain text; use --to jsonl, or --write-docids FILE"
                )
    return "\n".join(_lines([document]) for document in documents)


def _lines(documents: List[Document]) -> str:
    return "".join(f"{text}\n" for document in documents for text in document.segments)


def _refuse_ids(documents: List[Document], path: str) -> None:
    for document in documents:
        for name in (document.id, *map(str, document.numbers or ())):
            if re.search(r"[\t\n\r]", name):
                raise UserError(f"{path}: the id {name!r} has a tab or line break; use --to jsonl")


def _refuse_empty(documents: List[Document], path: str) -> None:
    for document in documents:
        if not document.segments:
            raise UserError(
                f"{path}: document {document.id} is empty, which only JSON lines can hold; leave "
                "it out, or use --to jsonl"
            )


def _numbers(document: Document) -> list:
    numbers = document.numbers or range(1, len(document.segments) + 1)
    found = [(str(number), whole_number(str(number))) for number in numbers]
    return [number if whole is None or str(whole) != number else whole for number, whole in found]


FORMATS = {"jsonl": json_lines, "text": plain_text, "tsv": table, "xml": xml}
