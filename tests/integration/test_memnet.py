"""memnet_rnn through the stock commands.

Covers data/rows_view.py, generation/iterative.py, tasks/document_rows_translation.py.
"""

import math
import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from equations import memnet_loops as loops
from equations.recurrent_loops import Parameters
from fairseq import checkpoint_utils
from fairseq.data.data_utils import collate_tokens
from fairseq_cli import preprocess
from long_tests import LONG

from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.data.rows_view import open_drafts
from fairseq_docmt.data.text_checks import Symbols
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.generation.iterative import IterativeSearch

DOCUMENTS = ["--task", "document_rows_translation", "--max-document-tokens", "20"]
#: name of the task before it had one of its own
EARLIER = "full_document_translation"
TEST = tiny.documents((1, 5, 2, 7), 2)
#: lines of the drafts of the test set
DRAFTS = [
    line for document in tiny.translate(tiny.documents((1, 5, 2, 7), 52)) for line in document
]
LIMIT = 12


@pytest.fixture(scope="module")
def drafts(binarised, tmp_path_factory):
    """Return word-by-word translations of all splits."""
    folder = tmp_path_factory.mktemp("drafts")
    for split, lengths, seed in (("train", (4, 1, 6, 3, 5), 0), ("valid", (3, 1, 4), 1)):
        write_drafts(binarised, folder, split, tiny.documents(lengths, seed + 50))
    write_drafts(binarised, folder, "test", tiny.documents((1, 5, 2, 7), 52))
    return folder


def write_drafts(data, folder, split, docs):
    text = folder / f"{split}.text"
    text.with_suffix(".text.tgt").write_text(tiny.text_of(tiny.translate(docs)))
    made = folder / f"bin_{split}"
    tiny.run_main(
        preprocess.cli_main,
        *["--only-source", "-s", "tgt", "--srcdict", data / "dict.tgt.txt"],
        *["--trainpref", text, "--destdir", made, "--workers", "1"],
    )
    for end in ("bin", "idx"):
        (made / f"train.tgt-None.tgt.{end}").rename(folder / f"{split}.tgt-None.tgt.{end}")


def train(data, folder, *arguments, options=(), updates=3):
    return tiny.train(
        data, folder, *DOCUMENTS, *arguments, model=tiny.memnet(*options), updates=updates
    )


@torch.no_grad()
def scores_by_equations(checkpoint, place, translations, known=None, own_query=True):
    """Probabilities (log2) of words of the test documents by the loops of tests/equations.

    Args:
        translations: that are scored, a line for each sentence.
        known: what is in memory, as many lines; None to read nothing.
        own_query: whether a sentence's own cell is part of its query.
    """
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    p, eos = Parameters(model.double()), 2

    def tokens(line):
        return [task.tgt_dict.index(word) for word in line.split()]

    def read(lines, count):
        return [[eos, *tokens(next(lines))] for _ in range(count)]

    translations = iter(translations)
    known, found = None if known is None else iter(known), []
    for part in parts_of(TEST, task):
        sources = [task.src_dict.encode_line(s, add_if_not_exist=False).tolist() for s in part]
        memories = [None] * len(part)
        if known is not None:
            memories = loops.readings(p, sources, read(known, len(part)), own_query, place)
        for source, words, c_mem in zip(sources, read(translations, len(part)), memories):
            logits, _ = loops.decode(p, loops.encode(p, source), words, c_mem, place)
            target = torch.tensor([*words[1:], eos])
            scores = logits.log_softmax(-1).gather(1, target.unsqueeze(1)).squeeze(1)
            found.append((scores / math.log(2)).tolist())
    return found


def printed(output, kind="H"):
    """Texts and scores of words (log2) of the test documents."""
    rows = tiny.rows_of(TEST)
    texts, scores = tiny.lines_of(output, kind), tiny.lines_of(output, "P")
    assert sorted(texts) == rows
    return [texts[row] for row in rows], [[float(x) for x in scores[row].split()] for row in rows]


