"""Functions for hypotheses: splitting into sentences, scores, alignments and unknown words."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_docmt.errors import UserError

Hypothesis = Dict[str, Any]


class JointHypothesis(NamedTuple):
    """Hypothesis for several sentences that are translated together in one output.

    Attributes:
        score: score of the whole hypothesis, from the generator.
        sentences: one hypothesis per sentence, whose score covers only its own tokens.
    """

    score: float
    sentences: List[Hypothesis]

    def matched(self, count: int, eos: int) -> "JointHypothesis":
        """Return the hypothesis with exactly ``count`` sentences.

        If there are too few sentences, empty ones are added at the end.  If there are too many, the
        surplus is appended to the last sentence that is kept, so that no word is lost.
        """
        missing = count - len(self.sentences)
        kept = self.sentences[: count - 1] + _as_one(self.sentences[count - 1 :])
        return self._replace(sentences=kept + [empty_hypothesis(eos) for _ in range(missing)])


def _as_one(sentences: List[Hypothesis]) -> List[Hypothesis]:
    """Concatenate the hypotheses of consecutive sentences into one, and return it in a list.

    Only the last end symbol is kept.  An empty list is returned unchanged.
    """
    if len(sentences) < 2:
        return sentences
    first, last = sentences[0], sentences[-1]
    joined = {
        key: torch.cat([*(s[key][:-1] for s in sentences[:-1]), last[key]])
        for key in ("tokens", "positional_scores")
    }
    at_limit = [len(joined["tokens"]) - 1] if last["at_limit"] else []
    return [{**first, **joined, "at_limit": at_limit}]


def nbest_of_sentences(
    ranked: Sequence[JointHypothesis], most: int, distinct: bool = True
) -> List[List[Hypothesis]]:
    """Return an n-best list for each sentence, taken from hypotheses for all sentences together.

    Each entry gets the score of the best joint hypothesis that contains it, because the search
    compares these scores.  Scores of single sentences are not comparable, as they depend on the
    sentences before.

    Args:
        ranked: joint hypotheses with the same number of sentences, best first.
        most: maximum number of hypotheses per sentence.
        distinct: whether to list equal hypotheses of a sentence only once.  False for sampling,
            where every sample counts.
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
    """Return the score of a sentence, normalised by its length as in fairseq's generator.

    Args:
        positional_scores: (T,) log-probabilities of its tokens, end symbol included.
        generator: generator or scorer that has the options of score normalisation.
    """
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
    """Split a hypothesis for several sentences into one hypothesis per target sentence.

    Args:
        hypothesis: dict with ``tokens`` (T,), which end in ``</s>``, ``positional_scores`` (T,) and
            perhaps an ``alignment`` as described in :func:`cut_alignment` and ``at_limit``, the
            positions of end symbols that a length limit has forced.
        of_source, of_target: (start, end) positions of the sentences in the source and in the
            hypothesis, see :meth:`~fairseq_docmt.data.SequenceFormat.find`.
        generator: generator or scorer that has the options of score normalisation.

    Returns:
        One hypothesis per target sentence, each ending in ``</s>``.  A ``<sep>`` is replaced by
        ``</s>``, which keeps the score of the ``<sep>``.  ``end`` is the token that was replaced.
    """
    tokens, parts = hypothesis["tokens"], []
    forced = hypothesis.get("at_limit", ())  # references have none
    surplus = [of_source[-1][1:] * 2] * (len(of_target) - len(of_source))
    for (start, end), source in zip(of_target, [*of_source, *surplus]):
        part = tokens[start:end].clone()
        end_symbol, part[-1] = int(part[-1]), tokens[-1]
        scores = hypothesis["positional_scores"][start:end].clone()
        parts.append(
            {
                "tokens": part,
                "end": end_symbol,
                "score": sentence_score(scores, generator),
                "attention": None,
                "alignment": cut_alignment(hypothesis.get("alignment"), *source, start, end - 1),
                "positional_scores": scores,
                "at_limit": [at - start for at in forced if start <= at < end],
            }
        )
    return parts


def cut_alignment(alignment, source_start: int, source_end: int, start: int, end: int):
    """Return the part of an alignment that lies within one sentence pair.

    Positions in the result are counted from the beginning of the two sentences.  In a hard
    alignment, links to other sentences, language tags and end symbols are removed.  A soft
    alignment keeps the weights between all tokens of the pair, including end symbols as in fairseq.

    Args:
        alignment: hard alignment, a list of pairs (source position, target position); or soft
            alignment, a list with the weights of all source tokens for each target token.  None
            and tensors are returned unchanged.
        source_start, source_end: range of the source sentence, including its end symbol.
        start, end: range of the target sentence, without its end symbol.
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
    """Return a hypothesis that consists of ``</s>``, for a line with nothing to translate."""
    return {
        "tokens": torch.tensor([eos]),
        "score": torch.tensor(0.0),
        "attention": None,
        "alignment": [],
        "positional_scores": torch.zeros(1),
        "at_limit": [],
    }


def best_tokens(hypotheses: Sequence[Hypothesis], pad: int) -> Optional[Tensor]:
    """Return the tokens of the best hypothesis, without ``</s>`` and padding.

    The result is a 1-D tensor on the CPU.

    Args:
        hypotheses: hypotheses of one sentence, best first.
        pad: index of padding.
    """
    tokens = hypotheses[0]["tokens"][:-1].cpu()
    return tokens[tokens.ne(pad)]


#: what fairseq makes of --replace-unk without a value, and would open as a file
WITHOUT_VALUE = "@@ "


def read_dictionary(path: str) -> Dict[str, str]:
    """Read the dictionary of ``--replace-unk``: a source word and its translation on each line.

    Args:
        path: value of ``--replace-unk``: path of the file, or "" for an empty dictionary.

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
    """Replacement of ``<unk>`` in translations (``--replace-unk``).

    Each ``<unk>`` is replaced by the translation of the source word with the most attention, or by
    this word itself if the dictionary has no translation.  Only words of the sentence's own source
    are considered.

    Args:
        path: path of the dictionary, see :func:`read_dictionary`.
        target: target dictionary; replacements that it lacks are added to it.
    """

    def __init__(self, path: str, target):
        self.translations, self.target = read_dictionary(path), target

    def replaced(self, found: List[List[Hypothesis]], texts: Sequence[str]):
        """Return the hypotheses with each ``<unk>`` in their tokens replaced.

        The ``alignment`` of a returned hypothesis is a tensor with the index of the most attended
        source word for each target token.

        Args:
            found: hypotheses of each sentence, with soft alignments to their own source sentence.
            texts: source sentences, tokenized and split into subwords like the training text.
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
    """Return the index of the source word that gets the most attention from a target token.

    If a translation has more sentences than the source, tokens at its end have no weights.  A token
    without weights is taken to translate the source word with the same index, or the last one.

    Args:
        weights: for each target token, the weights of the source words and the end symbol, as
            strings.
        place: index of the target token.
        words: number of source words.
    """
    of_words = list(weights[place][:words]) if place < len(weights) else []
    if not of_words:
        return max(0, min(place, words - 1))
    values = [float(weight) for weight in of_words]
    return values.index(max(values))
