"""Conversion of corpora and interactive input into batches of decoding units.

A decoding unit consists of consecutive sentences that are translated together.
"""

import logging
from typing import Callable, Dict, Iterable, List, Optional

import numpy as np
import torch
from fairseq.data import LanguagePairDataset, iterators
from fairseq.token_generation_constraints import unpack_constraints
from torch import Tensor

from fairseq_docmt.data import DecodingUnits, DocumentCorpus, DocumentIndex, Lines
from fairseq_docmt.data.decoding_units import OpenDocument
from fairseq_docmt.data.text_checks import Symbols, check_unicode
from fairseq_docmt.document_index import BLANK_SIZE
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation.search import DecodingProgress
from fairseq_docmt.tasks._text_folders import TypedText

logger = logging.getLogger(__name__)

#: characters of an input line; in longer ones tokenizers do not end
LONGEST = 500_000


class TypedLines(LanguagePairDataset):
    """Dataset of input lines, blank or not, of fairseq-interactive or the Python interface."""


class DecodingInput:
    """Converter of corpora and input lines into batches to decode.

    Input lines may come in several calls.  A document that is not finished in one call can continue
    in the next.

    Args:
        task: document task.
    """

    def __init__(self, task):
        self.task = task
        self._open_document = OpenDocument()
        self._typed_samples: List[Dict] = []
        #: tokenized lines of the input that were typed last
        self._typed_text: List[str] = []
        #: number of lines of the input so far
        self.lines_read = 0
        self.text = TypedText(task.src_dict.unk())

    # ---- units ---------------------------------------------------------------------------------

    def units_of_corpus(self, corpus: DocumentCorpus, drafts=None) -> DecodingUnits:
        """Return a dataset of the decoding units of a corpus.

        Args:
            corpus: corpus to decode.
            drafts: earlier translation of each line of the corpus; None for a task without drafts.
        """
        pairs = corpus.pairs
        options = {"tgt": pairs.tgt, "drafts": drafts, "name": corpus.name}
        return self._units(self._lines(pairs, **options), corpus.index)

    def _lines(self, data: LanguagePairDataset, **options) -> Lines:
        task = self.task
        options["left_pad"] = task.cfg.left_pad_source
        return Lines(data.src, np.asarray(data.src_sizes), task.source_dictionary, **options)

    def _units(self, lines: Lines, index, empty_lines=(), opened=None) -> DecodingUnits:
        """Divide documents into decoding units, and return a dataset of these units.

        Sentences that are too long for the model are left out, and the dataset lists them.
        Dividing such a dataset into batches raises an error, unless
        ``--skip-invalid-size-inputs-valid-test`` is given.

        Args:
            lines: lines of the corpus or input.
            index: documents and their sentences among the lines.
            empty_lines: ids of lines that get an empty translation, such as blank lines.
            opened: last document of earlier interactive input, which the lines may continue; None
                for a corpus.
        """
        task = self.task
        fits = lines.sizes[index.line_ids] <= task.most_tokens[0]
        too_long = dict(zip(index.line_ids[~fits].tolist(), index.document[~fits].tolist()))
        if too_long:
            index = index.without(~fits)
        cut = task.search.cut(index, lines.sizes[index.line_ids])
        return DecodingUnits(lines, cut, [*empty_lines, *too_long], too_long, opened)

    def _units_of_lines(self, lines: TypedLines, new_document: bool) -> DecodingUnits:
        if new_document:
            self._open_document = OpenDocument()
            self.task.search.forget()
        sizes = np.asarray(lines.src_sizes)
        index = DocumentIndex.from_sizes(sizes)
        opened, window = self._open_document, self.task.search.window
        if len(sizes) > 0 and sizes[0] <= BLANK_SIZE:
            opened.close()
        if opened.position > 0 and window is None:
            logger.warning(
                "document %d continues after --buffer-size lines; its parts are translated "
                "separately, so give a --buffer-size that holds whole documents",
                opened.number + 1,
            )
        if opened.position > 0 and self.task.options.get("next_sentences"):
            logger.warning(
                "document %d continues after --buffer-size lines; sentences before are translated "
                "without those that follow, so give a --buffer-size that holds whole documents",
                opened.number + 1,
            )
        blank = np.flatnonzero(sizes <= BLANK_SIZE).tolist()
        typed = self._lines(lines, constraints=lines.constraints)
        units = self._units(typed, index, blank, opened)
        if self.task.reads_context:
            self.text.read_documents(units.index, opened.number, opened.position)
        # Sentences that are too long have no translation and cannot be context.
        opened.advance(lines.src, sizes, units.index, (window or 1) - 1)
        return units

    def encoded(self, lines: Iterable[str], encode: Callable[[str], str]) -> List[str]:
        """Return input lines as lines of dictionary words, without a byte order mark at the start.

        Args:
            lines: raw lines.
            encode: function from a raw line to a line of dictionary words.

        Raises:
            UserError: a line is too long or not UTF-8; a line has no words after tokenization, so
                that it would end a document; or the tokenizer cannot be used.
        """
        found, lines = [], [*lines]
        self.task.report_form(lines)
        for number, line in enumerate(lines, start=self.lines_read + 1):
            if number == 1:
                line = line.lstrip("\ufeff")
            if len(line) > LONGEST:
                raise UserError(
                    f"line {number} of the input has {len(line):,} characters, and lines are "
                    f"limited to {LONGEST:,}; check the line ends"
                )
            check_unicode(line, f"line {number} of the input")
            try:
                found.append(encode(line))
            except LookupError as error:  # of nltk
                reason = str(error).strip("*\n ").split("\n")[0]
                raise UserError(
                    f"the tokenizer cannot be used ({reason}); choose another --tokenizer"
                ) from None
            if line.strip() and not found[-1].strip():
                raise UserError(
                    f"line {number} of the input ({line!r:.40}) has no words after tokenization "
                    "and would be read as the end of a document; remove it"
                )
        self._typed_text = found
        return found

    def texts_of(self, lines: Iterable[int]) -> List[str]:
        """Return the tokenized source text of some lines of the corpus or of the interactive input.

        Args:
            lines: line numbers, from 0.

        Raises:
            UserError: the input came from the Python interface as tokens, so its text is not known.
        """
        if self.task.datasets:
            (units,) = self.task.datasets.values()
            return [units.src.get_original_text(line) for line in lines]
        if not self._typed_text:
            raise UserError(
                "--replace-unk needs the text of the input; use fairseq-generate or "
                "fairseq-interactive"
            )
        return [self._typed_text[line] for line in lines]

    def check(self, lines: Iterable[Tensor], constraints: Optional[Tensor]) -> None:
        """Refuse input lines and constraints in which a reserved symbol occurs as a word.

        Args:
            lines: tokens of each line, including ``</s>``.
            constraints: (lines, length) constraints as packed by fairseq; None without constraints.

        Raises:
            UserError: a line or a constraint contains a reserved symbol, or a constraint is blank.
        """
        of_source = Symbols.of_task(self.task, self.task.src_dict)
        for number, tokens in enumerate(lines, start=self.lines_read + 1):
            of_source.check(tokens[:-1], f"line {number} of the input")
        if constraints is not None:
            of_target = Symbols.of_task(self.task, self.task.tgt_dict)
            _check_constraints(constraints, of_target, self.lines_read)

    # ---- batches -------------------------------------------------------------------------------

    def of_corpus(self, units: DecodingUnits, *args, **options) -> iterators.EpochBatchIterator:
        """Return an iterator over the batches of a corpus to decode.

        Args:
            units: corpus, divided into decoding units.
            *args, **options: arguments of fairseq's ``get_batch_iterator``.

        Raises:
            UserError: a sentence exceeds the maximum positions of the model, and
                ``--skip-invalid-size-inputs-valid-test`` is not given.
        """
        self.task.search.forget()
        return self._iterator(units, units.collater, *args, **options)

    def of_lines(
        self, lines: TypedLines, *args, new_document: bool, **options
    ) -> iterators.EpochBatchIterator:
        """Return an iterator over the batches of input lines to decode.

        Args:
            lines: input lines.
            new_document: True if the lines begin a new document; False if they may continue the
                last document of earlier lines.
            *args, **options: arguments of fairseq's ``get_batch_iterator``.

        Raises:
            UserError: a sentence exceeds the maximum positions of the model, and
                ``--skip-invalid-size-inputs-valid-test`` is not given.
        """
        units = self._units_of_lines(lines, new_document)
        before = self.lines_read
        self.lines_read = 0 if new_document else before + len(lines)
        self._typed_samples = []

        def collater(items) -> dict:
            # fairseq-interactive passes on only the tokens; typed_sample finds the rest.
            sample = units.collater(items)
            self._typed_samples.append(sample)
            return sample

        return self._iterator(units, collater, *args, lines_before=before, **options)

    def typed_sample(self, src_tokens: Tensor) -> dict:
        """Find the complete sample of a batch, given only the source tokens of the batch.

        This is needed because fairseq-interactive passes on only the source tokens.  Each sample
        can be found only once; it is then forgotten.

        Args:
            src_tokens: (rows, S) padded source tokens.

        Raises:
            ValueError: no sample has these tokens.
        """
        tokens = src_tokens.cpu()
        for number, sample in enumerate(self._typed_samples):
            if torch.equal(sample["net_input"]["src_tokens"], tokens):
                return self._typed_samples.pop(number)
        raise ValueError("these sentences are not a batch of this task")

    def _iterator(
        self,
        units: DecodingUnits,
        collater,
        max_tokens=None,
        max_sentences=None,
        ignore_invalid_inputs=False,
        num_shards=1,
        shard_id=0,
        num_workers=0,
        data_buffer_size=0,
        lines_before=0,
        **_,
    ) -> iterators.EpochBatchIterator:
        _check_numbers(max_tokens, max_sentences, num_workers, num_shards, shard_id)
        if units.too_long:
            self._report_too_long(units, ignore_invalid_inputs, lines_before)
        batches = units.batches(
            max_tokens, max_sentences, keep_order=self.task.search.keeps_order, shards=num_shards
        )
        mine = batches[shard_id::num_shards]
        if num_shards > 1 and not any(mine):
            raise UserError(
                f"{units.name} is too small for {num_shards} processes: nothing is left for "
                f"process {shard_id}; use fewer, or a smaller --max-tokens or --batch-size"
            )
        self.task.search.begin(sum(len(batch) for batch in mine))
        sentences = sum(units.num_rows(item) for batch in mine for item in batch)
        hidden = self.task.cfg.no_progress_bar
        self.task.search.progress = DecodingProgress(sentences, hidden)
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

    def _report_too_long(self, units: DecodingUnits, ignore: bool, lines_before: int) -> None:
        problem = (
            f"{units.name}: line {lines_before + min(units.too_long) + 1} has more tokens than the "
            f"model's {self.task.cfg.max_source_positions} source positions"
        )
        if not ignore:
            raise UserError(
                f"{problem}; split it, cut it with --truncate-source, or leave it untranslated "
                "with --skip-invalid-size-inputs-valid-test"
            )
        others = len(units.too_long) - 1
        and_others = f" and {others} others get" if others > 0 else " gets"
        logger.warning("%s; it%s an empty translation", problem, and_others)


