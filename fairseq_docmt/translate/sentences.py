"""Functions that cut segments into sentences short enough for a model."""

import re
from typing import Callable, List, NamedTuple

from fairseq_docmt.errors import UserError

#: Languages that are written without spaces between sentences.
WITHOUT_SPACES = ("zh", "ja", "yue", "th", "lo", "km", "my")
_ENDS = re.compile(r"[^。！？!?…]*(?:[。！？!?…]+[」』）”’\"']*|$)")
#: Marks before a sentence: quotes, brackets, Spanish marks and dashes.
_OPENING = re.compile(r"\s([\"'“„«»‘‚(\[¿¡–—-][\"'“„«»‘‚(\[¿¡–—\s-]*)$")
_CLOSING = re.compile(r"\s*»\s*")
#: Where a sentence that is too long is cut, the best places first.
_CUTS = (r"(?<=[;；:：])", r"(?<=[,，、])", r"\s", "")


def is_without_spaces(language: str) -> bool:
    """Return whether a language is written without spaces between sentences, like Chinese."""
    return re.split("[-_]", language or "")[0].lower() in WITHOUT_SPACES


def splitter(language: str) -> Callable[[str], List[str]]:
    """Return a function that cuts a text into sentences by the rules of a language.

    Chinese and Japanese texts are cut after full stops, question marks and exclamation marks.  For
    other languages, the rules of spaCy are used, which know abbreviations of the language.

    Raises:
        UserError: spaCy does not support the language.
    """
    language = language.lower()
    if re.split("[-_]", language)[0] in ("zh", "ja"):
        return lambda text: [part for part in map(str.strip, _ENDS.findall(text)) if part]
    import spacy  # takes a second

    try:
        rules = spacy.blank(language)
    except (ImportError, OSError):
        raise UserError(
            f"--split-sentences {language}: spaCy has no such language; give a code such as en or "
            "de, or xx for any other"
        ) from None
    rules.add_pipe("sentencizer")
    rules.max_length = 10**9

    def split(text: str) -> List[str]:
        starts = [sent.start_char for sent in rules(text).sents if str(sent).strip()]
        return _repaired(text, starts)

    return split


def _repaired(text: str, starts: List[int]) -> List[str]:
    """Cut a text at the sentence starts that spaCy found, after correcting them at quotes.

    spaCy leaves opening quotes, brackets, Spanish marks and dashes at the end of the previous
    sentence.  It also cuts after direct speech in the middle of a sentence ("Why?" he asked).

    Args:
        text: the text.
        starts: character position of the start of each sentence.

    Returns:
        The sentences.
    """
    found = [0]
    for start in starts[1:]:
        start = _first_mark(text, start)
        if not text[start:].strip():
            continue
        if not text[start:].lstrip("\"'”’»«").strip()[:1].islower():
            found.append(start)
    return [text[start:end].strip() for start, end in zip(found, [*found[1:], len(text)])]


def _first_mark(text: str, start: int) -> int:
    """Return where a sentence begins: at the opening marks before ``start``, if there are any.

    A » that ends French direct speech, perhaps behind a space, belongs to the previous sentence.
    """
    opening = _OPENING.search(text[:start])
    first = opening.start(1) if opening else start
    before, closing = text[:first], _CLOSING.match(text, first)
    return closing.end() if closing and before.count("«") > before.count("»") else first


class Parts(NamedTuple):
    """A segment cut into sentences, which are translated one by one.

    Attributes:
        sentences: sentences; a sentence that was too long for the model is replaced by its pieces.
        cut: number of sentences that were too long.
    """

    sentences: List[str]
    cut: int


def parts_of(segment: str, split: Callable[[str], List[str]], fits: Callable[[str], bool]) -> Parts:
    """Cut a segment into sentences, and cut those that are too long for the model into pieces.

    Args:
        segment: text of one line, possibly empty.
        split: function that cuts a text into sentences.
        fits: function that tells whether a sentence is short enough for the model.
    """
    sentences, cut = [], 0
    for sentence in split(segment) if segment else []:
        if fits(sentence):
            sentences.append(sentence)
        else:
            sentences += _pieces(sentence, fits)
            cut += 1
    return Parts(sentences, cut)


def _pieces(sentence: str, fits: Callable[[str], bool]) -> List[str]:
    """Cut a sentence near its middle, and cut the halves again until all pieces fit the model.

    The best place for a cut is after a semicolon or colon, then after a comma, then at a space.  If
    there is none near the middle, a word is cut.
    """
    if fits(sentence) or len(sentence) < 2:
        return [sentence]
    middle = len(sentence) // 2
    for pattern in _CUTS:
        places = [m.end() for m in re.finditer(pattern, sentence)]
        places = [p for p in places if sentence[:p].strip() and sentence[p:].strip()]
        # A cut near an end would leave most of the sentence.
        places = [p for p in places if middle // 2 <= p <= len(sentence) - middle // 2]
        if places:
            at = min(places, key=lambda place: abs(place - middle))
            halves = sentence[:at].strip(), sentence[at:].strip()
            return [piece for half in halves for piece in _pieces(half, fits)]
    return [sentence]
