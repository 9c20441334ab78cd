"""Training through the stock commands.

Covers tasks/_base.py, tasks/_criterion.py, tasks/_data.py, tasks/starts/checkpoints.py,
tasks/full_document_translation.py, tasks/sliding_window_translation.py.
"""

import re
from unittest import mock

import pytest
import tiny
import torch
from fairseq import checkpoint_utils, optim, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.amp_optimizer import AMPOptimizer
from long_tests import LONG

from fairseq_docmt.errors import UserError
from fairseq_docmt.generation import DocumentTranslator
from fairseq_docmt.symbols import DOCUMENT_SYMBOLS

WINDOW = ["--task", "sliding_window_translation"]
DOCUMENT = ["--task", "full_document_translation", "--max-document-tokens", "20"]
STREAM = ["--task", "sentence_stream_translation"]


def task_of(data, *arguments):
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(
        parser,
        [str(data), "--user-dir", tiny.USER_DIR, *tiny.MODEL, *tiny.TRAINING, *arguments],
    )
    return tasks.setup_task(convert_namespace_to_omegaconf(args).task)


def examples_of(make_task, split, shards, workers, max_tokens=60, epoch=1):
    """Return the ids that all processes read in one epoch, and their numbers of batches."""
    seen, batches = [], []
    for shard in range(shards):
        task = make_task()
        task.load_dataset(split)
        iterator = task.get_batch_iterator(
            task.dataset(split),
            max_tokens=max_tokens,
            max_positions=(1024, 1024),
            ignore_invalid_inputs=True,
            required_batch_size_multiple=8,
            num_shards=shards,
            shard_id=shard,
            num_workers=workers,
            epoch=epoch,
        ).next_epoch_itr(shuffle=True)
        samples = list(iterator)
        batches.append(len(samples))
        seen += [i for sample in samples for i in sample["id"].tolist()]
    return seen, batches


@pytest.mark.parametrize(
    "split, shards, workers",
    [("train", 1, 0), ("train", 1, 2), ("train", 2, 0), ("train", 3, 0), ("valid", 2, 0)],
)
def test_every_sentence_is_seen_once_per_epoch(binarised, split, shards, workers):
    def make_task():
        return task_of(binarised, *WINDOW, "--window-size", "2", "--max-tokens", "60")

    lengths = {"train": (4, 1, 6, 3, 5), "valid": (3, 1, 4)}[split]
    rows = tiny.rows_of(tiny.documents(lengths))
    for epoch in (1, 2):
        seen, batches = examples_of(make_task, split, shards, workers, epoch=epoch)
        assert sorted(seen) == rows
        assert len(set(batches)) == 1  # no process is left with nothing to do


def test_documents_are_whole_and_seen_once(binarised):
    task = task_of(binarised, *DOCUMENT, "--max-tokens", "60")
    task.load_dataset("train")
    view = task.dataset("train")
    assert (view.tgt_sizes <= 20).all()
    words = [
        token
        for i in range(len(view))
        for token in view[i]["target"].tolist()
        if token >= 4 and token != task.tgt_dict.index("<sep>")
    ]
    docs = tiny.translate(tiny.documents((4, 1, 6, 3, 5), 0))
    expected = [task.tgt_dict.index(w) for doc in docs for s in doc for w in s.split()]
    assert words == expected


def test_concatenated_parts_keep_their_documents_apart(tmp_path):
    """The last document of ``train`` does not continue in ``train1``."""
    data = tiny.corpus(tmp_path, train=(2, 2))
    for suffix in ("bin", "idx"):
        for side in ("src", "tgt"):
            part = (data / f"train.src-tgt.{side}.{suffix}").read_bytes()
            (data / f"train1.src-tgt.{side}.{suffix}").write_bytes(part)
    task = task_of(data, *WINDOW, "--window-size", "9")
    task.load_dataset("train", combine=True)
    lengths = [end - first for first, end in task.dataset("train").src.spans]
    assert lengths == [1, 2] * 4


def test_window_size_1_gives_the_examples_of_the_stock_task(binarised):
    """Same tokens, lengths and order; only the blank lines are gone."""
    ours = task_of(binarised, *WINDOW, "--window-size", "1")
    ours.load_dataset("test")
    stock = task_of(binarised, "--task", "translation")
    stock.load_dataset("test")
    view, pairs = ours.dataset("test"), stock.dataset("test")
    rows = [row for row in range(len(pairs)) if pairs.src_sizes[row] > 1]
    assert view.ids.tolist() == rows
    batch = view.collater([view[i] for i in range(len(view))])
    wanted = pairs.collater([pairs[row] for row in rows])
    for key, value in wanted["net_input"].items():
        assert torch.equal(batch["net_input"][key], value)
    assert torch.equal(batch["target"], wanted["target"])
    assert torch.equal(batch["id"], wanted["id"])
    assert batch["ntokens"] == wanted["ntokens"]


