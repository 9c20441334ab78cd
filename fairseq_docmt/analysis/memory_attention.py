r"""Plot the attention of recurrent memories, and their information gain.

    fairseq-docmt memory-attention DATA --path CHECKPOINT --out FOLDER \
        [--document 1 --sentence 2]

As in Feng et al. (2022), there are two plots: the attention maps of one sentence (figures 6 and 7),
made with the first checkpoint, and the information gain of memories of different sizes (figure 2),
for which ``--path`` takes several checkpoints.  The paper has no formula for the gain "between the
random initialized memory and well trained memory".  Here it is the Kullback-Leibler divergence of
the attention with the model's memory from the attention with a random memory, in nats, averaged
over heads, queries and sentences.
"""

import contextlib
from typing import Dict, List, NamedTuple, Tuple

import torch
from matplotlib import pyplot
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from fairseq_docmt._quiet import quietly
from fairseq_docmt.analysis._documents import (
    Document,
    document_of,
    documents_of,
    gradients_through_all_sentences,
    load,
    parse,
    parser_of,
    require_streams,
    write_results,
)
from fairseq_docmt.errors import UserError
from fairseq_docmt.modules.recurrent_memory import SentenceMemory


class MemoryMaps(NamedTuple):
    """Attention weights of one recurrent memory for the K sentences of a document.

    H is the number of heads, m the number of memory vectors, and T the number of tokens.

    Attributes:
        update: (K - 1, H, m, T) attention of memory vectors to the tokens of each sentence except
            the last, whose update is never read.
        output: (K, H, T, m) attention of tokens to memory vectors.
        random_update, random_output: the same weights if the memory is replaced by a random one.
        present: (K, T) True at tokens, False at padding.
    """

    update: Tensor
    output: Tensor
    random_update: Tensor
    random_output: Tensor
    present: Tensor


def memories_of(model, path: str = "") -> Dict[str, SentenceMemory]:
    """Return the recurrent memories of a model by name, e.g. ``encoder layer 5``.

    Args:
        model: the model.
        path: its checkpoint, for the message; "" to leave it out.

    Raises:
        UserError: the model has no recurrent memory.
    """
    found = {
        f"{side} layer {layer}": memory
        for side in ("encoder", "decoder")
        for layer, memory in getattr(getattr(model, side), "memories", nn.ModuleDict()).items()
    }
    if not found:
        subject = f"{path}: {type(model).__name__}" if path else type(model).__name__
        raise UserError(f"{subject} has no recurrent memory; give a memory_transformer")
    return found


@torch.no_grad()
def attention_maps(model, document: Document) -> Dict[str, MemoryMaps]:
    """Compute the attention maps of all recurrent memories for the sentences of a document.

    Returns:
        Name of the memory, as in :func:`memories_of` -> its attention maps.

    Raises:
        UserError: the model has no recurrent memory.
    """
    memories = memories_of(model)
    calls: Dict[nn.Module, list] = {}
    with contextlib.ExitStack() as hooks:
        for memory in memories.values():
            for attention in (memory.update_attention, memory.output_attention):
                calls[attention] = []
                hook = attention.register_forward_pre_hook(lambda m, x: calls[m].append(x))
                hooks.enter_context(hook)
        # one update for each sentence, in order
        hooks.enter_context(gradients_through_all_sentences(model))
        model(**document.sample["net_input"])
    present = {"encoder": document.of_source.ge(0), "decoder": document.of_target.ge(0)}
    return {
        name: _maps(
            memory,
            calls[memory.update_attention],
            calls[memory.output_attention][0],
            present[name.split()[0]],
        )
        for name, memory in memories.items()
    }


def _maps(module: SentenceMemory, updates: list, output: tuple, present: Tensor) -> MemoryMaps:
    """Compute the attention maps of one memory from the inputs of its attention modules.

    Args:
        module: recurrent memory.
        updates: the pairs (queries, source) that the update attention gets, one for each sentence
            except the last.
        output: the pair (states, source) that the output attention gets for all sentences.
        present: (sentences, tokens) True at tokens, False at padding.
    """
    generator = torch.Generator().manual_seed(1)
    size = module.initial.shape
    drawn = torch.randn(len(present), *size, generator=generator).to(module.initial)
    random = module.initial_norm(drawn)
    weights, states = module.update_attention.weights, output[0]
    return MemoryMaps(
        torch.cat([weights(query, source) for query, source in updates]),
        module.output_attention.weights(*output),
        torch.cat(
            [
                weights(memory.unsqueeze(0) + module.positions.to(memory), source)
                for memory, (_, source) in zip(random, updates)
            ]
        ),
        module.output_attention.weights(states, module.project_memory(random)),
        present,
    )


def information_gain(maps: MemoryMaps) -> Dict[str, float]:
    """Measure how far attention with the model's memory diverges from that with a random memory.

    Returns:
        A dictionary of mean divergences KL(model || random) in nats: ``update`` for the attention
        of memory vectors to a sentence, and ``output`` for the attention of tokens to memory
        vectors.
    """
    update = _divergence(maps.update, maps.random_update).mean()
    output = _divergence(maps.output, maps.random_output)  # (K, H, T)
    at_tokens = maps.present.unsqueeze(1).expand_as(output)
    return {"update": float(update), "output": float(output[at_tokens].mean())}


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    """Compute the Kullback-Leibler divergence KL(p || q) over the last dimension; 0 log 0 is 0."""
    return torch.where(p > 0, p * (p.log() - q.log()), torch.zeros_like(p)).sum(-1)


