"""Data of the document tasks: training examples, sentences to decode, and their batches."""

import logging
import math
import os
from typing import Callable, Dict, Iterable, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq import utils

from fairseq_docmt.data import (
    DocumentCorpus,
    DocumentIndex,
    DocumentView,
    open_corpus,
)
from fairseq_docmt.data.corpus import cut
from fairseq_docmt.data.iterators import ResumableIterator
from fairseq_docmt.data.text_checks import check_split
from fairseq_docmt.errors import UserError
from fairseq_docmt.spans import Spans
from fairseq_docmt.tasks import (
    _text_folders,
    _training_examples,
)
from fairseq_docmt.tasks._decoding_input import TypedLines
from fairseq_docmt.tasks._training_text import PreparedTextTask
from fairseq_docmt.text_form import checksum

logger = logging.getLogger(__name__)

#: key of the checksums of files in checkpoints
FILES_KEY = "files_of_examples"


class DocumentDataTask(PreparedTextTask):
    """Translation task that reads documents from binarised data or from input lines.

    Documents are divided into spans, which are ranges of consecutive sentences.  A subclass defines
    the spans that are training examples (:meth:`training_spans`) and the spans that are translated
    together in decoding (:meth:`parts`).
    """

    def __init__(self, cfg, src_dict, tgt_dict):
        super().__init__(cfg, src_dict, tgt_dict)
        #: option -> name of a file -> its checksum
        self._files_of_examples: Dict[str, Dict[str, str]] = {}

    def training_spans(self, corpus: DocumentCorpus, trains: bool) -> Spans:
        """Return the span of sentences of each training or validation example.

        Args:
            corpus: corpus of the split.
            trains: True for the training set, whose spans may be drawn anew for each epoch.

        Returns:
            (examples, 2) first sentence and exclusive end of each span, or a function that draws
            such spans.
        """
        raise NotImplementedError

    def parts(self, index: DocumentIndex, src_sizes: np.ndarray) -> np.ndarray:
        """Cut the documents into spans, each of which is translated as a whole.

        Args:
            index: sentences and documents.
            src_sizes: (sentences,) number of source tokens.

        Returns:
            (parts, 2) first sentence and exclusive end of each span.
        """
        raise NotImplementedError

    @property
    def reads_context(self) -> bool:
        """Whether the model reads other sentences of a document to translate a sentence."""
        return True

    def source_spans(
        self, index: DocumentIndex, src_sizes, tgt_sizes=None
    ) -> Optional[Callable[[np.ndarray], np.ndarray]]:
        """Return a function that extends the source side of spans by the sentences that follow.

        The function takes and returns spans of shape (spans, 2).  The base class returns None,
        which means that source and target have the same spans.

        Args:
            index: sentences and documents.
            src_sizes, tgt_sizes: (sentences,) number of tokens; tgt_sizes is None in decoding.
        """
        return None

    def view_options(self, trains: bool) -> dict:
        """Return the keyword arguments of :class:`DocumentView` that depend on the task.

        A ``DocumentView`` is the dataset of training or validation examples.

        Args:
            trains: True for the training set, False for validation.
        """
        return {}

    def training_view(self, corpus: DocumentCorpus, trains: bool) -> DocumentView:
        """Return the dataset of training or validation examples.

        The sentence pairs of ``--sentence-data``, if given, are added to the training set.

        Args:
            corpus: corpus of the split.
            trains: True for the training set, False for validation.

        Raises:
            UserError: the sentence pairs to mix in are missing or damaged, or were binarised with
                other dictionaries.
        """
        spans = self.training_spans(corpus, trains)
        if trains:
            corpus, spans = _training_examples.mixed(self, corpus, spans)
        limits = self.limits(corpus.src_sizes, corpus.tgt_sizes)
        return DocumentView(
            corpus,
            spans,
            seed=self.cfg.seed,
            source_spans=self.source_spans(corpus.index, corpus.src_sizes, corpus.tgt_sizes),
            formats=self.formats,
            fits=corpus.within([most for _, most in limits]),
            word_dropout=self.cfg.word_dropout if trains else 0.0,
            word_dropout_epochs=self.cfg.word_dropout_epochs,
            **self.view_options(trains),
        )

    @property
    def most_tokens(self) -> Tuple[int, int]:
        """Maximum numbers of tokens of a source sentence and of a target sentence.

        They are the maximum positions minus the language tags and ``<bod>`` that a sequence may
        get.
        """
        limits = (self.cfg.max_source_positions, self.cfg.max_target_positions)
        source, target = (most - added for most, added in zip(limits, self.added_tokens))
        return source, target

    @property
    def longest_source(self) -> Optional[int]:
        """Number of tokens to which ``--truncate-source`` cuts sources; None without the option."""
        if not self.cfg.truncate_source:
            return None
        return self.most_tokens[0]

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Load a split, either as training or validation examples or as sentences to decode.

        Raises:
            UserError: files are missing, damaged or empty, or source and target do not match.
        """
        paths = utils.split_paths(self.cfg.data)
        path = paths[(epoch - 1) % len(paths)] if split == self.cfg.train_subset else paths[0]
        name = os.path.join(path, f"{split}.{self.cfg.source_lang}-{self.cfg.target_lang}")

        def load_pairs():
            super(DocumentDataTask, self).load_dataset(split, epoch, combine, **kwargs)
            return self.datasets[split]

        languages = (self.cfg.source_lang, self.cfg.target_lang)
        check_split(path, split, languages, combine)
        corpus = open_corpus(name, load_pairs, self.longest_source, self.added_symbols)
        _text_folders.check_corpus(self, corpus)
        if self.cfg.checkpoint_to_decode:
            drafts = self.drafts_of(corpus)
            self.datasets[split] = self._decoding_input.units_of_corpus(corpus, drafts)
        elif corpus.tgt_sizes is None:
            raise UserError(f"{name} has no target side; training and validation need one")
        else:
            trains = split == self.cfg.train_subset and not self.trained
            if trains:
                self.learn_from(corpus)
            view = self.datasets[split] = self.training_view(corpus, trains)
            if self.reads_context and isinstance(view, DocumentView) and view.has_context:
                _text_folders.check_examples(view)
            if self._regularized_attention:
                required = trains and path == paths[0]
                _training_examples.add_to(view, corpus, self._regularized_attention, required)

    def remember_files(self, option: str, paths: Iterable[str]) -> None:
        """Store checksums of files beside the corpus, and warn if training began with others.

        Without this, training would go on with other examples if files of the same name changed.

        Args:
            option: option that names the files.
            paths: the files.
        """
        found = {os.path.basename(path): checksum(path) for path in paths}
        known = self._files_of_examples.get(option, {})
        if self.start is not None and self.start.resumes and not known.keys() >= found.keys():
            before = self.start.file.task_state.get(FILES_KEY, {}).get(option, {})
            changed = [name for name in found if before.get(name, found[name]) != found[name]]
            if changed:
                logger.warning(
                    "training goes on with other files of %s than before, which changed: %s",
                    *(option, ", ".join(changed)),
                )
        self._files_of_examples[option] = {**known, **found}
        self.state.merge_state_dict({FILES_KEY: self._files_of_examples})

    def learn_from(self, corpus: DocumentCorpus) -> None:
        """Compute statistics of the training corpus for decoding, such as the length ratio.

        The base class computes none; a subclass that needs some overrides this.
        """

    @property
    def most_batch_tokens(self) -> Optional[int]:
        """Token limit of a batch (``--max-tokens``), to which examples are cut; None for no limit.

        Raises:
            UserError: batches of validation are smaller.
        """
        cfg = self.cfg
        if not cfg.disable_validation and (cfg.max_valid_tokens or math.inf) < (
            cfg.max_batch_tokens or 0
        ):
            raise UserError(
                f"--max-tokens-valid {cfg.max_valid_tokens} is too small: examples of validation "
                f"are cut as those of training, to --max-tokens {cfg.max_batch_tokens}; give at "
                "least as many"
            )
        return cfg.max_batch_tokens

    def limits(self, src_sizes, tgt_sizes=None) -> list:
        """Return the token limits of a span, as a list of pairs (sentence sizes, maximum).

        Each pair means that the sizes of the sentences of a span may add up to at most the maximum,
        which follows from the maximum positions.  In training, there is a pair for the source and
        one for the target, and the token limit of a batch applies too.  In decoding, only the
        source is limited.

        Args:
            src_sizes, tgt_sizes: (sentences,) number of tokens; tgt_sizes is None in decoding.
        """
        if tgt_sizes is None:
            return [(src_sizes, self.most_tokens[0])]
        most, batch = self.most_tokens, self.most_batch_tokens
        if batch:
            most = [min(limit, batch - added) for limit, added in zip(most, self.added_tokens)]
        return list(zip((src_sizes, tgt_sizes), most))

    def drafts_of(self, corpus: DocumentCorpus) -> Optional[Sequence[torch.Tensor]]:
        """Return draft translations of the lines of a corpus, or None for a task without drafts."""
        return None

    def get_interactive_tokens_and_lengths(self, lines, encode_fn):
        """Tokenize input lines, and return a list of their tokens and a list of their lengths.

        Raises:
            UserError: a line is too long, is not UTF-8 or has no tokens after tokenization; or the
                tokenizer cannot be used.
        """
        encoded = self._decoding_input.encoded(lines, encode_fn)
        return super().get_interactive_tokens_and_lengths(encoded, str)

    def build_dataset_for_inference(self, src_tokens, src_lengths, constraints=None):
        """Return a dataset of input lines; they are grouped into documents when batches are made.

        Raises:
            UserError: a line or its constraints contain a symbol that is reserved for the model.
        """
        self._decoding_input.check(src_tokens, constraints)
        self._decoding_input.text.read(src_tokens)
        if self.longest_source is not None:
            src_tokens = [cut(line, self.longest_source) for line in src_tokens]
            src_lengths = [len(line) for line in src_tokens]
        return TypedLines(src_tokens, src_lengths, self.src_dict, constraints=constraints)

    def get_batch_iterator(self, dataset, *args, disable_iterator_cache=False, **kwargs):
        """Return an iterator over batches of examples, or of decoding units if the task decodes.

        Raises:
            UserError: a sentence to decode exceeds the maximum positions of the model, and
                ``--skip-invalid-size-inputs-valid-test`` is not given.
        """
        if isinstance(dataset, DocumentView):
            dataset.share_among(kwargs.get("num_shards", 1))
            batches = super().get_batch_iterator(
                dataset, *args, disable_iterator_cache=disable_iterator_cache, **kwargs
            )
            if not isinstance(batches, ResumableIterator):
                batches = ResumableIterator.of_stock(
                    batches, {**_decided_by(kwargs), **self.batches_decided_by(dataset)}
                )
            if dataset in self.dataset_to_epoch_iter:
                self.dataset_to_epoch_iter[dataset] = batches
            self.validation_bleu.begin(dataset, batches)
            self.end_if_done(dataset, batches)
            return batches
        if isinstance(dataset, TypedLines):
            # Only the Python interface disables the cache; each of its calls has new documents.
            return self._decoding_input.of_lines(
                dataset, *args, new_document=disable_iterator_cache, **kwargs
            )
        return self._decoding_input.of_corpus(dataset, *args, **kwargs)

    def batches_decided_by(self, view: DocumentView) -> dict:
        """Return what determines the examples of an epoch, as name -> value: options and the text.

        Checkpoints store it, because an interrupted epoch cannot be resumed after it has changed.

        Args:
            view: training examples.
        """
        return {**self.examples_decided_by(), "text of checksum": view.corpus.checksum}

    def end_if_done(self, dataset: DocumentView, batches: ResumableIterator) -> None:
        """End a resumed training run at once if it has reached a limit such as ``--max-update``.

        Otherwise fairseq would do one more update.
        """
        if self._limit_reached and dataset is self.datasets.get(self.cfg.train_subset):
            logger.info(
                f"nothing is left to train: {self.start.file.path} has reached "
                f"{self._limit_reached}; give a higher value to train on"
            )
            batches.ended, self._limit_reached = True, None

    def filter_indices_by_size(
        self, indices, dataset, max_positions=None, ignore_invalid_inputs=False
    ):
        """Return the indices of the examples that fit the model, and warn about those left out.

        Raises:
            UserError: no example fits; or an example does not fit, and the option
                ``--skip-invalid-size-inputs-valid-test`` is not given.
        """
        if not isinstance(dataset, DocumentView):
            return super().filter_indices_by_size(
                indices, dataset, max_positions, ignore_invalid_inputs
            )
        kept, ignored = dataset.filter_indices_by_size(indices, max_positions)
        lines = sorted([*dataset.too_long, *(int(dataset.ids[item]) for item in ignored)])
        dataset.report_left_out(lines, max_positions, ignore_invalid_inputs, len(kept))
        return kept


def _decided_by(batching: dict) -> dict:
    """Return the batching options (name -> value) that determine the batches of an epoch.

    Args:
        batching: keyword arguments of ``get_batch_iterator``.
    """
    names = {
        "--max-tokens": "max_tokens",
        "--batch-size": "max_sentences",
        "--required-batch-size-multiple": "required_batch_size_multiple",
        "--seed": "seed",
        "--distributed-world-size": "num_shards",
    }
    return {option: batching[name] for option, name in names.items() if name in batching}
