"""Measure how much each target sentence attends to its own source sentence.

    fairseq-docmt attention-share DATA --path CHECKPOINT

Herold and Ney (2023) find that this share of the attention drops as the context grows (table 1).
Reference translations are used as the target.
"""

import argparse
import inspect
import logging
from typing import Iterable, List, NamedTuple

import torch
from fairseq import checkpoint_utils, utils
from torch import Tensor

from fairseq_docmt.checkpoint_file import read_translation_model
from fairseq_docmt.data.sequence_format import separator_index
from fairseq_docmt.errors import UserError, flag
from fairseq_docmt.modules.rnn.gru_decoder import GRUDecoder
from fairseq_docmt.modules.sentences import source_sentences


class Symbols(NamedTuple):
    """Dictionary indices of ``<sep>`` in the source and in the target, and of padding."""

    source_separator: int
    target_separator: int
    padding: int

    @classmethod
    def of(cls, task) -> "Symbols":
        """Return the indices of ``<sep>`` and padding in a task's dictionaries."""
        source, target = task.source_dictionary, task.target_dictionary
        return cls(separator_index(source), separator_index(target), target.pad())


def shares(attention: Tensor, source: Tensor, previous: Tensor, symbols: Symbols) -> Tensor:
    """Compute how much attention each target token pays to the source sentence that it translates.

    Args:
        attention: (B, T, S) weights of T target tokens, which sum to 1 over S source tokens.
        source: (B, S) source tokens; a separator belongs to the sentence before it.
        previous: (B, T) decoder input; the token after a separator begins the next sentence.
        symbols: indices of ``<sep>`` and padding.

    Returns:
        (n,) total weight on its own source sentence, for each target token that is not padding.
    """
    of_source = source_sentences(source.eq(symbols.source_separator))
    of_source = of_source.masked_fill(source.eq(symbols.padding), -1)
    of_target = previous.eq(symbols.target_separator).cumsum(dim=1)
    same = of_source.unsqueeze(1) == of_target.unsqueeze(2)
    return (attention * same).sum(dim=2)[previous.ne(symbols.padding)]


def _number_of_layers(model) -> int:
    """Return the number of decoder layers that attend to the source.

    Raises:
        UserError: the decoder, such as fairseq's ``lstm``, cannot return a chosen layer's
            attention.
    """
    if isinstance(model.decoder, GRUDecoder):
        return 1
    if "alignment_layer" not in inspect.signature(model.decoder.forward).parameters:
        raise UserError(
            f"{type(model).__name__} does not give the attention weights of each layer; give "
            "another model"
        )
    return len(model.decoder.layers)


@torch.no_grad()
def attention_share(model, samples: Iterable[dict], symbols: Symbols) -> List[float]:
    """Compute the share of cross-attention that target tokens pay to the sentence they translate.

    The share is averaged over all target tokens that have a loss.

    Args:
        model: encoder-decoder whose decoder returns the cross-attention of a chosen layer, as the
            stock transformer does.
        samples: batches with references.
        symbols: indices of ``<sep>`` and padding.

    Returns:
        Share in % for each decoder layer that attends to the source.

    Raises:
        UserError: the decoder does not return the attention of a chosen layer, or the samples
            have no target tokens.
    """
    layers = _number_of_layers(model)
    mass, tokens = [0.0] * layers, 0
    for sample in samples:
        net_input = sample["net_input"]
        source, previous = net_input["src_tokens"], net_input["prev_output_tokens"]
        encoder_out = model.encoder(source, net_input["src_lengths"])
        # Sentences of context have no loss with --loss-on last.
        counted = sample["target"].ne(symbols.padding)[previous.ne(symbols.padding)]
        tokens += int(counted.sum())
        for layer in range(layers):
            _, extra = model.decoder(previous, encoder_out=encoder_out, alignment_layer=layer)
            attention = (extra.get("attn") or [None])[0]
            if attention is None:
                raise UserError(
                    f"{type(model).__name__} has no attention weights; give another model"
                )
            of_tokens = shares(attention, source, previous, symbols)
            mass[layer] += float(of_tokens[counted].sum())
    if tokens == 0:
        raise UserError("the split has no target tokens; give one with documents")
    return [100 * m / tokens for m in mass]


def parse_args() -> argparse.Namespace:
    """Parse the options for the corpus, the checkpoint, the split and the batch size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("data", help="binarised corpus")
    add("--path", required=True, metavar="FILE", help="checkpoint")
    add("--split", default="test", help="split to analyse; default: test")
    add("--max-tokens", type=int, metavar="N", help="default: that of the training")
    add("--batch-size", type=int, metavar="N", help="default: that of the training")
    return parser.parse_args()


def main() -> None:
    """Print the attention share of each layer for a checkpoint.

    Raises:
        UserError: the checkpoint is missing or damaged, or the model or the split cannot be
            analysed (see :func:`attention_share`).
    """
    args = parse_args()
    logging.basicConfig(level=logging.WARNING)
    for option in ("max_tokens", "batch_size"):
        given = getattr(args, option)
        if given is not None and given < 1:
            raise UserError(f"{flag(option)} must be at least 1, got {given}")
    read_translation_model(args.path).refuse_diverged()
    models, cfg, task = checkpoint_utils.load_model_ensemble_and_task(
        [args.path], arg_overrides={"data": args.data, "eval_bleu": False}
    )
    model = models[0].eval()
    task.load_dataset(args.split)
    batches = task.get_batch_iterator(
        task.dataset(args.split),
        max_tokens=args.max_tokens or cfg.dataset.max_tokens,
        max_sentences=args.batch_size or cfg.dataset.batch_size,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
        ignore_invalid_inputs=True,
    ).next_epoch_itr(shuffle=False)
    found = attention_share(model, batches, Symbols.of(task))
    for layer, share in enumerate(found, start=1):
        print(f"{args.split}\tlayer {layer}\t{share:.1f} %")
    print(f"{args.split}\tmean\t{sum(found) / len(found):.1f} %")
