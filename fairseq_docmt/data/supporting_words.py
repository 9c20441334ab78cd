"""Supporting words of a corpus: the words that show how to translate ambiguous words.

Yin et al. (2021) let translators mark them.  A file has a JSON object per line:

    {"line": 7, "source": [2], "target": [3, 4],
     "supporting_source": {"6": [5]}, "supporting_target": {"6": [4, 5], "7": [0]}}

``source`` and ``target`` are the ambiguous words of a sentence and of its translation.  The other
two fields are the supporting words, as a list of tokens for each line.  Lines, and the tokens of a
line, are counted from 0, as in the binarised corpus; blank lines count.  The fields of either side
may be left out.
"""

import json
import os
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Set, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_docmt.data.corpus import DocumentCorpus, parts_of
from fairseq_docmt.errors import UserError

#: (line, token)
Word = Tuple[int, int]

SIDES = ("source", "target")
FIELDS = ("line", *SIDES, *(f"supporting_{side}" for side in SIDES))

#: attention -> sides of its queries and keys
ATTENTION = {
    "encoder": ("source", "source"),
    "cross": ("target", "source"),
    "decoder": ("target", "target"),
}


class Ambiguity(NamedTuple):
    """Ambiguous words of a line, and the words that show how to translate them.

    Attributes:
        words: ``source`` or ``target`` -> token numbers of the ambiguous words in the line.
        supporting: ``source`` or ``target`` -> (line, token number) of their supporting words.
    """

    words: Dict[str, List[int]]
    supporting: Dict[str, List[Word]]


def path_of(corpus: DocumentCorpus, part: int = 0) -> str:
    """Return the path of a file of supporting words, such as ``train.zh-en.supporting.jsonl``.

    Args:
        corpus: corpus of the split.
        part: part of the split: 0 for ``train``, 1 for ``train1``, and so on.
    """
    split, pair = corpus.name.rsplit(".", 1)
    return f"{split}{part or ''}.{pair}.supporting.jsonl"


class SupportingWords:
    """Supporting words of a corpus: the words that show how to translate its ambiguous words.

    Args:
        of_line: line of the corpus -> its ambiguous words with their supporting words.
    """

    def __init__(self, of_line: Dict[int, List[Ambiguity]]):
        self.of_line = of_line

    @classmethod
    def read(cls, corpus: DocumentCorpus) -> "SupportingWords":
        """Read the supporting words of a corpus from the files of its parts.

        A part, such as ``train1``, may have no file; its sentences then have no supporting words.

        Raises:
            UserError: a file does not fit the corpus.
        """
        of_line: Dict[int, List[Ambiguity]] = {}
        check = _Check(corpus)
        for part, first, _ in parts_of(corpus.pairs.src):
            path = path_of(corpus, part)
            if os.path.exists(path):
                for line, ambiguity in _read_file(path, first, check):
                    of_line.setdefault(line, []).append(ambiguity)
        return cls(of_line)

    def links(
        self,
        source: Dict[int, range],
        target: Dict[int, range],
        lines: Iterable[int],
    ) -> Dict[str, Tensor]:
        """Return which positions of an example should attend to which other positions.

        Args:
            source, target: line -> positions of its tokens in the example.
            lines: lines whose ambiguous words are included.

        Returns:
            Name of the attention (``encoder``, ``cross`` or ``decoder``) -> (n, 2) pairs of a query
            position, that of an ambiguous word, and a key position, that of a supporting word.  If
            the query is in the decoder, its position is the one that predicts the ambiguous word.
            Supporting words outside the example are left out, and for ``decoder`` also those that
            the decoder has not yet read at the query position.
        """
        positions = {"source": source, "target": target}
        found: Dict[str, Set[Tuple[int, int]]] = {attention: set() for attention in ATTENTION}
        for line in lines:
            for ambiguity in self.of_line.get(line, ()):
                for attention in ATTENTION:
                    found[attention].update(_links(attention, line, ambiguity, positions))
        return {
            attention: torch.tensor(sorted(links), dtype=torch.long).view(-1, 2)
            for attention, links in found.items()
        }


def _links(
    attention: str, line: int, ambiguity: Ambiguity, positions: Dict[str, Dict[int, range]]
) -> Iterator[Tuple[int, int]]:
    """Yield a pair of query and key position for each ambiguous word with each supporting word.

    The query is the ambiguous word, the key its supporting word.  Supporting words that the query
    cannot attend to, because they are outside the example or the decoder has not yet read them, are
    left out.

    Args:
        attention: ``encoder``, ``cross`` or ``decoder``.
        line: line of the ambiguous words.
        ambiguity: ambiguous words and their supporting words.
        positions: ``source`` or ``target`` -> line -> positions of its tokens.
    """
    of_query, of_key = ATTENTION[attention]
    in_decoder = attention == "decoder"
    for token in ambiguity.words[of_query]:
        query = positions[of_query][line][token]
        for place, supporting in ambiguity.supporting[of_key]:
            if place not in positions[of_key]:
                continue
            key = positions[of_key][place][supporting] + in_decoder
            if not in_decoder or key <= query:
                yield query, key


