"""Commands about the last messages: undo, redo, retry, compress."""

from palaver.commands.formatting import in_quotes
from palaver.commands.registry import CommandGroup
from palaver.commands.sessions import ENTRY, drop_pending_question, join_open_session
from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.engine.turns.summaries import COMPRESS
from palaver.model.command import Arg, ArgKind, Invocation, as_said
from palaver.model.errors import NothingToCompact
from palaver.model.text import counted, without_invisible
from palaver.model.transcript import Role, is_addressed_to_agent
from palaver.store.results import Undone
from palaver.store.store import Store

commands = CommandGroup("transcripts")

EDITED_TEXT = "text"
"""The web chat can answer a message again with another text."""


@commands.add(
    "undo",
    "Undo the last message, or the last few, and everything after",
    "/undo 2",
    Arg(name="messages", kind=ArgKind.NUMBER),
    remote=True,
)
@transaction
def undo(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    count = invocation.numbers.get("messages", 1)
    if not count:
        return "Nothing to undo. /undo 1 undoes the last message and its answer."
    left = yield from drop_pending_question(store, context)
    yield from join_open_session(store, context)
    undone = yield from store.transcript.undo(context.received.key, count, context.now, principal=context.principal)
    if undone is None:
        return f"There is nothing to undo here.{left}"
    all_of_it = " That was everything." if _turns(undone) < count else ""
    summary = " The summary of earlier messages is undone too." if undone.summaries else ""
    return f"Undid {_describe_undone(undone)}.{all_of_it}{summary} /redo brings it back.{_to_edit(undone)}"


def _to_edit(undone: Undone) -> str:
    """Return the whole text of the first message, to be edited and sent again, if the answer only quotes a part."""
    text = next((entry.text for entry in undone.entries if is_addressed_to_agent(entry)), "")
    return (
        ""
        if in_quotes(text) == f"“{as_said(text)}”"
        else f" To edit and send again:\n\n{as_said(without_invisible(text))}"
    )


@commands.add("redo", "Bring back what the last /undo removed", "/redo", remote=True)
@transaction
def redo(store: Store, _invocation: Invocation, context: CommandContext) -> Statements[str]:
    yield from join_open_session(store, context)
    key, place = context.received.key, context.received.place
    undone = yield from store.history.redo(key, context.now, principal=context.principal, place=place)
    if undone is None:
        return "There is nothing to redo."
    summary = " Earlier messages are summarised again." if undone.summaries else ""
    return f"Restored {_describe_undone(undone)}.{summary}"


@commands.add(
    "retry",
    "Answer the last message again, or an earlier one. /back returns to the previous answer",
    "/retry",
    ENTRY,
    remote=True,
)
@transaction
def retry(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    left = yield from drop_pending_question(store, context)
    yield from join_open_session(store, context)
    seq, text = invocation.numbers.get(ENTRY.name), invocation.words.get(EDITED_TEXT)
    again = yield from store.branches.retry(context.received, context.principal, context.now, seq=seq, text=text)
    if not again:
        return f"There is no message to answer again here.{left}"
    return f"Answering again: {in_quotes(again[0])}. /back returns to the previous answer.{left}"


def _turns(undone: Undone) -> int:
    return len({entry.turn or entry.seq for entry in undone.entries if is_addressed_to_agent(entry)})


def _describe_undone(undone: Undone) -> str:
    messages = [entry for entry in undone.entries if is_addressed_to_agent(entry)]
    if not messages:
        has_summary = any(entry.role is Role.SUMMARY for entry in undone.entries)
        return "the summary of earlier messages" if has_summary else "what the agent had written"
    first = in_quotes(messages[0].text)
    if len(messages) == 1:
        return f"{first} and everything after it"
    return f"{counted(_turns(undone), 'message')} from {first} on, and everything after them"


@commands.add(
    COMPRESS,
    "Summarise earlier messages so that the agent has less to read. /back undoes it",
    "/compress the budget",
    Arg(name="focus", kind=ArgKind.REST),
)
@transaction
def compress(store: Store, _invocation: Invocation, context: CommandContext) -> Statements[str]:
    """Open a turn for the compaction; the turn reports the result."""
    received = context.received
    session = yield from store.sessions.open_by_key(received.key)
    if session is None:
        raise NothingToCompact(texts.not_compacted("there is no conversation here yet"))
    yield from store.sessions.get_visible(session.id, context.principal)
    if (yield from store.turns.reserve(received.key, context.now, received)) is None:
        raise NothingToCompact(texts.not_compacted("the agent is waiting for /approve or /deny"))
    return ""
