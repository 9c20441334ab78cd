"""Supporting words: which token of a batch is to attend to which, and files that do not fit."""

import json

import numpy as np
import pytest
import tiny
import torch
from fairseq.data import ConcatDataset, LanguagePairDataset

from fairseq_docmt.data import DocumentCorpus, DocumentView, Formats, window_spans
from fairseq_docmt.data.sequence_format import NO_TAGS, LanguageTags
from fairseq_docmt.data.supporting_words import ATTENTION, SupportingWords, path_of
from fairseq_docmt.errors import UserError

EOS = 2
#: tokens of each line, which are all different; blank lines end documents
SOURCE = [[10, 11], [12, 13, 14], [15], [], [16, 17], [18, 19, 20]]
TARGET = [[30, 31, 32], [33], [34, 35], [], [36, 37, 38], [39, 40]]
RECORDS = [
    {
        "line": 2,
        "source": [0],
        "target": [1],
        "supporting_source": {"0": [1], "1": [0, 2], "2": [0]},
        "supporting_target": {"0": [0, 2], "2": [0, 1]},
    },
    {"line": 1, "target": [0], "supporting_source": {"0": [0], "2": [0]}},
    {"line": 1, "source": [1], "supporting_source": {"0": [0]}, "supporting_target": {"0": [0]}},
    {"line": 5, "source": [0, 2], "target": [0, 1], "supporting_target": {"4": [2], "5": [0]}},
]
# What they say, by tokens.  A word of the target supports words after it only.
WANTED = {
    "encoder": {(15, 11), (15, 12), (15, 14), (15, 15), (13, 10)},
    "cross": {(35, 11), (35, 12), (35, 14), (35, 15), (33, 10), (33, 15)},
    "decoder": {(35, 30), (35, 32), (35, 34), (39, 38), (40, 38), (40, 39)},
}


@pytest.fixture
def dictionary():
    return tiny.dictionary(50)


def lines_of(rows):
    return [torch.tensor(row + [EOS]) for row in rows]


def corpus_of(folder, dictionary, copies=0, records=RECORDS, left_pad=True):
    """A corpus and its file; with copies, that of a second part, which is repeated."""
    (folder / "train.zh-en.supporting.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in records)
    )
    sides = [lines_of(SOURCE), lines_of(TARGET)]
    if copies:
        first = [lines_of([[41, 42]]), lines_of([[43]])]
        sides = [Sized(side, ratio) for side, ratio in zip(zip(first, sides), [[1, copies]] * 2)]
        (folder / "train.zh-en.supporting.jsonl").rename(folder / "train1.zh-en.supporting.jsonl")
    sizes = [np.array([len(row) for row in side]) for side in sides]
    pairs = LanguagePairDataset(
        sides[0], sizes[0], dictionary, sides[1], sizes[1], dictionary, left_pad_source=left_pad
    )
    return DocumentCorpus(str(folder / "train.zh-en"), pairs)


class Sized(ConcatDataset):
    """Parts that can be iterated over."""

    def __init__(self, parts, ratios):
        super().__init__([list(part) for part in parts], ratios)

    def __iter__(self):
        return (self[item] for item in range(len(self)))


def view_of(corpus, size, marked=False, tags=NO_TAGS, **options):
    formats = Formats.of(corpus.pairs.src_dict, corpus.pairs.tgt_dict, tags, marked)
    spans = window_spans(corpus.index, size, [(corpus.src_sizes, 99)])
    view = DocumentView(corpus, spans, formats=formats, **options)
    view.supporting_words = SupportingWords.read(corpus)
    return view


def tokens_of(batch):
    """The tokens of queries and keys in a batch, by attention."""
    source, target = batch["net_input"]["src_tokens"], batch["target"]
    read = {"source": source, "target": batch["net_input"]["prev_output_tokens"]}
    predicted = {"source": source, "target": target}
    return {
        name: {
            (predicted[of_query][row, query].item(), read[of_key][row, key].item())
            for row, query, key in batch["supporting_words"][name].tolist()
        }
        for name, (of_query, of_key) in ATTENTION.items()
    }


def batch_of(view):
    return view.collater([view[item] for item in range(len(view))])


TAGS = LanguageTags(source_start=(45,), source_end=(46, 47), target_start=(48,))


@pytest.mark.parametrize("left_pad", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"marked": True}, {"tags": TAGS}, {"loss_on_last": True}],
    ids=["plain", "bod", "tags", "last"],
)
def test_words_are_found_in_windows_of_any_size(tmp_path, dictionary, options, left_pad):
    corpus = corpus_of(tmp_path, dictionary, left_pad=left_pad)
    of_token = {
        token: line for side in (SOURCE, TARGET) for line, row in enumerate(side) for token in row
    }
    for size in (1, 2, 3, 9):
        batch = batch_of(view_of(corpus, size, **options))
        # A link is in a window if both of its words are, the ambiguous one with a loss.
        within = {
            name: {
                (q, k)
                for q, k in links
                if abs(of_token[q] - of_token[k]) < size
                and (of_token[q] >= of_token[k] or not options.get("loss_on_last"))
            }
            for name, links in WANTED.items()
        }
        assert tokens_of(batch) == within
        for links in batch["supporting_words"].values():
            assert len(links.unique(dim=0)) == len(links)
    assert within == WANTED or options.get("loss_on_last")


