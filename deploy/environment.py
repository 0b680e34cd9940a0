"""Make the environment of `make run`: `environment.py FOLDER EXTRAS`, with nothing but the standard library.

uv takes a tenth of pip's time. It does not read pip's configuration: where it fails, pip does the work.
"""

import fcntl
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

BEGAN = time.monotonic()
CONSTRAINTS = "constraints.txt"
LOCK = ".make-lock"
"""Another name than uv's own lock of an environment, `.lock`, for which uv waits."""
SOURCES = (Path("pyproject.toml"), Path(CONSTRAINTS), Path(__file__))
_UNREACHED = re.compile(
    r"ConnectionError|ConnectTimeout|NameResolution|ProxyError|SSLError|Max retries|Connection refused|"
    r"Failed to establish|Network is unreachable|resolve host|dns error|Failed to fetch|Could not connect|"
    r"tcp connect error",
    re.IGNORECASE,
)
_PACKAGE = re.compile(r" [-+~] ")
"""How uv lists what it has installed."""
INTERRUPTED = 130


class Stopped(Exception):
    """The environment cannot be made: the sentence says why."""


def say(words: str) -> None:
    print(f"{words} ({time.monotonic() - BEGAN:.0f} s)", file=sys.stderr, flush=True)


def main(folder: Path, extras: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as lock:
        take(lock)
        stamp, python = folder / ".run", folder / "bin/python"
        if python.exists() and stamp.exists() and stamp.stat().st_mtime >= max(map(modified, SOURCES)):
            return  # another make has done it meanwhile
        make_environment(folder, python)
        install(python, extras)
        stamp.touch()
    say("Installed")


def modified(file: Path) -> float:
    return file.stat().st_mtime


def take(lock: TextIO) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("Another make is setting up this environment; waiting for it")
        fcntl.flock(lock, fcntl.LOCK_EX)


def make_environment(folder: Path, python: Path) -> None:
    if python.exists() and run(python, "-c", "import pip").returncode == 0:
        return
    say(f"Making the environment {folder}, once")
    if run(sys.executable, "-c", "import ensurepip, venv").returncode:
        raise Stopped(
            f"{sys.executable} cannot make environments. On Debian and Ubuntu, run: sudo apt install python3-venv"
        )
    made = run(sys.executable, "-m", "venv", folder)
    if made.returncode:
        raise Stopped(f"The environment {folder} cannot be made: {last_line(made.stdout)}")


def install(python: Path, extras: str) -> None:
    uv = shutil.which("uv") or str(python.with_name("uv"))
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-c", CONSTRAINTS]
    if not Path(uv).exists():
        say("Step 1 of 2: getting uv, which installs packages")
        require_index(run(*pip, "--quiet", "--no-compile", "uv"))
    say("Step 2 of 2: installing Palaver, its window and the clients of OpenAI, Anthropic and Google: 60 packages")
    why = "it could not be installed"
    if Path(uv).exists():
        done = show(uv, "pip", "install", "--python", python, "-c", CONSTRAINTS, "-e", f".{extras}")
        if done.returncode == 0:
            return
        why = last_line(done.stdout)
    say(f"uv cannot do it, so pip does: a minute or two. uv said: {why}")
    done = show(*pip, "-e", f".{extras}")
    require_index(done)
    if done.returncode:
        raise Stopped(f"pip could not install Palaver: {last_line(done.stdout)}")


def require_index(done: "subprocess.CompletedProcess[str]") -> None:
    """Raise Stopped if pip could not ask its index: then nothing after it can."""
    reasons = [line for line in done.stdout.splitlines() if _UNREACHED.search(line)]
    if done.returncode and reasons:
        raise Stopped(
            "No package index can be reached. Check the network, a proxy, or pip's configuration (pip config list),"
            f" and run make again; pip said: {reasons[-1].strip()}"
        )


def run(*command: "str | Path") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )


def show(*command: "str | Path") -> "subprocess.CompletedProcess[str]":
    """Run it and show what it says, but no list of packages and no failure: that is said in one sentence."""
    said: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        for line in process.stdout or ():
            said.append(line)
            if not _PACKAGE.match(line) and not re.match("error|warning", line, re.IGNORECASE):
                print(line, end="", file=sys.stderr, flush=True)
    return subprocess.CompletedProcess(command, process.returncode, "".join(said))


def last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing"


def start(arguments: Sequence[str]) -> int:
    try:
        main(Path(arguments[0]), arguments[1])
    except Stopped as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nStopped. make run continues where it was.", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
