"""Base class of the document tasks: options, dictionaries, data, decoding and validation."""

import contextlib
import logging
from typing import Iterator, List, Optional, Tuple

import torch
from fairseq.models import FairseqLanguageModel
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import open_dict

from fairseq_docmt.checkpoint_file import check_options, rename_options
from fairseq_docmt.data.sequence_format import NO_TAGS, Formats, LanguageTags
from fairseq_docmt.errors import DIVERGED, UserError, check_metadata, flag
from fairseq_docmt.generation import document_bleu
from fairseq_docmt.generation.decodings import build_search
from fairseq_docmt.generation.ensembles import ShallowFusion
from fairseq_docmt.generation.hypotheses import UnknownWords, read_dictionary
from fairseq_docmt.generation.option_checks import check_decoding, refuse_unsupported
from fairseq_docmt.generation.sequence_generator import (
    DocumentGenerator,
    DocumentGeneratorWithAlignment,
)
from fairseq_docmt.models.base import COMMA_SEPARATED, name_of
from fairseq_docmt.models.interface import (
    complete_in_place,
    is_document_recurrent,
    separate_beams,
)
from fairseq_docmt.modules.cpu import pack_weights, use_onednn
from fairseq_docmt.optim.grouped_adam import freeze_pretrained
from fairseq_docmt.symbols import DOCUMENT_SYMBOLS
from fairseq_docmt.tasks import (
    _criterion,
    _option_checks,
    _text_folders,
    _training_examples,
    _validation_bleu,
)
from fairseq_docmt.tasks._data import DocumentDataTask
from fairseq_docmt.tasks._decoding_input import DecodingInput
from fairseq_docmt.tasks._stored_options import KEY, StoredOptions
from fairseq_docmt.tasks.starts import checkpoints, embeddings, language_tags

logger = logging.getLogger(__name__)

#: a checkpoint whose path fairseq does not tell, as in fairseq-validate
STORED = "the checkpoint"


