"""Starts from the multilingual models of fairseq: mBART with 25 and 50 languages, M2M-100, NLLB.

The models are tiny and random, but made and saved by fairseq's own tasks and classes.

Covers tasks/starts/language_tags.py.
"""

import io
import shutil
from types import SimpleNamespace

import pytest
import tiny
import torch
from fairseq import checkpoint_utils, options, tasks
from fairseq.data.data_utils import collate_tokens
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import interactive
from long_tests import LONG, long_but_for
from pretrained import (
    DOCUMENT,
    FINETUNED,
    LANGUAGES,
    LIMIT,
    M2M,
    MBART,
    MEMORY,
    NARROW,
    POSITIONS,
    SEARCH,
    STOCK,
    TEST,
    WINDOW,
    ByHand,
    check,
    own,
    searched,
    without_new_symbols,
)

from fairseq_docmt.checkpoint_file import CheckpointFile
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.scoring.context.reference_scores import ReferenceScorer
from fairseq_docmt.tasks._base import DocumentTranslationTask
from fairseq_docmt.tasks.starts import language_tags


@pytest.mark.parametrize(
    "decoding, scoring",
    [("window", []), pytest.param("sequential", [], marks=LONG), ("window", ["--score-reference"])],
)
@pytest.mark.parametrize("kind", long_but_for(["mbart25"], STOCK))
def test_window_1_is_the_pretrained_model(data, stock, kind, decoding, scoring):
    """Tokens and their scores; also of the tag, which the stock tasks generate as well."""
    task_class, task, _ = STOCK[kind]
    options = [*task, "-s", "src", "-t", "tgt", *scoring]
    options += ["--required-batch-size-multiple", "1"]
    theirs, _ = searched(task_class, data / "sentences" / "bin", stock(kind), *options)
    options = [*WINDOW, "--window-size", "1", "--decoding", decoding, *scoring]
    if kind != "mbart25" and decoding == "sequential":
        options += ["--max-len-b", "11"]  # the others count the tag of the target
    with without_new_symbols():
        ours, _ = searched(DocumentTranslationTask, data / "bin", stock(kind), *options)
    ours = [nbest for nbest in ours if len(nbest[0]["tokens"]) > 1]
    assert len(ours) == len(theirs) == 7
    for our, their in zip(ours, theirs):
        best, wanted = our[0], their[0]
        # [tgt] comes after </s>, and __tgt__ before the sentence.
        kept = slice(0, -1) if kind == "mbart25" else slice(1, None)
        assert best["tokens"].tolist() == wanted["tokens"].tolist()[kept]
        torch.testing.assert_close(
            best["positional_scores"], wanted["positional_scores"][kept], atol=1e-5, rtol=0
        )
        if kind != "mbart25" and decoding != "sequential" and not scoring:
            torch.testing.assert_close(best["score"], wanted["score"], atol=1e-5, rtol=0)


# ---- documents, compared with a loop by hand -----------------------------------------------------


@pytest.mark.parametrize("kind", long_but_for(["mbart25"], ["mbart25", "m2m"]))
@pytest.mark.parametrize(
    "task, decoding, arch",
    [
        pytest.param("window", "sequential", None, marks=LONG),
        ("window", "window", None),
        pytest.param("window", "segment", None, marks=LONG),
        pytest.param("document", "sequential", None, marks=LONG),
        ("document", "segment", None),
        # reuses states when the source grows
        pytest.param("document", "sequential", NARROW, marks=LONG),
    ],
)
def test_documents_have_the_tags_in_their_places(data, finetuned, kind, task, decoding, arch):
    """Decoding names nothing but the checkpoint."""
    checkpoint = finetuned(kind, task, arch)
    hand, expected = ByHand(checkpoint, kind), []
    for document in TEST:
        found = []
        for i in range(len(document)):
            first = max(0, i - 2) if task == "window" else 0
            if decoding == "sequential":
                before = [[*s[:-1], (hand.sep, 0.0)] for s in found[first:]]
                found.append(hand.sentence(document[first : i + 1], before))
            elif decoding == "window":
                found.append(hand.span(document[first : i + 1])[-1])
        if decoding == "segment":
            size = 3 if task == "window" else len(document)
            for first in range(0, len(document), size):
                found += hand.span(document[first : first + size])
        expected += found
    check(data, checkpoint, expected, *FINETUNED[task][:2], *POSITIONS, "--decoding", decoding)


