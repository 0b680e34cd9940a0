"""Carrying out an erasure: pass after pass over everything, in small transactions, until nothing is found any more."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from palaver.db.database import Database
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.model.errors import NotFound, SessionBusy
from palaver.model.key import SessionKey
from palaver.model.source import DM, Source
from palaver.model.turn import Delivery, Received
from palaver.store.privacy import erase_steps, names
from palaver.store.privacy.digests import Digests, Owed, Table, pages_of
from palaver.store.privacy.footprint import (
    Trace,
    commands_about,
    handoffs_of,
    marks,
    own_sessions,
    share_of,
    shared_sessions,
)
from palaver.store.queue.cause import OF_MESSAGE, OF_OPERATION, OF_SESSION, OF_TURN, CauseKind, SendCause
from palaver.store.records import INBOX_COLUMNS, received_of

__all__ = [
    "Belongings",
    "Pass",
    "belongings",
    "messages_of",
    "owed_to_them",
]

T = TypeVar("T")
_CHUNK = 500
Progress = Callable[[Counter[str]], None]


@dataclass(kw_only=True, slots=True)
class Belongings:
    """What leads to what is theirs: their messages, the turns in which they spoke, the conversations."""

    trace: Trace
    """With the direct chats that were found."""
    messages: set[int] = field(default_factory=set[int])
    turns: set[int] = field(default_factory=set[int])
    sessions: tuple[str, ...] = ()
    """The ids of those in which nobody else ever spoke."""
    shared: tuple[int, ...] = ()
    """The numbers of those in which others did."""
    handoffs: frozenset[int] = frozenset()


async def belongings(database: Database, trace: Trace) -> Belongings:
    found = Belongings(
        trace=trace,
        sessions=tuple(await database.read(own_sessions(trace))),
        shared=tuple(await database.read(shared_sessions(trace))),
        handoffs=frozenset(await database.read(handoffs_of(trace))),
    )
    chats = set(trace.chats)
    async for message in messages_of(database, trace):
        source = message.inbound.source
        found.messages.add(message.number)
        if message.turn is not None:
            found.turns.add(message.turn)
        if source.chat_kind == DM:
            chats |= _chats(source)
    found.trace = replace(trace, chats=frozenset(chats))
    return found


def _chats(source: Source) -> set[tuple[str, str]]:
    return {(source.platform, chat) for chat in (source.chat_id, source.participant) if chat}


async def messages_of(database: Database, trace: Trace) -> AsyncIterator[Received]:
    after = 0
    while page := await database.read(_messages(trace, after)):
        after = page[-1].number
        for message in page:
            yield message


@transaction
def _messages(trace: Trace, after: int) -> Statements[list[Received]]:
    ids = tuple(sorted(trace.identities))
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"
        f" WHERE i.no > ? AND i.identity IN ({marks(ids)}) AND length(i.body) > 0 ORDER BY i.no LIMIT {_CHUNK}",
        (after, *ids),
    )
    return [received_of(row) for row in rows]


async def owed_to_them(database: Database, found: Belongings) -> AsyncIterator[Delivery]:
    theirs: set[int] = set()
    notices: list[tuple[int, Delivery]] = []
    async for page in pages_of(database, Table.OUTBOX):
        for number, owed in page:
            if _is_theirs(owed, found):
                theirs.add(number)
                yield owed.delivery
            elif owed.cause and owed.cause.kind is CauseKind.CHAT_GONE and owed.cause.number is not None:
                notices.append((owed.cause.number, owed.delivery))
    # A notice that something cannot be delivered names the chat, and has a lower number than what it is about.
    for about, notice in notices:
        if about in theirs:
            yield notice


def _is_theirs(owed: Owed, found: Belongings) -> bool:
    delivery, cause = owed.delivery, owed.cause
    return (
        (delivery.outbound.platform, delivery.outbound.chat_id) in found.trace.chats
        or delivery.turn in found.turns
        or delivery.outbound.handoff in found.handoffs
        or (cause is not None and _is_caused_by_them(cause, found))
    )


def _is_caused_by_them(cause: SendCause, found: Belongings) -> bool:
    return (
        (cause.kind in OF_MESSAGE and cause.number in found.messages)
        or (cause.kind in OF_TURN and cause.number in found.turns)
        or (cause.kind in OF_SESSION and cause.id in found.sessions)
        or (cause.kind in OF_OPERATION and cause.number in found.handoffs)
    )


@dataclass(kw_only=True, slots=True)
class Pass:
    """Once over everything. What leads to the rest goes last, so that a pass that is cut off can be taken again."""

    database: Database
    erasure: int
    trace: Trace
    digests: Digests
    now: datetime
    keeps_access: bool
    progress: Progress
    counts: Counter[str] = field(default_factory=Counter[str])
    busy: set[str] = field(default_factory=set[str])

    async def run(self) -> None:
        await self._do("turns", erase_steps.end_halted(self.trace, self.now))
        found = await belongings(self.database, self.trace)
        self.trace = found.trace
        # Known from here on, whatever happens: the rows that told it are about to go.
        await self.database.transact(erase_steps.keep_trace(self.erasure, self.trace))
        if not self.keeps_access:
            await self._do("grants", names.drop_grants(self.trace, self.now, by=erase_steps.FORGOTTEN, force=True))
        await self._sends(found)
        await self._shares(found)
        await self._messages()
        for session in found.sessions:
            await self._do("entries", erase_steps.remove_session(self.erasure, session, self.digests, self.now))
        await self._do("turns", erase_steps.forget_turns(self.trace, sorted(found.turns)))
        await self._keys()
        if not self.busy:
            drop = names.drop_names(self.erasure, self.trace, self.digests, self.now, keeps_access=self.keeps_access)
            await self._do("rows", drop)

    async def _do(self, kind: str, step: Transaction[int]) -> None:
        try:
            self.counts[kind] += await self.database.transact(step)
        except SessionBusy as error:
            self.busy.add(error.session)
        except NotFound:
            return  # somebody else has taken it away meanwhile
        self.progress(self.counts)

    async def _sends(self, found: Belongings) -> None:
        # Who commanded in a conversation that they share, or asked for it, may have been told their words.
        about = [await self.database.read(commands_about(session)) for session in found.shared]
        told = replace(found, messages=found.messages.union(*about))
        sends = [send async for send in owed_to_them(self.database, told)]
        for chunk in _chunks(sends):
            await self._do("sends", erase_steps.drop_sends(self.erasure, chunk, self.digests))

    async def _shares(self, found: Belongings) -> None:
        for session in found.shared:
            share = await self.database.read(share_of(session, self.trace))
            found.turns |= share.turns
            # Their own words last: without them, nobody would know which answers were for them.
            for chunk in _chunks((*share.answers, *share.said)):
                take = erase_steps.take_share(self.erasure, session, chunk, self.digests, self.now)
                await self._do("entries", take)

    async def _messages(self) -> None:
        async for page in pages_of(self.database, Table.INBOX):
            theirs: list[Received] = [each for _, each in page if self.trace.speaks(each.inbound.source)]
            before = self.counts["messages"]
            if theirs:
                await self._do("messages", erase_steps.drop_messages(self.erasure, theirs, self.digests))
            if self.counts["messages"] - before < len(theirs):
                self.busy.add(theirs[0].key.text)

    async def _keys(self) -> None:
        for text in await self.database.read(names.named_keys()):
            key = SessionKey.parse(text)
            if self.trace.is_named_by(key):
                await self._do("rows", erase_steps.rename_key(self.erasure, key, self.digests, self.now))


def _chunks(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]
