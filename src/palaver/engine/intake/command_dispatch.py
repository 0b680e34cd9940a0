"""Commands in a conversation: done and answered in one step, once."""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from palaver.db.transaction import Lock, Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.attachments import Desk
from palaver.engine.commands import Commands, Spoken
from palaver.engine.context import EngineContext
from palaver.engine.intake.effective_role import Standing, standing
from palaver.engine.intake.revisions import Revisions
from palaver.engine.retry import contain_cancellation, log_error
from palaver.engine.turns.tools import TurnTools
from palaver.model.access import AccessRole
from palaver.model.command import Invocation
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
from palaver.model.lifecycle import EndReason, InboxState
from palaver.model.reset import Cause
from palaver.model.session import Principal, Session
from palaver.model.source import Source
from palaver.model.turn import Inbound, Received
from palaver.model.value import value
from palaver.protocols.capabilities import MenuCommand
from palaver.protocols.hooks import EventKind, GatewayEvent
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.store import Store

__all__ = [
    "CommandDispatcher",
    "leaving",
]

log = logging.getLogger(__name__)


@transaction
def leaving(ctx: EngineContext, command: Received, does: Transaction[str], now: datetime) -> Statements[str]:
    """Do what a command says. Where it leads elsewhere, the answer says how many messages are left behind."""
    answer, left = yield from ctx.store.history.leaving(command, does)
    unanswered = [each for each in left if not each.inbound.observed]
    if not unanswered:
        return answer
    here = command.inbound.source.address if command.number else None
    yield from _tell_others(ctx, (each for each in unanswered if each.inbound.source.address != here), now)
    return f"{answer} {texts.unanswered(len(unanswered))}"


def _tell_others(ctx: EngineContext, left: Iterable[Received], now: datetime) -> Statements[None]:
    """Each place in which nobody reads the answer to the command, as the answer to the last that was said there."""
    places: dict[object, list[Received]] = {}
    for each in left:
        places.setdefault(each.inbound.source.address, []).append(each)
    for said in places.values():
        notices = ctx.replies.to(said[-1].inbound.source, texts.unanswered(len(said)))
        yield from ctx.store.outbox.enqueue_parts(notices, SendCause(CauseKind.COMMAND, said[-1].number), now)


_SPEAKS_TO_PEOPLE = (InvalidInput, LastOwner, LockedOut, NotAllowed, NotFound, NothingToCompact, SessionBusy)
"""Errors whose words are meant for whoever commanded; what others say is nobody's business in a chat."""


@transaction
def _say(text: str) -> Statements[str]:
    yield from ()
    return text


@dataclass(slots=True)
class _Move:
    """The session that was open before a command, and the one after it."""

    left: Session | None = None
    entered: Session | None = None


@transaction
def _watched(store: Store, key: SessionKey, does: Transaction[str], move: _Move) -> Statements[str]:
    left = yield from store.sessions.open_by_key(key)
    text = yield from does
    move.entered = yield from store.sessions.open_by_key(key)
    move.left = left and (yield from store.sessions.get_visible(left.id, Principal.operator()))
    return text


@transaction
def _mentioning(
    store: Store, received: Received, mentioned: Sequence[Session], does: Transaction[str]
) -> Statements[str]:
    """Conversations are mentioned by what is done, or by what was tried before; so it is written down at the end."""
    text = yield from does
    yield from store.inbox.mention(received.number, mentioned)
    return text


class _NotWhoTheyWere(Exception):
    """Whoever commands was linked or unlinked since the command was looked at."""


@transaction
def _on_behalf(store: Store, source: Source, principal: Principal, does: Transaction[str]) -> Statements[str]:
    """Transaction for somebody who is, in the step that does it, still whom it was made for."""
    if (yield from store.people.principal_for(source)) != principal:
        raise _NotWhoTheyWere
    return (yield from does)


@transaction
def _while_open(store: Store, session: Session, does: Transaction[str]) -> Statements[str]:
    """What is done in a conversation is done in the session that was looked at, or not at all.

    Raises SessionBusy where that would leave a session while a turn is answering in it.
    """
    yield Lock(session.key.text)
    current = yield from store.sessions.open_by_key(session.key)
    if current is None or current.id != session.id:
        raise NotFound("open conversation", session.title or session.id)
    answer = yield from does
    after = yield from store.sessions.open_by_key(session.key)
    if after is None or after.id != session.id:
        yield from store.sessions.refuse_busy(session)
    return answer


