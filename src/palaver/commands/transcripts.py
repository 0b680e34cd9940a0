"""Commands about what was said last: taken back, brought back, answered again."""

from palaver.commands.formatting import counted, quoted
from palaver.commands.registry import Performance
from palaver.commands.sessions import leave, take_part
from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.engine.turns.summaries import COMPRESS
from palaver.model.command import Arg, ArgKind, Command, Invocation
from palaver.model.errors import NothingToCompact
from palaver.model.transcript import is_addressed_to_agent
from palaver.store.results import Undone
from palaver.store.store import Store

__all__ = [
    "about_transcripts",
    "compressing",
]

_GROUP = "transcripts"
_UNDO = Command(
    name="undo",
    help="take back your last message, or so many of them, with everything that followed",
    example="/undo 2",
    args=(Arg(name="messages", kind=ArgKind.NUMBER),),
    beside=True,
    group=_GROUP,
)
_REDO = Command(name="redo", help="bring back what the last /undo took", example="/redo", beside=True, group=_GROUP)
_RETRY = Command(
    name="retry",
    help="have your last message answered again; /back returns to the answer before",
    example="/retry",
    beside=True,
    group=_GROUP,
)
_NOTHING_SAID = "Nothing was said here yet."


def about_transcripts(store: Store) -> list[Performance]:
    @transaction
    def undo(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        count = invocation.numbers.get("messages", 1)
        if not count:
            return "Nothing was taken back. /undo 1 takes back your last message and its answer."
        yield from leave(store, spoken)
        yield from take_part(store, spoken)
        undone = yield from store.transcript.undo(spoken.received.key, count, spoken.now, principal=spoken.principal)
        if undone is None:
            return _NOTHING_SAID
        all_of_it = " That is all there was." if _turns(undone) < count else ""
        return f"Taken back: {_words_of(undone)}.{all_of_it} /redo or /back brings it back."

    @transaction
    def redo(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        yield from take_part(store, spoken)
        key, place = spoken.received.key, spoken.received.place
        undone = yield from store.history.redo(key, spoken.now, principal=spoken.principal, place=place)
        return "There is nothing to bring back." if undone is None else f"Brought back: {_words_of(undone)}."

    @transaction
    def retry(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        yield from leave(store, spoken)
        yield from take_part(store, spoken)
        again = yield from store.history.retry(spoken.received, spoken.principal, spoken.now)
        if not again:
            return _NOTHING_SAID
        return f"Answering again: {quoted(again[0])}. /back returns to the answer before."

    return [Performance(_UNDO, undo), Performance(_REDO, redo), Performance(_RETRY, retry)]


def _turns(undone: Undone) -> int:
    return len({entry.turn or entry.seq for entry in undone.entries if is_addressed_to_agent(entry)})


def _words_of(undone: Undone) -> str:
    said = [entry for entry in undone.entries if is_addressed_to_agent(entry)]
    if not said:
        return "what the agent had written"
    whole = f"{counted(_turns(undone), 'message')} and what followed"
    return f"{whole}, from {quoted(said[0].text)} on" if len(said) > 1 else f"{quoted(said[0].text)} and what followed"


_COMPRESS = Command(
    name=COMPRESS,
    help="summarise what was said earlier, so that the agent has less to read; /back takes it back",
    example="/compress the budget",
    args=(Arg(name="focus", kind=ArgKind.REST),),
    group="transcripts",
)


def compressing(store: Store) -> list[Performance]:
    @transaction
    def compress(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        """Only asked for here: the turn that it opens says what came of it."""
        received = spoken.received
        session = yield from store.sessions.open_by_key(received.key)
        if session is None:
            raise NothingToCompact(texts.not_compacted("there is no conversation here yet"))
        yield from store.sessions.get_visible(session.id, spoken.principal)
        if (yield from store.turns.reserve(received.key, spoken.now, received)) is None:
            raise NothingToCompact(texts.not_compacted("the agent waits for permission, /approve or /deny"))
        return ""

    return [Performance(_COMPRESS, compress)]
