"""Run chat commands: each is done and answered in one transaction, once."""

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.attachments import Attachments, CommandFiles
from palaver.engine.commands import CommandContext, Commands
from palaver.engine.context import EngineContext, Resources
from palaver.engine.intake.admission import AccessLost, CurrentRights
from palaver.engine.intake.revisions import Revisions
from palaver.engine.intake.roles import role_in_session
from palaver.engine.jobs.creation import job_rules
from palaver.engine.retry import contain_cancellation, log_error
from palaver.engine.turns.running import TypingIndicator
from palaver.engine.turns.tools import TurnTools
from palaver.model.access import AccessRole, Grant
from palaver.model.command import Command, Invocation, is_command, parse_command, usable_answer, with_roles, with_slash
from palaver.model.errors import (
    BadArgument,
    InvalidInput,
    LastOwner,
    LockedOut,
    NotAllowed,
    NotFound,
    NothingToCompact,
    PalaverError,
    SessionBusy,
    StoreUnavailable,
    UnknownCommand,
)
from palaver.model.platform import Platform
from palaver.model.session import EndReason, Principal, Session
from palaver.model.split import ReplyRoutes
from palaver.model.turn import Inbound, InboxState, Received
from palaver.model.value import value
from palaver.protocols.capabilities import MenuCommand
from palaver.protocols.hooks import EventKind, EventSubscription, GatewayEvent
from palaver.store.queue import commands, inbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.outbox import enqueue_events, enqueue_parts
from palaver.store.results import CommandResult

log = logging.getLogger(__name__)

R = TypeVar("R", CommandResult, CommandResult | None)

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

    def resolve(self, inbound: Inbound) -> "tuple[Inbound, ParsedMessage]":
        """Turn `/queue text` and the like into the text with its busy mode; return other messages unchanged."""
        invocation = None if inbound.observed else self.invocation
        if invocation is None or invocation.command.busy_mode is None:
            return inbound, NOT_A_COMMAND if inbound.observed else self
        return replace(inbound, text=invocation.words.get("text", ""), busy=invocation.command.busy_mode), NOT_A_COMMAND


NOT_A_COMMAND = ParsedMessage()


def read_message(
    inbound: Inbound, table: Mapping[str, Command], platform: Platform | None
) -> tuple[Inbound, ParsedMessage]:
    """Return the message, with `/help` for `!help` where clients keep the slash for themselves, and what it invokes."""
    if platform is not None and platform.keeps_slash:
        inbound = replace(inbound, text=with_slash(inbound.text, table))
    return inbound, _parse(inbound, table)


def _parse(inbound: Inbound, table: Mapping[str, Command]) -> ParsedMessage:
    if not is_command(inbound):
        return NOT_A_COMMAND
    try:
        return ParsedMessage(invocation=parse_command(inbound.text, table, has_files=bool(inbound.files)))
    except InvalidInput as error:
        return ParsedMessage(error=error)


