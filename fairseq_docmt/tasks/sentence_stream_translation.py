"""``--task sentence_stream_translation``: documents sentence by sentence, with what they carry."""

import logging
from dataclasses import dataclass, field
from typing import Optional

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task
from omegaconf import II

from fairseq_docmt.data import DocumentCorpus, DocumentIndex
from fairseq_docmt.data.stream_view import StreamIterator, StreamView
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.validation_units import units_of_stream
from fairseq_docmt.models.interface import is_document_recurrent
from fairseq_docmt.tasks._base import DocumentTranslationTask
from fairseq_docmt.tasks._config import DocumentTranslationConfig
from fairseq_docmt.tasks._lane_states import LaneStates

logger = logging.getLogger(__name__)


# fairseq reads these annotations at run time: keep typing.Optional and ChoiceEnum here.
@dataclass
class SentenceStreamTranslationConfig(DocumentTranslationConfig):
    decoding: Optional[ChoiceEnum(["stream"])] = field(
        default=None,
        metadata={"help": "documents side by side, each sentence with what its document carries"},
    )
    chunk_sentences: int = field(
        default=1,
        metadata={"help": "consecutive sentences of each of --batch-size documents in a batch"},
    )
    random_chunk: bool = field(
        default=False,
        metadata={"help": "draw that number anew for each batch, from 1 to --chunk-sentences"},
    )
    save_interval_updates: int = II("checkpoint.save_interval_updates")
    max_update: int = II("optimization.max_update")


@register_task("sentence_stream_translation", dataclass=SentenceStreamTranslationConfig)
class SentenceStreamTranslationTask(DocumentTranslationTask):
    """``--batch-size`` documents side by side in lanes, each sentence after the one before it.

    For architectures that carry something from sentence to sentence, as the recurrent memory of
    Feng et al. (2022).
    """

    task_name = "sentence_stream_translation"
    decodings = ["stream"]
    stored_defaults = {}

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        self.training_states, self.validation_states = LaneStates(), LaneStates()

    def check_options(self) -> None:
        if self.cfg.chunk_sentences < 1:
            raise UserError(
                f"--chunk-sentences must be at least 1 sentence, got {self.cfg.chunk_sentences}"
            )

    def build_model(self, cfg, from_checkpoint=False):
        """Build a model that carries something.

        Raises:
            UserError: the architecture does not.
        """
        model = super().build_model(cfg, from_checkpoint)
        if not is_document_recurrent(model):
            raise UserError(
                f"--arch {cfg.arch} carries nothing from sentence to sentence; train it with "
                "--task sliding_window_translation, where --window-size 1 has sentences alone"
            )
        return model

    # ---- data ----------------------------------------------------------------------------------

    def training_view(self, corpus: DocumentCorpus) -> StreamView:
        fits = np.ones(corpus.index.num_sentences, dtype=bool)
        marks = int(self.options["mark_document_start"])
        for sizes, most in (
            (corpus.src_sizes, self.cfg.max_source_positions),
            (corpus.tgt_sizes, self.cfg.max_target_positions),
        ):
            fits &= sizes + marks <= most
        mark = self.options["mark_document_start"]
        return StreamView(
            corpus, corpus.index.without(~fits), mark, too_long=corpus.index.rows[~fits].tolist()
        )

    def decoding_spans(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        sentences = np.arange(index.num_sentences)
        return np.stack([sentences, sentences + 1], axis=1)

    def window_to_decode(self) -> int:
        return 1

    def keeps_order(self) -> bool:
        return True

    def get_batch_iterator(self, dataset, *args, **kwargs):
        """Batches of a stream, or of sentences to translate.

        Raises:
            UserError: the number of lanes is not given, or a sentence is too long to translate.
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
        if max_sentences is None:
            raise UserError(
                "give --batch-size, the number of documents to read side by side; --max-tokens "
                "cannot hold for a stream, where every document moves on by the same sentences"
            )
        if max_tokens is not None:
            logger.warning("--max-tokens does not limit the batches of a stream, --batch-size does")
        self._report_left_out(view, ignore_invalid_inputs)
        trains = view is self.datasets.get(self.cfg.train_subset)
        batches = view.batches(
            max_sentences,
            self.cfg.chunk_sentences,
            num_shards,
            seed + epoch if trains else None,
            self.cfg.random_chunk and trains,
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
                "--chunk-sentences": self.cfg.chunk_sentences,
                "--random-chunk": self.cfg.random_chunk,
                "--seed": seed,
            },
        )
        self._iterated = view, iterator
        return iterator

    def _report_left_out(self, view: StreamView, ignore: bool) -> None:
        if not view.too_long:
            return
        problem = (
            f"{view.name}: line {view.too_long[0] + 1} is longer than --max-source-positions "
            f"{self.cfg.max_source_positions} or --max-target-positions "
            f"{self.cfg.max_target_positions}"
        )
        if not ignore:
            raise UserError(
                f"{problem}; split it, or leave it out with --skip-invalid-size-inputs-valid-test"
            )
        logger.warning("%s; %d such sentences are left out", problem, len(view.too_long))

    # ---- training ------------------------------------------------------------------------------

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        """Stock training step on a batch and what is carried into it."""
        with self.training_states.of_batch(sample, model, update_num, not ignore_grad) as batch:
            result = super().train_step(
                batch, model, criterion, optimizer, update_num, ignore_grad=ignore_grad
            )
        return _without_fillers(sample, criterion, result)

    def optimizer_step(self, optimizer, model, update_num):
        """Stock step; where it is known that a checkpoint follows, processes tell their carries."""
        super().optimizer_step(optimizer, model, update_num)
        done, interval = update_num + 1, self.cfg.save_interval_updates
        if done == self.cfg.max_update or (interval > 0 and done % interval == 0):
            self.training_states.gather()

    def begin_valid_epoch(self, epoch, model):
        """Stock hook; validation comes before most checkpoints."""
        super().begin_valid_epoch(epoch, model)
        self.training_states.gather()

    def valid_step(self, sample, model, criterion):
        """Stock validation step on a batch and what is carried into it."""
        with self.validation_states.of_batch(sample, model) as batch:
            result = super().valid_step(batch, model, criterion)
        return _without_fillers(sample, criterion, result)

    def validation_units(self, sample) -> dict:
        return units_of_stream(sample, self)


def _without_fillers(sample, criterion, result):
    """What a criterion returns, its numbers of sentences without the fillers it counts as rows."""
    loss, sample_size, logging_output = result
    sentences = int(sample["id"].ge(0).sum())
    logging_output["nsentences"] = sentences
    if getattr(criterion, "sentence_avg", False):
        sample_size = logging_output["sample_size"] = sentences
    return loss, sample_size, logging_output
