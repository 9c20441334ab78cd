"""Tokenizers for fairseq: ``jieba``, truecasing, and ``sentencepiece`` with clear errors."""

from dataclasses import dataclass, field
from typing import Callable

from fairseq.data.encoders import register_tokenizer
from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE
from fairseq.dataclass import FairseqDataclass

from fairseq_docmt.errors import UserError
from fairseq_docmt.text_form import TextForm, join_pieces


class SentencePieces(SentencepieceBPE):
    """fairseq's ``--bpe sentencepiece``, which here also decodes byte pieces such as ``<0xE4>``.

    Raises:
        UserError: the model file is missing, or is not a SentencePiece model.
    """

    def __init__(self, cfg):
        path = cfg.sentencepiece_model
        TextForm(sentencepiece=path).check_files()
        try:
            super().__init__(cfg)
        except (RuntimeError, OSError):
            raise UserError(f"{path} is not a SentencePiece model") from None

    def decode(self, x: str) -> str:
        """Join SentencePiece tokens, separated by spaces, into text."""
        return join_pieces(x)


class TruecasingTokenizer:
    """Tokenizer of fairseq that also truecases what it tokenizes; fairseq has no truecaser.

    Args:
        tokenizer: what ``--tokenizer`` has built.
        truecase: function from a tokenized sentence to a truecased one.
    """

    def __init__(self, tokenizer, truecase: Callable[[str], str]):
        self._tokenizer, self._truecase = tokenizer, truecase

    def encode(self, x: str) -> str:
        """Tokenize and truecase raw source text."""
        return self._truecase(self._tokenizer.encode(x))

    def decode(self, x: str) -> str:
        """Detokenize target text, whose case stays as it is."""
        return self._tokenizer.decode(x)


@dataclass
class JiebaTokenizerConfig(FairseqDataclass):
    """Options of ``--tokenizer jieba``: the target language."""

    jieba_target_lang: str = field(
        default="en", metadata={"help": "target language, for the Moses detokenizer"}
    )


@register_tokenizer("jieba", dataclass=JiebaTokenizerConfig)
class JiebaTokenizer:
    """Tokenizer for translation from Chinese: jieba for the source, Moses for the target.

    The source is segmented into words as in ``data_prep/prepare.py``; the target is detokenized.
    """

    def __init__(self, cfg: JiebaTokenizerConfig):
        self._cut = TextForm("jieba").tokenize("zh")
        self._detokenize = TextForm("moses").detokenize(cfg.jieba_target_lang)

    def encode(self, x: str) -> str:
        """Segment Chinese source text into words separated by spaces."""
        return self._cut(x)

    def decode(self, x: str) -> str:
        """Detokenize target text, given as words separated by spaces."""
        return self._detokenize(x)
