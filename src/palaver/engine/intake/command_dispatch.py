"""Run chat commands: each is done and answered in one transaction, once."""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from palaver.db.transaction import Lock, Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.attachments import CommandFiles
from palaver.engine.commands import CommandContext, Commands
from palaver.engine.context import EngineContext
from palaver.engine.intake.effective_role import EffectiveRole, effective_role
from palaver.engine.intake.revisions import Revisions
from palaver.engine.retry import contain_cancellation, log_error
from palaver.engine.turns.tools import TurnTools
from palaver.model.access import AccessRole
from palaver.model.command import Invocation, parse_command
from palaver.model.errors import (
    BadArgument,
    InvalidInput,
    LastOwner,
    LockedOut,
    NotAllowed,
    NotFound,
    NothingToCompact,
    SessionBusy,
    StoreUnavailable,
    UnknownCommand,
)
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, Principal, Session
from palaver.model.source import Source
from palaver.model.turn import Cause, Inbound, InboxState, Received
from palaver.model.value import value
from palaver.protocols.capabilities import MenuCommand
from palaver.protocols.hooks import EventKind, GatewayEvent
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.store import Store

log = logging.getLogger(__name__)

REMEMBERED_PARSES = 1024
ANSWERED_ERRORS = (InvalidInput, LastOwner, LockedOut, NotAllowed, NotFound, NothingToCompact, SessionBusy)
"""Errors whose message is written for the sender of the command. A chat never sees the message of any other error."""


@value
class ParsedMessage:
    """Which command a message invokes, or why it is not a valid one."""

    invocation: Invocation | None = None
    error: InvalidInput | None = None

    @property
    def is_command(self) -> bool:
        """Tell whether the message is a command, valid or not."""
        return self.invocation is not None or self.error is not None

    @property
    def is_known_command(self) -> bool:
        return self.is_command and not isinstance(self.error, UnknownCommand)

    @property
    def is_urgent(self) -> bool:
        return self.invocation is not None and self.invocation.command.urgent


NOT_A_COMMAND = ParsedMessage()


