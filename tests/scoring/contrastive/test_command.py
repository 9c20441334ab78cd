"""The contrastive command: scores equal forced decoding of each candidate in any batch.

Covers scoring/contrastive/items.py, scoring/context/reference_scores.py.
"""

import io
import json
from pathlib import Path

import pytest
import tiny
import torch
from fairseq import checkpoint_utils
from fairseq.data.data_utils import collate_tokens
from line_functions import tokenizer, truecaser
from long_tests import long_but_for

import fairseq_docmt
from fairseq_docmt import command_line
from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.scoring.context.reference_scores import ReferenceScorer
from fairseq_docmt.scoring.contrastive.items import Item, checked_item
from fairseq_docmt.text_form import TextForm

WORDS = 12


def items():
    """Four documents of 1 to 4 sentences with two to four candidates, one of them a copy."""
    made = []
    for number, document in enumerate(tiny.documents((4, 1, 3, 2), seed=5)):
        # Up to 20 tokens, the limit of the systems for whole documents.
        document = [" ".join(sentence.split()[:3]) for sentence in document]
        right = [sentence.replace("w", "v") for sentence in document]
        wrong = [right[:-1] + [" ".join(f"v{(number + 5 * n) % WORDS}" for n in range(1, 4))]]
        wrong += [right[:-1] + [right[-1] + " v1"], right] if number == 2 else []
        candidates = [right, *wrong]
        candidates.insert(number % 2, candidates.pop(0))
        labels = {"phenomenon": f"of {number % 2}", "distance": number}
        one = {"source": document, "candidates": candidates, "correct": number % 2}
        made.append({**one, "labels": labels})
    return made


@pytest.fixture
def test_set(tmp_path):
    """A file of those items."""
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items()))
    return path


def run(*arguments) -> str:
    return tiny.run_main(command_line.main, "contrastive", *arguments)


def scores_of(*arguments, folder: Path) -> list:
    out = folder / "items.jsonl"
    run(*arguments, "--cpu", "--items", out)
    return [json.loads(line)["scores"] for line in out.read_text().splitlines()]


# ---- the model forced by hand ------------------------------------------------------------------


class Forced:
    """A checkpoint that reads one document at a time, put together here.

    It reads the last ``window`` sentences in one sequence, or sentence by sentence as a stream, or
    all as rows that know each other.
    """

    def __init__(self, checkpoint, window: int = 99, stream: bool = False, rows: bool = False):
        self.rows = rows
        models, _, self.task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
        self.model, self.window, self.stream = models[0].eval(), window, stream

    @torch.no_grad()
    def log_probabilities(self, source, target) -> list:
        """(tokens, words) of each sentence that the model reads, its end symbol included."""
        src, tgt = self.task.source_dictionary, self.task.target_dictionary
        pairs = list(zip(source, target))[-self.window :]
        if self.rows:
            return self.read_rows([s.split() for s in source], [t.split() for t in target])
        if self.stream:
            found, doc_state = [], None
            for number, (s, t) in enumerate(pairs):
                scores, doc_state = self.read(
                    [src.index(w) for w in s.split()], t, number == 0, doc_state
                )
                found.append(scores)
            return found
        mark = self.task.options["mark_document_start"] and len(pairs) == len(source)
        inside, front = " <sep> ".join, "<bod> " if mark else ""
        joined = (front + inside(s for s, _ in pairs)).split()
        scores, _ = self.read([src.index(w) for w in joined], front + inside(t for _, t in pairs))
        scores = scores[int(mark) :]
        ends = [0, *torch.tensor([len(t.split()) + 1 for _, t in pairs]).cumsum(0).tolist()]
        assert tgt.index("<sep>") != tgt.unk()
        return [scores[a:b] for a, b in zip(ends, ends[1:])]

    def read_rows(self, source, target) -> list:
        src, tgt = self.task.source_dictionary, self.task.target_dictionary
        sources = [torch.tensor([*map(src.index, s), src.eos()]) for s in source]
        wanted = [torch.tensor([*map(tgt.index, t), tgt.eos()]) for t in target]
        tokens = collate_tokens(sources, src.pad())
        output = self.model(
            tokens,
            tokens.ne(src.pad()).sum(1),
            collate_tokens(wanted, tgt.pad(), tgt.eos(), move_eos_to_beginning=True),
            documents=torch.zeros(len(sources), dtype=torch.long),
        )
        scores = self.model.get_normalized_probs(output, log_probs=True)
        return [
            torch.cat([row[: len(t)].gather(1, t.unsqueeze(1)), row[: len(t)]], dim=1)
            for row, t in zip(scores, wanted)
        ]

    def read(self, source, target, starts=None, doc_state=None):
        words = self.task.target_dictionary
        wanted = [words.index(word) for word in target.split()] + [words.eos()]
        net_input = {
            "src_tokens": torch.tensor([source + [self.task.source_dictionary.eos()]]),
            "src_lengths": torch.tensor([len(source) + 1]),
            "prev_output_tokens": torch.tensor([[words.eos()] + wanted[:-1]]),
        }
        if self.stream:
            net_input.update(starts=torch.tensor([starts]), doc_state=doc_state, lanes=1)
        output = self.model(**net_input)
        scores = self.model.get_normalized_probs(output, log_probs=True)[0]
        own = [row[word] for row, word in zip(scores, wanted)]
        everything = torch.cat([torch.stack(own).unsqueeze(1), scores], dim=1)
        return everything, output[1].get("doc_state") if self.stream else None


