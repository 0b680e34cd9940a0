"""Receive a message: admit it, derive its key, accept it, run it if it is urgent. Then it may be acknowledged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Self, TypeVar

from palaver.db.transaction import PEOPLE, TURNS, Statements, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext, Resources
from palaver.engine.delivery.owner import Reporting, notify_owner
from palaver.engine.intake.admission import Admission, AdmissionDecision, Directory, Rules, load_directory
from palaver.engine.intake.command_dispatch import NOT_A_COMMAND, CommandDispatcher, ParsedMessage, read_message
from palaver.engine.retry import log_error, retry_outage, wait_any
from palaver.engine.settings import follow_move
from palaver.model.access import AccessRole, Verdict
from palaver.model.addressing import Addressing
from palaver.model.attachment import Attachment
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.model.feedback import Rating, rating_of
from palaver.model.key import SessionKey
from palaver.model.platform import Platform
from palaver.model.redact import PastedKey, find_pasted_key, without_keys
from palaver.model.revision import RevisionPolicy
from palaver.model.session import Principal
from palaver.model.source import Source, Trust, account_text, identity_of, identity_text, readable_identity
from palaver.model.turn import Cause, Inbound, Reaction, outbound_to
from palaver.model.value import value
from palaver.store.queue.answered import find_quote
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.results import BusyNotices

log = logging.getLogger(__name__)

T = TypeVar("T")


class KeyedLock:
    """Runs steps under the same key one after the other, in the order they came. Holds no key that nobody uses."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}

    @property
    def keys(self) -> tuple[Hashable, ...]:
        return tuple(self._last)

    async def run(self, key: Hashable, step: Callable[[], Awaitable[T]]) -> T:
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

    def _release(self, key: Hashable, mine: "asyncio.Future[None]") -> None:
        mine.set_result(None)
        if self._last.get(key) is mine:
            del self._last[key]


@value
class Decision:
    """What becomes of a message, before it is stored."""

    addressing: Addressing
    message: Inbound
    """As it is stored: from a canonical source, and under the chat id it came with, by which repetitions are known."""
    parsed: ParsedMessage = NOT_A_COMMAND
    admission: AdmissionDecision | None = None
    """None if the message is not for us."""


def decide(rules: Rules, read: tuple[Inbound, ParsedMessage], trust: Trust) -> Decision:
    """Decide about a message that was read. Raises MalformedSource if its ids are too long to be stored."""
    inbound, invoked = read
    source = rules.canonical(inbound.source)
    message = inbound if source is inbound.source else replace(inbound, source=source)
    addressing = Addressing.ADDRESSED
    if message.revision is None:
        is_ours = invoked.is_known_command and "@" not in message.text.partition(" ")[0]  # it names no other bot
        addressing = rules.addressing(message, is_command=is_ours)
    if addressing is Addressing.IGNORED:
        return Decision(addressing=addressing, message=message)
    message = replace(message, observed=True) if addressing is Addressing.OVERHEARD else message
    message, parsed = invoked.resolve(message)
    here = follow_move(message.source, rules.directory.moves)
    current = message if here is message.source else replace(message, source=here)
    message.check_ids()
    if current is not message:
        current.check_ids()
    return Decision(addressing=addressing, message=message, parsed=parsed, admission=rules.decide(current, trust))