class CommandDispatcher:
    """Parses messages, once each, and runs the commands among them."""

    def __init__(self, ctx: EngineContext, commands: Commands) -> None:
        self._ctx = ctx
        self._commands = commands
        self._parsed: OrderedDict[int, tuple[int, ParsedMessage]] = OrderedDict()
        """By inbox number: a fingerprint, since an edit may change the message, and what was parsed."""
        self.revisions = Revisions(ctx, commands)

    # Parse

    def parse(self, inbound: Inbound) -> ParsedMessage:
        """Parse a message. Only people give commands, only when they speak to the agent, and never by an edit."""
        if inbound.busy or inbound.plain or inbound.cause is not Cause.HUMAN or inbound.observed or inbound.revision:
            return NOT_A_COMMAND
        try:
            invocation = parse_command(inbound.text, self._commands.table)
        except InvalidInput as error:
            return ParsedMessage(error=error)
        return NOT_A_COMMAND if invocation is None else ParsedMessage(invocation=invocation)

    def parse_received(self, received: Received) -> ParsedMessage:
        """Return what intake parsed, or parse a message that another process accepted."""
        known = self._parsed.get(received.number)
        if known is not None and known[0] == _fingerprint(received.inbound):
            return known[1]
        parsed = self.parse(received.inbound)
        self.remember(received.number, received.inbound, parsed)
        return parsed

    def remember(self, number: int, inbound: Inbound, parsed: ParsedMessage) -> None:
        self._parsed[number] = _fingerprint(inbound), parsed
        while len(self._parsed) > REMEMBERED_PARSES:
            self._parsed.popitem(last=False)

    def resolve(self, inbound: Inbound, parsed: ParsedMessage) -> tuple[Inbound, ParsedMessage]:
        """Turn `/queue text` and the like into the text with its busy mode; return other messages unchanged."""
        invocation = parsed.invocation
        if invocation is None or invocation.command.busy_mode is None:
            return inbound, parsed
        return replace(inbound, text=invocation.words["text"], busy=invocation.command.busy_mode), NOT_A_COMMAND

    def runs_alone(self, received: Received) -> bool:
        """Tell whether a message is done in one step instead of answered by a turn."""
        return received.inbound.revision is not None or self.parse_received(received).is_command

    def menu(self) -> list[MenuCommand]:
        """Return the commands of members, for the platform's command menu."""
        listed = self._commands.listed(AccessRole.MEMBER, self._ctx.options.command_roles)
        return [MenuCommand(name=command.name, help=command.help) for command in listed]

    # Run

    async def run(self, received: Received, *, urgent: bool = False) -> None:
        """Run a command and owe its answer in one transaction. Answer with the reason if it cannot be done."""
        if received.inbound.revision is not None:
            await self.revisions.go_back(received)
            return
        store, mentioned = self._ctx.store, list[Session]()
        try:
            with contain_cancellation():
                await self._run(received, mentioned, urgent=urgent)
        except StoreUnavailable:
            raise
        except ANSWERED_ERRORS as error:
            refused = _record_mentions(store, received, mentioned, _answer(texts.refusal(error)))
            await self._commit(received, refused, urgent=urgent, failed="it could not be done")
        except Exception as error:  # noqa: BLE001 - the conversation continues after any error of a command
            log_error(log, "a command failed", error, {"action": "command.error", "inbox": received.number})
            sorry = _record_mentions(store, received, mentioned, _answer(texts.SORRY))
            await self._commit(received, sorry, urgent=urgent, failed="it broke")
        finally:
            self._parsed.pop(received.number, None)

    async def _run(self, received: Received, mentioned: list[Session], *, urgent: bool) -> None:
        while True:
            with suppress(_SenderChanged):
                return await self._commit(received, await self._prepare(received, mentioned), urgent=urgent)

    async def _prepare(self, received: Received, mentioned: list[Session]) -> Transaction[str]:
        parsed = self.parse_received(received)
        if parsed.error is not None:
            raise parsed.error
        if parsed.invocation is None:
            return _answer("")
        ctx, source = self._ctx, received.inbound.source
        principal = await ctx.store.read(ctx.store.people.principal_for(source))
        command = CommandContext(
            received=received,
            principal=principal,
            now=ctx.clock.now(),
            zone=ctx.options.zones.find(source),
            agent=ctx.agents.of(received.key.profile),
            files=CommandFiles(ctx, received) if ctx.blob_store and ctx.replies.takes_files(source) else None,
            tools=partial(TurnTools(ctx).listed, received),
            roles=ctx.options.command_roles,
            scope_of=ctx.options.scopes.find,
            mentioned=mentioned,
        )
        work = await self._commands.perform(parsed.invocation, command)
        return _record_mentions(ctx.store, received, mentioned, _while_principal(ctx.store, source, principal, work))

    async def _commit(
        self, received: Received, work: Transaction[str], *, urgent: bool, failed: str | None = None
    ) -> None:
        ctx, source, now, change = self._ctx, received.inbound.source, self._ctx.clock.now(), _SessionChange()
        watched = _watch_session(ctx.store, received.key, _report_abandoned(ctx, received, work, now), change)
        obey = ctx.store.inbox.run_command(
            received, watched, lambda text: ctx.replies.to(source, text), now, urgent=urgent, failed=failed
        )
        with_events = ctx.event_outbox.with_events(obey, lambda done: _change_events(change, now) if done else [])
        if await ctx.store.transact(with_events):
            ctx.meter.count("commands")
            log.info(
                "command run", extra={"action": "command.done", "inbox": received.number, "key": received.key.text}
            )
            self._tell_hooks(change, now)

    # From outside the chat

    async def run_outside_chat(self, text: str, session: str, principal: Principal) -> str:
        """Run a command in the session that is open in a chat, and return its answer.

        Raises what prevents it; nothing is changed then.
        """
        invocation = parse_command(text, self._commands.table)
        if invocation is None:
            raise UnknownCommand("This is no command:", found=text, allowed="/help lists them", example="/undo")
        if not invocation.command.remote:
            name = f"/{invocation.command.name}"
            allowed = "here, what is about the conversation itself, such as /undo, /retry, /branch, /model and /stop"
            raise BadArgument("Only in the chat itself can be said", found=name, allowed=allowed, example="/undo")
        while True:
            with suppress(_SenderChanged):
                return await self._run_outside_chat(invocation, text, session, principal)

    async def _run_outside_chat(self, invocation: Invocation, text: str, session: str, principal: Principal) -> str:
        ctx = self._ctx

        def acting() -> Transaction[EffectiveRole]:
            return effective_role(ctx.store, ctx.options.grants, session, principal)

        there = await ctx.store.read(acting())
        found, source, role = there.session, there.source, there.role
        now, change = ctx.clock.now(), _SessionChange()
        inbound = Inbound(source=source, text=text, at=now)
        received = Received(number=0, key=found.key, inbound=inbound, state=InboxState.DONE, received=now, role=role)
        command = CommandContext(
            received=received,
            principal=principal,
            now=now,
            zone=ctx.options.zones.find(source),
            agent=ctx.agents.of(found.key.profile),
            roles=ctx.options.command_roles,
        )
        work = _report_abandoned(ctx, received, await self._commands.perform(invocation, command), now)
        work = _while_role(acting(), role, _while_open(ctx.store, found, work))
        watched = _watch_session(ctx.store, found.key, work, change)
        answer = await ctx.store.transact(ctx.event_outbox.with_events(watched, lambda _: _change_events(change, now)))
        log.info("command run", extra={"action": "command.done", "key": found.key.text})
        self._tell_hooks(change, now)
        return answer

    def _tell_hooks(self, change: "_SessionChange", now: datetime) -> None:
        for event in _change_events(change, now):
            self._ctx.hooks.tell(event)