@pytest.mark.parametrize("task", [[*WINDOW, "--window-size", "2"], DOCUMENT])
@pytest.mark.parametrize("criterion", ["label_smoothed_cross_entropy", "cross_entropy"])
def test_stock_criterions_and_update_freq(binarised, tmp_path, task, criterion):
    checkpoint = tiny.train(
        binarised,
        tmp_path,
        *[*task, "--criterion", criterion, "--update-freq", "3"],
        updates=3,
    )
    assert checkpoint.exists()


@pytest.mark.parametrize(
    "cases",
    [
        [
            ([*WINDOW, "--loss-on", "last"], "sequential"),
            (WINDOW, "segment"),
            (DOCUMENT, "sequential"),
        ],
        pytest.param([(WINDOW, "sequential"), (DOCUMENT, "segment")], marks=LONG),
    ],
    ids=["some", "others"],
)
def test_validation_bleu_is_over_sentences(binarised, tmp_path, caplog, cases):
    caplog.set_level("INFO")
    for number, (task, decoding) in enumerate(cases):
        caplog.clear()
        tiny.train(
            binarised,
            tmp_path / f"{number}{decoding}",
            *[*task, "--decoding", decoding, "--eval-bleu"],
            *["--eval-bleu-args", '{"beam": 2, "max_len_b": 10}'],
            *["--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"],
            *["--lr", "0.02"],
            updates=40,
        )
        logged = re.findall(r"valid on .valid. subset.* bleu ([\d.]+)", caplog.text)[-1]
        path = tmp_path / f"{number}{decoding}" / "checkpoint_last.pt"
        # Windows are translated after their reference context, or whole.
        search = {
            "sequential": ["--decoding", "sequential", "--gold-context"],
            "segment": ["--decoding", "window"],
        }[decoding]
        said = {
            "sequential": "validation decodes each sentence with the references before it, as ",
            "segment": "validation reads windows one by one: its BLEU is of --decoding window, not",
        }[decoding]
        assert (said in caplog.text) == (task is not DOCUMENT)
        if task is DOCUMENT:
            search = ["--decoding", decoding]
        again = tiny.valid_bleu(binarised, path, *task[:2], *search)
        assert float(logged) == pytest.approx(again, abs=0.011)
        assert again > 1
        state = checkpoint_utils.load_checkpoint_to_cpu(
            str(tmp_path / f"{number}{decoding}" / "checkpoint_best.pt")
        )
        assert state["task_state"]["document_options"]["task"] == task[1]


class Doubled(torch.autograd.Function):
    """Remembers whether autocast is on in its forward and backward pass."""

    on = {}

    @staticmethod
    def forward(ctx, x):
        Doubled.on["forward"] = torch.is_autocast_enabled("cpu")
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        Doubled.on["backward"] = torch.is_autocast_enabled("cpu")
        return 2 * gradient


@pytest.mark.parametrize("flags", [[], ["--amp"]])
@pytest.mark.parametrize("source_length, target_length", [(128, 128), (129, 3), (3, 129)])
def test_automatic_mixed_precision_on_a_cpu(binarised, flags, source_length, target_length):
    """The forward pass alone is in bfloat16; parameters and their gradients are not.

    Attention to short sequences does not use the fused kernel, which is slow in bfloat16.
    """
    task = task_of(binarised, *WINDOW)
    args = ["data", *tiny.MODEL, *tiny.TRAINING, *flags]
    cfg = convert_namespace_to_omegaconf(
        options.parse_args_and_arch(options.get_training_parser(), args)
    )
    model = torch.nn.Linear(3, 2)
    parameters = list(model.parameters())
    wrapper = AMPOptimizer if flags else optim
    optimizer = wrapper.build_optimizer(cfg if flags else cfg.optimizer, parameters)
    model.set_num_updates = lambda _: None
    outputs, fused = [], []

    def criterion(model, sample):
        fused.append(torch.backends.cuda.flash_sdp_enabled())
        outputs.append(model(sample["target"]))
        return Doubled.apply(outputs[0]).float().sum(), 1, {}

    net_input = {
        "src_tokens": torch.ones(4, source_length),
        "prev_output_tokens": torch.ones(4, target_length),
    }
    sample = {"target": torch.ones(4, 3), "net_input": net_input}
    task.train_step(sample, model, criterion, optimizer, update_num=0)
    assert fused == [not flags or max(source_length, target_length) > 128]
    assert torch.backends.cuda.flash_sdp_enabled()
    assert Doubled.on == {"forward": bool(flags), "backward": False}
    assert outputs[0].dtype == (torch.bfloat16 if flags else torch.float32)
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in parameters)


