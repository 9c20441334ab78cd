"""Alignment of a translated document with the segments of its reference, by mweralign.

The translation is cut so that the total word error rate against the segments of the reference is as
low as possible (Matusov et al., 2005; Post and Hoang, 2025).  Many cuts are equally good, because
words that match no word of the reference can be on either side of a cut.  So if a segment of the
reference ends at the end of a sentence, the cut after it is moved to a sentence end nearby in the
translation.  Only the positions of cuts are taken from the alignment; the text between them is
unchanged.
"""

import bisect
import contextlib
import itertools
import logging
import os
import re
import sys
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

from fairseq_docmt.errors import UserError

#: Scripts that are written without spaces: one character is one token.
NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_TOKEN = re.compile(rf"[{NO_SPACES}]|[^\W_{NO_SPACES}]+|\S")
#: Marks that end a sentence, and quotes and brackets that may follow.
_FINAL, _CLOSING = ".?!…。！？؟۔।॥", "\"'”’“»«)]」』）】"
#: Other codes of languages that are written without spaces.
_OTHER_CODES = {"zho": "zh", "chi": "zh", "cmn": "zh", "yue": "zh", "cn": "zh", "jpn": "ja"}
_OTHER_CODES.update(jp="ja", kor="ko", tha="th", lao="lo", khm="km", mya="my", bur="my")
#: A cut is moved over at most this many tokens, to the end of a sentence.
MOST_MOVED = 5

#: A segment is suspicious if it is this many times longer or shorter than expected...
SUSPICIOUS_RATIO = 2.0
#: ...and differs by at least this many tokens.
SUSPICIOUS_TOKENS = 5


class Suspect(NamedTuple):
    """A segment whose length suggests that the translation adds or omits something.

    Attributes:
        segment: number of the segment in the test set, from 0.
        tokens: number of tokens of its translation.
        expected: number of tokens expected from the length of the reference.
    """

    segment: int
    tokens: int
    expected: float

    @property
    def kind(self) -> str:
        """Suspected fault: ``over`` (over-translation) or ``under`` (under-translation)."""
        return "over" if self.tokens > self.expected else "under"


class Report(NamedTuple):
    """Statistics of a system whose text was aligned with the reference.

    Attributes:
        segments: number of segments of the reference.
        empty: number of segments with words in the reference but none in the translation.
        left_over: number of tokens by which suspiciously long segments exceed the expected length.
        suspects: segments that are suspiciously long or short.
    """

    segments: int
    empty: int
    left_over: int
    suspects: List[Suspect]


def base_code(language: str) -> str:
    """Return the code of a language without region and script: ``zh`` for ``zh-TW`` and ``zho``."""
    code = language.replace("_", "-").split("-")[0].lower()
    return _OTHER_CODES.get(code, code)


def token_spans(text: str, language: str) -> List[Tuple[int, int]]:
    """Return the start and end of each token in a text, as character offsets.

    Args:
        text: any text.
        language: code of the language.  Chinese (``zh``, ``zh-TW``, ``zho``) is segmented by jieba.
            Text in other languages is split into words and punctuation marks, or into characters if
            the script has no spaces.
    """
    if base_code(language) != "zh":
        return [match.span() for match in _TOKEN.finditer(text)]
    import jieba

    jieba.setLogLevel(logging.WARNING)
    return [(a, b) for word, a, b in jieba.tokenize(text) if not word.isspace()]


def align_document(reference: Sequence[str], text: str, language: str) -> List[str]:
    """Cut a translated document into parts that correspond to the segments of its reference.

    Args:
        reference: (segments,) reference of the document.
        text: translation of the whole document.
        language: code of the target language.

    Returns:
        (segments,) parts of the translation; "" for a segment without a counterpart.

    Raises:
        UserError: mweralign is not installed.
    """
    spans = token_spans(text, language)
    numbers: Dict[str, int] = {}

    def ids(words) -> str:
        # Words as numbers: the aligner must not split or change them.
        return " ".join(str(numbers.setdefault(word.lower(), len(numbers))) for word in words)

    wanted_spans = [token_spans(segment, language) for segment in reference]
    wanted = [
        ids(segment[a:b] for a, b in words) for segment, words in zip(reference, wanted_spans)
    ]
    places = [place for place, words in enumerate(wanted) if words]
    parts = [""] * len(reference)
    if not spans or not places:
        # A reference without words leaves the whole text in the first segment.
        parts[0] = text.strip()
        return parts
    hypothesis = ids(text[a:b] for a, b in spans)
    lines = _mweralign("\n".join(wanted[place] for place in places), hypothesis)
    cuts = list(itertools.accumulate((len(line.split()) for line in lines), initial=0))
    if cuts[-1] != len(spans):
        raise RuntimeError(f"the alignment has {cuts[-1]} words, the text {len(spans)}")
    whole = [
        len(wanted_spans[place]) in _sentence_ends(reference[place], wanted_spans[place])
        for place in places
    ]
    cuts = _at_sentence_ends(cuts, whole, _sentence_ends(text, spans))
    for place, begin, end in zip(places, cuts, cuts[1:]):
        if begin < end:
            parts[place] = text[spans[begin][0] : spans[end - 1][1]]
    return parts


