r"""Convert a text of a test set to JSON lines, or to lines with blank lines between documents.

    fairseq-docmt convert --to jsonl --out system.jsonl system.xml

Formats that are read, here and by all other commands:

  text       one sentence per line, a blank line between documents; or with --docids
  jsonl      one JSON object per segment or document, with doc_id, segment (its number, may be
             missing) and text; the fields of the WMT shared tasks are understood too
  table      the same fields as columns separated by tabs, with a header
  WMT XML    documents with src, ref and hyp
  output     of fairseq-generate or fairseq-interactive, with --source or --reference to say where
             documents end

With --reference, the text is also brought into its documents and segments (see --align).
"""

import argparse
import json
from typing import List

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers import Document, Documents, Output, read_docids, read_input
from fairseq_docmt.readers.files import write_text
from fairseq_docmt.readers.records import TEXT_FIELDS
from fairseq_docmt.scoring.texts import translations
from fairseq_docmt.scoring.texts.layout import Mismatch, documents_of, layout_of, without_gaps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("file", metavar="FILE", help="text in any of the formats above")
    parser.add_argument(
        "--role", choices=TEXT_FIELDS, default="system", help="which text of FILE; default: system"
    )
    parser.add_argument("--to", choices=FORMATS, default="jsonl", help="default: jsonl")
    parser.add_argument("--out", metavar="FILE", required=True, help="file to write")
    parser.add_argument("--reference", metavar="FILE", help="text with the wanted segments")
    parser.add_argument("--source", metavar="FILE", help="source of an output of fairseq-generate")
    parser.add_argument(
        "--empty",
        metavar="TEXT",
        default="",
        help="text of empty segments, which --to text refuses",
    )
    translations.add_layout_arguments(parser)


def main(args: argparse.Namespace) -> None:
    """Run the command."""
    documents, notes = read_documents(args)
    if args.empty:
        documents = [
            d._replace(segments=[text if text.strip() else args.empty for text in d.segments])
            for d in documents
        ]
    write_text(args.out, FORMATS[args.to](documents, args.file))
    for note in notes:
        print(note)
    segments = sum(len(document.segments) for document in documents)
    print(f"wrote {len(documents)} documents with {segments} segments to {args.out}")


def read_documents(args: argparse.Namespace):
    """Return the documents of the file, and notes.

    Raises:
        UserError: the file cannot be read, does not match the source or reference, or nothing
            says where documents end; or both are given.
    """
    if args.reference and args.source:
        raise UserError("give --source or --reference, not both: each has the segments")
    plain = args.input_format == "text"
    if args.reference:
        texts = translations.read_translations(
            {args.file: args.file},
            [args.reference],
            docids=args.docids,
            align=args.align,
            role=args.role,
            plain=plain,
        )
        return documents_of(texts.index, texts.ids, texts.systems[args.file]), texts.notes
    if args.align:
        raise UserError("--align needs the text to align with; give --reference")
    text = read_input(args.file, args.role, plain=plain)
    if not args.source and isinstance(text, Documents):
        documents, notes = without_gaps(text.documents)
        if not documents:
            raise UserError(f"{args.file}: nothing is left to convert; {notes[0]}")
        return documents, notes
    if not args.source and isinstance(text, Output):
        raise UserError(
            f"{args.file} is an output of fairseq-generate, which does not say where documents "
            "end; give --source or --reference"
        )
    wanted = read_input(args.source, "source", plain=plain) if args.source else text
    layout = layout_of(wanted, read_docids(args.docids) if args.docids else None)
    try:
        found = layout.sentences(text)
    except Mismatch as mismatch:
        raise UserError(f"{mismatch}; align it with --reference FILE --align LANGUAGE") from None
    return documents_of(layout.index, layout.ids, found), layout.notes(args.file, text)


def json_lines(documents: List[Document], path: str = "") -> str:
    """Return documents as JSON lines, the format of this project.

    An empty document is a record without a segment.
    """
    records = []
    for document in documents:
        for number, text in zip(_numbers(document), document.segments):
            records.append({"doc_id": document.id, "segment": number, "text": text})
        if not document.segments:
            records.append({"doc_id": document.id, "text": ""})
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def plain_text(documents: List[Document], path: str) -> str:
    """Return documents as lines, with blank lines between documents.

    Raises:
        UserError: a segment is empty: it would be the end of a document; or a document is empty.
    """
    for document in documents:
        if not document.segments:
            raise UserError(
                f"{path}: document {document.id} is empty, which plain text cannot hold; leave it "
                "out, or use --to jsonl"
            )
        for number, text in zip(_numbers(document), document.segments):
            if not text.strip():
                raise UserError(
                    f"{path}: segment {number} of document {document.id} is empty and would end "
                    "the document in plain text; use --to jsonl"
                )
    return "\n".join("".join(f"{text}\n" for text in d.segments) for d in documents)


def _numbers(document: Document) -> list:
    numbers = document.numbers or range(1, len(document.segments) + 1)
    return [int(n) if str(n).isdecimal() else n for n in numbers]


FORMATS = {"jsonl": json_lines, "text": plain_text}
