"""Training and validation data whose examples are spans: consecutive sentences that are joined."""

import logging
from functools import partial
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq.data import LanguagePairDataset
from torch import Tensor

from fairseq_docmt.data.corpus import DocumentCorpus
from fairseq_docmt.data.sequence_format import Formats, SequenceFormat
from fairseq_docmt.data.supporting_words import SupportingWords, collate
from fairseq_docmt.errors import UserError
from fairseq_docmt.spans import Spans

logger = logging.getLogger(__name__)


#: options that limit the number of tokens of a sentence
LIMITS = "--max-source-positions, --max-target-positions, --max-tokens"


class JoinedSentences(torch.utils.data.Dataset):
    """Dataset of one side of a corpus, in which each item is a sequence of joined sentences.

    Args:
        sentences: lines of the side, each ending in ``</s>``.
        sizes: (sentences,) number of tokens of each sentence.
        index: index of sentences and documents.
        spans: (items, 2) first sentence of each item, and the sentence after its last.
        format: format of the sequences of this side.
        firsts: numbers of the sentences that begin a document.
    """

    def __init__(self, sentences, sizes, index, spans, format: SequenceFormat, firsts):
        self.sentences = sentences
        self.line_ids = index.line_ids
        self.spans = spans
        self.format = format
        #: (items,) whether an item begins a document
        self.at_start = np.isin(spans[:, 0], firsts)
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        added = [len(format.start(at_start)) + len(format.after) for at_start in (False, True)]
        self.sizes = ends[spans[:, 1]] - ends[spans[:, 0]] + np.where(self.at_start, *added[::-1])
        self._sizes = np.asarray(sizes)
        # fairseq can prefetch only plain memory-mapped datasets.
        self.supports_prefetch = False

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, item: int) -> Tensor:
        first, end = self.spans[item].tolist()
        parts = [self.sentences[line_id] for line_id in self.line_ids[first:end].tolist()]
        return self.format.join(parts, self.at_start[item])

    def positions(self, item: int) -> Dict[int, range]:
        """Return where the sentences of an item are in its sequence.

        Returns:
            Line id of each sentence -> range of its token positions, end symbol included.
        """
        first, end = self.spans[item].tolist()
        places = self.format.places(self._sizes[first:end].tolist(), self.at_start[item])
        return {line: range(*of) for line, of in zip(self.line_ids[first:end].tolist(), places)}