def _sentence_ends(text: str, spans: Sequence[Tuple[int, int]]) -> List[int]:
    """Find the positions in a text at which a sentence may end.

    Closing quotes and brackets belong to the sentence before them.  But if there is space on both
    sides of such a mark, it may also belong to the next sentence, so the positions before and after
    it are both returned.

    Args:
        text: any text.
        spans: start and end of each token.

    Returns:
        Number of tokens before each position, in increasing order.
    """
    ends, ended = [], False
    for number, (begin, end) in enumerate(spans, 1):
        word = text[begin:end]
        ended = word[-1] in _FINAL or ended and word in _CLOSING
        # The point in 3.5 ends nothing, but Chinese has no space after a sentence.
        followed = end < len(text) and not text[end].isspace() and ord(word[-1]) < 128
        if ended and not followed:
            ends.append(number)
    return ends


def _at_sentence_ends(cuts: List[int], whole: Sequence[bool], ends: List[int]) -> List[int]:
    """Move each cut of a translation to the nearest sentence end, by at most ``MOST_MOVED`` tokens.

    A cut stays where it is if no sentence end is that close, or if a segment would become empty.

    Args:
        cuts: (segments + 1,) number of tokens before each segment, followed by the number of all
            tokens.
        whole: (segments,) whether each segment of the reference ends with the end of a sentence.
            Only then is the cut after this segment moved.
        ends: number of tokens before each sentence end of the translation.

    Returns:
        (segments + 1,) the cuts after moving.
    """
    moved = cuts[:1]
    for place in range(1, len(cuts) - 1):
        at = cuts[place]
        if at in (cuts[place - 1], cuts[-1]):  # empty segments stay empty
            moved.append(moved[-1] if at == cuts[place - 1] else at)
            continue
        following = next(cut for cut in cuts[place:] if cut > at)
        right = bisect.bisect_left(ends, at)
        near = [end for end in ends[max(right - 1, 0) : right + 1] if moved[-1] < end < following]
        nearest = min(near, key=lambda end: abs(end - at), default=at)
        near_enough = whole[place - 1] and abs(nearest - at) <= MOST_MOVED
        moved.append(nearest if near_enough else at)
    return [*moved, cuts[-1]]


def report(reference: Sequence[str], parts: Sequence[str], language: str) -> Report:
    """Return statistics of aligned segments, including the segments whose length is suspicious.

    A length is suspicious if it differs from the expected length by a factor of at least 2 and by
    at least 5 tokens.  The expected length is the length of the reference times the overall length
    ratio of translations and references.

    Args:
        reference: (segments,) references of the whole test set.
        parts: (segments,) aligned translations.
        language: code of the target language.
    """
    lengths = [
        (len(token_spans(part, language)), len(token_spans(wanted, language)))
        for part, wanted in zip(parts, reference)
    ]
    ratio = sum(n for n, _ in lengths) / max(sum(wanted for _, wanted in lengths), 1)
    suspects = []
    for number, (tokens, wanted) in enumerate(lengths):
        expected = ratio * wanted
        low, high = sorted((tokens, expected))
        if high - low >= SUSPICIOUS_TOKENS and high >= SUSPICIOUS_RATIO * low:
            suspects.append(Suspect(number, tokens, round(expected, 1)))
    left_over = round(sum(s.tokens - s.expected for s in suspects if s.kind == "over"))
    empty = sum(tokens == 0 and wanted > 0 for tokens, wanted in lengths)
    return Report(len(lengths), empty, left_over, suspects)


def _mweralign(reference: str, hypothesis: str) -> List[str]:
    handlers = logging.getLogger().handlers[:]
    try:
        from mweralign import align_texts
    except ImportError:
        raise UserError(
            "--align needs the package mweralign; install it with `pip install mweralign`"
        ) from None
    finally:
        # Importing the package changes the logging of the whole process.
        logging.getLogger().handlers[:] = handlers
    with _quiet_library():
        return align_texts(reference, hypothesis).split("\n")


@contextlib.contextmanager
def _quiet_library() -> Iterator[None]:
    """Return a context manager that discards what compiled code writes to standard error."""
    sys.stderr.flush()
    saved, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nothing)
