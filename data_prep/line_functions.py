"""Functions that tokenize, truecase and segment text line by line.

A line function takes a line and returns its new form.  :func:`tokenizer`, :func:`truecaser` and the
segmenters return such functions.  Tokenizers have the same settings as in fairseq, so that
``fairseq-interactive`` tokenizes as in training.
"""

from typing import Callable

LineFunction = Callable[[str], str]

CHINESE = ("zh", "cn", "zho")


def choose_tokenizer(name: str, language: str) -> str:
    """Return the name of the tokenizer to use for a language.

    This is ``name``, unless it is ``auto``.  In that case it is ``jieba`` for Chinese and ``moses``
    for other languages.
    """
    if name != "auto":
        return name
    return "jieba" if language.lower().replace("_", "-").split("-")[0] in CHINESE else "moses"


def tokenizer(name: str, language: str) -> LineFunction:
    """Return a function that tokenizes a line.

    Args:
        name: ``moses``, ``jieba``, or ``none``, which only normalises white space.
        language: language code, for Moses' list of abbreviations that keep their full stop.
    """
    return {"moses": _moses, "jieba": _jieba, "none": _none}[name](language)


def _moses(language: str) -> LineFunction:
    from sacremoses import MosesTokenizer

    class Tokenizer(MosesTokenizer):
        """Moses tokenizer with faster character tests, as it builds character sets only once."""

        def __init__(self, language: str):
            super().__init__(language)
            self.letters, self.lower_case = frozenset(self.IsAlpha), frozenset(self.IsLower)

        def islower(self, text: str) -> bool:
            return self.lower_case.issuperset(text)

        def isanyalpha(self, text: str) -> bool:
            return not self.letters.isdisjoint(text)

    moses = Tokenizer(language)
    # The same settings as fairseq's --tokenizer moses.
    return lambda line: moses.tokenize(
        line, aggressive_dash_splits=True, return_str=True, escape=True
    )


def _jieba(language: str) -> LineFunction:
    import jieba

    jieba.setLogLevel("WARNING")
    jieba.initialize()  # load the word list before workers are forked
    return lambda line: " ".join(" ".join(jieba.cut(line)).split())


def _none(language: str) -> LineFunction:
    # fairseq splits at any white space, subword-nmt only at spaces.
    return lambda line: " ".join(line.split())


def truecaser(model_path: str) -> LineFunction:
    """Return a function that truecases a tokenized line with a Moses model.

    As in Moses, only two kinds of words are changed: the first word of a sentence, and words that
    the model knows only in another case.
    """
    from sacremoses import MosesTruecaser

    moses = MosesTruecaser(model_path)
    # Otherwise sacremoses changes known words too, e.g. "sie" (they) to "Sie" (formal you).
    return lambda line: moses.truecase(line, return_str=True, use_known=True)


def subword_segmenter(codes_path: str) -> LineFunction:
    """Return a function that splits a line into subwords by the codes of subword-nmt (BPE)."""
    from subword_nmt.apply_bpe import BPE

    with open(codes_path, encoding="utf-8") as codes:
        return BPE(codes).process_line


def sentencepiece_segmenter(model_path: str) -> LineFunction:
    """Return a function that splits a line into the pieces of a SentencePiece model."""
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_file=model_path)
    return lambda line: " ".join(model.encode(line, out_type=str))


if __name__ == "__main__":
    raise SystemExit(
        "error: line_functions.py is no command; data_prep/README.md lists the commands"
    )
