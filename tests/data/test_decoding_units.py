import numpy as np
import torch
from fairseq.data import Dictionary

from fairseq_docmt.data import DecodingUnits, DocumentIndex, part_spans, window_spans

EOS = 2


def units_of(lengths, window_size, **options):
    index = DocumentIndex.from_lengths(lengths)
    lines = [torch.tensor([EOS]) for _ in range(int(index.rows[-1]) + 1)]
    for number, row in enumerate(index.rows):
        lines[row] = torch.tensor([10 + number] * (1 + number % 3) + [EOS])
    sizes = np.array([len(line) for line in lines])
    limits = [(sizes[index.rows], 10**6)]
    if window_size:
        spans = window_spans(index, window_size, limits)
    else:
        spans = part_spans(index, (sizes[index.rows], 8), limits)
    words = Dictionary()
    return DecodingUnits(
        lines, None, sizes, words, index, spans, window_size=window_size, **options
    )


def test_windows_translate_their_last_sentence():
    units = units_of((3, 2), 2)
    sample = units.collater([units[2], units[3]])
    assert sample["id"].tolist() == [2, 4]
    assert [len(u["source"]) for u in sample["units"]] == [2, 1]
    assert [u["rows"] for u in sample["units"]] == [1, 1]
    assert [u["position"] for u in sample["units"]] == [2, 0]
    assert [u["at_start"] for u in sample["units"]] == [False, True]


def test_parts_translate_all_their_sentences_and_rows_show_the_original_ones():
    units = units_of((4, 1), 0)
    sample = units.collater([units[i] for i in range(len(units))])
    assert sample["id"].tolist() == [0, 1, 2, 3, 5]
    shown = [row[row.ne(1)].tolist() for row in sample["net_input"]["src_tokens"]]
    assert shown == [[10, 2], [11, 11, 2], [12, 12, 12, 2], [13, 2], [14, 14, 2]]


def test_waves_follow_documents_and_keep_them_in_one_process():
    lengths = (3, 1, 5, 2, 4)
    units = units_of(lengths, 3)
    for shards in (1, 2, 3):
        for max_units in (1, 2, 10):
            batches = units.batches(None, max_units, keep_order=True, shards=shards)
            seen = [unit for batch in batches for unit in batch]
            assert sorted(seen) == list(range(sum(lengths)))
            shard_of = {}
            next_position = {}
            for number, batch in enumerate(batches):
                assert len(batch) <= max_units
                for unit in batch:
                    document = int(units.index.document[unit])
                    assert shard_of.setdefault(document, number % shards) == number % shards
                    assert next_position.get(document, 0) == units.position[unit]
                    next_position[document] = units.position[unit] + 1


def test_batches_keep_the_token_limit():
    units = units_of((9, 8, 7), 3)
    for keep_order in (False, True):
        for batch in units.batches(30, None, keep_order=keep_order, shards=1):
            assert len(batch) == 1 or max(units.sizes[u] for u in batch) * len(batch) <= 30


def test_lines_of_an_open_document_go_on_after_the_carried_sentences():
    carried = [torch.tensor([90, EOS]), torch.tensor([91, EOS])]
    units = units_of((2, 2), 3, carried=carried, first_position=5, first_document=7)
    first, second, third = units[0], units[1], units[2]
    assert [s[0].item() for s in first["source"]] == [90, 91, 10]
    assert [s[0].item() for s in second["source"]] == [91, 10, 11]
    assert (first["position"], second["position"], first["document"]) == (5, 6, 7)
    assert not first["at_start"]
    assert [s[0].item() for s in third["source"]] == [12]
    assert (third["document"], third["at_start"]) == (8, True)
