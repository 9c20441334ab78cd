"""All decodings through the stock commands: one hypothesis per sentence, independent of batches.

Covers generation/joint.py, generation/option_checks.py, generation/search.py,
tasks/_decoding_input.py.
"""

import functools
import io
import math
import re
from collections import Counter

import pytest
import sacrebleu
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq.models import FairseqEncoderDecoderModel
from fairseq_cli import eval_lm
from long_tests import LONG, long_but_for

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.generation.joint import JointSearch
from fairseq_docmt.generation.sentence_search import SentenceSearch

DOCS = tiny.documents((1, 5, 2, 7), 2)
AT_LIMIT = "translations that end because they reached the length limit"
WINDOW = ["--task", "sliding_window_translation"]
DOCUMENT = ["--task", "full_document_translation"]
ROWS = ["--task", "document_rows_translation"]
STREAM = ["--task", "sentence_stream_translation"]
ALL = [
    (task, decoding)
    for task, decodings in (
        ("window", ("sequential", "window", "segment")),
        ("document", ("segment", "sequential", "sequential-full-source")),
    )
    for decoding in decodings
]


# Architectures of the suite implement prefixes, steps and beams themselves.
OURS = [
    ("rfa-window", "sequential"),
    ("rfa-window", "window"),
    ("rfa-document", "segment"),
    ("rfa-document", "sequential"),
    ("window-attention-document", "segment"),
    ("window-attention-document", "sequential"),
    ("lst-document", "segment"),
    ("lst-document", "sequential"),
    ("rnnsearch-window", "sequential"),
    ("cache-stream", "stream"),
    ("context-stream", "stream"),
    ("memnet-rows", "iterative"),
    ("memory-stream", "stream"),
]


#: of these every way to cut the work up is tried, one for each kind of decoding
WAYS = [*ALL, ("cache-stream", "stream"), ("memnet-rows", "iterative")]


#: every decoding once; equations/ and golden/ hold the decodings of all architectures
EACH_ONCE = [
    ("window", "sequential"),
    ("window", "window"),
    ("document", "segment"),
    ("document", "sequential-full-source"),
    ("rfa-document", "sequential"),
    ("memory-stream", "stream"),
    ("memnet-rows", "iterative"),
]
#: one of each kind: window by window, in parts, sentence by sentence
FEW = [("window", "sequential"), ("document", "segment"), ("cache-stream", "stream")]


@functools.lru_cache(maxsize=None)
def translated(binarised, checkpoint, *options):
    """Output of ``fairseq-generate``, which several tests compare with."""
    return tiny.generate(binarised, checkpoint, *options)


@pytest.fixture
def system(request):
    """(checkpoint, options) of a parametrised pair of task and decoding."""
    task, decoding = request.param
    checkpoint = request.getfixturevalue(task.replace("-", "_") + "_checkpoint")
    arguments = {"window": WINDOW, "document": DOCUMENT, "rows": ROWS, "stream": STREAM}[
        task.split("-")[-1]
    ]
    return checkpoint, [*arguments, "--decoding", decoding]


def hypotheses(output):
    return {
        row: (text, tiny.scores_of(output)[row][:6]) for row, text in tiny.lines_of(output).items()
    }


@pytest.mark.parametrize("system", long_but_for(EACH_ONCE, ALL + OURS), indirect=True, ids=str)
def test_each_sentence_is_translated_once_with_any_batches(binarised, system):
    checkpoint, options = system
    whole = translated(binarised, checkpoint, *options)
    expected = hypotheses(whole)
    assert sorted(expected) == tiny.rows_of(DOCS)
    sources = tiny.lines_of(whole, "S")
    assert [sources[row] for row in tiny.rows_of(DOCS)] == [s for doc in DOCS for s in doc]
    references = tiny.lines_of(whole, "T")
    assert references[0] == DOCS[0][0].replace("w", "v")
    one = ["--batch-size", "1"]
    assert hypotheses(tiny.generate(binarised, checkpoint, *options, *one)) == expected


@pytest.mark.parametrize("system", long_but_for(FEW[:1], WAYS), indirect=True, ids=str)
def test_processes_share_the_sentences(binarised, system):
    """Each sentence is translated by one process; worker processes may load the batches."""
    checkpoint, options = system
    expected, shards = hypotheses(translated(binarised, checkpoint, *options)), {}
    for rank in ("0", "1"):
        shard = ["--distributed-world-size", "2", "--distributed-rank", rank, "--batch-size", "2"]
        part = hypotheses(tiny.generate(binarised, checkpoint, *options, *shard))
        assert not set(part) & set(shards)
        shards.update(part)
    assert shards == expected
    loaded = ["--max-tokens", "40", "--num-workers", "2"]
    assert hypotheses(tiny.generate(binarised, checkpoint, *options, *loaded)) == expected


@pytest.mark.parametrize("system", ALL, indirect=True, ids=str)
def test_printed_bleu_equals_bleu_of_the_printed_lines(binarised, system):
    checkpoint, options = system
    output = tiny.generate(binarised, checkpoint, *options, "--scoring", "sacrebleu")
    found, wanted = tiny.lines_of(output, "D"), tiny.lines_of(output, "T")
    rows = sorted(found)
    bleu = sacrebleu.corpus_bleu([found[r] for r in rows], [[wanted[r] for r in rows]])
    printed = re.search(r"Generate test.*BLEU[^=]*= ([\d.]+)", output).group(1)
    assert float(printed) == pytest.approx(bleu.score, abs=0.006)


