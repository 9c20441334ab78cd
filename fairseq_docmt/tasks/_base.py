"""What the document tasks share: dictionaries, splits, batches and the way to decoding."""

import collections
import logging
import os
from dataclasses import dataclass, field
from typing import Iterator, List, Optional

import numpy as np
import torch
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset, data_utils, iterators
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II, open_dict
from sacrebleu.metrics import BLEU

from fairseq_docmt.data import (
    DecodingUnits,
    DocumentCorpus,
    DocumentIndex,
    DocumentView,
    add_document_symbols,
    open_corpus,
)
from fairseq_docmt.data.document_index import BLANK_SIZE
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentDecoder, refuse_unsupported
from fairseq_docmt.generation.sequence_generator import (
    DocumentGenerator,
    DocumentGeneratorWithAlignment,
)
from fairseq_docmt.generation.view_rows import rows_of_view
from fairseq_docmt.modules.onednn_linear import use_onednn
from fairseq_docmt.modules.packed_weights import pack_weights
from fairseq_docmt.optim.grouped_adam import freeze_pretrained
from fairseq_docmt.scoring import document_bleu
from fairseq_docmt.tasks import _validation_bleu
from fairseq_docmt.tasks._grow_vocabulary import let_vocabulary_grow
from fairseq_docmt.tasks._open_document import OpenDocument
from fairseq_docmt.tasks._stored_options import KEY, StoredOptions

logger = logging.getLogger(__name__)


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class DocumentTranslationConfig(TranslationConfig):
    decoding: Optional[ChoiceEnum(["window", "segment", "sequential"])] = field(
        default=None,
        metadata={
            "help": "how fairseq-generate and fairseq-interactive translate documents: window "
            "(each sentence from a window, the rest of the output dropped), segment (stretches of "
            "a document whole, split at <sep>), sequential (sentence by sentence after the model's "
            "own previous output); default: sequential for windows, segment for full documents"
        },
    )
    force_sentence_count: bool = field(
        default=False,
        metadata={
            "help": "let every hypothesis of several sentences have as many as its source from the "
            "first pass on, instead of decoding again only where the number came out wrong"
        },
    )
    wrong_sentence_count: ChoiceEnum(["repair", "keep"]) = field(
        default="repair",
        metadata={
            "help": "what becomes of an output with a wrong number of sentences: repair (it is "
            "decoded again with the right number), keep (its sentences are printed in order, "
            "missing ones at the end are empty, surplus ones become part of the last)"
        },
    )
    override_checkpoint_options: bool = field(
        default=False,
        metadata={
            "help": "decode with the task and the options given here, as --window-size, where they "
            "differ from those the checkpoint was trained with"
        },
    )
    gold_context: bool = field(
        default=False,
        metadata={
            "help": "translate each sentence after the references of those before it, not after "
            "own translations of them; for --decoding sequential and stream"
        },
    )
    normalize_with_context: bool = field(
        default=False,
        metadata={
            "help": "rank hypotheses by the score of the target context and the sentence together, "
            "normalised by the length of both, as the code of Wu et al. (2022) does, not by the "
            "sentence alone; for --decoding sequential"
        },
    )
    mark_document_start: bool = field(
        default=False,
        metadata={"help": "put <bod> before the first sentence of a document, on both sides"},
    )
    freeze_pretrained: bool = field(
        default=False,
        metadata={
            "help": "train only the parameters that the architecture adds to a pre-trained model"
        },
    )
    # Set in fairseq-generate and fairseq-interactive only, which have no other mark of their own.
    checkpoint_to_decode: Optional[str] = II("common_eval.path")
    max_batch_tokens: Optional[int] = II("dataset.max_tokens")
    language_model: Optional[str] = II("generation.lm_path")


class TypedLines(LanguagePairDataset):
    """Lines of fairseq-interactive or of the Python interface, blank ones included."""