@transaction
def _while_standing(stands: Transaction[Standing], role: AccessRole, does: Transaction[str]) -> Statements[str]:
    """Transaction for somebody who is, in the step that does it, still let in as what it was made for."""
    if (yield from stands).role is not role:
        raise _NotWhoTheyWere
    return (yield from does)


@value(kw_only=False)
class CommandDispatcher:
    ctx: EngineContext
    commands: Commands

    def invocation(self, inbound: Inbound) -> Invocation | None:
        """What a message invokes: only people command, only where they speak to the agent, and never by a change."""
        if inbound.busy or inbound.plain or inbound.cause is not Cause.HUMAN or inbound.observed or inbound.revision:
            return None
        return self.commands.parse(inbound.text)

    @property
    def revising(self) -> Revisions:
        return Revisions(self.ctx, self.commands)

    def meant(self, inbound: Inbound) -> Inbound:
        """`/queue text` is the text, as a message that waits; everything else is as it was said."""
        try:
            invocation = self.invocation(inbound)
        except InvalidInput:
            return inbound
        if invocation is None or invocation.command.says is None:
            return inbound
        return replace(inbound, text=invocation.words["text"], busy=invocation.command.says)

    def is_command(self, received: Received) -> bool:
        """Whether it is done in one step instead of answered by a turn."""
        return received.inbound.revision is not None or self.invokes(received.inbound)

    def menu(self) -> list[MenuCommand]:
        """The commands that everybody may use who is let in, as people are shown them."""
        listed = self.commands.listed(AccessRole.MEMBER, self.ctx.options.command_roles)
        return [MenuCommand(name=command.name, help=command.help) for command in listed]

    def invokes(self, inbound: Inbound) -> bool:
        """Whether it is a command, right or wrong."""
        try:
            return self.invocation(inbound) is not None
        except InvalidInput:
            return True

    def is_urgent(self, inbound: Inbound) -> bool:
        try:
            invocation = self.invocation(inbound)
        except InvalidInput:
            return False
        return invocation is not None and invocation.command.urgent

    async def obey(self, received: Received, *, urgent: bool = False) -> None:
        """Do what was commanded and owe the answer, both or neither. What cannot be done is answered with why."""
        if received.inbound.revision is not None:
            await self.revising.go_back(received)
            return
        mentioned: list[Session] = []
        try:
            with contain_cancellation():
                await self._perform(received, mentioned, urgent=urgent)
        except StoreUnavailable:
            raise
        except _SPEAKS_TO_PEOPLE as error:
            refused = _mentioning(self.ctx.store, received, mentioned, _say(texts.refusal(error)))
            await self._do(received, refused, urgent=urgent, failed="it could not be done")
        except Exception as error:  # noqa: BLE001 - whatever a command raises, the conversation goes on after it
            log_error(log, "a command broke", error, {"action": "command.error", "inbox": received.number})
            sorry = _mentioning(self.ctx.store, received, mentioned, _say(texts.SORRY))
            await self._do(received, sorry, urgent=urgent, failed="it broke")

    async def order(self, text: str, session: str, principal: Principal) -> str:
        """Do a command from beside the chat, in the session that is open there. The answer is for whoever commands.

        Raises what keeps it from being done; nothing is changed then.
        """
        invocation = self.commands.parse(text)
        if invocation is None:
            raise UnknownCommand("This is no command:", found=text, allowed="/help lists them", example="/undo")
        if not invocation.command.beside:
            name = f"/{invocation.command.name}"
            allowed = "here, what is about the conversation itself, such as /undo, /retry, /branch, /model and /stop"
            raise BadArgument("Only in the chat itself can be said", found=name, allowed=allowed, example="/undo")
        while True:
            with suppress(_NotWhoTheyWere):
                return await self._ordered(invocation, text, session, principal)

    async def _ordered(self, invocation: Invocation, text: str, session: str, principal: Principal) -> str:
        def stands() -> Transaction[Standing]:
            return standing(self.ctx.store, self.ctx.options.grants, session, principal)

        there = await self.ctx.store.read(stands())
        found, source, role = there.session, there.source, there.role
        now, move = self.ctx.clock.now(), _Move()
        inbound = Inbound(source=source, text=text, at=now)
        received = Received(number=0, key=found.key, inbound=inbound, state=InboxState.DONE, received=now, role=role)
        spoken = Spoken(
            received=received,
            principal=principal,
            now=now,
            zone=self.ctx.options.zones.find(source).value,
            agent=self.ctx.agents.of(found.key.profile),
            roles=self.ctx.options.command_roles,
        )
        does = leaving(self.ctx, received, await self.commands.perform(invocation, spoken), now)
        does = _while_open(self.ctx.store, found, does)
        does = _while_standing(stands(), role, does)
        watched = _watched(self.ctx.store, found.key, does, move)
        answer = await self.ctx.store.transact(self.ctx.event_outbox.with_events(watched, lambda _: _moved(move, now)))
        log.info("command", extra={"action": "command.done", "key": found.key.text})
        self._tell(move, now)
        return answer

    async def _perform(self, received: Received, mentioned: list[Session], *, urgent: bool) -> None:
        while True:
            with suppress(_NotWhoTheyWere):
                return await self._do(received, await self._work(received, mentioned), urgent=urgent)

    async def _work(self, received: Received, mentioned: list[Session]) -> Transaction[str]:
        invocation = self.invocation(received.inbound)
        if invocation is None:
            return _say("")
        source = received.inbound.source
        zone = self.ctx.options.zones.find(source).value
        principal = await self.ctx.store.read(self.ctx.store.people.principal_for(source))
        agent, now = self.ctx.agents.of(received.key.profile), self.ctx.clock.now()
        desk = Desk(self.ctx, received) if self.ctx.shelf and self.ctx.replies.takes_files(source) else None
        spoken = Spoken(
            received=received,
            principal=principal,
            now=now,
            zone=zone,
            agent=agent,
            desk=desk,
            tools=partial(TurnTools(self.ctx).listed, received),
            roles=self.ctx.options.command_roles,
            scope_of=lambda source: self.ctx.options.scopes.find(source).value,
            mentioned=mentioned,
        )
        does = _on_behalf(self.ctx.store, source, principal, await self.commands.perform(invocation, spoken))
        return _mentioning(self.ctx.store, received, mentioned, does)

    async def _do(self, received: Received, does: Transaction[str], *, urgent: bool, failed: str | None = None) -> None:
        source, now, move = received.inbound.source, self.ctx.clock.now(), _Move()
        watched = _watched(self.ctx.store, received.key, leaving(self.ctx, received, does, now), move)
        obey = self.ctx.store.inbox.obey(
            received, watched, lambda text: self.ctx.replies.to(source, text), now, urgent=urgent, failed=failed
        )
        if await self.ctx.store.transact(
            self.ctx.event_outbox.with_events(obey, lambda done: _moved(move, now) if done else [])
        ):
            self.ctx.meter.count("commands")
            log.info("command", extra={"action": "command.done", "inbox": received.number, "key": received.key.text})
            self._tell(move, now)

    def _tell(self, move: _Move, now: datetime) -> None:
        for happening in _moved(move, now):
            self.ctx.hooks.tell(happening)


def _moved(move: _Move, now: datetime) -> list[GatewayEvent]:
    """Which sessions a command has ended or begun."""
    left, entered = move.left, move.entered
    reason = left.end_reason if left else None
    happened: list[GatewayEvent] = []
    if left and reason:
        happened.append(_happening(EventKind.SESSION_ENDED, left, now, reason))
    if entered and not entered.counters.turns and entered.id != (left and left.id):
        if reason is EndReason.RESET:
            happened.append(_happening(EventKind.SESSION_RESET, entered, now, reason))
        happened.append(_happening(EventKind.SESSION_STARTED, entered, now))
    return happened


def _happening(kind: EventKind, session: Session, now: datetime, reason: EndReason | None = None) -> GatewayEvent:
    return GatewayEvent(kind=kind, at=now, key=session.key.text, session=session.id, reason=reason)
