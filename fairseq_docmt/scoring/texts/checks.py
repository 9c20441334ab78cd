"""Checks of texts before they are scored; each returns notes for the user.

The checks find texts that are still split into subwords, or that contain XML entities or spaces
before punctuation.  They also find translations that are partly one line off from the reference or
are unrelated to it, and documents that are unusually long or short.
"""

import re
import statistics
from typing import Callable, Dict, List, Optional, Sequence

import numpy as np

from fairseq_docmt.bleu import ENTITY, SUBWORD, sign_in
from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.parallel_text import unrelated_lengths
from fairseq_docmt.scoring.texts.layout import named

#: Number of consecutive segments that must fit a neighbouring reference better to report a shift.
IN_A_ROW = 3
#: A document is reported if it is this many times longer or shorter than expected.
LENGTH_FACTOR = 2.0
#: Least number of characters of a reference from which a length is expected.
FEWEST_CHARACTERS = 200
#: Punctuation mark that may follow a word, and one that a space separates from its word.
_MARK, _APART = re.compile(r"[.,]"), re.compile(r"\w [.,](?= |$)")


def form_notes(systems: Dict[str, List[str]], references: List[List[str]]) -> List[str]:
    """Return notes on texts with subwords, XML entities or spaces before punctuation.

    Subwords and spaces before punctuation are only reported if some texts have them and others do
    not.

    Args:
        systems: system -> translations.
        references: references; only the first is checked.
    """
    texts = {**systems, "the reference": references[0]}
    cut = {name: sign_in(sentences, SUBWORD) for name, sentences in texts.items()}
    notes = [
        f"{name}: words are cut into subwords (such as {piece}); join them before scoring, as "
        "fairseq-generate does with the --bpe of training"
        for name, piece in cut.items()
        if piece and not all(cut.values())
    ]
    escaped = {name: sign_in(sentences, ENTITY) for name, sentences in texts.items()}
    names = [name for name, entity in escaped.items() if entity]
    if names:
        notes.append(
            f"{', '.join(names)}: characters are written as entities (such as "
            f"{escaped[names[0]]}), of which scores make words of their own; replace them on both "
            "sides, as a detokenizer does"
        )
    apart = {name: _share_apart(sentences) for name, sentences in texts.items()}
    form = "punctuation is separated by spaces, but not in {}; give both sides as detokenized text"
    wanted = apart.pop("the reference")
    tokens = [name for name, share in apart.items() if wanted < 0.1 and share > 0.5]
    text = [name for name, share in apart.items() if wanted > 0.5 and share < 0.1]
    notes += [f"{', '.join(tokens)}: {form.format('the reference')}"] * bool(tokens)
    notes += [f"the reference: {form.format(', '.join(text))}"] * bool(text)
    return notes


def shift_note(
    name: str,
    system: List[str],
    reference: List[str],
    index: DocumentIndex,
    place: Callable[[int], str],
) -> Optional[str]:
    """Return a note if segments of a system seem to be one line off from the reference.

    This happens if a system merges two sentences and splits another one.  The number of lines is
    then right, but all lines between these places are in the wrong position.

    Args:
        name: name of the system.
        system: (segments,) translations.
        reference: (segments,) references.
        index: document boundaries.
        place: function from the index of a segment to its document and number, for the note.

    Returns:
        The note; None if no segments are one line off.
    """
    words = [[_words(text) for text in side] for side in (system, reference)]
    own = [_overlap(*pair) for pair in zip(*words)]
    for first, end in index.spans:
        for step in (1, -1):
            row = 0
            for i in range(max(first, first - step), min(end, end - step)):
                # Most segments fit their own reference too well to fit another one better.
                is_shifted = (
                    own[i] < 0.8 and _overlap(words[0][i], words[1][i + step]) > own[i] + 0.2
                )
                row = row + 1 if is_shifted else 0
                if row == IN_A_ROW:
                    return (
                        f"{name}: segments from {place(i - row + 1)} on seem to be shifted by one "
                        "line against the reference; check its lines, or give --align LANGUAGE "
                        "--align-all"
                    )
    return None


def unrelated_note(name: str, text: Sequence[str], other: Sequence[str]) -> Optional[str]:
    """Return a note if a text does not seem to be a translation of another text, otherwise None.

    The texts seem unrelated if the lengths of their segments are not correlated.

    Args:
        name: phrase that names both texts in the note, such as ``source and reference``.
        text, other: (segments,) the two texts.  Segments that are empty in one of them are ignored.
    """
    pairs = [(len(one), len(two)) for one, two in zip(text, other) if one and two]
    warning = pairs and unrelated_lengths(*np.array(pairs).T)
    return f"{name}: {warning}" if warning else None


def length_note(
    name: str, system: Sequence[str], reference: Sequence[str], names: Sequence[str]
) -> Optional[str]:
    """Return a note if documents of a system are unusually long or short, otherwise None.

    The length of a document is divided by that of its reference.  If this ratio is more than twice
    or less than half the system's median ratio, the document may be incomplete.  Documents with a
    short reference are ignored.  If only one or two documents are left, their ratios are compared
    with 1 instead of the median.

    Args:
        name: name of the system.
        system: (documents,) translations.
        reference: (documents,) references.
        names: (documents,) names of the documents, for the note.
    """
    pairs = [
        (len(text) / len(wanted), document)
        for text, wanted, document in zip(system, reference, names)
        if len(wanted) >= FEWEST_CHARACTERS
    ]
    if not pairs:
        return None
    usual = statistics.median(ratio for ratio, _ in pairs) if len(pairs) > 2 else 1.0
    usual = usual or 1.0
    odd = [
        f"{document} ({ratio:.2f})"
        for ratio, document in pairs
        if not usual / LENGTH_FACTOR <= ratio <= usual * LENGTH_FACTOR
    ]
    if not odd:
        return None
    return (
        f"{name}: the length of {len(odd)} documents in relation to the reference is unusual "
        f"(median {usual:.2f}): {named(odd)}; check that they are complete"
    )


def _words(text: str) -> frozenset:
    """Return the set of lowercased words of a text or, if it has few spaces, of its characters."""
    words = text.lower().split()
    return frozenset(words if len(text) < 10 * len(words) else text)


def _overlap(one: frozenset, other: frozenset) -> float:
    """Return the Dice coefficient of two sets."""
    return 2 * len(one & other) / max(len(one) + len(other), 1)


def _share_apart(sentences: Sequence[str]) -> float:
    """Return the proportion of sentences with a space before a comma or full stop.

    Sentences without any comma or full stop are not counted.
    """
    marked = [sentence for sentence in sentences if _MARK.search(sentence)]
    return sum(map(bool, map(_APART.search, marked))) / max(len(marked), 1)