def plain(found) -> float:
    return float(found[-1][:, 0].double().sum())


def wu(found) -> float:
    """Mean over the window."""
    return float(torch.cat(found)[:, 0].double().mean())


def voita(found) -> float:
    """Less the cross-entropy with a smoothed distribution, plus the entropy of that."""
    total = 0.0
    for row in found[-1].double():
        own, words = row[0], row[1:]
        wanted = torch.full_like(words, 0.1 / (len(words) - 1))
        wanted[int(words.eq(own).nonzero()[0])] = 0.9
        total += float((wanted * words).sum() - (wanted * wanted.log()).sum())
    return total


SYSTEMS = {
    "window": {"window": 3},
    "rfa_window": {"window": 3},
    "rnnsearch_window": {"window": 3},
    "document": {},
    "window_attention_document": {},
    "memory_stream": {"stream": True},
    "cache_stream": {"stream": True},
    "memnet_rows": {"rows": True},
}
#: every task, and the system with inputs of its own
FAST = ["window", "window_attention_document", "cache_stream", "memnet_rows"]


@pytest.mark.parametrize("system", long_but_for(FAST, SYSTEMS))
def test_scores_are_those_of_forcing(system, request, test_set, tmp_path):
    checkpoint = request.getfixturevalue(f"{system}_checkpoint")
    forced = Forced(checkpoint, **SYSTEMS[system])
    protocols = {"plain": plain, "wu": wu, "voita": voita, "contrapro": plain}
    batchings = [["--batch-size", "1"], ["--batch-size", "3"], ["--max-tokens", "30"], []]
    for (name, score), batching in zip(protocols.items(), batchings):
        options = [test_set, "--path", checkpoint, "--protocol", name]
        found = scores_of(*options, *batching, folder=tmp_path)
        for item, scores in zip(items(), found):
            wanted = [
                score(forced.log_probabilities(item["source"], c)) for c in item["candidates"]
            ]
            assert scores == pytest.approx(wanted, abs=2e-5)


def test_marked_document_starts(binarised, test_set, tmp_path):
    options = ["--task", "sliding_window_translation", "--window-size", "2"]
    checkpoint = tiny.train(binarised, tmp_path / "model", *options, "--mark-document-start")
    forced = Forced(checkpoint, window=2)
    found = scores_of(test_set, "--path", checkpoint, folder=tmp_path)
    for item, scores in zip(items(), found):
        wanted = [plain(forced.log_probabilities(item["source"], c)) for c in item["candidates"]]
        assert scores == pytest.approx(wanted, abs=2e-5)


