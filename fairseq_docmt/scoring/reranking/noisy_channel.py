"""Scores of candidates by a document language model and a channel model (Yu et al., 2020).

The channel model translates in the opposite direction, from target to source.
"""

import argparse
import logging
import math
import os
from typing import Iterable, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_docmt.errors import UserError
from fairseq_docmt.readers.files import read_lines
from fairseq_docmt.scoring.context.reference_scores import MANY_UNKNOWN, ReferenceScorer
from fairseq_docmt.scoring.context.scorer_options import add_model_arguments, load_scorer
from fairseq_docmt.scoring.reranking.candidates import Candidates
from fairseq_docmt.scoring.reranking.document_lm import DocumentLanguageModel, Pair
from fairseq_docmt.text_form import read_text_forms

logger = logging.getLogger(__name__)


class NoisyChannel(NamedTuple):
    """Language model and channel model with which ``fairseq-docmt rerank`` scores candidates.

    Attributes:
        language_model: document language model of the target language; None if it is not needed.
        channel: model that translates in the opposite direction; None if it is not needed.
    """

    language_model: Optional[DocumentLanguageModel] = None
    channel: Optional[ReferenceScorer] = None

    def sentence_scores(self, pairs: Sequence[Pair]) -> List[float]:
        """Return the language model's natural log-probability of each sentence given its context.

        Args:
            pairs: (previous sentences of the document, sentence) for each sentence to score.

        Raises:
            UserError: a sentence is too long for the language model, or has no finite score.
        """
        found = self.language_model.score(pairs)
        for (_, sentence), score in zip(pairs, found):
            if not math.isfinite(score):
                raise UserError(
                    f"--language-model gives {sentence[:60]!r} the score {score}, which is not "
                    "finite; give a checkpoint from before its training diverged"
                )
        return found

    def source_scores(self, pairs: Sequence[Tuple[str, str]]) -> List[float]:
        """Return the channel model's log-probability of each source sentence given its translation.

        Args:
            pairs: pairs of a source sentence and its translation.  Each pair is scored without
                context.

        Raises:
            UserError: a sentence is too long for the channel model.
        """
        distinct = list(dict.fromkeys(pairs))
        documents = [([translation], [source]) for source, translation in distinct]
        found = self.channel.sentence_scores(documents)
        known = {pair: float(scores.sum()) for pair, ((_, scores),) in zip(distinct, found)}
        return [known[pair] for pair in pairs]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the channel model and the language model.

    :func:`from_arguments` reads these options.
    """
    add = parser.add_argument
    add("--channel", metavar="FILE", help="model that translates target to source, for channel")
    add("--language-model", metavar="FILE", help="document language model of fairseq")
    add("--language-model-data", metavar="DIR", default="", help="folder with its dict.txt")
    add(
        "--language-model-context",
        type=int,
        metavar="N",
        help="previous sentences that it reads; default: all that fit; 0: none",
    )
    add(
        "--text-form",
        nargs=2,
        metavar=("DIR", "LANGUAGE"),
        help="texts are raw: give candidates the form of this language in prepare.py's folder",
    )


def from_arguments(
    args: argparse.Namespace, names: Sequence[str], candidates: Candidates
) -> NoisyChannel:
    """Load the language model and the channel model named on the command line.

    A warning is logged if many words are unknown to a model.

    Args:
        args: options of the command line.
        names: names of the scores to compute, such as ``language-model``.
        candidates: candidates of all sentences.

    Raises:
        UserError: a score needs a model that is not given, a model is given but not needed, an
            option is invalid, or a model cannot be loaded.
    """
    _check_options(args, names)
    channel = _channel(args, candidates) if args.channel else None
    model = _language_model(args, candidates) if args.language_model else None
    return NoisyChannel(model, channel)


def _check_options(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Check that models and scores match, and that each option has an effect.

    Args:
        args: options of the command line.
        names: names of the scores to compute.

    Raises:
        UserError: a score needs a model that is not given, or an option has no effect or an
            impossible value.
    """
    for name, path in (("channel", args.channel), ("language-model", args.language_model)):
        if (name in names) != (path is not None):
            raise UserError(f"--score {name} and --{name} FILE need each other; give both")
    for option, value in (
        ("--language-model-data", args.language_model_data or None),
        ("--language-model-context", args.language_model_context),
    ):
        if value is not None and not args.language_model:
            raise UserError(f"{option} is for --language-model; give both")
    if args.text_form:
        if not (args.language_model or args.channel):
            raise UserError("--text-form is for --language-model and --channel; give one of them")
        folder, language = args.text_form
        if language not in read_text_forms(folder):
            raise UserError(f"--text-form: {folder} does not describe text of language {language}")
    if args.language_model_context is not None and args.language_model_context < 0:
        raise UserError("--language-model-context must not be negative; 0 reads no sentences")


