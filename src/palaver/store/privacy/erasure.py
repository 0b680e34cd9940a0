"""Erase everything stored about a person: requested in one transaction, carried out in many small ones."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import field
from datetime import datetime, timedelta
from typing import NamedTuple

from palaver.db.transaction import Database, Lock, Notify, Row, Statements, transaction
from palaver.model.errors import NewerSchema, NotFound, StoreError, StoreUnavailable
from palaver.model.value import value
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.privacy import erase_steps
from palaver.store.privacy.digests import Digests, load_digests, orphaned_files
from palaver.store.privacy.eraser import ErasurePass, deliveries_of, find_person_data
from palaver.store.privacy.footprint import (
    Footprint,
    find_footprint,
    find_share,
    own_sessions,
    shared_sessions,
    sole_participant_filter,
)
from palaver.store.privacy.names import drop_grants
from palaver.store.privacy.person_export import has_data, no_data_error
from palaver.store.queue.cause import CauseKind
from palaver.store.queue.outbox import OPEN_SEND
from palaver.store.records import SEQS, file_digests, instant, micros, readable
from palaver.store.scrub import owe_scrub, scrub
from palaver.store.search.search import Search

ERASURES = "erasures"
"""The topic that announces a new request."""


@value
class ErasurePreview:
    """How much is stored about a person."""

    identities: tuple[str, ...]
    own: int = 0
    """Sessions without any other participant."""
    own_entries: int = 0
    shared: int = 0
    """Sessions with other participants."""
    said: int = 0
    """Their entries in shared sessions."""
    answers: int = 0
    """Entries in shared sessions that answer them, and later summaries."""
    messages: int = 0
    sends: int = 0
    jobs: int = 0
    processes: int = 0
    notes: int = 0
    """What agents noted about them, or from their own sessions."""
    files: int = 0
    """Different files in what is deleted."""


@value
class ErasureProgress:
    """What an erasure has deleted so far, by kind."""

    number: int
    done: bool
    """A whole pass found nothing more."""
    counts: Counter[str] = field(default_factory=Counter[str])
    busy: tuple[str, ...] = ()
    """Conversations with a running turn. If there are none, the erasure can continue at once."""
    failed: str | None = None
    """Why it could not go on, or if it is done, why traces stay in the database. Maintenance tries again."""


_MAX_PASSES = 5
_MAX_ANSWER_WAIT = timedelta(minutes=10)


class _Task(NamedTuple):
    number: int
    footprint: Footprint
    keeps_access: bool
    asked: datetime
    answer: str | None


@transaction
def request(
    name: str, now: datetime, *, by: str, keeps_access: bool = False, answer: str | None = None
) -> Statements[int]:
    """Store a request and return its number; an open request for the same person is returned again."""
    yield Lock("erasures")
    footprint = yield from find_footprint(name)
    for task in (yield from _open_tasks()):
        if task.footprint.identities & footprint.identities:
            return task.number
    if not keeps_access:
        yield from drop_grants(footprint, now, by=by)
    rows = yield (
        "INSERT INTO erasures (subject, keeps_access, requested, actor, answer) VALUES (?, ?, ?, ?, ?) RETURNING no",
        (footprint.text, int(keeps_access), micros(now), by, answer),
    )
    if answer is not None:  # without one, the caller runs the erasure
        yield Notify(ERASURES)
    return rows[0][0]


@transaction
def count_sessions(name: str) -> Statements[tuple[int, int]]:
    """Return how many sessions are theirs alone, and how many they share."""
    footprint = yield from find_footprint(name)
    return len((yield from own_sessions(footprint))), len((yield from shared_sessions(footprint)))


@transaction
def _open_tasks() -> Statements[list[_Task]]:
    rows = yield "SELECT no, subject, keeps_access, requested, answer FROM erasures WHERE ended IS NULL ORDER BY no", ()
    return list(readable(_task_of, rows))


def _task_of(row: Row) -> _Task:
    number, who, keeps, asked, answer = row
    return _Task(number, Footprint.parse(who), bool(keeps), instant(asked), answer)


@transaction
def erasures() -> Statements[list[tuple[int, datetime, datetime | None, str]]]:
    """Return number, time of request, end and requester of every erasure."""
    rows = yield "SELECT no, requested, ended, actor FROM erasures ORDER BY no", ()
    return [(number, instant(asked), ended and instant(ended), by) for number, asked, ended, by in rows]


@transaction
def _has_unsent_answer(command: str) -> Statements[bool]:
    rows = yield (
        f"SELECT 1 FROM outbox WHERE cause_kind = ? AND cause_id = ? AND state IN {OPEN_SEND} LIMIT 1",
        (CauseKind.COMMAND.value, command),
    )
    return bool(rows)


@transaction
def _finish(number: int, now: datetime) -> Statements[None]:
    """Close the request and forget who it was about."""
    yield (
        "UPDATE erasures SET ended = ?, subject = NULL, answer = NULL WHERE no = ? AND ended IS NULL",
        (micros(now), number),
    )
    yield from owe_scrub()


async def _keep_outputs() -> None: ...


@value(kw_only=False)
class Erasures:
    database: Database
    search: Search
    erase_outside: Sequence[Callable[[frozenset[str]], None]] = ()
    """Each deletes something that is kept of these identities outside the store."""
    remove_outputs: Callable[[], Awaitable[object]] = _keep_outputs
    """Kills the processes on this machine that the store has forgotten, and deletes their output."""

    request = staticmethod(request)
    count_sessions = staticmethod(count_sessions)

    async def preview(self, name: str) -> ErasurePreview:
        footprint = await self.database.read(find_footprint(name))
        is_requested = any(
            task.footprint.identities & footprint.identities for task in await self.database.read(_open_tasks())
        )
        if not is_requested and not await has_data(self.database, footprint):
            raise no_data_error(name)
        data = await find_person_data(self.database, footprint)
        shares = [await self.database.read(find_share(session, footprint)) for session in data.shared]
        for share in shares:
            data.turns |= share.turns
        sends = await deliveries_of(self.database, data)
        files = {
            name for share in shares for each in (*share.said, *share.answers) for name in file_digests(each.files)
        }
        files |= await self.database.read(_sent_files(sends))
        return ErasurePreview(
            identities=tuple(sorted(footprint.identities)),
            own=len(data.sessions),
            own_entries=await self.database.read(_own_entries(footprint)),
            shared=sum(bool(share.said) for share in shares),
            said=sum(len(share.said) for share in shares),
            answers=sum(len(share.answers) + len(share.unreadable) for share in shares),
            messages=len(data.messages),
            sends=len(sends),
            jobs=len(data.jobs),
            processes=await self.database.read(erase_steps.count_processes(footprint)),
            notes=await self.database.read(_count_notes(footprint)),
            files=len(files | await self.database.read(_own_files(footprint))),
        )

    async def run(
        self,
        number: int,
        now: datetime,
        *,
        blobs: BlobStore | None = None,
        progress: Callable[[Counter[str]], None] = lambda _: None,
    ) -> ErasureProgress:
        tasks = [task for task in await self.database.read(_open_tasks()) if task.number == number]
        if not tasks:
            raise NotFound("open erasure", str(number))
        return await self._run(tasks[0], now, blobs, progress)

    async def is_any_open(self) -> bool:
        return bool(await self.database.read(_open_tasks()))

    async def resume_all(self, now: datetime, *, blobs: BlobStore | None = None) -> list[ErasureProgress]:
        """Continue all erasures. One that fails keeps no other waiting. Raises StoreUnavailable."""
        outcomes: list[ErasureProgress] = []
        for task in await self.database.read(_open_tasks()):
            if (
                task.answer
                and now - task.asked < _MAX_ANSWER_WAIT
                and await self.database.read(_has_unsent_answer(task.answer))
            ):
                outcomes.append(ErasureProgress(number=task.number, done=False))
                continue
            try:
                outcomes.append(await self._run(task, now, blobs, lambda _: None))
            except (StoreUnavailable, NewerSchema):
                raise
            except StoreError as error:
                outcomes.append(ErasureProgress(number=task.number, done=False, failed=str(error)))
        return outcomes

    async def _run(
        self, task: _Task, now: datetime, blobs: BlobStore | None, progress: Callable[[Counter[str]], None]
    ) -> ErasureProgress:
        digests = await self.database.transact(load_digests())
        erasing = ErasurePass(
            database=self.database,
            erasure=task.number,
            footprint=task.footprint,
            digests=digests,
            now=now,
            keeps_access=task.keeps_access,
            progress=progress,
        )
        counts = erasing.counts
        for _ in range(_MAX_PASSES):
            before = counts.total()
            await erasing.run()
            if erasing.busy:
                return ErasureProgress(number=task.number, done=False, counts=counts, busy=tuple(sorted(erasing.busy)))
            if counts.total() == before:
                break
        else:  # new data comes in as fast as it is erased
            return ErasureProgress(number=task.number, done=False, counts=counts)
        await self.search.catch_up()
        try:
            await self._erase_files(task, now, blobs, digests)
        except OSError as error:
            raise StoreError(f"a file could not be deleted: {error}") from error
        await self.database.transact(_finish(task.number, now))
        try:
            await scrub(self.database)
        except StoreError as error:
            return ErasureProgress(number=task.number, done=True, counts=counts, failed=str(error))
        return ErasureProgress(number=task.number, done=True, counts=counts)

    async def _erase_files(self, task: _Task, now: datetime, blobs: BlobStore | None, digests: Digests) -> None:
        for erase in self.erase_outside:
            erase(frozenset(task.footprint.identities))
        await self.remove_outputs()
        if blobs is not None:
            erased = await self.database.read(_erased_file_digests(task.number))
            orphans = await orphaned_files(self.database, blobs, digests, erased)
            # A file that was stored since the request may be about to get a new owner.
            await blobs.remove(orphans, now - task.asked)


@transaction
def _erased_file_digests(number: int) -> Statements[frozenset[str]]:
    rows = yield "SELECT digest FROM erased_digests WHERE erasure = ? AND kind = 'file'", (number,)
    return frozenset(row[0] for row in rows)


@transaction
def _own_entries(footprint: Footprint) -> Statements[int]:
    own = sole_participant_filter(footprint)
    rows = yield f"SELECT coalesce(sum(s.next_seq - 1), 0) FROM sessions s WHERE {own.sql}", own.values
    return int(rows[0][0])


@transaction
def _count_notes(footprint: Footprint) -> Statements[int]:
    theirs, own = footprint.identifies("identity"), sole_participant_filter(footprint)
    rows = yield (
        f"SELECT count(*) FROM memory_notes WHERE {theirs.sql}"
        f" OR session_no IN (SELECT s.no FROM sessions s WHERE {own.sql})",
        (*theirs.values, *own.values),
    )
    return rows[0][0]


@transaction
def _sent_files(sends: Collection[int]) -> Statements[set[str]]:
    rows = yield "SELECT holder, sha256 FROM attachments WHERE kind = 'out'", ()
    return {name for holder, name in rows if holder in sends}


@transaction
def _own_files(footprint: Footprint) -> Statements[set[str]]:
    """Return the files in their messages and in their own sessions."""
    theirs, own = footprint.identifies("i.identity"), sole_participant_filter(footprint)
    rows = yield (
        "SELECT a.sha256 FROM attachments a JOIN inbox i ON a.kind = 'in' AND a.holder = i.no"
        f" WHERE {theirs.sql} UNION SELECT a.sha256 FROM sessions s JOIN attachments a ON a.kind = 'entry'"
        f" AND a.holder >= s.no * {SEQS} AND a.holder < (s.no + 1) * {SEQS} WHERE {own.sql}",
        (*theirs.values, *own.values),
    )
    return {row[0] for row in rows}