def test_order_of_items_and_context(window_checkpoint, memory_stream_checkpoint, tmp_path):
    """Items do not change each other; what a window does not see changes nothing."""
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items()))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items()[::-1]))
    for checkpoint in (window_checkpoint, memory_stream_checkpoint):
        found = scores_of(tmp_path / "a.jsonl", "--path", checkpoint, folder=tmp_path)
        other = scores_of(tmp_path / "b.jsonl", "--path", checkpoint, folder=tmp_path)
        assert other[::-1] == [pytest.approx(scores, abs=2e-5) for scores in found]
        both = [tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--path", checkpoint]
        assert scores_of(*both, folder=tmp_path)[:4] == [pytest.approx(s, abs=2e-5) for s in found]
        cut = {
            k: scores_of(*both[:1], *both[2:], "--context", k, folder=tmp_path) for k in (2, 1, 0)
        }
        sees_all = checkpoint == window_checkpoint  # three sentences
        assert (cut[2][0] == pytest.approx(found[0], abs=2e-5)) is sees_all
        assert cut[1][0] != pytest.approx(found[0], abs=1e-3)
        assert cut[0][1] == pytest.approx(found[1], abs=2e-5)  # had no context


@pytest.mark.parametrize(
    "system",
    long_but_for(
        ["window", "memory_stream"], ["window", "document", "memory_stream", "memnet_rows"]
    ),
)
def test_context_behind_the_scored_sentence(system, request, tmp_path, caplog):
    """It is seen where the encoder sees it, and never scored."""
    checkpoint = request.getfixturevalue(f"{system}_checkpoint")
    forced, made = Forced(checkpoint, **SYSTEMS[system]), []
    for item in (items()[n] for n in (2, 0, 3)):
        turn = [[c[-1], *c[:-1]][-3:] for c in [item["source"], *item["candidates"]]]
        made.append({**item, "source": turn[0], "candidates": turn[1:], "after": 1})
    made[0]["after"] = 2  # of three sentences the first is scored
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in made))
    options = [path, "--path", checkpoint, "--context-after", "2"]
    for batching in ([], ["--batch-size", "1"]):
        found = scores_of(*options, *batching, folder=tmp_path)
        for item, scores in zip(made, found):
            read = [forced.log_probabilities(item["source"], c) for c in item["candidates"]]
            wanted = [plain(sentences[: -item["after"]]) for sentences in read]
            assert scores == pytest.approx(wanted, abs=2e-5)
    less = scores_of(*options[:3], folder=tmp_path)
    sees_behind = system in ("window", "document", "memnet_rows")
    assert (less[0] != pytest.approx(found[0], abs=1e-4)) is sees_behind
    assert ("reads no sentence after the one" in caplog.text) is not sees_behind
    assert "|after:2|" in run(*options, "--cpu") and "|after:" not in run(*options[:3], "--cpu")


def test_labels_of_items_are_written_as_they_are(tmp_path):
    item = {"source": ["it"], "candidates": [["sie"], ["es"]], "correct": 0}
    item["labels"] = {"noun": "Tür"}
    for name, text in (("set.jsonl", json.dumps(item)), ("losses", "1\n2\n")):
        (tmp_path / name).write_text(text)
    items = tmp_path / "items.jsonl"
    run(tmp_path / "set.jsonl", "--losses", tmp_path / "losses", "--items", items)
    (line,) = items.read_text(encoding="utf-8").splitlines()
    assert "Tür" in line and json.loads(line)["scores"] == [-1, -2]


def test_a_window_that_does_not_reach(window_checkpoint, tmp_path):
    item = {"source": ["w1"] * 4, "candidates": [["v1"] * 4, ["v2"] * 4], "correct": 0, "after": 3}
    (tmp_path / "set.jsonl").write_text(json.dumps(item))
    options = [tmp_path / "set.jsonl", "--path", window_checkpoint, "--cpu", "--context-after"]
    with pytest.raises(
        UserError, match="sees 3 sentences at once, too few for the current one and 3"
    ):
        run(*options, "3")
    run(*options, "2")


