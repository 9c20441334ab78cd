r"""Preprocess raw text as prepare.py did for a binarised folder, or undo the preprocessing.

    python data_prep/apply_form.py --data data/de-en/bin --language en mono.en prepared/train.en
    python data_prep/apply_form.py --data data/de-en/bin --language en --undo repaired.en raw.en

This is for text that is not part of the prepared corpus, such as monolingual documents or outputs
of other systems.  It is tokenized, truecased and cut into subwords like the training text.  Blank
lines stay where they are.
"""

import argparse
import sys
from pathlib import Path
from typing import Iterable, Iterator

from check_documents import CorpusError, Parser, iterate_lines
from documents import check_not_read
from prepare import cores
from stages import count_lines, map_lines, write_whole

from fairseq_docmt.errors import UserError
from fairseq_docmt.symbols import complaint, first_reserved
from fairseq_docmt.text_form import read_text_forms


def line_function(data: str, language: str, undo: bool):
    """Return a function that preprocesses a raw sentence or turns a preprocessed one into raw text.

    Args:
        data: binarised folder, which tells how its text was preprocessed.
        language: language of the sentences.
        undo: True for the function that returns raw text.

    Raises:
        CorpusError: the folder does not describe its preprocessing, has no text in this language,
            or has a missing or invalid model.
    """
    try:
        forms = read_text_forms(data)
        if language not in forms:
            known = f"it has {' and '.join(forms)}" if forms else "make it with prepare.py"
            raise CorpusError(f"{data} does not describe text of language {language}; {known}")
        form = forms[language]
        if not undo:
            return form.encoder(language)
        join, detokenize = form.join(), form.detokenize(language)
    except UserError as error:
        raise CorpusError(str(error)) from None
    return lambda line: detokenize(join(line))


def without_symbols(lines: Iterable[str], file: str) -> Iterator[str]:
    """Yield preprocessed lines after checking that no word is a reserved symbol of the model.

    Args:
        lines: preprocessed lines.
        file: the user's file, for messages.

    Raises:
        CorpusError: a line has a symbol of the model, such as ``<sep>``, as a word.
    """
    for number, line in enumerate(lines, start=1):
        word = first_reserved(line.split())
        if word:
            place = f"{file}: line {number}"
            raise CorpusError(f"{complaint(place, word)}; write it differently")
        yield line


def main(arguments=None) -> None:
    """Preprocess the file named on the command line, or undo its preprocessing.

    If there is an error, its message is printed and the program exits.
    """
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", metavar="INPUT", help="text, a blank line between documents")
    parser.add_argument("output", metavar="OUTPUT", help="file to write")
    parser.add_argument("--data", required=True, help="folder bin/ of prepare.py")
    parser.add_argument("--language", required=True, help="language of the text")
    parser.add_argument("--undo", action="store_true", help="from the form of the folder to raw")
    parser.add_argument("--workers", type=int, default=cores(), help="default: all cores")
    args = parser.parse_args(arguments)
    try:
        if args.workers < 1:
            raise CorpusError("--workers must be at least 1")
        check_not_read([args.output], [args.input])
        lines, total = iterate_lines(args.input), count_lines(Path(args.input))
        if total == 0:
            raise CorpusError(f"{args.input} has no text")
        given, step = (args.data, args.language, args.undo), "undo" if args.undo else "prepare"
        found = map_lines(lines, line_function, given, step, args.input, args.workers, total)
        write_whole({args.output: found if args.undo else without_symbols(found, args.input)})
    except CorpusError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {error.filename or args.input}: {error.strerror or error}")


if __name__ == "__main__":
    main()
