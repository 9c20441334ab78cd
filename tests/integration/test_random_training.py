"""Random options of tasks and architectures in training.

A trial draws an architecture, a task that it has, and some of their options.  Interrupted and
resumed, training must give the same weights to the bit; with every decoding, batches of any size
must give the same translations and scores of references, once for each line.
"""

import random
import re

import pytest
import tiny

DOCS = tiny.documents((1, 5, 2, 7), 2)
TAGS = "--source-tag aa --target-tag bb --tag-languages aa,bb"
WINDOWS, DOCUMENTS, STREAMS, ROWS = (
    f"{name}_translation"
    for name in ("sliding_window", "full_document", "sentence_stream", "document_rows")
)
#: decodings and options of each task
TASKS = {
    WINDOWS: (
        ["sequential", "window", "segment", "overlap"],
        [
            *("--window-size 1", "--window-size 4", "--window-size 4 --window-stride 2"),
            *("--loss-on last", "--next-sentences 1", "--sample-window-size"),
            *("--coword-dropout 0.2", "--word-dropout 0.2 --word-dropout-epochs 1"),
            *("--mark-document-start", "--sentence-data DATA --sentence-ratio 0.5"),
            *(f"--language-tags mbart25 {TAGS}", f"--language-tags m2m {TAGS}", "--eval-bleu"),
        ],
    ),
    DOCUMENTS: (
        ["segment", "sequential", "sequential-full-source"],
        [
            *("--max-document-tokens 12", "--document-parts 1,2,4", "--word-dropout 0.2"),
            *("--document-parts 1,3 --sample-document-parts", "--mark-document-start"),
            *("--sentence-data DATA", f"--language-tags mbart50 {TAGS}", "--eval-bleu"),
        ],
    ),
    STREAMS: (
        ["stream"],
        [
            *("--chunk-sentences 3", "--chunk-sentences 3 --sample-chunk-sentences"),
            *("--mark-document-start", f"--language-tags nllb {TAGS}", "--eval-bleu"),
        ],
    ),
    ROWS: (["iterative"], ["--max-document-tokens 12", "--decode-order in-turn"]),
}
EVERYWHERE = [
    *("--dropout 0.2", "--share-decoder-input-output-embed", "--lr 0.02", "--update-freq 2"),
    *("--criterion cross_entropy", "--optimizer sgd", "--amp"),
]
OF_TRANSFORMERS = [
    *("--encoder-normalize-before --decoder-normalize-before", "--layernorm-embedding"),
    *("--encoder-learned-pos --decoder-learned-pos", "--no-token-positional-embeddings"),
    *("--attention-dropout 0.2", "--encoder-layers 2", "--decoder-layers 2"),
]
SIDES = ["--context-side source", "--context-side both"]
#: tasks, sizes and options of each architecture
SYSTEMS = {
    "transformer": ([WINDOWS, DOCUMENTS], tiny.MODEL, OF_TRANSFORMERS),
    "rfa": (
        [WINDOWS, DOCUMENTS],
        tiny.rfa(),
        [
            *OF_TRANSFORMERS,
            *("--sentence-gate decay", "--sentence-gate average --shared-gate"),
            *("--sentence-gate decay --gate-cross-attention", "--feature-map positive"),
            *("--share-random-matrices --same-matrices-in-decoding", "--rfa-encoder"),
            *("--no-key-rescale", "--denominator-floor 0.01", "--cross-feature-dim 10"),
        ],
    ),
    "lst": ([DOCUMENTS, WINDOWS], tiny.lst(), [*OF_TRANSFORMERS, "--separate-projections"]),
    "group": (
        [DOCUMENTS],
        tiny.group(),
        [*OF_TRANSFORMERS, "--decoder-context-layers 0", "--restart-positions"],
    ),
    "window": (
        [DOCUMENTS],
        tiny.window(),
        [
            *OF_TRANSFORMERS,
            *("--attention-window 1", "--position absolute", "--alignment one-to-one"),
            *("--full-encoder-attention", "--full-decoder-attention", "--full-cross-attention"),
        ],
    ),
    "rnnsearch": ([WINDOWS], tiny.rnnsearch(), ["--decoder-layers 2", "--encoder-layers 2"]),
    "memory": (
        [STREAMS],
        tiny.memory(),
        [*OF_TRANSFORMERS, *SIDES, "--memory-size 1", "--memory-gradient-sentences 1"],
    ),
    "cache": (
        [STREAMS],
        tiny.cache(),
        ["--cache-size 1", "--context-integration shallow", "--no-overwrite"],
    ),
    "context": (
        [STREAMS],
        tiny.context(),
        ["--context previous-source-attention", "--context hierarchical"],
    ),
    "han": ([STREAMS], tiny.han(), [*OF_TRANSFORMERS, *SIDES, "--context-sentences 3"]),
    "multi-encoder": (
        [STREAMS],
        tiny.multi_encoder(),
        [*OF_TRANSFORMERS, *SIDES, "--context-integration inside", "--context-fusion sum"],
    ),
    "memnet": (
        [ROWS],
        tiny.memnet(),
        ["--context-side both --gold-drafts", "--context-integration output"],
    ),
}


def drawn(seed: int) -> tuple:
    """Return task, sizes of the model, and options of a trial."""
    generator = random.Random(seed)
    tasks, sizes, of_model = SYSTEMS[sorted(SYSTEMS)[seed % len(SYSTEMS)]]
    task = generator.choice(tasks)
    of_task = TASKS[task][1]
    options: dict = {}
    for group in generator.sample(of_task + of_model + EVERYWHERE, generator.randint(1, 4)):
        given = re.findall(r"(--\S+)(?: ([^-]\S*))?", group)
        if not options.keys() & dict(given).keys():
            options.update(given)
    if task == STREAMS:
        options["--batch-size"] = str(generator.randint(1, 3))
    if task == ROWS:
        options.setdefault("--context-side", "source")
    return task, sizes, [word for pair in options.items() for word in pair if word]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(60))
def test_trials(binarised, sentence_lm, tmp_path, seed, record_property):
    task, sizes, options = drawn(seed)
    record_property("trial", " ".join([*sizes[:2], task, *options]))
    options = [str(binarised) if word == "DATA" else word for word in options]
    options += ["--task", task, *(["--sentence-lm", sentence_lm] if task == ROWS else [])]
    whole = tiny.train(binarised, tmp_path / "a", *options, updates=8, model=sizes)
    for updates in (3, 8):
        parts = tiny.train(binarised, tmp_path / "b", *options, updates=updates, model=sizes)
    tiny.assert_same_weights(whole, parts)
    for decoding in TASKS[task][0]:

        def found(*more, decoding=decoding):
            """Texts and scores with small batches, and sentence by sentence."""
            given = ["--task", task, "--decoding", decoding, "--beam", "3", *more]
            batches = ["--max-tokens", "90"], ["--batch-size", "1"]
            outputs = [tiny.generate(binarised, whole, *given, *options) for options in batches]
            scores = [tiny.scores_of(output).items() for output in outputs]
            return [tiny.lines_of(output) for output in outputs], [
                {row: float(score) for row, score in rows} for rows in scores
            ]

        (batched, alone), _ = found()
        assert batched == alone and sorted(batched) == tiny.rows_of(DOCS)
        _, (batched, alone) = found("--score-reference")
        assert batched == pytest.approx(alone, abs=1e-4)
