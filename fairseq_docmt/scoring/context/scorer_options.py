"""Command-line options for scoring references with a trained model."""

import argparse
import logging
from typing import List, Sequence

import torch

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.scoring.context.reference_scores import ReferenceScorer
from fairseq_docmt.text_form import SUBWORDS, TextForm, checksum, read_text_forms

logger = logging.getLogger(__name__)


def add_model_arguments(parser) -> None:
    """Add the options that :func:`load_scorer` reads."""
    add = parser.add_argument
    add(
        "--data",
        metavar="DIR",
        default="",
        help="folder with the dictionaries; default: training's",
    )
    add("--bpe-codes", metavar="FILE", help="subword-nmt codes; default: training's")
    add("--target-bpe-codes", metavar="FILE", help="of the target; default: --bpe-codes")
    add("--sentencepiece-model", metavar="FILE", help="SentencePiece model; default: training's")
    add("--target-sentencepiece-model", metavar="FILE", help="of the target; default: the same")
    tokenizer = {"choices": ["moses", "jieba"], "metavar": "NAME"}
    add("--source-tokenizer", **tokenizer, help="moses or jieba; default: training's")
    add("--target-tokenizer", **tokenizer, help="of the target")
    add("--source-truecaser", metavar="FILE", help="Moses truecasing model; default: training's")
    add("--target-truecaser", metavar="FILE", help="of the target")
    add(
        "--as-prepared",
        action="store_true",
        help="texts have the form of the training text; default: they are given it",
    )
    add(
        "--max-tokens",
        type=int,
        default=4096,
        metavar="N",
        help="source tokens of a batch, with padding; default: 4096",
    )
    add("--batch-size", type=int, metavar="N", help="documents of a batch; default: --max-tokens")
    add("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    add("--fp16", action="store_true", help="half precision (GPU only)")


def given_model_options(args) -> List[str]:
    """Return the names of the options for the model that differ from their defaults.

    A command that needs no model refuses them.  The options for the model are those that
    :func:`add_model_arguments` adds.

    Args:
        args: parsed options of a command.
    """
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    defaults = vars(parser.parse_args([]))
    return [name for name, default in defaults.items() if getattr(args, name) != default]


def load_scorer(path: str, args) -> ReferenceScorer:
    """Load one or more models, and build a scorer of references from them.

    The scorer preprocesses text as the options say or, by default, like the training data.

    Args:
        path: checkpoint, or several joined by ``:`` for an ensemble.
        args: parsed options of :func:`add_model_arguments`.

    Raises:
        UserError: a checkpoint, BPE codes or a truecasing model is missing, or an option is
            invalid.
    """
    if args.max_tokens < 1 or (args.batch_size is not None and args.batch_size < 1):
        raise UserError("--max-tokens and --batch-size must be at least 1")
    given = _given_forms(args)
    hub = DocumentTranslator.from_pretrained(path, args.data).hub
    on_gpu = torch.cuda.is_available() and not args.cpu
    if args.fp16 and not on_gpu:
        raise UserError("--fp16 needs a GPU; leave it out")
    hub = hub.half() if args.fp16 else hub
    hub = hub.cuda() if on_gpu else hub
    languages = (hub.task.cfg.source_lang, hub.task.cfg.target_lang)
    forms = given if args.as_prepared else _completed(given, languages, hub.cfg.task.data)
    if not forms[1].bpe_codes and not forms[1].sentencepiece:
        subwords = {key: getattr(forms[0], key) for key in SUBWORDS.values()}
        forms[1] = forms[1]._replace(**subwords)
    encode = [form.encoder(language) for form, language in zip(forms, languages)]
    return ReferenceScorer(hub, *encode, args.max_tokens, args.batch_size)


def _given_forms(args) -> List[TextForm]:
    """Return the preprocessing that the options set, for source text and for target text.

    Raises:
        UserError: a file is missing, or options contradict each other.
    """
    given = [
        TextForm(
            args.source_tokenizer or "none",
            args.source_truecaser,
            args.bpe_codes,
            args.sentencepiece_model,
        ),
        TextForm(
            args.target_tokenizer or "none",
            args.target_truecaser,
            args.target_bpe_codes,
            args.target_sentencepiece_model,
        ),
    ]
    for form in given:
        form.check_files()
    if any(form.bpe_codes for form in given) and any(form.sentencepiece for form in given):
        raise UserError("text has one kind of subwords; give BPE codes or SentencePiece models")
    if args.as_prepared and any(form != TextForm() for form in given):
        raise UserError("--as-prepared is for text that needs no tokenizer, truecasing or BPE")
    return given


def _completed(given: List[TextForm], languages: Sequence[str], data: str) -> List[TextForm]:
    """Add the preprocessing of the training data where the options leave it open.

    If the options set nothing, all preprocessing is taken from the training data; otherwise only
    the subword model is.  If the folder of the training data does not describe its preprocessing,
    ``given`` is returned unchanged.

    Args:
        given: preprocessing of source and target, as set by the options.
        languages: source and target language.
        data: folder of the training data.

    Raises:
        UserError: the options name other BPE codes or another SentencePiece model than the
            training data has.
    """
    found = read_text_forms(data)
    if not all(language in found for language in languages):
        return given
    trained = [found[language] for language in languages]
    if all(form == TextForm() for form in given):
        return trained
    for form, own in zip(given, trained):
        if form.bpe_codes and checksum(form.bpe_codes) != checksum(own.bpe_codes):
            raise UserError(
                f"--bpe-codes {form.bpe_codes}: not the merges of the training data; leave the "
                "option out, or give the codes in its folder"
            )
        if form.sentencepiece and checksum(form.sentencepiece) != checksum(own.sentencepiece):
            raise UserError(
                f"--sentencepiece-model {form.sentencepiece}: not the model of the training data; "
                "leave the option out, or give the model in its folder"
            )
    completed = [
        form._replace(**{key: getattr(own, key) for key in SUBWORDS.values()})
        for form, own in zip(given, trained)
    ]
    if completed != trained:
        logger.warning(
            "the given options for tokenizers and truecasing replace all of the training data; "
            "for raw text, leave them out"
        )
    return completed