def test_printed_bleu_equals_that_of_fairseq_score(binarised, window_checkpoint, tmp_path):
    from fairseq_cli import score

    output = tiny.generate(binarised, window_checkpoint, *WINDOW)
    for kind in ("H", "T"):
        lines = tiny.lines_of(output, kind)
        text = "".join(lines[row] + "\n" for row in sorted(lines))
        (tmp_path / kind).write_text(text)
    printed = tiny.run_main(
        score.cli_main, "--sys", str(tmp_path / "H"), "--ref", str(tmp_path / "T")
    )
    assert re.search(r"BLEU4 = .*", output).group() == re.search(r"BLEU4 = .*", printed).group()


def test_a_document_over_the_buffer_is_warned_of(binarised, document_checkpoint, caplog):
    lines = tiny.text_of(DOCS).rstrip("\n").split("\n")
    tiny.interactive(binarised, document_checkpoint, lines, *DOCUMENT, "--buffer-size", "4")
    assert "give a --buffer-size that holds whole documents" in caplog.text


@pytest.mark.parametrize("rfa_first", [False, True])
def test_references_of_ensembles_with_and_without_attention_weights(
    binarised, window_checkpoint, rfa_window_checkpoint, rfa_first
):
    """Probabilities of tokens are averaged; random feature attention has no weights."""
    paths = [str(window_checkpoint), str(rfa_window_checkpoint)]
    paths = paths[::-1] if rfa_first else paths

    def probabilities(path):
        output = tiny.generate(binarised, path, *WINDOW, "--score-reference")
        lines = tiny.lines_of(output, "P").values()
        return [2 ** float(score) for line in lines for score in line.split()]

    one, other = map(probabilities, paths)
    wanted = [(a + b) / 2 for a, b in zip(one, other, strict=True)]
    assert probabilities(":".join(paths)) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("system", long_but_for(FEW, WAYS), indirect=True, ids=str)
def test_nbest_and_ensembles(binarised, system):
    checkpoint, options = system
    output = tiny.generate(binarised, f"{checkpoint}:{checkpoint}", *options, "--nbest", "3")
    lists = {row: [] for row in tiny.rows_of(DOCS)}
    for row, score, text in re.findall(r"^H-(\d+)\t(\S+)\t(.*)$", output, flags=re.M):
        lists[int(row)].append((float(score), text))
    joint = options[-1] in ("window", "segment")
    for hypotheses in lists.values():
        scores, texts = zip(*hypotheses)
        assert list(scores) == sorted(scores, reverse=True)
        assert len(set(texts)) == len(texts)
        # Joint outputs may differ only in other sentences, which leaves fewer texts.
        assert len(texts) == 3 or (joint and len(texts) > 0)
    assert sum(map(len, lists.values())) > 1.5 * len(lists)
    # An ensemble of a model with itself is the model.
    alone = tiny.generate(binarised, checkpoint, *options, "--nbest", "3")
    assert tiny.lines_of(output) == tiny.lines_of(alone)


@pytest.mark.parametrize("system", WAYS, indirect=True, ids=str)
def test_scoring_references(binarised, system):
    checkpoint, options = system
    output = tiny.generate(binarised, checkpoint, *options, "--score-reference")
    assert tiny.lines_of(output, "H") == tiny.lines_of(output, "T")
    positional = tiny.lines_of(output, "P")
    for row, score in tiny.scores_of(output).items():
        values = [float(v) for v in positional[row].split()]
        assert len(values) == len(tiny.lines_of(output, "T")[row].split()) + 1
        assert float(score) == pytest.approx(sum(values) / len(values), abs=1e-3)


POSITIONS = 15
BECAUSE = "because those before them fill the target positions of the model"


def parts_of(document, decoding):
    """First sentence, first scored sentence and end of each unit of a document.

    Windows lose their oldest sentences where references have more tokens than positions, and
    documents are cut.
    """
    sizes = [len(text.split()) + 1 for text in document]
    fits = lambda first, end: sum(sizes[first:end]) <= POSITIONS  # noqa: E731
    if decoding != "segment":
        for i in range(len(document)):
            yield next((a, i, i + 1) for a in range(max(0, i - 2), i + 1) if fits(a, i + 1))
        return
    first = 0
    for end in range(1, len(document) + 1):
        if end == len(document) or end % 3 == 0 or not fits(first, end + 1):
            yield first, first, end
            first = end


