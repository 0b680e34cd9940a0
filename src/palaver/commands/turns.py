"""Commands about the answer that is being worked on. They act at once, also during a turn."""

from datetime import tzinfo

from palaver.commands.formatting import counted, when
from palaver.commands.registry import Performance, say
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

__all__ = [
    "SAYINGS",
    "about_tools",
    "about_turns",
]

_GROUP = "answers"
_STOP = Command(
    name="stop", help="stop the answer that is being worked on", example="/stop", urgent=True, beside=True, group=_GROUP
)
_STATUS = Command(
    name="status",
    help="say what is going on in this conversation",
    example="/status",
    urgent=True,
    beside=True,
    group=_GROUP,
)
_QUESTION = Arg(name="question")
_APPROVE = Command(
    name="approve",
    help="allow what the agent asks permission for",
    example="/approve",
    args=(_QUESTION,),
    urgent=True,
    beside=True,
    group=_GROUP,
)
_DENY = Command(
    name="deny",
    help="do not allow what the agent asks permission for",
    example="/deny",
    args=(_QUESTION,),
    urgent=True,
    beside=True,
    group=_GROUP,
)
_TEXT = Arg(name="text", kind=ArgKind.REST, required=True)
SAYINGS = (
    Command(
        name="queue",
        help="say something that waits for its turn, also where messages stop or steer the answer",
        example="/queue And what does it cost?",
        args=(_TEXT,),
        role=AccessRole.GUEST,
        group=_GROUP,
        says=BusyMode.QUEUE,
    ),
    Command(
        name="steer",
        help="say something to the answer that is being worked on: the agent hears it after its next step",
        example="/steer Only trains, please",
        args=(_TEXT,),
        role=AccessRole.GUEST,
        group=_GROUP,
        says=BusyMode.STEER,
    ),
)
_UNDECIDED = {
    Decision.NOTHING: "Nothing waits for your permission.",
    Decision.OTHER: "What is asked now was asked only after that. Look at it, and say it again.",
}


def about_turns(store: Store) -> list[Performance]:
    @transaction
    def stop(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        key, now, by = spoken.received.key, spoken.now, spoken.principal.name
        if (yield from store.turn_control.request_stop(key, now, by=by)):
            return "Stopping."
        dropped = yield from store.turn_control.abandon_parked(
            key, now, note=texts.STOPPED_NOTE, error="stopped instead of an answer", by=by
        )
        return "Stopped; nothing was allowed." if dropped else "There is nothing to stop."

    @transaction
    def status(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        seen = yield from store.turn_control.get_status(spoken.received.key, spoken.principal)
        told = _told(seen, spoken.zone)
        if seen.session is None:
            return told
        several = yield from store.attach.has_several_people(seen.session)
        others = ["several people take part in it"] if several else []
        here = ["this place is attached to it, /detach leaves it"] if spoken.received.place else []
        return "\n".join([told, *others, *here])

    @transaction
    def approve(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        return (yield from decide(invocation, spoken, allowed=True)) or "Allowed."

    @transaction
    def deny(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        return (yield from decide(invocation, spoken, allowed=False)) or "Not allowed."

    @transaction
    def decide(invocation: Invocation, spoken: CommandContext, *, allowed: bool) -> Statements[str | None]:
        received = spoken.received
        is_admin = (received.role or AccessRole.GUEST) >= AccessRole.ADMIN
        decided = yield from store.turn_control.answer_question(
            received.key,
            spoken.now,
            Principal.operator() if is_admin else spoken.principal,
            allowed=allowed,
            question=invocation.words.get("question"),
            said=received.received,
            place=received.inbound.source,
        )
        return _UNDECIDED.get(decided)

    return [
        Performance(_STOP, stop),
        Performance(_STATUS, status),
        Performance(_APPROVE, approve),
        Performance(_DENY, deny),
    ]


def _told(seen: Status, zone: tzinfo) -> str:
    session, waiting = seen.session, f", {seen.waiting} waiting" if seen.waiting else ""
    if session is None and not (seen.running_since or seen.is_parked):
        return "There is no conversation yet that you take part in: whatever you write starts one, or joins it."
    if session is None:
        return f"This conversation: {_doing(seen, zone)}{waiting}."
    head = f"{session.title or 'untitled'} ({session.id}): {_doing(seen, zone)}{waiting}; {_counts(session.counters)}."
    return "\n".join([head, *_facts(session, zone)])


def _doing(seen: Status, zone: tzinfo) -> str:
    if seen.is_parked:
        return "waiting for permission, /approve or /deny"
    since = seen.running_since
    return f"at work since {since.astimezone(zone):%H:%M:%S %Z}" if since else "idle"


def _counts(counters: Counters) -> str:
    tokens = counters.input_tokens + counters.output_tokens
    return f"{counted(counters.turns, 'turn')}, {counted(tokens, 'token')}"


def _facts(session: Session, zone: tzinfo) -> list[str]:
    shared = ", shared by everybody here" if session.key.shared else ""
    facts = [f"started {when(session.started, zone)}, last used {when(session.last_active, zone)}{shared}"]
    facts += [f"a branch of {session.parent}"] if session.parent else []
    return [*facts, f"answered by {session.override.model}"] if session.override else facts


_TOOLS = Command(
    name="tools",
    help="list what the agent may do for you here besides talking",
    example="/tools",
    group="gateway",
)
_LONGEST = 100


def about_tools() -> list[Performance]:
    async def tools(_invocation: Invocation, spoken: CommandContext) -> Transaction[str]:
        found = await spoken.tools()
        return say("\n".join(map(_line, found)) or "The agent can only talk to you here.")

    return [Performance(_TOOLS, tools)]


def _line(tool: Tool) -> str:
    asks = " (you are asked first)" if tool.needs_approval else ""
    return f"{tool.name}{asks}: {one_line(tool.description, _LONGEST)}"