@pytest.mark.parametrize("kind", [WINDOW, DOCUMENT])
def test_documents_begin_with_their_mark(binarised, kind):
    """On both sides of the examples that begin a document, and nowhere else."""
    task = task_of(binarised, *kind, "--mark-document-start")
    task.load_dataset("train")
    view = task.dataset("train")
    marked = {int(start) for start in view.index.starts[:-1]}
    for item, (first, _) in enumerate(view.spans.tolist()):
        for side, words in (("source", task.src_dict), ("target", task.tgt_dict)):
            found = view[item][side].eq(words.index("<bod>")).nonzero().flatten().tolist()
            assert found == ([0] if first in marked else [])


@pytest.mark.parametrize("kind", [[*WINDOW, "--window-size", "1"], DOCUMENT, STREAM])
def test_a_document_begins_with_the_first_sentence_that_is_read(tmp_path, kind):
    """Training and decoding mark the sentence after those that are too long."""
    long = " ".join(["w1"] * 12)
    docs = [[long, "w2 w3", "w4"], ["w5", long, "w6"], [long], [long, long, "w7"], ["w8", "w9"]]
    for split in ("train", "valid", "test"):
        tiny.write_split(tmp_path, split, docs)
        target = tmp_path / f"{split}.tgt"
        target.write_text(target.read_text().replace("v8", long))  # in training alone
    data = tiny.preprocess(tmp_path, ["train", "valid", "test"])
    limits = ["--max-source-positions", "9", "--max-target-positions", "9"]
    task = task_of(data, *kind, "--mark-document-start", *limits)
    task.load_dataset("train")
    view = task.dataset("train")
    first = view.corpus.index.line_ids[view.spans[:, 0]].tolist()
    for side, words in (("source", task.src_dict), ("target", task.tgt_dict)):
        begin = words.index("<bod>")
        marked = [line for item, line in enumerate(first) if view[item][side][0] == begin]
        assert sorted(set(marked)) == [1, 4, 12, 15]
    task.cfg.checkpoint_to_decode = "checkpoint.pt"
    task.load_dataset("test")
    units = map(task.dataset("test").__getitem__, range(len(task.dataset("test"))))
    assert sorted(unit.line_ids[0] for unit in units if unit.at_start) == [1, 4, 12, 14]


@pytest.mark.parametrize("kind", [WINDOW, DOCUMENT])
@pytest.mark.parametrize("most", [7, 10])  # full without the mark
def test_a_shortened_example_with_a_mark_keeps_the_limit(tmp_path, kind, most):
    """Sentences of 3 and 4 tokens fill windows and documents with and without ``<bod>``."""
    docs = [["w1 w2", "w3 w4 w5", "w6 w7", "w1 w2 w3", "w2 w4"]] * 2
    for split in ("train", "valid", "test"):
        tiny.write_split(tmp_path, split, docs)
    data = tiny.preprocess(tmp_path, ["train", "valid", "test"])
    limits = ["--max-source-positions", str(most), "--max-target-positions", str(most)]
    window = ["--window-size", "4"] if kind is WINDOW else []
    task = task_of(data, *kind, *window, "--mark-document-start", *limits)
    task.load_dataset("train")
    view = task.dataset("train")
    longest = max(
        len(view[item][side]) for item in range(len(view)) for side in ("source", "target")
    )
    assert longest == view.sizes.max() <= most


def test_following_sentences_keep_the_size_of_a_batch(binarised):
    task = task_of(binarised, *WINDOW, "--window-size", "1", "--next-sentences", "9")
    task.load_dataset("train")
    whole = task.dataset("train").sizes[:, 0].max()
    most = int(task.dataset("train").corpus.src_sizes.max()) + 3
    assert most < whole
    task.cfg.max_batch_tokens = most
    task.load_dataset("train")
    assert task.dataset("train").sizes[:, 0].max() <= most