def check_scores(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        assert a == pytest.approx(b, abs=2e-4)  # single precision, four digits are printed


@pytest.mark.parametrize(
    "memory, place",
    [
        pytest.param("source", "context", marks=LONG),
        pytest.param("target", "context", marks=LONG),
        ("both", "context"),
        pytest.param("both", "output", marks=LONG),
    ],
)
def test_variants_train_and_translate(binarised, sentence_lm, drafts, tmp_path, memory, place):
    """Each pass has the scores of the equations, given the translations of the previous pass."""
    options = ["--context-side", memory, "--context-integration", place]
    if memory != "target":
        options += ["--sentence-lm", sentence_lm]
    arguments = [] if memory == "source" else ["--drafts", str(drafts)]
    checkpoint = tiny.with_noise(train(binarised, tmp_path, *arguments, options=options))

    def run(*extra):
        return printed(tiny.generate(binarised, checkpoint, *DOCUMENTS, *extra))

    # With both memories the first translations use the source memory and are not printed.
    begins = ["--drafts", str(drafts)] if memory == "both" else []
    found, before = [run(*begins, "--decode-passes", str(n)) for n in range(3)], None
    for texts, scores in found:
        check_scores(scores, scores_by_equations(checkpoint, place, texts, before))
        before = texts if before or not begins else DRAFTS
    # Other sentences of the document change the scores.
    _, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    alone = [len(part) == 1 for part in parts_of(TEST, task) for _ in part]
    assert [a == b for a, b in zip(found[0][1], found[1][1])] == alone
    # References are scored given references of other sentences, or given drafts.
    texts, scores = run("--score-reference")
    check_scores(scores, scores_by_equations(checkpoint, place, texts, texts, own_query=False))
    texts, scores = run("--score-reference", "--drafts", str(drafts))
    check_scores(scores, scores_by_equations(checkpoint, place, texts, DRAFTS))


def test_training_reads_drafts_as_scoring_does(binarised, sentence_lm, drafts, tmp_path):
    """Also the mark at the beginning of a document."""
    options, read = ["--sentence-lm", sentence_lm], ["--drafts", str(drafts)]
    checkpoint = train(binarised, tmp_path, "--mark-document-start", *read, options=options)
    checkpoint = tiny.with_noise(checkpoint)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    task.load_dataset("valid")
    view = task.dataset("valid")
    batch = view.collater([view[item] for item in range(len(view))])
    inputs = {**batch["net_input"], "row_groups": None, "draft_groups": None}
    with torch.no_grad():
        scores = model.eval().get_normalized_probs(model(**inputs), log_probs=True) / math.log(2)
    output = tiny.generate(
        *[binarised, checkpoint, *DOCUMENTS[:2], *read, "--score-reference"],
        *["--gen-subset", "valid"],
    )
    printed = tiny.lines_of(output, "P")
    assert len(printed) == len(batch["id"]) > 0
    for line, words, of_words in zip(batch["id"].tolist(), batch["target"], scores):
        known = words.ne(task.tgt_dict.pad())
        wanted = of_words[known].gather(1, words[known].unsqueeze(1)).squeeze(1).tolist()
        found = [float(x) for x in printed[line].split()]
        assert found == pytest.approx(wanted[-len(found) :], abs=2e-4)


def test_vectors_equal_states_of_the_language_models(binarised, sentence_lm, tmp_path):
    """They are loaded, frozen in training, and equal to the states of the stock model."""
    options = ["--context-side", "source", "--sentence-lm", sentence_lm]
    checkpoint = train(binarised, tmp_path, options=options)
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    words = torch.tensor([[4, 6, 5, 9]])
    eos = torch.tensor([[2]])
    wanted = []
    for path, tokens in zip(sentence_lm.split(":"), (words, words.flip(1))):
        (language_model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([path])
        decoder = language_model.eval().decoder
        state, read = {}, torch.cat([eos, tokens], dim=1)
        with torch.no_grad():
            for length in range(1, 6):
                decoder(read[:, :length], incremental_state=state)
        hidden, _, _ = decoder.get_cached_state(state)
        wanted.append(hidden[0])
    sentences = model.eval().encoder.source_memory.sentences
    padded = torch.cat([torch.tensor([[1, 1]]), words, eos], dim=1)
    found = sentences(padded) * sentences.deviation + sentences.mean
    torch.testing.assert_close(found, torch.cat(wanted, dim=1))
    lines = [torch.tensor([*words, 2]) for words in ([4, 5], [6], [7, 8, 4], [9, 9])]
    sentences.standardise(iter(lines))
    vectors = sentences(torch.nn.utils.rnn.pad_sequence(lines, True, 1))
    torch.testing.assert_close(vectors.mean(0), torch.zeros(14), atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors.var(0, unbiased=False), torch.ones(14), atol=1e-2, rtol=0)


def test_training_resumes(binarised, sentence_lm, drafts, tmp_path, caplog):
    options = ["--sentence-lm", sentence_lm, "--dropout", "0.1"]
    arguments = ["--drafts", str(drafts), "--max-tokens", "40"]
    whole = train(binarised, tmp_path / "a", *arguments, options=options, updates=12)
    for updates in (5, 12):
        parts = train(binarised, tmp_path / "b", *arguments, options=options, updates=updates)
    tiny.assert_same_weights(whole, parts)
    note = "training goes on with other options of the examples: --gold-drafts True (before: False)"
    assert note not in caplog.text
    train(binarised, tmp_path / "b", "--gold-drafts", *arguments[2:], options=options, updates=16)
    assert note in caplog.text
    shutil.copytree(drafts, tmp_path / "drafts")
    arguments[1] = str(tmp_path / "drafts")
    train(binarised, tmp_path / "b", *arguments, options=options, updates=18)
    assert f"False (before: True), --drafts {tmp_path / 'drafts'} (before: None)" in caplog.text
    changed = "goes on with other files of --drafts than before, which changed: train.tgt-None."
    assert changed not in caplog.text
    path = tmp_path / "drafts" / "train.tgt-None.tgt.bin"
    words = np.fromfile(path, dtype=np.uint16)
    np.where(words == words[0], words[1], words).tofile(path)
    train(binarised, tmp_path / "b", *arguments, options=options, updates=20)
    assert caplog.text.count(changed) == 1


def test_documents_may_be_longer_than_positions(binarised, tmp_path):
    """The positions of the model limit sentences, not documents."""
    positions = ["--max-source-positions", "9", "--max-target-positions", "9"]
    arguments = ["--gold-drafts", *positions, "--max-document-tokens", "100"]
    checkpoint = train(binarised, tmp_path, *arguments, options=["--context-side", "target"])
    state = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))
    assert state["optimizer_history"][-1]["num_updates"] == 3
    output = tiny.generate(binarised, checkpoint, *DOCUMENTS[:2])
    assert sorted(tiny.lines_of(output)) == tiny.rows_of(TEST)


