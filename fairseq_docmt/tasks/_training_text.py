"""Languages, dictionaries and preprocessing of the text that a checkpoint was trained on."""

import hashlib
import logging
import os
from typing import Dict, Optional, Sequence

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask
from omegaconf import MissingMandatoryValue

from fairseq_docmt.bleu import ENTITY, SUBWORD, sign_in
from fairseq_docmt.data import add_document_symbols
from fairseq_docmt.data.tokenizers import SentencePieces, TruecasingTokenizer
from fairseq_docmt.errors import UserError
from fairseq_docmt.symbols import DOCUMENT_SYMBOLS, complaint
from fairseq_docmt.text_form import (
    SUBWORDS,
    TextForm,
    checksum,
    read_text_forms,
)

logger = logging.getLogger(__name__)


KEY = "training_text"
OVERRIDE = "add --override-checkpoint-options to use it anyway"
IGNORE = f"or {OVERRIDE}"


def describe(cfg, src_dict: Dictionary, tgt_dict: Dictionary) -> dict:
    """Describe the text of a task by its languages, dictionary checksums and preprocessing.

    The description is stored in checkpoints.  Its entry ``forms``, the preprocessing of both sides,
    is None if the data folder does not describe it.

    Args:
        cfg: options of the task.
        src_dict, tgt_dict: dictionaries of source and target.

    Raises:
        UserError: the description of the preprocessing in the data folder is damaged, or names a
            model that is missing.
    """
    forms = _forms_in_folder(cfg)
    both = cfg.source_lang in forms and cfg.target_lang in forms
    return {
        "languages": [cfg.source_lang, cfg.target_lang],
        "dictionaries": [checksum_of_words(src_dict), checksum_of_words(tgt_dict)],
        "forms": [forms[name].record() for name in (cfg.source_lang, cfg.target_lang)]
        if both
        else None,
    }


def _forms_in_folder(cfg) -> Dict[str, TextForm]:
    return read_text_forms(utils.split_paths(cfg.data)[0] if cfg.data else "")


def checksum_of_words(dictionary: Dictionary) -> str:
    """Return a checksum of the words of a dictionary, in order, without the document symbols."""
    words = [word for word in dictionary.symbols if word not in DOCUMENT_SYMBOLS]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def refuse_other_languages(stored: Optional[dict], own: dict) -> None:
    """Refuse a checkpoint that does not translate between the languages of the data folder.

    Args:
        stored: description of the text in the checkpoint, from :func:`describe`; None if it has
            none, which is accepted.
        own: description of the text in the data folder.

    Raises:
        UserError: languages or direction differ.
    """
    if stored is None or stored["languages"] == own["languages"]:
        return
    pair, given = stored["languages"], own["languages"]
    raise UserError(
        f"the checkpoint translates {pair[0]} to {pair[1]}, not {given[0]} to {given[1]}; give "
        f"data in its languages (with a command of fairseq: --source-lang {pair[0]} --target-lang "
        f"{pair[1]}, {IGNORE})"
    )


def refuse_other_text(stored: Optional[dict], own: dict) -> None:
    """Refuse a checkpoint whose training text does not match the text in the data folder.

    Languages are not compared.

    Args:
        stored, own: as in :func:`refuse_other_languages`.

    Raises:
        UserError: dictionaries or preprocessing differ.
    """
    if stored is None:
        return
    given = own["languages"]
    for side, name, trained, found in zip(
        ("source", "target"), given, stored["dictionaries"], own["dictionaries"]
    ):
        if trained != found:
            raise UserError(
                f"the checkpoint was trained with another {side} dictionary than dict.{name}.txt; "
                "give the data folder of training, or binarise the text with its dictionaries "
                "(--srcdict, --tgtdict of fairseq-preprocess)"
            )
    if stored["forms"] and own["forms"] and stored["forms"] != own["forms"]:
        differing = [
            f"{key} of {name}"
            for name, trained, found in zip(given, stored["forms"], own["forms"])
            for key in {**trained, **found}
            if trained.get(key) != found.get(key)
        ]
        raise UserError(
            "the text of the data folder was prepared in another way than that of the checkpoint "
            f"({', '.join(differing)} differ); give the data folder of training (with a "
            f"command of fairseq, {OVERRIDE})"
        )