class CommandDispatcher:
    """Parses messages, once each, and runs the commands among them."""

    def __init__(
        self, ctx: EngineContext, resources: Resources, attachments: Attachments, tools: TurnTools, registry: Commands
    ) -> None:
        self._ctx = ctx
        self._resources = resources
        self._attachments = attachments
        self._tools = tools
        self._commands = registry
        self._parsed: OrderedDict[int, tuple[str, ParsedMessage]] = OrderedDict()
        """By inbox number: the text, which an edit may change, and what was parsed."""
        self.revisions = Revisions(ctx, registry)
        self.rights = CurrentRights(ctx)

    @property
    def table(self) -> Mapping[str, Command]:
        return self._commands.table

    # Parse

    def parse_received(self, received: Received) -> ParsedMessage:
        """Return what intake parsed, or parse a message that another process accepted."""
        inbound = received.inbound
        if not is_command(inbound):
            return NOT_A_COMMAND
        text, parsed = self._parsed.get(received.number, ("", NOT_A_COMMAND))
        return parsed if text == inbound.text else _parse(inbound, self.table)

    def remember(self, number: int, inbound: Inbound, parsed: ParsedMessage) -> None:
        if parsed.is_command:
            self._parsed[number] = inbound.text, parsed
            while len(self._parsed) > REMEMBERED_PARSES:
                self._parsed.popitem(last=False)

    def menu(self) -> list[MenuCommand]:
        """Return the commands of members, for the platform's command menu."""
        listed = self._commands.listed(AccessRole.MEMBER, self._ctx.settings.command_roles)
        return [MenuCommand(name=command.name, help=command.help) for command in listed]

    # Run

    async def run(self, received: Received, *, urgent: bool = False) -> None:
        """Run a command and owe its answer in one transaction. Answer with the reason if it cannot be done."""
        if received.inbound.revision is not None:
            await self._go_back(received)
            return
        mentioned = list[Session]()
        try:
            with contain_cancellation():
                await self._run(received, mentioned, urgent=urgent)
        except StoreUnavailable:
            raise
        except AccessLost as lost:
            await self.refuse(lost)
        except ANSWERED_ERRORS as error:
            refused = commands.mention(received, mentioned, commands.answer_only(self._refusal(error, received)))
            await self._commit(received, refused, urgent=urgent, failed=_failure(error))
        except Exception as error:  # noqa: BLE001 - the conversation continues after any error of a command
            log_error(log, "a command failed", error, {"action": "command.error", "inbox": received.number})
            sorry = commands.mention(received, mentioned, commands.answer_only(texts.SORRY))
            await self._commit(received, sorry, urgent=urgent, failed="it broke")
        finally:
            self._parsed.pop(received.number, None)

    def _refusal(self, error: PalaverError, received: Received) -> str:
        told = texts.refusal_answer(error)
        if isinstance(error, NotAllowed):
            return told  # It names the command that they cannot use.
        return usable_answer(told, received.role, with_roles(self.table, self._ctx.settings.command_roles))

    async def _go_back(self, received: Received) -> None:
        try:
            await self.revisions.go_back(received, self.rights.check([received]))
        except AccessLost as lost:
            await self.refuse(lost)

    async def _run(self, received: Received, mentioned: list[Session], *, urgent: bool) -> None:
        while True:
            with suppress(commands.Outdated):
                return await self._commit(received, await self._prepare(received, mentioned), urgent=urgent)

    async def _prepare(self, received: Received, mentioned: list[Session]) -> Transaction[str]:
        parsed = self.parse_received(received)
        if parsed.error is not None:
            raise parsed.error
        if parsed.invocation is None:
            return commands.answer_only("")
        ctx, source = self._ctx, received.inbound.source
        takes_files = self._resources.blob_store and ctx.replies.takes_files(source)
        find_actor = self._actor(received)
        actor = await ctx.store.read(find_actor)
        principal, received = actor
        command = CommandContext(
            received=received,
            principal=principal,
            now=ctx.clock.now(),
            zone=ctx.settings.zones.find(source),
            agent=ctx.agents.of(received.key.profile),
            files=CommandFiles(self._attachments, received) if takes_files else None,
            tools=partial(self._tools.listed, received),
            tool_problems=self._tools.problems,
            roles=ctx.settings.command_roles,
            grants=ctx.settings.grants,
            memory_limits=ctx.settings.limits.memory,
            scope_of=ctx.settings.scopes.find,
            jobs=job_rules(ctx, self._resources, received.key.profile),
            routes=ctx.replies.routes,
            speaks=self._resources.speaks,
            mentioned=mentioned,
        )
        typing = TypingIndicator(ctx.replies, ctx.timeouts, source)
        try:
            work = await self._commands.perform(parsed.invocation, command)
        finally:
            typing.end()
        checked = commands.run_if_unchanged(find_actor, actor, work)
        return commands.mention(received, mentioned, checked)

    @transaction
    def _actor(self, received: Received) -> Statements[tuple[Principal, Received]]:
        """Return who gives a command, and the command with the role that they have now."""
        checked = yield from self.rights.check([received])
        return (yield from self._ctx.store.people.principal_for(received.inbound.source)), checked[0]

    async def refuse(self, lost: AccessLost) -> None:
        """Refuse waiting messages whose senders have no access any more."""
        routes, now = self._ctx.replies.routes, self._ctx.clock.now()
        for number, reason in lost.reasons.items():
            if await self._ctx.store.transact(_refuse_late(number, reason, routes, now)):
                self._ctx.meter.count("messages_refused")
                log.info("message refused late", extra={"action": "message.refused", "inbox": number})

    async def _commit(
        self, received: Received, work: Transaction[str], *, urgent: bool, failed: str | None = None
    ) -> None:
        ctx, now = self._ctx, self._ctx.clock.now()
        run = commands.run_command(received, work, ctx.replies.routes, now, urgent=urgent, failed=failed)
        result = await ctx.store.transact(_with_change_events(run, ctx.subscriptions, now))
        if result:
            ctx.meter.count("commands")
            extra = {"action": "command.done", "inbox": received.number, "key": received.key.text}
            log.info("command run", extra=extra)
            self._tell_hooks(result, now)

    # From outside the chat

    async def run_outside_chat(self, given: str | Invocation, session: str, principal: Principal) -> str:
        """Run a command, as typed or parsed, in the session that is open in a chat, and return its answer.

        Raises what prevents it; nothing is changed then.
        """
        invocation = given if isinstance(given, Invocation) else parse_command(given, self._commands.table)
        if invocation is None:
            raise UnknownCommand(
                "This is not a command:", found=str(given), allowed="a command that /help lists", example="/undo"
            )
        if not invocation.command.remote:
            name = f"/{invocation.command.name}"
            allowed = "commands about the conversation itself, such as /undo, /retry, /branch, /model and /stop"
            raise BadArgument("{found} works only in the chat itself", found=name, allowed=allowed, example="/undo")
        text = given if isinstance(given, str) else f"/{invocation.command.name}"
        while True:
            with suppress(commands.Outdated):
                return await self._run_outside_chat(invocation, text, session, principal)

    async def _run_outside_chat(self, invocation: Invocation, text: str, session: str, principal: Principal) -> str:
        ctx, now = self._ctx, self._ctx.clock.now()
        there = await ctx.store.read(role_in_session(session, principal, ctx.settings.grants))
        found, source, role = there.session, there.source, there.role
        inbound = Inbound(source=source, text=text, at=now)
        received = Received(number=0, key=found.key, inbound=inbound, state=InboxState.DONE, received=now, role=role)
        command = CommandContext(
            received=received,
            principal=principal,
            now=now,
            zone=ctx.settings.zones.find(source),
            agent=ctx.agents.of(found.key.profile),
            roles=ctx.settings.command_roles,
            grants=ctx.settings.grants,
            memory_limits=ctx.settings.limits.memory,
            speaks=self._resources.speaks,
        )
        work = await self._commands.perform(invocation, command)
        work = commands.run_if_unchanged(_role_in_session(session, principal, ctx.settings.grants), role, work)
        run = commands.run_from_outside(received, found, work, ctx.replies.routes, now)
        result = await ctx.store.transact(_with_change_events(run, ctx.subscriptions, now))
        log.info("command run", extra={"action": "command.done", "key": found.key.text})
        self._tell_hooks(result, now)
        return result.answer

    def _tell_hooks(self, result: CommandResult, now: datetime) -> None:
        for event in _change_events(result, now):
            self._ctx.hooks.tell(event)