@pytest.mark.parametrize("decoding", ["sequential", "window", "segment"])
def test_references_are_scored_within_the_target_positions(
    binarised, window_checkpoint, decoding, caplog
):
    caplog.set_level("INFO", logger="fairseq_docmt")
    fewer = ["--model-overrides", f"{{'max_target_positions': {POSITIONS}}}"]
    options = [*WINDOW, "--decoding", decoding, "--score-reference"]
    found = tiny.scores_of(tiny.generate(binarised, window_checkpoint, *options, *fewer))
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(window_checkpoint)])
    rows, used, cuts = iter(tiny.rows_of(DOCS)), 0, 0
    for doc, translation in zip(DOCS, tiny.translate(DOCS)):
        for first, start, end in parts_of(doc, decoding):
            source, target = (
                words.encode_line(" <sep> ".join(side[first:end]), add_if_not_exist=False).long()
                for words, side in ((task.src_dict, doc), (task.tgt_dict, translation))
            )
            used = max(used, len(target))
            cuts += first % 3 > 0 if decoding == "segment" else first > max(0, start - 2)
            with torch.no_grad():
                lengths = torch.tensor([len(source)])
                logits, _ = model.eval()(source[None], lengths, target.roll(1)[None])
            scores = logits[0].log_softmax(-1).gather(1, target[:, None])[:, 0] / math.log(2)
            sizes = [len(text.split()) + 1 for text in translation[first:end]]
            for of_sentence in scores.split(sizes)[start - first :]:
                wanted = of_sentence.mean().item()
                assert float(found[next(rows)]) == pytest.approx(wanted, abs=2e-4)
    assert used == POSITIONS
    message = f"references that were scored with less context or none, {BECAUSE}: {cuts}"
    assert cuts > 0 and caplog.messages.count(message) == 1


@pytest.mark.parametrize("task", [WINDOW, DOCUMENT], ids=str)
def test_long_references_of_models_with_learned_positions(binarised, tmp_path, task):
    """There is no embedding for a position after the last."""
    limits = ["--max-source-positions", "60", "--max-target-positions", str(POSITIONS)]
    learned = [*tiny.MODEL, "--decoder-learned-pos"]
    checkpoint = tiny.train(binarised, tmp_path, *task, *limits, updates=2, model=learned)
    for decoding in ("segment", "sequential"):
        options = [*task, "--decoding", decoding, "--score-reference"]
        found = tiny.lines_of(tiny.generate(binarised, checkpoint, *options))
        assert sorted(found) == tiny.rows_of(DOCS)


@pytest.mark.parametrize("system", long_but_for(EACH_ONCE[::2], EACH_ONCE), indirect=True, ids=str)
def test_references_too_long_by_themselves_are_refused(binarised, system, monkeypatch):
    checkpoint, options = system
    options = [*options, "--score-reference"]
    wanted = tiny.scores_of(tiny.generate(binarised, checkpoint, *options))
    longest = 1 + max(len(text.split()) for doc in DOCS for text in doc)
    monkeypatch.setattr(FairseqEncoderDecoderModel, "max_decoder_positions", lambda _: longest)
    found = tiny.scores_of(tiny.generate(binarised, checkpoint, *options))
    assert found.keys() == wanted.keys()
    if options[3] in ("stream", "iterative"):  # sentences are read by themselves
        assert found == wanted
    fewer = longest - 1
    monkeypatch.setattr(FairseqEncoderDecoderModel, "max_decoder_positions", lambda _: fewer)
    message = rf"reference of line \d+ has more tokens than the model's {fewer} target positions"
    with pytest.raises(UserError, match=message):
        tiny.generate(binarised, checkpoint, *options)


@pytest.mark.parametrize("system", long_but_for(FEW[:2], ALL), indirect=True, ids=str)
def test_hard_alignments_stay_in_the_sentence(binarised, system):
    checkpoint, options = system
    output = tiny.generate(binarised, checkpoint, *options, "--print-alignment", "hard")
    assert tiny.lines_of(output) == tiny.lines_of(translated(binarised, checkpoint, *options))
    assert tiny.links_within_sentences(output) > 0


BUFFERS = [("100", "4"), ("100", "1")]
# Windows need no whole documents in the buffer.
TYPED = [(system, *BUFFERS[0]) for system in [*ALL, *OURS[-2:]]]
TYPED += [(ALL[3], *BUFFERS[1])]
# In the last, an open document is the shortest of its buffer.
SMALL_BUFFERS = [("1", "1"), ("4", "3"), ("6", "1")]
TYPED += [(system, *sizes) for system in (ALL[0], OURS[-1]) for sizes in SMALL_BUFFERS]


@pytest.mark.parametrize(
    "system, buffer, batch",
    [pytest.param(*case, marks=() if case[0] in (*FEW, OURS[-1]) else LONG) for case in TYPED],
    indirect=["system"],
    ids=str,
)
def test_interactive_gives_the_same(binarised, system, buffer, batch):
    checkpoint, options = system
    expected = tiny.lines_of(translated(binarised, checkpoint, *options))
    lines = tiny.text_of(DOCS).rstrip("\n").split("\n")
    output = tiny.interactive(
        binarised, checkpoint, lines, *options, "--buffer-size", buffer, "--batch-size", batch
    )
    found = tiny.lines_of(output)
    assert sorted(found) == list(range(len(lines)))  # blank lines answer with empty ones
    assert {row: found[row] for row in expected} == expected
    assert all(found[row] == "" for row in found if not lines[row])


@pytest.mark.parametrize("unknown", [6, 7])
def test_text_in_another_form_is_warned_of(binarised, window_checkpoint, caplog, unknown):
    """Once, when enough tokens were read: a tenth of 60 may be unknown."""
    lines = ["x " * count + "w1 " * (15 - count) for count in (0, unknown, 0, 0, 15, 15)]
    options = ["--task", "sliding_window_translation", "--buffer-size", "2"]
    tiny.interactive(binarised, window_checkpoint, lines, *options)
    found = [message for message in caplog.messages if "are not in the dictionary" in message]
    warning = (
        "7 of the first 60 tokens of the input are not in the dictionary; give text in the source "
        "language and in the form of the training data, or --tokenizer and --bpe as in training"
    )
    assert found == ([warning] if unknown == 7 else [])


