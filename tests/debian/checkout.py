"""A checkout on a fresh Debian with only python3, venv and make: `make run` twice, a model server, and `make test`."""

import fcntl
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.agents.fake_provider import provided
from tests.debian.versions import ROOT

__all__ = ["PACKAGES", "SUBSET", "USERS", "Checkout", "Measured"]

PACKAGES = "python3,python3-venv,make"
SUBSET = (
    "tests/agents",
    "tests/cli/test_setup.py",
    "tests/platforms/irc",
    "tests/processes",
    "tests/web/test_pages.py",
)
"""Tests with and without programs and rights, for a busy machine."""
_USER, _USER_ID = "somebody", 1000
_HOMES = {_USER: f"/home/{_USER}", "root": "/root"}
USERS = tuple(_HOMES)
_PASSED_ON = ("PIP_", "UV_", "NPM_CONFIG_", "NODE_EXTRA_", "SSL_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_OLLAMA_PORT = 11434
_MAX_SHOWN = 6000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_MOUNT = """
for folder in /dev /dev/pts /etc/resolv.conf /etc/hosts {binds}; do
  if test -d $folder; then mkdir -p {root}$folder; else mkdir -p {root}${{folder%/*}} && touch {root}$folder; fi
  mount --bind $folder {root}$folder
done
mount --bind {cache} {root}{home}/.cache
mount -t proc proc {root}/proc
mount -t tmpfs shm {root}/dev/shm
exec chroot --userspec={user} {root} /usr/bin/env -i "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    name: str
    result: str
    wall: float
    processor: float
    """Seconds of user and system time together."""


@dataclass(kw_only=True)
class Checkout:
    base: Path
    """A fresh Debian with `PACKAGES`, which is copied."""
    folder: Path
    cache: Path
    """What pip, uv and npm keep between runs, as on a machine that has installed something before."""
    binds: Sequence[str]
    """Paths of this machine that are there too, such as certificates."""
    tell: Callable[[Measured], None]
    steps: list[Measured] = field(default_factory=list[Measured])

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def prepare(self) -> None:
        subprocess.run(["cp", "-a", "--reflink=auto", str(self.base), str(self.root)], check=True)
        with (self.root / "etc/passwd").open("a") as users:
            users.write(f"{_USER}:x:{_USER_ID}:{_USER_ID}::/home/{_USER}:/bin/sh\n")
        with (self.root / "etc/group").open("a") as groups:
            groups.write(f"{_USER}:x:{_USER_ID}:\n")
        names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        for user, home in _HOMES.items():
            target = self.root / home.removeprefix("/") / "palaver"
            target.mkdir(parents=True)
            packed = subprocess.run(
                ["tar", "--create", "--null", "--files-from=-"], cwd=ROOT, input=names, check=True, capture_output=True
            )
            subprocess.run(["tar", "--extract", "--no-same-owner"], cwd=target, input=packed.stdout, check=True)
            (target.parent / ".cache").mkdir()
            (self.cache / user).mkdir(parents=True, exist_ok=True)
            if user == _USER:
                owned = [str(target.parent), str(self.cache / user)]
                subprocess.run(["chown", "-R", f"{_USER_ID}:{_USER_ID}", *owned], check=True)

    def run_first(self) -> None:
        """Fill the caches, then begin again."""
        self._run("make run, nothing cached", "hello", "I am Palaver's guide")
        self._forget()
        self._run("make run, with the packages cached", "hello", "I am Palaver's guide")
        self._run("make run, the second time", "hello", "I am Palaver's guide")

    def _forget(self) -> None:
        for name in ("palaver/.venv", ".palaver", ".local", ".config"):
            shutil.rmtree(self.root / "root" / name, ignore_errors=True)
        for each in (self.root / "root/palaver").rglob("__pycache__"):
            shutil.rmtree(each)

    def run_with_server(self) -> None:
        """A model server listens at its usual port, in a network of its own."""
        self._run(
            "make run, with a model server and a yes",
            "y\nhello",
            "openai:small answers from now on",
            "answer ",
            alone=True,
        )

    def test(self, user: str, tests: Sequence[str]) -> None:
        """Run `make test`, which ends with 0 and names what it left out."""
        self._step(f"make test as {user}", ["make", "test", f"ARGS=--color=no {' '.join(tests)}"], user=user)

    # Steps

    def _run(self, name: str, said: str, *expected: str, alone: bool = False) -> None:
        output = self._step(name, ["make", "run"], said=f"{said}\n", alone=alone)
        assert all(each in output for each in expected), output

    def _step(
        self, name: str, command: Sequence[str], *, user: str = "root", said: str = "", alone: bool = False
    ) -> str:
        before, start = _processor_time(), time.monotonic()
        place = ["unshare", "--net", sys.executable, "-m", __name__, *self._enter(user)] if alone else self._enter(user)
        log = self.folder.parent / f"{re.sub('[^a-z]+', '-', name)}.log"
        with log.open("w") as shown:
            process = subprocess.Popen(
                [*place, *command], cwd=ROOT, stdin=subprocess.PIPE, stdout=shown, stderr=shown, text=True
            )
            process.communicate(said)
        output = log.read_text(errors="replace")
        if process.returncode:
            ended = f"{name}: {' '.join(command)} ended with {process.returncode}"
            raise SystemExit(f"{ended}\n{output[-_MAX_SHOWN:]}\nAll of it: {log}")
        wall, processor = time.monotonic() - start, _processor_time() - before
        self.steps.append(Measured(name=name, result=_last(output), wall=wall, processor=processor))
        self.tell(self.steps[-1])
        return output

    def _enter(self, user: str) -> list[str]:
        """Return the beginning of a command in the checkout of a user, whose processes end with it."""
        home = _HOMES[user]
        script = _MOUNT.format(
            root=self.root, binds=" ".join(self.binds), cache=self.cache / user, home=home, user=user
        )
        variables = {name: text for name, text in os.environ.items() if name.upper().startswith(_PASSED_ON)}
        variables |= {"HOME": home, "USER": user, "PATH": f"/usr/local/bin:{os.defpath}", "LANG": "C.UTF-8"}
        settings = [f"{name}={text}" for name, text in variables.items()]
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", script, "sh"]
        return [*inside, f"--chdir={home}/palaver", *settings]


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _last(output: str) -> str:
    """Return the last line that says something, for the table."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" =")]
    return lines[-1][:160] if lines else ""


# In a network of its own


def _main() -> int:
    """Run a command beside a model server, in a network that has only loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        _, flags = struct.unpack("16sH14x", fcntl.ioctl(control, _SIOCGIFFLAGS, request))
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
    with provided(models=("small",), port=_OLLAMA_PORT):
        return subprocess.run(sys.argv[1:], check=False).returncode


if __name__ == "__main__":
    sys.exit(_main())
