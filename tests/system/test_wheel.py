"""The package trains, decodes and scores where only its wheel is installed."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import tiny
from system.try_installation import try_installation

PACKAGE = Path(tiny.USER_DIR)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """Archive of the sources, built from a copy so that the checkout stays clean."""
    copy = tmp_path_factory.mktemp("copy")
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=tiny.ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, files.stdout.decode().split("\0")):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((tiny.ROOT / name).read_bytes())
    build = "from setuptools import build_meta; build_meta.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True)
    (archive,) = (copy / "dist").iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """Function that builds a wheel from the archive, with or without a compiler."""

    def build(compiler: bool) -> Path:
        folder = tmp_path_factory.mktemp("wheel")
        pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", sdist]
        environment = {} if compiler else {"CC": "false", "CXX": "false"}
        subprocess.run(
            [*pip, "-w", folder],
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
        )
        (made,) = folder.iterdir()
        return made

    return build


def environment_with(wheel: Path, folder: Path) -> Path:
    """Make an environment with the wheel, which finds its requirements where this one has them.

    A checkout that is installed here in place is not found there, as .pth files of other folders
    are not read.
    """
    venv.create(folder, symlinks=True, with_pip=False)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    Path(site, "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    options = ["--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*pip, "install", *options, wheel], check=True, capture_output=True)
    return folder / "bin" / "python"


@pytest.mark.system
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "no kernels"])
def test_a_wheel_is_all_that_is_needed(wheel, tmp_path, kernels):
    python = environment_with(wheel(compiler=kernels), tmp_path / "environment")
    print(try_installation(str(python), kernels))


@pytest.mark.system
def test_the_wheel_has_all_files_of_the_package(sdist, wheel):
    wanted = {
        path.relative_to(tiny.ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in (".py", ".cpp", ".html", ".js")
    }
    with zipfile.ZipFile(wheel(compiler=False)) as archive:
        names = set(archive.namelist())
    assert wanted <= names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {PACKAGE.name}
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted | {"setup.py", "README.md", "LICENSE"} <= sources