class DocumentView(LanguagePairDataset):
    """Dataset whose examples are spans of a corpus: consecutive sentences joined into a sequence.

    Unlike fairseq's dataset, it never drops an example when batches are made.

    Args:
        corpus: corpus of the split.
        spans: (items, 2) first sentence of each example and the sentence after its last (see
            :mod:`fairseq_docmt.spans`), or a function that draws the spans of an epoch with a
            random generator.
        seed: seed of the random choices in each epoch.
        loss_on_last: whether the loss is computed on the last sentence of each span only.
        id_of_last: whether the ``id`` of an example is the line id of its last sentence, and not
            that of its first.
        formats: formats of both sides; by default without tags and ``<bod>``.
        fits: (sentences,) bool, False for sentences that are too long; None if all fit.
        source_spans: function that extends the spans by further sentences at the end, which only
            the source side contains; None if both sides have the same spans.
        coword_dropout: probability of replacing a word of the last source sentence of a span by
            ``<unk>``, drawn anew for each epoch (Fernandes et al. 2021).
        word_dropout: probability of replacing a word of the source and of the decoder's input by
            ``<unk>``, drawn anew for each epoch (code of Bao et al., 2021).
        word_dropout_epochs: number of epochs with ``word_dropout``, 0 for all.

    Attributes:
        too_long: lines of the sentences that are in no span because they are too long.
        supporting_words: words of the corpus that show how to translate ambiguous words.  Each
            example gets those in its span, under the key ``supporting_words``.  None if the
            training does not use them.
    """

    #: whether the context of a sentence is in its example, and not in a document state
    has_context = True

    too_long: Sequence[int] = ()
    supporting_words: Optional[SupportingWords] = None

    def __init__(
        self,
        corpus: DocumentCorpus,
        spans: Spans,
        *,
        seed: int = 1,
        loss_on_last: bool = False,
        id_of_last: bool = True,
        formats: Optional[Formats] = None,
        fits: Optional[np.ndarray] = None,
        source_spans: Optional[Callable[[np.ndarray], np.ndarray]] = None,
        coword_dropout: float = 0.0,
        word_dropout: float = 0.0,
        word_dropout_epochs: int = 0,
    ):
        self.formats = formats or Formats.of(corpus.pairs.src_dict, corpus.pairs.tgt_dict)
        self.name = corpus.name
        self.corpus, self.index = corpus, corpus.index
        self.seed, self.epoch = seed, 1
        self.id_of_last = id_of_last
        self.loss_on_last = loss_on_last
        read = corpus.index if fits is None else corpus.index.without(~fits)
        #: sentences that begin a document as it is read
        self._firsts = np.searchsorted(self.index.line_ids, read.line_ids[read.starts[:-1]])
        self.coword_dropout = coword_dropout
        self.word_dropout, self.word_dropout_epochs = word_dropout, word_dropout_epochs
        self.num_shards = 1
        self._source_spans_of = source_spans
        self._draw = spans if callable(spans) else None
        self._read(self._drawn() if self._draw else spans)

    def _drawn(self) -> np.ndarray:
        """Draw the spans of the examples at random, with the seed of the current epoch."""
        return self._draw(random=np.random.RandomState(self._epoch_seed()))

    def _epoch_seed(self) -> list:
        return [self.seed % 2**32, self.epoch]

    def _read(self, spans: np.ndarray) -> None:
        """Build the examples of the dataset from (examples, 2) spans of sentences."""
        corpus, pairs = self.corpus, self.corpus.pairs
        of_source = self._source_spans_of
        self.source_spans = of_source(spans) if of_source else spans
        index, formats, firsts = corpus.index, self.formats, self._firsts
        source = (pairs.src, corpus.src_sizes, index, self.source_spans)
        src = JoinedSentences(*source, formats.source, firsts)
        target = (pairs.tgt, corpus.tgt_sizes, index, spans)
        tgt = JoinedSentences(*target, formats.target, firsts)
        super().__init__(
            src,
            src.sizes,
            pairs.src_dict,
            tgt,
            tgt.sizes,
            pairs.tgt_dict,
            left_pad_source=pairs.left_pad_source,
            left_pad_target=pairs.left_pad_target,
            shuffle=pairs.shuffle,
            eos=formats.target.first_token,
            pad_to_multiple=pairs.pad_to_multiple,
        )
        self.spans = spans
        last = spans[:, 1] - 1
        self.ids = corpus.index.line_ids[last if self.id_of_last else spans[:, 0]]
        self.last_sizes = corpus.tgt_sizes[last]

    @property
    def can_reuse_epoch_itr_across_epochs(self) -> bool:
        """Whether all epochs have the same examples.

        If not, each epoch needs a new iterator, so that the worker processes get the new examples.
        """
        return self._draw is None and self.coword_dropout == 0 and self.word_dropout == 0

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch; if spans are drawn at random, draw the spans of this epoch."""
        super().set_epoch(epoch)
        if epoch != self.epoch:
            self.epoch = epoch
            if self._draw is not None:
                self._read(self._drawn())

    def share_among(self, processes: int) -> None:
        """Set the number of processes among which :meth:`batch_by_size` divides the batches."""
        self.num_shards = processes

    def __getitem__(self, item: int) -> dict:
        example = super().__getitem__(item)
        example["id"] = int(self.ids[item])
        if self.coword_dropout > 0:
            example["source"] = self._without_some_words(item, example["source"])
        if self._drops_words or self.loss_on_last:
            example["prev_output_tokens"] = example["target"].roll(1)
            example["prev_output_tokens"][0] = self.eos
        if self._drops_words:
            self._drop_words_of_both_sides(item, example)
        if self.loss_on_last:
            target = example["target"].clone()
            target[: -int(self.last_sizes[item])] = self.tgt_dict.pad()
            example["target"] = target
        if self.supporting_words is not None:
            source, target = self.src.positions(item), self.tgt.positions(item)
            with_loss = list(target)[-1:] if self.loss_on_last else target
            example["supporting_words"] = self.supporting_words.links(source, target, with_loss)
        return example

    def collater(self, samples, pad_to_length=None) -> dict:
        """Collate examples as fairseq does, and add their ``supporting_words``, if there are any.

        These are converted from positions in an example to positions in the batch.
        """
        if self.supporting_words is None or not samples:
            return super().collater(samples, pad_to_length=pad_to_length)
        stock = partial(super().collater, pad_to_length=pad_to_length)
        batch, order = sample_and_order(samples, stock)
        rows = [samples[number] for number in order.tolist()]
        width = batch["net_input"]["src_tokens"].size(1)
        shifts = [width - len(row["source"]) if self.left_pad_source else 0 for row in rows]
        batch["supporting_words"] = collate([row["supporting_words"] for row in rows], shifts)
        return batch

    def _without_some_words(self, item: int, source: Tensor) -> Tensor:
        """Return the source of an example with random words replaced by ``<unk>``.

        Only words in the last sentence of the span are replaced, each with the probability
        ``coword_dropout``.
        """
        last_line = int(self.corpus.index.line_ids[self.spans[item, 1] - 1])
        place = self.src.positions(item)[last_line]
        first, end = place.start, place.stop - 1
        random = np.random.RandomState([*self._epoch_seed(), item])
        dropped = torch.from_numpy(random.rand(end - first) < self.coword_dropout)
        source = source.clone()
        source[first:end][dropped] = self.src_dict.unk()
        return source

    @property
    def _drops_words(self) -> bool:
        """Whether ``word_dropout`` is applied in the current epoch."""
        last = self.word_dropout_epochs or self.epoch
        return self.word_dropout > 0 and self.epoch <= last

    def _drop_words_of_both_sides(self, item: int, example: dict) -> None:
        """Replace random words of an example by ``<unk>``, in the source and the decoder's input.

        Symbols and language tags are kept.

        Args:
            item: number of the example.
            example: the example, changed in place.
        """
        random = np.random.RandomState([*self._epoch_seed(), item, 1])
        for side, format in zip(("source", "prev_output_tokens"), self.formats):
            tokens = example[side]
            dropped = torch.from_numpy(random.rand(len(tokens)) < self.word_dropout)
            dropped &= ~torch.isin(tokens, torch.tensor(format.symbols))
            example[side] = tokens.masked_fill(dropped, format.dictionary.unk())

    def report_left_out(
        self, lines: Sequence[int], most: Tuple[int, int], ignore: bool, kept: int
    ) -> None:
        """Warn about sentences that are too long for the model, or refuse them.

        Args:
            lines: lines of these sentences, counted from 0; empty if there are none.
            most: maximum number of source tokens and of target tokens.
            ignore: True to log a warning that the sentences are left out, False to refuse them.
            kept: number of examples that remain without these sentences.

        Raises:
            UserError: there are such sentences, and ``ignore`` is False or no example remains.
        """
        if not lines:
            return
        place = self.corpus.place(lines[0])
        problem = f"{place} has more than {most[0]} source or {most[1]} target tokens"
        if not ignore:
            raise UserError(
                f"{problem}; split it, allow more ({LIMITS}), or leave it out with "
                "--skip-invalid-size-inputs-valid-test"
            )
        if kept == 0:
            raise UserError(
                f"{self.name}: all sentences have more than {most[0]} source or {most[1]} target "
                f"tokens; split them, or allow more ({LIMITS})"
            )
        logger.warning("%s; %d such sentences are left out", problem, len(lines))

    def line_ids_of(self, item: int) -> list:
        """Return the line ids of the sentences that an example stands for.

        With ``id_of_last``, this is only the last sentence of its span, otherwise all of them.
        """
        first, end = self.spans[item].tolist()
        return self.index.line_ids[end - 1 if self.id_of_last else first : end].tolist()

    def batch_by_size(
        self,
        indices,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        required_batch_size_multiple: int = 1,
    ) -> list:
        """Batch as fairseq does, but keep every example and divide batches evenly among processes.

        The required fairseq version drops the last batch if its size is not a multiple of
        ``--required-batch-size-multiple``; here it is kept.  Batches are then halved until all
        processes get the same number.  Otherwise a process without a batch would run a dummy batch,
        which with ``--update-freq`` would distort the statistics of its other batches.

        Raises:
            UserError: an example has more than ``max_tokens`` tokens.
        """
        if max_tokens is not None:
            self._refuse_larger(indices, max_tokens)
        batches = list(
            super().batch_by_size(indices, max_tokens, max_sentences, required_batch_size_multiple)
        )
        kept = sum(len(batch) for batch in batches)
        if kept < len(indices):
            batches.append(np.asarray(indices[kept:]))
        return even_batches(batches, self.num_shards)

    def _refuse_larger(self, indices, max_tokens: int) -> None:
        sizes = self.num_tokens_vec(indices)
        larger = np.flatnonzero(sizes > max_tokens)
        if len(larger) > 0:
            place = self.corpus.place(self.ids[indices[larger[0]]])
            raise UserError(
                f"{place}: its example has {sizes[larger[0]]} tokens, but a batch has at most "
                f"{max_tokens} (--max-tokens, in validation --max-tokens-valid); give at least "
                f"{sizes.max()}"
            )


def even_batches(batches: list, multiple: int) -> list:
    """Halve the largest batches until the number of batches is a multiple of ``multiple``.

    If all batches have become single items before that, the number stays as it is.
    """
    while len(batches) % multiple != 0:
        largest = max(range(len(batches)), key=lambda i: len(batches[i]))
        batch = batches[largest]
        if len(batch) < 2:
            break
        middle = len(batch) // 2
        batches[largest : largest + 1] = [batch[:middle], batch[middle:]]
    return batches


def sample_and_order(
    examples: List[dict], collate: Callable[[List[dict]], dict]
) -> Tuple[dict, Tensor]:
    """Collate examples as fairseq does, and also return which example each row contains.

    Args:
        examples: examples of a fairseq dataset; several of them may have the same ``id``.
        collate: fairseq's collater, which sorts examples by length.

    Returns:
        The batch, and (rows,) index in ``examples`` of the example in each row.
    """
    # Numbers in place of ids survive the sorting.
    sample = collate([{**example, "id": number} for number, example in enumerate(examples)])
    order = sample["id"]
    sample["id"] = torch.tensor([example["id"] for example in examples])[order]
    return sample, order


def sample_in_order(examples: List[dict], collate: Callable[[List[dict]], dict]) -> dict:
    """Collate examples as fairseq does, but without sorting them by length.

    Args:
        examples, collate: see :func:`sample_and_order`.

    Returns:
        The batch, whose rows are in the order of the examples.
    """
    sample, order = sample_and_order(examples, collate)
    rows = order.argsort()
    net_input: Dict[str, Tensor] = sample["net_input"]
    for key in ("src_tokens", "src_lengths", "prev_output_tokens"):
        if key in net_input:
            net_input[key] = net_input[key][rows]
    if sample["target"] is not None:
        sample["target"] = sample["target"][rows]
    sample["id"] = sample["id"][rows]
    return sample
