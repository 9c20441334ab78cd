"""Standard streams of commands: UTF-8 in any locale, and a quiet end when no reader is left."""

import os
import subprocess
import sys

import pytest
import tiny

MODULES = [tiny.ROOT / "fairseq_docmt" / "_standard_streams.py"]
MODULES += [tiny.ROOT / "data_prep" / "standard_streams.py"]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def run(module, code, text=b"", reader="cat", **environment):
    """Run code after a module; return the output of a reader, and the errors and status."""
    code = f"import runpy; runpy.run_path({str(module)!r}); {code}"
    return subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" | {reader}; exit ${{PIPESTATUS[0]}}', sys.executable, code],
        input=text,
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
        capture_output=True,
    )


def test_both_modules_are_equal():
    """Their docstrings differ, and the copy ends by saying that it is no command."""
    ours, copy = (path.read_text(encoding="utf-8").split('"""', 2)[2] for path in MODULES)
    assert ours == copy.split('\n\nif __name__ == "__main__":')[0]


@pytest.mark.parametrize("text", ["ü 我\n".encode(), b"\xff\n"])
def test_ascii_streams_become_utf8(text):
    """Bytes that are not UTF-8 pass through, as the C locale of Python lets them."""
    code = "import sys; line = sys.stdin.readline(); print(len(line), line, end='')"
    done = run(MODULES[0], code, text, **ASCII)
    length = len(text.decode("utf-8", "surrogateescape"))
    assert done.stdout == f"{length} ".encode() + text, done.stderr


@pytest.mark.parametrize(
    "code, status",
    [
        ("import time; time.sleep(0.2); print(1)", 0),  # written when the program ends
        ("import time; time.sleep(0.2); [print(n) for n in range(100_000)]", 1),
    ],
)
def test_a_reader_that_leaves_is_no_error(code, status):
    done = run(MODULES[0], code, reader="true")
    assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence():
    done = run(MODULES[0], "print(1)", reader="cat > /dev/null", PYTHONUNBUFFERED="1")
    assert (done.returncode, done.stderr) == (0, b"")
    command = f"import runpy, sys; runpy.run_path({str(MODULES[0])!r}); print(1, flush=True)"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", command], stdout=full, stderr=subprocess.PIPE)
    said = b"error: the output cannot be written: No space left on device\n"
    assert done.returncode == 1 and done.stderr.startswith(said)
    done = run(MODULES[0], "raise OSError(28, 'No space', 'a.txt')")
    assert done.returncode == 1 and b"Traceback" in done.stderr


def test_other_broken_pipes_are_shown():
    done = run(MODULES[0], "raise BrokenPipeError('of another program')")
    assert done.returncode == 1
    assert b"BrokenPipeError: of another program" in done.stderr


def test_scripts_and_the_package_use_them():
    folder = tiny.ROOT / "data_prep"
    shown = f"import sys; sys.path.insert(0, {str(folder)!r}); import check_documents; "
    shown += "print(sys.stdout.encoding)"
    done = subprocess.run(
        [sys.executable, "-c", shown], env={**os.environ, **ASCII}, capture_output=True, text=True
    )
    assert done.stdout == "utf-8\n", done.stderr
    import fairseq_docmt

    assert hasattr(fairseq_docmt, "_standard_streams")