@pytest.mark.parametrize("kind", long_but_for(["mbart25"], ["mbart50", "mbart25"]))
def test_streams_have_the_tags_in_their_places(data, finetuned, kind):
    checkpoint = finetuned(kind, "stream", MEMORY)
    hand, expected = ByHand(checkpoint, kind), []
    pad = hand.words.pad()
    for document in TEST:
        sources = [hand.source([sentence])[0] for sentence in document]
        translated = []
        for i in range(len(document)):
            source = collate_tokens(sources[: i + 1], pad, left_pad=True)
            starts = torch.tensor([True] + [False] * i)
            found = []
            while not found or found[-1][0] != hand.eos:
                tokens = [t for t, _ in found]
                rows = [torch.tensor([*hand.first, *t]) for t in [*translated, tokens]]
                previous, lengths = collate_tokens(rows, pad), source.ne(pad).sum(1)
                with torch.no_grad():
                    output = hand.model(source, lengths, previous, starts=starts, lanes=1)
                scores = hand.model.get_normalized_probs(output, log_probs=True)
                scores = scores[-1, len(rows[-1]) - 1]
                never = [pad, hand.sep, *hand.never, *([] if found else [hand.eos])]
                full = len(found) == LIMIT - hand.tags
                best = hand.eos if full else hand.best(scores, *never)
                found.append((best, float(scores[best])))
            translated.append([t for t, _ in found[:-1]])
            expected.append(found)
    check(data, checkpoint, expected, *FINETUNED["stream"][:2], *POSITIONS)


def test_no_tag_is_written_within_a_translation(data, finetuned, tmp_path):
    """Not even by a model whose parameters are noise, which would."""
    path = tmp_path / "noise.pt"
    shutil.copy(finetuned("m2m", "window"), path)
    output = tiny.generate(data / "bin", tiny.with_noise(path), *SEARCH, *WINDOW)
    assert len(tiny.lines_of(output)) >= len(tiny.rows_of(TEST))
    assert "__" not in output


def test_python_and_interactive_need_no_tags(data, finetuned, monkeypatch):
    checkpoint = finetuned("mbart25", "window")
    command = [*WINDOW, "--beam", "2", "--max-len-b", "12", "--max-len-a", "0"]
    found = tiny.lines_of(tiny.generate(data / "bin", checkpoint, *command))
    expected = [found[row] for row in tiny.rows_of(TEST)]
    translator = DocumentTranslator.from_pretrained(str(checkpoint))
    options = {"beam": 2, "max_len_b": 12, "max_len_a": 0}
    translated = translator.translate(TEST, **options)
    assert [line for document in translated for line in document] == expected
    monkeypatch.setattr("sys.stdin", io.StringIO(tiny.text_of(TEST)))
    command += [str(data / "bin"), "--path", str(checkpoint), "--cpu", "--buffer-size", "99"]
    command += ["--user-dir", tiny.USER_DIR, "-s", "src", "-t", "tgt"]
    output = tiny.run_main(interactive.cli_main, *command)
    assert [line for line in tiny.lines_of(output).values() if line] == expected


@pytest.mark.parametrize("kind", ["mbart25", "m2m"])
def test_references_of_contrastive_sets_have_the_tags(finetuned, kind):
    """The scores of the last sentence, after its context."""
    checkpoint = finetuned(kind, "window")
    hand = ByHand(checkpoint, kind)
    scorer = ReferenceScorer(DocumentTranslator.from_pretrained(str(checkpoint)).hub)
    pairs = [(document[:3], tiny.translate([document[:3]])[0]) for document in TEST]
    for (source, target), found in zip(pairs, scorer.sentence_scores(pairs, last_only=True)):
        context = [t for s in target[:-1] for t in [*hand.indices(s.split()), hand.sep]]
        last = [*hand.indices(target[-1].split()), hand.eos]
        scores = [
            float(hand.scores(hand.source(source), [*context, *last[:n]])[word])
            for n, word in enumerate(last)
        ]
        assert found[-1][1].tolist() == pytest.approx(scores, abs=1e-5)