def _check_constraints(packed: Tensor, symbols: Symbols, lines_before: int) -> None:
    """Refuse constraints that are blank or contain a reserved symbol as a word.

    Unknown words only cause a warning.

    Args:
        packed: (lines, length) constraints as packed by fairseq.  Each row contains the number of
            constraints, followed, for each constraint, by its words and a 0, which is also the
            index of ``<s>``.
        symbols: symbols of the target dictionary.
        lines_before: number of earlier lines of the input, for line numbers in messages.

    Raises:
        UserError: a constraint is blank or contains a reserved symbol.
    """
    bos = symbols.dictionary.bos()
    longest = 1
    for number, row in enumerate(packed, start=lines_before + 1):
        place = f"a constraint in line {number} of the input"
        found = unpack_constraints(row)
        if not all(map(len, found)):
            raise UserError(
                f"{place} is blank or has the word <s>; give it words, or leave it out with its tab"
            )
        length = 1 + sum(len(words) + 1 for words in found)
        symbols.check([bos] if row[length:].any() else [], place)
        for words in found:
            symbols.check(words, place)
        if any((words == symbols.dictionary.unk()).any() for words in found):
            logger.warning(
                "%s has a word that the target dictionary lacks; %s is forced in its place",
                *(place, symbols.dictionary.unk_word),
            )
        longest = max(longest, length)
    symbols.check([bos] if longest < packed.shape[1] else [], "a constraint of the input")


def _check_numbers(max_tokens, max_sentences, num_workers, num_shards, shard_id) -> None:
    least = {"--max-tokens": (max_tokens, 1), "--batch-size": (max_sentences, 1)}
    least["--num-workers"] = (num_workers, 0)
    least["--distributed-world-size"] = (num_shards, 1)
    least["--distributed-rank"] = (shard_id, 0)
    for option, (value, minimum) in least.items():
        if value is not None and value < minimum:
            raise UserError(f"{option} must be at least {minimum}, got {value}")
    if shard_id >= num_shards:
        raise UserError(
            f"--distributed-rank must be below --distributed-world-size {num_shards}, got "
            f"{shard_id}"
        )
