"""Models of documents in lanes: what none of their equations says.

That lanes, chunks and neighbours change nothing, what is read of earlier sentences and how far
gradients reach is in tests/equations, document by document.
"""

import functools

import pytest
import tiny
import torch
from batches import (
    EOS,
    PAD,
    check,
    in_lanes,
    random_document,
    run,
    tensor_of,
    without_padding,
)

from fairseq_docmt.data import stream_view
from fairseq_docmt.errors import UserError

MEMORIES = {
    "both": [],
    "source": ["--context-side", "source"],
    "target": ["--context-side", "target"],
    "all layers": ["--memory-layers", "0,1", "--encoder-layers", "2", "--decoder-layers", "2"],
    "two sentences": ["--memory-gradient-sentences", "2"],
}
ARCHITECTURES = {
    **{f"memory, {name}": tiny.memory(*options) for name, options in MEMORIES.items()},
    "cache": tiny.cache("--cache-size", "40"),
    "cache, layers": tiny.cache("--cache-size", "40", "--decoder-layers", "2", "--no-overwrite"),
    "cache, shallow": tiny.cache("--cache-size", "40", "--context-integration", "shallow"),
    "cache, few slots": tiny.cache("--cache-size", "9"),
    "previous target": tiny.context(),
    "previous source": tiny.context("--context", "previous-source-attention"),
    "hierarchical": tiny.context("--context", "hierarchical", "--encoder-layers", "2"),
    **{
        f"{name}, {side}": make("--context-side", side)
        for name, make in (("han", tiny.han), ("multi-encoder", tiny.multi_encoder))
        for side in ("source", "target", "both")
    },
    "multi-encoder, inside": tiny.multi_encoder("--context-integration", "inside"),
}


PAIRS = random_document([3, 1, 5], seed=1)


@pytest.fixture(params=ARCHITECTURES)
def model(request):
    return tiny.model(*ARCHITECTURES[request.param])


@torch.no_grad()
def test_training_continues_in_another_precision(model):
    """A checkpoint of the middle of an epoch has document states of the precision before."""
    source = torch.tensor([[5, 6, 7, EOS], [8, 9, 5, EOS]])
    batch = {"src_tokens": source, "src_lengths": torch.tensor([4, 4]), "lanes": 2}
    batch["prev_output_tokens"] = source.roll(1, 1)
    model.train()
    doc_state = None
    for dtype in (torch.float32, torch.bfloat16, torch.float32):
        starts = torch.full((2,), doc_state is None)
        output, extra = model.to(dtype)(**batch, starts=starts, doc_state=doc_state)
        doc_state = extra["doc_state"]
        numbers = [value for value in doc_state.values() if value.is_floating_point()]
        assert {output.dtype, *(value.dtype for value in numbers)} == {dtype}


@torch.no_grad()
def test_rows_without_marks_are_documents_of_their_own(model):
    """As in tasks without streams."""
    found = without_padding(run(model, PAIRS)[0], PAIRS)
    alone = {"starts": torch.tensor([True]), "lanes": 1}
    check(found, [run(model, [pair], **alone)[0][0] for pair in PAIRS])


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
    with pytest.raises(UserError, match="--memory-layers 0,0 names a layer twice; give each once"):
        tiny.model(*tiny.memory("--memory-layers", "0,0"))


GROUPED = {
    **ARCHITECTURES,
    "memory, norm before": tiny.memory("--encoder-normalize-before", "--decoder-normalize-before"),
    "previous target, layers": tiny.context("--decoder-layers", "2"),
}


@pytest.fixture
def grouped_rows(monkeypatch):
    """Rows of three lanes, their targets, and a function that groups them."""
    monkeypatch.setattr(stream_view, "LEAST_ROWS", 2)
    few = functools.partial(stream_view.groups_with_least_padding, most=3)  # that have padding
    monkeypatch.setattr(stream_view, "groups_with_least_padding", few)
    lanes = [[random_document([3, 1, 7, 2], 1)], [random_document(n, 2) for n in ([2], [9, 4])]]
    lanes.append([random_document([1, 2], 3)])
    rows, starts = in_lanes(lanes)
    words = tensor_of([words for _, words in rows])
    target = words.roll(-1, 1).masked_fill(words.roll(-1, 1).eq(EOS), PAD)
    lengths = [[len(row[side]) for row in rows] for side in (0, 1)]

    def group(left_pad):
        grouping = stream_view.group_rows(*lengths, 3, left_pad, target.ne(PAD))
        assert len(grouping["source"]["rows"]) > 2
        return grouping

    return rows, torch.tensor(starts), target, group


def memories_of(doc_state):
    """Return the tensors of a document state, without states of padding."""

    def named(part):
        return [x for name, x in doc_state.items() if part in name.split(".")]

    present, states = named("present"), named("states")
    rest = [x for name, x in doc_state.items() if not {"present", "states"} & {*name.split(".")}]
    return [*(x.sum(1) for x in present), *(x[there] for x, there in zip(states, present)), *rest]


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize("name", GROUPED)
def test_groups_of_similar_length_change_nothing(grouped_rows, name, left_pad):
    """Logits of the positions with loss, gradients and document states."""
    rows, starts, target, group = grouped_rows
    model, found = tiny.model(*GROUPED[name]), []
    for groups in (None, group(left_pad)):
        stream = {"starts": starts, "lanes": 3, "row_groups": groups}
        net_output = run(model, rows, left_pad, **stream)
        targets, logits = model.get_targets({"target": target}, net_output), net_output[0]
        logits, words = logits[targets.ne(PAD)], targets[targets.ne(PAD)]
        model.zero_grad()
        torch.nn.functional.cross_entropy(logits, words).backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        found.append([logits, words, *gradients, *memories_of(net_output[1]["doc_state"])])
        assert net_output[0].shape[0] == (len(rows) if groups is None else 1)
    assert len(found[0]) == len(found[1])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", [name for name in GROUPED if name.startswith(("han", "multi"))])
def test_groups_of_an_encoder_have_the_keys_of_the_whole_batch(grouped_rows, name):
    """Lengths and padding are of all rows, in their order."""
    rows, starts, _, group = grouped_rows
    model = tiny.model(*GROUPED[name])
    source = tensor_of([source for source, _ in rows])
    whole, grouped = (
        model.encoder(source, starts=starts, lanes=3, row_groups=groups)
        for groups in (None, group(False))
    )
    assert grouped.keys() == whole.keys()
    for key in ("encoder_padding_mask", "separators"):
        assert torch.equal(grouped[key][0], whole[key][0])
    assert grouped["src_lengths"][0].tolist() == [[len(words)] for words, _ in rows]
    assert grouped["encoder_embedding"] == []
