"""Count operations and synchronisations of an update and of a decoding step.

    python benchmark.py --out FOLDER

On a GPU, every operation is a kernel launch, and every value that Python reads makes it wait for
the GPU.  Both can be counted on a CPU: operations that compute something (views are free), and
those whose result decides what Python does next.  Models are small and in double precision, so that
no kernel of CPUs takes part, and window attention is that of GPUs; the counts depend on the number
of layers, not on their width.  An update is forward, loss and backward of a batch of documents,
without the optimizer; a step is one call of the decoder for all beams after the order of the beams
has changed.  Writes ``results.md``.
"""

import inspect
import sys
from collections import Counter
from pathlib import Path
from typing import Dict, List

import fairseq_docmt  # noqa: F401  (registers architectures; before fairseq, which logs)

# isort: split
import torch
from fairseq import options
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from tabulate import tabulate
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_docmt.data import add_document_symbols
from fairseq_docmt.modules.window import window_layers
from fairseq_docmt.ops.window_attention import fused_window_attention

sys.path.append(str(Path(__file__).resolve().parent.parent))
from common import SMALL, invented_dictionary, make_folder, new_parser  # noqa: E402

WIDTH = ["64" if option in ("256", "512") else option for option in SMALL]
RECURRENT = "--encoder-embed-dim 32 --decoder-embed-dim 32 --encoder-hidden-size 32".split()
RECURRENT += "--decoder-hidden-size 32 --attention-dim 32".split()
BASE = "transformer"
SYSTEMS: Dict[str, List[str]] = {
    BASE: [*WIDTH],
    "rfa_transformer": [*WIDTH],
    "rfa_transformer --sentence-gate decay": [*WIDTH],
    "window_attn_transformer": [*WIDTH],
    "lst_transformer": [*WIDTH],
    "g_transformer": [*WIDTH],
    "memory_transformer": [*WIDTH],
    "han_transformer": [*WIDTH],
    "multi_encoder_transformer": [*WIDTH],
    "rnnsearch": RECURRENT,
    "cache_rnn": RECURRENT,
    "context_rnn": RECURRENT,
}
#: operations whose result Python reads, or whose size depends on values
WAITS = (
    "_local_scalar_dense",
    "equal",
    "nonzero",
    "masked_select",
    "is_nonzero",
    "unique",
    "_unique2",
)
#: operations that launch nothing: they read a value, reserve memory, or view a result anew
WITHOUT_KERNEL = (
    "_local_scalar_dense",
    "_unsafe_view",
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
)
LANES, CHUNK, LENGTH, BEAMS, STEPS = 4, 4, 16, 4, 8


class Counting(TorchDispatchMode):
    """Counts the operations that run within the context."""

    def __init__(self):
        super().__init__()
        self.launches, self.waits = 0, Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        aliases = [r.alias_info is not None for r in function._schema.returns]
        writes = any(
            a.alias_info is not None and a.alias_info.is_write for a in function._schema.arguments
        )
        if name in WAITS or _reads_sizes(function, args):
            self.waits[name] += 1
        if name not in WITHOUT_KERNEL and (writes or not all(aliases)):
            self.launches += 1
        return result


def _reads_sizes(function, args) -> bool:
    """Whether the size of the result depends on the values of an argument."""
    name = str(function)
    if name == "aten.repeat_interleave.Tensor":
        return True
    if name in ("aten.index.Tensor", "aten._unsafe_index.Tensor"):
        return any(x is not None and x.dtype == torch.bool for x in args[1])
    return False


def build(name: str, sizes: List[str]):
    """Return a small model with random weights, and its dictionary."""
    dictionary = invented_dictionary(100)
    add_document_symbols(dictionary)
    command = ["data", "--arch", *name.split(), *sizes, "--dropout", "0.1"]
    args = options.parse_args_and_arch(options.get_training_parser(), command)
    torch.manual_seed(1)
    task = TranslationTask(TranslationConfig(), dictionary, dictionary)
    return task.build_model(args).double(), dictionary


def batch(model, dictionary, rows: int) -> dict:
    """Return sentences of documents in lanes; for models without a state, documents as rows."""
    words = torch.randint(10, 90, (rows, LENGTH))
    words[:, 7] = dictionary.index("<sep>")
    words[:, -1] = dictionary.eos()
    words[0, -3:] = torch.tensor([dictionary.eos(), dictionary.pad(), dictionary.pad()])
    previous = torch.cat([torch.full((rows, 1), dictionary.eos()), words[:, :-1]], dim=1)
    sample = {"src_tokens": words, "src_lengths": words.ne(dictionary.pad()).sum(1)}
    sample["prev_output_tokens"] = previous.masked_fill(
        words.eq(dictionary.pad()), dictionary.pad()
    )
    if "starts" in inspect.signature(model.forward).parameters:
        starts = torch.arange(rows) < LANES
        sample.update(starts=starts, lanes=min(LANES, rows))
    return sample


def count_update(model, dictionary) -> Counting:
    """Count what an update does."""
    sample = batch(model.train(), dictionary, LANES * CHUNK)
    for again in (True, False):  # tables of positions are made in the first update
        with Counting() as counting:
            logits = model(**sample)[0]
            target = sample["src_tokens"].flatten()
            torch.nn.functional.cross_entropy(logits.flatten(0, -2), target).backward()
        if not again:
            return counting


@torch.no_grad()
def count_step(model, dictionary) -> Counting:
    """Count what a decoding step does, on average over some steps."""
    sample = batch(model.eval(), dictionary, LANES)
    tokens = sample.pop("prev_output_tokens").repeat_interleave(BEAMS, 0)[:, :1]
    encoded = model.encoder(**sample)
    order = torch.arange(LANES).repeat_interleave(BEAMS)
    encoded, state = model.encoder.reorder_encoder_out(encoded, order), {}
    counting = Counting()
    for step in range(2 * STEPS):
        words = torch.randint(10, 90, (LANES * BEAMS, 1))
        moved = torch.arange(LANES * BEAMS).view(LANES, BEAMS).flip(1).flatten()
        if step < STEPS:
            model.decoder(tokens, encoder_out=encoded, incremental_state=state)
        else:
            with counting:
                model.decoder.reorder_incremental_state_scripting(state, moved)
                model.decoder(tokens, encoder_out=encoded, incremental_state=state)
        tokens = torch.cat([tokens, words], dim=1)
    return counting


def table() -> str:
    """Return the results of all systems."""
    rows = []
    for name, sizes in SYSTEMS.items():
        model, dictionary = build(name, sizes)
        update, step = count_update(model, dictionary), count_step(model, dictionary)
        waits = sum(step.waits.values()) / STEPS
        rows.append(
            [name, update.launches, sum(update.waits.values()), step.launches / STEPS, waits]
        )
        print(name, dict(update.waits), dict(step.waits), file=sys.stderr)
    heads = [
        "system",
        "operations of an update",
        "waits",
        "operations of a step",
        "waits of a step",
    ]
    return tabulate(rows, heads, tablefmt="pipe", floatfmt=".1f")


def main() -> None:
    """Run the program."""
    parser = new_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    window_layers.window_attention = fused_window_attention
    make_folder(args.out)
    found = table()
    print(found)
    (args.out / "results.md").write_text(found + "\n")


if __name__ == "__main__":
    main()
