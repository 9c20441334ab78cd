"""``--tokenizer jieba``: tokenisation of raw Chinese source text."""

from dataclasses import dataclass, field

from fairseq.data.encoders import register_tokenizer
from fairseq.dataclass import FairseqDataclass


@dataclass
class JiebaTokenizerConfig(FairseqDataclass):
    """Options of the jieba tokenizer."""

    jieba_target_lang: str = field(
        default="en", metadata={"help": "target language, for the Moses detokenizer"}
    )


@register_tokenizer("jieba", dataclass=JiebaTokenizerConfig)
class JiebaTokenizer:
    """Tokenizer of Chinese source text (jieba) and detokenizer of the target language (Moses).

    The word segmentation is that of ``data_prep/prepare.py``.
    """

    def __init__(self, cfg: JiebaTokenizerConfig):
        import jieba
        from sacremoses import MosesDetokenizer

        jieba.setLogLevel("WARNING")
        self.cut = jieba.cut
        self.detokenizer = MosesDetokenizer(cfg.jieba_target_lang)

    def encode(self, x: str) -> str:
        """Return source text with words separated by spaces."""
        return " ".join(" ".join(self.cut(x)).split())

    def decode(self, x: str) -> str:
        """Return detokenized target text."""
        return self.detokenizer.detokenize(x.split())