@pytest.mark.parametrize("tokenized", [False, True])
def test_the_text_of_validation_bleu(binarised, tokenized):
    """Without BPE; 13a cuts words unless they are tokenized; unknown words do not match."""
    more = ["--eval-tokenized-bleu"] if tokenized else []
    task = task_of(binarised, *WINDOW, "--eval-bleu", "--eval-bleu-remove-bpe", "@@ ", *more)
    one, two, unknown = *(task.tgt_dict.add_symbol(word) for word in ("v@@", "w.")), 3
    target = torch.tensor([[one, two, unknown, task.tgt_dict.eos()]])
    hypothesis = {"tokens": target[0].clone()}
    task.tokenizer, task.validation_bleu._add = None, mock.Mock()
    task.validation_units = lambda sample: sample
    task.inference_step = lambda *args: [[hypothesis]]
    found = task._inference_with_bleu(None, {"id": torch.tensor([0]), "target": target}, None)
    words = 2 if tokenized else 3  # "vw." and "UNKNOWN…", or "vw", "." and "UNKNOWN…"
    assert (found.sys_len, found.counts[0]) == (words, words - 1)


def test_options_of_training_are_in_the_checkpoint(document_checkpoint, window_checkpoint):
    stored = checkpoint_utils.load_checkpoint_to_cpu(str(window_checkpoint))["task_state"]
    assert stored["document_options"]["window_size"] == 3
    stored = checkpoint_utils.load_checkpoint_to_cpu(str(document_checkpoint))["task_state"]
    assert stored["document_options"]["max_document_tokens"] == 20
    assert stored["document_options"]["target_ratio"] == pytest.approx(1.0)


def test_training_continues_once_with_the_options_of_a_checkpoint(
    binarised, window_checkpoint, tmp_path
):
    """``--continue-once`` counts where there is no last checkpoint."""
    once = ["--continue-once", str(window_checkpoint)]
    with pytest.raises(UserError, match="checkpoint_last.pt, .* --window-size 3, not 2; give an"):
        tiny.train(binarised, tmp_path / "a", *WINDOW, *once, "--window-size", "2", updates=70)
    found = tiny.train(binarised, tmp_path / "a", *WINDOW, *once, updates=65)
    stored = checkpoint_utils.load_checkpoint_to_cpu(str(found))["task_state"]
    assert stored["document_options"]["window_size"] == 3
    once[1] = str(tmp_path / "no.pt")
    tiny.train(binarised, tmp_path / "a", *WINDOW, *once, updates=70)
    restored = ["--restore-file", str(window_checkpoint)]
    wanted = tiny.train(binarised, tmp_path / "b", *WINDOW, *restored, updates=70)
    tiny.assert_same_weights(wanted, found)
    with pytest.raises(UserError, match="checkpoint .*no.pt not found"):
        tiny.train(binarised, tmp_path / "c", *WINDOW, *once, updates=70)


def test_contradictions_are_refused_by_name(binarised, window_checkpoint):
    same = [*WINDOW, "--window-size", "3"]
    assert tiny.lines_of(tiny.generate(binarised, window_checkpoint, *same))
    with pytest.raises(UserError, match="--window-size 2 contradicts .* --window-size 3"):
        tiny.generate(binarised, window_checkpoint, *WINDOW, "--window-size", "2")
    with pytest.raises(UserError, match="trained with --task sliding_window_translation"):
        tiny.generate(binarised, window_checkpoint, *DOCUMENT)


def test_ensembles_must_agree(binarised, window_checkpoint, document_checkpoint, tmp_path):
    """Also in Python, where the options of the first checkpoint are not given by anyone."""
    alone = tiny.train(binarised, tmp_path / "a", *WINDOW, "--window-size", "1", updates=2)
    stock = tiny.train(binarised, tmp_path / "b", "--task", "translation", updates=2)
    size = "window-size: number 1 was trained with 3, number 2 with 1; leave one out"
    for other, what in ((alone, size), (stock, size), (document_checkpoint, "task: number 1 was")):
        both, message = f"{window_checkpoint}:{other}", f"^checkpoints of one .* agree in --{what}"
        with pytest.raises(UserError, match=message):
            tiny.generate(binarised, both, *WINDOW)
        with pytest.raises(UserError, match=message):
            DocumentTranslator.from_pretrained(both)
    DocumentTranslator.from_pretrained(f"{alone}:{stock}")