def test_long_sentences_are_left_out(binarised, drafts, tmp_path, caplog):
    """Each has its words, </s> and, if a document begins with it, <bod>."""
    positions = ["--max-source-positions", "7", "--skip-invalid-size-inputs-valid-test"]
    arguments = ["--drafts", str(drafts), *positions, "--mark-document-start"]
    train(binarised, tmp_path, *arguments, options=["--context-side", "target"], updates=1)
    printed = [record.getMessage() for record in caplog.records]
    for split, lengths, seed in (("train", (4, 1, 6, 3, 5), 0), ("valid", (3, 1, 4), 1)):
        longest = [s for doc in tiny.documents(lengths, seed) for s in doc if s.count(" ") == 5]
        assert 0 < len(longest) < sum(lengths)
        (line, *_) = (x for x in printed if f"{split}.src-tgt: line" in x)
        assert line.endswith(f"; {len(longest)} such sentences are left out")


@pytest.mark.long  # streams and windows are shared out alike
def test_two_processes_learn_the_same_as_one(binarised, sentence_lm, tmp_path):
    """Two processes give the same result as one with ``--update-freq 2``."""
    arguments = [*DOCUMENTS, "--gold-drafts", "--max-tokens", "20", "--dropout", "0"]
    arguments += ["--memory-dropout", "0", "--max-update", "5"]
    model = tiny.memnet("--sentence-lm", sentence_lm)
    tiny.train_in_processes(binarised, tmp_path / "two", *arguments, model=model)
    one = tiny.train(
        binarised, tmp_path / "one", *arguments, "--update-freq", "2", updates=5, model=model
    )
    wanted, found = tiny.weights(one), tiny.weights(tmp_path / "two" / "checkpoint_last.pt")
    assert wanted.keys() == found.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=0, msg=name)
    assert (wanted["decoder.of_memory.weight"].abs() > 1e-3).any()  # where it has begun as zeros


