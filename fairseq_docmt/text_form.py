"""Record of how a corpus was preprocessed: tokenizer, truecasing and subwords of each language.

``data_prep/prepare.py`` writes this record to ``text_form.json`` in the folder of binarised data.
Training stores it in the checkpoints, with checksums in place of the truecasing and subword models.
With the record, raw text can later be preprocessed in the same way.
"""

import hashlib
import json
import os
import re
from typing import Callable, Dict, NamedTuple, Optional

from fairseq_docmt.errors import UserError

#: file of a binarised folder; data_prep/prepare.py writes it
FILE = "text_form.json"

#: ``--bpe`` of fairseq -> attribute of a form
SUBWORDS = {"subword_nmt": "bpe_codes", "sentencepiece": "sentencepiece"}

# A character as bytes, which SentencePiece writes if its model lacks it.
_BYTES = re.compile("(?:<0x[0-9A-F]{2}>)+")


class TextForm(NamedTuple):
    """How the text of one language was preprocessed.

    Attributes:
        tokenizer: ``moses``, ``jieba`` or ``none``.
        truecaser: path of the Moses truecasing model; None if the text was not truecased.
        bpe_codes: path of the merges of subword-nmt, or None.
        sentencepiece: path of the SentencePiece model, or None.  If neither ``bpe_codes`` nor this
            is given, words are not split.
    """

    tokenizer: str = "none"
    truecaser: Optional[str] = None
    bpe_codes: Optional[str] = None
    sentencepiece: Optional[str] = None

    def record(self) -> Dict[str, Optional[str]]:
        """Return what checkpoints store: the tokenizer, and checksums of truecaser and subwords.

        With the checksums, text that was preprocessed in another way can be refused later.
        """
        models = {"truecaser": self.truecaser, "bpe_codes": self.bpe_codes}
        if self.sentencepiece:  # records of older checkpoints have no such key
            models["sentencepiece"] = self.sentencepiece
        return {"tokenizer": self.tokenizer, **{k: checksum(v) for k, v in models.items()}}

    def check_files(self) -> None:
        """Check that the truecasing and subword models exist.

        Raises:
            UserError: a file is missing; the message names the model and its path.
        """
        for kind, path in (
            ("truecasing model", self.truecaser),
            ("BPE codes", self.bpe_codes),
            ("SentencePiece model", self.sentencepiece),
        ):
            if path and not os.path.isfile(path):
                raise UserError(f"{kind} {path} not found")

    def tokenize(self, language: str) -> Callable[[str], str]:
        """Return a function that tokenizes and, given a truecasing model, truecases a raw sentence.

        Raises:
            UserError: the truecasing model is invalid.
        """
        cut, truecase = _TOKENIZERS[self.tokenizer](language), self.truecase()
        return lambda sentence: truecase(cut(sentence))

    def truecase(self) -> Callable[[str], str]:
        """Return a function that truecases a tokenized sentence.

        Without a truecasing model, the function returns the sentence unchanged.

        Raises:
            UserError: the truecasing model is invalid.
        """
        return _truecaser(self.truecaser) if self.truecaser else str

    def detokenize(self, language: str) -> Callable[[str], str]:
        """Return a function that turns a tokenized sentence into raw text.

        If the text was truecased, sentences begin with a capital letter again; other words keep
        their case.
        """
        join = self._joining(language)
        if not self.truecaser:
            return join
        from sacremoses import MosesDetruecaser

        recase = MosesDetruecaser().detruecase
        return lambda tokens: join(recase(tokens, return_str=True))

    def _joining(self, language: str) -> Callable[[str], str]:
        """Return a function that detokenizes a sentence without changing its case."""
        if self.tokenizer == "none":
            return str
        if self.tokenizer == "jieba":
            return _without_spaces
        from sacremoses import MosesDetokenizer

        moses = MosesDetokenizer(language)
        return lambda tokens: moses.detokenize(tokens.split())

    def segment(self) -> Callable[[str], str]:
        """Return a function that splits a tokenized sentence into subwords.

        Without a subword model, the function returns the sentence unchanged.

        Raises:
            UserError: the BPE codes or the SentencePiece model are invalid.
        """
        if self.sentencepiece:
            return _pieces(self.sentencepiece)
        if not self.bpe_codes:
            return str
        from subword_nmt import apply_bpe

        try:
            with open(self.bpe_codes, encoding="utf-8") as codes:
                return apply_bpe.BPE(codes).process_line
        except SystemExit:  # of subword-nmt, which has printed the line
            raise UserError(f"{self.bpe_codes} is not a file of merges of subword-nmt") from None

    def join(self) -> Callable[[str], str]:
        """Return a function that joins subwords into tokens again, the inverse of segmentation."""
        if self.sentencepiece:
            return join_pieces
        return _joined if self.bpe_codes else str

    def encoder(self, language: str) -> Callable[[str], str]:
        """Return a function that applies the whole preprocessing to a raw sentence.

        The sentence is tokenized, truecased and split into subwords; a step that was not part of
        the preprocessing is left out.

        Raises:
            UserError: a model is invalid.
        """
        tokenize, segment = self.tokenize(language), self.segment()
        return lambda sentence: segment(tokenize(sentence))


