"""Positional embeddings that restart in each sentence."""

from functools import partial

from fairseq.utils import make_positions
from torch import Tensor, nn

from fairseq_docmt.modules.decoder import look_up, sentence_positions


def restart_positions(model: nn.Module, src_separator: int, tgt_separator: int) -> None:
    """Make the encoder and decoder of a transformer count positions anew in each sentence.

    Lupo et al. (2022), "Focused Concatenation for Context-Aware Neural Machine Translation", also
    separate the positions of sentences, but by shifting them.

    Args:
        model: transformer from fairseq or this package, with positional embeddings.
        src_separator, tgt_separator: index of ``<sep>`` in the source and target dictionaries.
    """
    for part, separator, ends in (
        (model.encoder, src_separator, True),
        (model.decoder, tgt_separator, False),
    ):
        part.restarts_positions = True
        part.embed_positions.register_forward_hook(partial(_of_sentences, separator, ends))


def _of_sentences(separator: int, ends: bool, module: nn.Module, inputs: tuple, _) -> Tensor:
    """Look up the embeddings of positions that are counted within sentences.

    This is a forward hook: its result replaces the output of ``module``.

    Args:
        separator: index of ``<sep>``.
        ends: whether ``<sep>`` ends a sentence; otherwise it begins a sentence.
        module: fairseq's positional embedding.
        inputs: arguments of the module; the first is the tensor of tokens.

    Returns:
        (B, T, C) embeddings.
    """
    tokens = inputs[0]
    positions = make_positions(tokens, module.padding_idx) - module.padding_idx
    return look_up(module, sentence_positions(positions, tokens.eq(separator), ends))
