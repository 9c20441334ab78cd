r"""Plot the matching probabilities of a continuous cache.

    fairseq-docmt cache-matching DATA --path CHECKPOINT --out FOLDER \
        [--document 1 --sentence 2]

As in Tu et al. (2018), there are two plots: the average matching probability of the cache slots,
from the most to the least recently written (figure 3), and the matching matrix of one sentence
(figure 4b).  Reference translations are used as the target.
"""

from typing import Dict, List

import torch
from matplotlib import pyplot
from torch import Tensor

from fairseq_docmt._quiet import quietly
from fairseq_docmt.analysis._documents import (
    Document,
    document_of,
    documents_of,
    load,
    parse,
    parser_of,
    require_streams,
    write_results,
)
from fairseq_docmt.errors import UserError
from fairseq_docmt.modules.rnn.cache import CacheDecoder
from fairseq_docmt.ops.translation_cache import NO_WORD, Cache


@torch.no_grad()
def matching_of(model, document: Document):
    """Compute the matching probability of each cache slot at each target token of a document.

    Returns:
        A pair: the caches that the K sentences of the document read, and the (K, T, I) matching
        probabilities of their I slots at T target tokens.

    Raises:
        UserError: the model has no cache.
    """
    _require_cache(model)
    net_input = document.sample["net_input"]
    following = {key: net_input[key] for key in ("starts", "lanes")}
    encoder_out = model.encoder(net_input["src_tokens"], net_input["src_lengths"], **following)
    return model.decoder.matching(net_input["prev_output_tokens"], encoder_out)


def by_recency(cache: Cache, weights: Tensor, present: Tensor) -> Dict[str, Tensor]:
    """Sum the matching probabilities over all tokens, with slots ordered by how recent they are.

    Args:
        cache: caches of K sentences, with I slots.
        weights: (K, T, I) matching probabilities of the slots at T target tokens.
        present: (K, T) True at tokens, False at padding.

    Returns:
        A dictionary with two (I,) tensors, in which the most recently written slot comes first.
        ``probability`` is the sum of a slot's probabilities, and ``tokens`` the number of tokens at
        which the slot was filled, so that their ratio is the average probability.
    """
    order = cache.ages.argsort(dim=1, descending=True)
    filled = cache.words.ne(NO_WORD).gather(1, order)
    sorted_weights = weights.gather(2, order.unsqueeze(1).expand_as(weights))
    counted = present.unsqueeze(2) & filled.unsqueeze(1)
    return {
        "probability": (sorted_weights * counted).sum(dim=(0, 1)),
        "tokens": counted.sum(dim=(0, 1)),
    }


def mean_by_recency(model, documents) -> List[float]:
    """Compute the average matching probability of cache slots, most recently written slot first.

    Slots that are empty in all documents are left out.

    Raises:
        UserError: no document has two sentences, so that the cache is always empty.
    """
    probability, tokens = 0, 0
    for document in documents:
        sums = by_recency(*matching_of(model, document), document.of_target.ge(0))
        probability, tokens = probability + sums["probability"], tokens + sums["tokens"]
    if not torch.is_tensor(tokens) or not tokens.any():
        raise UserError(
            "no document has two sentences, so the cache is always empty; give another --split"
        )
    return (probability / tokens)[tokens > 0].tolist()


def matrix_of(model, task, document: Document, sentence: int) -> dict:
    """Compute the matching probability of each cache slot at each target word of a sentence.

    Args:
        model: model with a cache.
        task: task of the model, which has the target dictionary.
        document: document that contains the sentence.
        sentence: number of the sentence in the document, from 0.

    Returns:
        A dictionary: ``words`` lists the target words of the sentence, and ``slots`` the words in
        the cache, oldest first.  ``probabilities`` has a row for each target word and a column for
        each slot.
    """
    cache, weights = matching_of(model, document)
    order = cache.ages[sentence].argsort()
    order = order[cache.words[sentence, order] != NO_WORD]
    present = document.of_target[sentence].ge(0)
    dictionary = task.target_dictionary
    return {
        "words": [dictionary[t] for t in document.sample["target"][sentence][present].tolist()],
        "slots": [dictionary[t] for t in cache.words[sentence, order].tolist()],
        "probabilities": weights[sentence][present][:, order].tolist(),
    }


def _plot_matrix(matrix: dict):
    size = (2 + 0.35 * len(matrix["words"]), 1.5 + 0.25 * len(matrix["slots"]))
    figure, axes = pyplot.subplots(figsize=size)
    axes.imshow(torch.tensor(matrix["probabilities"]).T.numpy(), aspect="auto", cmap="Blues")
    axes.set_xticks(range(len(matrix["words"])), matrix["words"], rotation=90)
    axes.set_yticks(range(len(matrix["slots"])), matrix["slots"])
    axes.set_ylabel("slots")
    return figure


def _plot_recency(probabilities: List[float]):
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.bar(range(1, len(probabilities) + 1), probabilities)
    axes.set_xlabel("slot, the most recently written first")
    axes.set_ylabel("average matching probability")
    return figure


def _require_cache(model) -> None:
    if not isinstance(model.decoder, CacheDecoder) or model.decoder.cache_size == 0:
        raise UserError(f"{type(model).__name__} has no cache; analyse a checkpoint of cache_rnn")


def _sentence(args, task) -> Document:
    document = document_of(task, args.split, args.document)
    sentences = int(document.of_target.max()) + 1
    if not 1 < args.sentence <= sentences:
        raise UserError(
            f"--sentence {args.sentence} needs a sentence before it; the number of sentences is "
            f"{sentences}"
        )
    return document


def main() -> None:
    """Plot the matching probabilities of the checkpoint given on the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--path", required=True, help="checkpoint")
    parser.add_argument("--document", type=int, default=1, help="document of the matrix, from 1")
    parser.add_argument("--sentence", type=int, default=2, help="sentence of the matrix, from 1")
    args = parse(parser)
    with quietly():
        model, task = load(args.path, args.data)
        _require_cache(model)
        require_streams(task)
        document = _sentence(args, task)
        matrix = matrix_of(model, task, document, args.sentence - 1)
        probabilities = mean_by_recency(model, documents_of(task, args.split, args.documents))
        write_results(args.out, "cache_matching", matrix, _plot_matrix(matrix))
        write_results(args.out, "cache_by_recency", probabilities, _plot_recency(probabilities))
