"""Stores full of conversations: made with the store's own work, driven in bulk on one connection."""

import asyncio
import random
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from zoneinfo import ZoneInfo

from palaver.db.sqlite import connect, run_statements
from palaver.db.transaction import Statements, Transaction, Value, transaction
from palaver.model.addressing import ConversationRules
from palaver.model.key import Scope, SessionKey, derive_key
from palaver.model.reset import ResetPolicy, ResetRule
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import Inbound, Outbound, Turn, Usage
from palaver.store.conversations import sessions, transcript
from palaver.store.opening import open_store
from palaver.store.queue import inbox, turns
from palaver.store.records import TURN_COLUMNS, micros, prepare, source_text, turn_of

__all__ = [
    "CJK",
    "COMMON",
    "LEASE",
    "NOON",
    "RARE",
    "RULE",
    "RULES",
    "Rows",
    "answer_of",
    "key",
    "long_conversation",
    "person",
    "populate",
    "running",
    "running_turns",
    "source",
]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RULES = ConversationRules()
RULE = ResetRule(policy=ResetPolicy(), zone=ZoneInfo("UTC"))
PEOPLE = 1000
COMMON, RARE, CJK = "release", "zymurgy", "会議"
LEASE = timedelta(hours=1)
_PER_COMMIT = 5000
_ROLES = (Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT)


def source(number: int) -> Source:
    """Every chat its own conversation; a person has one in a thousand of them."""
    return Source(platform="telegram", chat_id=str(number), user_id=str(number % PEOPLE))


def person(number: int) -> str:
    return f"telegram:{number % PEOPLE}"


def key(number: int) -> SessionKey:
    return derive_key(source(number), Scope())


# Words


def _sentences(chance: random.Random, count: int) -> list[str]:
    """About 60 characters each, from a few thousand words, some much more frequent than others."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(3, 9))) for _ in range(5000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    return [" ".join(chance.choices(words, weights, k=9)) for _ in range(count)]


def _texts() -> Iterator[str]:
    """Three sentences each. One in five has the common word, one in fifty speaks Japanese, one in 20,000 is rare."""
    chance = random.Random(7)  # noqa: S311 - the same words every time
    pool = _sentences(chance, 4000)
    number = 0
    while True:
        number += 1
        text = ". ".join(chance.choices(pool, k=3))
        if number % 5 == 0:
            text += f" before the next {COMMON} of build_{number}"
        if number % 50 == 0:
            text += f" 明日の{CJK}は東京で三時から始まります"
        if number % 20_000 == 0:
            text += f" about {RARE}"
        yield text


# Conversations


class Rows:
    """Rows of many conversations, written table by table, since a million are wanted."""

    def __init__(self) -> None:
        self._tables: dict[str, list[tuple[Value, ...]]] = {table: [] for table in _COLUMNS}

    def add(self, number: int, texts: Iterator[str], length: int) -> None:
        """A conversation, and entries with the next texts. If there are no more of them, entries come later."""
        at, place, name = NOON + timedelta(seconds=number), source(number), key(number).text
        no, moment, origin = number + 1, micros(at), source_text(place)
        row = (no, sessions.new_id(at), name, "main", place.platform, person(number), origin, moment, moment, moment)
        self._tables["sessions"].append((*row, length + 1))
        self._tables["participants"].append((person(number), no))
        self._tables["routes"].append((name, no, origin))
        for seq, text in enumerate(islice(texts, length), start=1):
            entry = prepare(Entry(seq=0, role=_ROLES[(seq - 1) % 2], at=at, text=text))
            row = (no * transcript.SEQS + seq, entry.role, entry.observed, entry.placed(seq))
            self._tables["entries"].append(row)
        self._tables["journal"].append((no, "append", 1, length))

    def take(self) -> Iterator[tuple[str, list[str], list[tuple[Value, ...]]]]:
        """Yield each table with its columns and rows."""
        for table, rows in self._tables.items():
            yield table, _COLUMNS[table].split(", "), rows
            rows.clear()

    def write(self, db: sqlite3.Connection) -> None:
        for table, columns, rows in self.take():
            values = ", ".join("?" * len(columns))
            db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})", rows)  # noqa: S608


_COLUMNS = {
    "sessions": "no, id, key, profile, platform, owner, origin, started, last_human, last_active, next_seq",
    "participants": "identity, session_no",
    "routes": "key, session_no, address",
    "entries": "id, role, observed, body",
    "journal": "session_no, kind, first_seq, last_seq",
}


@transaction
def long_conversation(number: int, length: int) -> Statements[None]:
    """Question, tool call, result, answer, over and over, about 500 bytes each; the last message has a turn running."""
    made = yield from sessions.create(key(number), source(number), NOON)
    entries = [_said(seq, NOON + timedelta(minutes=seq)) for seq in range(length - 1)]
    yield from transcript.append(made.number, 1, [prepare(entry) for entry in entries])
    yield "UPDATE sessions SET next_seq = next_seq + ? WHERE no = ?", (len(entries), made.number)
    yield from running(number)


_WORDS = "a sentence of ordinary length that somebody might well have said. " * 6


def _said(seq: int, at: datetime) -> Entry:
    role = _ROLES[seq % 4]
    calls = (ToolCall(id=f"call_{seq}", name="search", arguments='{"query": "ordinary words", "limit": 5}'),)
    return Entry(
        seq=0,
        role=role,
        at=at,
        text=f"{seq} {_WORDS}",
        calls=calls if seq % 4 == 1 else (),
        answers=f"call_{seq - 1}" if seq % 4 == 2 else None,
        tokens=100,
    )


# Turns


@transaction
def running(number: int) -> Statements[None]:
    """A message that came in and the turn that is about to answer it."""
    inbound = Inbound(source=source(number), text=f"question {number} " + _WORDS, at=NOON)
    yield from inbox.accept(inbound, key(number), NOON)
    yield from turns.begin(key(number), "bench", NOON, LEASE, RULES)


def answer_of(turn: Turn) -> Transaction[int]:
    """Four entries of about 500 bytes, the counters and a reply to its chat: settled in one transaction."""
    reply = Outbound(platform="telegram", chat_id=str(turn.number), text=_ANSWER[-1].text)
    return turns.settle(turn, _ANSWER, [reply], NOON, usage=_USAGE)


_ANSWER = [_said(seq, NOON) for seq in range(4)]
_USAGE = Usage(input_tokens=1200, output_tokens=300, cost_micros=4500)


# Stores


def populate(path: Path, *, conversations: int = 0, length: int = 0, works: Iterable[Transaction[None]] = ()) -> None:
    """A new SQLite store: conversations of so many entries, and what the works leave behind."""
    asyncio.run(_create(path))
    rows, texts = Rows(), _texts()
    with closing(connect(path)) as db:
        db.execute("PRAGMA synchronous = OFF")
        for first in range(0, conversations, _PER_COMMIT):
            for number in range(first, min(first + _PER_COMMIT, conversations)):
                rows.add(number, texts, length)
            db.execute("BEGIN IMMEDIATE")
            rows.write(db)
            db.execute("COMMIT")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.execute("BEGIN IMMEDIATE")
        for each in works:
            run_statements(db, iter(each), set())
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


async def _create(path: Path) -> None:
    async with await open_store(str(path)):
        pass


def running_turns(path: Path) -> list[Turn]:
    sql = f"SELECT {TURN_COLUMNS} FROM turns t JOIN sessions s ON s.no = t.session_no ORDER BY t.no"  # noqa: S608
    with closing(connect(path, read_only=True)) as db:
        return [turn_of(row) for row in db.execute(sql)]