@pytest.mark.parametrize(
    "start, arch, task",
    [
        ("translation", "transformer", [*WINDOW, "--window-size", "2"]),
        pytest.param("translation", "lstm", DOCUMENT, marks=LONG),
        ("sliding_window_translation", "transformer", DOCUMENT),
        ("sliding_window_translation", "lstm", [*WINDOW, "--window-size", "2"]),
    ],
)
def test_finetuning_from_a_sentence_level_checkpoint(binarised, tmp_path, task, arch, start):
    model = {"transformer": tiny.MODEL, "lstm": tiny.RECURRENT_MODEL}[arch]
    level = ["--window-size", "1"] if start != "translation" else []
    sentence = tiny.train(
        binarised, tmp_path / "a", "--task", start, *level, model=model, updates=5
    )
    document = tiny.train(
        binarised,
        tmp_path / "b",
        *[*task, "--finetune-from-model", str(sentence), "--lr", "1e-9"],
        updates=1,
        model=model,
    )
    old, new = (
        checkpoint_utils.load_checkpoint_to_cpu(str(c))["model"] for c in (sentence, document)
    )
    name = "decoder.embed_tokens.weight"
    assert len(new[name]) - len(old[name]) == (2 if start == "translation" else 0)
    words = len(new[name]) - len(DOCUMENT_SYMBOLS)
    torch.testing.assert_close(new[name][:words], old[name][:words], atol=1e-6, rtol=0)


def test_a_stock_checkpoint_is_decoded_as_sentence_level(binarised, tmp_path):
    stock = tiny.train(binarised, tmp_path, "--task", "translation", updates=5)
    output = tiny.generate(binarised, stock, *WINDOW)
    assert sorted(tiny.lines_of(output)) == tiny.rows_of(tiny.documents((1, 5, 2, 7), 2))


@pytest.mark.long
def test_recurrent_stock_models_decode_windows(binarised, tmp_path):
    """These models cannot read prefixes in parallel, so rows are decoded one by one."""
    model = tiny.train(
        binarised,
        tmp_path,
        *[*WINDOW, "--window-size", "2"],
        updates=5,
        model=tiny.RECURRENT_MODEL,
    )
    for decoding in ("sequential", "window"):
        found = [
            tiny.lines_of(tiny.generate(binarised, model, *WINDOW, "--decoding", decoding, *extra))
            for extra in ([], ["--batch-size", "1"])
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize(
    "model", [tiny.MODEL, pytest.param(tiny.rfa(), marks=LONG)], ids=["transformer", "rfa"]
)
def test_training_resumes(binarised, tmp_path, model):
    """The same dropout masks and random matrices are drawn after resuming."""
    arguments = [*WINDOW, "--window-size", "2", "--max-tokens", "30", "--dropout", "0.1"]
    whole = tiny.train(binarised, tmp_path / "whole", *arguments, updates=20, model=model)
    tiny.train(binarised, tmp_path / "parts", *arguments, updates=7, model=model)
    parts = tiny.train(binarised, tmp_path / "parts", *arguments, updates=20, model=model)
    tiny.assert_same_weights(whole, parts)


@pytest.mark.parametrize(
    "task, other, message",
    [
        (
            [*WINDOW, "--window-size", "2"],
            ["--max-tokens", "50"],
            "with --max-tokens 30, not 50, which would leave sentences out",
        ),
        (DOCUMENT, ["--batch-size", "1"], "with --batch-size None, not 1"),
        pytest.param(DOCUMENT, ["--seed", "7"], "with --seed 1, not 7", marks=LONG),
    ],
)
def test_other_batches_are_for_another_epoch(binarised, tmp_path, task, other, message):
    """Within an epoch other batches would skip sentences; between epochs they are allowed."""
    arguments = [*task, "--max-tokens", "30"]
    tiny.train(binarised, tmp_path, *arguments, updates=2)
    with pytest.raises(UserError, match=message):
        tiny.train(binarised, tmp_path, *arguments, *other, updates=4)
    tiny.train(binarised, tmp_path, *arguments, "--max-epoch", "1", updates=99)
    path = tiny.train(binarised, tmp_path, *arguments, *other, "--max-epoch", "2", updates=99)
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    assert state["extra_state"]["train_iterator"]["epoch"] == 3


def test_two_processes(binarised, tmp_path):
    """Data parallel on CPU, uneven shards, several micro-batches per update."""
    arguments = [*WINDOW, "--max-tokens", "40", "--max-epoch", "2", "--update-freq", "2"]
    logs = tiny.train_in_processes(binarised, tmp_path, *arguments, "--log-interval", "1")
    assert "done training" in logs[0] + logs[1]


def test_a_warning_names_sentences_that_are_longer_than_a_batch(binarised, tmp_path, caplog):
    tiny.train(binarised, tmp_path, *WINDOW, "--max-tokens", "5", "--disable-validation", updates=2)
    assert re.search(
        r"train.src-tgt: line \d+ has more than 5 source or 5 target tokens; \d+ such", caplog.text
    )
