"""A stand-in for Modal's Python library: as much of its documented interface as the back end uses.

A sandbox is a folder on this machine, below the folder in MODAL_STAND_IN, where what it was made with is recorded.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

__all__ = ["App", "Image", "Sandbox", "Volume", "exception"]

_CLOUD = Path(os.environ["MODAL_STAND_IN"])


class _Error(Exception): ...


class _NotFoundError(_Error): ...


exception = SimpleNamespace(Error=_Error, NotFoundError=_NotFoundError)


class App:
    @staticmethod
    def lookup(name: str, *, create_if_missing: bool = False) -> str:
        if "MODAL_TOKEN_ID" not in os.environ:
            raise _Error("Token missing.")
        return f"app {name} {create_if_missing}"


class Image:
    @staticmethod
    def from_registry(tag: str) -> str:
        return f"image {tag}"


class Volume:
    @staticmethod
    def from_name(name: str, *, create_if_missing: bool = False) -> str:
        return f"volume {name} {create_if_missing}"


class _Writer:
    """Takes what it is given only when it is drained, as the real one does."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._held, self._is_over = pipe, b"", False

    def write(self, data: bytes) -> None:
        self._held += data

    def write_eof(self) -> None:
        self._is_over = True

    def drain(self) -> None:
        self._pipe.write(self._held)
        self._pipe.flush()
        self._held = b""
        if self._is_over:
            self._pipe.close()


def _pieces(pipe: IO[bytes]) -> Iterator[bytes]:
    while piece := os.read(pipe.fileno(), 3):
        yield piece


class _Process:
    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process = process
        self.stdin = _Writer(process.stdin)
        self.stdout, self.stderr = _pieces(process.stdout), _pieces(process.stderr)

    def wait(self) -> int:
        return self._process.wait()


class Sandbox:
    def __init__(self, name: str, env: dict[str, str]) -> None:
        self._folder, self._env = _CLOUD / name, env

    @classmethod
    def create(cls, *, name: str, env: dict[str, str], **wanted: Any) -> "Sandbox":
        (_CLOUD / name).mkdir()
        (_CLOUD / f"{name}.json").write_text(json.dumps(wanted | {"env": env}))
        return cls(name, env)

    @classmethod
    def from_name(cls, app_name: str, name: str) -> "Sandbox":
        if not (_CLOUD / name).is_dir():
            raise _NotFoundError(f"{app_name} has no {name}")
        return cls(name, {})

    def exec(self, *args: str, text: bool, pty: bool) -> _Process:
        assert not text
        inside = [str(self._folder) if arg == "/workspace" else arg for arg in args]
        environment = {"PATH": os.environ["PATH"], "PTY": str(pty), **self._env}
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            inside, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
        )
        (self._folder / "pid").write_text(str(process.pid))
        return _Process(process)

    def terminate(self) -> None:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.killpg(int((self._folder / "pid").read_text()), signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)