def test_sentence_level_systems(binarised, test_set, tmp_path, caplog):
    """A stock checkpoint scores the last sentence alone."""
    checkpoint = tiny.train(
        binarised, tmp_path, "--task", "translation", "--required-batch-size-multiple", "1"
    )
    forced = Forced(checkpoint)

    def alone(source, target) -> float:
        numbers = [forced.task.source_dictionary.index(word) for word in source[-1].split()]
        with torch.no_grad():
            return plain([forced.read(numbers, target[-1])[0]])

    for batching in ([], ["--batch-size", "1"]):
        found = scores_of(test_set, "--path", checkpoint, *batching, folder=tmp_path)
        for item, scores in zip(items(), found):
            wanted = [alone(item["source"], candidate) for candidate in item["candidates"]]
            assert scores == pytest.approx(wanted, abs=2e-5)
    followed = [
        {**item, "source": [*item["source"], "w1"], "after": 1}
        | {"candidates": [[*candidate, "v1"] for candidate in item["candidates"]]}
        for item in items()
    ]
    test_set.write_text("".join(json.dumps(item) + "\n" for item in followed))
    options = ["--path", checkpoint, "--context-after", "1"]
    said = "reads no sentence after the one that it translates"
    assert said not in caplog.text
    assert scores_of(test_set, *options, folder=tmp_path) == found
    assert said in caplog.text


def test_python_interface(window_checkpoint):
    """The scorer leaves the translator as it was."""
    translator = DocumentTranslator.from_pretrained(str(window_checkpoint))
    before = translator.translate([["w1 w2", "w3"]], beam=2)
    one = checked_item("", *(items()[0][name] for name in Item._fields if name != "after"))
    found = ReferenceScorer(translator.hub).score([one])
    wanted = [
        plain(Forced(window_checkpoint, 3).log_probabilities(one.source, c)) for c in one.candidates
    ]
    assert found.scores == [pytest.approx(wanted, abs=2e-5)]
    assert found.unknown == 0
    assert translator.hub.task.search.decoding == "sequential"
    assert translator.translate([["w1 w2", "w3"]], beam=2) == before


def test_ensembles(window_checkpoint, other_window_checkpoint, test_set, tmp_path):
    """The mean of the probabilities."""
    members = [Forced(c, window=3) for c in (window_checkpoint, other_window_checkpoint)]
    path = f"{window_checkpoint}:{other_window_checkpoint}"
    found = scores_of(test_set, "--path", path, folder=tmp_path)
    for item, scores in zip(items(), found):
        for candidate, score in zip(item["candidates"], scores):
            both = [m.log_probabilities(item["source"], candidate)[-1][:, 0] for m in members]
            assert score == pytest.approx(
                float(sum(map(torch.exp, both)).div(2).log().sum()), abs=2e-5
            )
    with pytest.raises(UserError, match="--protocol voita is defined for one model"):
        run(test_set, "--path", path, "--protocol", "voita", "--cpu")


def test_text_is_cut_as_the_training_data(window_checkpoint, tmp_path):
    from subword_nmt.apply_bpe import BPE
    from subword_nmt.learn_bpe import learn_bpe

    codes = tmp_path / "codes"
    with open(codes, "w") as stream:
        learn_bpe(io.StringIO("w1 w2 v3 v4\n" * 5), stream, 3)
    with open(codes) as stream:
        bpe = BPE(stream).process_line
    raw = {"source": ["w1,w2", "w3"], "candidates": [["v1", "v3!"], ["v1", "v5"]], "correct": 0}
    space = {"source": ["w1 , w2", "w3"], "candidates": [["v1", "v3 !"], ["v1", "v5"]]}
    cut = {
        "source": [bpe(s) for s in space["source"]],
        "candidates": [[bpe(s) for s in c] for c in space["candidates"]],
        "correct": 0,
    }
    found = []
    for name, item, options in (
        ("cut", cut, []),
        ("raw", raw, ["--bpe-codes", codes, "--source-tokenizer", "moses"]),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(item))
        options += ["--target-tokenizer", "moses"] if name == "raw" else []
        found.append(scores_of(path, "--path", window_checkpoint, *options, folder=tmp_path))
    assert found[0] == found[1]


