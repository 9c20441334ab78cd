"""A wider beam seldom ends with worse hypotheses than greedy search."""

import pytest
import tiny

TEST_DOCUMENTS = [5] * 40
WINDOWS = ["--task", "sliding_window_translation", "--window-size", "3"]
DOCUMENTS = ["--task", "full_document_translation", "--max-document-tokens", "40"]
ROWS = ["--task", "document_rows_translation", "--max-document-tokens", "40"]
STREAM = ["--task", "sentence_stream_translation", "--chunk-sentences", "4"]
# With references as context, scores depend only on the search.
JOINT = {WINDOWS[1]: ["--decoding", "window"], DOCUMENTS[1]: ["--decoding", "segment"]}
SEQUENTIAL = ["--decoding", "sequential", "--gold-context"]

#: task, model, options of decoding; {lm} are the language models of the corpus
SYSTEMS = {
    "transformer-windows": (WINDOWS, tiny.MODEL, [JOINT[WINDOWS[1]], SEQUENTIAL]),
    "transformer-documents": (DOCUMENTS, tiny.MODEL, [JOINT[DOCUMENTS[1]], SEQUENTIAL]),
    "rfa": (WINDOWS, tiny.rfa("--sentence-gate", "decay"), [JOINT[WINDOWS[1]], SEQUENTIAL]),
    "window": (
        DOCUMENTS,
        tiny.window("--train-alignment", "sentence"),
        [JOINT[DOCUMENTS[1]], SEQUENTIAL],
    ),
    "lst": (DOCUMENTS, tiny.lst(), [JOINT[DOCUMENTS[1]], SEQUENTIAL]),
    "group": (DOCUMENTS, tiny.group(), [JOINT[DOCUMENTS[1]], SEQUENTIAL]),
    "rnnsearch": (WINDOWS, tiny.rnnsearch(), [JOINT[WINDOWS[1]], SEQUENTIAL]),
    "han": (STREAM, tiny.han(), [["--gold-context"]]),
    "multi-encoder": (
        STREAM,
        tiny.multi_encoder("--context-side", "both"),
        [["--gold-context"]],
    ),
    "memory": (STREAM, tiny.memory(), [["--gold-context"]]),
    "cache": (STREAM, tiny.cache(), [["--gold-context"]]),
    "context": (STREAM, tiny.context("--context", "hierarchical"), [["--gold-context"]]),
    # A source memory reads no translations, so that it is the same for all beams.
    "memnet": (ROWS, tiny.memnet("--context-side", "source", "--sentence-lm", "{lm}"), [[]]),
}
#: system, number of words that never occur, sizes of the beam after 1
QUICK = [("transformer-windows", 0, ["4"])]
LONG = [(name, words, ["2", "4", "10"]) for name in SYSTEMS for words in (0, 3000)]
#: options of systems that do not learn the tiny language from 600 updates at a constant rate
SLOPE = ["--lr-scheduler", "inverse_sqrt", "--warmup-updates", "100"]
WIDE = ["--decoder-embed-dim", "128", "--decoder-hidden-size", "64", "--encoder-hidden-size", "32"]
LEARNING = {
    ("transformer-windows", 0): ["--lr", "0.01", "--max-update", "300"],
    ("rfa", 0): ["--lr", "0.005", *SLOPE, "--max-update", "2500"],
    ("rfa", 3000): ["--lr", "0.005", *SLOPE, "--max-update", "2500"],
    ("window", 0): ["--lr", "0.01", *SLOPE, "--max-update", "1500"],
    ("window", 3000): ["--lr", "0.005", "--max-update", "1500"],
    ("lst", 0): ["--lr", "0.01", *SLOPE, "--max-update", "1500"],
    ("group", 0): ["--lr", "0.01", *SLOPE, "--max-update", "1500"],
    # Words that never occur saturate a narrow readout before attention has learned anything.
    ("rnnsearch", 3000): ["--lr", "0.003", *WIDE, "--max-update", "1500"],
    ("cache", 3000): ["--lr", "0.003", *WIDE, "--max-update", "1500"],
    ("context", 3000): ["--lr", "0.01", *SLOPE, "--max-update", "1500"],
    ("memnet", 0): ["--lr", "0.005", *SLOPE, "--max-update", "2500"],
    ("memnet", 3000): ["--lr", "0.003", *WIDE, "--max-update", "1500"],
}