def _fingerprint(inbound: Inbound) -> int:
    return hash((inbound.text, inbound.observed, inbound.busy))


@transaction
def _answer(text: str) -> Statements[str]:
    yield from ()
    return text


@transaction
def _record_mentions(
    store: Store, received: Received, mentioned: Sequence[Session], work: Transaction[str]
) -> Statements[str]:
    """Record which conversations the answer quotes. The work itself may add some, so record them after it."""
    text = yield from work
    yield from store.inbox.record_mentions(received.number, mentioned)
    return text


@transaction
def _report_abandoned(ctx: EngineContext, command: Received, work: Transaction[str], now: datetime) -> Statements[str]:
    """Do the work of a command. If it leaves a conversation, say how many messages stay unanswered there."""
    answer, left = yield from ctx.store.history.run_and_abandon_waiting(command, work)
    unanswered = [received for received in left if not received.inbound.observed]
    if not unanswered:
        return answer
    here = command.inbound.source.address if command.number else None
    yield from _notify_elsewhere(ctx, (item for item in unanswered if item.inbound.source.address != here), now)
    return f"{answer} {texts.unanswered(len(unanswered))}"


def _notify_elsewhere(ctx: EngineContext, abandoned: Iterable[Received], now: datetime) -> Statements[None]:
    """Notify each other chat that waits for an answer, as a reply to its last message."""
    by_chat: dict[object, list[Received]] = {}
    for received in abandoned:
        by_chat.setdefault(received.inbound.source.address, []).append(received)
    for messages in by_chat.values():
        notices = ctx.replies.to(messages[-1].inbound.source, texts.unanswered(len(messages)))
        yield from ctx.store.outbox.enqueue_parts(notices, SendCause(CauseKind.COMMAND, messages[-1].number), now)


# Checks in the transaction that does the work


class _SenderChanged(Exception):
    """The sender was linked, unlinked or given another role since the command was prepared: prepare it again."""


@transaction
def _while_principal(store: Store, source: Source, principal: Principal, work: Transaction[str]) -> Statements[str]:
    if (yield from store.people.principal_for(source)) != principal:
        raise _SenderChanged
    return (yield from work)


@transaction
def _while_role(acting: Transaction[EffectiveRole], role: AccessRole, work: Transaction[str]) -> Statements[str]:
    if (yield from acting).role is not role:
        raise _SenderChanged
    return (yield from work)


@transaction
def _while_open(store: Store, session: Session, work: Transaction[str]) -> Statements[str]:
    """Do the work only while this session is open. Raise SessionBusy if it would leave the session during a turn."""
    yield Lock(session.key.text)
    current = yield from store.sessions.open_by_key(session.key)
    if current is None or current.id != session.id:
        raise NotFound("open conversation", session.title or session.id)
    answer = yield from work
    after = yield from store.sessions.open_by_key(session.key)
    if after is None or after.id != session.id:
        yield from store.sessions.check_not_busy(session)
    return answer


# Events


@dataclass(slots=True)
class _SessionChange:
    """The session that was open before a command, and the one after it."""

    left: Session | None = None
    entered: Session | None = None


@transaction
def _watch_session(store: Store, key: SessionKey, work: Transaction[str], change: _SessionChange) -> Statements[str]:
    left = yield from store.sessions.open_by_key(key)
    text = yield from work
    change.entered = yield from store.sessions.open_by_key(key)
    change.left = left and (yield from store.sessions.get_visible(left.id, Principal.operator()))
    return text


def _change_events(change: _SessionChange, now: datetime) -> list[GatewayEvent]:
    """Return an event for each session that a command ended or started."""
    left, entered = change.left, change.entered
    reason = left.end_reason if left else None
    events: list[GatewayEvent] = []
    if left and reason:
        events.append(_event(EventKind.SESSION_ENDED, left, now, reason))
    if entered and not entered.counters.turns and entered.id != (left and left.id):
        if reason is EndReason.RESET:
            events.append(_event(EventKind.SESSION_RESET, entered, now, reason))
        events.append(_event(EventKind.SESSION_STARTED, entered, now))
    return events


def _event(kind: EventKind, session: Session, now: datetime, reason: EndReason | None = None) -> GatewayEvent:
    return GatewayEvent(kind=kind, at=now, key=session.key.text, session=session.id, reason=reason)
