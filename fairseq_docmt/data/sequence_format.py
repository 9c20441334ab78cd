"""The format of the sequences that models read: symbols, language tags and sentences.

The sentences s1 and s2 form the sequence ``before <bod> s1 <sep> s2 </s> after``.  ``before`` and
``after`` are language tags, if there are any.  With ``--mark-document-start``, ``<bod>`` stands
before the first sentence of a document.  All parts of the package that put sequences together or
take them apart do so with a :class:`SequenceFormat`.
"""

from typing import List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq.data import Dictionary, data_utils
from torch import Tensor

from fairseq_docmt.symbols import BEGIN_OF_DOCUMENT, DOCUMENT_SYMBOLS, SENTENCE_SEPARATOR

#: tasks of mBART-25 checkpoints
MBART25_TASKS = ("translation_from_pretrained_bart", "multilingual_denoising")
#: task of mBART-50, M2M-100 and NLLB checkpoints
MULTILINGUAL_TASK = "translation_multi_simple_epoch"


# ---- symbols -------------------------------------------------------------------------------------


def add_document_symbols(dictionary: Dictionary) -> Dictionary:
    """Append ``<sep>`` and ``<bod>`` to a dictionary, unless it has them, and return it.

    Every dictionary gets both symbols, whatever the options.  In this way sentence-level and
    document-level models share a vocabulary, and one can be finetuned from the other.
    """
    for symbol in DOCUMENT_SYMBOLS:
        dictionary.add_symbol(symbol)
    return dictionary


def insert_symbols(dictionary: Dictionary, symbols) -> None:
    """Add symbols, such as language tags, to a dictionary after its words.

    If the dictionary ends in ``<sep>`` and ``<bod>``, the new symbols are inserted before these.
    Symbols that the dictionary already has are not added again.
    """
    new = [symbol for symbol in symbols if symbol not in dictionary]
    if not new:
        return
    if tuple(dictionary.symbols[-len(DOCUMENT_SYMBOLS) :]) == DOCUMENT_SYMBOLS:
        for symbol in DOCUMENT_SYMBOLS:
            del dictionary.indices[symbol]
        del dictionary.symbols[-len(DOCUMENT_SYMBOLS) :], dictionary.count[-len(DOCUMENT_SYMBOLS) :]
    for symbol in new:
        dictionary.add_symbol(symbol, n=0)
    add_document_symbols(dictionary)


def separator_index(dictionary: Dictionary) -> int:
    """Return the index of ``<sep>``; -1, which no token has, if the dictionary lacks it."""
    return _index(dictionary, SENTENCE_SEPARATOR)


def begin_index(dictionary: Dictionary) -> int:
    """Return the index of ``<bod>``; -1, which no token has, if the dictionary lacks it."""
    return _index(dictionary, BEGIN_OF_DOCUMENT)


def _index(dictionary: Dictionary, symbol: str) -> int:
    index = dictionary.index(symbol)
    return -1 if index == dictionary.unk() else index


class LanguageTags(NamedTuple):
    """Language tags in the sequences of a language pair, as token indices; by default none.

    Attributes:
        source_start: tokens before the source.
        source_end: tokens after the ``</s>`` of the source.
        target_start: tokens before the target.
        first: first token of the decoder's input; None for ``</s>``.
    """

    source_start: Tuple[int, ...] = ()
    source_end: Tuple[int, ...] = ()
    target_start: Tuple[int, ...] = ()
    first: Optional[int] = None


#: no tags: bilingual models
NO_TAGS = LanguageTags()


# ---- sequences -----------------------------------------------------------------------------------


