"""Language tags of multilingual models: the tokens around the sentences of a sequence."""

from typing import NamedTuple, Optional, Tuple

from fairseq.data import Dictionary

from fairseq_docmt.data.symbols import DOCUMENT_SYMBOLS, add_document_symbols

#: tasks of mBART-25 checkpoints
MBART25_TASKS = ("translation_from_pretrained_bart", "multilingual_denoising")
#: task of mBART-50, M2M-100 and NLLB checkpoints
MULTILINGUAL_TASK = "translation_multi_simple_epoch"


class LanguageTags(NamedTuple):
    """Indices of the language tags of a pair of languages, by place; none by default.

    A sequence of sentences s1, s2, … becomes ``source_start s1 <sep> s2 </s> source_end`` on the
    source side and ``target_start t1 <sep> t2 </s>`` on the target side; the input of the decoder
    begins with ``first``.

    Attributes:
        source_start: tokens before the source.
        source_end: tokens after the ``</s>`` of the source.
        target_start: tokens before the target.
        first: first token of the decoder; None for ``</s>``.
    """

    source_start: Tuple[int, ...] = ()
    source_end: Tuple[int, ...] = ()
    target_start: Tuple[int, ...] = ()
    first: Optional[int] = None

    @property
    def added(self) -> Tuple[int, int]:
        """Number of tokens that the tags add to a source and to a target."""
        return len(self.source_start) + len(self.source_end), len(self.target_start)

    def first_of(self, dictionary: Dictionary) -> int:
        """Return the first token of the decoder, given the target dictionary."""
        return dictionary.eos() if self.first is None else self.first


#: no tags: bilingual models
NO_TAGS = LanguageTags()


def insert_symbols(dictionary: Dictionary, symbols) -> None:
    """Add symbols to a dictionary after its words, before ``<sep>`` and ``<bod>``.

    Those that it already has keep their places.
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
