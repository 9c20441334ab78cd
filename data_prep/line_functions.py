"""What is done to one line: tokenizing, truecasing, subwords.

Each builder returns a function from a line to a line.  Tokenizers do the same as the ones that
fairseq applies to raw text, so that ``fairseq-interactive`` meets what was trained on.
"""

from typing import Callable

LineFunction = Callable[[str], str]

CHINESE = ("zh", "cn", "zho")


def choose_tokenizer(name: str, language: str) -> str:
    """``auto`` is jieba for Chinese and Moses for all else."""
    if name != "auto":
        return name
    return "jieba" if language.lower().replace("_", "-").split("-")[0] in CHINESE else "moses"


def tokenizer(name: str, language: str) -> LineFunction:
    """Build a tokenizer.

    Args:
        name: ``moses``, ``jieba`` or ``none``.
        language: for Moses' list of abbreviations that keep their full stop.
    """
    return {"moses": _moses, "jieba": _jieba, "none": _none}[name](language)


def _moses(language: str) -> LineFunction:
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(language)
    # The settings of fairseq's --tokenizer moses.
    return lambda line: moses.tokenize(
        line, aggressive_dash_splits=True, return_str=True, escape=True
    )


def _jieba(language: str) -> LineFunction:
    import jieba

    jieba.setLogLevel("WARNING")
    jieba.initialize()  # now, so that forked workers need not load the word list each
    return lambda line: " ".join(" ".join(jieba.cut(line)).split())


def _none(language: str) -> LineFunction:
    # fairseq splits at any white space, subword-nmt only at blanks.
    return lambda line: " ".join(line.split())


def truecaser(model_path: str) -> LineFunction:
    """Moses truecaser from a model file."""
    from sacremoses import MosesTruecaser

    moses = MosesTruecaser(model_path)
    return lambda line: moses.truecase(line, return_str=True)


def subword_segmenter(codes_path: str) -> LineFunction:
    """subword-nmt's byte pair encoding from a file of merges."""
    from subword_nmt.apply_bpe import BPE

    with open(codes_path, encoding="utf-8") as codes:
        return BPE(codes).process_line