class SequenceFormat(NamedTuple):
    """Format of the sequences of one side, the source or the target.

    Attributes:
        dictionary: dictionary of the side.
        before, after: tokens before and after the sentences, such as language tags.
        first: first token of the decoder's input; None for ``</s>``.
        marks_start: whether ``<bod>`` stands before the first sentence of a document.
    """

    dictionary: Dictionary
    before: Tuple[int, ...] = ()
    after: Tuple[int, ...] = ()
    first: Optional[int] = None
    marks_start: bool = False

    @property
    def separator(self) -> int:
        """Index of ``<sep>``, the symbol between sentences."""
        return separator_index(self.dictionary)

    @property
    def first_token(self) -> int:
        """Index of the first token of the decoder's input, by default ``</s>``."""
        return self.dictionary.eos() if self.first is None else self.first

    @property
    def symbols(self) -> Tuple[int, ...]:
        """Indices of all tokens that are not words: special symbols and language tags."""
        special = range(self.dictionary.nspecial)
        document = map(self.dictionary.index, DOCUMENT_SYMBOLS)
        return (*special, *document, *self.before, *self.after, self.first_token)

    @property
    def most_added(self) -> int:
        """Maximum number of tokens of a sequence besides its sentences: tags and ``<bod>``."""
        return len(self.start(at_start=True)) + len(self.after)

    def start(self, at_start: bool) -> Tuple[int, ...]:
        """Return the tokens before the first sentence of a sequence: tags, and perhaps ``<bod>``.

        Args:
            at_start: whether the sequence begins with the first sentence of a document.
        """
        mark = at_start and self.marks_start
        return (*self.before, begin_index(self.dictionary)) if mark else self.before

    def join(self, sentences: Sequence[Tensor], at_start: bool = False) -> Tensor:
        """Join sentences into a sequence of this format.

        Args:
            sentences: 1-D tensors that end in ``</s>``.
            at_start: whether the sequence begins with the first sentence of a document.
        """
        joined, start = join_sentences(sentences, self.separator), self.start(at_start)
        if not start and not self.after:
            return joined
        return torch.cat([joined.new_tensor(start), joined, joined.new_tensor(self.after)])

    def split(self, sequence: Tensor) -> Tuple[List[Tensor], bool]:
        """Split a sequence of this format into its sentences.

        Args:
            sequence: 1-D tensor without padding.  It may also be a lone ``</s>``, without language
                tags, which stands for a missing sentence.

        Returns:
            The sentences, each with ``</s>``, and whether ``<bod>`` stands before the first one.  A
            lone ``</s>`` gives no sentence or, if the format has no tags, an empty one.
        """
        first = len(self.before)
        marked = self.marks_start and sequence[first : first + 1].tolist() == [
            begin_index(self.dictionary)
        ]
        end = sequence.new_tensor([self.dictionary.eos()])
        places = self.find(sequence, marked)
        return [torch.cat([sequence[a : b - 1], end]) for a, b in places], marked

    def find(self, sequence: Tensor, at_start: bool) -> List[Tuple[int, int]]:
        """Find the positions of the sentences in a sequence by its ``<sep>`` symbols.

        Args:
            sequence: 1-D tensor without padding.
            at_start: whether the sequence begins with the first sentence of a document.

        Returns:
            For each sentence its first position and the position after its end symbol, ``<sep>`` or
            ``</s>``.
        """
        start, end = len(self.start(at_start)), len(sequence) - len(self.after)
        if end <= start:
            return []
        separators = sequence[start : end - 1].eq(self.separator).nonzero().view(-1) + start + 1
        ends = [*separators.tolist(), end]
        return list(zip([start, *ends], ends))

    def places(self, sizes: Sequence[int], at_start: bool) -> List[Tuple[int, int]]:
        """Compute the positions of the sentences in a sequence from their lengths.

        Args:
            sizes: number of tokens of each sentence, with its end symbol.
            at_start: whether the sequence begins with the first sentence of a document.

        Returns:
            For each sentence its first position and the position after its end symbol.
        """
        found, place = [], len(self.start(at_start))
        for size in sizes:
            found.append((place, place + size))
            place += size
        return found

    # ---- input of the decoder ------------------------------------------------------------------

    def decoder_input(self, sequences: Sequence[Tensor]) -> Tensor:
        """Return the (rows, T) decoder input from which target sequences are to be predicted.

        Each sequence is shifted by one position, begins with ``first_token`` and is right-padded.
        """
        return data_utils.collate_tokens(
            sequences, self.dictionary.pad(), self.first_token, move_eos_to_beginning=True
        )

    def continued(self, sentence: Tensor) -> Tensor:
        """Append ``<sep>`` to a sentence without ``</s>``, so that another sentence can follow."""
        return torch.cat([sentence, sentence.new_tensor([self.separator])])

    def prefix(self, sentences: Sequence[Tensor], at_start: bool) -> Tensor:
        """Return the decoder's input up to the next sentence to translate.

        It consists of the tokens before the first sentence and of the earlier sentences.

        Args:
            sentences: earlier sentences of the sequence, without ``</s>``; each gets a ``<sep>``.
            at_start: whether the sequence begins with the first sentence of a document.
        """
        start = torch.tensor([self.first_token, *self.start(at_start)])
        return torch.cat([start, *map(self.continued, sentences)])

    def prefix_size(self, sentences: Sequence[Tensor], at_start: bool) -> int:
        """Return the number of tokens that :meth:`prefix` returns for the same arguments."""
        return 1 + len(self.start(at_start)) + sum(len(sentence) + 1 for sentence in sentences)


class Formats(NamedTuple):
    """Pair of sequence formats, one for each side.

    Attributes:
        source, target: how the sentences and language tags of each side form sequences.
    """

    source: SequenceFormat
    target: SequenceFormat

    @classmethod
    def of(
        cls,
        src_dict: Dictionary,
        tgt_dict: Dictionary,
        tags: LanguageTags = NO_TAGS,
        mark_document_start: bool = False,
    ) -> "Formats":
        """Create the formats of both sides.

        Args:
            src_dict, tgt_dict: dictionaries of both sides.
            tags: language tags of both sides.
            mark_document_start: whether ``<bod>`` stands before the first sentence of a document.
        """
        start, end, target_start, first = tags
        return cls(
            SequenceFormat(src_dict, start, end, marks_start=mark_document_start),
            SequenceFormat(tgt_dict, target_start, (), first, mark_document_start),
        )


def join_sentences(sentences: Sequence[Tensor], separator: int) -> Tensor:
    """Join sentences into one sequence: ``s1 <sep> s2 <sep> s3 </s>``.

    Args:
        sentences: 1-D int64 tensors, each ending in ``</s>``.
        separator: index of ``<sep>``, which replaces every ``</s>`` but the last.

    Returns:
        1-D tensor, whose length is the sum of the lengths of the sentences.
    """
    if len(sentences) == 1:
        return sentences[0]
    joined = torch.cat(list(sentences))
    ends = torch.tensor([len(s) for s in sentences[:-1]]).cumsum(0) - 1
    joined[ends] = separator
    return joined


def pad_rows(rows, dictionary, left_pad: bool = False) -> Tensor:
    """Pad 1-D tensors of token indices to the same length, and stack them as (rows, longest)."""
    return data_utils.collate_tokens(rows, dictionary.pad(), left_pad=left_pad)
