"""What a language or the lines of a text say of its scores: tokenizer and shifted lines."""

import json

import pytest

from fairseq_docmt.document_index import DocumentIndex
from fairseq_docmt.scoring.texts import checks

WORDS = "one two three four five six seven eight nine ten eleven twelve".split()
REFERENCE = [f"the {word} is {word[::-1]} here" for word in WORDS]
CHINESE = ["他昨天来了，我没有看见他。", "这本书很好看，我们都很喜欢。"]


@pytest.fixture
def shown(scoring, tmp_path):
    def run(reference, system, *options, ending="txt", text="".join):
        for name, lines in (("reference", reference), ("system", system)):
            (tmp_path / f"{name}.{ending}").write_text("".join(f"{line}\n" for line in lines))
        files = [str(tmp_path / f"{name}.{ending}") for name in ("reference", "system")]
        printed = scoring(
            *["metrics", "--metrics", "s-bleu", "--format", "json", "--reference", files[0]],
            *[*options, f"x={files[1]}"],
        )
        return json.loads(printed)

    return run


def signature(shown: dict) -> str:
    return shown["metrics"][0]["signature"]


def test_the_ending_of_a_file_chooses_the_tokenizer(shown):
    found = shown(CHINESE, CHINESE, ending="zh")
    assert "tok:zh" in signature(found)
    assert found["notes"] == ["BLEU: tokenizer zh, for zh; --tokenize chooses another"]


@pytest.mark.parametrize(
    "language, tokenizer",
    [("zh_CN", "zh"), ("zho", "zh"), ("cmn", "zh"), ("th", "char"), ("de", "13a"), ("ja", None)],
)
def test_the_language_chooses_the_tokenizer(shown, language, tokenizer):
    found = signature(shown(CHINESE, CHINESE, "--target-lang", language))
    assert any(f"tok:{name}|" in found for name in [tokenizer or "char", tokenizer or "ja-mecab"])


@pytest.mark.parametrize("option", ["--target-lang", "--align"])
def test_what_is_no_code_of_a_language(shown, capsys, option):
    """The language decides how BLEU and the alignment split text into words."""
    with pytest.raises(SystemExit):
        shown(CHINESE, CHINESE, option, "chinese")
    message = f"{option}: 'chinese' is no code of a language, such as de or zh-TW"
    assert message in capsys.readouterr().err
    assert "written without spaces" in shown(CHINESE, CHINESE, "--target-lang", "xx")["notes"][0]


def test_the_language_of_the_alignment_is_that_of_the_text(shown):
    assert "tok:zh" in signature(shown(CHINESE, CHINESE, "--align", "zh-TW"))
    both = ["--align", "zh", "--target-lang", "th"]
    assert "tok:char" in signature(shown(CHINESE, CHINESE, *both))


def test_a_tokenizer_that_is_given_stays(shown):
    found = shown(CHINESE, CHINESE, "--tokenize", "char", ending="zh")
    assert "tok:char" in signature(found) and found["notes"] == []


def test_text_without_spaces_gets_a_note(shown):
    found = shown(CHINESE, CHINESE)
    assert "tok:13a" in signature(found)
    assert found["notes"] == [
        "BLEU: the text is written without spaces, and tokenizer 13a takes a sentence for few "
        "words; give another by --tokenize, such as zh or char"
    ]
    assert shown(REFERENCE, REFERENCE)["notes"] == []


def test_metrics_of_words_get_a_note_too(shown):
    notes = shown(CHINESE, CHINESE, "--metrics", "chrf,ter,chrf++", ending="zh")["notes"]
    assert notes == [
        "chrF2++, TER: the text is written without spaces, so a sentence counts as few words; chrf "
        "does not depend on words"
    ]
    for metrics, text in (("chrf", CHINESE), ("ter,chrf++", REFERENCE)):
        assert shown(text, text, "--metrics", metrics)["notes"] == []


@pytest.mark.parametrize("ending, tokenizer", [("zh", "zh"), ("txt", "13a")])
def test_bleu_by_place_has_the_same_tokenizer(shown, ending, tokenizer):
    options = ["--metrics", "chrf", "--by-position", "1"]
    for case, given in (("", []), ("case:lc|", ["--lowercase"])):
        notes = shown(CHINESE, CHINESE, *options, *given, ending=ending)["notes"]
        assert notes[0] == f"BLEU by place in the document: {case}tok:{tokenizer}"
        assert notes[1].startswith("BLEU: ") and tokenizer in notes[1]


