"""``--tokenizer jieba``: raw Chinese in, raw text out."""

from dataclasses import dataclass, field

from fairseq.data.encoders import register_tokenizer
from fairseq.dataclass import FairseqDataclass


@dataclass
class JiebaTokenizerConfig(FairseqDataclass):
    jieba_target_lang: str = field(
        default="en", metadata={"help": "language of the translations, put back together by Moses"}
    )


@register_tokenizer("jieba", dataclass=JiebaTokenizerConfig)
class JiebaTokenizer:
    """Cuts Chinese source text with jieba; detokenizes the other language with Moses.

    It cuts as ``data_prep/prepare.py`` does.
    """

    def __init__(self, cfg: JiebaTokenizerConfig):
        import jieba
        from sacremoses import MosesDetokenizer

        jieba.setLogLevel("WARNING")
        self.cut = jieba.cut
        self.detokenizer = MosesDetokenizer(cfg.jieba_target_lang)

    def encode(self, x: str) -> str:
        return " ".join(" ".join(self.cut(x)).split())

    def decode(self, x: str) -> str:
        return self.detokenizer.detokenize(x.split())
