"""``--task sentence_stream_translation``: translate sentence by sentence, with a document state."""

import logging
from dataclasses import dataclass, field
from typing import Optional

from fairseq.tasks import register_task
from omegaconf import II

from fairseq_docmt.data import DocumentCorpus
from fairseq_docmt.data.iterators import StreamIterator
from fairseq_docmt.data.stream_view import StreamView
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.decodings import Decoding, decoding_option
from fairseq_docmt.models.base import name_of
from fairseq_docmt.models.interface import is_document_recurrent
from fairseq_docmt.tasks import _option_checks
from fairseq_docmt.tasks._base import DocumentTranslationTask
from fairseq_docmt.tasks._config import DocumentTranslationConfig
from fairseq_docmt.tasks._lane_states import LaneStates
from fairseq_docmt.tasks._validation_bleu import units_of_stream

logger = logging.getLogger(__name__)


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class SentenceStreamTranslationConfig(DocumentTranslationConfig):
    """Options of ``sentence_stream_translation``: decoding, and sentences per lane in a batch."""

    decoding: Decoding = decoding_option("sentence_stream_translation")
    chunk_sentences: int = field(
        default=1,
        metadata={
            "help": "number of consecutive sentences of each of the --batch-size documents in a "
            "batch",
            "at_least": 1,
        },
    )
    sample_chunk_sentences: bool = field(
        default=False,
        metadata={"help": "draw the number of sentences of each batch from 1 to --chunk-sentences"},
    )
    curriculum: int = II("dataset.curriculum")
    grouped_shuffling: bool = II("dataset.grouped_shuffling")