def test_second_stage_begins_with_rnnsearch(binarised, sentence_lm, tmp_path):
    """It translates and scores like the first stage; the learning rate is 0."""
    sentence = ["--task", "sliding_window_translation", "--window-size", "1"]
    model = tiny.rnnsearch("--decoder-layers", "2")
    base = tiny.with_noise(tiny.train(binarised, tmp_path / "a", *sentence, model=model, updates=1))
    arguments = ["--gold-drafts", "--finetune-from-model", str(base), "--lr", "0"]
    path = train(
        binarised, tmp_path / "b", *arguments, options=["--sentence-lm", sentence_lm], updates=1
    )
    old, new = tiny.weights(base), tiny.weights(path)
    for name, value in old.items():
        assert torch.equal(new[name][: len(value)], value), name
    assert {name.split(".")[1] for name in new if name not in old} == {
        "source_memory",
        "target_query",
        "of_memory",
    }
    for extra in ([], ["--score-reference"]):
        first = tiny.generate(binarised, base, *sentence, "--decoding", "window", *extra)
        second = tiny.generate(binarised, path, *DOCUMENTS, *extra)
        (texts, scores), (again, found) = printed(first), printed(second)
        assert again == texts
        check_scores(found, scores)


@LONG
def test_validation_bleu_and_valid_drafts(binarised, sentence_lm, drafts, tmp_path, caplog):
    """BLEU in validation is that of iterative decoding, which reads the memories."""
    caplog.set_level("INFO")
    arguments = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 10}', "--lr", "0.05"]
    options = ["--sentence-lm", sentence_lm]
    arguments += ["--drafts", str(drafts)]
    path = train(binarised, tmp_path, *arguments, options=options, updates=80)
    logged = float(re.findall(r"valid on .valid. subset.* bleu ([\d.]+) \|", caplog.text)[-1])
    read = [*DOCUMENTS, "--drafts", str(drafts)]
    assert logged == pytest.approx(tiny.valid_bleu(binarised, path, *read), abs=0.011)
    for others in (DOCUMENTS, [*DOCUMENTS, "--decode-passes", "0"]):
        assert logged != pytest.approx(tiny.valid_bleu(binarised, path, *others), abs=0.1)


def test_a_source_memory_is_searched_with_once(binarised, sentence_lm, tmp_path, monkeypatch):
    """It reads no translations, so further passes change nothing."""
    options = ["--context-side", "source", "--sentence-lm", sentence_lm]
    checkpoint = tiny.with_noise(train(binarised, tmp_path, options=options))
    search, searched = IterativeSearch._translate_given, []

    def counted(self, generator, models, sentences, wave, readings):
        searched.extend(readings is not None for _ in wave)
        return search(self, generator, models, sentences, wave, readings)

    monkeypatch.setattr(IterativeSearch, "_translate_given", counted)
    outputs = []
    for more in (["1"], ["3", "--decode-order", "in-turn"]):
        output = tiny.generate(binarised, checkpoint, *DOCUMENTS, "--decode-passes", *more)
        outputs.append(printed(output))
        assert len(searched) == len(tiny.rows_of(TEST)) and all(searched)
        searched.clear()
    assert outputs[0] == outputs[1]


def source_alone(model, source, lengths, previous, numbers):
    """Return the output with the source memory and an empty target memory."""
    encoder_out = model.encoder(source, lengths, documents=numbers)
    encoder_out["readings"] = [model.decoder.recall(encoder_out, numbers)]
    return model.decoder(previous, encoder_out)


def greedy(model, task, document, translated, with_source=False, rows=None):
    """Translate these sentences, all by default, by greedy search, given earlier translations."""
    dictionary = task.tgt_dict
    eos, pad = dictionary.eos(), dictionary.pad()
    source = collate_tokens(document, pad, left_pad=True)
    lengths = source.ne(pad).sum(1)
    numbers = torch.zeros(len(document), dtype=torch.long)
    results = []
    for row in range(len(document)) if rows is None else rows:
        tokens = []
        while True:
            inputs = [torch.tensor([eos, *words]) for words in translated or [[]] * len(document)]
            drafts = collate_tokens(inputs, pad)
            inputs[row] = torch.tensor([eos, *tokens])
            previous = collate_tokens(inputs, pad)
            known = {} if translated is None else {"documents": numbers, "drafts": drafts}
            output = model(source, lengths, previous, **known)
            if translated is None and with_source:
                output = source_alone(model, source, lengths, previous, numbers)
            scores = output[0][row, len(tokens)].clone()
            scores[[pad, dictionary.index("<sep>")]] = -float("inf")
            if not tokens:
                scores[eos] = -float("inf")
            best = int(scores.argmax())
            if best == eos or len(tokens) == LIMIT:
                break
            tokens.append(best)
        results.append(tokens)
    return results


