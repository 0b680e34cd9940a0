"""Change the store again and again while people speak, and kill everything: gateways, and the commands that change it.

`python -m tests.crash.upkeep --minutes 10 migrate` moves a store between SQLite and PostgreSQL; `rotate` changes the
keys of an encrypted one, with backups in between. Every message needs one turn and one answer, and what was deleted
has to be gone.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from subprocess import DEVNULL, PIPE

from palaver.db.tables import copy_order
from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.encryption.vault import BadKey, Vault, new_key, open_vault, parse_key
from palaver.store.opening import open_store, sqlite_path
from palaver.store.scrub import owed_scrubs
from palaver.store.store import Store
from tests.crash.fuse import BACKGROUND, STEPS
from tests.crash.gateway import open_keyed
from tests.crash.siege import Town, town_of
from tests.crash.square import FakeSquare
from tests.crash.verdict import Verdict, line
from tests.forkserver import start_module
from tests.store.conftest import fresh_database
from tests.store.outages import Server

__all__ = ["Migration", "Rotation", "Upkeep"]

ARCHIVE = Path(__file__).parents[2] / "docs/examples/sessions.jsonl"
_SESSION = "01kmjz3d80ann0h011day00000"
"""The first of the archive."""
_STEPS = tuple(step for step in STEPS if not step.endswith((*BACKGROUND, "save_position")))
_BACKLOG = 100
_BUSY = 75
_PATIENCE = 120.0


@dataclass(kw_only=True)
class Upkeep:
    """What all changes share: people, lives of gateways, commands that are killed, and words that have to be gone."""

    town: Town
    """On a fake square."""
    folder: Path
    """The data directory."""
    seconds_between_words: float = 0.1
    kills_per_change: int = 4
    longest_life: float = 1.5
    said: int = 0
    kills: Counter[str] = field(default_factory=Counter[str])
    done: Counter[str] = field(default_factory=Counter[str])
    complaints: list[str] = field(default_factory=list[str])
    gone: list[str] = field(default_factory=list[str])
    """Words that were said once, and were deleted."""
    kept: list[str] = field(default_factory=list[str])
    _usual: dict[str, float] = field(default_factory=dict[str, float])
    """How long a command takes that is not killed, in seconds."""
    _words: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def environment(self) -> Mapping[str, str]:
        usual = {name: value for name, value in os.environ.items() if not name.startswith("PALAVER")}
        return usual | {"PALAVER_HOME": str(self.folder), "PALAVER_STORE": self.town.url}

    async def run(self, changes: int | None = None, seconds: float = 0.0) -> Verdict:
        """Go on for so many changes, or so long."""
        async with self._opened():
            pass  # A command finds a store.
        end = time.monotonic() + seconds
        speaking = asyncio.create_task(self._speak())
        try:
            while self.done["change"] < changes if changes else time.monotonic() < end:
                for _ in range(self.kills_per_change):
                    await self.live()
                await self.change()
                self.done["change"] += 1
        finally:
            speaking.cancel()
            with suppress(asyncio.CancelledError):
                await speaking
        last = await self.town.start()
        verdict = await self.town.conclude()
        async with asyncio.timeout(_PATIENCE), self._opened() as store:
            while await store.read(owed_scrubs()):  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(0.05)
        await last.kill()
        await self.check_kept()
        await self.finish()
        return replace(verdict, kills=self.kills.total(), broken=[*verdict.broken, *self.complaints, *self._errors])

    @property
    def _errors(self) -> list[str]:
        """What no kill explains, and what was logged after it."""
        log = self.town.log
        return ["\n".join(log[log.index(each) :][:30]) for each in self.town.errors]

    async def change(self) -> None:
        """Change the store, while no gateway runs."""
        raise NotImplementedError

    async def finish(self) -> None:
        """Look for words that should be gone, when all is done."""
        self.complaints += self.look_in_files(of=self.gone)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[Store]:
        key_file = self.town.key_file
        async with await open_keyed(self.town.url, str(key_file) if key_file else None) as store:
            yield store

    async def live(self) -> None:
        """One gateway, killed at a step with a name or at any instant."""
        chance = self.town.chance
        step = chance.choice(_STEPS) if chance.random() < 0.7 else None
        gateway = await self.town.start(step=step, length=chance.randint(1, 4))
        if not await gateway.dies(within=chance.uniform(0, self.longest_life)):
            await gateway.kill()
        self.kills["gateways"] += 1

    async def _speak(self) -> None:
        square = self.town.square
        assert isinstance(square, FakeSquare)
        while True:
            if len(square.world.unacknowledged()) < _BACKLOG:
                await self.town.speak(self.town.chance.choice(("", "", "!tool")))
                self.said += 1
            await asyncio.sleep(self.seconds_between_words)

    # Commands

    async def command(self, *words: str, lasts: float | None = None) -> tuple[int, str]:
        """Run `palaver` with these words, and kill it after so many seconds. Return its exit code and what it said."""
        process = start_module(
            "palaver", *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=self.environment, cwd=self.folder
        )
        ending = asyncio.create_task(asyncio.to_thread(process.communicate))
        await asyncio.wait({ending}, timeout=_PATIENCE if lasts is None else lasts)
        if not ending.done():
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(process.pid, signal.SIGKILL)
        out, complaints = await ending
        return process.wait(), out + complaints

    async def insist(self, *words: str, kills: int = 3, complete: str = "\0") -> None:
        """Run a command until it has done its work, and kill it up to so many times before that.

        If it was killed when its work was done, it says so in these words.
        """
        name, last = " ".join(words[:2]).partition("://")[0], self.town.chance.randint(0, kills)
        for attempt in count():
            usual = self._usual.get(name, 0.5)
            lasts = None if attempt >= last else self.town.chance.uniform(0, usual)
            began = time.monotonic()
            code, said = await self.command(*words, lasts=lasts)
            if code == -signal.SIGKILL:
                self.kills[name] += 1
                if lasts is None:
                    raise AssertionError(f"{name} hangs: {said}")
            elif code == _BUSY:
                self.done["busy"] += 1  # what was killed is not yet gone from the server
                await asyncio.sleep(0.1)
            elif code and not (attempt and complete in said):
                raise AssertionError(f"{name} failed with {code}: {said}")
            else:
                self._usual[name] = time.monotonic() - began
                self.done[name] += 1
                return

    # Words

    async def plant(self) -> None:
        """Store a conversation with a word of its own, and every other time delete it."""
        number = next(self._words)
        word = f"planted{number}{self.town.chance.getrandbits(40)}word"
        archive, session = self.folder.parent / "planted.jsonl", f"{_SESSION[:-6]}{number:06d}"
        lines = ARCHIVE.read_text().splitlines()
        others = [number for number, text in enumerate(lines) if text.startswith('{"session"')]
        text = "\n".join(lines[: others[1]])
        archive.write_text(text.replace(_SESSION, session).replace("a week in May", word) + "\n")
        await self.insist("sessions", "import", str(archive), kills=0)
        archive.unlink()
        if number % 2:
            await self.insist("sessions", "delete", session, "--yes", complete="There is no session")
            self.gone.append(word)
        else:
            self.kept.append(word)

    def look_in_files(self, *, of: Sequence[str]) -> list[str]:
        """Name each file that has one of these words: databases, their logs, the index, keys and backups."""
        found: list[str] = []
        for path in (path for path in self.folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            found += [f"{word} is in {path}" for word in of if word.encode() in content]
        return found

    async def check_kept(self) -> None:
        async with self._opened() as store:
            await store.search.catch_up()
            for word in self.kept:
                if not await store.search.find(word, Principal.operator()):
                    self.complaints.append(f"{word} is not found any more")


@dataclass(kw_only=True)
class Migration(Upkeep):
    """The store moves to the other database and back. The old one is removed each time."""

    server: str
    _moves: "count[int]" = field(default_factory=lambda: count(1))

    async def change(self) -> None:
        old_path = sqlite_path(self.town.url)
        await self.plant()
        if old_path is None:
            new = f"sqlite:///{self.folder}/moved{next(self._moves)}.db"
        else:
            new = await fresh_database(self.server)
        await self.insist("migrate", new, complete="that copy is complete")
        self.town.url = new
        if old_path:
            for path in self.folder.glob(f"{old_path.name}*"):
                path.unlink()
        # A new file has never had what was deleted before; of the server, its rows are what counts.
        self.complaints += self.look_in_files(of=self.gone) if old_path is None else await self._look_in_rows()
        await self.check_kept()

    async def _look_in_rows(self) -> list[str]:
        found: list[str] = []
        async with await open_store(self.town.url) as store:
            for table in copy_order():
                rows = await store.read(_rows(f"SELECT {', '.join(table.columns)} FROM {table.name}"))  # noqa: S608
                found += [f"{word} is in {table.name}" for word in self.gone if word in rows]
        return found


@transaction
def _rows(sql: str) -> Statements[str]:
    return repr([tuple(row) for row in (yield sql, ())])


@dataclass(kw_only=True)
class Rotation(Upkeep):
    """Your key changes while gateways run and are killed; the data key while none does."""

    renew_every: int = 3
    old: list[str] = field(default_factory=list[str])
    """Keys that open nothing any more."""
    files: set[bytes] = field(default_factory=set[bytes])
    """What attachments contain."""

    @property
    def environment(self) -> Mapping[str, str]:
        key_file = self.town.key_file
        return {**super().environment} | ({"PALAVER_ENCRYPTION__KEY_FILE": str(key_file)} if key_file else {})

    @property
    def key(self) -> str:
        assert self.town.key_file
        return self.town.key_file.read_text().strip()

    async def live(self) -> None:
        living = asyncio.create_task(super().live())
        while not living.done():
            before = self.key
            await self.insist("encryption", "rotate")
            self.old.append(before)
        await living

    async def change(self) -> None:
        await self.plant()
        await self._attach(f"planted {len(self.files)} ".encode() * 10_000)
        await self.insist("backup", "--json")
        if self.done["change"] % self.renew_every == self.renew_every - 1:
            await self.insist("encryption", "renew")
        for key in self.old:
            with suppress(BadKey):
                self._vault(key)
                self.complaints.append("an old key opens the store")
        self.old.clear()
        # What was said stands in no file as it is.
        self.complaints += self.look_in_files(of=[*self.kept, *self.gone, "planted"])
        await self.check_kept()

    def _vault(self, key: str) -> Vault:
        return open_vault(self.folder / "palaver.keys", parse_key(key))

    async def _attach(self, content: bytes) -> None:
        async def chunks() -> AsyncGenerator[bytes]:
            yield content

        blobs = BlobStore(self.folder / "files", self._vault(self.key).current.contents)
        await blobs.keep(chunks(), len(content))
        self.files.add(content)

    async def finish(self) -> None:
        """Decrypt all: what was deleted is in no file, and not in a new backup."""
        await self.insist("backup", "verify", str(max((self.folder / "backups").glob("*.tar"))), kills=0)
        shutil.rmtree(self.folder / "backups")  # those from before hold what was deleted later
        await self.insist("encryption", "off", "--yes", complete="palaver.keys cannot be read")
        self.town.key_file = None
        await self.insist("backup", "-o", str(self.folder / "plain.tar"), "--force")
        if {path.read_bytes() for path in (self.folder / "files").glob("??/*")} != self.files:
            self.complaints.append("attachments are not what they were")
        if len(self.look_in_files(of=self.kept)) < len(self.kept):
            self.complaints.append("what was to be kept is in no file")
        await super().finish()


# The command


async def _migrate(folder: Path, seed: int, seconds: float) -> Upkeep:
    server = await asyncio.to_thread(Server, f"{folder}/postgres")
    try:
        server.forget_durability()  # It is commands and gateways that are killed.
        data = folder / "data"
        data.mkdir()
        async with town_of(f"sqlite:///{data}/palaver.db", workers=1, chats=100, seed=seed) as town:
            work = Migration(town=town, folder=data, server=server.url)
            return await _tell(work, seconds)
    finally:
        await asyncio.to_thread(server.close)


async def _rotate(folder: Path, seed: int, seconds: float) -> Upkeep:
    data = folder / "data"
    data.mkdir()
    (folder / "key").write_text(new_key())
    async with town_of(f"sqlite:///{data}/palaver.db", workers=1, chats=100, seed=seed) as town:
        town.key_file = folder / "key"
        return await _tell(Rotation(town=town, folder=data), seconds)


async def _tell(work: Upkeep, seconds: float) -> Upkeep:
    verdict = await work.run(seconds=seconds)
    _print(f"{line(verdict)} given_up={verdict.given_up} gone={len(work.gone)} kept={len(work.kept)}")
    _print(f"killed: {dict(work.kills)}; done: {dict(work.done)}")
    for complaint in verdict.complaints[:50]:
        _print(complaint)
    work.complaints = verdict.complaints
    return work


_WORKS = {"migrate": _migrate, "rotate": _rotate}


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.upkeep", description="Change a store and kill all.")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("works", nargs="*", choices=[*_WORKS, []], metavar="WORK", help=f"{', '.join(_WORKS)}")
    wanted = parser.parse_args()
    _print(f"seed={wanted.seed}")
    failed = False
    for name in wanted.works or _WORKS:
        with tempfile.TemporaryDirectory(prefix="palaver-upkeep-", ignore_cleanup_errors=True) as folder:
            _print(f"{name}:")
            failed |= bool(asyncio.run(_WORKS[name](Path(folder), wanted.seed, wanted.minutes * 60)).complaints)
    return int(failed)


if __name__ == "__main__":
    sys.exit(_main())
