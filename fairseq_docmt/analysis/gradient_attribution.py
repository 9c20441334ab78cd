"""Measure how strongly the loss of a sentence depends on earlier sentences, by gradient norms.

    fairseq-docmt gradient-attribution DATA --path CHECKPOINT --out FOLDER

Feng et al. (2022), section 5.2 and figure 4, take the gradient of a sentence's loss with respect to
the embeddings of earlier sentences, and plot its norm by the distance between the two sentences, in
ranges of ten.  Here the gradient is taken with respect to the embedding of each token occurrence.
The paper uses rows of the embedding matrix instead and has to exclude repeated words.  Norms are
averaged over the tokens of both sides, over sentences and over documents.

The model must have been trained on several sentences at once.  Two groups of architectures cannot
be analysed: those that keep earlier sentences without gradients (cache_rnn, memnet_rnn), and those
that embed earlier sentences once more as context (multi_encoder_transformer, and context_rnn with
previous source sentences).
"""

import contextlib
from collections import defaultdict
from typing import Dict, Iterable, List

import torch
from matplotlib import pyplot
from torch import Tensor

from fairseq_docmt._quiet import quietly
from fairseq_docmt.analysis._documents import (
    Document,
    documents_of,
    gradients_through_all_sentences,
    load,
    parse,
    parser_of,
    write_results,
)
from fairseq_docmt.errors import UserError
from fairseq_docmt.models.interface import reads_documents
from fairseq_docmt.modules.rnn.cache import CacheDecoder


def by_distance(model, documents: Iterable[Document]) -> Dict[int, float]:
    """Compute how strongly the loss of a sentence depends on the tokens of earlier sentences.

    The measure is the norm of the gradient of the loss with respect to the embedding of a source or
    target token.  It is averaged over all tokens that are equally many sentences away from the
    sentence with the loss.

    Args:
        model: model in evaluation mode.
        documents: examples with references.

    Returns:
        Distance in sentences -> mean norm; distance 0 is the sentence itself.

    Raises:
        UserError: no document has two sentences, or the architecture cannot be analysed.
    """
    _refuse_without_gradients(model)
    total: Dict[int, float] = defaultdict(float)
    count: Dict[int, int] = defaultdict(int)
    for document in documents:
        for later, norms, sentences in _gradients(model, document):
            for sentence in range(later + 1):
                tokens = norms[sentences == sentence]
                total[later - sentence] += float(tokens.sum())
                count[later - sentence] += len(tokens)
    if max(count, default=0) < 1:
        raise UserError("no example has two sentences; analyse a model that sees several at once")
    return {d: total[d] / count[d] for d in sorted(count)}


def _refuse_without_gradients(model) -> None:
    """Raise a UserError for models whose losses have no gradient at earlier sentences."""
    if isinstance(model.decoder, CacheDecoder) or reads_documents(model):
        raise UserError(
            f"{type(model).__name__} keeps earlier sentences without gradients; analyse another "
            "architecture"
        )


def _gradients(model, document: Document):
    """Compute, for the loss of each sentence of a document, the gradient norm at all tokens.

    Sentences without loss are skipped.

    Yields:
        Number of the sentence whose loss is used, (n,) gradient norms at the n source and target
        tokens, and (n,) sentence number of each of these tokens, -1 for padding.

    Raises:
        UserError: the model embeds earlier sentences once more as context.
    """
    with gradients_through_all_sentences(model), _embeddings(model) as embeddings:
        output = model(**document.sample["net_input"])
        scores = model.get_normalized_probs(output, log_probs=True)
    if len(embeddings) != 2:
        raise UserError(
            f"{type(model).__name__} embeds earlier sentences once more as context, at other "
            "positions; analyse another architecture"
        )
    target = document.sample["target"]
    of_target = document.of_target
    losses = -scores.gather(2, target.unsqueeze(2)).squeeze(2)
    sentences = torch.cat([document.of_source.flatten(), document.of_input.flatten()])
    last = int(of_target.max())
    for sentence in range(last + 1):
        if not (of_target == sentence).any():  # the context of a window with --loss-on last
            continue
        loss = losses[of_target == sentence].sum()
        gradients = torch.autograd.grad(
            loss, embeddings, retain_graph=sentence < last, allow_unused=True
        )
        norms = [
            torch.zeros(x.shape[:2]) if g is None else g.norm(dim=2)
            for g, x in zip(gradients, embeddings)
        ]
        yield sentence, torch.cat([n.flatten() for n in norms]), sentences


@contextlib.contextmanager
def _embeddings(model):
    """Record the token embeddings that a model computes within the ``with`` block.

    Yields:
        A list to which each forward pass appends the embedded source and the embedded target.  It
        gets further elements if the model embeds context separately.
    """
    found: List[Tensor] = []
    embeddings = dict.fromkeys([model.encoder.embed_tokens, model.decoder.embed_tokens])
    with contextlib.ExitStack() as hooks:
        for module in embeddings:
            hook = module.register_forward_hook(lambda _, inputs, x: found.append(x))
            hooks.enter_context(hook)
        yield found


def in_ranges(scores: Dict[int, float], size: int = 10) -> Dict[str, float]:
    """Average scores over ranges of distances (1-10, 11-20, ...), without distance 0.

    Args:
        scores: distance in sentences -> score.
        size: number of distances in a range.

    Returns:
        Name of the range, such as ``1-10`` -> mean of its scores.
    """
    ranges: Dict[str, list] = defaultdict(list)
    for distance, score in scores.items():
        if distance > 0:
            first = (distance - 1) // size * size + 1
            ranges[f"{first}-{first + size - 1}"].append(score)
    return {name: sum(values) / len(values) for name, values in ranges.items()}


def main() -> None:
    """Compute and plot gradient norms by distance for the checkpoint given on the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--path", required=True, help="checkpoint")
    args = parse(parser)
    with quietly():
        model, task = load(args.path, args.data)
        scores = by_distance(model, documents_of(task, args.split, args.documents))
        ranges = in_ranges(scores)
        figure, axes = pyplot.subplots(figsize=(6, 4))
        axes.bar(list(ranges), list(ranges.values()))
        axes.set_yscale("log")
        axes.set_xlabel("sentences between a token and the loss")
        axes.set_ylabel("norm of the gradient")
        results = {"by distance": scores, "by range": ranges}
        write_results(args.out, "gradient_attribution", results, figure)