@torch.no_grad()
@pytest.mark.parametrize(
    "order, passes",
    [
        pytest.param("together", 0, marks=LONG),
        pytest.param("together", 1, marks=LONG),
        ("together", 3),
        pytest.param("in-turn", 0, marks=LONG),
        pytest.param("in-turn", 1, marks=LONG),
        ("in-turn", 3),
    ],
)
def test_iterative_decoding_equals_its_definition(binarised, memnet_rows_checkpoint, order, passes):
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(memnet_rows_checkpoint)])
    model.eval()
    # As in test_full_documents, but no document is longer than the limit.
    arguments = [*DOCUMENTS[:2], "--beam", "1", "--decode-passes", str(passes)]
    output = tiny.generate(binarised, memnet_rows_checkpoint, *arguments, "--decode-order", order)
    found, expected = tiny.lines_of(output), []
    for document in parts_of(TEST, task):
        sources = [task.src_dict.encode_line(s, add_if_not_exist=False).long() for s in document]
        current = greedy(model, task, sources, None, with_source=passes > 0)
        for _ in range(passes):
            if order == "together":
                current = greedy(model, task, sources, current)
                continue
            for row in range(len(sources)):
                (current[row],) = greedy(model, task, sources, current, rows=[row])
        expected += [task.tgt_dict.string(torch.tensor(tokens)) for tokens in current]
    assert [found[row] for row in tiny.rows_of(TEST)] == expected
    assert len(set(expected)) > 2


def parts_of(documents, task):
    """Return the parts into which the task cuts documents."""
    from fairseq_docmt.data import DocumentIndex

    for document in documents:
        sizes = torch.tensor([len(s.split()) + 1 for s in document]).numpy()
        index = DocumentIndex.from_lengths([len(document)])
        for first, end in task.search.spans(index, sizes):
            yield document[first:end]


def test_passes_change_something(binarised, memnet_rows_checkpoint):
    found = [
        tiny.lines_of(tiny.generate(binarised, memnet_rows_checkpoint, *DOCUMENTS[:2], *options))
        for options in (["--decode-passes", "0"], [], ["--batch-size", "1"], ["--max-tokens", "9"])
    ]
    assert found[0] != found[1] and found[1] == found[2] == found[3]


def test_typed_lines_have_no_drafts(binarised, memnet_rows_checkpoint, drafts):
    arguments = [*DOCUMENTS[:2], "--drafts", str(drafts)]
    with pytest.raises(UserError, match="--drafts are translations of a corpus; use fairseq-gen"):
        tiny.interactive(binarised, memnet_rows_checkpoint, ["w1"], *arguments)


def test_decoding_begins_with_drafts(binarised, memnet_rows_checkpoint, drafts):
    arguments = [*DOCUMENTS[:2], "--drafts", str(drafts)]
    with_drafts = tiny.generate(binarised, memnet_rows_checkpoint, *arguments)
    without = tiny.generate(binarised, memnet_rows_checkpoint, *DOCUMENTS[:2])
    assert tiny.scores_of(with_drafts) != tiny.scores_of(without)
    first = tiny.rows_of(TEST)[0]  # a document of one sentence
    assert tiny.scores_of(with_drafts)[first] == tiny.scores_of(without)[first]


def test_ensembles_nbest_and_references(binarised, memnet_rows_checkpoint):
    alone = tiny.generate(binarised, memnet_rows_checkpoint, *DOCUMENTS[:2])
    twice = f"{memnet_rows_checkpoint}:{memnet_rows_checkpoint}"
    both = tiny.generate(binarised, twice, *DOCUMENTS[:2])
    assert tiny.lines_of(both) == tiny.lines_of(alone)
    several = tiny.generate(binarised, memnet_rows_checkpoint, *DOCUMENTS[:2], "--nbest", "2")
    assert several.count("\nH-") == 2 * alone.count("\nH-")
    scored = tiny.generate(binarised, memnet_rows_checkpoint, *DOCUMENTS[:2], "--score-reference")
    assert tiny.lines_of(scored) == tiny.lines_of(scored, "T")
    batches = ["--score-reference", "--batch-size", "1"]
    apart = tiny.generate(binarised, memnet_rows_checkpoint, *DOCUMENTS[:2], *batches)
    for row, score in tiny.scores_of(scored).items():
        assert float(tiny.scores_of(apart)[row]) == pytest.approx(float(score), abs=1e-4)