def join_pieces(pieces: str) -> str:
    """Join the space-separated pieces of SentencePiece into text.

    Pieces that stand for single bytes, such as ``<0xE4>``, are decoded; bytes that are not valid
    UTF-8 become U+FFFD.
    """
    text = pieces.replace(" ", "").replace("\u2581", " ").strip()
    return _BYTES.sub(lambda found: _character(found.group()), text)


def _character(pieces: str) -> str:
    return bytes.fromhex(re.sub("<0x|>", "", pieces)).decode("utf-8", "replace")


def _spaced(sentence: str) -> str:
    return " ".join(sentence.split())


def _without_spaces(sentence: str) -> str:
    """Remove spaces next to Chinese characters, where jieba has inserted them between words."""
    return re.sub(r"(?<=[\u2e80-\uffef]) | (?=[\u2e80-\uffef])", "", sentence)


def _joined(sentence: str) -> str:
    return f"{sentence} ".replace("@@ ", "").rstrip()


def _jieba(_) -> Callable[[str], str]:
    import jieba

    jieba.setLogLevel("WARNING")
    return lambda sentence: _spaced(" ".join(jieba.cut(sentence)))


def _moses(language: str) -> Callable[[str], str]:
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(language)
    return lambda sentence: moses.tokenize(sentence, aggressive_dash_splits=True, return_str=True)


#: tokenizer -> function from a language to the function that tokenizes a sentence
_TOKENIZERS = {"none": lambda _: _spaced, "jieba": _jieba, "moses": _moses}


def _pieces(path: str) -> Callable[[str], str]:
    from sentencepiece import SentencePieceProcessor

    TextForm(sentencepiece=path).check_files()
    pieces = SentencePieceProcessor()
    try:
        pieces.Load(path)
    except (RuntimeError, OSError):
        raise UserError(f"{path} is not a SentencePiece model") from None
    return lambda sentence: " ".join(pieces.Encode(sentence, out_type=str))


def read_text_forms(folder: str) -> Dict[str, TextForm]:
    """Read how each language in a folder of binarised data was preprocessed.

    Returns:
        Language -> its preprocessing; empty if the folder has no ``text_form.json``.

    Raises:
        UserError: the file is damaged, or a model that it names is missing.
    """
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return {}
    try:
        with open(path, encoding="utf-8") as stream:
            described = json.load(stream)
        forms = {language: TextForm(**form) for language, form in described.items()}
        _ = [_TOKENIZERS[form.tokenizer] for form in forms.values()]
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise UserError(
            f"{path} is damaged; run data_prep/prepare.py again, or remove the file to give "
            "tokenizer and BPE yourself"
        ) from None
    return {language: _in_folder(form, folder) for language, form in forms.items()}


def _in_folder(form: TextForm, folder: str) -> TextForm:
    models = {}
    for name in ("truecaser", *SUBWORDS.values()):
        file = getattr(form, name)
        models[name] = os.path.join(folder, file) if file else None
        if file and not os.path.isfile(models[name]):
            raise UserError(f"{models[name]} not found; copy the folder again, or make it again")
    return form._replace(**models)


def checksum(path: Optional[str]) -> Optional[str]:
    """Return the SHA-256 checksum of a file, or None if ``path`` is None."""
    if path is None:
        return None
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def _truecaser(path: str) -> Callable[[str], str]:
    """Return a function that truecases a sentence in the same way as data_prep/prepare.py.

    Raises:
        UserError: the model is invalid.
    """
    from sacremoses import MosesTruecaser

    try:
        moses = MosesTruecaser(path)
    except (ValueError, UnicodeDecodeError):
        raise UserError(
            f"{path} is not a truecasing model; give the file truecase.* that data_prep/prepare.py "
            "--truecase has saved"
        ) from None
    return lambda sentence: moses.truecase(sentence, return_str=True, use_known=True)
