"""Intake: receive, admit, key, accept, classify. When it returns, a message is safe and may be acknowledged."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

from palaver.domain.access import Access, AccessRole, Grant, Verdict, decide_access
from palaver.domain.command import Invocation
from palaver.domain.errors import InvalidInput, StoreUnavailable
from palaver.domain.key import SessionKey, canonical_source, derive_key
from palaver.domain.lifecycle import InboxState
from palaver.domain.reset import Cause
from palaver.domain.scope import choose_profile
from palaver.domain.source import Source, Trust
from palaver.domain.turn import Inbound, Outbound, Received
from palaver.engine import words
from palaver.engine.ground import Ground
from palaver.engine.obedience import Obedience
from palaver.engine.turnstile import Turnstile
from palaver.ports.people import People
from palaver.ports.store import PEOPLE
from palaver.ports.work import Steps, work

__all__ = ["Intake"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Acquaintance:
    """What the store knows about people, as far as admitting them needs it."""

    grants: tuple[Grant, ...]
    aliases: Mapping[str, Mapping[str, str]]


@work
def _acquaint(people: People) -> Steps[_Acquaintance]:
    grants = yield from people.grants()
    return _Acquaintance(tuple(grants.values()), (yield from people.all_aliases()))


class Intake:
    """Use it as a context manager: it remembers who may speak until it is told that this has changed."""

    def __init__(self, on: Ground, obedience: Obedience) -> None:
        self._on = on
        self._obedience = obedience
        self._line = Turnstile()
        self._known: _Acquaintance | None = None
        self._changed = asyncio.Event()
        self._asking = asyncio.Lock()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._changed = self._stack.enter_context(self._on.store.listen(PEOPLE))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        """Put a message into the inbox, once, under its key, whether it is let in or refused."""
        known = await self._people()
        message = replace(inbound, source=self._placed(inbound.source, known))
        access = decide_access(message.source, trust, (*self._on.options.grants, *known.grants), pairing=False)
        key = self._key(message.source)
        # Several may be handed over at once: within a conversation they are accepted in the order they came.
        async with self._line.passing(key.text):
            number = await self._accept(message, key, access)
        if number is not None and access.verdict is Verdict.ALLOW:
            await self._classify(message, key, number, access.role)

    async def key_of(self, source: Source) -> SessionKey:
        return self._key(self._placed(source, await self._people()))

    def _key(self, placed: Source) -> SessionKey:
        return derive_key(placed, self._on.options.scopes.find(placed).value)

    async def _people(self) -> _Acquaintance:
        # Whoever asks gets the answer in the order they asked, and nobody puts an older answer over a newer one.
        async with self._asking:
            if self._changed.is_set():
                self._changed.clear()
                self._known = None
            if self._known is None:
                self._known = await self._on.store.read(_acquaint(self._on.store.people))
            return self._known

    def _placed(self, source: Source, known: _Acquaintance) -> Source:
        """The source under canonical ids, served by the profile that the rules choose."""
        plain = canonical_source(source, known.aliases.get(source.platform, {}))
        profile = choose_profile(plain, self._on.options.profiles)
        return plain if profile == plain.profile else replace(plain, profile=profile)

    async def _accept(self, message: Inbound, key: SessionKey, access: Access) -> int | None:
        refused = None if access.verdict is Verdict.ALLOW else access.reason
        number = await self._on.store.transact(
            self._on.store.inbox.accept(
                message, key, self._on.clock.now(), role=access.role, refused=refused, while_busy=self._busy(message)
            )
        )
        if number is None:
            self._on.meter.count("messages_repeated")
        elif refused:
            self._on.meter.count("messages_refused")
        what = "known already" if number is None else refused or "accepted"
        log.info(
            "message %s", what, extra={"action": "accept", "key": key.text, "inbox": number, "refused": bool(refused)}
        )
        return number

    def _busy(self, message: Inbound) -> Callable[[], Outbound] | None:
        """What is said to a person who writes into a running turn."""
        speaks = self._on.options.acknowledges and self._on.replies.reaches_people(message.source)
        if not speaks or message.cause is not Cause.HUMAN or message.observed or self._invocation(message):
            return None
        notice = words.busy_notice(self._on.options.busy.find(message.source).value)
        return lambda: self._on.replies.to(message.source, notice)[0]

    def _invocation(self, message: Inbound) -> Invocation | None:
        try:
            return self._obedience.invocation(message)
        except InvalidInput:
            return None

    async def _classify(self, message: Inbound, key: SessionKey, number: int, role: AccessRole | None) -> None:
        """Urgent commands act now. If that fails they wait in the inbox like everything else.

        Others come after the turn that is at work, but they do not wait for one that waits for a person.
        """
        invocation = self._invocation(message)
        if invocation is None:
            return
        if not (invocation.command.urgent or await self._on.store.read(self._on.store.steering.is_parked(key))):
            return
        received = Received(
            number=number,
            key=key,
            inbound=message,
            state=InboxState.WAITING,
            received=self._on.clock.now(),
            role=role,
        )
        try:
            await self._obedience.obey(received, urgent=True)
        except StoreUnavailable:
            log.warning("an urgent command waits", extra={"action": "command.waits", "inbox": number})
