"""Shell commands of the documentation, run in bash as they stand, at toy size.

Importing torch and fairseq costs far more than a toy command.  So ``python`` and fairseq's commands
are small programs here that ask a server to run them; it has imported everything and forks for each
command, which then has its caller's files, folder and environment.
"""

import array
import contextlib
import gc
import importlib
import json
import logging
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Dict, List, Sequence

import tiny
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

PROGRAMS = {
    "fairseq-train": "fairseq_cli.train",
    "fairseq-hydra-train": "fairseq_cli.hydra_train",
    "fairseq-generate": "fairseq_cli.generate",
    "fairseq-interactive": "fairseq_cli.interactive",
    "fairseq-preprocess": "fairseq_cli.preprocess",
    "fairseq-docmt": "fairseq_docmt.command_line",
    "sacrebleu": "sacrebleu.sacrebleu",
}
#: what commands import later; the first takes longest
IMPORTED = ["torch._dynamo", "fairseq_docmt.generation"]
IMPORTED += [
    f"fairseq_docmt.scoring.{name}" for name in ("corpus.metrics", "report.command", "context.cxmi")
]
COPIED = ("examples", "data_prep")
#: options of GPUs, which no test has
LEFT_OUT = {"--fp16", "--fp16-no-flatten-grads"}
TRANSFORMER = "encoder-layers 1 decoder-layers 1 encoder-embed-dim 16 decoder-embed-dim 16 "
TRANSFORMER += "encoder-ffn-embed-dim 32 decoder-ffn-embed-dim 32 encoder-attention-heads 2 "
TRANSFORMER += "decoder-attention-heads 2 warmup-updates 1"
GROUPS = "encoder-context-layers 1 decoder-context-layers 1 cross-context-layers 1"
RECURRENT = "encoder-embed-dim 12 decoder-embed-dim 12 encoder-hidden-size 8 "
RECURRENT += "decoder-hidden-size 8 attention-dim 8"
#: the same for sizes, by the beginning of the architecture's name
SIZES = {
    **dict.fromkeys(("rnnsearch", "cache_rnn", "memnet_rnn", "context_rnn"), RECURRENT),
    "lstm_lm": "",
    "g_transformer": f"{TRANSFORMER} {GROUPS}",
    "": TRANSFORMER,
}
DECODING = "cpu num-workers 0 beam 2 max-len-a 0 max-len-b 6"
#: options that come last on a command line, and so make it small
SMALL = {
    "fairseq-train": "cpu num-workers 0 max-update 2 log-interval 1",
    "fairseq-generate": DECODING,
    "fairseq-interactive": DECODING,
    "make_data.py": "train-documents 12 valid-documents 3 test-documents 3",
}
#: overrides that make a configuration with a transformer small
OVERRIDES = [
    *["common.cpu=true", "++dataset.num_workers=0", "++optimization.max_update=2"],
    *[f"++model.{side}_layers=1" for side in ("encoder", "decoder")],
    *["++model.encoder_embed_dim=16", "++model.encoder_ffn_embed_dim=32"],
]
CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
call = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(server, [len(call).to_bytes(8, "big")], [0, 1, 2])
server.sendall(call)
status = server.recv(1)
sys.exit(status[0] if status else 1)
"""


class Shell:
    """Runs shell commands in a copy of the project's scripts.

    Args:
        folder: folder to make; ``checkout`` in it is the top of the copy.
        small: options that make commands small, by command; besides :data:`SMALL`.
    """

    def __init__(self, folder: Path, small: Dict[str, str] = {}):  # noqa: B006
        self.top, self._programs = folder / "checkout", folder / "bin"
        for name in COPIED:
            shutil.copytree(
                tiny.ROOT / name,
                self.top / name,
                ignore=shutil.ignore_patterns("work", "__pycache__", "*.png", "*.svg"),
            )
        (self.top / "fairseq_docmt").symlink_to(tiny.USER_DIR)
        self._small = {name: _options(text) for name, text in {**SMALL, **small}.items()}
        self._programs.mkdir()
        address = str(folder / "server")
        for name in ("python", *PROGRAMS):
            program = self._programs / name
            program.write_text(CLIENT.format(python=sys.executable, address=address))
            program.chmod(0o755)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen()
        self._server = os.fork()
        if self._server == 0:
            try:
                self._serve()
            finally:
                os._exit(1)  # never return into the tests of the parent
        self._listener.close()  # so that commands fail, not wait, once the server has ended

    def close(self) -> None:
        """Stop the server."""
        os.kill(self._server, signal.SIGKILL)
        os.waitpid(self._server, 0)

    def run(self, text: str, folder: str = ".", **environment: str) -> subprocess.CompletedProcess:
        """Run commands in bash, which stops at the first that fails.

        Args:
            text: commands.
            folder: folder to run in, from the top of the copy.
            **environment: more variables.
        """
        path = f"{self._programs}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", text],
            cwd=self.top / folder,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(tiny.ROOT), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )

    # ---- in the server ---------------------------------------------------------------------------

    def _serve(self) -> None:
        for module in (*PROGRAMS.values(), *IMPORTED):
            importlib.import_module(module)
        _compose_options()
        gc.freeze()  # so that memory stays shared
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            caller, _ = self._listener.accept()
            if os.fork() == 0:
                self._answer(caller)
            caller.close()

    def _answer(self, caller: socket.socket) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._listener.close()
        length, files, *_ = socket.recv_fds(caller, 8, 3)
        call = b""
        while len(call) < int.from_bytes(length, "big"):
            call += caller.recv(1 << 16)
        arguments, folder, environment = json.loads(call)
        for number, file in enumerate(array.array("i", files)):
            os.dup2(file, number)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        status = self._status(arguments)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        caller.sendall(bytes([status]))
        os._exit(0)

    def _status(self, arguments: List[str]) -> int:
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)
            for number, mode in enumerate(("r", "w", "w"))
        )
        sys.executable = str(self._programs / "python")
        logging.root.handlers.clear()
        logging.disable(logging.NOTSET)
        warnings.simplefilter("ignore")
        try:
            self._run(Path(arguments[0]).name, arguments[1:])
        except SystemExit as stop:
            if isinstance(stop.code, str):
                print(stop.code, file=sys.stderr)
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            return 1
        return 0

    def _run(self, program: str, arguments: Sequence[str]) -> None:
        if program == "python":
            self._run_python(arguments)
            return
        if program in ("fairseq-train", "fairseq-interactive"):
            logging.basicConfig(stream=sys.stdout, level="INFO", format="%(name)s | %(message)s")
        given = [a for a in arguments if a not in LEFT_OUT]
        given = [tiny.USER_DIR if a == "fairseq_docmt" else a for a in given]
        sys.argv = [program, *given, *self._small.get(program, [])]
        if "--sampling" in given:
            sys.argv += ["--beam", "1"]
        if program == "fairseq-hydra-train":
            sys.argv += OVERRIDES
        if "--arch" in given:
            arch = given[given.index("--arch") + 1]
            beginning = next(name for name in SIZES if arch.startswith(name))
            sys.argv += _options(SIZES[beginning])
        module = sys.modules[PROGRAMS[program]]
        (getattr(module, "cli_main", None) or module.main)()

    def _run_python(self, arguments: Sequence[str]) -> None:
        while arguments[0] in ("-W", "-u"):
            arguments = arguments[2 if arguments[0] == "-W" else 1 :]
        kind, *rest = arguments
        if kind == "-c":
            sys.argv = ["-c", *rest[1:]]
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        elif kind == "-m":
            name, *rest = rest
            program = next((p for p, module in PROGRAMS.items() if module == name), None)
            if program:
                self._run(program, rest)
                return
            sys.argv = [name, *rest]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(kind).resolve().parent))
            sys.argv = [kind, *rest, *self._small.get(Path(kind).name, [])]
            runpy.run_path(kind, run_name="__main__")


def _compose_options() -> None:
    """Let hydra do once what it keeps for later commands."""
    arguments = ["data", "--user-dir", tiny.USER_DIR, "--task", "sliding_window_translation"]
    training = [*tiny.MODEL, "--optimizer", "adam", "--criterion", "label_smoothed_cross_entropy"]
    for parser, more in (
        (options.get_training_parser(), training),
        (options.get_generation_parser(), ["--path", "checkpoint"]),
    ):
        args = options.parse_args_and_arch(parser, [*arguments, *more])
        convert_namespace_to_omegaconf(args)


def _options(text: str) -> List[str]:
    """Options without their dashes as a command line has them."""
    return [word if word.isdigit() else f"--{word}" for word in text.split()]