def test_references_are_scored_without_memories(binarised, memnet_rows_checkpoint):
    """As if each sentence were a document."""
    arguments = [binarised, memnet_rows_checkpoint, *DOCUMENTS[:2], "--score-reference"]
    found = tiny.scores_of(tiny.generate(*arguments, "--decode-passes", "0"))
    assert found != tiny.scores_of(tiny.generate(*arguments))
    references = [line for document in tiny.translate(TEST) for line in document]
    texts, scores = printed(tiny.generate(*arguments, "--decode-passes", "0"))
    assert texts == references
    check_scores(scores, scores_by_equations(memnet_rows_checkpoint, "context", references))


def test_ensembles_of_two_kinds_are_refused(binarised, memnet_rows_checkpoint, document_checkpoint):
    for paths in (
        f"{memnet_rows_checkpoint}:{document_checkpoint}",
        f"{document_checkpoint}:{memnet_rows_checkpoint}",
    ):
        for options in ([], ["--score-reference"]):
            with pytest.raises(UserError, match="does not read a row for each sentence"):
                tiny.generate(binarised, paths, *DOCUMENTS[:2], *options)


def test_options_for_single_sentences(binarised, memnet_rows_checkpoint):
    options = [*DOCUMENTS[:2], "--prefix-size", "2", "--print-alignment", "hard"]
    output = tiny.generate(binarised, memnet_rows_checkpoint, *options)
    wanted = tiny.lines_of(output, "T")
    for row, text in tiny.lines_of(output).items():
        assert text.split()[:2] == wanted[row].split()[:2]
    assert tiny.links_within_sentences(output) > 0


@pytest.mark.parametrize(
    "options, arguments, message",
    [
        (["--context-side", "target"], [], "a target memory needs --drafts"),
        (["--context-side", "source"], [], "need --sentence-lm FORWARD:BACKWARD"),
        (["--sentence-lm", "a:./a"], ["--gold-drafts"], "--sentence-lm gives a twice, but the sec"),
        (["--sentence-lm", "a:b"], ["--gold-drafts"], "--sentence-lm: checkpoint a not found"),
        (["--context-side", "target"], ["--drafts", "nowhere"], "nowhere/.*idx not found"),
        (
            ["--context-side", "target"],
            ["--drafts", "x", "--gold-drafts"],
            "--drafts and --gold-drafts exclude",
        ),
        (
            ["--context-side", "target"],
            ["--gold-drafts", "--decoding", "segment"],
            "choose from iter",
        ),
    ],
)
def test_wrong_options_are_refused(binarised, tmp_path, options, arguments, message):
    with pytest.raises(UserError, match=message):
        train(binarised, tmp_path, *arguments, options=options)


def test_a_language_model_of_a_memory_that_has_diverged(binarised, sentence_lm, tmp_path):
    forward, backward = sentence_lm.split(os.pathsep)
    both = os.pathsep.join([tiny.diverged(forward, tmp_path), backward])
    with pytest.raises(UserError, match="diverged.pt has parameters that are NaN or infinite"):
        train(binarised, tmp_path, options=["--context-side", "source", "--sentence-lm", both])


def test_a_source_memory_has_no_drafts(binarised, sentence_lm, tmp_path):
    options = ["--context-side", "source", "--sentence-lm", sentence_lm]
    with pytest.raises(UserError, match="--gold-drafts is for a target memory, not for the source"):
        train(binarised, tmp_path, "--gold-drafts", options=options)


def test_other_sizes_and_other_text_are_refused(binarised, sentence_lm, drafts, tmp_path):
    options = ["--sentence-lm", sentence_lm, "--sentence-lm-hidden-size", "9"]
    with pytest.raises(UserError, match="has states of 7 and embeddings of 5, not 9 and 5"):
        train(binarised, tmp_path, "--gold-drafts", options=options)
    for split in ("train", "valid"):
        write_drafts(binarised, tmp_path, split, tiny.documents((9, 9), 1))
    with pytest.raises(UserError, match="translations of other text"):
        arguments = ["--drafts", str(tmp_path)]
        train(binarised, tmp_path, *arguments, options=["--context-side", "target"])


