"""Options and tasks that had another name in version 0.1.

Covers ``RENAMED_OPTIONS`` and ``RENAMED_TASKS`` of checkpoint_file.py.
"""

import dataclasses

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY

from fairseq_docmt.checkpoint_file import RENAMED_OPTIONS, read_checkpoint
from fairseq_docmt.generation import DocumentTranslator

DOCUMENT = ["w1 w2 w3", "w4 w5", "w6 w1 w7 w2", "w2"]


@pytest.fixture
def stored_as(memory_stream_checkpoint, tmp_path):
    """Return a function that stores a memory transformer with other options."""

    def stored(change):
        state = torch.load(memory_stream_checkpoint, map_location="cpu", weights_only=False)
        change(state["cfg"]["model"])
        torch.save(state, tmp_path / "earlier.pt")
        return tmp_path / "earlier.pt"

    return stored


def likelihoods(path, **options):
    translator = DocumentTranslator.from_pretrained(path, **options)
    best = translator.translate_nbest([DOCUMENT], 1, beam=2)
    return [hypotheses[0] for hypotheses in best[0]]


def today(model):
    model["no_context"] = True


def before(model):
    del model["no_context"]
    model.update(forget_memory=True, memory_side=model.pop("context_side"))


def test_a_model_of_before_is_read(stored_as):
    found, wanted = likelihoods(stored_as(before)), likelihoods(stored_as(today))
    assert found == wanted != likelihoods(stored_as(lambda model: None))


def test_commands_see_the_names_of_today(stored_as):
    options = read_checkpoint(str(stored_as(before))).settings["model"]
    assert options["no_context"] and options["context_side"] == "both"
    assert not options.keys() & RENAMED_OPTIONS["memory_transformer"].keys()


@pytest.mark.parametrize("model", RENAMED_OPTIONS)
def test_new_names_are_options_and_old_ones_are_not(model):
    options = {field.name for field in dataclasses.fields(MODEL_DATACLASS_REGISTRY[model])}
    assert options.issuperset(RENAMED_OPTIONS[model].values())
    assert options.isdisjoint(RENAMED_OPTIONS[model])


def test_memory_networks_had_another_task(memnet_rows_checkpoint, tmp_path):
    """Options that the stored task lacks follow fairseq's options, as in the commands."""
    wanted = likelihoods(memnet_rows_checkpoint, decoding="iterative")
    state = torch.load(memnet_rows_checkpoint, map_location="cpu", weights_only=False)
    state["cfg"]["task"]["_name"] = "full_document_translation"
    for name in ("batch_size", "lr", "checkpoint_suffix"):
        del state["cfg"]["task"][name]
    torch.save(state, tmp_path / "earlier.pt")
    assert likelihoods(tmp_path / "earlier.pt", decoding="iterative") == wanted
