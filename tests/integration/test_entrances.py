"""One rule for text at every entrance: what prepare.py refuses is refused wherever text comes in.

Each entrance gets two files with one document of three sentences, the second of which is bad.  What
goes into a model may not have symbols as words; what is only compared may.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import add_noise
import apply_form
import check_documents
import documents
import hold_out
import marked_documents
import named_documents
import numpy as np
import opus_documents
import prepare
import pytest
import sentence_groups
import supporting_words
import tab_separated
import tagged_documents
import tiny
from check_documents import CorpusError
from fairseq.token_generation_constraints import pack_constraints
from fairseq_cli import preprocess

from fairseq_docmt import command_line
from fairseq_docmt.data import DocumentIndex
from fairseq_docmt.data.rows_view import open_drafts
from fairseq_docmt.data.text_checks import Symbols
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.scoring.context.cxmi import read_documents
from fairseq_docmt.scoring.context.reference_scores import ReferenceScorer
from fairseq_docmt.scoring.contrastive.formats import read_set
from fairseq_docmt.scoring.reranking.document_lm import DocumentLanguageModel
from fairseq_docmt.symbols import RESERVED

SOURCE, TARGET = ["w1 w2", "w3 w4", "w5"], ["v1 v2", "v3 v4", "v5"]


class World:
    """Files of a test, and a model to enter.

    Args:
        folder: folder of the test.
        translator: model of windows.
    """

    def __init__(self, folder: Path, translator: DocumentTranslator):
        self.folder, self.translator, self.task = folder, translator, translator.hub.task

    def write(self, source, target) -> None:
        """Write the lines of both sides, where half a character is a byte that is not UTF-8."""
        for side, lines in (("src", source), ("tgt", target)):
            text = "".join(f"{line}\n" for line in lines)
            (self.folder / f"text.{side}").write_bytes(text.encode("utf-8", "surrogateescape"))

    @property
    def files(self):
        return [str(self.folder / f"text.{side}") for side in ("src", "tgt")]

    def lines(self, number=0):
        text = Path(self.files[number]).read_bytes().decode("utf-8", "surrogateescape")
        return text.split("\n")[:-1]

    def binarised(self, impl="mmap"):
        """Binarise with stock fairseq-preprocess as test set; return the folder."""
        made = self.folder / "bin"
        words = [f"--{s}dict={self.task.cfg.data}/dict.{s}.txt" for s in ("src", "tgt")]
        tiny.run_main(
            preprocess.cli_main,
            *["-s", "src", "-t", "tgt", "--destdir", made, "--workers", "1"],
            *["--testpref", self.folder / "text", "--dataset-impl", impl],
            *words,
        )
        return made

    def load(self, folder, split="test", impl=None, **options):
        """Load a split by the task, as training, generation and the analyses do."""
        before, self.task.cfg.dataset_impl = self.task.cfg.dataset_impl, impl
        data, self.task.cfg.data = self.task.cfg.data, str(folder)
        try:
            self.task.load_dataset(split, **options)
        finally:
            self.task.cfg.data, self.task.cfg.dataset_impl = data, before


# ---- text that goes into a model -----------------------------------------------------------------


def binarised(world, impl):
    world.load(world.binarised(impl), impl=impl)


def raw(world):
    folder = world.folder / "bin"
    folder.mkdir()
    for side, path in zip(("src", "tgt"), world.files):
        (folder / f"test.src-tgt.{side}").write_bytes(Path(path).read_bytes())
        words = (Path(world.task.cfg.data) / f"dict.{side}.txt").read_text(encoding="utf-8")
        (folder / f"dict.{side}.txt").write_text(words, encoding="utf-8")
    world.load(folder, impl="raw")


def second_part(world):
    """The text is the second part of a split."""
    folder = world.binarised()
    for path in folder.glob("test.*"):
        path.rename(path.with_name(path.name.replace("test.", "both1.")))
    for path in Path(world.task.cfg.data).glob("test.*"):
        (folder / path.name.replace("test.", "both.")).write_bytes(path.read_bytes())
    world.load(folder, split="both", combine=True)


def drafts(world):
    folder, split = world.binarised(), "test"
    for end in ("bin", "idx"):
        path = folder / f"test.src-tgt.tgt.{end}"
        path.rename(folder / f"test.tgt-None.tgt.{end}")
    symbols = Symbols.of_task(world.task, world.task.tgt_dict)
    sizes = np.full(len(SOURCE), 3)
    corpus = SimpleNamespace(index=DocumentIndex.from_sizes(sizes), src_sizes=sizes)
    open_drafts(str(folder), split, "tgt", corpus, symbols)


def typed(world):
    tokens, lengths = world.task.get_interactive_tokens_and_lengths(world.lines(), str)
    world.task.build_dataset_for_inference(tokens, lengths)


def constraints(world):
    encode = world.task.tgt_dict.encode_line
    typed = [
        [encode(line, add_if_not_exist=False, append_eos=False)] for line in world.lines(1)[:3]
    ]
    tokens, lengths = world.task.get_interactive_tokens_and_lengths(SOURCE, str)
    world.task.build_dataset_for_inference(tokens, lengths, pack_constraints(typed))


def python(world):
    world.translator.translate([world.lines()], beam=1, max_len_b=3)


def cxmi(world):
    read = read_documents(*world.files).whole()
    ReferenceScorer(world.translator.hub).sentence_scores(read)


def contrastive(world):
    source, target = world.lines(), world.lines(1)
    item = {"source": source[:2], "candidates": [[*target[:2]], [target[0], "v1"]], "correct": 0}
    path = world.folder / "items.jsonl"
    path.write_text(json.dumps(item) + "\n", encoding="utf-8")
    ReferenceScorer(world.translator.hub).score(read_set(str(path), None, None, 0))


class _Decoder:
    @staticmethod
    def max_positions():
        return 100


def language_model(world):
    model = DocumentLanguageModel(_Decoder, world.task.tgt_dict)
    model.unknown(world.lines(1))


def _prepare(world):
    for split in ("train", "valid", "test"):
        for side, path in zip(("src", "tgt"), world.files):
            (world.folder / f"{split}.{side}").write_bytes(Path(path).read_bytes())
    prefixes = [a for s in ("train", "valid", "test") for a in (f"--{s}", world.folder / s)]
    prepare.main(
        [
            *["--source-lang", "src", "--target-lang", "tgt", "--workers", "1"],
            *["--source-tokenizer", "none", "--target-tokenizer", "none", "--bpe-operations", "0"],
            *["--destdir", str(world.folder / "out"), *map(str, prefixes)],
        ]
    )


def _apply_form(world):
    form = {"src": {"tokenizer": "none"}}
    (world.folder / "text_form.json").write_text(json.dumps(form))
    options = ["--data", str(world.folder), "--language", "src", "--workers", "1"]
    apply_form.main([world.files[0], str(world.folder / "prepared"), *options])


# ---- text that is only converted or compared -----------------------------------------------------


def reader(world):
    args = documents.reader_parser("A reader.").parse_args(
        ["--out", str(world.folder / "a"), str(world.folder / "b")]
    )
    documents.run_reader(lambda _: [list(documents.paired_lines(*world.files))], args)


def _edit(world, change) -> list:
    """Change the lines of both files; return their paths."""
    sides = [change(world.lines(number)) for number in (0, 1)]
    world.write(*sides)
    return world.files


def tabs(world):
    rows = [f"{source}\t{target}" for source, target in zip(world.lines(), world.lines(1))]
    list(tab_separated.read_documents(_edit(world, lambda _: rows)[0]))


def groups(world):
    paths = _edit(world, lambda lines: [f"{line} _eos {line}" for line in lines])
    list(sentence_groups.read_groups(*paths, " _eos "))


def marks(world):
    list(marked_documents.read_documents(*_edit(world, lambda lines: ["<d>", *lines]), "<d>"))


def docids(world):
    names = world.folder / "docids"
    names.write_text("a\n" * len(world.lines()))
    list(named_documents.documents_of_lines(*world.files, str(names)))


def folders(world):
    paths = []
    for number, side in enumerate(("source", "target")):
        (world.folder / side).mkdir()
        text = "".join(f"{line}\n" for line in world.lines(number))
        (world.folder / side / "a.txt").write_text(text, "utf-8", "surrogateescape")
        paths.append(str(world.folder / side))
    list(named_documents.documents_of_files(*paths))


def tags(world):
    talk = '<doc docid="1">'
    paths = _edit(world, lambda lines: [talk, *lines, "</doc>", talk, *lines, "</doc>"])
    list(tagged_documents.read_documents(*([path] for path in paths)))


def names(world):
    ids = world.folder / "text.ids"
    ids.write_text("en/1.xml.gz\tde/1.xml.gz\n" * len(world.lines()))
    list(opus_documents.read_documents(*world.files, str(ids)))


def held_out(world):
    hold_out.read_corpus(*world.files)


def noise(world):
    words = f"{world.task.cfg.data}/dict.src.txt"
    add_noise.main([world.files[0], "--out", str(world.folder / "noisy"), "--dictionary", words])


def supporting(world):
    sides = [str(world.folder / f"plain.{side}") for side in ("src", "tgt")]
    source = Path(world.files[0])
    source.write_bytes(b"<p>x</p> " + source.read_bytes())  # text without marks is refused
    supporting_words.main(["strip", *world.files, "--out", *sides])


def command(name, *options):
    """Score, convert or choose from the target; ``{src}``, ``{tgt}`` and ``{out}`` are files."""

    def enter(world):
        source, target = world.files
        files = {"src": source, "tgt": target, "out": world.folder / "out"}
        tiny.run_main(command_line.main, name, *(option.format(**files) for option in options))

    return enter


WORDS = sorted(RESERVED)
#: what is wrong -> second line of the source and of the target, and what the message says
BAD = {
    **{word: (f"w3 {word} w4", f"v3 {word} v4", word) for word in WORDS},
    "blank in one": ("w3", "", "blank|only one|empty|no words|without"),
    "not UTF-8": ("w3 \udcff", "v3 \udcff", "UTF-8"),
    "unequal": (
        "w3\nw3",
        "v3",
        "lines|ends after|counterpart|segments|has 4|before",
    ),
}
ALL = [*BAD]
#: stock fairseq-preprocess reads <sep> and <bod> as unknown words, and refuses what is not UTF-8
BINARISED = ["</s>", "<pad>", "<s>", "blank in one", "unequal"]
#: entrance -> kinds of bad text that are possible there
INTO_MODELS = {
    "mmap": (lambda world: binarised(world, "mmap"), BINARISED),
    "lazy": (lambda world: binarised(world, "lazy"), BINARISED),
    "cached": (lambda world: binarised(world, "cached"), BINARISED),
    "raw": (raw, ALL),
    "second part": (second_part, BINARISED),
    "drafts": (drafts, BINARISED[:3]),
    "typed": (typed, [*WORDS, "not UTF-8"]),
    "constraints": (constraints, [*WORDS, "blank in one"]),
    "Python": (python, [*WORDS, "not UTF-8"]),
    "cxmi": (cxmi, ALL),
    "contrastive": (contrastive, [*WORDS, "not UTF-8", "blank in one"]),
    "language model": (language_model, ["<s>", "</s>", "<pad>", "not UTF-8"]),
    "prepare.py": (_prepare, ALL),
    "apply_form.py": (_apply_form, [*WORDS, "not UTF-8"]),
}
TEXT = ["not UTF-8", "unequal"]
REFERENCE, OUT = ("--reference", "{src}"), ("--out", "{out}")
CANDIDATES = ("--source", "{src}", "a={tgt}", "b={tgt}")
ONLY_READ = {
    "readers": (reader, ["not UTF-8", "unequal"]),
    "tab_separated.py": (tabs, ["not UTF-8"]),
    "sentence_groups.py": (groups, ["not UTF-8", "unequal"]),
    "marked_documents.py": (marks, ["not UTF-8", "unequal"]),
    "named_documents.py --docids": (docids, ["not UTF-8", "unequal"]),
    "named_documents.py": (folders, ["not UTF-8", "unequal"]),
    "tagged_documents.py": (tags, ["not UTF-8", "unequal"]),
    "opus_documents.py": (names, ["not UTF-8", "unequal"]),
    "hold_out.py": (held_out, ["not UTF-8", "blank in one", "unequal"]),
    "add_noise.py": (noise, ["not UTF-8"]),
    "supporting_words.py": (supporting, ["not UTF-8", "unequal"]),
    "metrics": (command("metrics", "--metrics", "s-bleu", *REFERENCE, "s={tgt}"), TEXT),
    "report": (command("report", "--metrics", "s-bleu", *REFERENCE, *OUT, "s={tgt}"), TEXT),
    "convert": (command("convert", *REFERENCE, *OUT, "{tgt}"), TEXT),
    "mbr": (command("mbr", *OUT, *CANDIDATES), TEXT),
    "rerank": (command("rerank", "--score", "length", *OUT, *CANDIDATES), TEXT),
}
ENTRANCES = {**INTO_MODELS, **ONLY_READ}


@pytest.fixture(scope="module")
def translator(window_checkpoint):
    return DocumentTranslator.from_pretrained(str(window_checkpoint))


@pytest.fixture
def world(tmp_path, translator):
    world = World(tmp_path, translator)
    world.translator.hub.task._decoding_input.lines_read = 0
    return world


def said(enter, world):
    """What the user reads."""
    try:
        enter(world)
    except (UserError, CorpusError) as error:
        return str(error)
    except SystemExit as stop:
        return str(stop.code or "")
    return ""


@pytest.mark.parametrize(
    "entrance, kind", [(name, kind) for name, (_, kinds) in ENTRANCES.items() for kind in kinds]
)
def test_bad_text_is_refused(world, entrance, kind):
    source, target, wanted = BAD[kind]
    world.write([SOURCE[0], source, SOURCE[2]], [TARGET[0], target, TARGET[2]])
    found = said(ENTRANCES[entrance][0], world)
    assert any(part in found for part in wanted.split("|")), found
    if kind in WORDS:
        assert "reserved for a symbol of the model" in found
        assert any(place in found for place in ("line 2", "sentence 2", "the sentence '")), found


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_other_words_are_read(world, entrance):
    """``<unk>`` is an unknown word, as are words that only contain a symbol."""
    words = "<unk> <seps> <sep>| w</s>"
    world.write(
        [SOURCE[0], f"w3 {words} w4", SOURCE[2]],
        [TARGET[0], f"v3 {words} v4", TARGET[2]],
    )
    assert said(ENTRANCES[entrance][0], world) == ""


@pytest.mark.parametrize("entrance", ONLY_READ)
@pytest.mark.parametrize("word", WORDS)
def test_text_that_no_model_reads_may_have_any_word(world, entrance, word):
    world.write([SOURCE[0], f"w3 {word}", SOURCE[2]], [TARGET[0], f"v3 {word}", TARGET[2]])
    assert said(ENTRANCES[entrance][0], world) == ""


def test_a_check_of_documents_warns_of_symbols(world, capsys, monkeypatch):
    world.write([SOURCE[0], "w3 </s>", SOURCE[2]], TARGET)
    monkeypatch.setattr("sys.argv", ["check_documents.py", *world.files])
    check_documents.main()
    assert capsys.readouterr().err == (
        f"warning: {world.files[0]}: line 2 has the word </s>, which is reserved for a symbol of "
        "the model; write it differently, unless a tokenizer or BPE cuts it\n"
    )
