"""Values computed in a search are found by the tokens of a hypothesis."""

import torch

from fairseq_docmt.modules.rnn.search_trace import SearchTrace

PAD = 1


def searched():
    """Two sentences of two beams; values encode the sentence and all tokens read."""
    trace, table = SearchTrace(2), torch.tensor([2, 2, 2, 2])
    trace.add(table, torch.tensor([[12.0], [12.0], [22.0], [22.0]]))
    trace.reorder(torch.tensor([0, 0, 2, 2]))
    table.copy_(torch.tensor([5, 6, 5, 7]))  # written into, as the generator does
    trace.add(table, torch.tensor([[125.0], [126.0], [225.0], [227.0]]))
    table.zero_()
    # The first sentence ends; both beams of the second go on from its second hypothesis.
    trace.reorder(torch.tensor([3, 3]))
    trace.add(torch.tensor([5, 6]), torch.tensor([[2275.0], [2276.0]]))
    return trace


def test_by_hand():
    (found,) = searched().find(torch.tensor([[2, 6, PAD], [2, 7, 5]]), PAD)
    assert found.tolist() == [[[12.0], [126.0], [0.0]], [[22.0], [227.0], [2275.0]]]


def test_shorter_than_the_search():
    (found,) = searched().find(torch.tensor([[2, 5], [2, 5]]), PAD)
    assert found.tolist() == [[[12.0], [125.0]], [[22.0], [225.0]]]


def test_hypotheses_that_were_not_searched_are_not_found():
    """Another word, a hypothesis without continuation, too long a sentence, no search."""
    for tokens in ([[2, 7], [2, 5]], [[2, 6, PAD], [2, 5, 5]], [[2, 6, 5, 5], [2, 7, 5, 5]]):
        assert searched().find(torch.tensor(tokens), PAD) is None
    assert SearchTrace(2).find(torch.tensor([[2], [2]]), PAD) is None


def test_orders_without_a_step_are_composed():
    trace = SearchTrace(1)
    trace.add(torch.tensor([2, 3]), torch.tensor([1.0, 2.0]))
    trace.reorder(torch.tensor([1, 0]))
    trace.reorder(torch.tensor([0, 0]))
    trace.add(torch.tensor([4, 5]), torch.tensor([3.0, 4.0]))
    (found,) = trace.find(torch.tensor([[3, 5]]), PAD)
    assert found.tolist() == [[2.0, 4.0]]
    assert trace.find(torch.tensor([[2, 5]]), PAD) is None