def test_text_is_truecased_as_the_training_data(window_checkpoint, tmp_path):
    """After tokenizing, each side by its own model, as data_prep/prepare.py does it."""
    from sacremoses import MosesTruecaser

    models = [str(tmp_path / f"truecase.{side}") for side in ("src", "tgt")]
    for path, word in zip(models, ("w1", "v1")):
        MosesTruecaser().train([["w2", word, "w3"], ["w2", word.upper()]] * 3, save_to=path)
    cased = {"source": ["W1, w2", "w3 ."], "candidates": [["V1", "v3. V1"], ["V1", "W1 v5"]]}
    plain = {"source": ["w1 , w2", "w3 ."], "candidates": [["v1", "v3 . v1"], ["v1", "W1 v5"]]}
    moses = ["--source-tokenizer", "moses", "--target-tokenizer", "moses"]
    truecasers = ["--source-truecaser", models[0], "--target-truecaser", models[1]]
    found = []
    for item, options in ((cased, moses + truecasers), (plain, moses), (cased, moses)):
        path = tmp_path / "set.jsonl"
        path.write_text(json.dumps({**item, "correct": 0}))
        found.append(scores_of(path, "--path", window_checkpoint, *options, folder=tmp_path))
    assert found[0] == found[1] != found[2]
    encode, prepared = TextForm("moses", models[0], None).encoder("en"), truecaser(models[0])
    for text in ("W1 , W2", "( W1 . W1", "w2 W1 : W1 !"):
        assert encode(text) == prepared(tokenizer("moses", "en")(text))


# ---- results -----------------------------------------------------------------------------------


def test_table_and_files(test_set, tmp_path):
    # The right candidate wins, ties, wins as a copy of itself, loses.
    losses = [1, 2, 3, 3, 1, 2, 3, 1, 3, 4]
    (tmp_path / "losses").write_text("".join(f"{loss}\n" for loss in losses))
    out = {name: tmp_path / f"out.{name}" for name in ("json", "markdown", "items")}
    arguments = [test_set, "--losses", tmp_path / "losses"]
    for style in ("json", "markdown"):
        assert run(*arguments, "--format", style, "--out", out[style]) == ""
    printed = run(*arguments, "--items", out["items"])
    lines = [line.split() for line in printed.splitlines()]
    assert ["set", "all", "4", "50.00", "0.0", "to", "100.0", "1", "45.83"] in lines
    assert ["set", "phenomenon", "of", "0", "2", "100.00", "0", "41.67"] in lines
    assert ["set", "distance", "1", "1", "0.00", "1", "50.00"] in lines
    version = f"version:{fairseq_docmt.__version__}"
    signature = f"contrastive|set:set|items:4|scores:losses|ties:wrong|bs:1000|seed:0|{version}"
    assert signature in printed
    figures = json.loads(out["json"].read_text())["set"]
    assert figures["signature"] == signature
    want = {"items": 4, "correct": 2, "ties": 1, "accuracy": 0.5}
    assert figures["all"] == {**want, "chance": pytest.approx((3 / 2 + 1 / 3) / 4)}
    assert figures["by label"]["distance"]["3"]["accuracy"] == 0
    markdown = out["markdown"].read_text()
    assert "| set   |             all |" in markdown and f"* {signature}" in markdown
    rows = [json.loads(line) for line in out["items"].read_text().splitlines()]
    assert [row["correct"] for row in rows] == [True, False, True, False]
    assert rows[2] == {
        **{"set": "set", "item": 3, "labels": {"phenomenon": "of 0", "distance": "2"}},
        **{"right": 0, "scores": [-1, -2, -3, -1], "correct": True, "tie": False},
        **{"chance": pytest.approx(1 / 3), "protocol": None},
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["set.jsonl", "losses", *(p.name for p in out.values())]
    )
    # By the rule of ContraPro the third is lost.
    strict = run(test_set, "--losses", tmp_path / "losses", "--protocol", "contrapro")
    rule = "protocol:contrapro|scores:losses|ties:wrong|bs:1000|seed:0"
    assert f"contrastive|set:set|items:4|{rule}|{version}" in strict
    assert ["set", "all", "4", "25.00", "0.0", "to", "75.0", "2", "37.50"] in [
        s.split() for s in strict.splitlines()
    ]


def test_labels_do_not_end_cells_of_markdown(tmp_path):
    item = {"source": ["a"], "candidates": [["x"], ["y"]], "correct": 0}
    item["labels"] = {"kind": "a|b\nc"}
    (tmp_path / "set.jsonl").write_text(json.dumps(item))
    (tmp_path / "losses").write_text("1\n2\n")
    run(
        tmp_path / "set.jsonl",
        "--losses",
        tmp_path / "losses",
        "--format",
        "markdown",
        "--out",
        tmp_path / "m",
    )
    assert "| kind a\\|b c " in (tmp_path / "m").read_text()


