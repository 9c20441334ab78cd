"""Options for the form of the text that a model scores, each for its side and its training data."""

import argparse
import json

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.scoring.context import scorer_options
from fairseq_docmt.text_form import TextForm

OWN = [TextForm("moses", "t.en", "c.en"), TextForm("jieba", None, None, "p.zh")]


def forms(*options):
    parser = argparse.ArgumentParser()
    scorer_options.add_model_arguments(parser)
    return scorer_options._given_forms(parser.parse_args([*options]))


@pytest.mark.parametrize(
    "option, attribute",
    [
        ("--source-truecaser", "truecaser"),
        ("--bpe-codes", "bpe_codes"),
        ("--sentencepiece-model", "sentencepiece"),
    ],
)
def test_files_of_each_side(tmp_path, option, attribute):
    path = tmp_path / "file"
    path.touch()
    wanted, none = TextForm()._replace(**{attribute: str(path)}), TextForm()
    of_target = option.replace("source", "target")
    of_target = of_target if of_target != option else option.replace("--", "--target-")
    assert forms(option, str(path)) == [wanted, none]
    assert forms(of_target, str(path)) == [none, wanted]
    with pytest.raises(UserError, match="nowhere not found"):
        forms(of_target, "nowhere")


@pytest.fixture
def data(tmp_path):
    """Folder of binarised data whose text has the form ``OWN``."""
    described = {language: form._asdict() for language, form in zip(("en", "zh"), OWN)}
    (tmp_path / "text_form.json").write_text(json.dumps(described))
    for name in ("t.en", "c.en", "p.zh"):
        (tmp_path / name).write_text(name)
    return str(tmp_path)


def completed(given, data):
    """The forms that the options complete, with paths within the folder."""
    found = scorer_options._completed(given, ("en", "zh"), data)
    return [TextForm(*(x and x.replace(f"{data}/", "") for x in form)) for form in found]


def test_without_options_the_form_is_that_of_the_training_text(data):
    assert completed(forms(), data) == OWN


def test_options_take_subwords_alone_from_the_training_data(data, caplog):
    given = forms("--target-tokenizer", "moses")
    assert completed(given, data) == [
        TextForm(bpe_codes="c.en"),
        TextForm("moses", None, None, "p.zh"),
    ]
    assert "options for tokenizers and truecasing replace all of the training data" in caplog.text


@pytest.mark.parametrize("option", ["--bpe-codes", "--target-sentencepiece-model"])
def test_other_subwords_than_those_of_training_are_refused(data, option):
    with pytest.raises(UserError, match="not the (merges|model) of the training data; leave the"):
        completed(forms(option, f"{data}/t.en"), data)
