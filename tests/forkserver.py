"""`python -m module` in a fork of a process that has imported Palaver, which costs a sixth of a new interpreter.

What was forked is a process like any other: it has a pid, a session, a folder, an environment, streams, signals and an
exit code of its own. A test about how a process starts (imports, closed streams, limits) uses `subprocess` instead.
"""

import atexit
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["start_module", "start_server"]

ROOT = Path(__file__).parents[1]
IMPORTED = (
    *("palaver.cli.main", "palaver.cli.gateway_client", "palaver.cli.up", "palaver.cli.chat", "palaver.cli.doctor"),
    *("palaver.gateway.metrics", "palaver.web.server", "typer._adapters"),
    *("palaver.db.postgres", "palaver.platforms.relayed.adapter", "palaver.testkit.adapter", "palaver.testkit.socket"),
    *("httpcore2", "anyio._backends._asyncio"),
)
"""What most commands and gateways import, the last two with their first request; each imports the rest itself."""
ORDER_LIMIT = 1 << 17
NUMBER = 4
"""Bytes of a pid or of a wait status."""


@dataclass(frozen=True, kw_only=True)
class Order:
    module: str
    args: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    new_session: bool


# The server


def _serve(orders: socket.socket) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in IMPORTED:
        import_module(name)
    echo: Any = import_module("tests.echo")
    echo.answer_with(echo.EchoAgentConfig())
    gc.collect()
    gc.freeze()
    while True:
        order, files, _, _ = socket.recv_fds(orders, ORDER_LIMIT, 4)
        if not order:
            return
        if os.fork() == 0:
            orders.detach()
            _look_after(Order(**json.loads(order)), files)
            return
        for file in files:
            os.close(file)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _look_after(order: Order, files: Sequence[int]) -> None:
    """Start the process, and report its pid and how it ends: only a parent hears of that."""
    *streams, report = files
    pid = os.fork()
    if pid == 0:
        _become(order, streams)
        return
    for stream in streams:
        os.close(stream)
    os.write(report, pid.to_bytes(NUMBER, "little"))
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(report, status.to_bytes(NUMBER, "little"))
    os._exit(0)


def _become(order: Order, streams: Sequence[int]) -> None:
    """Do what a new interpreter does. What the module raises goes up to the interpreter, which ends as usual."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if order.new_session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(len(streams), os.sysconf("SC_OPEN_MAX"))
    os.chdir(order.cwd)
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _open_stream(number, like=getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv[1:] = order.args
    sys.path[0] = order.cwd
    code: Any = 0
    try:
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            raise
    _leave(code)


def _leave(code: int) -> None:
    """End as an interpreter does, but free nothing: to copy every page of the server takes 75 ms of the processor."""
    threads: Any = threading
    threads._shutdown()
    functions: Any = atexit
    functions._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError as error:
            sys.stderr.write(f"Exception ignored in: {stream!r}\n{type(error).__name__}: {error}\n")
            code = 120
    os._exit(code)


def _open_stream(number: int, like: Any) -> io.TextIOWrapper:
    mode, is_buffered = "wb" if number else "rb", not like.write_through
    file: Any = open(number, mode, buffering=-1 if is_buffered or not number else 0, closefd=False)  # noqa: SIM115
    is_by_line = is_buffered and (file.isatty() or like is sys.stderr)
    return io.TextIOWrapper(file, like.encoding, like.errors, line_buffering=is_by_line, write_through=not is_buffered)


# The test


def start_module(module: str, *args: str, **options: Any) -> "subprocess.Popen[str]":
    """`Popen([sys.executable, "-m", module, *args], text=True)`, forked unless a variable speaks to the interpreter."""
    if _for_interpreter(options.get("env") or os.environ) == _for_interpreter(_ENVIRONMENT):
        return _Forked(module, *args, **options)
    return subprocess.Popen([sys.executable, "-m", module, *args], text=True, **options)


_ENVIRONMENT = dict(os.environ)


def _for_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


@cache
def start_server() -> socket.socket:
    """Where orders go to: to one server for this process and all that are forked from it, which ends with them."""
    orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        number = theirs.fileno()
        command = [sys.executable, "-m", "tests.forkserver", str(number)]
        options: dict[str, Any] = {"cwd": ROOT, "env": _ENVIRONMENT, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(command, pass_fds=[number], **options)
    atexit.register(_end, orders, process)
    return orders


def _end(orders: socket.socket, process: "subprocess.Popen[Any]") -> None:
    orders.close()
    process.wait()


class _Forked(subprocess.Popen[str]):
    def __init__(self, module: str, *args: str, **options: Any) -> None:
        self._module = module
        super().__init__(args, text=True, **options)

    def _execute_child(self, args: Sequence[str], *options: Any) -> None:
        """Start the process: here `Popen` itself forks and executes."""
        _, _, _, _, cwd, env, _, _, _, *pipes = options[:15]
        order = Order(
            module=self._module,
            args=args,
            cwd=os.path.realpath(cwd or "."),
            environment=dict(env or os.environ),
            new_session=options[-2],
        )
        streams = [number if pipe < 0 else pipe for number, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        self._reports, report = os.pipe()
        socket.send_fds(start_server(), [json.dumps(asdict(order)).encode()], [*streams, report])
        os.close(report)
        self.pid = self._read_report()
        popen: Any = self
        popen._child_created = True
        popen._close_pipe_fds(*pipes)

    def _read_report(self) -> int:
        found = os.read(self._reports, NUMBER)
        assert found, "the fork server is gone"
        return int.from_bytes(found, "little")

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._reports], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(self._read_report())
            os.close(self._reports)
        return self.returncode

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