@pytest.mark.parametrize("task", ["window", pytest.param("stream", marks=LONG)])
def test_validation_translates_as_decoding_does(data, stock, tmp_path, task):
    model = own(MEMORY, "mbart50") if task == "stream" else MBART
    bleu = ["--eval-bleu", "--eval-bleu-args", '{"beam": 2, "max_len_b": 10, "min_len": 6}']
    start = ["--finetune-from-model", str(stock("mbart50")), "--lr", "0.01"]
    options = [*FINETUNED[task], *start, *bleu, "--best-checkpoint-metric", "bleu"]
    options += ["--maximize-best-checkpoint-metric"]
    path = tiny.train(data / "bin", tmp_path, *options, updates=40, model=model)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    logged = state["extra_state"]["val_loss"]
    search = [*FINETUNED[task][:2], *POSITIONS, "--min-len", "6"]
    search += ["--gold-context"] if task == "window" else []
    assert logged == pytest.approx(tiny.valid_bleu(data / "bin", path, *search), abs=0.011)
    assert logged > 1


# ---- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STOCK)
def test_examples_of_window_1_are_those_of_the_stock_task(data, kind):
    task_class, options, model = STOCK[kind]
    stock = task_of(data / "sentences" / "bin", *options, "-s", "src", "-t", "tgt", model=model)
    names = ["--language-tags", kind, "--tag-languages", LANGUAGES]
    ours = task_of(data / "bin", *WINDOW, "--window-size", "1", *names)
    assert ours.src_dict.symbols[:-2] == stock.source_dictionary.symbols
    for task in (stock, ours):
        task.load_dataset("test")
    view, pairs = ours.dataset("test"), stock.dataset("test")
    pairs = getattr(pairs, "datasets", [pairs])[0]
    batch = view.collater([view[i] for i in range(len(view))])
    wanted = pairs.collater([pairs[i] for i in range(len(pairs))])
    for key in ("src_tokens", "src_lengths"):
        assert torch.equal(batch["net_input"][key], wanted["net_input"][key])
    previous, target = wanted["net_input"]["prev_output_tokens"], wanted["target"]
    if kind == "mbart25":  # the tag that the stock task predicts after </s> is always the same
        tag, pad = stock.tgt_dict.index("[tgt]"), stock.tgt_dict.pad()
        target = target.masked_fill(target.eq(tag), pad)[:, :-1]
        previous = previous.masked_fill(previous.eq(stock.tgt_dict.eos()), pad)[:, :-1]
    assert torch.equal(batch["net_input"]["prev_output_tokens"], previous)
    assert torch.equal(batch["target"], target)


def task_of(data, *arguments, model=tiny.MODEL):
    command = [str(data), "--user-dir", tiny.USER_DIR, *model, *tiny.TRAINING, *arguments]
    args = options.parse_args_and_arch(options.get_training_parser(), command)
    return tasks.setup_task(convert_namespace_to_omegaconf(args).task)


def test_resuming_names_nothing_again(data, stock, tmp_path):
    start = [*FINETUNED["window"], "--finetune-from-model", str(stock("mbart25"))]
    start += ["--source-tag", "xx_XX"]
    whole = tiny.train(data / "bin", tmp_path / "a", *start, updates=6, model=MBART)
    tiny.train(data / "bin", tmp_path / "b", *start, updates=3, model=MBART)
    parts = tiny.train(data / "bin", tmp_path / "b", *WINDOW, updates=6, model=MBART)
    tiny.assert_same_weights(whole, parts)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(parts))["task_state"]["language_tags"]
    assert state["kind"] == "mbart25"
    assert (state["source"], state["target"]) == ("xx_XX", "tgt")


def test_a_second_stage_keeps_the_tags(data, finetuned, tmp_path):
    """And names tags of other languages anew, here in the other direction."""
    start = ["--finetune-from-model", str(finetuned("mbart50", "window"))]
    model = own(MEMORY, "mbart50")
    path = tiny.train(data / "bin", tmp_path / "a", *FINETUNED["stream"], *start, model=model)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))["task_state"]["language_tags"]
    assert [state[key] for key in ("kind", "source", "target")] == ["mbart50", "src", "tgt"]
    start += ["-s", "tgt", "-t", "src"]
    path = tiny.train(data / "bin", tmp_path / "b", *FINETUNED["stream"], *start, model=model)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))["task_state"]["language_tags"]
    assert [state[key] for key in ("kind", "source", "target")] == ["mbart50", "tgt", "src"]


