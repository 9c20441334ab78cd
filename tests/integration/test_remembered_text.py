"""What a checkpoint knows of its text: tokenizer, truecasing and BPE of raw text, languages.

Covers text_form.py, data/tokenizers.py, tasks/_training_text.py.
"""

import json
import shutil
from unittest import mock

import line_functions
import prepare
import pytest
import tiny
import torch
from sacremoses import MosesTruecaser

from fairseq_docmt import command_line
from fairseq_docmt.data.tokenizers import JiebaTokenizer, JiebaTokenizerConfig, TruecasingTokenizer
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.tasks._training_text import TextOptions, refuse_other_text
from fairseq_docmt.text_form import TextForm, read_text_forms

WINDOW = ["--task", "sliding_window_translation"]
RAW = {
    "de": "Das Haus, das gehört ihm.\nIst's groß?\n\nEs ist groß. Das Haus ist's!\n",
    "en": "The house, it's his.\nIs it big?\n\nIt's big. The house isn't!\n",
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Folder of data made by prepare.py, with one dictionary, truecased and with BPE."""
    folder = tmp_path_factory.mktemp("prepared")
    for split in ("train", "valid", "test"):
        for language, text in RAW.items():
            (folder / f"{split}.{language}").write_text((text + "\n") * 6, encoding="utf-8")
    options = ["--source-lang", "de", "--target-lang", "en", "--destdir", str(folder / "out")]
    options += ["--train", str(folder / "train"), "--valid", str(folder / "valid"), "--truecase"]
    options += ["--test", str(folder / "test"), "--bpe-operations", "15", "--joined-dictionary"]
    with mock.patch.object(prepare, "_run", tiny.binarise_here):
        prepare.main(options)
    return folder / "out"


@pytest.fixture(scope="module")
def checkpoint(prepared):
    options = [*WINDOW, "--window-size", "3", "--share-all-embeddings"]
    return tiny.train(prepared / "bin", prepared / "ck", *options, updates=20)


def as_prepared(prepared, language, sentence):
    """The steps of prepare.py."""
    cut = line_functions.tokenizer("moses", language)
    case = line_functions.truecaser(str(prepared / f"truecase.{language}"))
    return line_functions.subword_segmenter(str(prepared / "codes"))(case(cut(sentence)))


def test_only_what_differs_is_named():
    trained = {"languages": ("de", "en"), "dictionaries": (1, 2)}
    trained["forms"] = [{"tokenizer": "moses", "codes": 5}, {"tokenizer": "moses"}]
    given = {**trained, "forms": [{"tokenizer": "moses", "codes": 6}, {"tokenizer": "moses"}]}
    refuse_other_text(trained, trained)
    with pytest.raises(UserError, match=r"\(codes of de differ\)"):
        refuse_other_text(trained, given)


def test_raw_text_gets_the_form_of_training(prepared):
    for language, form in read_text_forms(str(prepared / "bin")).items():
        encode = form.encoder(language)
        raw = (prepared / f"text/raw/test.{language}").read_text(encoding="utf-8").splitlines()
        kept = (prepared / f"text/subwords/test.{language}").read_text(encoding="utf-8")
        assert [encode(line) if line else "" for line in raw] == kept.splitlines()
        back = [form.detokenize(language)(form.join()(line)) for line in kept.splitlines()]
        if language == "en":  # Moses does not join "'s" in German
            assert back == raw


def test_truecasing_keeps_known_words(tmp_path):
    """As in truecase.perl of Moses: "Sie" is more frequent, but "sie" is a word as well."""
    path = str(tmp_path / "truecase.de")
    lines = ["x Sie kennen Sie ,", "y sie kennt das Haus", "z das ist Sie"]
    MosesTruecaser().train([line.split() for line in lines], save_to=path)
    given = "Das ist sie . Sie Kennt das haus ? SIE nicht , Niemand"
    wanted = "das ist sie . Sie kennt das Haus ? Sie nicht , Niemand"
    assert line_functions.truecaser(path)(given) == wanted
    assert TextForm(truecaser=path).encoder("de")(given) == wanted


def test_chinese_words_are_joined():
    joined = TextForm("jieba").detokenize("zh")("你好 ， big world ！ 3 个")
    assert joined == "你好，big world！3个"


def test_python_takes_and_returns_raw_text(prepared, checkpoint):
    documents = [["Das Haus, das gehört ihm.", "Ist's groß?"], ["Es ist groß."]]
    options = {"beam": 2, "max_len_b": 9}
    found = DocumentTranslator.from_pretrained(str(checkpoint)).translate(documents, **options)
    plain = DocumentTranslator.from_pretrained(str(checkpoint), tokenizer=None, bpe=None)
    tokens = [[as_prepared(prepared, "de", line) for line in document] for document in documents]
    form = TextForm("moses", str(prepared / "truecase.en"), "codes")
    assert found == [
        [form.detokenize("en")(form.join()(line)) for line in document]
        for document in plain.translate(tokens, **options)
    ]
    lines = sum(found, [])
    assert not any("@@" in line for line in lines)
    assert any(line[0].isalpha() for line in lines)
    assert all(line == line[0].upper() + line[1:] for line in lines)


FORM = "the text of the checkpoint is {}; give {}, or, without --tokenizer and --bpe, lines in "
FORM += "this form (data_prep/apply_form.py makes them)"
LANGUAGES = ["--source-lang", "de", "--target-lang", "en"]
TOKENIZER, BPE = ["--tokenizer", "moses"], ["--bpe", "subword_nmt"]
LACKING = {
    "nothing": (
        [],
        "tokenized with moses, truecased, split into subwords",
        "--tokenizer moses and --bpe subword_nmt",
    ),
    "no BPE": (TOKENIZER, "split into subwords", "--bpe subword_nmt"),
    "no tokenizer": (BPE, "tokenized with moses, truecased", "--tokenizer moses"),
}


@pytest.mark.parametrize("name", LACKING)
def test_typed_text_in_another_form_than_that_of_training(prepared, checkpoint, caplog, name):
    """fairseq-interactive says what it does not do with the lines."""
    options, *lacking = LACKING[name]
    codes = ["--bpe-codes", str(prepared / "codes")] if "--bpe" in options else []
    arguments = [*WINDOW, *LANGUAGES, *options, *codes, "--buffer-size", "1"]
    tiny.interactive(prepared / "bin", checkpoint, ["Das Haus", "Das"], *arguments)
    assert [text for text in caplog.messages if "the text of the" in text] == [
        FORM.format(*lacking)
    ]


def test_typed_text_is_truecased(prepared, checkpoint, caplog, tmp_path):
    """By --tokenizer, though fairseq has no truecaser, if the data folder has its model."""
    codes = ["--bpe-codes", str(prepared / "codes")]
    options = [*WINDOW, *LANGUAGES, *TOKENIZER, *BPE, *codes]
    raw = (prepared / "text/raw/test.de").read_text(encoding="utf-8").splitlines()
    typed = tiny.interactive(prepared / "bin", checkpoint, raw, *options, "--buffer-size", "99")
    with mock.patch.object(TextForm, "truecase", side_effect=AssertionError("no text to encode")):
        plain = tiny.generate(prepared / "bin", checkpoint, *options)
    cut = (prepared / "text/subwords/test.de").read_text(encoding="utf-8").splitlines()
    assert [*tiny.lines_of(typed, "S").values()] == cut
    for kind in "HD":
        found, wanted = tiny.lines_of(typed, kind), tiny.lines_of(plain, kind)
        assert {number: text for number, text in found.items() if text} == wanted
    assert not [text for text in caplog.messages if "without --tokenizer" in text]
    for name in ("dict.de.txt", "dict.en.txt"):
        (tmp_path / name).write_text((prepared / "bin" / name).read_text())
    tiny.interactive(tmp_path, checkpoint, ["Das Haus"], *options)
    assert FORM.format("truecased", "the data folder of training") in caplog.messages


def test_a_truecasing_tokenizer_detokenizes():
    tokenizer = TruecasingTokenizer(JiebaTokenizer(JiebaTokenizerConfig()), str.lower)
    assert tokenizer.encode("WMT会议") == "wmt 会议"
    assert tokenizer.decode("Is it ?") == "Is it?"


def test_truecased_text_without_a_tokenizer(caplog):
    """``--tokenizer space`` leaves the truecasing."""
    form = {"tokenizer": "none", "truecaser": "checksum", "bpe_codes": None}
    options = TextOptions({"forms": [form, form]}, typed=True)
    options.report_missing("space", None)
    assert not caplog.messages
    options.report_missing(None, None)
    assert caplog.messages == [FORM.format("truecased", "--tokenizer space")]


def test_prepared_text_is_told_by_options_and_lines(caplog):
    form = {"tokenizer": "moses", "truecaser": None, "bpe_codes": "checksum"}
    options = TextOptions({"forms": [form, form]}, typed=True)
    options.report_missing(None, None, ["das Ha@@ us ist &apos; s"])
    options.report_missing("moses", "subword_nmt", ["Das Haus"])
    options.report_missing("jieba", "subword_nmt", ["R&amp;D"])  # may be meant
    assert not caplog.messages
    options.report_missing("moses", None, ["das Ha@@ us"])
    assert caplog.messages == [FORM.format("split into subwords", "--bpe subword_nmt")]
    caplog.clear()
    options.report_missing("moses", "subword_nmt", ["das Ha@@ us ist &apos; s"])
    (said,) = caplog.messages
    assert said.startswith("the input has Ha@@, as if --bpe had been applied")


REPEATED = {
    "tokenized": ("ist &apos;s groß ?", "&apos;", "--tokenizer"),
    "subwords": ("das Ha@@ us", "Ha@@", "--bpe"),
}


@pytest.mark.parametrize("name", REPEATED)
def test_typed_text_that_is_prepared_already(prepared, checkpoint, caplog, name):
    """Moses writes ``&amp;apos;`` for ``&apos;``."""
    line, sign, option = REPEATED[name]
    codes = ["--bpe-codes", str(prepared / "codes")]
    options = [*WINDOW, *LANGUAGES, *TOKENIZER, *BPE, *codes, "--buffer-size", "1"]
    tiny.interactive(prepared / "bin", checkpoint, [line, line], *options)
    said = [text for text in caplog.messages if "applied to it before" in text]
    assert len(said) == 1
    assert said[0].startswith(f"the input has {sign}, as if {option} had been applied to it before")
    caplog.clear()
    tiny.interactive(prepared / "bin", checkpoint, ["Das Haus", "Das"], *options)
    assert not [text for text in caplog.messages if "before" in text]


def test_typed_text_with_subwords_has_the_form_of_training(prepared, checkpoint, caplog):
    languages = ["--source-lang", "de", "--target-lang", "en"]
    line = as_prepared(prepared, "de", "Das Haus, das gehört ihm.")
    assert "@@ " in line
    tiny.interactive(prepared / "bin", checkpoint, [line], *WINDOW, *languages)
    assert not [text for text in caplog.messages if "in this form" in text]


def test_plain_text_needs_no_options(binarised, window_checkpoint, caplog):
    tiny.interactive(binarised, window_checkpoint, ["w1"], *WINDOW)
    assert not [text for text in caplog.messages if "in this form" in text]


def test_python_without_the_form_of_the_data(prepared, checkpoint, tmp_path, caplog):
    """The dictionaries alone are not enough for raw text."""
    for name in ("dict.de.txt", "dict.en.txt"):
        (tmp_path / name).write_text((prepared / "bin" / name).read_text())
    (tmp_path / "train.de-en.de.idx").touch()  # names the languages
    fixes = "--tokenizer moses and the data folder of training and --bpe subword_nmt"
    wanted = FORM.format(LACKING["nothing"][1], fixes)
    for options, warned in (({}, 1), ({"tokenizer": None}, 0)):
        caplog.clear()
        DocumentTranslator.from_pretrained(str(checkpoint), data=str(tmp_path), **options)
        assert caplog.messages.count(wanted) == warned
    caplog.clear()
    DocumentTranslator.from_pretrained(str(checkpoint))
    assert wanted not in caplog.messages


def test_cxmi_takes_raw_text(prepared, checkpoint):
    kinds = {"raw": [], "subwords": ["--as-prepared"]}
    kinds["truecased"] = ["--bpe-codes", prepared / "codes"]
    found = []
    for kind, options in kinds.items():
        text = prepared / "text" / kind
        arguments = ["cxmi", "--path", checkpoint, "--cpu", "--format", "json", *options]
        arguments += ["--source", text / "test.de", "--reference", text / "test.en"]
        found.append(json.loads(tiny.run_main(command_line.main, *arguments)))
    assert found[0]["sentences"] == found[1]["sentences"] == found[2]["sentences"]
    assert any("@@" in word for word in found[0]["sentences"][0]["words"])


def task_state(checkpoint):
    return torch.load(checkpoint, weights_only=True)["task_state"]


def test_training_goes_on_with_the_options_of_the_checkpoint(binarised, tmp_path):
    tiny.train(binarised, tmp_path, *WINDOW, "--window-size", "2", "--loss-on", "last", updates=1)
    path = tiny.train(binarised, tmp_path, *WINDOW, updates=2)
    options = task_state(path)["document_options"]
    assert (options["window_size"], options["loss_on"]) == (2, "last")
    other = [*WINDOW, "--window-size", "3", "--override-checkpoint-options"]
    options = task_state(tiny.train(binarised, tmp_path, *other, updates=3))["document_options"]
    assert (options["window_size"], options["loss_on"]) == (3, "last")


def test_an_exported_model_keeps_its_text_form(prepared, checkpoint, tmp_path):
    pytest.importorskip("ctranslate2", reason="export needs ctranslate2")
    export = ["export-ctranslate2", "--model", checkpoint, "--out", str(tmp_path / "out")]
    tiny.run_main(command_line.main, *export)
    (tmp_path / "in").write_text("Das Haus ist groß.\n", encoding="utf-8")
    translate = ["translate", "--model", str(tmp_path / "out"), str(tmp_path / "in")]
    assert tiny.run_main(command_line.main, *translate).strip()
    description = (tmp_path / "out" / "document_model.json").read_text()
    assert "model.bin" not in description  # it can be large
    for name in ("codes", "truecase.de", "text_form.json", "config.json"):
        path = tmp_path / "out" / name
        text = path.read_text()
        path.write_text(text + "\n")
        with pytest.raises(UserError, match=f"{name} is not as it was exported; export the model"):
            tiny.run_main(command_line.main, *translate)
        path.write_text(text)
    (tmp_path / "out" / "codes").unlink()
    with pytest.raises(UserError, match="codes not found"):
        tiny.run_main(command_line.main, *translate)


def test_finetuning_in_the_other_direction_is_said(prepared, checkpoint, tmp_path, caplog):
    start = [*WINDOW, "--share-all-embeddings", "--finetune-from-model", checkpoint]
    for source, target in ("de", "en"), ("en", "de"):
        languages = ["--source-lang", source, "--target-lang", target]
        languages += ["--override-checkpoint-options"]  # the two texts were truecased
        tiny.train(prepared / "bin", tmp_path / source, *start, *languages, updates=1)
        said = "was trained to translate de to en, not en to de" in caplog.text
        assert said == (source == "en")


def test_the_other_direction_is_refused_with_one_dictionary(prepared, checkpoint):
    """Nothing else would tell."""
    swapped = ["--source-lang", "en", "--target-lang", "de"]
    message = "the checkpoint translates de to en, not en to de; give data in its languages"
    with pytest.raises(UserError, match=message):
        tiny.generate(prepared / "bin", checkpoint, *WINDOW, *swapped)
    tiny.generate(prepared / "bin", checkpoint, *WINDOW, *swapped, "--override-checkpoint-options")


def test_output_is_detokenized_by_either_side(prepared, checkpoint):
    """fairseq-generate uses the tokenizer for its output alone."""
    text = ["--tokenizer", "moses", "-s", "de", "-t", "en", "--bpe", "subword_nmt"]
    codes = ["--bpe-codes", str(prepared / "codes")]
    output = tiny.generate(prepared / "bin", checkpoint, *WINDOW, *text, *codes)
    assert "@@" not in "".join(tiny.lines_of(output, "D").values())


@pytest.mark.parametrize("swapped", [False, True])
def test_other_words_than_those_of_a_stock_training(binarised, tmp_path, caplog, swapped):
    """A checkpoint of fairseq's task knows its data folder, whose dictionaries may be there."""
    stock = tiny.train(binarised, tmp_path / "stock", "--task", "translation", updates=1)
    data = shutil.copytree(binarised, tmp_path / "data")
    path = data / "dict.src.txt"
    words = path.read_text(encoding="utf-8").splitlines()
    words[:2] = words[:2][::-1] if swapped else words[:2]
    path.write_text("\n".join(words) + "\n", encoding="utf-8")
    window = [*WINDOW, "--window-size", "1"]
    start = ["--finetune-from-model", str(stock)]
    for use in (
        lambda: tiny.generate(data, stock, *window),
        lambda: tiny.train(data, tmp_path / "more", *window, *start, updates=1),
    ):
        caplog.clear()
        use()
        assert ("words differ from the source dictionary in" in caplog.text) == swapped
        assert "target dictionary" not in caplog.text
