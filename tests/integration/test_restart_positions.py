"""``--restart-positions`` in training, and in the commands that read its checkpoints."""

import pytest
import tiny
from fairseq import checkpoint_utils
from long_tests import LONG

from fairseq_docmt.errors import UserError

WINDOWS = ["--task", "sliding_window_translation", "--window-size", "3"]
DOCUMENTS = ["--task", "full_document_translation", "--max-document-tokens", "60"]


@pytest.mark.parametrize(
    "task, model",
    [
        pytest.param(WINDOWS, tiny.MODEL, marks=LONG),
        pytest.param(WINDOWS, tiny.group(), marks=LONG),
        pytest.param(DOCUMENTS, tiny.MODEL, marks=LONG),
        (DOCUMENTS, tiny.group()),
    ],
    ids=["transformer-windows", "group-windows", "transformer-documents", "group-documents"],
)
def test_checkpoints_keep_it(binarised, tmp_path, task, model):
    """Training resumes with it, and it decides how the stock command decodes."""
    tiny.train(binarised, tmp_path, *task, "--restart-positions", model=model, updates=2)
    path = tiny.train(binarised, tmp_path, *task, model=model, updates=4)
    (loaded,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    assert loaded.encoder.restarts_positions and loaded.decoder.restarts_positions

    def scores():
        return tiny.scores_of(tiny.generate(binarised, path, *task[:2], "--score-reference"))

    with_it = scores()
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    state["task_state"]["document_options"]["restart_positions"] = False
    checkpoint_utils.torch_persistent_save(state, str(path))
    without = scores()
    assert with_it.keys() == without.keys()
    assert sum(score != without[row] for row, score in with_it.items()) > len(with_it) / 2


@pytest.mark.parametrize(
    "model, arch",
    [(tiny.rnnsearch(), "rnnsearch"), (tiny.window(), "window_attn_transformer")],
    ids=["rnnsearch", "window"],
)
def test_models_without_positions_refuse_it(binarised, tmp_path, model, arch):
    with pytest.raises(UserError, match=f"--restart-positions: --arch {arch} has no positional"):
        tiny.train(binarised, tmp_path, *WINDOWS, "--restart-positions", model=model, updates=1)