def test_new_symbols_begin_as_the_mean_of_the_others(data, stock, tmp_path):
    options = [*FINETUNED["window"], "--finetune-from-model", str(stock("m2m")), "--lr", "1e-9"]
    options += ["--source-tag", "zz", "--add-language-tags"]
    path = tiny.train(data / "bin", tmp_path, *options, updates=1, model=M2M)
    old, new = tiny.weights(stock("m2m")), tiny.weights(path)
    for name, value in old.items():
        torch.testing.assert_close(new[name][: len(value)], value, atol=1e-6, rtol=0, msg=name)
    name = "encoder.embed_tokens.weight"
    assert len(new[name]) == len(old[name]) + 3  # __zz__, <sep>, <bod>
    mean = old[name].mean(dim=0).expand(3, -1)
    torch.testing.assert_close(new[name][-3:], mean, atol=1e-6, rtol=0)
    tiny.generate(data / "bin", path, *SEARCH, *WINDOW)


FULL = [f"--full-{part}-attention" for part in ("encoder", "decoder", "cross")]
OWN = {
    "rfa": ("--arch", "rfa_transformer", "--cross-feature-dim", "8", "--causal-feature-dim", "4"),
    "gated": ("--arch", "rfa_transformer", "--sentence-gate", "decay"),
    "window": ("--arch", "window_attn_transformer", "--attention-window", "4"),
    "lst": ("--arch", "lst_transformer"),
    "separate": ("--arch", "lst_transformer", "--separate-projections"),
    "full": ("--arch", "window_attn_transformer", "--position", "absolute", *FULL),
}
#: those that compute the same for single sentences
SAME = ("lst", "separate", "full")


ALONE = [*SEARCH, *WINDOW, "--window-size", "1", "--override-checkpoint-options"]


@pytest.fixture(scope="module")
def alone(data, stock):
    """Translations of single sentences by the pre-trained model."""
    return tiny.lines_of(tiny.generate(data / "bin", stock("mbart25"), *ALONE))


@pytest.mark.parametrize("arch", long_but_for(["gated"], OWN))
def test_own_architectures_start_from_the_pretrained_model(
    data, stock, tmp_path, arch, alone, caplog
):
    options = [*FINETUNED["window"], "--finetune-from-model", str(stock("mbart25"))]
    options += ["--lr", "1e-9"]
    model = own(OWN[arch], "mbart25")
    with caplog.at_level("INFO"):
        path = tiny.train(data / "bin", tmp_path, *options, updates=1, model=model)
    assert "whose words differ" not in caplog.text
    old, new = tiny.weights(stock("mbart25")), tiny.weights(path)
    relative = {f"{side}.embed_positions.weight" for side in ("encoder", "decoder")}
    assert old.keys() - new.keys() == (relative if arch == "window" else set())
    for name in old.keys() & new.keys():
        value = old[name]
        if arch in ("lst", "separate") and name.endswith("self_attn.out_proj.weight"):
            value = torch.cat([value, value], dim=1) / 2
        torch.testing.assert_close(new[name][: len(value)], value, atol=1e-6, rtol=0, msg=name)
    if new.keys() - old.keys() and arch != "separate":
        assert "are not in the checkpoint and keep their initial values" in caplog.text
    found = tiny.lines_of(tiny.generate(data / "bin", path, *ALONE))
    assert (found == alone) is (arch in SAME)
    tiny.generate(data / "bin", path, *SEARCH, *WINDOW)


def test_more_positions(data, stock, tmp_path):
    longer = ["--max-source-positions", "150", "--max-target-positions", "150"]
    model = [*MBART[: -len(POSITIONS)], *longer]
    options = [*FINETUNED["document"], *longer, "--extend-positions", "repeat", "--lr", "1e-9"]
    options += ["--finetune-from-model", str(stock("mbart25"))]
    path = tiny.train(data / "bin", tmp_path, *options, updates=1, model=model)
    name = "encoder.embed_positions.weight"
    old, new = (tiny.weights(checkpoint)[name] for checkpoint in (stock("mbart25"), path))
    torch.testing.assert_close(new[2:130], old[2:].repeat(2, 1), atol=1e-6, rtol=0)
    tiny.train(data / "bin", tmp_path, *FINETUNED["document"], *longer, updates=2, model=model)
    tiny.generate(data / "bin", path, *SEARCH, *DOCUMENT[:2], *longer)