def test_a_baseline_of_another_protocol(window_checkpoint, test_set, tmp_path):
    plain, wu, other = (tmp_path / name for name in ("plain", "wu", "other"))
    losses = tmp_path / "losses"
    losses.write_text("".join("1\n" for item in items() for _ in item["candidates"]))
    model = [test_set, "--path", window_checkpoint, "--cpu"]
    run(*model, "--items", plain)
    run(*model, "--protocol", "wu", "--items", wu)
    run(test_set, "--losses", losses, "--items", other)
    run(*model, "--baseline", plain)
    run(*model, "--baseline", other)  # another program may use any protocol
    run(test_set, "--losses", losses, "--baseline", plain)
    with pytest.raises(UserError, match="wu was written with --protocol wu, not plain; use the"):
        run(*model, "--baseline", wu)


def test_the_difference_to_another_model(tmp_path):
    item = {"source": ["a"], "candidates": [["x"], ["y"]], "correct": 0}
    lines = [json.dumps({**item, "labels": {"n": number}}) + "\n" for number in range(40)]
    (tmp_path / "set.jsonl").write_text("".join(lines))
    another = "is item [18] of another set called set, with other labels or candidates; write it"
    files = {}
    # Right in the first 10, or in items 5 to 34.
    for name, right in (("base", range(10)), ("own", range(5, 35))):
        files[name] = tmp_path / name
        losses = ("1\n2\n" if number in right else "2\n1\n" for number in range(40))
        files[name].write_text("".join(losses))
    items = tmp_path / "items"
    run(tmp_path / "set.jsonl", "--losses", files["base"], "--items", items)
    arguments = [tmp_path / "set.jsonl", "--losses", files["own"], "--baseline", items]
    found = json.loads(run(*arguments, "--format", "json"))["set"]["baseline"]
    assert (found["accuracy"], found["difference"]) == (0.25, 0.5)
    assert (found["better"], found["worse"]) == (25, 5)
    assert 0.2 < found["low"] < 0.4 and 0.6 < found["high"] < 0.8
    assert found["p"] == pytest.approx(0.000325, abs=1e-6)  # binomial, 5 of 30, two-sided
    rows = [line.split() for line in run(*arguments).splitlines()]
    assert ["set", "25.00", "+50.00"] in [row[:3] for row in rows]
    for change, message in (
        (lambda text: text.replace('"correct"', '"wrong"', 1), "line 1 is no item that --items"),
        (lambda text: text.replace("true", '"no"', 1), "line . is no item that --items"),
        (lambda text: text.replace('"item": 1', '"item": Infinity', 1), "line 1 is no item that "),
        (lambda text: text.replace('"set": "set"', '"set": []', 1), "line 1 is no item that "),
        (lambda text: text.split("\n", 1)[1], "line 1 is not item 1"),
        (lambda text: text.rstrip("\n").rsplit("\n", 1)[0], "has 39 items of set, but the set has"),
        (
            lambda text: text + text.splitlines()[-1].replace("40", "41"),
            "has 41 items of set, but ",
        ),
        (lambda text: text.replace('"n": "7"', '"n": "8"'), f"line 8 {another}"),
        (lambda text: text.replace('"right": 0', '"right": 1', 1), f"line 1 {another}"),
        (lambda text: text.replace("[-1.0, ", "[-1.0, -3.0, ", 1), f"line 1 {another}"),
        (lambda text: text.replace('"scores"', '"score"', 1), "line 1 is no item that --items"),
        (lambda text: text.replace('"labels"', '"label"', 1), "line 1 is no item that --items"),
    ):
        (tmp_path / "broken").write_text(change(items.read_text()))
        with pytest.raises(UserError, match=message):
            run(*arguments[:-1], tmp_path / "broken")


def test_a_constant_scorer_gets_nothing(test_set, tmp_path):
    (tmp_path / "losses").write_text("2.5\n" * 10)
    printed = run(test_set, "--losses", tmp_path / "losses")
    assert ["set", "all", "4", "0.00", "0.0", "to", "0.0", "4", "45.83"] in [
        s.split() for s in printed.splitlines()
    ]


