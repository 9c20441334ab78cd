"""Options of models as dataclasses, which ``fairseq-train`` and ``fairseq-hydra-train`` read.

fairseq's transformer has a nested dataclass (``encoder.layers``) and reads options by the names of
flags (``encoder_layers``).  Here all options have the names of flags.  An option that is not given
is None, so that an architecture function finds out what to set, with both commands.
"""

import contextlib
from argparse import Namespace
from dataclasses import Field, field, fields, make_dataclass
from typing import Callable, Iterator, List, Optional, Tuple

from fairseq.dataclass import FairseqDataclass
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
)
from omegaconf import OmegaConf, open_dict

#: options with the same flag in tasks and models
POSITIONS = ("max_source_positions", "max_target_positions")
#: options that fairseq splits at commas, although it declares them as lists
COMMA_SEPARATED = ("encoder_layers_to_keep", "decoder_layers_to_keep")


def options_dataclass(architecture: Callable, *configs: type) -> type:
    """Return a dataclass with the options of several, by the names of their flags.

    Args:
        architecture: function that sets the missing options of a namespace, which are None by
            default.
        configs: dataclasses; the options of nested ones are prefixed with the field's name.
    """
    decided = Namespace()
    architecture(decided)
    found = {}
    for config in configs:
        found.update({option: (kind, old) for option, kind, old in _flat(config)})
    made: List[tuple] = []
    for option, (kind, old) in found.items():
        if hasattr(decided, option) or option in POSITIONS:
            made.append((option, Optional[kind], field(default=None, metadata=old.metadata)))
        else:
            made.append((option, kind, field(default=old.default, metadata=old.metadata)))
    name = architecture.__name__
    namespace = {"__module__": __name__, "__doc__": f"All options of ``{name}``."}
    return make_dataclass(f"{name}_options", made, bases=(FairseqDataclass,), namespace=namespace)


def _flat(config: type, prefix: str = "") -> Iterator[Tuple[str, type, Field]]:
    for option in fields(config):
        flag = prefix + option.name
        if isinstance(option.type, type) and issubclass(option.type, FairseqDataclass):
            yield from _flat(option.type, f"{flag}_")
        elif option.name != "_name" and not _follows_another(option):
            yield flag, str if flag in COMMA_SEPARATED else option.type, option


def _follows_another(option: Field) -> bool:
    """Return whether an option has no flag and always has the value of another option."""
    return str(option.default).startswith("${") and "help" not in option.metadata


def name_of(cfg) -> str:
    """Return the name of the architecture in the configuration of a model."""
    return getattr(cfg, "_name", None) or getattr(cfg, "arch", None)


def with_defaults(cfg, architecture: Callable) -> Namespace:
    """Return the options of a model, completed by its architecture.

    Args:
        cfg: options by name; what is None is not given. ``_name`` may be a variant.
        architecture: architecture function of the model.
    """
    if OmegaConf.is_config(cfg):
        values = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    else:
        values = vars(cfg)
    args = Namespace(**{option: value for option, value in values.items() if value is not None})
    variant = ARCH_CONFIG_REGISTRY.get(getattr(args, "_name", None))
    if variant is not None:
        variant(args)
    architecture(args)
    return args


def complete_in_place(cfg, task_cfg) -> None:
    """Write the options that are not given into the configuration of a new model.

    Checkpoints then have all of them.  With ``fairseq-train``, a task and its model have the same
    maximum numbers of positions; those of the task are also the defaults here.
    """
    name = name_of(cfg)
    model = ARCH_MODEL_REGISTRY.get(name)
    config = MODEL_DATACLASS_REGISTRY.get(ARCH_MODEL_NAME_REGISTRY.get(name))
    typed = OmegaConf.is_config(cfg)
    with open_dict(cfg) if typed else contextlib.nullcontext():
        for option in POSITIONS:
            has_it = config is None or option in config.__dataclass_fields__
            if has_it and getattr(cfg, option, None) is None:
                setattr(cfg, option, getattr(task_cfg, option))
        if typed and hasattr(model, "architecture"):
            for option, value in vars(with_defaults(cfg, model.architecture)).items():
                cfg[option] = value
