"""Tiny models of every architecture, which the contract in models/ is tested with."""

from dataclasses import fields
from typing import List

import tiny
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.models.transformer import TransformerConfig, TransformerModelBase

import fairseq_docmt  # noqa: F401
from fairseq_docmt.errors import flag

#: registered name -> class of the model, for models of this package
OWN = {
    name: model
    for name, model in ARCH_MODEL_REGISTRY.items()
    if model.__module__.startswith("fairseq_docmt.")
}
#: variant -> command line; the first two words are ``--arch`` and its name
ARCHITECTURES = {
    "transformer": tiny.MODEL,
    "rfa": tiny.rfa(),
    "rfa-decay": tiny.rfa("--sentence-gate", "decay"),
    "rfa-average": tiny.rfa("--sentence-gate", "average"),
    "rfa-cross-gate": tiny.rfa("--sentence-gate", "average", "--gate-cross-attention"),
    "rfa-encoder": tiny.rfa("--rfa-encoder"),
    "rfa-shared": tiny.rfa(
        *["--sentence-gate", "average", "--gate-cross-attention", "--shared-gate"],
        *["--share-random-matrices", "--same-matrices-in-decoding"],
    ),
    "rfa-positive": tiny.rfa("--feature-map", "positive"),
    "rfa-learned-positions": tiny.rfa("--decoder-learned-pos", "--decoder-normalize-before"),
    "window": tiny.window("--train-alignment", "sentence"),
    "window-absolute": tiny.window("--train-alignment", "sentence", "--position", "absolute"),
    "window-relative-over-all": tiny.window(
        *["--train-alignment", "sentence", "--full-encoder-attention"],
        *["--full-decoder-attention", "--full-cross-attention"],
    ),
    "window-over-all": tiny.window(
        *["--train-alignment", "sentence", "--position", "absolute", "--full-encoder-attention"],
        *["--full-decoder-attention", "--full-cross-attention"],
    ),
    "lst": tiny.lst(),
    "lst-separate": tiny.lst("--separate-projections"),
    "group": tiny.group("--encoder-layers", "2", "--decoder-layers", "2"),
    "group-sentences": tiny.group(
        *["--encoder-context-layers", "0", "--decoder-context-layers", "0"],
        *["--cross-context-layers", "0"],
    ),
    "rnnsearch": tiny.rnnsearch(),
    "rnnsearch-layers": tiny.rnnsearch("--encoder-layers", "2", "--decoder-layers", "3"),
    "cache": tiny.cache(),
    "cache-shallow": tiny.cache("--context-integration", "shallow"),
    "context-target": tiny.context(),
    "context-attention": tiny.context("--context", "previous-source-attention"),
    "context-hierarchical": tiny.context("--context", "hierarchical", "--encoder-layers", "2"),
    "memnet": tiny.memnet(),
    "memnet-output": tiny.memnet("--context-integration", "output", "--context-side", "target"),
    "han": tiny.han("--context-sentences", "2"),
    "multi-encoder": tiny.multi_encoder("--context-side", "both"),
    "multi-encoder-inside": tiny.multi_encoder(
        *["--context-side", "both", "--context-integration", "inside"],
        *["--context-fusion", "sum", "--share-context-encoder"],
    ),
    "memory": tiny.memory(),
    "memory-normalized-before": tiny.memory(
        "--decoder-normalize-before", "--encoder-normalize-before"
    ),
}
#: of each architecture the one with the most parts
ONE_OF_EACH = ["transformer", "rfa-shared", "window", "lst-separate", "group", "rnnsearch-layers"]
ONE_OF_EACH += ["cache-shallow", "context-hierarchical", "memnet", "han", "multi-encoder-inside"]
ONE_OF_EACH += ["memory"]


def with_dropout(name: str) -> List[str]:
    """Return the command line of a variant with every kind of dropout that it has."""
    model, arch = model_class(name), ARCHITECTURES[name][1]
    configs = [getattr(model, "config", None), MODEL_DATACLASS_REGISTRY.get(arch)]
    configs += [TransformerConfig] * issubclass(model, TransformerModelBase)
    names = [field.name for config in configs if config for field in fields(config)]
    kinds = sorted({kind for kind in names if kind.endswith("dropout")})
    return [*ARCHITECTURES[name], *(word for kind in kinds for word in (flag(kind), "0.3"))]


def model_class(name: str) -> type:
    """Return the class of the model of a variant."""
    return ARCH_MODEL_REGISTRY[ARCHITECTURES[name][1]]


def _all_with(condition) -> List[str]:
    return [name for name in ARCHITECTURES if condition(model_class(name))]


#: variants that are transformers
TRANSFORMERS = _all_with(lambda model: issubclass(model, TransformerModelBase))
#: transformers in ONE_OF_EACH
ONE_TRANSFORMER_OF_EACH = [name for name in ONE_OF_EACH if name in TRANSFORMERS]
#: variants with a document state
STREAMS = _all_with(lambda model: getattr(model, "is_document_recurrent", False))
