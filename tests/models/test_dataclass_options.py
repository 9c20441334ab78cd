"""Options of models as dataclasses.

``python tests/models/test_dataclass_options.py`` writes the defaults that are compared with here.
"""

import json
from argparse import Namespace
from dataclasses import fields
from pathlib import Path

import pytest
from fairseq import options
from fairseq.models import (
    ARCH_MODEL_INV_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
)
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from omegaconf import OmegaConf

import fairseq_docmt  # noqa: F401  registers the models
from fairseq_docmt.models.base import name_of, with_defaults
from fairseq_docmt.models.interface import complete_in_place

OWN = sorted(
    name
    for name, config in MODEL_DATACLASS_REGISTRY.items()
    if config.__module__.startswith("fairseq_docmt.")
)
POSITIONS = Namespace(max_source_positions=70, max_target_positions=80)
DEFAULTS = Path(__file__).with_name("defaults.json")


def flags(arch: str) -> set:
    """Names of the model's flags."""
    parser = options.get_training_parser()
    before = {action.dest for action in parser._actions}
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    return {action.dest for action in parser._actions} - before


def test_all_own_models_have_one():
    own = {m for m in ARCH_MODEL_REGISTRY.values() if m.__module__.startswith("fairseq_docmt.")}
    assert {ARCH_MODEL_REGISTRY[name] for name in OWN} == own


@pytest.mark.parametrize("name", OWN)
def test_options_are_those_of_the_flags(name):
    config = MODEL_DATACLASS_REGISTRY[name]
    assert {option.name for option in fields(config)} - {"_name"} == flags(name)


@pytest.mark.parametrize("name", OWN)
def test_defaults_are_those_of_the_architecture(name):
    """An option without a default gets one from the architecture, or the task."""
    config, model = MODEL_DATACLASS_REGISTRY[name], ARCH_MODEL_REGISTRY[name]
    decided = Namespace()
    model.architecture(decided)
    found = with_defaults(OmegaConf.structured(config()), model.architecture)
    assert vars(decided).items() <= vars(found).items()
    kept = set(vars(found)) - set(vars(decided)) - {"_name"}
    assert all(getattr(config(), option) == getattr(found, option) for option in kept)


def defaults() -> dict:
    """Return the options of each architecture, of its variants those that differ, and of tasks."""
    found = {}
    for name in OWN:
        for arch in [name, *sorted(set(ARCH_MODEL_INV_REGISTRY[name]) - {name})]:
            cfg = OmegaConf.create({"_name": arch})
            complete_in_place(cfg, POSITIONS)
            values = {key: str(value) for key, value in sorted(cfg.items()) if key != "_name"}
            known = found.get(name, {})
            found[arch] = {k: v for k, v in values.items() if known.get(k) != v}
    for name, config in sorted(TASK_DATACLASS_REGISTRY.items()):
        if TASK_REGISTRY[name].__module__.startswith("fairseq_docmt."):
            values = {option.name: getattr(config(), option.name) for option in fields(config)}
            found[name] = {key: str(value) for key, value in sorted(values.items())}
    return found


def test_no_default_has_changed():
    message = "if options were added, run python tests/models/test_dataclass_options.py"
    assert defaults() == json.loads(DEFAULTS.read_text()), message


@pytest.mark.parametrize(
    "cfg, width",
    [
        ({"_name": "rfa_transformer"}, 2048),
        ({"_name": "rfa_transformer_iwslt"}, 1024),
        ({"_name": "rfa_transformer_iwslt", "encoder_ffn_embed_dim": None}, 1024),
        ({"_name": "rfa_transformer_iwslt", "encoder_ffn_embed_dim": 8}, 8),
    ],
)
@pytest.mark.parametrize("kind", [OmegaConf.create, lambda values: Namespace(**values)])
def test_a_variant_sets_what_is_not_given(cfg, width, kind):
    architecture = ARCH_MODEL_REGISTRY["rfa_transformer"].architecture
    assert with_defaults(kind(cfg), architecture).encoder_ffn_embed_dim == width


def test_one_option_follows_another():
    architecture = ARCH_MODEL_REGISTRY["lst_transformer"].architecture
    cfg = OmegaConf.create({"_name": "lst_transformer", "encoder_embed_dim": 24})
    assert with_defaults(cfg, architecture).decoder_embed_dim == 24


def test_a_configuration_is_completed():
    cfg = OmegaConf.create({"_name": "rfa_transformer_iwslt", "max_target_positions": 9})
    OmegaConf.set_struct(cfg, True)
    complete_in_place(cfg, POSITIONS)
    assert (cfg.max_source_positions, cfg.max_target_positions) == (70, 9)
    assert (cfg.encoder_ffn_embed_dim, cfg.sentence_gate) == (1024, "none")
    assert OmegaConf.is_struct(cfg)


@pytest.mark.parametrize("name", ["transformer", "transformer_iwslt_de_en", "lstm"])
def test_a_model_of_fairseq_gets_the_positions_of_the_task(name):
    cfg = OmegaConf.create({"_name": name})
    complete_in_place(cfg, POSITIONS)
    assert cfg == {"_name": name, **vars(POSITIONS)}


def test_a_recurrent_model_has_no_positions():
    cfg = OmegaConf.create({"_name": "rnnsearch"})
    complete_in_place(cfg, POSITIONS)
    assert "max_source_positions" not in cfg


def test_names():
    assert name_of(Namespace(arch="a")) == "a"
    assert name_of(OmegaConf.create({"_name": "b"})) == "b"


if __name__ == "__main__":
    DEFAULTS.write_text(json.dumps(defaults(), indent=1) + "\n")
