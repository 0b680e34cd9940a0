"""Run one pass of an erasure over everything, in small transactions."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from palaver.db.transaction import Database, Row, Statements, Transaction, transaction
from palaver.model.errors import NotFound, SessionBusy, Unreadable
from palaver.model.key import SessionKey
from palaver.model.source import DM, Source, decode_id
from palaver.model.turn import Delivery, Received
from palaver.store.conversations.visibility import Filter
from palaver.store.damage.losses import forget_losses
from palaver.store.privacy import erase_steps, names
from palaver.store.privacy.digests import LOWEST_NUMBER, Digests
from palaver.store.privacy.erase_steps import RowPage
from palaver.store.privacy.footprint import (
    Footprint,
    chat_filters,
    commands_mentioning,
    find_share,
    handoffs_of,
    jobs_of,
    own_sessions,
    shared_sessions,
)
from palaver.store.queue.cause import OF_JOB, OF_MESSAGE, OF_OPERATION, OF_SESSION, OF_TURN, CauseKind
from palaver.store.records import (
    DELIVERY_COLUMNS,
    REPLIES,
    SELECT_RECEIVED,
    delivery_of,
    key_in,
    placeholders,
    readable,
    received_of,
)

T = TypeVar("T")
_CHUNK_ROWS = 500
Progress = Callable[[Counter[str]], None]


@dataclass(kw_only=True, slots=True)
class PersonData:
    """What belongs to a person: their messages, the turns in which they spoke, their sessions."""

    footprint: Footprint
    """Including the direct chats that were found."""
    messages: set[int] = field(default_factory=set[int])
    emptied: frozenset[int] = frozenset()
    """Messages whose content went with their session. What was sent because of them can still name the person."""
    turns: set[int] = field(default_factory=set[int])
    sessions: tuple[str, ...] = ()
    """Ids of sessions without any other participant."""
    shared: tuple[int, ...] = ()
    """Numbers of sessions with other participants."""
    handoffs: frozenset[int] = frozenset()
    jobs: frozenset[int] = frozenset()


async def find_person_data(database: Database, footprint: Footprint) -> PersonData:
    found = PersonData(
        footprint=footprint,
        sessions=tuple(await database.read(own_sessions(footprint))),
        shared=tuple(await database.read(shared_sessions(footprint))),
        handoffs=frozenset(await database.read(handoffs_of(footprint))),
        jobs=frozenset(await database.read(jobs_of(footprint))),
    )
    chats = set(footprint.chats)
    async for page in message_pages(database, footprint):
        found.messages.update(page.unreadable)
        for message in page.found:
            source = message.inbound.source
            found.messages.add(message.number)
            if message.turn is not None:
                found.turns.add(message.turn)
            if source.chat_kind == DM:
                chats |= _chats(source)
    emptied = await database.read(_emptied_messages(footprint))
    found.emptied = frozenset(emptied)
    chats |= {chat for chat in emptied.values() if chat}
    found.footprint = replace(footprint, chats=frozenset(chats))
    return found


def _chats(source: Source) -> set[tuple[str, str]]:
    return {(source.platform, chat) for chat in (source.chat_id, source.user_id) if chat}


@transaction
def _emptied_messages(footprint: Footprint) -> Statements[dict[int, tuple[str, str] | None]]:
    """Return the numbers of their messages without content, each with its direct chat, if it came from one."""
    is_theirs = footprint.identifies("identity")
    rows = yield (
        f"SELECT no, platform, chat, coalesce(place, key) FROM inbox WHERE {is_theirs.sql} AND length(body) = 0",
        is_theirs.values,
    )
    return {number: _direct_chat(SessionKey.parse(key), platform, chat) for number, platform, chat, key in rows}


def _direct_chat(key: SessionKey, platform: str, chat: str) -> tuple[str, str] | None:
    """Only direct chats share a conversation across platforms."""
    return (decode_id(platform), decode_id(chat)) if chat and (not key.platform or key.kind == DM) else None


def _page(rows: Sequence[Row], decode: Callable[[Row], T]) -> RowPage[T] | None:
    found = {row[0]: each for row in rows for each in readable(decode, [row])}
    unreadable = tuple(row[0] for row in rows if row[0] not in found)
    return RowPage(last=rows[-1][0], found=tuple(found.values()), unreadable=unreadable) if rows else None


async def _pages(
    database: Database, read: Callable[[int], Transaction[RowPage[T] | None]]
) -> AsyncIterator[RowPage[T]]:
    """Yield page after page; `read` returns the one behind a number, None after the last."""
    after = LOWEST_NUMBER
    while page := await database.read(read(after)):
        after = page.last
        yield page


def message_pages(database: Database, footprint: Footprint) -> AsyncIterator[RowPage[Received]]:
    return _pages(database, partial(_messages_page, footprint))


@transaction
def _messages_page(footprint: Footprint, after: int) -> Statements[RowPage[Received] | None]:
    is_theirs = footprint.identifies("i.identity")
    rows = yield (
        f"{SELECT_RECEIVED} WHERE i.no > ? AND {is_theirs.sql} AND length(i.body) > 0 ORDER BY i.no LIMIT ?",
        (after, *is_theirs.values, _CHUNK_ROWS),
    )
    return _page(rows, received_of)


Sends = dict[int, Delivery | None]
"""Deliveries by number; None for one that cannot be read."""


async def deliveries_of(database: Database, found: PersonData) -> Sends:
    """Return what was sent to them or because of them, and notices that this could not be delivered."""
    sends: Sends = {}
    for where in _delivery_filters(found):
        sends |= await _deliveries(database, where)
    for where in _cause_filters({CauseKind.CHAT_GONE}, sends):
        sends |= await _deliveries(database, where)
    return sends


def _delivery_filters(found: PersonData) -> Iterator[Filter]:
    yield from chat_filters(found.footprint)
    for turns in _chunks(sorted(found.turns)):
        yield Filter(f"id IN ({_REPLIES_OF} t.no IN ({placeholders(turns)}))", tuple(turns))
    yield from _cause_filters(OF_MESSAGE, found.messages | found.emptied)
    yield from _cause_filters(OF_TURN, found.turns)
    yield from _cause_filters(OF_SESSION, found.sessions)
    yield from _cause_filters(OF_OPERATION, found.handoffs)
    yield from _cause_filters(OF_JOB, found.jobs)


_REPLIES_OF = (
    f"SELECT r.id FROM turns t JOIN outbox r ON r.id >= t.no * {REPLIES} AND r.id < (t.no + 1) * {REPLIES} WHERE"
)


def _cause_filters(kinds: Collection[CauseKind], ids: Collection[int | str]) -> Iterator[Filter]:
    names = tuple(sorted(kind.value for kind in kinds))
    for chunk in _chunks(sorted(map(str, ids))):
        sql = f"cause_kind IN ({placeholders(names)}) AND cause_id IN ({placeholders(chunk)})"
        yield Filter(sql, (*names, *chunk))


async def _deliveries(database: Database, where: Filter) -> Sends:
    found: Sends = {}
    async for page in _pages(database, partial(_deliveries_page, where)):
        found |= {delivery.number: delivery for delivery in page.found} | dict.fromkeys(page.unreadable)
    return found


@transaction
def _deliveries_page(where: Filter, after: int) -> Statements[RowPage[Delivery] | None]:
    rows = yield (
        f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE id > ? AND {where.sql} ORDER BY id LIMIT {_CHUNK_ROWS}",
        (after, *where.values),
    )
    return _page(rows, delivery_of)


@dataclass(kw_only=True, slots=True)
class ErasurePass:
    """One pass over everything. What leads to other data is erased last, so an interrupted pass can be repeated."""

    database: Database
    erasure: int
    footprint: Footprint
    digests: Digests
    now: datetime
    keeps_access: bool
    progress: Progress
    counts: Counter[str] = field(default_factory=Counter[str])
    busy: set[str] = field(default_factory=set[str])

    async def run(self) -> None:
        await self._step("jobs", erase_steps.stop_jobs(self.footprint, self.now))
        await self._step("turns", erase_steps.fail_halted_turns(self.footprint, self.now))
        # Before their sessions: none is deleted while a process runs in it.
        await self._step("processes", erase_steps.erase_processes(self.footprint))
        found = await find_person_data(self.database, self.footprint)
        self.footprint = found.footprint
        # Save the footprint first: the next steps delete the rows that it was found from.
        await self.database.transact(erase_steps.save_footprint(self.erasure, self.footprint))
        if not self.keeps_access:
            drop = names.drop_grants(self.footprint, self.now, by=erase_steps.FORGOTTEN, force=True)
            await self._step("grants", drop)
        await self._erase_deliveries(found)
        await self._erase_notices()
        await self._erase_shares(found)
        await self._erase_messages()
        theirs = forget_losses(found.shared, self.footprint.identities, self.footprint.occurs_in)
        await self._step("rows", theirs)
        for session in found.sessions:
            await self._step("entries", erase_steps.erase_session(self.erasure, session, self.digests, self.now))
        for table in erase_steps.QUOTING_TABLES:
            await self._erase_quotes(table)
        await self._step("turns", erase_steps.blank_turns(self.footprint, sorted(found.turns)))
        await self._rename_keys()
        if not self.busy:
            drop = names.erase_names(
                self.erasure, self.footprint, self.digests, self.now, keeps_access=self.keeps_access
            )
            await self._step("rows", drop)

    async def _step(self, kind: str, step: Transaction[int]) -> None:
        try:
            self.counts[kind] += await self.database.transact(step)
        except SessionBusy as error:
            self.busy.add(error.session)
        except Unreadable as error:  # it goes on in a store in which that can be read
            self.busy.add(error.name)
        except NotFound:
            return  # deleted by somebody else meanwhile
        self.progress(self.counts)

    async def _erase_deliveries(self, found: PersonData) -> None:
        # The answer to a command about a shared session may quote them even if another person sent it.
        about = [await self.database.read(commands_mentioning(session)) for session in found.shared]
        related = replace(found, messages=found.messages.union(*about))
        sends = await deliveries_of(self.database, related)
        for chunk in _chunks(list(sends.items())):
            await self._step("sends", erase_steps.erase_deliveries(self.erasure, dict(chunk), self.digests))

    async def _erase_notices(self) -> None:
        """Erase what the gateway told others about them: who asks for access, who is linked, which chat is gone."""
        async for page in _pages(self.database, partial(erase_steps.find_notices, self.footprint)):
            for numbers in _chunks(page.found):
                found = await _deliveries(self.database, Filter(f"id IN ({placeholders(numbers)})", tuple(numbers)))
                named = {
                    number: send
                    for number, send in found.items()
                    if send and self.footprint.is_named_in(send.outbound.text)
                }
                await self._step("sends", erase_steps.erase_deliveries(self.erasure, named, self.digests))

    async def _erase_shares(self, found: PersonData) -> None:
        for session in found.shared:
            share = await self.database.read(find_share(session, self.footprint))
            found.turns |= share.turns
            # Their own entries go last: the answers to them are found through them.
            for chunk in _chunks((*share.unreadable, *share.answers, *share.said)):
                take = erase_steps.erase_share(self.erasure, session, chunk, self.digests, self.now)
                await self._step("entries", take)

    async def _erase_messages(self) -> None:
        async for page in message_pages(self.database, self.footprint):
            before, numbers = self.counts["messages"], (*(each.number for each in page.found), *page.unreadable)
            erase = erase_steps.erase_messages(self.erasure, numbers, page.found, self.digests)
            await self._step("messages", erase)
            if self.counts["messages"] - before < len(numbers):
                self.busy.add(page.found[0].key.text if page.found else f"in:{numbers[0]}")

    async def _erase_quotes(self, table: str) -> None:
        """Read everything in bounded steps, so that nobody waits for the search."""
        async for page in _pages(self.database, partial(erase_steps.find_quotes, table, self.footprint)):
            for chunk in _chunks(page.found):
                await self._step("rows", erase_steps.erase_quotes(table, chunk))

    async def _rename_keys(self) -> None:
        for text in await self.database.read(erase_steps.all_conversation_keys()):
            key = next(readable(key_in, [(text,)]), None)
            if key and self.footprint.is_named_by(key):
                await self._step("rows", erase_steps.rename_key(self.erasure, key, self.digests, self.now))


def _chunks(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + _CHUNK_ROWS] for start in range(0, len(items), _CHUNK_ROWS)]
