"""Base class of tasks that remember how their text was prepared."""

import os
from typing import Optional

from fairseq.data import Dictionary
from fairseq.tasks.translation import TranslationTask
from omegaconf import MissingMandatoryValue

from fairseq_docmt.data import add_document_symbols
from fairseq_docmt.data.text_form import SentencePieces, TextForm
from fairseq_docmt.errors import UserError
from fairseq_docmt.tasks import _training_text


class PreparedTextTask(TranslationTask):
    """Translation task whose checkpoints store the form of their text.

    See :mod:`fairseq_docmt.tasks._training_text`.
    """

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        self._tokenizer_name: Optional[str] = None
        self.training_text = _training_text.describe(cfg, src_dict, tgt_dict)
        self.state.merge_state_dict({_training_text.KEY: self.training_text})

    def load_state_dict(self, state_dict):
        """Load the state of a checkpoint.

        Raises:
            UserError: the checkpoint was trained with other text.
        """
        if not self.cfg.override_checkpoint_options:
            _training_text.refuse_other_text(state_dict.get(_training_text.KEY), self.training_text)
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
        _training_text.refuse_symbols(dictionary, filename)
        return add_document_symbols(dictionary)

    def build_tokenizer(self, args):
        """Build the tokenizer.

        Raises:
            UserError: it is not that of the training text.
        """
        self._tokenizer_name = getattr(args, "_name", None)
        self._text_options().check_tokenizer(self._tokenizer_name)
        return super().build_tokenizer(args)

    def build_bpe(self, args):
        """Build the subword encoder.

        Raises:
            UserError: the codes or the model are missing, invalid or not those of the training
                text.
        """
        name = getattr(args, "_name", None)
        if self.cfg.checkpoint_to_decode and not self.datasets:
            self.report_missing_options(self._tokenizer_name, name)
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
        """Warn if input must be in the form of the training text for lack of options.

        Args:
            tokenizer, bpe: ``--tokenizer`` and ``--bpe``.
        """
        self._text_options().report_missing(tokenizer, bpe)

    def _text_options(self) -> _training_text.TextOptions:
        stored = getattr(self.state, _training_text.KEY)
        override = self.cfg.override_checkpoint_options
        # fairseq-generate has loaded a dataset by then, fairseq-interactive never does.
        return _training_text.TextOptions(None if override else stored, not self.datasets)