@pytest.mark.parametrize(
    "system", long_but_for(FEW[:2] + OURS[-1:], ALL + OURS[:1] + OURS[-2:]), indirect=True, ids=str
)
def test_python_gives_the_same(binarised, system):
    checkpoint, options = system
    expected = tiny.lines_of(translated(binarised, checkpoint, *options))
    translator = DocumentTranslator.from_pretrained(str(checkpoint), decoding=options[-1])
    for _ in range(2):  # a second call starts afresh
        found = translator.translate(DOCS, beam=3, max_len_b=12)
        assert [len(doc) for doc in found] == [len(doc) for doc in DOCS]
        assert [s for doc in found for s in doc] == [expected[r] for r in tiny.rows_of(DOCS)]
    assert translator.translate([]) == []
    with pytest.raises(UserError, match="document 2, sentence 1 is empty"):
        translator.translate([["w1"], [" "]])


def test_positions_of_the_training_limit_windows(binarised, tmp_path):
    """In decoding without these options, and where a window began in an earlier buffer."""
    limits = ["--max-source-positions", "12", "--max-target-positions", "60"]
    learned = [*tiny.MODEL, "--encoder-learned-pos"]
    checkpoint = tiny.train(
        binarised, tmp_path, *WINDOW, "--window-size", "3", *limits, updates=2, model=learned
    )
    lines = tiny.text_of(DOCS).rstrip("\n").split("\n")
    for decoding in ("window", "sequential"):
        options = [*WINDOW, "--decoding", decoding]
        wanted = tiny.lines_of(tiny.generate(binarised, checkpoint, *options, *limits))
        assert tiny.lines_of(tiny.generate(binarised, checkpoint, *options)) == wanted
        found = tiny.lines_of(tiny.interactive(binarised, checkpoint, lines, *options))
        assert {row: found[row] for row in wanted} == wanted


@pytest.mark.parametrize("options", [WINDOW, [*WINDOW, "--decoding", "segment"], STREAM], ids=str)
def test_the_minimum_length_ends_at_the_limit_of_a_row(binarised, options, request, caplog):
    """Rows may have a smaller limit than --min-len; fairseq has one limit for all."""
    name = "memory_stream_checkpoint" if options is STREAM else "window_checkpoint"
    lengths = ["--min-len", "5", "--max-len-a", "1", "--max-len-b", "0", "--batch-size", "1"]
    output = tiny.generate(binarised, request.getfixturevalue(name), *options, *lengths)
    sources, found = tiny.lines_of(output, "S"), tiny.lines_of(output)
    assert sorted(found) == tiny.rows_of(DOCS)
    if "segment" in options:  # the length is that of the whole output
        return
    assert caplog.text.count("--min-len 5 is more than the length limit of some outputs") == 1
    for row, line in found.items():
        size = len(sources[row].split())
        assert min(5, size) <= len(line.split()) <= size + 1


def test_a_sentence_too_long_leaves_the_rest_of_its_document_alone(binarised, window_checkpoint):
    """It gets an empty line, and the context of the next buffer leaves it out."""
    long = " ".join(["w1"] * 4000)
    options = [*WINDOW, "--decoding", "sequential", "--skip-invalid-size-inputs-valid-test"]
    lines = [["w1 w2", long, "w3", "w4 w5"], ["w1 w2", "w3", "w4 w5"]]
    found = [
        tiny.lines_of(
            tiny.interactive(binarised, window_checkpoint, text, *options, "--buffer-size", "2")
        )
        for text in lines
    ]
    assert found[0][1] == ""
    assert [found[0][row] for row in (0, 2, 3)] == [found[1][row] for row in (0, 1, 2)]


@pytest.mark.parametrize("system", [FEW[0], ("cache-stream", "stream")], indirect=True, ids=str)
@pytest.mark.parametrize(
    "lines",
    [["w1 w2", "w3", "", "long", "w4 w5", "w6"], ["w1", "w2 w3", "w4", "w5", "long", "", "w6 w7"]],
    ids=["first", "last"],
)
def test_a_sentence_too_long_does_not_join_documents(binarised, system, lines):
    """Where it is the only sentence of its document in a buffer."""
    checkpoint, options = system
    lines = [" ".join(["w1"] * 4000) if line == "long" else line for line in lines]
    options = [*options, "--skip-invalid-size-inputs-valid-test"]
    whole, parts = (
        tiny.interactive(binarised, checkpoint, lines, *options, "--buffer-size", size)
        for size in ("100", "4")
    )
    assert hypotheses(parts) == hypotheses(whole)


def test_a_byte_order_mark_is_read_over(binarised, window_checkpoint):
    lines = ["w1 w2", "w3", "", "w4"]
    plain, marked = (
        tiny.interactive(binarised, window_checkpoint, [first + lines[0], *lines[1:]], *WINDOW)
        for first in ("", "\ufeff")
    )
    assert tiny.scores_of(plain) == tiny.scores_of(marked)