@register_task("sentence_stream_translation", dataclass=SentenceStreamTranslationConfig)
class SentenceStreamTranslationTask(DocumentTranslationTask):
    """Translation of ``--batch-size`` documents in parallel lanes, sentence by sentence.

    The task is for architectures that pass a document state from sentence to sentence, such as the
    recurrent memory of Feng et al. (2022).
    """

    task_name = "sentence_stream_translation"
    stored_defaults = {}

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        self.training_states, self.validation_states = LaneStates(), LaneStates()

    def check_options(self) -> None:
        """Refuse options that streams do not support or that would have no effect."""
        if self.cfg.sentence_data:
            raise UserError(
                "--sentence-data is not for streams; add sentence pairs to the training set as "
                "documents of one sentence"
            )
        if self.cfg.word_dropout:
            raise UserError("--word-dropout is not for streams; leave it out")
        if self.cfg.sample_chunk_sentences and self.cfg.chunk_sentences == 1:
            raise UserError(
                "--sample-chunk-sentences draws from 1 to --chunk-sentences, which is 1; give more "
                "--chunk-sentences, or leave it out"
            )

    def check_training_options(self) -> None:
        """Check the training options, and warn about batch-order options, which streams ignore."""
        super().check_training_options()
        _option_checks.report_in_streams(self)

    def examples_decided_by(self) -> dict:
        """Return the options that determine an epoch's examples, such as ``--chunk-sentences``."""
        return {
            **super().examples_decided_by(),
            "--chunk-sentences": self.cfg.chunk_sentences,
            "--sample-chunk-sentences": self.cfg.sample_chunk_sentences,
        }

    def build_model(self, cfg, from_checkpoint=False):
        """Build a model, which must have a document state.

        If ``--chunk-sentences`` is too small for ``--memory-gradient-sentences``, a warning is
        given.

        Raises:
            UserError: the architecture has no document state.
        """
        model = super().build_model(cfg, from_checkpoint)
        if not is_document_recurrent(model):
            raise UserError(
                f"--arch {name_of(cfg)} has no document state; train it with --task "
                "sliding_window_translation, where --window-size 1 is sentence level"
            )
        self.training_states.of_model(model, cfg)
        reach, chunk = getattr(cfg, "memory_gradient_sentences", 0), self.cfg.chunk_sentences
        has_context = not getattr(cfg, "no_context", False)
        if not from_checkpoint and has_context and reach >= chunk:
            logger.warning(
                "--chunk-sentences %d lets no gradient reach the %d sentence(s) before of "
                "--memory-gradient-sentences; give more than that",
                chunk,
                reach,
            )
        return model

    # ---- data ----------------------------------------------------------------------------------

    def training_view(self, corpus: DocumentCorpus, trains: bool) -> StreamView:
        """Return the dataset of training or validation sentences; overlong ones are left out."""
        fits = corpus.within(self.most_tokens)
        return StreamView(corpus, fits, self.formats)

    def get_batch_iterator(self, dataset, *args, **kwargs):
        """Return an iterator over batches.

        In training and validation, these are batches of a stream; in decoding, batches of decoding
        units.

        Raises:
            UserError: ``--batch-size``, the number of lanes of a stream, is missing; or a sentence
                is too long.
        """
        if not isinstance(dataset, StreamView):
            return super().get_batch_iterator(dataset, *args, **kwargs)
        return self._stream_iterator(dataset, *args, **kwargs)

    def _stream_iterator(
        self,
        view: StreamView,
        max_tokens=None,
        max_sentences=None,
        max_positions=None,
        ignore_invalid_inputs=False,
        required_batch_size_multiple=1,
        seed=1,
        num_shards=1,
        shard_id=0,
        num_workers=0,
        epoch=1,
        data_buffer_size=0,
        skip_remainder_batch=False,
        **_,
    ):
        _check_batch_size(max_sentences, max_tokens)
        most = (self.cfg.max_source_positions, self.cfg.max_target_positions)
        kept = view.index.num_sentences
        view.report_left_out(view.too_long, most, ignore_invalid_inputs, kept)
        trains = view is self.datasets.get(self.cfg.train_subset)
        if trains and epoch == 1 and max_sentences * num_shards > view.index.num_documents:
            logger.warning(
                "--batch-size %d makes more lanes than there are documents (%d) in training, so "
                "that some rows of all batches are empty; give a smaller one",
                *(max_sentences, view.index.num_documents),
            )
        batches = view.batches(
            max_sentences,
            self.cfg.chunk_sentences,
            num_shards,
            seed + epoch if trains else None,
            self.cfg.sample_chunk_sentences and trains,
        )
        iterator = StreamIterator(
            dataset=view,
            collate_fn=view.collater,
            batch_sampler=batches,
            seed=seed,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            epoch=epoch,
            buffer_size=data_buffer_size,
            skip_remainder_batch=skip_remainder_batch,
            lane_states=self.training_states if trains else None,
            decided_by={
                "--batch-size": max_sentences,
                "--seed": seed,
                **self.batches_decided_by(view),
            },
        )
        self.validation_bleu.begin(view, iterator)
        self.end_if_done(view, iterator)
        return iterator

    # ---- training ------------------------------------------------------------------------------

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        """Run the training step, starting from the document states after the previous batch."""
        states = self.training_states
        with states.of_batch(sample, model, update_num, not ignore_grad) as batch:
            result = super().train_step(
                batch, model, criterion, optimizer, update_num, ignore_grad=ignore_grad
            )
        return _without_fillers(sample, criterion, result)

    def optimizer_step(self, optimizer, model, update_num):
        """Update the parameters, and gather document states if a checkpoint is due.

        The states of all processes are gathered if ``--save-interval-updates`` or ``--max-update``
        demands a checkpoint after this update.  All other checkpoints follow a validation, which
        gathers the states when it begins.
        """
        super().optimizer_step(optimizer, model, update_num)
        done, interval = update_num + 1, self.cfg.save_interval_updates
        if done == self.cfg.max_update or (interval > 0 and done % interval == 0):
            self.training_states.gather()

    def begin_valid_epoch(self, epoch, model):
        """Begin validation, and gather the training document states of all processes.

        The checkpoint that usually follows validation stores these states.
        """
        super().begin_valid_epoch(epoch, model)
        self.training_states.gather()

    def valid_step(self, sample, model, criterion):
        """Run the validation step, starting from the document states after the previous batch."""
        # Only a single batch is ever run again, if memory runs out.
        with self.validation_states.of_batch(sample, model, update=sample["step"]) as batch:
            result = super().valid_step(batch, model, criterion)
        return _without_fillers(sample, criterion, result)

    def validation_units(self, sample) -> dict:
        """Convert a validation batch into a sample to decode; drop rows without a sentence."""
        return units_of_stream(sample, self)


def _without_fillers(sample, criterion, result):
    """Return the result of a criterion, with the number of sentences corrected for filler rows.

    Args:
        sample: batch of a stream.  Filler rows, which stand for lanes that have no sentence left,
            have a negative ``id``.
        criterion: training criterion.
        result: loss, sample size and logging output that the criterion returned for the batch.
    """
    loss, sample_size, logging_output = result
    sentences = int(sample["id"].ge(0).sum())
    logging_output["nsentences"] = sentences
    if getattr(criterion, "sentence_avg", False):
        sample_size = logging_output["sample_size"] = sentences
    return loss, sample_size, logging_output


def _check_batch_size(max_sentences: Optional[int], max_tokens: Optional[int]) -> None:
    """Check ``--batch-size``, and warn if ``--max-tokens``, which has no effect, is given.

    Raises:
        UserError: ``--batch-size``, the number of lanes of a stream, is missing.
    """
    if max_sentences is None:
        raise UserError(
            "give --batch-size, the number of documents to read side by side; --max-tokens has no "
            "effect on streams, which read the same number of sentences from each"
        )
    if max_tokens is not None:
        logger.warning("--max-tokens does not limit the batches of a stream, --batch-size does")
