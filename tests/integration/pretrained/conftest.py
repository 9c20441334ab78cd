"""Fixtures: documents, models of fairseq's multilingual tasks, and models that start from them."""

import pytest
import tiny
from pretrained import FINETUNED, STOCK, own, repaired_stock_tasks


@pytest.fixture(scope="module", autouse=True)
def stock_tasks():
    """Repair fairseq's multilingual tasks."""
    with repaired_stock_tasks():
        yield


@pytest.fixture(scope="module")
def data(made_once):
    """Documents with one dictionary; their sentences without blank lines for fairseq's tasks."""

    def build(folder):
        for seed, (split, lengths) in enumerate(
            (("train", (4, 1, 6, 9, 9)), ("valid", (3, 1)), ("test", (1, 4, 2)))
        ):
            tiny.write_split(folder, split, tiny.documents(lengths, seed))
        tiny.preprocess(folder, ["train", "valid", "test"], "--joined-dictionary")
        (folder / "sentences").mkdir()
        for path in [*folder.glob("*.src"), *folder.glob("*.tgt")]:
            lines = [line for line in path.read_text().splitlines() if line]
            (folder / "sentences" / path.name).write_text("\n".join(lines) + "\n")
        dictionary = str(folder / "bin" / "dict.src.txt")
        words = ["--srcdict", dictionary, "--joined-dictionary"]
        tiny.preprocess(folder / "sentences", ["train", "valid", "test"], *words)

    return made_once("pretrained", build)


@pytest.fixture(scope="module")
def stock(data, made_once):
    """Return a function that trains a model with fairseq's task."""

    def make(kind):
        _, task, model = STOCK[kind]

        def build(folder):
            options = [*task, "--lr", "0.01", "--required-batch-size-multiple", "1"]
            sentences = data / "sentences" / "bin"
            tiny.train(sentences, folder, *options, updates=60, model=model)

        return made_once(("stock", kind), build) / "checkpoint_last.pt"

    return make


@pytest.fixture(scope="module")
def finetuned(data, stock, made_once):
    """Return a function that trains a document model from the pre-trained one."""

    def make(kind, task, arch=None, *further, updates=25):
        model = STOCK[kind][2] if arch is None else own(arch, kind)

        def build(folder):
            start = ["--finetune-from-model", str(stock(kind)), "--lr", "0.01"]
            options = [*FINETUNED[task], *start, *further]
            tiny.train(data / "bin", folder, *options, updates=updates, model=model)

        key = ("finetuned", kind, task, arch, further, updates)
        return made_once(key, build) / "checkpoint_last.pt"

    return make
