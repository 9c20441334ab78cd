"""Replacement of ``<unk>`` in translations (``--replace-unk``)."""

from typing import Dict, List, Sequence

import torch

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.hypotheses import Hypothesis

#: what fairseq makes of --replace-unk without a value, and would open as a file
WITHOUT_VALUE = "@@ "


def read_dictionary(path: str) -> Dict[str, str]:
    """Read a file with a source word and its translation on each line.

    Args:
        path: the file; "" for an empty dictionary.

    Raises:
        UserError: it cannot be read, or a line does not have two words.
    """
    if path == WITHOUT_VALUE:
        raise UserError(
            "--replace-unk needs a dictionary; give its file, or --replace-unk '' to copy the words"
        )
    if not path:
        return {}
    words = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                pair = line.split()
                if len(pair) != 2:
                    raise UserError(
                        f"--replace-unk {path}: line {number} has {len(pair)} words; give a source "
                        "word and its translation on each line"
                    )
                words[pair[0]] = pair[1]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"--replace-unk {path} cannot be read ({error}); give a text file"
        ) from None
    return words


class UnknownWords:
    """Replacement of ``<unk>`` by the translation of the source word with the most attention.

    Only words of the sentence's own source count.  A word that the dictionary lacks is copied.

    Args:
        path: dictionary, see :func:`read_dictionary`.
        target: target dictionary; it gets the words that it lacks.
    """

    def __init__(self, path: str, target):
        self.translations, self.target = read_dictionary(path), target

    def replaced(self, found: List[List[Hypothesis]], texts: Sequence[str]):
        """Replace ``<unk>`` in the hypotheses of sentences.

        Args:
            found: hypotheses of each sentence, with soft alignments to their source.
            texts: source sentences, in the form of the training text.
        """
        return [
            [self._replaced(hypothesis, text.split()) for hypothesis in hypotheses]
            for hypotheses, text in zip(found, texts)
        ]

    def _replaced(self, hypothesis: Hypothesis, words: Sequence[str]) -> Hypothesis:
        places = [
            attended(hypothesis["alignment"], place, len(words))
            for place in range(len(hypothesis["tokens"]))
        ]
        tokens = hypothesis["tokens"].clone()
        for place in tokens.eq(self.target.unk()).nonzero().view(-1).tolist():
            word = words[places[place]]
            tokens[place] = self.target.add_symbol(self.translations.get(word, word))
        # In this form fairseq looks for the source of a "<unk>" that was copied.
        return {**hypothesis, "tokens": tokens, "alignment": torch.tensor(places)}


def attended(weights: Sequence[Sequence[str]], place: int, words: int) -> int:
    """Return the source word with the most attention of a target token.

    A surplus sentence has no source; its words are taken for translations of those at their places.

    Args:
        weights: for each target token the weights of source tokens, the end symbol included.
        place: place of the target token.
        words: number of words of the source.
    """
    of_words = list(weights[place][:words]) if place < len(weights) else []
    if not of_words:
        return max(0, min(place, words - 1))
    values = [float(weight) for weight in of_words]
    return values.index(max(values))