def collate(rows: Sequence[Dict[str, Tensor]], shifts: Sequence[int]) -> Dict[str, Tensor]:
    """Convert query and key positions in single examples to positions in their batch.

    Args:
        rows: result of :meth:`SupportingWords.links` for each row of the batch.
        shifts: number of padding tokens before the source of each row.

    Returns:
        Name of the attention -> (n, 3) batch row, query position and key position of each pair.
    """
    found: Dict[str, List[Tensor]] = {attention: [] for attention in ATTENTION}
    for number, (row, shift) in enumerate(zip(rows, shifts)):
        for attention, sides in ATTENTION.items():
            moved = row[attention] + torch.tensor([shift * (side == "source") for side in sides])
            found[attention].append(F.pad(moved, (1, 0), value=number))
    return {attention: torch.cat(links) for attention, links in found.items()}


class _Check:
    """Checker of the words that a file of supporting words names: they must be in the corpus.

    Args:
        corpus: corpus of the split.
    """

    def __init__(self, corpus: DocumentCorpus):
        pairs, index = corpus.pairs, corpus.index
        self.sizes = {"source": pairs.src_sizes, "target": pairs.tgt_sizes}
        self.document = np.full(len(pairs), -1)
        self.document[index.line_ids] = index.document

    def line(self, line: int) -> int:
        """Return a line of the corpus after checking that there is a sentence in it.

        Raises:
            ValueError: the line is blank or outside the corpus.
        """
        if not 0 <= line < len(self.document) or self.document[line] < 0:
            raise ValueError(f"the corpus has no sentence in line {line}")
        return line

    def word(self, side: str, line: int, token: int, of_line: int) -> Word:
        """Check that a word exists, in the same document as the ambiguous words of the record.

        Args:
            side: ``source`` or ``target``.
            line, token: line of the corpus, and number of a token in it.
            of_line: line of the ambiguous words.

        Returns:
            The word, as ``(line, token)``.

        Raises:
            ValueError: the corpus does not have the word, or it is in another document.
        """
        if type(token) is not int:
            raise ValueError(f"{token!r} is not the number of a token")
        self.line(line)
        if not 0 <= token < self.sizes[side][line] - 1:
            raise ValueError(
                f"line {line} of the {side} has {self.sizes[side][line] - 1} tokens, but token "
                f"{token} is named"
            )
        if self.document[line] != self.document[of_line]:
            raise ValueError(f"line {line} is not in the document of line {of_line}")
        return line, token


def _read_file(path: str, first: int, check: _Check) -> Iterator[Tuple[int, Ambiguity]]:
    """Read the records of a file of supporting words.

    Args:
        path: file for one part of the corpus, such as ``train1``.
        first: line of the corpus at which this part begins.
        check: checker of the words in the records.

    Yields:
        For each record, its line in the corpus and the ambiguous words with their supporting words.

    Raises:
        UserError: a record is invalid; the message names its line in the file.
    """
    with open(path, "rb") as file:
        for number, text in enumerate(file, start=1):
            try:
                yield _parse(json.loads(text.decode("utf-8")), first, check)
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"{path}: line {number}: {error}; write the file again with "
                    "data_prep/supporting_words.py"
                ) from None


def _parse(record: dict, first: int, check: _Check) -> Tuple[int, Ambiguity]:
    """Convert a record of a file of supporting words, and check its words.

    Args:
        record: content of one line of the file, parsed as JSON.
        first: line of the corpus at which the part of this file begins.
        check: checker of the words.

    Returns:
        Line of the record in the corpus, and its ambiguous words with their supporting words.

    Raises:
        ValueError: the record is invalid, or its words are not in the corpus.
    """
    if not isinstance(record, dict) or type(record.get("line")) is not int:
        raise ValueError('an object with "line" is expected')
    for name in SIDES:
        if not isinstance(record.get(name, []), list):
            raise ValueError(f'"{name}" must be a list of tokens, such as [2]')
        places = record.get(f"supporting_{name}", {})
        if not isinstance(places, dict) or not all(
            place.isdecimal() and isinstance(tokens, list) for place, tokens in places.items()
        ):
            raise ValueError(
                f'"supporting_{name}" must have the tokens of each line, such as {{"6": [5]}}'
            )
    unknown = [name for name in record if name not in FIELDS]
    if unknown:
        raise ValueError(f"unknown field {unknown[0]}")
    if record["line"] < 0:
        raise ValueError(f"lines are counted from 0, but line {record['line']} is named")
    line = check.line(first + record["line"])
    words = {
        side: [check.word(side, line, token, line)[1] for token in record.get(side, [])]
        for side in SIDES
    }
    supporting = {
        side: [
            check.word(side, first + int(place), token, line)
            for place, tokens in record.get(f"supporting_{side}", {}).items()
            for token in tokens
        ]
        for side in SIDES
    }
    if not (any(words.values()) and any(supporting.values())):
        raise ValueError("a record needs ambiguous words and supporting words")
    return line, Ambiguity(words, supporting)