def mean_gain(model, documents) -> Dict[str, float]:
    """Average the two values of :func:`information_gain` over memories and documents.

    Documents of a single sentence are skipped, because they read only the initial memory.

    Raises:
        UserError: no document has more than one sentence.
    """
    gains: Dict[str, List[float]] = {"update": [], "output": []}
    for document in documents:
        if document.of_target.max() < 1:
            continue  # a single sentence reads only the initial memory
        for maps in attention_maps(model, document).values():
            for name, value in information_gain(maps).items():
                gains[name].append(value)
    if not gains["update"]:
        raise UserError("no document has two sentences, so no memory is read; give another --split")
    return {name: sum(values) / len(values) for name, values in gains.items()}


def _of_sentence(maps: MemoryMaps, sentence: int) -> Tuple[Tensor, Tensor]:
    """Return how a memory attends to a sentence, and how the next sentence attends to the memory.

    Args:
        maps: attention maps of the memory.
        sentence: number of the sentence, from 0.

    Returns:
        (m, T) attention weights of the m memory vectors to the T tokens of the sentence, and
        (T', m) weights of the T' tokens of the next sentence to the memory vectors.  Both are
        averaged over heads and have no padding.
    """
    update = maps.update[sentence][:, :, maps.present[sentence]]
    return update.mean(0), maps.output[sentence + 1][:, maps.present[sentence + 1]].mean(0)


def _plot_maps(maps: Dict[str, MemoryMaps], words: Dict[str, List[List[str]]], sentence: int):
    """Plot how each memory reads a sentence, and how the next sentence then reads the memory.

    Args:
        maps: name of the memory -> its attention maps.
        words: tokens of the two sentences, see :func:`_words`.
        sentence: number of the first of the two sentences, from 0.
    """
    figure, panels = pyplot.subplots(len(maps), 2, figsize=(12, 4 * len(maps)), squeeze=False)
    for row, (name, map_) in zip(panels, maps.items()):
        side = words[name.split()[0]]
        update, output = _of_sentence(map_, sentence)
        for axes, values, tokens in ((row[0], update, side[0]), (row[1], output.T, side[1])):
            axes.imshow(values.numpy(), aspect="auto", cmap="Blues")
            axes.set_xticks(range(len(tokens)), tokens, rotation=90)
            axes.set_ylabel("memory vector")
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        row[0].set_title(f"{name}: update from sentence {sentence + 1}")
        row[1].set_title(f"{name}: output to sentence {sentence + 2}")
    return figure


def _words(task, document: Document, sentence: int) -> Dict[str, List[List[str]]]:
    """Return the tokens of a sentence and of the next one, as labels for a plot.

    Returns:
        A dictionary with the keys ``encoder`` and ``decoder``.  Each value is a list of the tokens
        of the sentence and a list of the tokens of the next one.  For the decoder, they are its
        input tokens.
    """
    net_input = document.sample["net_input"]
    sides = {
        "encoder": (task.source_dictionary, net_input["src_tokens"]),
        "decoder": (task.target_dictionary, net_input["prev_output_tokens"]),
    }
    return {
        side: [
            [words[t] for t in tokens[row].tolist() if t != words.pad()]
            for row in (sentence, sentence + 1)
        ]
        for side, (words, tokens) in sides.items()
    }


def _show_sentence(args, model, task) -> None:
    require_streams(task)
    document, sentence = document_of(task, args.split, args.document), args.sentence - 1
    sentences = int(document.of_target.max()) + 1
    if not 0 <= sentence < sentences - 1:
        raise UserError(
            f"--sentence {args.sentence}: sentences are counted from 1, and one must follow, but "
            f"--document {args.document} has {sentences}; give another sentence or document"
        )
    maps = attention_maps(model, document)
    results = {
        name: dict(zip(("update", "output"), (x.tolist() for x in _of_sentence(each, sentence))))
        for name, each in maps.items()
    }
    words = _words(task, document, sentence)
    figure = _plot_maps(maps, words, sentence)
    write_results(args.out, "memory_attention", {"words": words, "maps": results}, figure)


def _compare_sizes(args, checkpoints) -> None:
    rows = []
    for path in checkpoints:
        model, task = load(path, args.data)
        size = next(iter(memories_of(model).values())).initial.size(0)
        require_streams(task)
        gain = mean_gain(model, documents_of(task, args.split, args.documents))
        rows.append({"checkpoint": path, "size": size, **gain})
    rows.sort(key=lambda row: row["size"])
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for name in ("update", "output"):
        axes.plot([r["size"] for r in rows], [r[name] for r in rows], "-o", label=name)
    axes.set_xlabel("memory vectors")
    axes.set_ylabel("information gain, nats")
    axes.legend()
    write_results(args.out, "information_gain", rows, figure)


def main() -> None:
    """Plot attention maps and information gain for the checkpoints given on the command line."""
    parser = parser_of(__doc__)
    parser.add_argument("--path", required=True, nargs="+", help="checkpoints")
    parser.add_argument("--document", type=int, default=1, help="document of the maps, from 1")
    parser.add_argument("--sentence", type=int, default=1, help="sentence of the maps, from 1")
    args = parse(parser)
    with quietly():
        first, *others = args.path
        loaded = load(first, args.data)
        memories_of(loaded[0], first)
        for path in others:  # before anything is written
            memories_of(load(path, args.data)[0], path)
        _show_sentence(args, *loaded)
        _compare_sizes(args, args.path)
