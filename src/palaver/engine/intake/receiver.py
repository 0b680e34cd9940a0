"""Receive a message: admit it, derive its key, accept it, run it if it is urgent. Then it may be acknowledged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Self, TypeVar

from palaver.db.transaction import PEOPLE, TURNS, Statements, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.engine.intake.admission import Admission
from palaver.engine.intake.command_dispatch import NOT_A_COMMAND, CommandDispatcher, ParsedMessage
from palaver.engine.options import ChatMoves, follow_move
from palaver.engine.retry import log_error, retry_outage, wait_any
from palaver.model.access import AccessRole
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.model.key import DmScope, SessionKey, Speaker, choose_profile, derive_key
from palaver.model.session import Principal
from palaver.model.source import Source, Trust, canonical_source, identity_of, source_of_identity
from palaver.model.turn import BusyMode, Cause, Inbound, account_text
from palaver.model.value import value
from palaver.store.conversations import chat_migration
from palaver.store.people import aliases, people
from palaver.store.results import BusyNotices

log = logging.getLogger(__name__)

T = TypeVar("T")


class KeyedLock:
    """Runs steps under the same key one after the other, in the order they came. Holds no key that nobody uses."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._last)

    async def run(self, key: str, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step once all earlier steps under its key have ended or been cancelled."""
        before = self._last.get(key)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last[key] = mine
        try:
            if before is not None:
                await asyncio.shield(before)
            return await step()
        finally:
            if before is None or before.done():
                self._release(key, mine)
            else:  # Cancelled while waiting: the next one still has to wait for those in front.
                before.add_done_callback(lambda _: self._release(key, mine))

    def _release(self, key: str, mine: "asyncio.Future[None]") -> None:
        mine.set_result(None)
        if self._last.get(key) is mine:
            del self._last[key]


@value(kw_only=False)
class _Directory:
    """What keys depend on: aliases of ids, links between identities, and chats that have a new id."""

    aliases: Mapping[str, Mapping[str, str]]
    linked: Mapping[str, str]
    """The person behind every linked identity."""
    identities: Mapping[str, Sequence[str]]
    """The identities of every such person."""
    moves: ChatMoves

    def aliases_of(self, source: Source) -> Mapping[str, str]:
        return self.aliases.get(source.platform, {})


@transaction
def _load_directory() -> Statements[_Directory]:
    known = yield from aliases.load_all()
    linked = yield from people.linked_people()
    identities: dict[str, list[str]] = {}
    for identity, person in linked.items():
        identities.setdefault(person, []).append(identity)
    return _Directory(known, linked, identities, (yield from chat_migration.moved()))


class Intake:
    """Receives messages. As a context manager it listens for changes of people, which its cache depends on."""

    def __init__(self, ctx: EngineContext, commands: CommandDispatcher) -> None:
        self._ctx = ctx
        self._commands = commands
        self._admission = Admission(ctx, commands.revisions)
        self._chats = KeyedLock()
        self._cached: _Directory | None = None
        self._changed = asyncio.Event()
        self._loading = asyncio.Lock()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._changed = self._stack.enter_context(self._ctx.store.listen(PEOPLE))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def load(self) -> None:
        """Load what keys depend on, and point the options to chats under their current ids."""
        await self._directory()

    # Receive

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        """Put a message into the inbox once, under its key, whether it is admitted or refused.

        Raises MalformedSource if its ids are too long to be stored.
        """
        source = inbound.source
        account = account_text(source.platform, source.account)
        try:
            # An adapter may hand over several messages at once. Accept those of one chat in the order they came.
            accepted = await self._chats.run(
                f"{account} {source.chat or source.participant}", lambda: self._accept(inbound, trust)
            )
        except StoreError as error:
            log_error(log, "a message could not be stored", error, {"action": "message.not_stored", "account": account})
            raise
        if accepted is not None:
            await self._run_urgent(*accepted)

    async def _accept(self, inbound: Inbound, trust: Trust) -> tuple[int, ParsedMessage] | None:
        """Return the number of the accepted message and what it invokes; None if there is nothing more to do."""
        invoked = self._commands.parse(inbound)
        while True:
            directory = await self._directory()
            source = self._canonical(inbound.source, directory)
            placed = inbound if source is inbound.source else replace(inbound, source=source)
            message = placed if placed.revision else self._address(placed, invoked)
            if message is None:
                return None
            message, parsed = self._commands.resolve(message, NOT_A_COMMAND if message.observed else invoked)
            # Do not await between reading people and grants and the transaction that sees whether they changed.
            # The message keeps the chat id it came with, by which a repetition is recognised.
            here = follow_move(message.source, directory.moves)
            current = message if here is message.source else replace(message, source=here)
            message.check_ids()
            if current is not message:
                current.check_ids()
            decision = self._admission.decide(current, trust, directory.aliases_of(here))
            key = self._key(here, decision.access.role, directory)
            result = await self._admission.accept(message, key, decision, self._busy_notices(message, parsed))
            if result is not None:
                if result.number is None or result.refused:
                    return None
                self._commands.remember(result.number, message, parsed)
                return result.number, parsed
            # Somebody was linked, unlinked or granted something since the directory was loaded.
            self._cached = None

    def _address(self, message: Inbound, parsed: ParsedMessage) -> Inbound | None:
        names_a_bot = "@" in message.text.partition(" ")[0]
        return self._admission.address(message, is_command=parsed.is_known_command and not names_a_bot)

    def _busy_notices(self, message: Inbound, parsed: ParsedMessage) -> BusyNotices | None:
        """Return what to answer if a turn is open. Urgent commands wait for none, other commands for no approval."""
        options, routes = self._ctx.options, self._ctx.replies.routes
        if message.cause is not Cause.HUMAN or message.observed or parsed.is_urgent:
            return None
        if not options.acknowledges or not routes.reaches_people(message.source):
            return None
        mode = options.busy_mode(message)
        is_queued_command = parsed.is_command and mode is not BusyMode.INTERRUPT
        return BusyNotices(
            place=routes.places(message.source)[0],
            running=texts.COMMAND_QUEUED if is_queued_command else texts.BUSY_NOTICES[mode],
            parked=None if parsed.is_command else texts.ASKED_FIRST,
        )

    # Commands that do not wait for the turn

    async def _run_urgent(self, number: int, parsed: ParsedMessage) -> None:
        """Run a command now if it is urgent or the turn in front waits for an approval. `catch_up` retries it."""
        if not parsed.is_command:
            return
        store = self._ctx.store
        received = await store.read(store.inbox.get_message(number, Principal.operator()))
        if received is None or not (parsed.is_urgent or await store.read(store.turn_control.is_parked(received.key))):
            return
        try:
            await self._commands.run(received, urgent=parsed.is_urgent)
        except StoreUnavailable:
            log.warning("an urgent command waits for the store", extra={"action": "command.delayed", "inbox": number})

    async def catch_up(self) -> None:
        """Run commands that need not wait for the turn in front: their process died, or the turn is parked by now."""
        seen: set[tuple[int, int | None]] = set()
        with self._ctx.store.listen(TURNS) as woken:
            while True:
                woken.clear()
                behind = await retry_outage(lambda: self._ctx.store.read(self._ctx.store.inbox.list_behind_turns()))
                for number, fence in sorted(behind - seen):
                    await retry_outage(partial(self._run_late, number, is_parked=fence is not None))
                seen = behind
                await wait_any(woken, timeout=self._ctx.options.lease.total_seconds() / 3)

    async def _run_late(self, number: int, *, is_parked: bool) -> None:
        received = await self._ctx.store.read(self._ctx.store.inbox.get_message(number, Principal.operator()))
        if received is None:
            return
        parsed = self._commands.parse_received(received)
        if parsed.is_urgent or (is_parked and parsed.is_command):
            await self._commands.run(received, urgent=parsed.is_urgent)

    # Aliases and moved chats

    async def learn_alias(self, platform: str, alias: str, canonical: str) -> None:
        """Treat two ids as one person from now on."""
        directory = await self._directory()
        if directory.aliases.get(platform, {}).get(alias) != canonical:
            learn = self._ctx.store.aliases.learn(platform, alias, canonical, self._ctx.clock.now())
            await self._ctx.store.transact(learn)
            self._cached = None

    async def move_chat(self, platform: str, account: str | None, old: str, new: str) -> None:
        """Follow a chat to its new id."""
        directory = await self._directory()
        name = account_text(platform, account)
        if old == new or directory.moves.get(name, {}).get(old) == new:
            return
        move = self._ctx.store.chat_migration.move(platform, account, old, new, self._ctx.clock.now())
        if await self._ctx.store.transact(move):
            log.info("a chat has a new id", extra={"action": "chat.moved", "account": name})
        self._cached = None

    # Keys

    async def key_of(self, source: Source) -> SessionKey:
        """Return the key of the conversation that a message from this source goes to."""
        return await self._ctx.store.read(self._ctx.store.attach.conversation_of(await self.place_of(source)))

    async def place_of(self, source: Source) -> SessionKey:
        """Return the key of the chat itself, even while it is attached to another conversation."""
        directory = await self._directory()
        placed = follow_move(self._canonical(source, directory), directory.moves)
        return self._key(placed, self._admission.role_of(placed, directory.aliases_of(placed)), directory)

    def _key(self, source: Source, role: AccessRole | None, directory: _Directory) -> SessionKey:
        scope = self._ctx.options.scopes.find(source)
        person = directory.linked.get(identity_of(source) or "")
        is_owner = role is AccessRole.OWNER or (scope.dm is DmScope.SHARED and self._is_owner(person, directory))
        return derive_key(source, scope, Speaker(person=person, is_owner=is_owner))

    def _is_owner(self, person: str | None, directory: _Directory) -> bool:
        """Tell whether any identity of a linked person is the owner's."""
        sources = map(source_of_identity, directory.identities.get(person or "", ()))
        return any(
            self._admission.role_of(source, directory.aliases_of(source)) is AccessRole.OWNER for source in sources
        )

    def _canonical(self, source: Source, directory: _Directory) -> Source:
        """Return the source under canonical ids, with the profile that the rules choose."""
        plain = canonical_source(source, directory.aliases_of(source))
        if not self._ctx.options.profiles:
            return plain
        profile = choose_profile(plain, self._ctx.options.profiles)
        return plain if profile == plain.profile else replace(plain, profile=profile)

    async def _directory(self) -> _Directory:
        if self._cached is not None and not self._changed.is_set():
            return self._cached
        # One at a time, so that an older result never replaces a newer one.
        async with self._loading:
            if self._changed.is_set():
                self._changed.clear()
                self._cached = None
            if self._cached is None:
                self._cached = await self._ctx.store.read(_load_directory())
                self._ctx.follow_moves(self._cached.moves)
            return self._cached
