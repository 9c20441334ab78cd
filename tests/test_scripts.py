"""Scripts of examples/: their help."""

import runpy
import sys

import pytest
import tiny

SCRIPTS = sorted(tiny.ROOT.glob("examples/**/*.py"))
#: modules beside scripts, of which several folders have one of the same name
SHARED = ("benchmark", "common", "fused_attention")


@pytest.fixture
def as_command(monkeypatch, tmp_path):
    """Run a script with arguments, in this process and an empty folder."""

    def run(path, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
        for name in SHARED:
            sys.modules.pop(name, None)
        try:
            runpy.run_path(str(path), run_name="__main__")
        finally:
            for name in SHARED:
                sys.modules.pop(name, None)

    return run


@pytest.mark.parametrize(
    "path", SCRIPTS, ids=lambda path: str(path.relative_to(tiny.ROOT / "examples"))
)
def test_a_script_has_help_or_says_that_it_is_no_command(path, as_command, capsys, tmp_path):
    with pytest.raises(SystemExit) as end:
        as_command(path, "--help")
    shown = capsys.readouterr().out
    if end.value.code:
        message = f"error: {path.name} is no command; examples/{{}}/README.md lists the commands"
        folder = path.relative_to(tiny.ROOT / "examples").parts[0]
        assert end.value.code == message.format(folder)
    else:
        assert shown.startswith("usage: ") and "    python " in shown
        assert "(default: None)" not in shown and "(default: False)" not in shown
    assert not list(tmp_path.iterdir())