@transaction
def _refuse_late(number: int, reason: str, routes: ReplyRoutes, now: datetime) -> Statements[bool]:
    """Refuse a waiting message of somebody who lost access, and tell them once for all that waits."""
    received = yield from inbox.get_message(number, Principal.operator())
    if not (yield from inbox.refuse(number, reason)):
        return False
    origin = received.inbound.origin if received and received.inbound.counts_as_activity else None
    if (
        received
        and origin
        and routes.reaches_people(origin)
        and not (yield from inbox.was_told_of_lost_access(received))
    ):
        notices = routes.notices(origin, texts.access_lost(reason))
        yield from enqueue_parts(notices, SendCause(CauseKind.ACCESS_LOST, number), now)
    return True


@transaction
def _role_in_session(session: str, principal: Principal, configured: Sequence[Grant]) -> Statements[AccessRole]:
    return (yield from role_in_session(session, principal, configured)).role


def _failure(error: Exception) -> str:
    """Return why a command was refused, without what was said."""
    match error:
        case NotAllowed():
            return f"it needs the {error.needs} role"
        case InvalidInput():
            return "it cannot be done like this; the answer in the chat says why"
        case NotFound():
            return "what it names was not found"
        case _:
            return "it could not be done"


# Events


@transaction
def _with_change_events(
    run: Transaction[R], subscriptions: Sequence[EventSubscription], now: datetime
) -> Statements[R]:
    result = yield from run
    if isinstance(result, CommandResult) and subscriptions:
        yield from enqueue_events(subscriptions, _change_events(result, now))
    return result


def _change_events(result: CommandResult, now: datetime) -> list[GatewayEvent]:
    """Return an event for each session that a command ended or started."""
    left, entered = result.left, result.entered
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