@pytest.mark.parametrize("ending, tokenizer", [("zh", "zh"), ("txt", "13a")])
def test_reranking_has_the_same_tokenizer(scoring, tmp_path, ending, tokenizer):
    """The first candidate shares no word of 13a with the others, but most words of zh."""
    texts = {
        "a": ["他昨天来了，没有人看见他。"],
        "b": ["他昨天来了，我没有看见他了。"],
        "c": ["他昨天来了，我没有看见她。"],
        "source": ["x"],
    }
    for name, lines in texts.items():
        (tmp_path / f"{name}.{ending}").write_text("".join(f"{line}\n" for line in lines))
    files = {name: str(tmp_path / f"{name}.{ending}") for name in texts}
    common = ["--source", files["source"], "--out", str(tmp_path / "out")]
    common += [f"{name}={files[name]}" for name in "abc"]
    printed = scoring("mbr", "--metric", "bleu", *common)
    assert f"tokenizer {tokenizer}" in printed
    scored = scoring("mbr", "--metric", "bleu", "--tokenize", tokenizer, *common)
    assert printed.splitlines()[-1] == scored.splitlines()[-1]
    (tmp_path / "length").write_text("1\n2\n3\n")
    found = scoring(
        *["rerank", "--reference", files["c"], "--score", f"{tmp_path / 'length'}:1,-1", *common]
    )
    assert f"tok:{tokenizer}|" in found and f"tokenizer {tokenizer}" in found


@pytest.mark.parametrize("tag, language", [("ref", "zh"), ("hyp", "zh")])
def test_xml_says_its_language(scoring, tmp_path, tag, language):
    segs = "".join(f'<seg id="{i}">{text}</seg>' for i, text in enumerate(CHINESE))
    attribute = {tag: f' lang="{language}"'}
    (tmp_path / "x.xml").write_text(
        f'<dataset><doc id="a"><ref translator="A"{attribute.get("ref", "")}>{segs}</ref>'
        f'<hyp system="x"{attribute.get("hyp", "")}>{segs}</hyp></doc></dataset>'
    )
    path = str(tmp_path / "x.xml")
    assert "tok:zh" in scoring("metrics", "--metrics", "s-bleu", "--reference", path, f"x={path}")


def test_shifted_lines_are_named(shown):
    """A merged line and a split one leave the number of lines as it was."""
    merged = [*REFERENCE[:2], " ".join(REFERENCE[2:4]), *REFERENCE[4:8]]
    split = [*merged, "the nine is", "enin here", *REFERENCE[9:]]
    assert len(split) == len(REFERENCE)
    place = "x: segments from 1, {} on seem to be shifted by one line against the reference"
    for reference, system, first in ((REFERENCE, split, 4), (split, REFERENCE, 4)):
        (note,) = shown(reference, system)["notes"]
        assert note.startswith(place.format(first))


@pytest.mark.parametrize("step, first, end", [(1, 0, 2), (-1, 4, 6)])
def test_lines_are_not_compared_with_those_of_other_documents(step, first, end):
    """Three lines in a row fit their neighbours, but one of these is in another document."""
    reference = [f"word{n} line{n} text{n}" for n in range(9)]
    system = ["x", "y", "z"] * 3
    for line in range(first, end + 1):
        system[line] = reference[line + step]
    places = lambda cut: checks.shift_note("s", system, reference, cut, str)  # noqa: E731
    assert "segments from" in places(DocumentIndex.from_sizes([2] * 9))
    border = first if step < 0 else end + 1
    cut = DocumentIndex.from_sizes([2] * border + [1] + [2] * (9 - border))
    assert cut.num_documents == 2 and places(cut) is None


def test_lines_that_resemble_their_neighbours_are_not_shifted(shown):
    assert shown(REFERENCE, REFERENCE)["notes"] == []
    assert shown(["yes"] * 9, ["yes"] * 9)["notes"] == []
    assert shown(["yes", "no"] * 5, ["no", "maybe"] * 5)["notes"] == []