@pytest.mark.parametrize("suffix", ["bin", "idx"])
def test_truncated_drafts_are_named(binarised, tmp_path, suffix):
    for split in ("train", "valid"):
        write_drafts(binarised, tmp_path, split, tiny.documents((9, 9), 1))
    path = tmp_path / f"valid.tgt-None.tgt.{suffix}"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=rf"valid\.tgt-None\.tgt\.{suffix} is truncated"):
        arguments = ["--drafts", str(tmp_path)]
        train(binarised, tmp_path, *arguments, options=["--context-side", "target"])


def test_stored_drafts_have_no_part_in_other_text(memnet_rows_checkpoint, tmp_path, caplog):
    state = torch.load(memnet_rows_checkpoint, weights_only=False)
    state["cfg"]["task"].update(drafts="of training", gold_drafts=False)
    torch.save(state, tmp_path / "trained.pt")
    for options in ({"decode_passes": 0}, {}):
        translator = DocumentTranslator.from_pretrained(str(tmp_path / "trained.pt"), **options)
        found = translator.translate([["w1 w2", "w3"]])
        translator = DocumentTranslator.from_pretrained(str(memnet_rows_checkpoint), **options)
        assert found == translator.translate([["w1 w2", "w3"]])
    assert "--drafts" not in caplog.text
    with pytest.raises(UserError, match="drafts is for fairseq's commands.*; use fairseq-generate"):
        DocumentTranslator.from_pretrained(str(memnet_rows_checkpoint), drafts="nowhere")


def test_scores_of_references_take_no_passes(binarised, memnet_rows_checkpoint, caplog):
    scored = [*DOCUMENTS[:2], "--score-reference"]
    passes = ["--decode-passes", "3", "--decode-order", "in-turn"]
    found = [tiny.generate(binarised, memnet_rows_checkpoint, *scored, *o) for o in ([], passes)]
    assert tiny.scores_of(found[0]) == tiny.scores_of(found[1])
    message = "--decode-passes and --decode-order have no effect with --score-reference"
    assert caplog.messages.count(message) == 1


def test_drafts_of_unrelated_lengths_are_warned_of(binarised, tmp_path, caplog):
    lengths = np.random.default_rng(1).integers(1, 9, 300)
    sentences = [" ".join(["w1"] * length) for length in lengths]
    corpus = SimpleNamespace(index=DocumentIndex.from_sizes([9] * 300), src_sizes=lengths + 1)
    symbols = Symbols.of(tiny.dictionary())
    for drafts in (sentences, [*sentences[1:], sentences[0]]):
        assert "are not related" not in caplog.text
        write_drafts(binarised, tmp_path, "train", [drafts])
        open_drafts(str(tmp_path), "train", "tgt", corpus, symbols)
    [warning] = [text for text in caplog.messages if "are not related" in text]
    assert warning.startswith(f"--drafts: {tmp_path}/train.tgt-None.tgt: in 1 of 1 blocks")


def test_only_models_with_memories_iterate(binarised, document_checkpoint):
    with pytest.raises(UserError, match="--arch transformer does not read a row for each sentence"):
        tiny.generate(binarised, document_checkpoint, *DOCUMENTS[:2], "--decoding", "iterative")


@pytest.fixture
def earlier_checkpoint(memnet_rows_checkpoint, tmp_path):
    """Return a checkpoint with the name that the task had before."""
    state = torch.load(memnet_rows_checkpoint, map_location="cpu", weights_only=False)
    state["cfg"]["task"]["_name"] = state["task_state"]["document_options"]["task"] = EARLIER
    torch.save(state, tmp_path / "earlier.pt")
    return tmp_path / "earlier.pt"


def test_earlier_checkpoints_are_translated(binarised, memnet_rows_checkpoint, earlier_checkpoint):
    documents = tiny.documents((3, 2), 1)
    found, wanted = (
        DocumentTranslator.from_pretrained(path).translate_nbest(documents, 2, beam=2, lenpen=0.5)
        for path in (earlier_checkpoint, memnet_rows_checkpoint)
    )
    assert found == wanted
    found, wanted = (
        tiny.generate(binarised, path, *DOCUMENTS[:2])
        for path in (earlier_checkpoint, memnet_rows_checkpoint)
    )
    assert tiny.lines_of(found) == tiny.lines_of(wanted)
    with pytest.raises(UserError, match="--arch memnet_rnn reads a row for each sentence; give --"):
        tiny.generate(binarised, earlier_checkpoint, "--task", EARLIER)
