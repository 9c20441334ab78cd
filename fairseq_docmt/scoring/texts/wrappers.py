"""Detection and removal of wrappers: text that language models write around a translation.

Wrappers are thoughts (``<think>``), code fences, announcements ("Here is the translation:"), offers
of help ("Let me know if ..."), line numbers and comments.  Before segments are matched,
:func:`stripped` removes all of these except comments.  It keeps announcements, offers of help and
line numbers if the references have them too (:func:`removed_for`).  :func:`notes_on` reports
wrappers that are left, unless they are also in the reference of their segment.
"""

import re
from collections import Counter
from itertools import groupby
from typing import (
    Callable,
    Dict,
    Iterable,
    List,
    Match,
    NamedTuple,
    Optional,
    Pattern,
    Sequence,
    Tuple,
)

from fairseq_docmt.bleu import MANY
from fairseq_docmt.readers import Document, Documents, Input, Lines, Output
from fairseq_docmt.scoring.texts.layout import named

_TRANSLATION = (
    r"(?:translat|übersetz|traduc|traduz|tradott|перевод|переклад|překlad|翻[译譯訳]|译文|번역)"
)
_LANGUAGE = r"(?:final|[a-z]+(?:ish|ian|ese|man|nch|tch|ean|bic|rew|ndi|zech))"
_LABEL = (
    rf"(?:(?:{_LANGUAGE} )?translation|übersetzung|traducción|traduction|traduzione|tradução|"
    r"перевод|переклад|překlad|翻[译譯訳]|译文|번역)"
)
_LANGUAGES = (
    r"(?:arabic|chinese|czech|dutch|english|estonian|french|german|hebrew|hindi|icelandic|italian|"
    r"japanese|korean|polish|portuguese|romanian|russian|spanish|swedish|turkish|ukrainian)"
)
_HERE = r"(?:here(?: is|'s|’s| are)|below is|hier ist|voici|aquí (?:está|tienes)|以下[是は])"
_SURE = r"(?:sure|certainly|of course|okay|absolutely)\b[^\n:：.!]{0,40}[,.!:]\s*"
#: Thoughts of a reasoning model, with their tags.
THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>\s*", flags=re.I | re.S)
#: Thoughts whose opening tag was part of the prompt.
_UNOPENED = re.compile(r"\A.*</(?:think|thinking|reasoning)>\s*", flags=re.I | re.S)
#: Announcement before a translation, such as "Here is the translation:".
ANNOUNCEMENT = re.compile(
    rf"\s*(?:{_SURE})?(?:\*\*)?(?:{_HERE}[^\n:：]{{0,60}}?"
    rf"(?:{_TRANSLATION}|\bin [A-Z]\w+|\b{_LANGUAGES}\b)"
    rf"[^\n:：]{{0,60}}|{_LABEL}|output)\s*(?:\*\*)?[:：](?:\*\*)?\s*"
    rf"|\s*(?:\*\*{_LABEL}\*\*|#+\s*{_LABEL}|-{{3,}}|\*{{3,}})\s*\Z",
    flags=re.I,
)
#: Answer to the request for a translation, such as "Of course! I'd be happy to help.", which may
#: also be part of a text.
_ANSWER = re.compile(rf"\s*{_SURE}(?:i['’](?:d|ll)|i would|here)\b", flags=re.I)
#: Offer of help after a translation, such as "Let me know if ...".
OFFER = re.compile(
    r"\s*(?:let me know if|i hope this|feel free to|please let me know|is there anything else)\b"
    r"[^\n]*$",
    flags=re.I,
)
#: Translation between tags that the prompt asked for.
_TAGGED = re.compile(
    r"<(output|translation|target|answer|result)>\s*(.*?)\s*</\1>", flags=re.I | re.S
)
_FENCED = re.compile(r"(```|~~~)(?:\w*\n|\s*)(.*?)\1", flags=re.S)
#: Comment on a translation, such as "(Note: a formal form.)", at its beginning or after a sentence.
_COMMENT = re.compile(
    # Each run of white space can be matched in one way only: others take hours in long lines.
    r"(?:^|[\n(\[*]|[.!?…。！？\"”»]\s)[^\S\n]*(?:\*\*)?(?:(?:translator['’]?s )?notes?|"
    r"explanations?|alternatives?|alternatively|anmerkung|hinweis|erklärung|remarque|nota|примечание|注)\s*"
    r"(?:\*\*\s*)?[:：]",
    flags=re.I,
)
_REFUSAL = re.compile(
    r"\b(?:i(?:['’]m| am) sorry,? but i\b|as an ai\b|i(?:['’]m| am) (?:unable|not able) to "
    r"(?:translate|assist|help|provide)|i can(?:not|['’]t) (?:translate|assist|help|provide))",
    flags=re.I,
)
_KEY = re.compile(r'\{\s*"\w+"\s*:')
_MARKED = re.compile(r'\s*(?:\*\*[^*]+\*\*|"[^"]+"|“[^“”]+”|„[^„“”"]+[“”"]|«[^«»]+»)\s*')
#: Kinds of which a few are part of the text: the source has the name, speech is quoted, and people
#: answer "Sure, here it is".
_FEW = ("the source", "marks around it", "announcements", "bullets")
_NUMBER = re.compile(r"[(\[]?(\d+)[.):\]]\s+")
#: Least number of lines of a document; in fewer, numbers at the beginning may be chance.
FEWEST_NUMBERED = 3
_ABOUT = re.compile(_TRANSLATION, flags=re.I)
#: Script -> its letters, as ranges in a regular expression.
_SCRIPTS = {
    "Latin": "A-Za-zÀ-ɏ",
    "Cyrillic": "\u0400-\u04ff",
    "Greek": "\u0370-\u03ff",
    "Hebrew": "\u0590-\u05ff",
    "Arabic": "\u0600-\u06ff",
    "Devanagari": "\u0900-\u097f",
    "Thai": "\u0e00-\u0e7f",
    "Chinese or Japanese": "\u3040-\u30ff\u3400-\u9fff",
    "Korean": "\uac00-\ud7af",
}
_LETTER = re.compile(r"[^\W\d_]")
#: Number of letters or characters up to which a text is too short to tell its script, or whether it
#: is the source.
FEWEST_LETTERS = 20