def test_converts_to_json_lines(test_set, tmp_path):
    run(test_set, "--convert", tmp_path / "all.jsonl", "--context", "1")
    (tmp_path / "losses").write_text("2.5\n" * 10)
    printed = run(tmp_path / "all.jsonl", "--losses", tmp_path / "losses")
    assert ["all", "all", "4", "0.00", "0.0", "to", "0.0", "4", "45.83"] in [
        s.split() for s in printed.splitlines()
    ]
    first = json.loads((tmp_path / "all.jsonl").read_text().splitlines()[0])
    assert first["source"] == items()[0]["source"][-2:]


def test_a_document_over_the_limit_is_warned_of(document_checkpoint, test_set, tmp_path, caplog):
    run(test_set, "--path", document_checkpoint, "--cpu")
    assert "lose" not in caplog.text
    source = ["w1 w2 w3 w4 w5 w6 w7"] * 4
    long = {"source": source, "candidates": [["v1"] * 4, ["v1"] * 3 + ["v2"]], "correct": 0}
    (tmp_path / "long.jsonl").write_text(json.dumps(long))
    run(tmp_path / "long.jsonl", "--path", document_checkpoint, "--cpu")
    assert "2 of 2 candidates exceed the model's maximum length and lose" in caplog.text


def test_a_window_over_the_limit_is_warned_of(window_checkpoint, tmp_path, caplog):
    """Each candidate has a window of its own."""
    target = [["v1"] * 3, ["v1", "v1", "v2"]]
    for words, windows in ((300, 0), (400, 2)):
        source = ["w1 " * words] * 3
        item = {"source": source, "candidates": target, "correct": 0}
        (tmp_path / "long.jsonl").write_text(json.dumps(item))
        caplog.clear()
        run(tmp_path / "long.jsonl", "--path", window_checkpoint, "--cpu")
        found = [text for text in caplog.messages if text.startswith("windows that were read with")]
        assert [text.rpartition(": ")[2] for text in found] == ([str(windows)] if windows else [])


@pytest.mark.parametrize(
    "option, short",
    [
        (["--context", "2"], None),
        (["--context", "3"], "--context 3: this model reads at most 2 sentence(s) bef"),
        (["--context", "2", "--context-after", "0"], None),
        (["--context-after", "1"], "--context-after 1: the items of set have at most 0 sent"),
    ],
)
def test_context_that_no_item_has_is_warned_of(
    option, short, window_checkpoint, test_set, tmp_path, caplog
):
    output = run("--path", window_checkpoint, *option, test_set, "--cpu")
    found = [text for text in caplog.messages if "sentence(s)" in text]
    assert len(found) == (short is not None) and all(text.startswith(short) for text in found)
    assert "|window:3|" in output


def test_context_that_no_item_has_is_warned_of_without_windows(
    document_checkpoint, test_set, tmp_path, caplog
):
    output = run("--path", document_checkpoint, "--context", "4", test_set, "--cpu")
    found = [text for text in caplog.messages if "sentence(s)" in text]
    assert found == [
        "--context 4: the items of set have at most 3 sentence(s) before the scored one"
    ]
    assert "|context:4|" in output and "|window:" not in output


def test_unknown_words_are_warned_of(window_checkpoint, test_set, tmp_path, caplog):
    run(test_set, "--path", window_checkpoint, "--cpu")
    assert "unknown to the model" not in caplog.text
    strange = {"source": ["w1"], "candidates": [["x y"], ["y x"]], "correct": 0}
    (tmp_path / "x.jsonl").write_text(json.dumps(strange))
    printed = run(tmp_path / "x.jsonl", "--path", window_checkpoint, "--cpu")
    assert "67% of the target tokens are unknown to the model" in caplog.text
    # The candidates are the same to the model, and so a tie.
    wanted = ["x", "all", "1", "0.00", "1", "50.00"]
    assert wanted in [s.split() for s in printed.splitlines()]


