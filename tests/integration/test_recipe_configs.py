"""Configurations of recipes set what their commands set: examples/*/config/.

Comments of ``system/*.yaml`` list overrides for other systems and corpora, as ``#     news: ...``.
What the commands set is compared with the tables of the recipes in ``test_recipe_settings.py``.
"""

import functools
import re
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple, Tuple

import pytest
import recipes
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models.transformer import TransformerConfig
from hydra.core.global_hydra import GlobalHydra
from hydra.experimental import compose, initialize_config_dir
from long_tests import long_but_for
from omegaconf import OmegaConf, open_dict

from fairseq_docmt.models.interface import complete_in_place

#: configurations of systems that have no file of their own
OTHERS = {"feng2022_memory source": "both", "feng2022_memory target": "both"}
FILES = [path for path in recipes.EXAMPLES.glob("*/config/system/*.yaml")]
RUNS = [
    run
    for run in recipes.RUNS
    if run.script.endswith("/train.sh") and (recipes.EXAMPLES / run.recipe / "config").exists()
]
#: one of each recipe; all are composed in a second or less, but there are many
FIRST = list({run.recipe: run for run in reversed(RUNS)}.values())
#: files and folders
PLACES = {"user_dir", "save_dir", "data", "drafts", "sentence_lm"}
GROUPS = ["common", "distributed_training", "dataset", "optimization", "checkpoint", "ema", "task"]
GROUPS += ["criterion", "optimizer", "lr_scheduler"]


class Configuration(NamedTuple):
    """File of a system with overrides."""

    file: Path
    overrides: Tuple[str, ...]

    @property
    def recipe(self) -> str:
        """Folder of the recipe."""
        return self.file.parents[2].name

    def __str__(self):
        return " ".join([self.recipe, self.file.stem, *self.overrides])


def labels(file: Path) -> dict:
    """Overrides by label in the comments of a configuration."""
    found = re.findall(r"^#     (?:size )?([\w-]+): (.+)$", file.read_text(), flags=re.M)
    return {label: overrides.split() for label, overrides in found}


def configuration(run: recipes.Run) -> Configuration:
    """The configuration of a run of a recipe."""
    folder = recipes.EXAMPLES / run.recipe / "config" / "system"
    names = [path.stem for path in folder.glob("*.yaml") if run.system.startswith(path.stem)]
    own = max(names, key=len, default=OTHERS.get(f"{run.recipe} {run.system}"))
    file = folder / f"{own}.yaml"
    rest = run.system[len(own) :].lstrip(":-") if names else run.system
    wanted = [rest, run.corpus]
    known = labels(file)
    return Configuration(file, tuple(word for label in wanted for word in known.get(label, [])))


@functools.lru_cache(maxsize=None)
def composed(config: Configuration) -> dict:
    """Options as fairseq-hydra-train has them."""
    name = config.recipe.split("_")[0]
    hydra_init(name)
    GlobalHydra.instance().clear()
    given = [f"system={config.file.stem}", "common.user_dir=USER_DIR", "task.data=DATA"]
    with initialize_config_dir(config_dir=str(config.file.parent.parent)):
        cfg = compose(name, overrides=[*given, *config.overrides])
    add_defaults(cfg)
    return _completed(cfg)


@functools.lru_cache(maxsize=None)
def of_flags(*arguments: str) -> dict:
    """Options as fairseq-train has them."""
    args = recipes.parse("fairseq-train", list(arguments))
    return _completed(convert_namespace_to_omegaconf(args))


def _completed(cfg) -> dict:
    model = cfg.model
    with open_dict(cfg):
        cfg.model = None
    found = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    if OmegaConf.is_config(model):
        model = OmegaConf.create(OmegaConf.to_container(model, resolve=True, enum_to_str=True))
    complete_in_place(model, Namespace(**found["task"]))
    found["model"] = _options_of_transformer(model)
    return found


def _options_of_transformer(model) -> dict:
    """Options of a model; of a stock transformer only those that it reads."""
    if model._name.startswith("transformer"):
        from fairseq.models import ARCH_CONFIG_REGISTRY

        ARCH_CONFIG_REGISTRY[model._name](model)
        return {"_name": model._name, **asdict(TransformerConfig.from_namespace(model))}
    return dict(model)


def as_dict(group) -> dict:
    return vars(group) if isinstance(group, Namespace) else dict(group)


@pytest.mark.parametrize("run", long_but_for(FIRST, RUNS), ids=str)
def test_a_configuration_sets_what_the_command_sets(run):
    (call,) = (call for call in run.calls() if call.program == "fairseq-train")
    wanted, found = of_flags(*call.arguments), composed(configuration(run))
    wrong = []
    for group in (*GROUPS, "model"):
        here, there = as_dict(found[group]), as_dict(wanted[group])
        for name in here.keys() - PLACES:
            if here[name] != there.get(name):
                wrong.append(f"{group}.{name} is {here[name]!r}, not {there.get(name)!r}")
        if not isinstance(wanted[group], Namespace):
            wrong += [f"{group}.{name} is missing" for name in there.keys() - here.keys()]
    assert not wrong, f"{configuration(run)}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parents[2].name} {file.stem}")
def test_every_line_of_a_configuration_is_about_a_run(file):
    used = [configuration(run) for run in RUNS if configuration(run).file == file]
    assert used
    for label, overrides in labels(file).items():
        assert any(set(overrides) <= set(config.overrides) for config in used), label


def test_every_paper_has_configurations():
    papers = {path.parent.name for path in recipes.EXAMPLES.glob("*/settings.tsv")}
    assert papers == {Configuration(file, ()).recipe for file in FILES}
