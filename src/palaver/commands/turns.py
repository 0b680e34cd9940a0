"""Commands about the running answer: they act at once, even during a turn."""

import re
from datetime import tzinfo

from palaver.commands.formatting import format_time
from palaver.commands.registry import CommandGroup, is_admin, reply
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import Arg, ArgKind, Command, Invocation, as_said
from palaver.model.session import Counters, Principal, Session
from palaver.model.text import counted, one_line
from palaver.model.transcript import Sender
from palaver.model.turn import BusyMode
from palaver.protocols.tools import Tool
from palaver.store.results import Decision, Status, Words
from palaver.store.store import Store

commands = CommandGroup("answers")

_QUESTION = Arg(name="question")
_TEXT = Arg(name="text", kind=ArgKind.REST, required=True)
_NAMED = re.compile(r"(\d{1,15}-\d{1,9})\s+(.*)", re.ASCII | re.DOTALL)
"""An answer with the name of its question."""
_BUSY_MODES = {
    BusyMode.QUEUE: ("Queue a message until the current answer is done", "/queue And what does it cost?"),
    BusyMode.STEER: (
        "Send a message to the running answer. The agent sees it after its next step",
        "/steer Only trains, please",
    ),
}
BUSY_MODE_COMMANDS = tuple(
    Command(
        name=mode.value,
        help=line,
        example=example,
        args=(_TEXT,),
        role=AccessRole.GUEST,
        group="answers",
        busy_mode=mode,
    )
    for mode, (line, example) in _BUSY_MODES.items()
)
_UNDECIDED = {
    Decision.NOTHING: "There is nothing to approve or deny.",
    Decision.NEEDS_WORDS: "The agent wants an answer, not an approval: send a number or your own words.",
    Decision.NEEDS_APPROVAL: "That question needs /approve or /deny.",
    Decision.WITHDRAWN: "That question was withdrawn when another message arrived. Nothing was approved.",
    Decision.OTHER: "The question has changed. Read it and answer again.",
}


@commands.add(
    "stop",
    "Stop the current answer. /stop all also drops the queued messages",
    "/stop all",
    Arg(name="scope", choices=("all",)),
    urgent=True,
    remote=True,
)
@transaction
def stop(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    key, now, by = context.received.key, context.now, context.principal.name
    dropped = bool(invocation.words) and (
        yield from store.inbox.fail_waiting(key, "stopped before it was answered", before=context.received.number)
    )
    if (yield from store.turn_control.request_stop(key, now, by=by)):
        return "Stopping."
    seen = yield from store.turn_control.get_status(key, context.principal)
    denied = yield from store.turn_control.abandon_parked(
        key, now, note=texts.STOPPED_NOTE, error="stopped instead of an answer", by=by
    )
    if denied and not seen.waits_for_client:
        return "Stopped. The open question was denied."
    return "Stopped." if denied or dropped else "There is nothing to stop."


@commands.add("status", "Show what is happening in this conversation", "/status", urgent=True, remote=True)
@transaction
def status(store: Store, _invocation: Invocation, context: CommandContext) -> Statements[str]:
    seen = yield from store.turn_control.get_status(context.received.key, context.principal)
    told = _describe(seen, context.zone)
    if seen.session is None:
        return told
    several = yield from store.attach.has_several_people(seen.session)
    others = ["several people take part"] if several else []
    here = ["this chat is attached to it; /detach leaves it"] if context.received.place else []
    return "\n".join([told, *others, *here])


@commands.add("approve", "Approve what the agent asks for", "/approve", _QUESTION, urgent=True, remote=True)
@transaction
def approve(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    return (yield from _decide(store, context, True, invocation.words.get("question"))) or "Approved."


@commands.add("deny", "Deny what the agent asks for", "/deny", _QUESTION, urgent=True, remote=True)
@transaction
def deny(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    return (yield from _decide(store, context, False, invocation.words.get("question"))) or "Denied."


@commands.add(
    "answer",
    "Answer a question of the agent, in words or with the number of a choice",
    "/answer 2",
    _TEXT,
    role=AccessRole.GUEST,
    urgent=True,
    remote=True,
)
@transaction
def answer(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    text, inbound = invocation.words["text"], context.received.inbound
    named = _NAMED.fullmatch(text)
    name, words = (named[1], named[2]) if named else (None, text)
    sender = Sender(id=inbound.source.participant, name=inbound.labels.user)
    return (yield from _decide(store, context, Words(words, sender), name)) or "Answered."


def _decide(
    store: Store, context: CommandContext, verdict: bool | Words, question: str | None
) -> Statements[str | None]:
    """Answer a question; return why nothing was decided."""
    received = context.received
    decided = yield from store.turn_control.answer_question(
        received.key,
        context.now,
        Principal.operator() if is_admin(context) else context.principal,
        answer=verdict,
        question=question,
        said=received.received,
        place=received.inbound.source,
        command=received.number,
    )
    if decided is Decision.NOTHING and is_admin(context):
        others = yield from store.turn_control.questions_shown(received.inbound.source)
        if others:
            named = ", ".join(others)
            return f"The open question here is not yours. Name it to answer it, with /approve or /deny: {named}."
    if decided is Decision.NOTHING and isinstance(verdict, Words):
        return "There is no open question to answer."
    return _UNDECIDED.get(decided)


def _describe(seen: Status, zone: tzinfo) -> str:
    session, waiting = seen.session, f", {seen.waiting} waiting" if seen.waiting else ""
    if session is None and not (seen.running_since or seen.is_parked or seen.waits_for_client):
        return "You have no open conversation here. Send a message to start or join one."
    if session is None:
        return f"This conversation: {_describe_activity(seen, zone)}{waiting}."
    activity = f"{_describe_activity(seen, zone)}{waiting}; {_counts(session.counters)}"
    head = f"{as_said(session.title or 'untitled')} ({session.id}): {activity}."
    return "\n".join([head, *_facts(session, zone)])


def _describe_activity(seen: Status, zone: tzinfo) -> str:
    if seen.is_parked:
        return "waiting for your answer" if seen.wants_words else "waiting for /approve or /deny"
    if seen.waits_for_client:
        return "waiting for a tool that the client runs"
    since = seen.running_since
    return f"working since {since.astimezone(zone):%H:%M:%S %Z}" if since else "idle"


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


_MAX_CHARS = 100


@commands.add("tools", "List the tools that the agent can use for you here", "/tools", group="gateway")
async def tools(_store: Store, _invocation: Invocation, context: CommandContext) -> Transaction[str]:
    found = await context.tools()
    lines = [*map(_line, found), *_problem_lines(context)]
    return reply("\n".join(lines) or "The agent has no tools here.")


def _problem_lines(context: CommandContext) -> list[str]:
    """Say which servers do not work; only those who run the gateway see why."""
    sees_why = is_admin(context) and not context.is_overheard
    return [
        f"The server {name} does not work{f': {problem}' if sees_why else '.'}"
        for name, problem in context.tool_problems().items()
    ]


def _line(tool: Tool) -> str:
    exception = f", unless {tool.asks_unless}" if tool.asks_unless else ""
    asks = f" (asks you first{exception})" if tool.needs_approval else ""
    return f"{tool.name}{asks}: {as_said(one_line(tool.summary or tool.description, _MAX_CHARS))}"
