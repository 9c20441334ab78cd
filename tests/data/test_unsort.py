"""Batches whose rows stay in the order of the examples, where fairseq sorts them by length."""

import pytest
import torch
from fairseq.data.language_pair_dataset import collate

from fairseq_docmt.data.unsort import sample_in_order

PAD, EOS = 1, 2


def stock(examples):
    return collate(examples, PAD, EOS, left_pad_source=True)


def example(number, length, with_target):
    words = torch.arange(4, 4 + length)
    found = {"id": number, "source": torch.cat([words, torch.tensor([EOS])])}
    return {**found, "target": found["source"] + 10} if with_target else found


@pytest.mark.parametrize("with_target", [True, False])
def test_rows_are_in_the_order_of_the_examples(with_target):
    examples = [example(*row, with_target) for row in ((7, 2), (3, 5), (7, 1), (0, 3))]
    sample = sample_in_order(examples, stock)
    assert sample["id"].tolist() == [7, 3, 7, 0]
    net_input = sample["net_input"]
    assert net_input["src_lengths"].tolist() == [3, 6, 2, 4]
    for row, wanted in enumerate(examples):
        source = net_input["src_tokens"][row]
        assert source[source.ne(PAD)].tolist() == wanted["source"].tolist()
        if with_target:
            target = sample["target"][row]
            assert target[target.ne(PAD)].tolist() == wanted["target"].tolist()
            previous = net_input["prev_output_tokens"][row]
            assert previous[previous.ne(PAD)][1:].tolist() == wanted["target"][:-1].tolist()
    assert with_target or sample["target"] is None