class TextOptions:
    """Checks of ``--tokenizer`` and ``--bpe`` against the preprocessing stored in a checkpoint.

    Args:
        training_text: description of the text in the checkpoint; None to accept all options.
        typed: True if the options are applied to source text that is typed into
            fairseq-interactive; False if they only restore the plain text of the output.
    """

    def __init__(self, training_text: Optional[dict], typed: bool):
        forms = (training_text or {}).get("forms")
        self.forms = forms and (forms[:1] if typed else forms)
        self.text = "source text" if typed else "text"

    def report_missing(
        self,
        tokenizer: Optional[str],
        bpe: Optional[str],
        lines: Sequence[str] = (),
        truecases: bool = True,
    ) -> None:
        """Warn if ``--tokenizer`` and ``--bpe`` do less or more than input lines need.

        Args:
            tokenizer, bpe: values of the options; None for an option that is not given.
            lines: first lines of the input.  With subwords, they have all of the preprocessing.
            truecases: whether the tokenizer truecases text if the training text was truecased.
        """
        form = self.forms[0] if self.forms else {}
        kinds = [kind for kind, key in SUBWORDS.items() if form.get(key)]
        if not (tokenizer or bpe) and kinds and sign_in(lines, SUBWORD):
            return
        forms, fixes = [], []
        if not tokenizer and form.get("tokenizer", "none") != "none":
            forms.append(f"tokenized with {form['tokenizer']}")
            fixes.append(f"--tokenizer {form['tokenizer']}")
        if form.get("truecaser") and not (tokenizer and truecases):
            forms.append("truecased")
            if not truecases:
                fixes.append("the data folder of training")
            elif not fixes:
                fixes.append("--tokenizer space")
        if not bpe and kinds:
            forms.append("split into subwords")
            fixes.append(f"--bpe {kinds[0]}")
        if forms:
            logger.warning(
                "the text of the checkpoint is %s; give %s, or, without --tokenizer and --bpe, "
                "lines in this form (data_prep/apply_form.py makes them)",
                ", ".join(forms),
                " and ".join(fixes),
            )
        self._report_repeated(tokenizer, bpe, lines)

    @staticmethod
    def _report_repeated(tokenizer: Optional[str], bpe: Optional[str], lines: Sequence[str]):
        """Warn if lines look as if ``--tokenizer`` or ``--bpe`` had been applied to them before."""
        entity = sign_in(lines, ENTITY) if tokenizer == "moses" else None
        subword = sign_in(lines, SUBWORD) if bpe else None
        if entity or subword:
            option, sign = ("--bpe", subword) if subword else ("--tokenizer", entity)
            logger.warning(
                "the input has %s, as if %s had been applied to it before, and it is applied "
                "again; give raw text, or leave --tokenizer and --bpe out and give lines that "
                "data_prep/apply_form.py has made",
                sign,
                option,
            )

    def check_tokenizer(self, name: Optional[str]) -> None:
        """Refuse a tokenizer other than that of the training text.

        Args:
            name: value of ``--tokenizer``; None is accepted.

        Raises:
            UserError: the tokenizers differ.
        """
        if not name or self.forms is None:
            return
        wanted = list(dict.fromkeys(form["tokenizer"] for form in self.forms))
        if {"space": "none"}.get(name, name) in wanted:
            return
        fixes = [f"--tokenizer {other}" for other in wanted if other != "none"]
        fix = f"give {' or '.join(fixes)}" if fixes else "leave it out"
        trained = f"was tokenized with {' and '.join(wanted)}" if fixes else "was not tokenized"
        raise UserError(
            f"--tokenizer {name} contradicts the checkpoint, whose {self.text} {trained}; {fix}, "
            f"{IGNORE}"
        )

    def check_bpe(self, name: Optional[str], model: Optional[str]) -> None:
        """Refuse a subword model other than that of the training text.

        Args:
            name: value of ``--bpe``: ``subword_nmt``, ``sentencepiece``, ...; None is accepted.
            model: file of BPE merges or of a SentencePiece model; None to check only ``name``.

        Raises:
            UserError: the subword models differ.
        """
        if not name or self.forms is None:
            return
        wanted = {
            kind: [form[key] for form in self.forms if form.get(key)]
            for kind, key in SUBWORDS.items()
        }
        trained = [f"--bpe {kind}" for kind, models in wanted.items() if models]
        if not trained:
            raise UserError(
                f"--bpe {name} contradicts the checkpoint, whose {self.text} has whole words; "
                f"leave it out, {IGNORE}"
            )
        if not wanted.get(name):
            raise UserError(
                f"--bpe {name} contradicts the checkpoint, whose {self.text} has "
                f"{' and '.join(trained)}; give that, {IGNORE}"
            )
        if model and checksum(model) not in wanted[name]:
            option, what, short = {
                "subword_nmt": ("--bpe-codes", "merges", "codes"),
                "sentencepiece": ("--sentencepiece-model", "model", "model"),
            }[name]
            raise UserError(
                f"{option} {model}: not the {what} of the {self.text} of the checkpoint; give the "
                f"{short} in the data folder of training, {IGNORE}"
            )


def refuse_symbols(dictionary: Dictionary, path: str) -> None:
    """Refuse a dictionary that has a document symbol (``<sep>``, ``<bod>``) as a word of the text.

    If the symbols are the last entries, the dictionary is accepted, because it was saved after they
    had been added.

    Raises:
        UserError: a document symbol is a word of the text.
    """
    if tuple(dictionary.symbols[-len(DOCUMENT_SYMBOLS) :]) == DOCUMENT_SYMBOLS:
        return
    for symbol in DOCUMENT_SYMBOLS:
        if symbol in dictionary.indices:
            raise UserError(
                f"{complaint(f'{path}: the text', symbol)}; write it differently and binarise again"
            )


