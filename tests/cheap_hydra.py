"""Compose the options of a command in a tenth of the time of hydra.

In a tiny command, hydra would take longer than all else: it puts the same default values together
each time, and sets some 290 options, nearly all of them to the same values.
"""

import contextlib
import copy
import functools
import inspect
from typing import Dict, List, Optional, Tuple
from unittest import mock

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf


@contextlib.contextmanager
def cheap_hydra():
    """Keep what hydra has parsed and composed."""
    compose, parse = hydra.compose, OverridesParser.parse_rule
    # Hydra looks for its caller, but not at the source code of all callers.
    stack = functools.partial(inspect.stack, 0)
    defaults: Dict[tuple, DictConfig] = {}
    earlier: Dict[tuple, Tuple[DictConfig, List[str]]] = {}

    @functools.lru_cache(maxsize=None)
    def parsed(text, rule):
        return parse(OverridesParser.create(), text, rule)

    def parse_once(_, text, rule):
        return parsed(text, rule)

    def refer(self, delegate):
        # What is registered is only read; the list of sources is made anew for each command.
        self.delegate, self.cache = copy.copy(delegate), {}

    def compose_once(
        config_name: str,
        overrides: List[str],
        return_hydra_config: bool = False,
        strict: Optional[bool] = None,
    ) -> DictConfig:
        """Change those options of an earlier command that have other values."""
        assert not return_hydra_config
        choices = [override for override in overrides if _is_choice(override)]
        key = (_folders(), config_name, *choices)
        if key not in defaults:
            defaults[key] = compose(config_name, choices)
        options = [override for override in overrides if not _is_choice(override)]
        names = tuple(option.split("=")[0] for option in options)
        if (key, names) not in earlier:
            earlier[key, names] = _changed(defaults[key], options), options
        cfg, before = earlier[key, names]
        cfg = _changed(cfg, [now for now, then in zip(options, before) if now != then])
        if strict is not None:
            OmegaConf.set_struct(cfg, strict)
        return cfg

    with contextlib.ExitStack() as patches:
        for holder, name, cheap in (
            (OverridesParser, "parse_rule", parse_once),
            (CachingConfigRepository, "__init__", refer),
            (hydra, "compose", compose_once),
            (inspect, "stack", stack),
        ):
            patches.enter_context(mock.patch.object(holder, name, cheap))
        yield


def _folders() -> str:
    return str(GlobalHydra.instance().config_loader().get_search_path().get_path())


def _is_choice(override: str) -> bool:
    """Whether it is like ``task=translation``, not like ``task.data=DATA``.

    Dictionaries are always kept apart, because they are added to what an option has.
    """
    name, _, value = override.partition("=")
    return "." not in name or value.startswith("{")


def _changed(cfg: DictConfig, overrides: List[str]) -> DictConfig:
    cfg = copy.deepcopy(cfg)
    changes = OverridesParser.create().parse_overrides(overrides)
    ConfigLoaderImpl._apply_overrides_to_config(changes, cfg)
    return cfg