class Intake:
    """Receives messages. As a context manager it listens for changes of people, which its cache depends on."""

    def __init__(self, ctx: EngineContext, resources: Resources, commands: CommandDispatcher) -> None:
        self._ctx = ctx
        self._resources = resources
        self._commands = commands
        self._admission = Admission(ctx, commands.revisions, commands.rights)
        self._chats = KeyedLock()
        self._cached: Directory | None = None
        self._changed = asyncio.Event()
        self._cached_until = 0.0
        """When to look again on a store with other gateways: a notification of theirs can be lost."""
        self._loading = asyncio.Lock()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._changed = self._stack.enter_context(self._ctx.store.listen(PEOPLE))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def load(self) -> None:
        """Load what keys depend on, and point the settings to chats under their current ids."""
        await self._directory()

    @property
    def accounts(self) -> Mapping[str, Platform]:
        return self._admission.accounts

    # Receive

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        """Put a message into the inbox once, under its key, whether it is admitted or refused.

        Raises MalformedSource if its ids are too long to be stored.
        """
        source = inbound.source
        if inbound.reaction is not None:
            return await self._react(inbound, inbound.reaction, trust)
        # From here on nothing knows the key of a model provider but what may try it.
        pasted = find_pasted_key(inbound.text)
        said = without_keys(inbound)
        try:
            # An adapter may hand over several messages at once. Accept those of one chat in the order they came.
            accepted = await self.in_order(source, lambda: self._accept(said, trust, pasted))
        except StoreError as error:
            account = account_text(source.platform, source.account)
            log_error(log, "a message could not be stored", error, {"action": "message.not_stored", "account": account})
            raise
        if accepted is not None:
            await self._run_urgent(*accepted)
        return None

    async def _react(self, inbound: Inbound, reaction: Reaction, trust: Trust) -> None:
        """Keep thumbs up or down as feedback. On a question they are the command that its button would send."""
        rating, store = rating_of(reaction.emoji), self._ctx.store
        if rating is None or (rating is Rating.NONE and not reaction.removed) or inbound.reply_to is None:
            return
        rules = self._admission.rules(await self._directory())
        source = follow_move(rules.canonical(inbound.source), rules.directory.moves)
        table = await store.read(store.grants.load_table(rules.table))
        decided = replace(rules, table=table).decide(replace(inbound, source=source), trust)
        identity = identity_of(source)
        if decided.access.verdict is not Verdict.ALLOW or identity is None:
            self._ctx.meter.count("messages_refused")
            return
        react = store.feedback.react(source, identity, inbound.reply_to, rating, inbound.at, removed=reaction.removed)
        said = await self.in_order(source, lambda: store.transact(react))
        log.info("reaction received", extra={"action": "message.reaction", "key": decided.key.text})
        if said:
            # Known again by this name if it is delivered again. It has no id that the answer could reply to.
            name = f"reaction {source.chat} {inbound.reply_to} {inbound.at.isoformat()}"
            plain = replace(inbound, source=replace(inbound.source, message_id=None), reaction=None, reply_to=None)
            await self.receive(replace(plain, text=said, mentions_us=True, request_key=name), trust)

    def in_order(self, source: Source, step: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        """Run a step once all earlier steps for the same chat have ended."""
        return self._chats.run((source.platform, source.account, source.addressee), step)

    def read(self, inbound: Inbound) -> tuple[Inbound, ParsedMessage]:
        platform = self.accounts.get(account_text(inbound.source.platform, inbound.source.account))
        return read_message(inbound, self._commands.table, platform)

    async def _accept(
        self, inbound: Inbound, trust: Trust, pasted: PastedKey | None = None
    ) -> tuple[int, ParsedMessage] | None:
        """Return the number of the accepted message and what it invokes; None if there is nothing more to do."""
        if (
            self._resources.voice
            and self._resources.voice.transcriber
            and any(map(_is_stored_recording, inbound.files))
        ):
            inbound = replace(inbound, is_unheard=True)
        read = self.read(await self._with_quote(inbound) if inbound.reply_to and not inbound.quote else inbound)
        while True:
            directory = await self._directory()
            # Do not await between reading people and grants and the transaction that sees whether they changed.
            decision = decide(self._admission.rules(directory), read, trust)
            message, parsed, admission = decision.message, decision.parsed, decision.admission
            if admission is None:
                self._ctx.meter.count("messages_ignored")
                return None
            if pasted and admission.access.verdict is Verdict.ALLOW:
                message, parsed = self._take_key(pasted, message, parsed, admission)
            busy_notices = self._busy_notices(message, parsed, admission.role)
            result = await self._admission.accept(message, admission.key, admission, busy_notices)
            if result is not None:
                if result.number is None or result.refused:
                    return None
                self._commands.remember(result.number, message, parsed)
                return result.number, parsed
            # Somebody was linked, unlinked or granted something since the directory was loaded.
            self._cached = None

    def _take_key(
        self, pasted: PastedKey, message: Inbound, parsed: ParsedMessage, admission: AdmissionDecision
    ) -> tuple[Inbound, ParsedMessage]:
        platform = self.accounts.get(account_text(message.source.platform, message.source.account))
        keys, profile = self._resources.pasted_keys, admission.key.profile
        taken = keys.take_in(message, pasted, platform, admission.role, profile)
        return (message, parsed) if taken == message else self.read(taken)

    async def _with_quote(self, inbound: Inbound) -> Inbound:
        """Add what a message replies to, if the platform tells only the id. What opened a thread is no news in it."""
        if inbound.revision or inbound.reply_to is None or inbound.reply_to == inbound.source.thread_id:
            return inbound
        source = await self.canonical(inbound.source)
        quote = await self._ctx.store.read(find_quote(source, inbound.reply_to))
        return replace(inbound, quote=quote)

    async def refuse(self, inbound: Inbound, reason: str) -> int | None:
        """Store a message whose ids are too long, without its content and under shortened ids, as refused.

        Return its number, or None for a redelivery.
        """
        message, now = inbound.shortened(), self._ctx.clock.now()
        store, key = self._ctx.store, await self.place_of(message.source)
        if message.revision is None:
            return await store.transact(store.inbox.accept(message, key, now, refused=reason))
        ignore = RevisionPolicy.IGNORE
        return await store.transact(store.revisions.accept_revision(message, key, now, ignore, refused=reason))

    def _busy_notices(self, message: Inbound, parsed: ParsedMessage, role: AccessRole | None) -> BusyNotices | None:
        """Return what to do if a turn is parked. Commands wait for no approval."""
        settings, routes = self._ctx.settings, self._ctx.replies.routes
        if message.cause is not Cause.HUMAN or message.observed or parsed.is_urgent:
            return None
        place = routes.places(message.source)[0] if routes.reaches_people(message.source) else None
        answer = withdraw = None
        is_command = parsed.is_command
        if not is_command and settings.can_answer(message, role):
            answer = partial(self._ctx.store.turn_control.answer_by_message, inbound=message)
        if not is_command and settings.withdraws_question(message):
            # Nothing is answered after a deletion: it has a notice of its own.
            is_answered = message.revision is None or not message.revision.deleted
            withdraw = partial(
                self._ctx.store.turn_control.withdraw_question,
                note=texts.WITHDRAWN_NOTE,
                notice=texts.WITHDRAWN,
                place=place if is_answered else None,
            )
        return BusyNotices(
            place=place if settings.config.acknowledges else None,
            parked=None if is_command else settings.for_reader(texts.ASKED_FIRST, role),
            answer=answer,
            withdraw=withdraw,
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
                await wait_any(woken, timeout=self._ctx.settings.limits.lease.total_seconds() / 3)

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

    async def move_person(self, platform: str, account: str | None, old: str, new: str, at: datetime) -> None:
        """Follow somebody to their new id; tell the owner if the configuration names the old one."""
        now, there = self._ctx.clock.now(), Source(platform=platform, account=account)
        if await self._ctx.store.transact(self._move_person(there, old, new, at, now)):
            log.info("somebody has a new id", extra={"action": "person.moved"})
        self._cached = None

    @transaction
    def _move_person(self, there: Source, old: str, new: str, at: datetime, now: datetime) -> Statements[bool]:
        grants = self._ctx.settings.grants
        moved = yield from self._ctx.store.aliases.move_person(there.platform, there.account, old, new, at, now)
        if moved and any((grant.platform, grant.user_id) == (there.platform, old) for grant in grants):
            names = (readable_identity(identity_text(there.platform, each)) for each in (old, new))
            yield from notify_owner(
                outbound_to(replace(there, chat_id=new), ""),
                texts.id_changed(*names),
                SendCause(CauseKind.PROBLEM, account_text(there.platform, there.account), f"moved {at.isoformat()}"),
                Reporting(self._ctx.replies.routes, grants),
                now,
            )
        return moved

    async def move_chat(self, platform: str, account: str | None, old: str, new: str, *, server: str | None) -> None:
        """Follow a chat to its new id."""
        directory = await self._directory()
        name = account_text(platform, account)
        if old == new or directory.moves.get((name, server), {}).get(old) == new:
            return
        now = self._ctx.clock.now()
        move = self._ctx.store.chat_migration.move(platform, account, old, new, now, server=server)
        if await self._ctx.store.transact(move):
            log.info("a chat has a new id", extra={"action": "chat.moved", "account": name})
        self._cached = None

    # Keys

    async def key_of(self, source: Source) -> SessionKey:
        """Return the key of the conversation that a message from this source goes to."""
        return await self._ctx.store.read(self._ctx.store.attach.conversation_of(await self.place_of(source)))

    async def place_of(self, source: Source) -> SessionKey:
        """Return the key of the chat itself, even while it is attached to another conversation."""
        rules = self._admission.rules(await self._directory())
        placed = follow_move(rules.canonical(source), rules.directory.moves)
        return rules.key(placed, rules.speaker(placed, rules.role_of(placed)))

    async def canonical(self, source: Source) -> Source:
        """Return a source under canonical ids and the current id of its chat."""
        rules = self._admission.rules(await self._directory())
        return follow_move(rules.canonical(source), rules.directory.moves)

    async def other_ids(self, source: Source) -> tuple[list[tuple[str, str]], list[str]]:
        """Return the aliases of a sender, each with the canonical id, and the earlier ids of the chat."""
        directory = await self._directory()
        aliases = directory.aliases.get(source.platform, {})
        canonical = aliases.get(source.user_id or "", source.user_id)
        moved = directory.moves.get((account_text(source.platform, source.account), source.scope_id), {})
        return (
            [(alias, target) for alias, target in aliases.items() if target == canonical],
            [old for old, new in moved.items() if new == source.chat],
        )

    async def is_owner(self, source: Source) -> bool:
        """Return whether the identity of a source alone makes its sender an owner now."""
        rules = self._admission.rules(await self._directory())
        table = await self._ctx.store.read(self._ctx.store.grants.load_table(rules.table))
        return replace(rules, table=table).role_of(rules.canonical(source)) is AccessRole.OWNER

    async def _directory(self) -> Directory:
        now = asyncio.get_running_loop().time()
        if now > self._cached_until and not self._ctx.alone:
            self._changed.set()
        if self._cached is not None and not self._changed.is_set():
            return self._cached
        # One at a time, so that an older result never replaces a newer one.
        async with self._loading:
            if self._changed.is_set():
                self._changed.clear()
                self._cached = None
            if self._cached is None:
                self._cached = await self._ctx.store.read(load_directory())
                self._cached_until = now + self._ctx.settings.limits.lease.total_seconds() / 3
                self._commands.rights.directory = self._cached
                self._ctx.follow_moves(self._cached.moves)
            return self._cached


def _is_stored_recording(file: Attachment) -> bool:
    """Return whether it was uploaded with its message: others are transcribed when they have been fetched."""
    return file.sha256 is not None and file.media_type.startswith("audio/")
