"""Hypotheses of sentences: splitting of joint outputs, scores, alignments and unknown words."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_docmt.errors import UserError

Hypothesis = Dict[str, Any]


class JointHypothesis(NamedTuple):
    """Hypothesis for several sentences that are translated in one output.

    Attributes:
        score: score of the whole hypothesis, from the generator.
        sentences: a hypothesis for each sentence, with the score of its own tokens.
    """

    score: float
    sentences: List[Hypothesis]

    def matched(self, count: int, eos: int) -> "JointHypothesis":
        """Return the hypothesis with exactly ``count`` sentences, in the same order.

        Missing sentences are added as empty ones.  Surplus sentences are appended to the last, so
        that no word is lost.
        """
        missing = count - len(self.sentences)
        kept = self.sentences[: count - 1] + _as_one(self.sentences[count - 1 :])
        return self._replace(sentences=kept + [empty_hypothesis(eos) for _ in range(missing)])


def _as_one(sentences: List[Hypothesis]) -> List[Hypothesis]:
    """Merge a list of hypotheses into a list of at most one, with only the last end symbol."""
    if len(sentences) < 2:
        return sentences
    first, last = sentences[0], sentences[-1]
    joined = {
        key: torch.cat([*(s[key][:-1] for s in sentences[:-1]), last[key]])
        for key in ("tokens", "positional_scores")
    }
    return [{**first, **joined}]


def nbest_of_sentences(
    ranked: Sequence[JointHypothesis], most: int, distinct: bool = True
) -> List[List[Hypothesis]]:
    """Return an n-best list for each sentence, taken from hypotheses for all sentences together.

    Each has the score of the best joint hypothesis that contains it, which is the score that the
    search compares.  Scores of single sentences are not comparable, as they depend on the sentences
    before.

    Args:
        ranked: joint hypotheses with the same number of sentences, best first.
        most: maximum number of hypotheses of each sentence.
        distinct: whether to leave out duplicates; False for samples, which all count.
    """
    rows: List[List[Hypothesis]] = []
    for place in range(len(ranked[0].sentences)):
        listed: Dict[tuple, Hypothesis] = {}
        for number, joint in enumerate(ranked):
            sentence = {**joint.sentences[place], "score": torch.tensor(joint.score)}
            key = tuple(sentence["tokens"].tolist()) if distinct else (number,)
            listed.setdefault(key, sentence)
        rows.append(list(listed.values())[:most])
    return rows


def sentence_score(positional_scores: Tensor, generator) -> Tensor:
    """Return the score of a sentence, end symbol included, normalised as in fairseq's generator."""
    total = positional_scores.sum()
    if not getattr(generator, "normalize_scores", True):
        return total
    return total / max(len(positional_scores), 1) ** getattr(generator, "len_penalty", 1.0)


def split_hypothesis(
    hypothesis: Hypothesis,
    of_source: Sequence[Tuple[int, int]],
    of_target: Sequence[Tuple[int, int]],
    generator,
) -> List[Hypothesis]:
    """Split a hypothesis for several sentences into one hypothesis per sentence.

    Args:
        hypothesis: tokens (T,) ending in ``</s>``, positional_scores (T,), alignment as in
            :func:`cut_alignment` or empty.
        of_source, of_target: (start, end) of each sentence in source and hypothesis, see
            :meth:`~fairseq_docmt.data.SequenceFormat.find`.
        generator: generator or scorer with the options of score normalisation.

    Returns:
        One hypothesis per sentence, each ending in ``</s>``.  ``<sep>`` becomes ``</s>`` and keeps
        its score.
    """
    tokens, parts = hypothesis["tokens"], []
    surplus = [of_source[-1][1:] * 2] * (len(of_target) - len(of_source))
    for (start, end), source in zip(of_target, [*of_source, *surplus]):
        part = tokens[start:end].clone()
        part[-1] = tokens[-1]
        scores = hypothesis["positional_scores"][start:end].clone()
        parts.append(
            {
                "tokens": part,
                "score": sentence_score(scores, generator),
                "attention": None,
                "alignment": cut_alignment(hypothesis.get("alignment"), *source, start, end - 1),
                "positional_scores": scores,
            }
        )
    return parts


def cut_alignment(alignment, source_start: int, source_end: int, start: int, end: int):
    """Return the part of an alignment within one sentence pair, relative to the sentence starts.

    A hard alignment loses its links to other sentences, language tags and end symbols.  A soft
    alignment keeps the weights between all tokens of the pair, end symbols included as in fairseq.

    Args:
        alignment: pairs (source token, target token), or for each target token a list with the
            weight of each source token; None and tensors are returned unchanged.
        source_start, source_end: token range of the source sentence, its end symbol included.
        start, end: token range of the target sentence, without its end symbol.
    """
    if alignment is None or isinstance(alignment, Tensor):
        return alignment
    if alignment and isinstance(alignment[0], list):
        return [weights[source_start:source_end] for weights in alignment[start : end + 1]]
    return [
        (source - source_start, target - start)
        for source, target in alignment
        if source_start <= source < source_end - 1 and start <= target < end
    ]


def empty_hypothesis(eos: int) -> Hypothesis:
    """Return a hypothesis of ``</s>`` alone, for a line with nothing to translate."""
    return {
        "tokens": torch.tensor([eos]),
        "score": torch.tensor(0.0),
        "attention": None,
        "alignment": [],
        "positional_scores": torch.zeros(1),
    }


def best_tokens(hypotheses: Sequence[Hypothesis], pad: int) -> Optional[Tensor]:
    """Return the first hypothesis's tokens (1-D, on the CPU), without ``</s>`` and padding."""
    tokens = hypotheses[0]["tokens"][:-1].cpu()
    return tokens[tokens.ne(pad)]


#: what fairseq makes of --replace-unk without a value, and would open as a file
WITHOUT_VALUE = "@@ "


def read_dictionary(path: str) -> Dict[str, str]:
    """Read the dictionary of ``--replace-unk``: a source word and its translation on each line.

    Args:
        path: value of ``--replace-unk``: the file, or "" for an empty dictionary.

    Raises:
        UserError: the option was given without a value, the file cannot be read, or a line does
            not have two words.
    """
    if path == WITHOUT_VALUE or not isinstance(path, str):  # open() takes True for standard output
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

    Only words of the sentence's own source are considered.  A source word that the dictionary lacks
    is copied.

    Args:
        path: dictionary, see :func:`read_dictionary`.
        target: target dictionary; replacements that it lacks are added to it.
    """

    def __init__(self, path: str, target):
        self.translations, self.target = read_dictionary(path), target

    def replaced(self, found: List[List[Hypothesis]], texts: Sequence[str]):
        """Return the hypotheses with each ``<unk>`` replaced.

        The replacement is the dictionary's translation of the source word with the most attention;
        a word that the dictionary lacks is copied.

        Args:
            found: hypotheses of each sentence, with soft alignments to their source.
            texts: source sentences, tokenized and in subwords like the training text.
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
    """Return the index of the source word to which a target token attends most.

    If the translation has more sentences than the source, those at its end have no weights.  Token
    i of such a sentence is taken to be the translation of source word i, or of the last word.

    Args:
        weights: for each target token, weights of the source tokens and the end symbol, as strings.
        place: index of the target token.
        words: number of words of the source.
    """
    of_words = list(weights[place][:words]) if place < len(weights) else []
    if not of_words:
        return max(0, min(place, words - 1))
    values = [float(weight) for weight in of_words]
    return values.index(max(values))
