"""memnet_rnn: what its memories depend on, and which parameters are trained."""

import functools

import pytest
import tiny
import torch
from batches import (
    EOS,
    PAD,
    numbers_of,
    random_document,
    run_documents,
    tensor_of,
    with_drafts,
)

from fairseq_docmt.data import stream_view
from fairseq_docmt.models.memnet_rnn import NEW_PARAMETERS
from fairseq_docmt.optim.grouped_adam import freeze_pretrained

VARIANTS = {
    f"{memory}, {place}": tiny.memnet("--context-side", memory, "--context-integration", place)
    for memory in ("source", "target", "both")
    for place in ("context", "output")
}


@pytest.fixture(params=VARIANTS)
def model(request):
    return tiny.model(*VARIANTS[request.param])


def differ(found, wanted):
    return [not torch.allclose(a, b, atol=1e-9, rtol=0) for a, b in zip(found, wanted)]


def test_sentence_language_models_stay_frozen(model):
    """The base model lacks them, but they are never trained."""
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert not any(".sentences." in name for name in trained)
    freeze_pretrained(model)
    left = {name for name, value in model.named_parameters() if value.requires_grad}
    assert left == {name for name in trained if any(part in name for part in NEW_PARAMETERS)}


@torch.no_grad()
def test_only_the_source_memory_knows_the_order_of_sentences(model):
    """Shuffling a document has no effect on a target memory, whose cells have no positions."""
    drafts = random_document([2, 5, 1, 4, 3], 11)
    sentences, order = with_drafts(random_document([3, 1, 5, 2, 4], 1), drafts), [3, 0, 4, 1, 2]
    before = run_documents(model, [sentences])
    after = run_documents(model, [[sentences[number] for number in order]])
    knows_order = model.encoder.source_memory is not None
    assert differ(after, [before[number] for number in order]) == [knows_order] * 5


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize("gold", [True, False], ids=["gold", "drafts"])
def test_groups_of_similar_length_change_nothing(model, monkeypatch, gold, left_pad):
    """Logits of the positions with loss, and gradients, also where the memories are not new."""
    monkeypatch.setattr(stream_view, "LEAST_ROWS", 2)
    few = functools.partial(stream_view.groups_with_least_padding, most=2)  # that have padding
    monkeypatch.setattr(stream_view, "groups_with_least_padding", few)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=torch.manual_seed(1))
    texts = [random_document(lengths, seed) for seed, lengths in enumerate([[3, 9, 1], [2, 6]])]
    others = [random_document(lengths, seed) for seed, lengths in enumerate([[4, 2, 8], [1, 5]])]
    documents = [with_drafts(*pair) for pair in zip(texts, others)]
    rows = [triple for document in documents for triple in document]
    _, words, drafts = map(tensor_of, zip(*rows))
    source = tensor_of([row[0] for row in rows], left_pad)
    target = words.roll(-1, 1).masked_fill(words.roll(-1, 1).eq(EOS), PAD)
    sizes = [[len(row[side]) for row in rows] for side in range(3)]
    groups = stream_view.group_rows(*sizes[:2], len(rows), left_pad, target.ne(PAD))
    of_drafts = stream_view.group_rows(sizes[0], sizes[2], len(rows), left_pad, drafts.ne(PAD))
    batch = (source, source.ne(PAD).sum(1), words, numbers_of(documents), None if gold else drafts)
    found = []
    for grouping in ((None, None), (groups, None if gold else of_drafts)):
        net_output = model(*batch, *grouping)
        targets = model.get_targets({"target": target}, net_output)
        logits, named = net_output[0][targets.ne(PAD)], targets[targets.ne(PAD)]
        model.zero_grad()
        torch.nn.functional.cross_entropy(logits, named).backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        found.append([logits, named, *gradients])
    assert net_output[0].shape[0] == 1 and len(found[0]) == len(found[1])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)