class Found(NamedTuple):
    """Segments of a system that seem to hold wrappers, or something other than a translation.

    Attributes:
        kinds: what was found, such as ``fences`` -> indices of the segments.
        example: beginning of the first of these segments; "" if there are none.
    """

    kinds: Dict[str, List[int]]
    example: str


class Removed(NamedTuple):
    """Choice of wrappers (text that language models write around a translation) to remove.

    Thoughts (``<think>``) and code fences are always removed.

    Attributes:
        announcements: whether to remove announcements ("Here is the translation:") before a
            translation.
        offers: whether to remove offers of help ("Let me know if ...") after a translation.
        numbers: whether to remove numbers at the beginning of lines.
    """

    announcements: bool = True
    offers: bool = True
    numbers: bool = True


def removed_for(references: Sequence[Input]) -> Removed:
    """Choose which text around translations to remove, given what the references look like.

    Announcements ("Here is the translation:") and offers of help ("Let me know if ...") are removed
    if no line of the references looks like one.  Line numbers are removed if at most 5 % of the
    lines of the references begin with a number.
    """
    lines = [line for reference in references for line in _lines_of(reference)]
    numbered = sum(map(bool, map(_NUMBER.match, lines)))
    return Removed(
        not any(map(ANNOUNCEMENT.match, lines)),
        not any(map(OFFER.match, lines)),
        numbered <= MANY * len(lines),
    )


def stripped(text: Input, removed: Removed) -> Tuple[Input, int]:
    """Remove what a language model wrote around the translations of a system.

    Args:
        text: translations of a system.
        removed: what to remove in addition to thoughts and code fences.

    Returns:
        The translations without such text, and the number of changed segments (lines in plain
        text).
    """
    if isinstance(text, Output):
        kept = {n: _bare([line], removed) for n, line in text.hypotheses.items()}
        hypotheses = {n: lines[0] if lines else "" for n, lines in kept.items()}
        changed = sum(line != text.hypotheses[n] for n, line in hypotheses.items())
        return text._replace(hypotheses=hypotheses), changed
    if isinstance(text, Documents):
        found = [_bare_document(document, removed) for document in text.documents]
        if removed.numbers:
            lists = _without_numbers([document.segments for document in found])
            found = [d._replace(segments=segments) for d, segments in zip(found, lists)]
        changed = sum(
            sum((Counter(old.segments) - Counter(new.segments)).values())
            for new, old in zip(found, text.documents)
        )
        return text._replace(documents=found), changed
    without = THOUGHTS.sub("", "\n".join(text.lines)).split("\n")
    blocks = [[*block] for _, block in groupby(without, key=bool)]
    blocks = [_bare(block, removed) if block[0] else block for block in blocks]
    if removed.numbers:
        blocks = _without_numbers(blocks)
    lines = [line for block in blocks for line in block]
    kept = {*lines, ""}
    return text._replace(lines=lines), sum(line not in kept for line in text.lines)


