"""Palaver in processes of its own: gateways, and people who talk to them through pipes."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.forkserver import start_module

PATIENCE = 180.0


def run_on_full_disk(kilobytes: int, *args: str, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    """The command where no file can grow further."""
    process = start_module(
        *("tests.cli.full_disk", str(kilobytes), *args),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    out, complaints = process.communicate(timeout=PATIENCE)
    return subprocess.CompletedProcess(args, process.returncode, out, complaints)


class Place:
    """A data directory and a configuration, and the processes that use them; those are ended with the test."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self._config = folder / "config.yaml"
        self._started: list[subprocess.Popen[str]] = []
        self.variables: dict[str, str] = {}
        """Further variables of the environment."""
        self.configure("")

    def configure(self, text: str) -> None:
        self._config.write_text(text)

    @property
    def environment(self) -> dict[str, str]:
        usual = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER")}
        return usual | {
            "PALAVER_HOME": str(self.home),
            "PALAVER_CONFIG": str(self._config),
            "PROMPT_TOOLKIT_NO_CPR": "1",
            "TERM": "xterm",
            **self.variables,
        }

    def start(self, *args: str, stdin: int = subprocess.PIPE) -> "subprocess.Popen[str]":
        process = start_module(
            "palaver",
            *args,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=self._config.parent / "..",
        )
        self._started.append(process)
        return process

    def run(self, *args: str, says: str = "") -> "subprocess.CompletedProcess[str]":
        process = self.start(*args)
        out, complaints = process.communicate(says, timeout=PATIENCE)
        return subprocess.CompletedProcess(args, process.returncode, out, complaints)

    def up(self) -> "subprocess.Popen[str]":
        """A gateway that is ready to be talked to."""
        process = self.start("up", stdin=subprocess.DEVNULL)
        read_until(process, "serving an account")
        until(lambda: any(self.home.glob("terminal-*.sock")))
        return process

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """What the process complains until it says that."""
    assert process.stderr
    heard, end = "", time.monotonic() + PATIENCE
    while words not in heard:
        ready, _, _ = select.select([process.stderr], [], [], max(0.0, end - time.monotonic()))
        assert ready, f"{words!r} was not said, but: {heard}"
        more = os.read(process.stderr.fileno(), 65536).decode()
        assert more, f"it ended, having said: {heard}"
        heard += more
    return heard


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def ended(process: "subprocess.Popen[str]", how: signal.Signals) -> int:
    """Ends it, and gives its exit code."""
    process.send_signal(how)
    return process.wait(PATIENCE)
