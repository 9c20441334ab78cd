"""Decoding units of windows and documents, and their batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from fairseq_docmt.data import (
    Cut,
    DecodingUnits,
    DocumentIndex,
    Lines,
    part_spans,
    window_spans,
)
from fairseq_docmt.data.decoding_units import DecodingUnit, OpenDocument

EOS = 2


def units_of(lengths, window_size, empty_lines=(), opened=None, **options):
    index = DocumentIndex.from_lengths(lengths)
    lines = [torch.tensor([EOS]) for _ in range(int(index.line_ids[-1]) + 1)]
    for number, row in enumerate(index.line_ids):
        lines[row] = torch.tensor([10 + number] * (1 + number % 3) + [EOS])
    sizes = np.array([len(line) for line in lines])
    limits = [(sizes[index.line_ids], 10**6)]
    if window_size:
        spans = window_spans(index, window_size, limits)
    else:
        spans = part_spans(index, (sizes[index.line_ids], 8), limits)
    given = Lines(lines, sizes, Dictionary(), **options)
    return DecodingUnits(
        given, Cut(index, spans, window=window_size or None), empty_lines, opened=opened
    )


def test_windows_translate_their_last_sentence():
    units = units_of((3, 2), 2)
    sample = units.collater([units[2], units[3]])
    assert sample["id"].tolist() == [2, 4]
    assert [len(u.source) for u in sample["units"]] == [2, 1]
    assert [u.num_rows for u in sample["units"]] == [1, 1]
    assert [u.position for u in sample["units"]] == [2, 0]
    assert [u.at_start for u in sample["units"]] == [False, True]


def test_parts_translate_all_their_sentences_and_rows_show_the_original_ones():
    units = units_of((4, 1), 0)
    sample = units.collater([units[i] for i in range(len(units))])
    assert sample["id"].tolist() == [0, 1, 2, 3, 5]
    shown = [row[row.ne(1)].tolist() for row in sample["net_input"]["src_tokens"]]
    assert shown == [[10, 2], [11, 11, 2], [12, 12, 12, 2], [13, 2], [14, 14, 2]]
    assert sample["net_input"]["src_tokens"][0].tolist() == [1, 1, 10, 2]


def test_the_longest_come_first_and_equal_ones_in_their_order():
    units = units_of((60,), 1)
    found = units.batches(None, 1, keep_order=False, shards=1)
    assert found == [[unit] for unit in sorted(range(60), key=lambda unit: -units.sizes[unit])]


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


def test_lines_of_an_open_document_follow_its_earlier_sentences():
    earlier = [torch.tensor([90, EOS]), torch.tensor([91, EOS])]
    units = units_of((2, 2), 3, opened=OpenDocument(7, 5, earlier))
    first, second, third = units[0], units[1], units[2]
    assert [s[0].item() for s in first.source] == [90, 91, 10]
    assert [s[0].item() for s in second.source] == [91, 10, 11]
    assert (first.position, second.position, first.document) == (5, 6, 7)
    assert not first.at_start
    assert [s[0].item() for s in third.source] == [12]
    assert (third.document, third.at_start) == (8, True)


def test_an_open_document_is_the_first():
    """Its state is kept until another document is decoded; the others begin with the longest."""
    units = units_of((1, 2, 3), 1, opened=OpenDocument(7, 5))
    found = units.batches(None, 1, keep_order=True, shards=1)
    assert found == [[0], [3], [4], [5], [1], [2]]


def test_lines_of_an_open_document_need_no_more_context_than_a_window():
    """Parts of documents take none, and windows take only the missing sentences."""
    earlier = [torch.tensor([90 + i, EOS]) for i in range(3)]
    parts = units_of((2, 1), 0, opened=OpenDocument(0, 5, earlier))
    assert [s[0].item() for s in parts[0].source] == [10, 11]
    assert (parts[0].position, parts[0].at_start) == (5, False)
    windows = units_of((3,), 2, opened=OpenDocument(0, 3, earlier))
    found = [[s[0].item() for s in windows[i].source] for i in range(3)]
    assert found == [[92, 10], [10, 11], [11, 12]]
    whole = units_of((2,), 3, opened=OpenDocument(0, 1, earlier[:1]))
    assert [whole[i].at_start for i in range(2)] == [True, True]


def test_sizes_and_rows_with_nothing_to_translate():
    units = units_of((3, 1), 2, [3, 5], OpenDocument(4))
    assert len(units) == 6
    assert units.sizes.tolist() == [2, 5, 7, 2, 1, 1]  # sentences of 2, 3, 4 and 2 tokens
    assert [units.size(2), units.num_tokens(1), units.num_tokens(5)] == [7, 5, 1]
    assert type(units.size(0)) is type(units.num_tokens(0)) is int
    assert units[5] == DecodingUnit([5], source=[])
    assert (units[3].line_ids, units[3].document) == ([4], 5)
    for keep_order in (False, True):
        assert units.batches(None, None, keep_order, shards=1)[-1] == [4, 5]


def test_documents_keep_their_numbers_without_the_sentences_that_are_too_long():
    """The first document of the buffer, which continues an earlier one, has none but these."""
    index = DocumentIndex.from_lengths((1, 2))
    lines, sizes = [torch.tensor([7, EOS])] * 4, np.array([2, 1, 2, 2])
    cut = Cut(index.without(np.array([True, False, True])), np.array([[0, 1]]), window=2)
    units = DecodingUnits(
        Lines(lines, sizes, Dictionary()),
        cut,
        empty_lines=[1, 0, 3],
        too_long={0: 0, 3: 1},
        opened=OpenDocument(4, 2, [torch.tensor([8, EOS])]),
    )
    found = [(unit.line_ids, unit.document) for unit in map(units.__getitem__, range(4))]
    assert found == [([2], 5), ([1], -1), ([0], 4), ([3], 5)]
    assert (units[0].position, units[0].at_start, len(units[0].source)) == (0, True, 1)


def test_targets_drafts_and_constraints_belong_to_their_rows():
    tgt = [torch.tensor([30 + row] * (5 - row) + [EOS]) for row in range(5)]
    drafts = [f"draft {row}" for row in range(5)]
    constraints = torch.arange(5).view(5, 1)
    units = units_of((2, 2), 0, tgt=tgt, drafts=drafts, constraints=constraints)
    assert [t[0].item() for t in units[1].target] == [33, 34]
    assert [units[i].drafts for i in range(2)] == [
        ["draft 0", "draft 1"],
        ["draft 3", "draft 4"],
    ]
    alone = replace(units[1], constraints=constraints[3:]).row_alone(1)
    assert (alone.drafts, alone.constraints.tolist()) == (["draft 4"], [[4]])
    assert [t[0].item() for t in alone.target] == [34]
    sample = units.collater([units[1], units[0]])
    assert sample["id"].tolist() == sample["constraints"].view(-1).tolist() == [3, 4, 0, 1]
    assert [row[0].item() for row in sample["target"]] == [33, 34, 30, 31]
    assert sample["net_input"]["src_lengths"].tolist() == [4, 2, 2, 3]
    assert [unit.line_ids for unit in sample["units"]] == [[3, 4], [0, 1]]
    assert units.collater([]) == {}
    plain = units_of((2, 2), 0)
    sample = plain.collater([plain[0]])
    assert sample["target"] is None and "constraints" not in sample
    assert (plain[0].target, plain[0].drafts) == (None, None)


def test_the_rows_from_one_on_are_a_unit_without_context():
    """All that belongs to a row goes with it."""
    rows, words = list(range(3)), [torch.tensor([10 + i, EOS]) for i in range(4)]
    unit = DecodingUnit(
        [5, 6, 7],
        words,
        target=words,
        document=2,
        position=3,
        at_start=True,
        drafts=["before", "a", "b", "c"],
        target_context=[words[0]],
        prefixes=torch.tensor(rows).view(3, 1),
        constraints=torch.tensor(rows).view(3, 1),
        following=words[:1],
    )
    rest = unit.starting_at(1)
    assert (rest.line_ids, rest.document, rest.position) == ([6, 7], 2, 4)
    assert (rest.num_rows, rest.num_context, rest.target_context) == (2, 0, None)
    assert [s[0].item() for s in rest.source] == [t[0].item() for t in rest.target] == [12, 13]
    assert (rest.drafts, rest.at_start) == (["b", "c"], False)
    assert rest.prefixes.flatten().tolist() == rest.constraints.flatten().tolist() == [1, 2]
    assert [s[0].item() for s in rest.following] == [10]
    plain = DecodingUnit([5, 6], words[:2], at_start=True).starting_at(0)
    assert plain == DecodingUnit([5, 6], words[:2], at_start=True)


def test_the_source_is_padded_on_the_requested_side():
    for left, want in ((True, [1, 10, EOS]), (False, [10, EOS, 1])):
        units = units_of((2,), 0, left_pad=left)
        sample = units.collater([units[0]])
        assert sample["net_input"]["src_tokens"].tolist() == [want, [11, 11, EOS]]


def test_batches_by_hand():
    """Sizes 2, 3, 4, 2 and 3, the longest first; the longest of a batch pads the others."""
    units = units_of((3, 2), 1)
    assert units.sizes.tolist() == [2, 3, 4, 2, 3]
    assert units.batches(None, 2, False, shards=1) == [[2, 1], [4, 0], [3]]
    assert units.batches(8, None, False, shards=1) == [[2, 1], [4, 0], [3]]
    assert units.batches(9, None, False, shards=1) == [[2, 1], [4, 0, 3]]
    assert units.batches(None, None, False, shards=1) == [[2, 1, 4, 0, 3]]
    assert units.batches(3, None, False, shards=1) == [[2], [1], [4], [0], [3]]


def test_waves_by_hand():
    """The longest document comes first; a process without documents gets empty batches."""
    units = units_of((1, 3, 2), 1)
    assert units.batches(None, None, True, shards=1) == [[1, 4, 0], [2, 5], [3]]
    assert units.batches(None, 2, True, shards=2) == [[1, 4], [0], [2, 5], [], [3], []]
    # Their longest sentences have 4, 4 and 2 tokens; two documents are 2 * 4 tokens wide.
    assert units.batches(8, None, True, shards=1) == [[1, 4], [2, 5], [3], [0]]
    assert units.batches(7, None, True, shards=1) == [[1], [2], [3], [4], [5], [0]]


# ---- documents that continue from one buffer of input lines to the next ------------------------

BLANK, LONG = "", "long"


def read(opened, *buffers, context=2):
    """Read buffers of lines; a line of size 1 is blank, one of size 9 is too long."""
    for lines in buffers:
        sizes = np.array([{BLANK: 1, LONG: 9}.get(line, 2) for line in lines])
        index = DocumentIndex.from_sizes(sizes)
        opened.advance(lines, sizes, index.without(sizes[index.line_ids] == 9), context)
    return opened.number, opened.position, opened.sentences


@pytest.mark.parametrize(
    "buffers, want",
    [
        ([], (0, 0, [])),
        ([["a"]], (0, 1, ["a"])),
        ([["a", "b", "c"]], (0, 3, ["b", "c"])),
        ([["a"], ["b"], ["c"]], (0, 3, ["b", "c"])),
        ([["a"], ["b", BLANK]], (1, 0, [])),  # the blank line ends the document
        ([["a", BLANK, "b"]], (1, 1, ["b"])),
        ([["a"], ["b", BLANK, "c"], ["d"]], (1, 2, ["c", "d"])),
        ([[BLANK]], (0, 0, [])),  # no document to end
        ([["a", BLANK], [BLANK], ["b"]], (1, 1, ["b"])),
        # Sentences that are too long are in no document, but the blank lines around them count.
        ([["a", LONG], ["b"]], (0, 2, ["a", "b"])),
        ([["a", BLANK, LONG], ["b"]], (1, 1, ["b"])),
        ([["a"], [LONG, BLANK, "b"]], (1, 1, ["b"])),
        ([["a", LONG], [LONG], ["b"]], (0, 2, ["a", "b"])),
        ([["a"], [LONG, "b"]], (0, 2, ["a", "b"])),
        ([["a", BLANK, LONG]], (1, 0, [])),
        ([["a"], [LONG, BLANK, LONG]], (1, 0, [])),
        ([["a"], [LONG, BLANK, LONG], ["b"]], (1, 1, ["b"])),
        ([["a"], [LONG, BLANK, "b", BLANK, LONG], ["c"]], (2, 1, ["c"])),
        ([[LONG, BLANK, LONG]], (0, 0, [])),
        ([["a", BLANK, LONG, BLANK, "b"]], (2, 1, ["b"])),
    ],
)
def test_number_position_and_context_by_hand(buffers, want):
    assert read(OpenDocument(), *buffers) == want


def test_without_context_no_sentences_are_kept():
    assert read(OpenDocument(), ["a", "b"], context=0) == (0, 2, [])