def larger(model):
    """A tiny model with layers twice as wide, which learns the tiny language in seconds."""
    double = {"16": "32", "32": "64", "12": "32", "8": "32", "10": "32", "6": "32"}
    sizes = [i for i, option in enumerate(model) if option.endswith(("-dim", "-size"))]
    kept = ("--cache-size", "--memory-size", "--cross-feature-dim", "--causal-feature-dim")
    return [
        double.get(option, option) if at - 1 in sizes and model[at - 1] not in kept else option
        for at, option in enumerate(model)
    ]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Binarised data with this number of words more in the dictionaries than in the text."""
    made = {}

    def corpus(more_words):
        if more_words not in made:
            folder = tmp_path_factory.mktemp("corpus")
            splits = {"train": [5] * 60, "valid": [5] * 2, "test": TEST_DOCUMENTS}
            for seed, (split, lengths) in enumerate(splits.items()):
                tiny.write_split(folder, split, tiny.documents(lengths, seed))
            made[more_words] = tiny.preprocess(folder, ["train", "valid", "test"])
            for side in ("src", "tgt"):
                with open(made[more_words] / f"dict.{side}.txt", "a", encoding="utf-8") as words:
                    words.writelines(f"never{number} 1\n" for number in range(more_words))
        return made[more_words]

    return corpus


def exact_and_scores(data, checkpoint, *options):
    """Return for each sentence whether it equals the reference, and its score."""
    output = tiny.generate(data, checkpoint, "--max-tokens", "2000", *options)
    hypotheses, scores = tiny.lines_of(output), tiny.scores_of(output)
    references = tiny.lines_of(output, "T")
    rows = sorted(references)
    assert len(rows) == sum(TEST_DOCUMENTS)
    return (
        sum(hypotheses[row] == references[row] for row in rows) / len(rows),
        [float(scores[row]) for row in rows],
    )


@pytest.mark.parametrize(
    "system, more_words, beams",
    [pytest.param(*case, marks=pytest.mark.long) for case in QUICK]
    + [pytest.param(*case, marks=pytest.mark.system) for case in LONG],
)
def test_a_wider_beam_is_no_worse(corpora, tmp_path, system, more_words, beams):
    task, model, decodings = SYSTEMS[system]
    data = corpora(more_words)
    lanes = ["--batch-size", "10"] if task is STREAM else ["--max-tokens", "300"]
    default = ["--lr", "0.005" if more_words else "0.01", "--max-update", "600"]
    learning = LEARNING.get((system, more_words), default)
    options = [*task, *lanes, *learning, "--label-smoothing", "0.1"]
    if "{lm}" in model:
        language_models = tiny.sentence_lm(data, tmp_path)
        model = [option.format(lm=language_models) for option in model]
    checkpoint = tiny.train(data, tmp_path, *options, model=larger(model))
    for decoding in decodings:
        search = [*task[:2], *decoding]
        exact, greedy = exact_and_scores(data, checkpoint, *search, "--beam", "1")
        assert exact > 0.5
        total = sum(greedy)
        for beam in beams:
            share, scores = exact_and_scores(data, checkpoint, *search, "--beam", beam)
            worse = sum(b < a - 2e-4 for a, b in zip(greedy, scores))
            assert worse <= 0.005 * len(greedy)
            assert sum(scores) > total - 0.02
            assert share > exact - 0.02
            total = sum(scores)
