"""Intake: receive, admit, key, accept, classify. When it returns, a message is safe and may be acknowledged."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

from palaver.domain.access import AccessRole
from palaver.domain.command import Invocation
from palaver.domain.errors import InvalidInput, StoreUnavailable, UnknownCommand
from palaver.domain.key import SessionKey, canonical_source, derive_key
from palaver.domain.lifecycle import InboxState
from palaver.domain.reset import Cause
from palaver.domain.scope import choose_profile
from palaver.domain.source import Source, Trust
from palaver.domain.turn import Inbound, Outbound, Received
from palaver.engine import words
from palaver.engine.admission import Admission
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
    """What the store knows about people, as far as their conversations need it."""

    aliases: Mapping[str, Mapping[str, str]]


@work
def _acquaint(people: People) -> Steps[_Acquaintance]:
    return _Acquaintance((yield from people.all_aliases()))


class Intake:
    """Use it as a context manager: it remembers who is who until it is told that this has changed."""

    def __init__(self, on: Ground, obedience: Obedience) -> None:
        self._on = on
        self._obedience = obedience
        self._admission = Admission(on, obedience.revising.accept)
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
        placed = replace(inbound, source=self._placed(inbound.source, known))
        message = placed if placed.revision else self._admission.hear(placed, commands=self._commands(placed))
        while message is not None:
            access = self._admission.decide(message, trust)
            key = self._key(message.source)
            # Several may be handed over at once: within a conversation they are accepted in the order they came.
            async with self._line.passing(key.text):
                taken = await self._admission.accept(message, key, access, self._busy(message))
            if taken is None:
                continue
            if taken.number is not None and not taken.refused:
                await self._classify(message, key, taken.number, access.role)
            return

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