def _bare_document(document: Document, removed: Removed) -> Document:
    if document.numbers is None and not document.missing and not document.bad:
        return document._replace(segments=_bare(document.segments, removed))
    # Segments with names or marks are kept even if nothing is left of them.
    bare = [" ".join(_bare([segment], removed)) for segment in document.segments]
    return document._replace(segments=bare)


def _bare(lines: List[str], removed: Removed) -> List[str]:
    """Remove the thoughts of a language model, code fences, other wrappers and blank lines.

    Line numbers are kept; for these, see :func:`_without_numbers`.

    Args:
        lines: lines of a document, or of a single segment.
        removed: what to remove in addition to thoughts and code fences.

    Returns:
        The remaining lines.
    """
    text = _UNOPENED.sub("", THOUGHTS.sub("", "\n".join(lines)))
    plain = "\n".join(_without_words(text.split("\n"), removed)).strip()
    fenced = _FENCED.fullmatch(plain) or _TAGGED.fullmatch(plain)
    return _without_words((fenced[2].rstrip() if fenced else text).split("\n"), removed)


def _without_words(lines: List[str], removed: Removed) -> List[str]:
    """Remove blank lines, and announcements and offers of help if ``removed`` says so.

    Announcements such as "Here is the translation:" are removed from the beginning of any line, and
    titles and rules ("**Translation**", "---") if they are a whole line.
    Offers such as "Let me know if ..." are removed if they are the last of several lines.
    """
    if removed.announcements:
        lines = [
            line[match.end() :] if (match := ANNOUNCEMENT.match(line)) else line for line in lines
        ]
    if removed.offers and len(lines) > 1 and OFFER.fullmatch(lines[-1]):
        lines = lines[:-1]
    return [line for line in lines if line.strip()]


def numbered(documents: Sequence[Sequence[str]]) -> List[bool]:
    """Return for each document whether its lines are numbered consecutively from 0 or 1.

    The numbers of one or two lines may be a coincidence.  They count only if all longer documents
    are numbered, of which there must be one or more.
    """
    found = [_is_numbered(lines) for lines in documents]
    longer = [is_one for is_one, lines in zip(found, documents) if len(lines) >= FEWEST_NUMBERED]
    if longer and all(longer):
        return found
    return [is_one and len(lines) >= FEWEST_NUMBERED for is_one, lines in zip(found, documents)]


def _is_numbered(lines: Sequence[str]) -> bool:
    found = [_NUMBER.match(line) for line in lines]
    if not lines or not all(found):
        return False
    numbers = [int(match[1]) for match in found]
    return numbers[0] in (0, 1) and numbers == [*range(numbers[0], numbers[0] + len(numbers))]


def _without_numbers(documents: Sequence[List[str]]) -> List[List[str]]:
    """Return the lines of documents, without the numbers at the beginning of numbered lines."""
    return [
        [_NUMBER.sub("", line, count=1) for line in lines] if is_one else lines
        for lines, is_one in zip(documents, numbered(documents))
    ]


def _lines_of(text: Input) -> List[str]:
    if isinstance(text, Output):
        return [*text.hypotheses.values()]
    if isinstance(text, Lines):
        return text.lines
    return [segment for document in text.documents for segment in document.segments]


# ---- what is left --------------------------------------------------------------------------------