# ---- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, options, message",
    [
        ("m2m", ["--source-tag", "srx"], "no source language srx; .* as --source-tag src, or add"),
        ("m2m", ["--target-tag", "de"], "has no target language de; give its name"),
        ("mbart25", ["--tag-languages", "src,tgt"], r"3 symbols of .* make \d+ symbols, but check"),
        (
            "mbart25",
            ["--max-source-positions", "65"],
            "has 64 learned source positions, but the model has 65 .*--extend-positions repeat or",
        ),
    ],
)
def test_mistakes_at_the_start(data, stock, tmp_path, kind, options, message):
    start = [*FINETUNED["window"], "--finetune-from-model", str(stock(kind)), *options]
    with pytest.raises(UserError, match=message):
        tiny.train(data / "bin", tmp_path, *start, updates=1, model=STOCK[kind][2])


def test_another_dictionary(binarised, stock, tmp_path):
    start = [*FINETUNED["window"], "--finetune-from-model", str(stock("m2m"))]
    with pytest.raises(UserError, match="binarise the text with the dictionary of the pre-trained"):
        tiny.train(binarised, tmp_path, *start, updates=1, model=M2M)


def test_tags_of_training_are_taken_in_python(finetuned):
    given = {"language_tags": "m2m", "source_tag": "src", "target_tag": "tgt"}
    translator = DocumentTranslator.from_pretrained(str(finetuned("m2m", "window")), **given)
    assert len(translator.translate([TEST[0]], beam=1)[0]) == len(TEST[0])
    with pytest.raises(UserError, match="--target-tag yy_YY contradicts the checkpoint"):
        DocumentTranslator.from_pretrained(str(finetuned("m2m", "window")), target_tag="yy_YY")


def test_mistakes_in_decoding(data, finetuned, window_checkpoint, binarised):
    checkpoint = finetuned("mbart25", "window")

    def refused(message, *options, data=data / "bin", checkpoint=checkpoint):
        with pytest.raises(UserError, match=message):
            tiny.generate(data, checkpoint, *SEARCH, *WINDOW, *options)

    refused("--language-tags m2m contradicts the checkpoint, .* mbart25; leave", *M2M_TAGS)
    refused("--target-tag xx_XX contradicts the checkpoint", "--target-tag", "xx_XX")
    refused("--tag-languages names other languages than those", "--tag-languages", "src,tgt")
    new = ["--add-language-tags", "--override-checkpoint-options", "--target-tag", "zz"]
    refused("a model trained with tags takes no more languages", *new)
    refused("has no target language zz; .* starts from the pre-trained", *new[1:])
    refused("has more tokens than the model's 7 source", "--max-source-positions", "7")
    other = {"data": binarised, "checkpoint": window_checkpoint}
    refused("was trained without language tags; leave --language-tags out", *M2M_TAGS, **other)
    refused("--source-tag needs --language-tags", "--source-tag", "src", **other)
    same = ["--tag-languages", LANGUAGES, "--add-language-tags", "--language-tags", "mbart25"]
    assert tiny.lines_of(tiny.generate(data / "bin", checkpoint, *SEARCH, *WINDOW, *same))
    both = f"{checkpoint}:{finetuned('m2m', 'window')}"
    refused(
        "symbols, but checkpoint|one ensemble must agree in their language tags: one has mb",
        checkpoint=both,
    )


M2M_TAGS = ["--language-tags", "m2m"]


# ---- what checkpoints say ------------------------------------------------------------------------


def cfg(**given):
    names = ("language_tags", "source_tag", "target_tag", "tag_languages")
    values = {**dict.fromkeys(names), "add_language_tags": False, **given}
    values.update(source_lang="de", target_lang="en", override_checkpoint_options=False)
    return SimpleNamespace(**values)


def symbols_of(task, settings, **given):
    file = CheckpointFile("ck", {"task": {**settings, "_name": task}}, {}, {})
    found = language_tags.chosen(cfg(**given), file)
    return found and [found.kind, *found.symbols]


MULTI_TASK = "translation_multi_simple_epoch"
STARTS = {"encoder_langtok": "src", "decoder_langtok": True, "lang_tok_style": "multilingual"}