class PreparedTextTask(TranslationTask):
    """Translation task whose checkpoints describe the text that they were trained on.

    The description contains the languages, checksums of the dictionaries and the preprocessing.
    """

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        self._tokenizer_name: Optional[str] = None
        self._bpe_name: Optional[str] = None
        self._reports_form = self._truecases = False
        self.training_text = describe(cfg, src_dict, tgt_dict)
        self.state.merge_state_dict({KEY: self.training_text})

    def load_state_dict(self, state_dict):
        """Load the task state of a checkpoint; its training text must match that of this task.

        Raises:
            UserError: the languages, dictionaries or preprocessing differ, and
                ``--override-checkpoint-options`` is not given.
        """
        if not self.cfg.override_checkpoint_options:
            refuse_other_languages(state_dict.get(KEY), self.training_text)
            refuse_other_text(state_dict.get(KEY), self.training_text)
        super().load_state_dict(state_dict)

    @classmethod
    def load_dictionary(cls, filename: str) -> Dictionary:
        """Load a dictionary and add the document symbols.

        Raises:
            UserError: the file is missing or damaged, or has a document symbol as a word.
        """
        if not os.path.exists(filename):
            raise UserError(
                f"{filename} not found; give the directory that fairseq-preprocess wrote, with "
                "its languages as --source-lang and --target-lang"
            )
        try:
            dictionary = super().load_dictionary(filename)
        except Exception as error:  # fairseq raises it itself if the file is not UTF-8
            reason = str(error).split(" when ")[0]
            raise UserError(
                f"{filename} is damaged ({reason}); copy the data folder again, or binarise the "
                "text again"
            ) from None
        refuse_symbols(dictionary, filename)
        return add_document_symbols(dictionary)

    def build_tokenizer(self, args):
        """Build the tokenizer, which must be that of the training text.

        If the source text in the data folder was truecased, it truecases text too, where there may
        be any to encode: not in fairseq-generate, which has loaded a dataset.

        Raises:
            UserError: the training text was tokenized differently, or the truecasing model is
                invalid.
        """
        self._tokenizer_name = getattr(args, "_name", None)
        self._text_options().check_tokenizer(self._tokenizer_name)
        tokenizer = super().build_tokenizer(args)
        form = _forms_in_folder(self.cfg).get(self.cfg.source_lang)
        self._truecases = bool(form and form.truecaser)
        if not tokenizer or not self._truecases or self.datasets:
            return tokenizer
        return TruecasingTokenizer(tokenizer, form.truecase())

    def build_bpe(self, args):
        """Build the subword encoder, which must be that of the training text.

        Raises:
            UserError: the codes or the model are missing or invalid, or differ from those that the
                training text was split with.
        """
        self._bpe_name = name = getattr(args, "_name", None)
        self._reports_form = bool(self.cfg.checkpoint_to_decode) and not self.datasets
        try:
            codes = getattr(args, "bpe_codes", None)
        except MissingMandatoryValue:
            raise UserError(
                f"--bpe {name} needs --bpe-codes; give the codes of the training data"
            ) from None
        TextForm(bpe_codes=codes).check_files()
        if name == "sentencepiece":
            pieces = SentencePieces(args)
            self._text_options().check_bpe(name, args.sentencepiece_model)
            return pieces
        self._text_options().check_bpe(name, codes)
        try:
            return super().build_bpe(args)
        except SystemExit:  # of subword-nmt, which has printed the line
            raise UserError(f"{codes} is not a file of merges of subword-nmt") from None
        except OSError as error:  # fairseq fetches the files of some
            raise UserError(
                f"--bpe {name} cannot be built ({str(error).splitlines()[0]}); give the "
                "files that it needs, or another --bpe"
            ) from None

    def report_missing_options(self, tokenizer: Optional[str], bpe: Optional[str]) -> None:
        """Warn if input lines need preprocessing that ``--tokenizer`` and ``--bpe`` do not do.

        The data folder does not describe its preprocessing.

        Args:
            tokenizer, bpe: values of the options; None for an option that is not given.
        """
        self._text_options().report_missing(tokenizer, bpe, truecases=False)

    def report_form(self, lines: Sequence[str]) -> None:
        """Warn if the options of fairseq-interactive do less or more than its input needs.

        Args:
            lines: first lines of the input; there is no further warning of later lines.
        """
        if self._reports_form:
            self._reports_form = False
            self._text_options().report_missing(
                self._tokenizer_name, self._bpe_name, lines, self._truecases
            )

    def _text_options(self) -> TextOptions:
        stored = getattr(self.state, KEY)
        override = self.cfg.override_checkpoint_options
        # fairseq-generate has loaded a dataset by then, fairseq-interactive never does.
        return TextOptions(None if override else stored, not self.datasets)