def test_messages_name_lines_of_the_whole_input(binarised, window_checkpoint):
    """Not of the lines that are read at a time."""
    options = [*WINDOW, "--buffer-size", "2"]
    for line, message in (
        ("w" * 500_001, "line 4 of the input has 500,001 characters, and lines are limited"),
        ("w1 \udcff", "line 4 of the input is not UTF-8; convert the input"),
        ("w1 <sep>", "line 4 of the input has the word <sep>"),
        ("w1 " * 2000, "input: line 4 has more tokens than the model's 1024 source positions"),
    ):
        with pytest.raises(UserError, match=message):
            tiny.interactive(binarised, window_checkpoint, ["w1", "w2", "", line], *options)


def test_sentences_without_words_are_refused_in_python(binarised, window_checkpoint):
    options = {"tokenizer": "moses", "source_lang": "src", "target_lang": "tgt"}
    translator = DocumentTranslator.from_pretrained(str(window_checkpoint), **options)
    for _ in range(2):
        with pytest.raises(UserError, match=r"document 2, sentence 2 \('\\x01'\) has no words"):
            translator.translate([["w1"], ["w2", "\x01", "w3"]])


@pytest.mark.parametrize("system", ["window", "memory_stream"])
def test_raw_text_from_python(request, system, tmp_path):
    """With tokenizer and BPE the translator preprocesses raw text and postprocesses the output."""
    checkpoint = str(request.getfixturevalue(f"{system}_checkpoint"))
    from sacremoses import MosesDetokenizer
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    codes = tmp_path / "codes"
    with open(codes, "w") as stream:
        learn_bpe(io.StringIO("w1 w2 w3 w4\n" * 5), stream, 3)
    with open(codes) as stream:
        bpe = BPE(stream)
    raw = [["w1 w2, w3", "w4"], ["w9!"]]
    cut = [[bpe.process_line(s.replace(",", " ,").replace("!", " !")) for s in d] for d in raw]
    plain = DocumentTranslator.from_pretrained(checkpoint).translate(cut, beam=2)
    whole = DocumentTranslator.from_pretrained(
        checkpoint, tokenizer="moses", bpe="subword_nmt", bpe_codes=str(codes)
    ).translate(raw, beam=2)
    detokenize = MosesDetokenizer("en").detokenize
    assert whole == [[detokenize(s.replace("@@ ", "").split()) for s in d] for d in plain]


@pytest.mark.parametrize("system", ["window", "memory_stream"])
def test_an_unknown_tokenizer_is_refused(request, system):
    checkpoint = str(request.getfixturevalue(f"{system}_checkpoint"))
    for option in ("tokenizer", "bpe"):
        with pytest.raises(UserError, match=f"{option} must be .* or .*, got 'mosses'"):
            DocumentTranslator.from_pretrained(checkpoint, **{option: "mosses"})


@pytest.mark.parametrize("task", ["window", "document"])
def test_prefix_size_holds_for_each_sentence(
    binarised, window_checkpoint, document_checkpoint, task
):
    checkpoint = window_checkpoint if task == "window" else document_checkpoint
    options = [*(WINDOW if task == "window" else DOCUMENT), "--decoding", "sequential"]
    output = tiny.generate(binarised, checkpoint, *options, "--prefix-size", "1")
    found, wanted = tiny.lines_of(output), tiny.lines_of(output, "T")
    assert all(found[row].split()[0] == wanted[row].split()[0] for row in wanted)


@pytest.mark.parametrize("system", [*FEW[:1], ("document", "sequential"), FEW[2]], indirect=True)
def test_a_prefix_may_end_before_the_minimum_length(binarised, system):
    checkpoint, options = system
    lengths = ["--prefix-size", "4", "--min-len", "6"]
    output = tiny.generate(binarised, checkpoint, *options, *lengths)
    found, wanted = tiny.lines_of(output), tiny.lines_of(output, "T")
    whole = [row for row, text in wanted.items() if len(text.split()) < 4]
    assert whole and all(found[row] == wanted[row] for row in whole)
    assert all(len(found[row].split()) >= 6 for row in wanted if row not in whole)


def test_the_limit_of_a_row_cuts_its_prefix(binarised, window_checkpoint):
    lengths = ["--prefix-size", "9", "--max-len-a", "0.5", "--max-len-b", "0"]
    output = tiny.generate(binarised, window_checkpoint, *WINDOW, *lengths)
    found, wanted = tiny.lines_of(output), tiny.lines_of(output, "T")
    for row, source in tiny.lines_of(output, "S").items():
        most = (len(source.split()) + 1) // 2
        assert found[row].split() == wanted[row].split()[:most]


def test_constraints_hold_for_each_sentence(binarised, window_checkpoint, caplog):
    lines = ["w1 w2\tv7", "w3 w4\tv2", "", "w5\tv11 v3"]
    options = [*WINDOW, "--decoding", "sequential", "--constraints", "--buffer-size", "10"]
    output = tiny.interactive(binarised, window_checkpoint, lines, *options, "--batch-size", "2")
    found = tiny.lines_of(output)
    for row, wanted in ((0, "v7"), (1, "v2"), (3, "v11 v3")):
        assert wanted in found[row]
    lacks = "in line 2 of the input has a word that the target dictionary lacks; <unk> is forced"
    assert lacks not in caplog.text
    lines[1] = "w3 w4\tv2 vv"
    found = tiny.lines_of(tiny.interactive(binarised, window_checkpoint, lines, *options))
    assert "v2 <unk>" in found[1] and caplog.text.count(lacks) == 1


