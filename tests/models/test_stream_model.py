"""Models of documents in lanes: what none of their equations says.

That lanes, chunks and neighbours change nothing, what is read of earlier sentences and how far
gradients reach is in tests/equations, document by document.
"""

import pytest
import tiny
import torch
from batches import check, random_document, run, without_padding

from fairseq_docmt.errors import UserError

MEMORIES = {
    "both": [],
    "source": ["--memory-side", "source"],
    "target": ["--memory-side", "target"],
    "all layers": ["--memory-layers", "0,1", "--encoder-layers", "2", "--decoder-layers", "2"],
    "two sentences": ["--memory-gradient-sentences", "2"],
    "exact gradients": ["--exact-memory-gradient"],
}
ARCHITECTURES = {
    **{f"memory, {name}": tiny.memory(*options) for name, options in MEMORIES.items()},
    "cache": tiny.cache("--cache-size", "40"),
    "cache, layers": tiny.cache("--cache-size", "40", "--decoder-layers", "2", "--no-overwrite"),
    "cache, shallow": tiny.cache("--cache-size", "40", "--fusion", "shallow"),
    "cache, few slots": tiny.cache("--cache-size", "9"),
    "previous target": tiny.context(),
    "previous source": tiny.context("--context", "previous-source-attention"),
    "hierarchical": tiny.context("--context", "hierarchical", "--encoder-layers", "2"),
}


PAIRS = random_document([3, 1, 5], seed=1)


@pytest.fixture(params=ARCHITECTURES)
def model(request):
    return tiny.model(*ARCHITECTURES[request.param])


@torch.no_grad()
def test_rows_without_marks_are_documents_of_their_own(model):
    """As in tasks without streams."""
    found = without_padding(run(model, PAIRS)[0], PAIRS)
    alone = {"starts": torch.tensor([True]), "lanes": 1}
    check(found, [run(model, [pair], **alone)[0][0] for pair in PAIRS])


def test_exact_gradients_need_an_end():
    with pytest.raises(UserError, match="--exact-memory-gradient contradicts"):
        tiny.model(*tiny.memory("--exact-memory-gradient", "--memory-gradient-sentences", "0"))


def test_every_parameter_takes_part_in_every_batch(model):
    """As torch's data-parallel training expects, also in batches without previous sentences."""
    starts = torch.tensor([True, True])
    output, _ = run(model.train(), PAIRS[:2], starts=starts, lanes=2)
    output.log_softmax(-1)[..., 5].sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_missing_layers_are_refused():
    for layers in ("1", "x", "-1"):
        with pytest.raises(UserError, match=f"--memory-layers {layers} must name layers from 0"):
            tiny.model(*tiny.memory("--memory-layers", layers))
