"""Segments cut into sentences and put together again."""

import pytest

from fairseq_docmt.errors import UserError
from fairseq_docmt.translate.sentences import is_without_spaces, parts_of, splitter


@pytest.mark.parametrize(
    "language, sentences",
    [
        ("en", ["Mr. Smith paid $3.50.", '"Why?" he said.', "(No!)", '"Go."', "Ok..."]),
        ("de", ["Das ist z. B. so.", "„Nein!“, sagte er.", "»Ja.«", "3 waren da."]),
        ("zh", ["他来了。", "“真的？”", "对……", "没有句号"]),
        ("ja", ["そうです。", "本当？"]),
        ("JA", ["そうです。", "本当？"]),
        ("xx", ["un et un.", "Deux?"]),
        ("es", ["¿Qué?", "¡No!", "—¿Cómo estás?"]),
        ("ru", ["Привет.", "— Как дела?", "— «Хорошо».", "- Да."]),
        ("de", ["Ja.", "– Nein.", "»So?«", "»Ja.«"]),
        ("fr", ["Il dit : « Oui. »", "Puis il part.", "« Non. »"]),
    ],
)
def test_sentences(language, sentences):
    space = "" if is_without_spaces(language) else " "
    assert splitter(language)(space.join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["«\xa0Bonjour.\xa0»", "«\xa0Salut\xa0!\xa0»"],
        ["Il cria\u202f: «\u202fViens.\u202f»", "Elle partit."],
        ["« Bonjour. »", "« Salut ! »", "Il partit."],
        ["« À la maison. »", "— Pourquoi ?"],
    ],
)
def test_french_direct_speech(sentences):
    assert splitter("fr")(" ".join(sentences)) == sentences


def test_an_unknown_language():
    with pytest.raises(UserError, match="--split-sentences qq: spaCy has no such language"):
        splitter("qq")


@pytest.mark.parametrize(
    "sentence, pieces",
    [
        ("aaa bbb ccc; ddd eee, fff", ["aaa bbb ccc;", "ddd eee, fff"]),
        ("aaa, bbb ccc ddd eee, fff", ["aaa, bbb ccc", "ddd eee, fff"]),
        ("aaa bbb ccc ddd eee", ["aaa bbb", "ccc ddd eee"]),
        ("一二三四五六七八，九十一二三四五", ["一二三四五六七八，", "九十一二三四五"]),
        ("abcdefghijklmnopqrst", ["abcdefghij", "klmnopqrst"]),
        ("short", ["short"]),
    ],
)
def test_a_long_sentence_is_cut_where_it_hurts_least(sentence, pieces):
    parts = parts_of(sentence, lambda text: [text], lambda text: len(text) <= 12)
    assert parts.sentences == pieces
    assert parts.cut == (len(pieces) > 1)


def test_an_empty_segment_has_no_sentences():
    assert parts_of("", splitter("en"), lambda text: True).sentences == []