@pytest.mark.parametrize("system", long_but_for(EACH_ONCE[::3], EACH_ONCE), indirect=True, ids=str)
@pytest.mark.parametrize("size", [pytest.param(1, marks=LONG), 2])
def test_ngrams_are_not_repeated_within_a_sentence(binarised, system, size):
    checkpoint, options = system

    def repeated(output):
        """Return the number of n-grams that a sentence has more than once, and of those shared."""
        ngrams = []
        for text in tiny.lines_of(output).values():
            words = text.split()
            ngrams.append([tuple(words[i : i + size]) for i in range(len(words) - size + 1)])
        total = len({ngram for sentence in ngrams for ngram in sentence})
        within = sum(len(sentence) - len(set(sentence)) for sentence in ngrams)
        return within, sum(map(len, ngrams)) - total

    if options[-1] in ("window", "segment"):
        options = [*options, "--force-sentence-count"]
    free = repeated(tiny.generate(binarised, checkpoint, *options))
    blocked = repeated(
        tiny.generate(binarised, checkpoint, *options, "--no-repeat-ngram-size", str(size))
    )
    assert free[0] > 0 and blocked[0] == 0 < blocked[1]


def test_forced_sentences_have_shares_by_their_sources(binarised, document_checkpoint, monkeypatch):
    restrict, seen = SentenceSearch.restrict, []

    def noted(self, limits, sizes, *rest):
        seen.extend(([n for n in row if n], limit) for row, limit in zip(sizes.tolist(), limits))
        return restrict(self, limits, sizes, *rest)

    monkeypatch.setattr(SentenceSearch, "restrict", noted)
    options = [*DOCUMENT, "--force-sentence-count", "--max-len-a", "1", "--max-len-b", "0"]
    tiny.generate(binarised, document_checkpoint, *options)
    found = [size for sizes, _ in seen for size in sizes]
    assert sorted(found) == sorted(len(text.split()) + 1 for doc in DOCS for text in doc)
    assert all(sum(sizes) == limit for sizes, limit in seen)


def test_forced_sentence_count_leaves_nothing_to_repair(binarised, document_checkpoint, caplog):
    caplog.set_level("INFO", logger="fairseq_docmt")
    options = [*DOCUMENT, "--decoding", "segment"]
    tiny.generate(binarised, document_checkpoint, *options)
    assert re.search(r"sentence counts: [1-9]\d* of \d+ outputs", caplog.text)
    caplog.clear()
    tiny.generate(binarised, document_checkpoint, *options, "--force-sentence-count")
    assert re.search(r"sentence counts: 0 of \d+ outputs", caplog.text)


def test_wrong_sentence_counts_are_kept_on_request(
    binarised, document_checkpoint, caplog, monkeypatch
):
    """No word of the output is lost."""
    caplog.set_level("INFO", logger="fairseq_docmt")
    options = [*DOCUMENT, "--decoding", "segment"]
    repaired = tiny.lines_of(tiny.generate(binarised, document_checkpoint, *options))
    counts = re.search(r"sentence counts: (\d+) of (\d+) outputs.*decoded again", caplog.text)
    caplog.clear()
    search, said = JointSearch._search, Counter()

    def noted(self, *args):
        found = search(self, *args)
        for best, *_ in found:
            for sentence in best.sentences:
                said.update(self.task.target_dictionary.string(sentence["tokens"]).split())
        return found

    monkeypatch.setattr(JointSearch, "_search", noted)
    keep = ["--wrong-sentence-count", "keep"]
    kept = tiny.lines_of(tiny.generate(binarised, document_checkpoint, *options, *keep))
    assert Counter(word for text in kept.values() for word in text.split()) == said
    assert f"{counts.group(1)} of {counts.group(2)} outputs" in caplog.text
    assert "sentences and were kept" in caplog.text
    assert sorted(kept) == sorted(repaired) and kept != repaired
    assert any(text == "" for text in kept.values()) or any(
        len(kept[row].split()) > len(repaired[row].split()) for row in kept
    )


def test_a_checkpoint_is_decoded_with_other_windows_on_request(
    binarised, window_checkpoint, document_checkpoint
):
    override = "--override-checkpoint-options"
    sequential = [*WINDOW, "--decoding", "sequential"]
    three = tiny.lines_of(tiny.generate(binarised, window_checkpoint, *sequential))
    two = ["--window-size", "2"]
    with pytest.raises(UserError, match="--window-size 2 contradicts .* --override-checkpoint"):
        tiny.generate(binarised, window_checkpoint, *sequential, *two)
    shorter = tiny.lines_of(
        tiny.generate(binarised, window_checkpoint, *sequential, *two, override)
    )
    assert (
        tiny.lines_of(tiny.generate(binarised, window_checkpoint, *sequential, override)) == three
    )
    assert shorter != three
    places = [place for doc in DOCS for place in range(len(doc))]
    for row, place in zip(tiny.rows_of(DOCS), places):
        if place < 2:  # the same sentences are before it in both
            assert shorter[row] == three[row]
    with pytest.raises(UserError, match="--task full_document_translation, or add --override"):
        tiny.generate(binarised, document_checkpoint, *sequential, "--window-size", "4")
    windows = tiny.generate(
        binarised, document_checkpoint, *sequential, "--window-size", "4", override
    )
    assert sorted(tiny.lines_of(windows)) == tiny.rows_of(DOCS)
    whole = tiny.generate(
        binarised, window_checkpoint, *DOCUMENT, "--decoding", "segment", override
    )
    assert sorted(tiny.lines_of(whole)) == tiny.rows_of(DOCS)