def _language_model(args: argparse.Namespace, candidates: Candidates) -> DocumentLanguageModel:
    """Load the language model, and warn if it lacks many words of the candidates.

    Raises:
        UserError: the model cannot be loaded, or is not of the language of ``--text-form``.
    """
    encode = str
    if args.text_form:
        folder, language = args.text_form
        forms = read_text_forms(folder)
        encode = forms[language].encoder(language)
    model = DocumentLanguageModel.load(
        args.language_model,
        args.language_model_data,
        encode=encode,
        context=args.language_model_context,
    )
    if args.text_form:
        _refuse_other_language(model, *args.text_form, forms)
    unknown = model.unknown([text for texts in candidates.texts for text in texts])
    if unknown > MANY_UNKNOWN:
        logger.warning(
            "%.0f %% of the words of the candidates are not in the dictionary of the language "
            "model; %s",
            100 * unknown,
            "--text-form needs the folder and language of its training text"
            if args.text_form
            else "if they are raw text, give --text-form",
        )
    _report_guesses(model, candidates)
    return model


def _refuse_other_language(
    model: DocumentLanguageModel, folder: str, language: str, known: Iterable[str]
) -> None:
    """Refuse ``--text-form`` if its folder has the model's dictionary for another language only.

    Args:
        model: language model of the language of the candidates.
        folder, language: values of ``--text-form``.
        known: languages that the folder describes.

    Raises:
        UserError: the dictionary is that of another language.
    """
    words = model.dictionary.symbols[model.dictionary.nspecial :]
    paths = {name: os.path.join(folder, f"dict.{name}.txt") for name in known}
    own = [
        name
        for name, path in paths.items()
        if os.path.isfile(path) and [line.split(" ")[0] for line in read_lines(path)] == words
    ]
    if own and language not in own:
        raise UserError(
            f"--text-form: the language model has the dictionary of {own[0]} in {folder}, not of "
            f"{language}; give {folder} {own[0]}, the form of the candidates"
        )


def _report_guesses(model: DocumentLanguageModel, candidates: Candidates) -> None:
    """Warn if the language model finds the candidates less likely than words drawn at random.

    That its dictionary has the words of training in another order can be told by nothing else:
    the checkpoint stores only their number.

    Args:
        model: the language model.
        candidates: candidates of all sentences; those of the first sentence of each document are
            scored, which the search does anyway.
    """
    firsts = [candidates.texts[first] for first, _ in candidates.layout.index.spans]
    texts = [text for own in firsts for text in own]
    of_token = sum(model.score([((), text) for text in texts])) / model.count(texts)
    if of_token < -math.log(len(model.dictionary)):
        logger.warning(
            "the language model finds the candidates less likely than random words; look whether "
            "dict.txt is that of its training (its checkpoint holds no words), and whether the "
            "candidates are in the form of its training text"
        )


def _channel(args: argparse.Namespace, candidates: Candidates) -> ReferenceScorer:
    """Load the channel model, and warn if it lacks many words of the candidates or the source.

    Its direction is printed if no option names the language of the candidates.

    With ``--text-form``, the model preprocesses texts as in its training.  Otherwise they must
    already be preprocessed.

    Raises:
        UserError: the model's source language is not the language of ``--text-form``.
    """
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    form = [] if args.text_form else ["--as-prepared"]
    channel = load_scorer(args.channel, parser.parse_args(form))
    source, target = channel.task.cfg.source_lang, channel.task.cfg.target_lang
    direction = f"--channel {args.channel} translates {source} to {target}"
    if args.text_form and args.text_form[1] != source:
        raise UserError(
            f"{direction}; give a model that translates {args.text_form[1]}, the language of the "
            "candidates (--text-form), to the language of the source"
        )
    if not args.text_form:  # nothing else names the language of the candidates
        print(f"{direction}: the candidates are assumed to be in {source}, the source in {target}")
    sides = [("candidates", True, [text for texts in candidates.texts for text in texts])]
    if candidates.source is not None:
        sides.append(("source", False, candidates.source))
    for name, is_source, sentences in sides:
        unknown = channel.unknown_words(sentences, is_source)
        if unknown > MANY_UNKNOWN:
            logger.warning(
                "%s, and does not know %.0f %% of the words of the %s; it must translate the "
                "candidates back to the source%s",
                direction,
                100 * unknown,
                name,
                "" if args.text_form else "; if they are raw text, give --text-form",
            )
    return channel