@pytest.mark.parametrize(
    "losses, message",
    [
        ("1\n2\n", "has 2 losses, but 10 candidates need one"),
        ("1\nnan\n" * 5, "losses, line 2 is not a finite number: 'nan'"),
        ("1\nx\n" * 5, "losses, line 2 is not a finite number: 'x'"),
        ("1\n\xff\n" * 5, "losses: line 2 is not UTF-8; convert the file"),
    ],
)
def test_mistakes_in_losses(test_set, tmp_path, losses, message):
    (tmp_path / "losses").write_text(losses, encoding="latin-1")
    with pytest.raises(UserError, match=message):
        run(test_set, "--losses", tmp_path / "losses", "--items", tmp_path / "items")
    assert not (tmp_path / "items").exists()


def test_other_mistakes(window_checkpoint, test_set, tmp_path):
    scored = [test_set, "--path", window_checkpoint, "--cpu"]
    with pytest.raises(UserError, match="two test sets are called set; rename one"):
        run(test_set, *scored)
    with pytest.raises(UserError, match="--losses nowhere not found"):
        run(test_set, "--losses", "nowhere")
    with pytest.raises(UserError, match="--documents is for ContraPro and Lopes et al.*leave it"):
        run(test_set, "--losses", tmp_path / "losses", "--documents", tmp_path)
    with pytest.raises(UserError, match="checkpoint nowhere not found"):
        run(test_set, "--path", "nowhere")
    with pytest.raises(UserError, match="BPE codes nowhere not found"):
        run(*scored, "--bpe-codes", "nowhere")
    with pytest.raises(UserError, match="truecasing model nowhere not found"):
        run(*scored, "--target-truecaser", "nowhere")
    (tmp_path / "model").write_text("word (x/1)\n")
    with pytest.raises(UserError, match="model is not a truecasing model; give the file truecase"):
        run(*scored, "--source-truecaser", tmp_path / "model")
    with pytest.raises(UserError, match="--batch-size must be at least 1"):
        run(*scored, "--batch-size", "0")
    with pytest.raises(UserError, match="--fp16 needs a GPU"):
        run(*scored, "--fp16")
    run(*scored, "--items", tmp_path / "absent" / "items")
    assert (tmp_path / "absent" / "items").read_text()
    with pytest.raises(UserError, match="cannot be written: Is a directory"):
        run(test_set, "--convert", tmp_path)
    for before, size, fix in (
        ([], 1100, "leave it out"),
        (["v2"], 1100, "leave it out"),
        (["v2 " * 50], 1000, "reduce the context with --context"),
    ):
        candidates = [[*before, "v2"], [*before, "v1 v1 vX " + "v1 " * (size - 3)]]
        long = {"source": [*before, "w1"], "candidates": candidates, "correct": 0}
        (tmp_path / "long.jsonl").write_text(json.dumps(long))
        length = size + 1 + sum(len(text.split()) + 1 for text in before)
        message = f"the target 'v1 v1 vX .*' has {length} tokens with its context, but .*"
        with pytest.raises(UserError, match=message + fix):
            run(tmp_path / "long.jsonl", *scored[1:])


@pytest.mark.parametrize(
    "mode, option",
    [
        ("--losses", ["--target-bpe-codes", "x"]),
        ("--losses", ["--sentencepiece-model", "x"]),
        ("--losses", ["--batch-size", "7"]),
        ("--losses", ["--max-tokens", "7"]),
        ("--losses", ["--context", "0"]),
        ("--losses", ["--context-after", "1"]),
        ("--losses", ["--protocol", "wu"]),
        ("--convert", ["--fp16"]),
        ("--convert", ["--protocol", "contrapro"]),
        ("--convert", ["--items", "x"]),
    ],
    ids=str,
)
def test_options_without_effect(test_set, tmp_path, mode, option):
    with pytest.raises(UserError, match=f"{option[0]} has no effect with {mode}; leave it out"):
        run(test_set, mode, tmp_path / "file", *option)
    assert sorted(tmp_path.iterdir()) == [test_set]


def test_a_broken_model_is_named(window_checkpoint, test_set, tmp_path):
    path = tiny.diverged(window_checkpoint, tmp_path)
    with pytest.raises(UserError, match="has parameters that are NaN or infinite"):
        run(test_set, "--path", path, "--cpu")
