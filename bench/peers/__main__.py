"""Compare: `python -m bench.peers [NAME…]`. The environments are made when asked for, in `.venv-peers`."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.workshop import ROOT, say

PEERS: Mapping[str, Sequence[str]] = {
    "palaver": (),
    "hermes": ("hermes-agent",),
    "openai_agents": ("openai-agents",),
    "langgraph": ("langgraph", "langgraph-checkpoint-sqlite"),
    "adk": ("google-adk", "sqlalchemy[asyncio]", "aiosqlite"),
}
"""What to install for each."""
_ENVIRONMENTS = ROOT / ".venv-peers"
_SHORT, _LONG, _LAST = 50, 500, 20
"""Turns of a short and of a long conversation, and how many of the last ones are taken."""


class _Process:
    """A peer at work."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.turns = list[float]()
        command = [str(_python(name)), "-m", f"bench.peers.{name}", str(folder)]
        self._process = subprocess.Popen(  # noqa: S603
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def append_turn(self) -> None:
        self.turns.append(self._ask("turn")[0])

    def load(self) -> tuple[float, int]:
        seconds, messages = zip(*(self._ask("load") for _ in range(_LAST)), strict=True)
        return statistics.median(seconds), messages[0]

    def close(self) -> None:
        self._process.communicate("")

    def _ask(self, what: str) -> tuple[float, int]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise ValueError(self.name)
        stdin.write(f"{what}\n")
        stdin.flush()
        seconds, messages = json.loads(stdout.readline())
        return seconds, messages


def _python(name: str) -> Path:
    """The interpreter of a peer's environment, which is made if there is none."""
    if not PEERS[name]:
        return Path(sys.executable)
    folder = _ENVIRONMENTS / name
    python = folder / "bin/python"
    if not (folder / "ready").exists():
        say(f"installing {' and '.join(PEERS[name])}")
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PEERS[name]], check=True)  # noqa: S603
        (folder / "ready").touch()
    return python


def _version(name: str) -> str:
    distribution = PEERS[name][0] if PEERS[name] else "palaver"
    program = f"from importlib.metadata import version; print(version({distribution!r}))"
    return subprocess.run([_python(name), "-c", program], check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"only these of {', '.join(PEERS)}")
    names = parser.parse_args(args).names or list(PEERS)
    if unknown := set(names) - set(PEERS):
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(PEERS)}")
    with tempfile.TemporaryDirectory(prefix="palaver-peers-") as scratch:
        folders = {name: Path(scratch) / name for name in names}
        for folder in folders.values():
            folder.mkdir()
        peers = [_Process(name, folder) for name, folder in folders.items()]
        early = _run(peers, _SHORT)
        loads = {peer.name: peer.load() for peer in peers}
        late = _run(peers, _LONG - _SHORT)
        for peer in peers:
            peer.close()
        print(
            "| store | version | a turn | in a conversation of 2,000 messages | load of 200 messages | bytes per turn |"
        )
        print("|---|---|---|---|---|---|")
        for name, folder in folders.items():
            seconds, messages = loads[name]
            if messages != 4 * _SHORT:
                raise AssertionError(f"{name} has {messages} messages")
            cells = (f"{1e3 * value:.2f} ms" for value in (early[name], late[name], seconds))
            print("|", " | ".join((name, _version(name), *cells, f"{_bytes(folder) / _LONG / 1e3:,.1f} kB")), "|")
    return 0


def _run(peers: list[_Process], turns: int) -> dict[str, float]:
    """Let all append so many turns, one after the other; return the median seconds of the last ones of each."""
    for number in range(turns):
        for peer in peers[number % len(peers) :] + peers[: number % len(peers)]:
            peer.append_turn()
    return {peer.name: statistics.median(peer.turns[-_LAST:]) for peer in peers}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