@pytest.mark.parametrize(
    "options, message",
    [
        ([*WINDOW, "--decoding", "window", "--prefix-size", "1"], "--prefix-size applies to one"),
        ([*WINDOW, "--print-alignment", "soft"], "use --print-alignment hard"),
        ([*WINDOW, "--match-source-len"], "--match-source-len compares"),
    ],
)
def test_options_without_meaning_are_refused(binarised, window_checkpoint, options, message):
    with pytest.raises(UserError, match=message):
        tiny.generate(binarised, window_checkpoint, *options)


@pytest.mark.parametrize("decoding, noted", [("window", True), ("sequential", False)])
def test_a_minimum_of_joint_outputs_is_noted(binarised, window_checkpoint, caplog, decoding, noted):
    options = [*WINDOW, "--decoding", decoding, "--min-len", "3"]
    tiny.generate(binarised, window_checkpoint, *options)
    assert ("--min-len 3 counts the words of all sentences" in caplog.text) == noted


@pytest.mark.parametrize("options", [[], ["--score-reference"]], ids=str)
def test_models_without_attention_weights_have_no_alignments(
    binarised, rfa_window_checkpoint, options
):
    options = [*WINDOW, *options, "--print-alignment", "hard"]
    with pytest.raises(UserError, match="attention weights, which a RFATransformerModel"):
        tiny.generate(binarised, rfa_window_checkpoint, *options)


@pytest.mark.parametrize("system", FEW, indirect=True, ids=str)
def test_hard_alignments_of_references(binarised, system):
    checkpoint, options = system
    options = [*options, "--score-reference", "--print-alignment", "hard"]
    assert tiny.links_within_sentences(tiny.generate(binarised, checkpoint, *options)) > 0


def test_decoding_of_another_task_is_refused(binarised, document_checkpoint):
    with pytest.raises(UserError, match="--decoding window is not for --task full_document"):
        tiny.generate(binarised, document_checkpoint, *DOCUMENT, "--decoding", "window")


@pytest.mark.parametrize(
    "system, options, message",
    [
        (
            ("window", "sequential"),
            ["--bf16"],
            "no effect in decoding, which is in single precision or --fp16: --bf16",
        ),
        (
            ("window", "sequential"),
            ["--eval-bleu", "--freeze-pretrained"],
            "no effect in decoding, as options of training: --eval-bleu, --freeze-pretrained",
        ),
        (
            ("window", "sequential"),
            ["--max-target-positions", "90"],
            "no effect in decoding, as options of training: --max-target-positions",
        ),
        (
            ("window", "sequential"),
            [
                *["--score-reference", "--lenpen", "0.6", "--lm-weight", "0.5"],
                *["--retain-dropout-modules", "TransformerEncoder"],
            ],
            (
                "options without effect with --score-reference: --beam, --max-len-b, --lenpen, "
                "--lm-weight, --retain-dropout-modules"
            ),
        ),
        (
            ("memnet-rows", "iterative"),
            ["--decode-passes", "0", "--decode-order", "in-turn"],
            "--decode-order has no effect with --decode-passes 0",
        ),
        (
            ("context-stream", "stream"),
            ["--gold-context"],
            "--gold-context has no effect: this model reads no target context",
        ),
        (("window", "sequential"), ["--no-early-stop"], "fairseq ignores --no-early-stop"),
        (("cache-stream", "stream"), ["--gold-context"], None),
    ],
    indirect=["system"],
)
def test_options_without_effect_are_named(binarised, system, options, message, caplog):
    checkpoint, given = system
    tiny.generate(binarised, checkpoint, *given, *options)
    named = [record.message for record in caplog.records if record.levelname == "WARNING"]
    named = [text for text in named if not text.startswith(AT_LIMIT)]
    assert named == ([message] if message else [])


def test_options_without_effect_on_windows_of_one_sentence_are_named(
    binarised, window_checkpoint, caplog
):
    one = [*WINDOW, "--window-size", "1", "--override-checkpoint-options"]
    for option in ("--gold-context", "--normalize-with-context"):
        caplog.clear()
        tiny.generate(binarised, window_checkpoint, *one, option)
        assert f"{option} has no effect on windows of 1 sentence" in caplog.messages
    joint = ["--decoding", "window", "--wrong-sentence-count", "keep"]
    tiny.generate(binarised, window_checkpoint, *one, *joint)
    assert "--wrong-sentence-count keep has no effect on windows of 1 sentence" in caplog.messages


def test_iterative_options_without_a_target_memory_are_named(
    binarised, memnet_rows_checkpoint, caplog, monkeypatch
):
    from fairseq_docmt.models.memnet_rnn import MemnetRNNModel

    monkeypatch.setattr(MemnetRNNModel, "remembers_translations", False)
    tiny.generate(binarised, memnet_rows_checkpoint, *ROWS, "--decode-passes", "2")
    message = "--decode-passes has no effect on models without a target memory"
    assert caplog.messages.count(message) == 1


