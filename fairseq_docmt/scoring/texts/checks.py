"""Signs that texts are not what they are taken for; each gives a note.

Translations may be cut into subwords or hold entities, belong to other lines than their references,
or lack half of a document.
"""

import re
import statistics
from typing import Callable, Dict, List, Optional, Sequence

from fairseq_docmt.bleu import ENTITY, SUBWORD, sign_in
from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.scoring.texts.layout import named

#: segments in a row that have to fit their neighbours better before lines are said to be shifted
IN_A_ROW = 3
#: Factor between the length of a document and what is expected that is no accident.
LENGTH_FACTOR = 2.0
#: Characters of a reference below which its length says nothing.
FEWEST_CHARACTERS = 200
#: Punctuation mark that may follow a word, and one that a space separates from its word.
_MARK, _APART = re.compile(r"[.,]"), re.compile(r"\w [.,](?= |$)")


def form_notes(systems: Dict[str, List[str]], references: List[List[str]]) -> List[str]:
    """Return notes of texts in a form that scores are not meant for, or in different forms."""
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
    """Return a note if several segments in a row fit the neighbours of their references better.

    One line too many and one too few, such as a merged and a split sentence, keep the number of
    lines, but what lies between belongs to other lines.

    Args:
        name: name of the system.
        system, reference: (segments,)
        index: document of each segment.
        place: document and number of a segment, for the note.
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


def length_note(
    name: str, system: Sequence[str], reference: Sequence[str], names: Sequence[str]
) -> Optional[str]:
    """Return a note if documents are much longer or shorter than their references suggest.

    The expected length is that of the reference times the median ratio of the system.

    Args:
        name: name of the system.
        system, reference: (documents,)
        names: (documents,) names for the note.
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
    """Return the words of a text, or the characters if it is written without spaces."""
    words = text.lower().split()
    return frozenset(words if len(text) < 10 * len(words) else text)


def _overlap(one: frozenset, other: frozenset) -> float:
    """Return the Dice coefficient of two sets."""
    return 2 * len(one & other) / max(len(one) + len(other), 1)


def _share_apart(sentences: Sequence[str]) -> float:
    """Return the share of the sentences with punctuation in which a space precedes it."""
    marked = [sentence for sentence in sentences if _MARK.search(sentence)]
    return sum(map(bool, map(_APART.search, marked))) / max(len(marked), 1)
