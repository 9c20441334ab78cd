"""Functions that learn subwords from training text: BPE merges or a SentencePiece model."""

import io
from collections import Counter
from pathlib import Path
from typing import Iterator, List, Sequence

from check_documents import CorpusError, iterate_lines
from sanity import warn
from stages import count_lines, naming, progress

# Pieces of their own in every model that is learned: never cut, so that text with them is refused.
SYMBOLS = ("<sep>", "<bod>")


def learn_codes(
    sources: Sequence[Path], output: Path, operations: int, total_symbols: bool = False
) -> None:
    """Learn BPE merges with subword-nmt, and write them to a file.

    Args:
        sources: tokenized text; merges are learned jointly from all files.
        output: file to write.
        operations: number of merges; fewer are learned if no pair of symbols occurs twice any more.
        total_symbols: True if ``operations`` also counts the initial symbols: characters inside
            words and characters at the end of words.

    Raises:
        CorpusError: no pair of characters occurs twice or, with ``total_symbols``, ``operations``
            does not exceed the number of initial symbols.
    """
    from subword_nmt.learn_bpe import learn_bpe

    words: Counter = Counter()
    for source in sources:
        lines = iterate_lines(str(source))
        for line in progress(lines, f"words of {source.name}", count_lines(source)):
            words.update(line.split())
    if all(len(word) == 1 for word in words):
        raise CorpusError(
            "the training text has no word of two characters, so no merges can be learned; use "
            "--bpe-operations 0"
        )
    characters = len(set("".join(word[:-1] for word in words))) + len({w[-1] for w in words})
    if total_symbols and operations <= characters:
        raise CorpusError(
            f"--bpe-operations {operations} leaves nothing to merge, as the training text has "
            f"{characters} symbols of one character; give more, or leave out --bpe-total-symbols"
        )
    with naming(output), open(output, "w", encoding="utf-8", newline="\n") as codes:
        counts = (f"{word} {count}" for word, count in words.items())
        learn_bpe(counts, codes, operations, is_dict=True, total_symbols=total_symbols)
    if count_lines(output) < 2:  # the version alone
        raise CorpusError(
            "no character pair occurs twice in the training text, so no BPE merges can be learned; "
            "give more text, or use --bpe-operations 0"
        )


def learn_sentencepiece(sources: Sequence[Path], output: Path, size: int) -> None:
    """Learn a SentencePiece unigram model, and write it to a file.

    Characters that the model does not know are split into bytes.

    Args:
        sources: text; the model is learned jointly from all files.
        output: file to write.
        size: number of pieces; fewer are learned from little text.

    Raises:
        CorpusError: the model cannot be learned, for example because there are more characters than
            pieces.
    """
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    model = io.BytesIO()
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_sentences(sources),
            model_writer=model,
            vocab_size=size,
            hard_vocab_limit=False,
            byte_fallback=True,
            user_defined_symbols=list(SYMBOLS),
            minloglevel=2,
        )
    except RuntimeError as error:
        raise CorpusError(
            f"SentencePiece cannot learn {size} pieces from the training text "
            f"({' '.join(str(error).split())}); give another --vocabulary-size"
        ) from None
    found = SentencePieceProcessor(model_proto=model.getvalue()).get_piece_size()
    if found < size:
        warn(f"SentencePiece learns only {found:,} of {size:,} pieces from this text")
    with naming(output):
        output.write_bytes(model.getvalue())


def _sentences(sources: Sequence[Path]) -> Iterator[str]:
    for source in sources:
        lines = iterate_lines(str(source))
        yield from filter(None, progress(lines, f"text of {source.name}", count_lines(source)))


def pieces_of(model: Path) -> List[str]:
    """Return the pieces of a SentencePiece model that can occur as words of a prepared text.

    Pieces such as ``<unk>`` and ``<s>`` are left out, as are ``<sep>`` and ``<bod>``.

    Raises:
        CorpusError: the file is not a model.
    """
    from sentencepiece import SentencePieceProcessor

    try:
        found = SentencePieceProcessor(model_file=str(model))
    except (RuntimeError, OSError):
        raise CorpusError(f"{model} is not a SentencePiece model") from None
    numbers = range(found.get_piece_size())
    special = (found.is_control, found.is_unknown, found.is_unused)
    pieces = [found.id_to_piece(i) for i in numbers if not any(test(i) for test in special)]
    return [piece for piece in pieces if piece not in SYMBOLS]


if __name__ == "__main__":
    raise SystemExit("error: subwords.py is no command; data_prep/README.md lists the commands")
