"""The options of a command are those that hydra composes."""

import sys

import fairseq.dataclass.utils
import hydra
import omegaconf
import pytest
import tiny
from fairseq import options
from fairseq.dataclass.initialize import add_defaults
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

WINDOW = ["--task", "sliding_window_translation"]
STREAM = ["--task", "sentence_stream_translation"]
#: commands after each other, which differ in values, in tasks or in models
COMMANDS = [
    [*WINDOW, *tiny.MODEL, "--lr", "0.3", "--seed", "5", "--save-dir", "a folder"],
    [*WINDOW, *tiny.MODEL, "--adam-betas", "(0.1, 0.2)"],
    [*WINDOW, *tiny.MODEL, "--criterion", "cross_entropy"],
    [*STREAM, *tiny.memory(), "--lr", "0.1,0.2", "-s", "de", "-t", "en", "--tokenizer", "moses"],
    [*STREAM, *tiny.cache(), "--eval-bleu-args", '{"beam": 2}'],
]


def composed(arguments) -> dict:
    command = ["data", "--user-dir", tiny.USER_DIR, "--optimizer", "adam", *arguments]
    args = options.parse_args_and_arch(options.get_training_parser(), command)
    cfg = convert_namespace_to_omegaconf(args)
    add_defaults(cfg)
    return {
        name: OmegaConf.to_container(group) if OmegaConf.is_config(group) else group
        for name, group in cfg.items()
    }


def test_options_are_those_of_hydra(monkeypatch):
    found = [composed(arguments) for arguments in COMMANDS + COMMANDS[::-1]]
    monkeypatch.setattr(hydra, "compose", sys.modules["hydra.compose"].compose)
    monkeypatch.setattr(fairseq.dataclass.utils, "OmegaConf", OmegaConf)
    ensure_container = omegaconf._utils._ensure_container
    monkeypatch.setattr(omegaconf.omegaconf, "_ensure_container", ensure_container)
    wanted = [composed(arguments) for arguments in COMMANDS]
    assert found == wanted + wanted[::-1]
    assert all(one != other for one, other in zip(wanted, wanted[1:]))


def test_an_unknown_option_is_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("task:\n  data: DATA\n")
    with hydra.initialize_config_dir(config_dir=str(tmp_path)):
        assert hydra.compose("config", ["task.data=other"]).task.data == "other"
        with pytest.raises(Exception, match="nothing"):
            hydra.compose("config", ["task.nothing=1"])