class DocumentTranslationTask(DocumentDataTask):
    """Base class of the document tasks.

    A subclass defines which spans of sentences are training examples (:meth:`training_spans`) and
    which are translated together in decoding (:meth:`parts`).  It also names the options to store
    in checkpoints.  The searches that ``--decoding`` can choose for a task are registered in
    :mod:`fairseq_docmt.generation.decodings`.
    """

    #: registered name
    task_name: str
    #: options of the task that have no effect in decoding
    OF_TRAINING = _option_checks.OF_TRAINING
    #: whether the rows of a batch are the sentences of documents
    rows_are_sentences: bool = False
    #: ``--decoding`` by which references are scored in any order; None for that of translation
    decoding_of_references: Optional[str] = None
    #: option stored in checkpoints -> default
    stored_defaults: dict
    #: name of a value estimated in training and stored in checkpoints -> value before training
    learned_defaults: dict = {}
    #: option -> value for a checkpoint of a sentence-level stock task
    sentence_level: dict = {}

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        for name in ("load_alignments", "left_pad_target", "num_batch_buckets"):
            if getattr(cfg, name):
                raise UserError(f"{flag(name)} is not supported by document tasks; leave it out")
        with open_dict(cfg):
            # Batches depend only on the number of the epoch, so that they are equal after resuming.
            cfg.rebuild_batches = True
        # With the default of -1, fairseq gives a concatenated training set a negative length.
        cfg.upsample_primary = max(cfg.upsample_primary, 1)
        defaults = {"mark_document_start": False, **self.stored_defaults}
        given = {name: getattr(cfg, name) for name in defaults}
        # A flag that is False counts as not given.
        given = {name: None if value is False else value for name, value in given.items()}
        self.stored = StoredOptions(
            self.task_name, given, defaults, self.learned_defaults, self.sentence_level
        )
        self.state.merge_state_dict({KEY: self.stored.chosen()})
        #: whether it is the task of a checkpoint that is only validated, as in fairseq-validate
        self.trained = False
        #: checkpoint that training starts from
        self.start: Optional[checkpoints.Start] = None
        #: option that has ended the training that would resume
        self._limit_reached: Optional[str] = None
        #: whether the first update is still to come
        self._starting = True
        #: language tags, and the options they follow from; set when a checkpoint is known
        self.tags: LanguageTags = NO_TAGS
        self.tag_options: Optional[language_tags.TagOptions] = None
        #: whether the sentences of a batch form documents for the model
        self._rows_form_documents = False
        #: kinds of attention that the criterion draws to supporting words; empty if it draws none
        self._regularized_attention: List[str] = []
        check_metadata(
            TASK_DATACLASS_REGISTRY[self.task_name],
            lambda name: self.options.get(name, getattr(cfg, name)),
        )
        self.check_options()
        self.use_decoding(cfg.decoding)
        check_decoding(self)
        self._decoding_input = DecodingInput(self)
        #: replacement of unknown words in translations; None without --replace-unk
        self.unknown_words: Optional[UnknownWords] = None
        self.validation_bleu = _validation_bleu.ValidationBleu()

    # ---- defined by subclasses -----------------------------------------------------------------

    def check_options(self) -> None:
        """Raise UserError if an option of the task is invalid; a subclass may override this."""

    def check_training_options(self) -> None:
        """Check options and data files before training; raise UserError if one is invalid."""
        _option_checks.check_in_training(self)
        _text_folders.check_splits(self.cfg)
        _text_folders.check_names_of_splits(self.cfg)
        _training_examples.check_sentence_data(self.cfg)
        _validation_bleu.check_options(self.cfg)
        _training_examples.check_word_dropout(self.cfg)

    def examples_decided_by(self) -> dict:
        """Return the options (name -> value) that determine the examples of an epoch."""
        return {
            "--task": self.task_name,
            "--train-subset": self.cfg.train_subset,
            "--upsample-primary": self.cfg.upsample_primary,
            "--truncate-source": self.cfg.truncate_source,
            "--max-source-positions": self.cfg.max_source_positions,
            "--max-target-positions": self.cfg.max_target_positions,
            "--mark-document-start": self.options["mark_document_start"],
            "--language-tags": None if self.tag_options is None else self.tag_options.kind,
            "--sentence-data": self.cfg.sentence_data is not None,
            "--sentence-ratio": self.cfg.sentence_ratio,
            "--word-dropout": self.cfg.word_dropout,
            "--word-dropout-epochs": self.cfg.word_dropout_epochs,
        }

    # ---- options and dictionaries --------------------------------------------------------------

    @property
    def options(self) -> dict:
        """Current values of the options stored in checkpoints, by name."""
        return getattr(self.state, KEY)

    def load_state_dict(self, state_dict):
        """Load the task state of a checkpoint, and adopt the options and language tags in it.

        Raises:
            UserError: the task, an option or the training text contradicts the checkpoint, and
                ``--override-checkpoint-options`` is not given; or the checkpoints of an ensemble
                disagree.
        """
        override = self.cfg.override_checkpoint_options
        adopted = self.stored.adopt(state_dict, override)
        if self.trained and not override:  # they are the first checkpoint's
            self.stored.given.clear()
        super().load_state_dict(state_dict)
        self.state.merge_state_dict({KEY: adopted})
        if language_tags.KEY in state_dict:
            self.use_tags(language_tags.adopted(self.cfg, state_dict))

    def use_tags(self, options: Optional[language_tags.TagOptions]) -> None:
        """Put language tags into all sequences, and add their symbols to the dictionaries.

        Args:
            options: options of the language tags; None to change nothing.

        Raises:
            UserError: a language has no tag, or the checkpoints of an ensemble have different tags.
        """
        if options is None or options == self.tag_options:
            return
        if self.tag_options is not None and options.record() != self.tag_options.record():
            before, other = (
                f"{o.kind} ({o.source}, {o.target})" for o in (self.tag_options, options)
            )
            raise UserError(
                f"checkpoints of one ensemble must agree in their language tags: one has {before}, "
                f"another {other}; leave one out"
            )
        self.tag_options = options
        self.tags = language_tags.of_dictionaries(options, self.src_dict, self.tgt_dict)
        self.state.merge_state_dict({language_tags.KEY: options.record()})

    @property
    def added_symbols(self) -> Tuple[str, ...]:
        """Symbols that the task has added at the end of the dictionaries, such as ``<sep>``."""
        tags = () if self.tag_options is None else self.tag_options.symbols
        return (*tags, *DOCUMENT_SYMBOLS)

    @property
    def formats(self) -> Formats:
        """Formats of source and target sequences, as the options and language tags require."""
        mark = self.options["mark_document_start"]
        return Formats.of(self.src_dict, self.tgt_dict, self.tags, mark)

    @property
    def added_tokens(self) -> Tuple[int, int]:
        """Maximum numbers of symbols (tags, ``<bod>``) added to a source and a target sequence."""
        source, target = self.formats
        return source.most_added, target.most_added

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        """Set up the task, and check the checkpoints that fairseq is going to load.

        Raises:
            UserError: a data directory is missing, or a checkpoint cannot be used.
        """
        if kwargs.get("from_checkpoint"):
            check_options(cfg, STORED)
        _text_folders.check(cfg)
        task = super().setup_task(cfg, **kwargs)
        if kwargs.get("from_checkpoint"):
            task.trained = True
            return task
        if task.cfg.checkpoint_to_decode:
            _text_folders.check_input(task.cfg.input_file)
            _option_checks.check_in_decoding(task)
            if task.cfg.replace_unk is not None:
                read_dictionary(task.cfg.replace_unk)  # fairseq does not say what is wrong with it
            _option_checks.check_options(task.cfg)
            checkpoints.check_checkpoints_to_decode(task)
            if task.cfg.language_model:
                checkpoints.check_language_model(task)
        else:
            _option_checks.check_precision(task.cfg)
            checkpoints.forget_earlier_training()
            task.start_from(checkpoints.start_of_training(task))
        return task

    def start_from(self, start: Optional[checkpoints.Start]) -> None:
        """Set the checkpoint that training starts from, and check the training options.

        When training resumes, the options stored in the checkpoint are adopted.

        Args:
            start: the checkpoint; None to train a new model.

        Raises:
            UserError: an option contradicts the checkpoint, or an option or data file is invalid.
        """
        self.start = start
        if start is not None and start.resumes:
            override = self.cfg.override_checkpoint_options
            adopted = self.stored.adopt(start.file.task_state, override, start.file.path)
            self.state.merge_state_dict({KEY: adopted})
            self._limit_reached = start.limit_reached(self.cfg)
        self.check_training_options()

    def build_model(self, cfg, from_checkpoint=False):
        """Build a model, and prepare it for loading the checkpoint that training starts from.

        Raises:
            UserError: ``--merge-src-tgt-embed`` would change the dictionaries, the model does not
                fit the task or the checkpoint, a number is not finite, a probability is outside of
                [0, 1], a file of embeddings cannot be used, or an option stored in the checkpoint
                could execute arbitrary code.
        """
        if from_checkpoint:
            check_options(cfg, STORED)
            rename_options(cfg)
            embeddings.forget_embeddings(cfg)
        if getattr(cfg, "merge_src_tgt_embed", False) and self.src_dict != self.tgt_dict:
            raise UserError(
                "--merge-src-tgt-embed changes the dictionaries of text that is already binarised; "
                "binarise it with --joined-dictionary and use --share-all-embeddings instead"
            )
        if not from_checkpoint:
            _option_checks.check_numbers(cfg)
            complete_in_place(cfg, self.cfg)
            # fairseq's transformer splits them at commas, although its parser makes lists.
            for name in COMMA_SEPARATED:
                if isinstance(getattr(cfg, name, None), list):
                    setattr(cfg, name, ",".join(map(str, getattr(cfg, name))))
            embeddings.check_embeddings(self, cfg)
            _option_checks.report_of_start(self, cfg)
        if self.cfg.eval_bleu:
            _validation_bleu.check_search(self.cfg)
        model = super().build_model(cfg, from_checkpoint)
        if isinstance(model, FairseqLanguageModel):
            raise UserError(
                f"--arch {name_of(cfg)} is a language model, which translates nothing; give a "
                "translation model"
            )
        checkpoints.check_decoder(model, name_of(cfg))
        if not from_checkpoint:
            checkpoints.check_context(model, self, name_of(cfg))
        checkpoints.check_rows(model, self, name_of(cfg))
        if self.options.get("restart_positions"):
            checkpoints.count_positions_by_sentence(model, self, name_of(cfg))
        if not torch.cuda.is_available():
            use_onednn(model)
        checkpoints.let_load(model, self)
        if not from_checkpoint:
            checkpoints.start_training(model, self, name_of(cfg))
        if self.cfg.freeze_pretrained:
            freeze_pretrained(model, None if from_checkpoint else cfg)
        self._rows_form_documents = is_document_recurrent(model) or self.rows_are_sentences
        return model

    def build_criterion(self, cfg, from_checkpoint=False):
        """Build the criterion, and check that it suits the model.

        Raises:
            UserError: the criterion is not for translation; it duplicates batch rows although they
                form documents; it regularizes attention between sentences, but each row is a
                single sentence or ``--truncate-source`` is given; a number is not finite; a
                probability is outside of [0, 1]; or an option stored in the checkpoint could
                execute arbitrary code.
        """
        if self.trained:
            check_options(cfg, STORED)
        _option_checks.check_numbers(cfg)
        _criterion.refuse_criteria_of_others(cfg._name)
        criterion = super().build_criterion(cfg, from_checkpoint)
        if self._rows_form_documents:
            _criterion.refuse_copies_of_rows(criterion)
        self._regularized_attention = _training_examples.regularized_attention(
            self, criterion, self._rows_form_documents
        )
        return criterion

    def use_decoding(self, decoding: Optional[str]) -> None:
        """Set the decoding method.

        Args:
            decoding: value of ``--decoding``; None for the default of the task.

        Raises:
            UserError: the task has no such decoding method.
        """
        self.search = build_search(self, decoding)

    @contextlib.contextmanager
    def scoring_references(self) -> Iterator[None]:
        """Return a context manager within which the task is prepared for scoring references.

        The sliding-window task switches to ``--decoding window``, with which windows can be scored
        in any order; other tasks keep their decoding.
        """
        before = self.search
        if self.decoding_of_references is not None:
            self.use_decoding(self.decoding_of_references)
        try:
            yield
        finally:
            self.search = before

    # ---- decoding ------------------------------------------------------------------------------

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, **kwargs):
        """Build the generator that translates with the chosen ``--decoding``, or scores references.

        Raises:
            UserError: an option does not work with this decoding.
        """
        refuse_unsupported(self, models, args)
        if kwargs.get("prefix_allowed_tokens_fn") is not None:
            raise UserError(
                "prefix_allowed_tokens_fn does not fit document tasks, whose searches have other "
                "rows than the batch; leave it out"
            )
        given = dict(extra_gen_cls_kwargs or {})
        lm_model = self._language_model(args, given.get("lm_model"), given.get("lm_weight"))
        for model in models:
            # Set by fairseq's prepare_for_inference_: the weights are final.
            if getattr(model, "_is_generation_fast", False):
                pack_weights(model)
        if getattr(args, "score_reference", False):
            return super().build_generator(models, args, **kwargs)
        options = {
            "separator": self.formats.target.separator,
            "nbest": getattr(args, "nbest", 1),
            "ensemble": self.search.ensemble_of(models, lm_model),
            "forbidden": self.search.forbidden,
            **given,
            "lm_model": lm_model,
        }
        generator_class = seq_gen_cls or DocumentGenerator
        replaces, alignment = (
            getattr(args, "replace_unk", None),
            getattr(args, "print_alignment", None),
        )
        self.unknown_words = None if replaces is None else UnknownWords(replaces, self.tgt_dict)
        if alignment or self.unknown_words:
            generator_class = seq_gen_cls or DocumentGeneratorWithAlignment
            options["print_alignment"] = alignment or "soft"
        generator = super().build_generator(
            models, args, generator_class, extra_gen_cls_kwargs=options, **kwargs
        )
        for model in models:
            separate_beams(model)
        return generator

    def _language_model(self, args, model, weight: Optional[float]) -> Optional[ShallowFusion]:
        """Return the language model for shallow fusion (``--lm-path``), or None if none is used.

        Args:
            args: options of the command.
            model: language model that fairseq loaded; None if it loaded none.
            weight: weight of the model; with 0 or None, the model is not used.

        Raises:
            UserError: ``--lm-path`` is given to a command that does not load language models.
        """
        if getattr(args, "lm_path", None) and model is None:
            raise UserError("only fairseq-generate loads --lm-path; use it, or leave --lm-path out")
        if model is None or not weight:
            return None
        symbols = {self.formats.target.separator, *self.search.forbidden}
        return ShallowFusion(model, self.target_dictionary, symbols)

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Translate a sample, and return the hypotheses of each of its sentences, best first.

        If ``generator`` is a scorer, the references of the sample are scored instead.
        """
        if "units" not in sample:
            sample = self._decoding_input.typed_sample(sample["net_input"]["src_tokens"])
        document_bleu.announce(sample)
        units = sample["units"]
        found = self.search.decode(generator, models, units, prefix_tokens, constraints)
        if self.unknown_words is None:
            return found
        texts = self._decoding_input.texts_of(sample["id"].tolist())
        return self.unknown_words.replaced(found, texts)

    def eval_lm_dataloader(self, *args, **kwargs):
        """Refuse ``fairseq-eval-lm``, which looks for this method of language modelling tasks.

        Raises:
            UserError: always.
        """
        raise UserError(
            "fairseq-eval-lm is for language models; fairseq-generate --score-reference gives the "
            "log-probabilities of references"
        )

    # ---- training and validation ---------------------------------------------------------------

    def train_step(self, sample, model, criterion, optimizer, *args, **kwargs):
        """Run fairseq's training step; unlike in fairseq, ``--amp`` also has an effect on a CPU.

        Raises:
            UserError: the gradients of this batch are NaN or infinite.
        """
        if self._starting:
            _option_checks.report_of_optimizer(optimizer, self.start)
            self._starting = False
        sample = _criterion.in_rows_if_needed(sample, criterion)
        if isinstance(optimizer, AMPOptimizer) and sample["target"].device.type == "cpu":
            criterion = _criterion.in_bfloat16(criterion)
        try:
            return super().train_step(sample, model, criterion, optimizer, *args, **kwargs)
        except StopIteration:  # fairseq repeats the step to find their origin, and stumbles
            raise UserError(f"gradients are Nan/Inf; {DIVERGED}") from None

    def valid_step(self, sample, model, criterion):
        """Run fairseq's validation step on a batch.

        With ``--eval-bleu``, statistics for document BLEU are added to the logging output.
        """
        sample = _criterion.in_rows_if_needed(sample, criterion)
        loss, sample_size, logging_output = super().valid_step(sample, model, criterion)
        if self.cfg.eval_bleu:
            logging_output.update(self.validation_bleu.statistics)
        return loss, sample_size, logging_output

    def reduce_metrics(self, logging_outputs, criterion):
        """Log fairseq's metrics and, with ``--eval-bleu``, the document BLEU of validation."""
        super().reduce_metrics(logging_outputs, criterion)
        if any("_d_bleu_sys_len" in log for log in logging_outputs):
            _validation_bleu.log_d_bleu(logging_outputs)

    def _inference_with_bleu(self, generator, sample, model):
        """Translate a validation batch, and return its BLEU as a ``BLEUScore`` of sacreBLEU.

        For document BLEU, the statistics of the documents that the batch completes are stored in
        ``validation_bleu``.
        """
        by_unit = self.validation_units(sample)
        found = self.inference_step(generator, [model], by_unit)
        return self.validation_bleu.score(self, by_unit, found)

    def validation_units(self, sample) -> dict:
        """Convert a validation batch into a sample to decode, with references as target context.

        The rows of the sample are the original sentences, and its key ``units`` groups them into
        decoding units.
        """
        return _validation_bleu.units_of_view(sample, self)
