"""Commands that start fresh and go back, and what everybody has to do who goes elsewhere."""

from palaver.commands.phrases import called, quoted
from palaver.commands.registry import Performance
from palaver.domain.command import Arg, ArgKind, Command, Invocation
from palaver.domain.session import Session
from palaver.engine import words
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["leave", "moving", "take_part"]

_GROUP = "conversations"
_NEW = Command(
    name="new",
    help="start a fresh conversation; the one before stays and /back returns to it",
    example="/new Holiday plans",
    args=(Arg(name="title", kind=ArgKind.REST),),
    aliases=("reset",),
    beside=True,
    group=_GROUP,
)
_BACK = Command(
    name="back",
    help="return to where you were before the last reset, switch, undo, branch or compaction",
    example="/back",
    beside=True,
    group=_GROUP,
)


def moving(store: Store) -> list[Performance]:
    @work
    def new(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        left = " What was asked there was not allowed." if (yield from leave(store, spoken)) else ""
        source = spoken.received.inbound.source
        title = invocation.words.get("title")
        fresh = yield from store.sessions.reset(
            spoken.received.key, source, spoken.now, by=spoken.principal.name, title=title
        )
        named = f" It is called {quoted(fresh.title)}." if fresh.title else ""
        return f"This is a fresh conversation.{named} /back returns to the one before.{left}"

    @work
    def back(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        yield from leave(store, spoken)
        key, place = spoken.received.key, spoken.received.place
        undone = yield from store.moves.back(key, spoken.now, principal=spoken.principal, place=place)
        if undone is None:
            return "There is nothing to go back to."
        now_open = yield from store.sessions.open_by_key(key)
        where = f" This is {called(now_open)}." if now_open and place is None else ""
        return f"The last {undone.deed or undone.kind} was taken back.{where}"

    return [Performance(_NEW, new), Performance(_BACK, back)]


def leave(store: Store, spoken: Spoken) -> Steps[bool]:
    """Whoever goes elsewhere does not answer what was asked here, and is not held up by it."""
    key, now = spoken.received.key, spoken.now
    return (yield from store.steering.drop_parked(key, now, note=words.LEFT_NOTE, error="left without an answer"))


def take_part(store: Store, spoken: Spoken) -> Steps[Session | None]:
    """The open session of the conversation that was spoken in. Whoever acts on it takes part in it, and may read it."""
    current = yield from store.sessions.open_by_key(spoken.received.key)
    if current is not None:
        yield from store.sessions.join(current.number, spoken.received.inbound.source)
    return current
