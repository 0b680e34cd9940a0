"""Commands about the running answer: they act at once, even during a turn."""

from datetime import tzinfo

from palaver.commands.formatting import counted, format_time
from palaver.commands.registry import CommandHandler, reply
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import Arg, ArgKind, Command, Invocation
from palaver.model.session import Counters, Principal, Session
from palaver.model.text import one_line
from palaver.model.turn import BusyMode
from palaver.protocols.tools import Tool
from palaver.store.results import Decision, Status
from palaver.store.store import Store

_GROUP = "answers"
_STOP = Command(name="stop", help="Stop the current answer", example="/stop", urgent=True, remote=True, group=_GROUP)
_STATUS = Command(
    name="status",
    help="Show what is happening in this conversation",
    example="/status",
    urgent=True,
    remote=True,
    group=_GROUP,
)
_QUESTION = Arg(name="question")
_APPROVE = Command(
    name="approve",
    help="Approve what the agent asks for",
    example="/approve",
    args=(_QUESTION,),
    urgent=True,
    remote=True,
    group=_GROUP,
)
_DENY = Command(
    name="deny",
    help="Deny what the agent asks for",
    example="/deny",
    args=(_QUESTION,),
    urgent=True,
    remote=True,
    group=_GROUP,
)
_TEXT = Arg(name="text", kind=ArgKind.REST, required=True)
BUSY_MODE_COMMANDS = (
    Command(
        name="queue",
        help="Queue a message until the current answer is done",
        example="/queue And what does it cost?",
        args=(_TEXT,),
        role=AccessRole.GUEST,
        group=_GROUP,
        busy_mode=BusyMode.QUEUE,
    ),
    Command(
        name="steer",
        help="Send a message to the running answer. The agent sees it after its next step",
        example="/steer Only trains, please",
        args=(_TEXT,),
        role=AccessRole.GUEST,
        group=_GROUP,
        busy_mode=BusyMode.STEER,
    ),
)
_UNDECIDED = {
    Decision.NOTHING: "There is nothing to approve.",
    Decision.OTHER: "The question has changed. Read it and answer again.",
}


def turn_commands(store: Store) -> list[CommandHandler]:
    @transaction
    def stop(_invocation: Invocation, context: CommandContext) -> Statements[str]:
        key, now, by = context.received.key, context.now, context.principal.name
        if (yield from store.turn_control.request_stop(key, now, by=by)):
            return "Stopping."
        dropped = yield from store.turn_control.abandon_parked(
            key, now, note=texts.STOPPED_NOTE, error="stopped instead of an answer", by=by
        )
        return "Stopped. The open question was denied." if dropped else "There is nothing to stop."

    @transaction
    def status(_invocation: Invocation, context: CommandContext) -> Statements[str]:
        seen = yield from store.turn_control.get_status(context.received.key, context.principal)
        told = _describe(seen, context.zone)
        if seen.session is None:
            return told
        several = yield from store.attach.has_several_people(seen.session)
        others = ["several people take part"] if several else []
        here = ["this chat is attached to it; /detach leaves it"] if context.received.place else []
        return "\n".join([told, *others, *here])

    @transaction
    def approve(invocation: Invocation, context: CommandContext) -> Statements[str]:
        return (yield from decide(invocation, context, allowed=True)) or "Approved."

    @transaction
    def deny(invocation: Invocation, context: CommandContext) -> Statements[str]:
        return (yield from decide(invocation, context, allowed=False)) or "Denied."

    @transaction
    def decide(invocation: Invocation, context: CommandContext, *, allowed: bool) -> Statements[str | None]:
        received = context.received
        is_admin = (received.role or AccessRole.GUEST) >= AccessRole.ADMIN
        decided = yield from store.turn_control.answer_question(
            received.key,
            context.now,
            Principal.operator() if is_admin else context.principal,
            allowed=allowed,
            question=invocation.words.get("question"),
            said=received.received,
            place=received.inbound.source,
        )
        return _UNDECIDED.get(decided)

    return [
        CommandHandler(_STOP, stop),
        CommandHandler(_STATUS, status),
        CommandHandler(_APPROVE, approve),
        CommandHandler(_DENY, deny),
    ]


def _describe(seen: Status, zone: tzinfo) -> str:
    session, waiting = seen.session, f", {seen.waiting} waiting" if seen.waiting else ""
    if session is None and not (seen.running_since or seen.is_parked):
        return "You have no conversation here yet. Send a message to start or join one."
    if session is None:
        return f"This conversation: {_describe_activity(seen, zone)}{waiting}."
    activity = f"{_describe_activity(seen, zone)}{waiting}; {_counts(session.counters)}"
    head = f"{session.title or 'untitled'} ({session.id}): {activity}."
    return "\n".join([head, *_facts(session, zone)])


def _describe_activity(seen: Status, zone: tzinfo) -> str:
    if seen.is_parked:
        return "waiting for /approve or /deny"
    since = seen.running_since
    return f"at work since {since.astimezone(zone):%H:%M:%S %Z}" if since else "idle"


def _counts(counters: Counters) -> str:
    tokens = counters.input_tokens + counters.output_tokens
    return f"{counted(counters.turns, 'turn')}, {counted(tokens, 'token')}"


def _facts(session: Session, zone: tzinfo) -> list[str]:
    shared = ", shared by everybody here" if session.key.shared else ""
    facts = [
        f"started {format_time(session.started, zone)}, last used {format_time(session.last_active, zone)}{shared}"
    ]
    facts += [f"a branch of {session.parent}"] if session.parent else []
    return [*facts, f"answered by {session.override.model}"] if session.override else facts


_TOOLS = Command(
    name="tools",
    help="List the tools that the agent can use for you here",
    example="/tools",
    group="gateway",
)
_MAX_CHARS = 100


def tool_commands() -> list[CommandHandler]:
    async def tools(_invocation: Invocation, context: CommandContext) -> Transaction[str]:
        found = await context.tools()
        return reply("\n".join(map(_line, found)) or "The agent has no tools here.")

    return [CommandHandler(_TOOLS, tools)]


def _line(tool: Tool) -> str:
    asks = " (asks you first)" if tool.needs_approval else ""
    return f"{tool.name}{asks}: {one_line(tool.description, _MAX_CHARS)}"
