"""Positional embeddings that begin anew in each sentence."""

from functools import partial

from fairseq.utils import make_positions
from torch import Tensor, nn

from fairseq_docmt.modules.decoder import look_up, sentence_positions


def restart_positions(model: nn.Module, src_separator: int, tgt_separator: int) -> None:
    """Let the encoder and decoder of a transformer count positions anew in each sentence.

    Lupo et al. (2022), "Focused Concatenation for Context-Aware Neural Machine Translation",
    separate the positions of sentences too, but by shifting them.

    Args:
        model: transformer with positional embeddings, of fairseq or of this package.
        src_separator, tgt_separator: index of ``<sep>``.
    """
    for part, separator, ends in (
        (model.encoder, src_separator, True),
        (model.decoder, tgt_separator, False),
    ):
        part.restarts_positions = True
        part.embed_positions.register_forward_hook(partial(_of_sentences, separator, ends))


def _of_sentences(separator: int, ends: bool, module: nn.Module, inputs: tuple, _) -> Tensor:
    """Forward hook: return the embeddings of positions that are counted in each sentence."""
    tokens = inputs[0]
    positions = make_positions(tokens, module.padding_idx) - module.padding_idx
    return look_up(module, sentence_positions(positions, tokens.eq(separator), ends))