@pytest.mark.parametrize("system", [*FEW, ("window", "window")], indirect=True, ids=str)
def test_all_samples_are_listed(binarised, system):
    """Equal ones too."""
    checkpoint, options = system
    options = [*options, "--sampling", "--beam", "4", "--nbest", "4", "--temperature", "0.02"]
    output = tiny.generate(binarised, checkpoint, *options, "--max-len-b", "3")
    rows = Counter(int(row) for row in re.findall(r"^H-(\d+)\t", output, flags=re.M))
    assert rows == {row: 4 for row in tiny.rows_of(DOCS)}


@pytest.mark.parametrize("length", ["1", "30"])
def test_the_source_gives_the_length(binarised, memory_stream_checkpoint, caplog, length):
    """Whatever the maximum; as fairseq counts the end of the source, there is a word more."""
    options = [*STREAM, "--match-source-len", "--max-len-b", length]
    output = tiny.generate(binarised, memory_stream_checkpoint, *options)
    sources = tiny.lines_of(output, "S")
    for row, text in tiny.lines_of(output).items():
        assert len(text.split()) == len(sources[row].split()) + 1
    assert at_limit(caplog) == 0


def at_limit(caplog) -> int:
    """Number of translations that are said to end at their length limit."""
    found = [text for text in caplog.messages if text.startswith(AT_LIMIT)]
    return sum(int(text.rpartition(": ")[2]) for text in found)


SINGLE = [("window", "sequential"), ("cache-stream", "stream"), ("memnet-rows", "iterative")]


@pytest.mark.parametrize("system", SINGLE, indirect=True, ids=str)
def test_translations_at_their_length_limit_are_counted(binarised, system, caplog):
    checkpoint, options = system
    lengths = ["--max-len-a", "0.3", "--max-len-b", "3"]
    output = tiny.generate(binarised, checkpoint, *options, *lengths, "--nbest", "2")
    limits = {
        row: int(0.3 * (len(text.split()) + 1) + 3)
        for row, text in tiny.lines_of(output, "S").items()
    }
    sizes = {row: len(text.split()) for row, text in tiny.lines_of(output).items()}
    reached = [row for row, size in sizes.items() if size == limits[row]]
    assert at_limit(caplog) == len(reached) > 0


@pytest.mark.parametrize("ratio", [0.5, 1.1, pytest.param(4.0, marks=LONG)])
def test_sentences_of_an_output_at_their_length_limit_are_counted(
    binarised, document_checkpoint, caplog, ratio
):
    """A sentence may use its share of the output's limit and what those before it have left."""
    options = [*DOCUMENT, "--force-sentence-count", "--max-len-a", str(ratio), "--max-len-b", "0"]
    options += ["--max-document-tokens", "50", "--override-checkpoint-options"]
    output = tiny.generate(binarised, document_checkpoint, *options)
    sources, lines = tiny.lines_of(output, "S"), tiny.lines_of(output)
    rows, reached = iter(sorted(lines)), 0
    for doc in DOCS:
        own = [next(rows) for _ in doc]
        sizes = [len(sources[row].split()) + 1 for row in own]
        limit = int(ratio * sum(sizes))
        words = limit - len(own) + 1  # between the sentences are separators
        left = limit - sum(1 + words * size // sum(sizes) for size in sizes)
        for row, size in zip(own, sizes):
            left += 1 + words * size // sum(sizes) - len(lines[row].split())
            reached += left == 0
            left -= 1
    assert at_limit(caplog) == reached
    assert reached > 0 or ratio == 4.0  # there, sentences may end before


def test_outputs_at_their_length_limit_are_counted(binarised, document_checkpoint, caplog):
    """Of an output of any number of sentences the last one reaches the limit."""
    options = [*DOCUMENT, "--max-len-a", "1", "--max-len-b", "0", "--wrong-sentence-count", "keep"]
    tiny.generate(binarised, document_checkpoint, *options)
    assert 0 < at_limit(caplog) <= len(DOCS)


@pytest.mark.parametrize("decoding", ["segment", "window", "overlap", "sequential"])
def test_limits_without_room_for_words(binarised, barely_trained, caplog, decoding):
    """What stands before the sentences of an output is written in any case."""
    task = [*WINDOW, "--window-size", "3", "--next-sentences", "1", "--mark-document-start"]
    options = [*WINDOW, "--decoding", decoding, "--print-alignment", "hard"]
    options += ["--max-len-a", "0.01", "--max-len-b", "0"]
    output = tiny.generate(binarised, barely_trained(*task), *options)
    assert tiny.lines_of(output) == {row: "" for row in tiny.rows_of(DOCS)}
    (warned,) = [text for text in caplog.messages if text.startswith("sentences with an empty")]
    assert warned.endswith(f": {len(tiny.rows_of(DOCS))}")
    assert ("together" in warned) == (decoding != "sequential")


def test_language_models_are_no_translation_models(binarised, tmp_path):
    path = tiny.document_lm(binarised / "dict.tgt.txt", tmp_path, tiny.translate(DOCS))
    with pytest.raises(UserError, match="--arch .* is a language model, which translates nothing"):
        tiny.generate(binarised, path, *WINDOW)


def test_translation_models_are_no_language_models(binarised, window_checkpoint):
    command = [
        binarised,
        "--user-dir",
        tiny.USER_DIR,
        "--cpu",
        *WINDOW,
        "--path",
        window_checkpoint,
    ]
    with pytest.raises(
        UserError, match="^fairseq-eval-lm is for language models; fairseq-generate"
    ):
        tiny.run_main(eval_lm.cli_main, *command, "--gen-subset", "valid")