def find(
    system: Sequence[str],
    reference: Sequence[str],
    source: Optional[Sequence[str]] = None,
    spans: Iterable[Tuple[int, int]] = (),
) -> Found:
    """Find segments that contain text besides the translation, or no translation at all.

    Text that is also in the reference is not reported.  Copies of the source, announcements
    ("Here is the translation:") and quotation marks around translations are reported only if they
    occur in at least 5 % of the segments.

    Args:
        system: (segments,) translations.
        reference: (segments,) references.
        source: (segments,) source, to find copies of it, and to ignore what the source contains
            itself, such as comments; None if unknown.
        spans: first segment and end of each document, to find documents with numbered lines.
    """
    script = _script_of(reference)
    other = re.compile(f"[{_SCRIPTS[script]}]") if script else None
    kinds: Dict[str, List[int]] = {}
    for i, (text, wanted) in enumerate(zip(system, reference)):
        if text == wanted:
            continue
        kind = _kind(text, wanted, source[i] if source else None, other)
        if kind:
            kinds.setdefault(kind, []).append(i)
    spans = [*spans]
    of_both = [numbered([text[a:b] for a, b in spans]) for text in (system, reference)]
    for (a, b), is_one, is_wanted in zip(spans, *of_both):
        if is_one and not is_wanted:
            kinds.setdefault("numbers of segments", []).extend(range(a, b))
    least = MANY * len(system)
    kinds = {k: each for k, each in kinds.items() if k not in _FEW or len(each) >= least}
    first = min((found[0] for found in kinds.values()), default=None)
    return Found(kinds, "" if first is None else system[first][:60])


def _kind(text: str, wanted: str, source: Optional[str], script: Optional[Pattern]) -> str:
    """Return what a segment contains besides or instead of a translation, such as ``fences``.

    Args:
        text: the translation.
        wanted: its reference.
        source: source of the segment, to find a copy of it in the translation; None if unknown.
        script: pattern of the letters of the references' script; None to accept any script.

    Returns:
        Name of what was found, for the note; "" if nothing was found.
    """
    low = text.lower()
    if any(tag in low and tag not in wanted.lower() for tag in ("<think", "</think")):
        return "thoughts"
    if any(fence in text and fence not in wanted for fence in ("```", "~~~")):
        return "fences"
    for kind, search in _SEARCHES.items():
        if search(text) and not any(map(search, (wanted, source or ""))):
            return kind
    is_longer = len(text) > 1.5 * len(wanted) + FEWEST_LETTERS
    if is_longer and _ABOUT.search(text) and not _ABOUT.search(f"{wanted} {source or ''}"):
        return "words about the translation"
    if source and len(source) > FEWEST_LETTERS and source in text and source not in wanted:
        return "the source"
    if script is not None and len(text) > FEWEST_LETTERS and not script.search(text[:200]):
        letters = len(_LETTER.findall(text))
        if letters > FEWEST_LETTERS and len(script.findall(wanted)) > 10:
            return "another script than the reference"
    if _MARKED.fullmatch(text) and not any(map(_MARKED.fullmatch, (wanted, source or ""))):
        return "marks around it"
    return ""


def _object_in(text: str) -> Optional[Match]:
    """Find a JSON object in a text: return the regex match of its opening brace and first key.

    If there is no such match, or no closing brace after it, None is returned.
    """
    return _KEY.search(text, 0, text.rfind("}") + 1)


#: Kind of sign -> function that finds it in a text.
_SEARCHES: Dict[str, Callable[[str], Optional[Match]]] = {
    "comments": _COMMENT.search,
    "refusals": _REFUSAL.search,
    "objects": _object_in,
    "tags": re.compile(r"</?[a-z][\w-]*>", flags=re.I).search,
    "bullets": re.compile(r"\s*[-*•]\s").match,
    "announcements": lambda text: ANNOUNCEMENT.match(text) or _ANSWER.match(text),
}


def _script_of(sentences: Sequence[str]) -> Optional[str]:
    """Return the name of the most frequent script, such as ``Cyrillic``.

    If no letter belongs to a known script, the result is None.
    """
    text = "".join(sentences[:1000])
    counts = {name: len(re.findall(f"[{letters}]", text)) for name, letters in _SCRIPTS.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else None


def notes_on(
    name: str, found: Found, places: Sequence[str], is_stripped: bool = False
) -> List[str]:
    """Return a list with a note on the text around translations that :func:`find` found.

    The list is empty if nothing was found.

    Args:
        name: name of the system.
        found: result of :func:`find`.
        places: (segments,) name of the document of each segment.
        is_stripped: whether :func:`stripped` has been applied before; otherwise, the note
            recommends the option ``--strip-wrappers``.
    """
    if not found.kinds:
        return []
    segments = sorted(i for each in found.kinds.values() for i in each)
    documents = [*dict.fromkeys(places[i] for i in segments)]
    counts = ", ".join(f"{kind} in {len(each)}" for kind, each in found.kinds.items())
    return [
        f"{name}: {len(segments)} segments seem to hold more or other than a translation "
        f"({counts}), the first {found.example!r}; documents: {named(documents)}; "
        + ("not stripped" if is_stripped else "see --strip-wrappers")
    ]