def test_words_of_a_window_are_in_its_row_alone(tmp_path, dictionary):
    view = view_of(corpus_of(tmp_path, dictionary), 2)
    batch = batch_of(view)
    assert (batch["id"].diff() != 1).any(), "rows are in another order than lines"
    source = batch["net_input"]["src_tokens"]
    for row, _, key in batch["supporting_words"]["encoder"].tolist():
        one = view[view.ids.tolist().index(batch["id"][row])]
        assert source[row, key] in one["source"]
    alone = view.collater([view[0]])["supporting_words"]
    assert [len(links) for links in alone.values()] == [0, 0, 0]


def test_examples_that_begin_with_the_same_sentence(tmp_path, dictionary):
    """With ``--document-parts 1,3`` a document is read as a whole and in parts."""
    corpus = corpus_of(tmp_path, dictionary)
    spans = np.array([[0, 1], [1, 2], [2, 3], [0, 3], [0, 2]])
    view = DocumentView(corpus, spans, id_of_last=False)
    view.supporting_words = SupportingWords.read(corpus)
    batch = batch_of(view)
    assert batch["id"].tolist().count(0) == 3
    assert tokens_of(batch) == {
        name: {(q, k) for q, k in links if q not in (18, 20, 39, 40)}
        for name, links in WANTED.items()
    }
    # links of the whole document, of two sentences, and of the last sentence alone
    assert len(batch["supporting_words"]["cross"]) == 6 + 1 + 1


def test_sources_with_following_sentences(tmp_path, dictionary):
    corpus = corpus_of(tmp_path, dictionary)

    def one_more(spans):
        ends = corpus.index.starts[corpus.index.document[spans[:, 0]] + 1]
        return np.stack([spans[:, 0], np.minimum(spans[:, 1] + 1, ends)], axis=1)

    view = view_of(corpus, 2, source_spans=one_more)
    found = tokens_of(view.collater([view[1]]))  # lines 0 and 1, and 2 on the source side
    assert found["cross"] == {(33, 10), (33, 15)}
    assert found["encoder"] == {(13, 10)}


@pytest.mark.parametrize("copies", [1, 3])
def test_parts_of_a_training_set_have_their_own_files(tmp_path, dictionary, copies):
    corpus = corpus_of(tmp_path, dictionary, copies=copies)
    assert path_of(corpus, 1).endswith("train1.zh-en.supporting.jsonl")
    view = view_of(corpus, 3)
    batch = batch_of(view)
    assert tokens_of(batch) == WANTED
    one = batch_of(view_of(corpus_of(tmp_path, dictionary), 3))
    for name, links in batch["supporting_words"].items():
        assert len(links) == copies * len(one["supporting_words"][name])


@pytest.mark.parametrize(
    "record, problem",
    [
        ('{"line": 0', "Expecting"),
        ('{"line": -1}', "lines are counted from 0, but line -1 is named"),
        ('{"line": 99999}', "the corpus has no sentence in line 99999"),
        ('{"line": 2}', "a record needs ambiguous words and supporting words"),
        ('{"line": 2, "source": [0]}', "a record needs ambiguous words and supporting words"),
        ("[1]", 'an object with "line" is expected'),
        ('{"source": [0]}', 'an object with "line" is expected'),
        ('{"line": 0, "sources": [0]}', "unknown field sources"),
        ('{"line": 6, "source": [0]}', "the corpus has no sentence in line 6"),
        ('{"line": 3, "source": [0]}', "the corpus has no sentence in line 3"),
        ('{"line": 2, "target": [2]}', "line 2 of the target has 2 tokens, but token 2 is named"),
        ('{"line": 2, "target": [-1]}', "line 2 of the target has 2 tokens, but token -1 is named"),
        (
            '{"line": 2, "source": [0], "supporting_source": {"4": [0]}}',
            "line 4 is not in the document of line 2",
        ),
        (
            '{"line": 2, "supporting_source": {"x": [0]}}',
            '"supporting_source" must have the tokens',
        ),
        ('{"line": 2, "source": 0}', '"source" must be a list of tokens, such as [2]'),
        ('{"line": 2, "supporting_target": {"2": 0}}', "tokens of each line, such as {"),
        ('{"line": 2, "source": [0.0]}', "0.0 is not the number of a token"),
        ('{"line": 2, "source": [true]}', "True is not the number of a token"),
        ('{"line": true}', 'an object with "line" is expected'),
        ("\xff", "codec can't decode"),
        ('{"line": 2, "supporting_source": [0]}', '"supporting_source" must have the tokens'),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, dictionary, record, problem):
    corpus = corpus_of(tmp_path, dictionary)
    path = tmp_path / "train.zh-en.supporting.jsonl"
    good = json.dumps(RECORDS[0])
    path.write_text(good + "\n" + record + "\n", encoding="latin-1")
    with pytest.raises(UserError) as error:
        SupportingWords.read(corpus)
    assert str(error.value).startswith(f"{path}: line 2: ")
    assert problem in str(error.value)
    assert str(error.value).endswith("write the file again with data_prep/supporting_words.py")
