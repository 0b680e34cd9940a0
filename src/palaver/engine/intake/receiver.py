"""Intake: receive, admit, key, accept, classify. When it returns, a message is safe and may be acknowledged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Self, TypeVar

from palaver.db.database import PEOPLE, TURNS
from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.engine.intake.admission import Admission
from palaver.engine.intake.command_dispatch import CommandDispatcher
from palaver.engine.options import Moved, where_now
from palaver.engine.retry import log_error, retry_outage, wait_any
from palaver.model.access import AccessRole
from palaver.model.errors import InvalidInput, StoreError, StoreUnavailable, UnknownCommand
from palaver.model.key import SessionKey, Speaker, canonical_source, derive_key
from palaver.model.reset import Cause
from palaver.model.scope import DmScope, choose_profile
from palaver.model.session import Principal, identity_of, source_of_identity
from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound, Received, account_text
from palaver.model.value import value
from palaver.store.results import BusyNotices
from palaver.store.store import Store

__all__ = [
    "Intake",
    "KeyedLock",
]

log = logging.getLogger(__name__)

T = TypeVar("T")


class KeyedLock:
    """A name is known only while somebody stands there."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._last)

    async def passing(self, name: str, step: Callable[[], Awaitable[T]]) -> T:
        """Take a step once everybody who came before has passed or gone."""
        before = self._last.get(name)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last[name] = mine
        try:
            if before is not None:
                await asyncio.shield(before)
            return await step()
        finally:
            if before is None or before.done():
                self._let_by(name, mine)
            else:  # Gone before it was their turn: who comes next still waits for whoever is in front.
                before.add_done_callback(lambda _: self._let_by(name, mine))

    def _let_by(self, name: str, mine: "asyncio.Future[None]") -> None:
        mine.set_result(None)
        if self._last.get(name) is mine:
            del self._last[name]


@value(kw_only=False)
class _Acquaintance:
    """What the store knows about people, as far as their conversations need it."""

    aliases: Mapping[str, Mapping[str, str]]
    linked: Mapping[str, str]
    """The person behind every identity that is linked with another."""
    identities: Mapping[str, Sequence[str]]
    """The identities of every such person."""
    moved: Moved

    def aliases_of(self, source: Source) -> Mapping[str, str]:
        return self.aliases.get(source.platform, {})

    def where_now(self, source: Source) -> Source:
        """Its chat under the id it has now. A message keeps the id it came with: by that it is known again."""
        return where_now(source, self.moved)


@transaction
def _acquaint(store: Store) -> Statements[_Acquaintance]:
    aliases = yield from store.aliases.load_all()
    linked = yield from store.people.linked_people()
    identities: dict[str, list[str]] = {}
    for identity, person in linked.items():
        identities.setdefault(person, []).append(identity)
    return _Acquaintance(aliases, linked, identities, (yield from store.chat_migration.moved()))


def _chat_of(source: Source) -> str:
    return f"{account_text(source.platform, source.account)} {source.chat or source.participant}"