class DocumentTranslationTask(TranslationTask):
    """Base of the document tasks.

    A task says how documents are cut for training (:meth:`training_spans`) and for decoding
    (:meth:`decoding_spans`), and which of its options a checkpoint remembers.
    """

    task_name: str
    decodings: List[str]
    decoder_class = DocumentDecoder
    #: option -> default; remembered by checkpoints
    stored_defaults: dict
    #: what training finds out and a checkpoint remembers -> value while it is not known
    learned_defaults: dict = {}
    #: values that describe a checkpoint of a sentence-level stock task
    sentence_level: dict = {}

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        if cfg.load_alignments:
            raise UserError("--load-alignments is not supported by document tasks; leave it out")
        if cfg.language_model:
            raise UserError(
                "--lm-path is not supported by document tasks: a language model of fairseq does "
                "not know <sep> and <bod>; leave it out"
            )
        with open_dict(cfg):
            # Batches depend on the number of the epoch alone, so that resuming finds the same.
            cfg.rebuild_batches = True
        # The host's default of -1 makes a concatenated training set of negative length.
        cfg.upsample_primary = max(cfg.upsample_primary, 1)
        given = {name: getattr(cfg, name) for name in self.stored_defaults}
        # A flag that is off may also be one that was left out.
        given["mark_document_start"] = cfg.mark_document_start or None
        defaults = {"mark_document_start": False, **self.stored_defaults}
        self.stored = StoredOptions(
            self.task_name, given, defaults, self.learned_defaults, self.sentence_level
        )
        self.state.merge_state_dict({KEY: self.stored.chosen()})
        self.check_options()
        self.decoding = cfg.decoding or self.decodings[0]
        if self.decoding not in self.decodings:
            raise UserError(
                f"--decoding {self.decoding} is not for --task {self.task_name}; "
                f"choose from {', '.join(self.decodings)}"
            )
        if cfg.gold_context and not (self.sequential or self.decoding == "stream"):
            raise UserError(
                f"--gold-context has no meaning with --decoding {self.decoding}, which does not "
                "translate sentences one after the other; leave it out"
            )
        if cfg.normalize_with_context and not self.sequential:
            raise UserError(
                f"--normalize-with-context has no meaning with --decoding {self.decoding}, which "
                "gives no context to go on from; leave it out"
            )
        self.decoder = self.decoder_class(self)
        self._typed_samples = collections.deque()
        self._open_document = OpenDocument()
        # What batches were last asked for, until validation looks at it.
        self._iterated = None

    # ---- what a task defines -------------------------------------------------------------------

    def check_options(self) -> None:
        """Raise UserError for values that make no sense."""

    def training_spans(self, corpus: DocumentCorpus) -> np.ndarray:
        """(examples, 2) sentences of each training or validation example."""
        raise NotImplementedError

    def decoding_spans(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        """(units, 2) sentences of each decoding unit, from the source side alone."""
        raise NotImplementedError

    def window_to_decode(self) -> int:
        """Sentences of a decoding window, of which the last is kept; 0 if spans are kept whole."""
        raise NotImplementedError

    @property
    def sequential(self) -> bool:
        """Whether each sentence is translated after the model's own output for those before it."""
        return self.decoding in ("sequential", "sequential-full-source")

    def view_options(self) -> dict:
        """Keyword arguments of :class:`DocumentView` that the task sets."""
        return {}

    def training_view(self, corpus: DocumentCorpus) -> DocumentView:
        """Examples of training or validation."""
        return DocumentView(
            corpus,
            self.training_spans(corpus),
            mark_document_start=self.options["mark_document_start"],
            **self.view_options(),
        )

    # ---- options and dictionaries --------------------------------------------------------------

    @property
    def options(self) -> dict:
        """Options that a checkpoint remembers, with their values in force."""
        return getattr(self.state, KEY)

    def load_state_dict(self, state_dict):
        adopted = self.stored.adopt(state_dict, self.cfg.override_checkpoint_options)
        super().load_state_dict(state_dict)
        self.state.merge_state_dict({KEY: adopted})

    @classmethod
    def load_dictionary(cls, filename: str) -> Dictionary:
        """Load a dictionary and add the document symbols.

        Raises:
            UserError: the file is missing.
        """
        if not os.path.exists(filename):
            raise UserError(
                f"{filename} not found; give the directory that fairseq-preprocess wrote, with "
                "its languages as --source-lang and --target-lang"
            )
        return add_document_symbols(super().load_dictionary(filename))

    @classmethod
    def setup_task(cls, cfg, **kwargs):
        for path in utils.split_paths(cfg.data):
            if not os.path.isdir(path):
                raise UserError(f"data directory {path} not found")
        return super().setup_task(cfg, **kwargs)

    def build_model(self, cfg, from_checkpoint=False):
        model = super().build_model(cfg, from_checkpoint)
        if not torch.cuda.is_available():
            use_onednn(model)
        let_vocabulary_grow(model, self.src_dict, self.tgt_dict)
        for module in model.modules():
            # Official fairseq 0.12.2 only: its fast path fails on this torch when decoding.
            if hasattr(module, "can_use_fastpath"):
                module.can_use_fastpath = False
        if not from_checkpoint and hasattr(model, "load_pretrained_parts"):
            model.load_pretrained_parts(self._some_training_sources())
        if self.cfg.freeze_pretrained:
            freeze_pretrained(model)
        return model

    def _some_training_sources(self, most: int = 10000) -> Iterator[torch.Tensor]:
        """Source sentences from all over the training set."""
        folder, languages = utils.split_paths(self.cfg.data)[0], self.cfg
        pair = f"{languages.source_lang}-{languages.target_lang}"
        name = os.path.join(folder, f"{self.cfg.train_subset}.{pair}.{languages.source_lang}")
        lines = data_utils.load_indexed_dataset(name) if os.path.exists(f"{name}.idx") else None
        if lines is None:
            raise UserError(f"{name}.idx not found; check the data directory and the languages")
        rows = np.flatnonzero(lines.sizes > BLANK_SIZE)
        for row in rows[:: max(1, len(rows) // most)].tolist():
            yield lines[row]

    # ---- data ----------------------------------------------------------------------------------

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Load a split: as examples to learn from, or as sentences to translate.

        Raises:
            UserError: missing, damaged, empty or disagreeing files.
        """
        paths = utils.split_paths(self.cfg.data)
        path = paths[(epoch - 1) % len(paths)] if split == self.cfg.train_subset else paths[0]
        name = os.path.join(path, f"{split}.{self.cfg.source_lang}-{self.cfg.target_lang}")

        def load_pairs():
            super(DocumentTranslationTask, self).load_dataset(split, epoch, combine, **kwargs)
            return self.datasets[split]

        corpus = open_corpus(name, load_pairs)
        if self.cfg.checkpoint_to_decode:
            self.datasets[split] = self._units_of_corpus(corpus)
        elif corpus.tgt_sizes is None:
            raise UserError(f"{name} has no target side; training and validation need one")
        else:
            self.learn_from(corpus, split)
            self.datasets[split] = self.training_view(corpus)

    def learn_from(self, corpus: DocumentCorpus, split: str) -> None:
        """Hook for what is to be remembered of the training corpus."""

    def limits(self, src_sizes, tgt_sizes=None) -> list:
        """What a span may not exceed: the positions of the model, and a batch when training."""
        sides = [(src_sizes, self.cfg.max_source_positions)]
        if tgt_sizes is not None:
            sides.append((tgt_sizes, self.cfg.max_target_positions))
        marks = int(self.options["mark_document_start"])
        batch = self.cfg.max_batch_tokens if tgt_sizes is not None else None
        return [(sizes, (min(most, batch) if batch else most) - marks) for sizes, most in sides]

    def _units_of_corpus(self, corpus: DocumentCorpus) -> DecodingUnits:
        pairs = corpus.pairs
        return self._units(pairs.src, pairs.tgt, pairs.src_sizes, corpus.index, name=corpus.name)

    def _units(self, src, tgt, line_sizes, index, name, **kwargs):
        """Units to decode; sentences longer than the model has positions get an empty hypothesis.

        Whether such sentences may be skipped is known only when batches are asked for, so the
        dataset remembers them.
        """
        most = self.cfg.max_source_positions - int(self.options["mark_document_start"])
        fits = line_sizes[index.rows] <= most
        too_long = index.rows[~fits]
        if len(too_long) > 0:
            index = index.without(~fits)
        spans = self.decoding_spans(index, line_sizes[index.rows])
        units = DecodingUnits(
            src,
            tgt,
            line_sizes,
            self.src_dict,
            index,
            spans,
            window_size=self.window_to_decode(),
            empty_rows=[*kwargs.pop("empty_rows", ()), *too_long.tolist()],
            left_pad_source=self.cfg.left_pad_source,
            **kwargs,
        )
        units.name = name
        units.too_long = too_long
        return units

    def build_dataset_for_inference(self, src_tokens, src_lengths, constraints=None):
        """Lines typed in, blank lines between documents; cut into units when batches are made."""
        return TypedLines(src_tokens, src_lengths, self.src_dict, constraints=constraints)

    def _units_of_lines(self, lines: TypedLines, new_document: bool) -> DecodingUnits:
        if new_document:
            self._open_document = OpenDocument()
            self.decoder.forget()
        sizes = np.asarray(lines.src_sizes)
        index = DocumentIndex.from_sizes(sizes)
        opened = self._open_document
        if len(sizes) > 0 and sizes[0] <= BLANK_SIZE:
            opened.close()
        if opened.position > 0 and self.window_to_decode() == 0:
            logger.warning(
                "document %d goes on after --buffer-size lines; its parts are translated apart "
                "from each other, so give a --buffer-size that holds whole documents",
                opened.number + 1,
            )
        units = self._units(
            lines.src,
            None,
            sizes,
            index,
            name="input",
            empty_rows=np.flatnonzero(sizes <= BLANK_SIZE).tolist(),
            carried=opened.sentences,
            first_document=opened.number,
            first_position=opened.position,
            constraints=lines.constraints,
        )
        # Of sentences that are too long nothing is carried on, as they have no translation.
        opened.advance(lines.src, sizes, units.index, self.window_to_decode() - 1)
        self._typed_samples.clear()
        return units

    def get_batch_iterator(self, dataset, *args, disable_iterator_cache=False, **kwargs):
        """Batches of examples (stock, but complete) or of decoding units.

        Raises:
            UserError: a sentence to translate is longer than the model has positions.
        """
        if isinstance(dataset, DocumentView):
            # The number of processes decides how batches are evened out.
            dataset.num_shards = kwargs.get("num_shards", 1)
            batches = super().get_batch_iterator(
                dataset, *args, disable_iterator_cache=disable_iterator_cache, **kwargs
            )
            self._iterated = dataset, batches
            return batches
        typed = isinstance(dataset, TypedLines)
        if typed:  # only the Python interface disables the cache: each call has new documents
            dataset = self._units_of_lines(dataset, new_document=disable_iterator_cache)
        return self._decoding_iterator(dataset, typed, *args, **kwargs)

    def _decoding_iterator(
        self,
        units: DecodingUnits,
        typed: bool,
        max_tokens=None,
        max_sentences=None,
        ignore_invalid_inputs=False,
        num_shards=1,
        shard_id=0,
        num_workers=0,
        data_buffer_size=0,
        **_,
    ):
        if len(units.too_long) > 0:
            self._report_too_long(units, ignore_invalid_inputs)
        batches = units.batches(
            max_tokens, max_sentences, keep_order=self.keeps_order(), shards=num_shards
        )
        mine = batches[shard_id::num_shards]
        self.decoder.begin(sum(len(batch) for batch in mine), forget=not typed)
        collater = units.collater
        if typed:

            def collater(items):
                # fairseq-interactive passes on the tokens alone; the rest waits here for it.
                sample = units.collater(items)
                self._typed_samples.append(sample)
                return sample

        return iterators.EpochBatchIterator(
            dataset=units,
            collate_fn=collater,
            batch_sampler=batches,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            buffer_size=data_buffer_size,
            disable_shuffling=True,
        )

    def keeps_order(self) -> bool:
        """Whether a window needs the translation of the sentence before it."""
        return self.decoding == "sequential" and self.window_to_decode() > 1

    def _report_too_long(self, units: DecodingUnits, ignore: bool) -> None:
        row = int(units.too_long[0])
        problem = (
            f"{units.name}: line {row + 1} has more tokens than the model's "
            f"{self.cfg.max_source_positions} source positions"
        )
        if not ignore:
            raise UserError(
                f"{problem}; split it, cut it with --truncate-source, or leave it untranslated "
                "with --skip-invalid-size-inputs-valid-test"
            )
        logger.warning(
            "%s; it and %d others get an empty translation", problem, len(units.too_long) - 1
        )

    # ---- decoding ------------------------------------------------------------------------------

    def build_generator(self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, **kwargs):
        """Stock generator, prepared to translate documents by ``--decoding``.

        Raises:
            UserError: an option that has no meaning with this decoding.
        """
        refuse_unsupported(self, models, args)
        for model in models:
            # Set by the host's prepare_for_inference_: the weights will not change any more.
            if getattr(model, "_is_generation_fast", False):
                pack_weights(model)
        if getattr(args, "score_reference", False):
            return super().build_generator(models, args, **kwargs)
        options = {
            "separator": self.decoder.separator,
            "nbest": getattr(args, "nbest", 1),
            "ensemble": self.decoder.ensemble_of(models),
            **(extra_gen_cls_kwargs or {}),
        }
        generator_class = seq_gen_cls or DocumentGenerator
        if getattr(args, "print_alignment", None):
            generator_class = seq_gen_cls or DocumentGeneratorWithAlignment
            options["print_alignment"] = args.print_alignment
        return super().build_generator(
            models, args, generator_class, extra_gen_cls_kwargs=options, **kwargs
        )

    def inference_step(self, generator, models, sample, prefix_tokens=None, constraints=None):
        """Hypotheses for the original sentences of a sample, in its order."""
        if "units" not in sample:
            sample = self._typed_samples.popleft()
        if "id" in sample:
            document_bleu.announce(sample)
        return self.decoder.decode(generator, models, sample, prefix_tokens, constraints)

    # ---- validation BLEU -----------------------------------------------------------------------

    def valid_step(self, sample, model, criterion):
        """Stock step; with ``--eval-bleu`` also what d-BLEU is computed from."""
        loss, sample_size, logging_output = super().valid_step(sample, model, criterion)
        if self.cfg.eval_bleu:
            logging_output.update(self._d_bleu_statistics)
        return loss, sample_size, logging_output

    def reduce_metrics(self, logging_outputs, criterion):
        """Stock metrics; in validation with ``--eval-bleu`` also ``d_bleu``."""
        super().reduce_metrics(logging_outputs, criterion)
        if any("_d_bleu_sys_len" in log for log in logging_outputs):
            _validation_bleu.log_d_bleu(logging_outputs)

    def _inference_with_bleu(self, generator, sample, model):
        """Validation BLEU over original sentences; keeps that of documents complete now."""
        if self._iterated is not None:
            view, batches = self._iterated
            self._documents = _validation_bleu.DocumentsInProgress.of_batches(
                view, batches.frozen_batches
            )
            self._iterated = None
        rows = self.rows_to_translate(sample)
        found = self.inference_step(generator, [model], rows)
        hypotheses = [self._text(best["tokens"], "UNKNOWNTOKENINHYP") for best, *_ in found]
        targets = (utils.strip_pad(row, self.tgt_dict.pad()) for row in rows["target"])
        references = [self._text(tokens, "UNKNOWNTOKENINREF") for tokens in targets]
        if self.cfg.eval_bleu_print_samples:
            logger.info("example hypothesis: %s", hypotheses[0])
            logger.info("example reference: %s", references[0])
        metric = BLEU(tokenize="none" if self.cfg.eval_tokenized_bleu else None, force=True)
        finished = self._documents.add(
            *_validation_bleu.of_all_processes(
                rows["id"].tolist(), list(zip(hypotheses, references))
            )
        )
        self._d_bleu_statistics = _validation_bleu.statistics(finished, metric)
        return metric.corpus_score(hypotheses, [references])

    def _text(self, tokens, unknown: str) -> str:
        """Text for validation BLEU; unknown words of both sides must not match."""
        text = self.tgt_dict.string(
            tokens.int().cpu(), self.cfg.eval_bleu_remove_bpe, unk_string=unknown
        )
        return self.tokenizer.decode(text) if self.tokenizer else text

    def rows_to_translate(self, sample) -> dict:
        """Sample of units for validation BLEU; here each sentence after its reference context."""
        return rows_of_view(sample, self)