def test_tags_that_checkpoints_have(tmp_path):
    named = {**STARTS, "langs": ["en", "de"]}
    assert symbols_of("translation", {}) is None
    want = ["mbart25", "[de]", "[en]", "<mask>"]
    assert symbols_of("multilingual_denoising", {"langs": "de,en"}) == want
    assert symbols_of(MULTI_TASK, named) == ["m2m", "__en__", "__de__"]
    want = ["mbart50", "[en]", "[de]", "<mask>"]
    assert symbols_of(MULTI_TASK, {**named, "lang_tok_style": "mbart"}) == want
    want = ["nllb", "__en__", "__de__", "<MINED_DATA>", "<MMT_BT_DATA>", "<SMT_BT_DATA>"]
    assert symbols_of(MULTI_TASK, {**named, "add_data_source_prefix_tags": True}) == want
    pairs = {**STARTS, "lang_pairs": ["fr-de", "de-en"]}
    assert symbols_of(MULTI_TASK, pairs) == ["m2m", "__de__", "__en__", "__fr__"]
    (tmp_path / "langs").write_text("fr\nen\n\nde\n")
    listed = symbols_of(MULTI_TASK, {**STARTS, "lang_dict": str(tmp_path / "langs")})
    assert listed == ["m2m", "__fr__", "__en__", "__de__"]
    given = symbols_of(MULTI_TASK, named, tag_languages="xx,de")
    assert given == ["m2m", "__xx__", "__de__"]
    with pytest.raises(UserError, match=r"--tag-languages has another order than .* \(en,de\)"):
        symbols_of(MULTI_TASK, named, tag_languages="de,en")
    # A pre-trained mBART with the tags of the second version.
    want = ["mbart50", "[de]", "[en]", "<mask>"]
    settings = {"langs": "de,en"}
    assert symbols_of("multilingual_denoising", settings, language_tags="mbart50") == want


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "langs has no languages; give a file with one per line"),
        (b"en\n\xff\n", "langs: line 2 is not UTF-8"),
        (None, "langs cannot be read: No such file"),
        ("folder", "langs cannot be read: Is a directory"),
        (b"\xef\xbb\xbfen\r\nde\r\n", None),
    ],
)
def test_files_of_languages(tmp_path, content, message):
    path = tmp_path / "langs"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    if message is None:
        assert symbols_of(MULTI_TASK, STARTS, tag_languages=str(path))[1:] == ["__en__", "__de__"]
        return
    with pytest.raises(UserError, match=message):
        symbols_of(MULTI_TASK, STARTS, tag_languages=str(path))


def test_other_languages_than_those_of_the_checkpoint_are_named(caplog):
    named = {**STARTS, "langs": ["en", "de"]}
    for more, warnings in (("en,de,xx", 0), ("xx,de", 1)):
        symbols_of(MULTI_TASK, named, tag_languages=more)
        message = "--tag-languages has other languages than the checkpoint names: en,de"
        assert caplog.messages.count(message) == warnings


def test_languages_that_nothing_names():
    with pytest.raises(UserError, match="ck does not name the languages of its tags; give them"):
        symbols_of(MULTI_TASK, {**STARTS, "lang_dict": "elsewhere", "lang_pairs": "de-en"})
    with pytest.raises(UserError, match="does not have the tags of its languages at the begin"):
        symbols_of(MULTI_TASK, {**STARTS, "encoder_langtok": "tgt", "langs": "de,en"})
    with pytest.raises(UserError, match="without --lang-tok-replacing-bos-eos"):
        symbols_of(MULTI_TASK, {**STARTS, "lang_tok_replacing_bos_eos": True, "langs": "de,en"})


@pytest.mark.parametrize("kind", long_but_for(["mbart25"], STOCK))
def test_other_options_of_the_model_are_named(data, stock, tmp_path, kind, caplog):
    start = [*FINETUNED["window"], "--finetune-from-model", str(stock(kind))]
    starts = "training starts from a checkpoint with other options of the model: "
    model = [*STOCK[kind][2], "--encoder-attention-heads", "1"]
    tiny.train(data / "bin", tmp_path / "other", *start, updates=1, model=model)
    named = [text for text in caplog.messages if text.startswith(starts)]
    assert named == [f"{starts}--encoder-attention-heads 1 (before: 2)"]
    caplog.clear()
    tiny.train(data / "bin", tmp_path / "same", *start, updates=1, model=STOCK[kind][2])
    assert not [text for text in caplog.messages if "other options of the model" in text]