class Intake:
    """Use it as a context manager: it remembers who is who until it is told that this has changed."""

    def __init__(self, ctx: EngineContext, obedience: CommandDispatcher) -> None:
        self._ctx = ctx
        self._obedience = obedience
        self._admission = Admission(ctx, obedience.revising.accept)
        self._line = KeyedLock()
        self._known: _Acquaintance | None = None
        self._changed = asyncio.Event()
        self._asking = asyncio.Lock()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._changed = self._stack.enter_context(self._ctx.store.listen(PEOPLE))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def look_around(self) -> None:
        """Before anything is done by the options: they name chats by ids that those may have no more."""
        await self._people()

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        """Put a message into the inbox, once, under its key, whether it is let in or refused.

        Raises MalformedSource where its ids are too long to be kept.
        """
        # Several may be handed over at once: within a chat they are accepted in the order they came.
        try:
            accepted = await self._line.passing(_chat_of(inbound.source), lambda: self._accept(inbound, trust))
        except StoreError as error:
            account = account_text(inbound.source.platform, inbound.source.account)
            log_error(log, "a message was not taken", error, {"action": "message.not_stored", "account": account})
            raise
        if accepted is not None:
            await self._classify(*accepted)

    async def _accept(self, inbound: Inbound, trust: Trust) -> tuple[Inbound, int] | None:
        """The message that is in the inbox now, and its number; None if there is none to be looked at."""
        while True:
            known = await self._people()
            source = self._placed(inbound.source, known)
            placed = inbound if source is inbound.source else replace(inbound, source=source)
            message = placed if placed.revision else self._admission.hear(placed, commands=self._commands(placed))
            if message is None:
                return None
            message = self._obedience.meant(message)
            # Nothing is awaited between the look at people and grants and the step that sees whether they have changed.
            here = known.where_now(message.source)
            heard = message if here is message.source else replace(message, source=here)
            message.check_ids()
            if heard is not message:
                heard.check_ids()
            admitted = self._admission.decide(heard, trust, known.aliases_of(here))
            key = self._key(here, admitted.access.role, known)
            taken = await self._admission.accept(message, key, admitted, self._busy_notices(message))
            if taken is not None:
                return None if taken.number is None or taken.refused else (message, taken.number)
            # Somebody was linked, unlinked or granted something a moment ago.
            self._known = None

    async def learn(self, platform: str, alias: str, canonical: str) -> None:
        """Two ids are one: whatever comes after is placed so."""
        known = await self._people()
        if known.aliases.get(platform, {}).get(alias) != canonical:
            learn = self._ctx.store.aliases.learn(platform, alias, canonical, self._ctx.clock.now())
            await self._ctx.store.transact(learn)
            self._known = None

    async def move_chat(self, platform: str, account: str | None, old: str, new: str) -> None:
        """A chat has another id: whatever comes after is placed so."""
        known = await self._people()
        if old == new or known.moved.get(account_text(platform, account), {}).get(old) == new:
            return
        move = self._ctx.store.chat_migration.move(platform, account, old, new, self._ctx.clock.now())
        if await self._ctx.store.transact(move):
            log.info("chat has another id", extra={"action": "chat.moved", "account": account_text(platform, account)})
        self._known = None

    async def key_of(self, source: Source) -> SessionKey:
        """The conversation that is spoken to where the source is."""
        return await self._ctx.store.read(self._ctx.store.attach.conversation_of(await self.place_of(source)))

    async def place_of(self, source: Source) -> SessionKey:
        """The key of the place itself, whatever it is attached to."""
        known = await self._people()
        placed = known.where_now(self._placed(source, known))
        return self._key(placed, self._admission.role_of(placed, known.aliases_of(placed)), known)

    def _key(self, placed: Source, role: AccessRole | None, known: _Acquaintance) -> SessionKey:
        scope = self._ctx.options.scopes.find(placed).value
        person = known.linked.get(identity_of(placed) or "")
        is_owner = role is AccessRole.OWNER or (scope.dm is DmScope.SHARED and self._owns(person, known))
        return derive_key(placed, scope, Speaker(person=person, is_owner=is_owner))

    def _owns(self, person: str | None, known: _Acquaintance) -> bool:
        """Whoever is linked with the owner is the owner."""
        sources = map(source_of_identity, known.identities.get(person or "", ()))
        return any(self._admission.role_of(each, known.aliases_of(each)) is AccessRole.OWNER for each in sources)

    async def _people(self) -> _Acquaintance:
        if self._known is not None and not self._changed.is_set():
            return self._known
        # Nobody puts an older answer over a newer one.
        async with self._asking:
            if self._changed.is_set():
                self._changed.clear()
                self._known = None
            if self._known is None:
                self._known = await self._ctx.store.read(_acquaint(self._ctx.store))
                self._ctx.follow(self._known.moved)
            return self._known

    def _placed(self, source: Source, known: _Acquaintance) -> Source:
        """The source under canonical ids, served by the profile that the rules choose."""
        plain = canonical_source(source, known.aliases_of(source))
        profile = choose_profile(plain, self._ctx.options.profiles)
        return plain if profile == plain.profile else replace(plain, profile=profile)

    def _busy_notices(self, message: Inbound) -> BusyNotices:
        """Return what to answer if a turn is open. Urgent commands wait for none, other commands for no approval."""
        speaks = self._ctx.options.acknowledges and self._ctx.replies.reaches_people(message.source)
        is_for_us = message.cause is Cause.HUMAN and not message.observed and not self._obedience.is_urgent(message)
        if not (speaks and is_for_us):
            return BusyNotices()
        invokes = self._obedience.invokes(message)
        text = texts.busy_notice(self._ctx.options.busy_mode(message), is_command=invokes)
        notice = self._ctx.replies.to(message.source, text)[0]
        return BusyNotices(running=notice, parked=None if invokes else replace(notice, text=texts.ASKED_FIRST))

    def _commands(self, message: Inbound) -> bool:
        """Whether it is a command of ours, right or wrong, that names no bot."""
        if "@" in message.text.partition(" ")[0]:
            return False
        try:
            return self._obedience.invocation(message) is not None
        except UnknownCommand:
            return False
        except InvalidInput:
            return True

    async def _classify(self, message: Inbound, number: int) -> None:
        """Urgent commands act now. If that fails they are caught up with.

        Others come after the turn that is at work, but they do not wait for one that waits for a person.
        """
        if not self._obedience.invokes(message):
            return
        store = self._ctx.store
        received = await store.read(store.inbox.inbox_row(number, Principal.operator()))
        if received is None or not (
            self._obedience.is_urgent(message) or await store.read(store.steering.is_parked(received.key))
        ):
            return
        try:
            await self._obey(received)
        except StoreUnavailable:
            log.warning("an urgent command waits", extra={"action": "command.delayed", "inbox": number})

    async def catch_up(self) -> None:
        """Obey commands that wait behind a turn and need not: whoever accepted them died, or the turn waits by now."""
        looked: set[tuple[int, int | None]] = set()
        with self._ctx.store.listen(TURNS) as woken:
            while True:
                woken.clear()
                behind = await retry_outage(lambda: self._ctx.store.read(self._ctx.store.inbox.behind_turns()))
                for number, fence in sorted(behind - looked):
                    await retry_outage(partial(self._obey_late, number, is_parked=fence is not None))
                looked = behind
                await wait_any(woken, timeout=self._ctx.options.lease.total_seconds() / 3)

    async def _obey_late(self, number: int, *, is_parked: bool) -> None:
        received = await self._ctx.store.read(self._ctx.store.inbox.inbox_row(number, Principal.operator()))
        if received is None or not self._obedience.invokes(received.inbound):
            return
        if is_parked or self._obedience.is_urgent(received.inbound):
            await self._obey(received)

    async def _obey(self, received: Received) -> None:
        await self._obedience.obey(received, urgent=self._obedience.is_urgent(received.inbound))
