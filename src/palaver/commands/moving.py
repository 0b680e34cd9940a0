"""Commands that start fresh, go back, and go on elsewhere."""

from collections.abc import Sequence

from palaver.commands.registry import Performance
from palaver.domain.command import Arg, ArgKind, Command, Invocation
from palaver.domain.session import Session
from palaver.engine import words
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.store import Undone
from palaver.ports.work import Steps, work

__all__ = ["moving"]

_NEW = Command(
    name="new",
    help="start a fresh conversation; the one before stays and /back returns to it",
    example="/new Holiday plans",
    args=(Arg(name="title", kind=ArgKind.REST),),
    aliases=("reset",),
)
_BACK = Command(name="back", help="return to where you were before the last reset or switch", example="/back")
_RESUME = Command(
    name="resume",
    help="list earlier conversations, or go on with one of them: by its number in the list, title or id",
    example="/resume 2",
    args=(Arg(name="which", kind=ArgKind.REST),),
)
_LISTED = 10


def moving(store: Store) -> list[Performance]:
    @work
    def new(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        left = " What was asked there was not allowed." if (yield from _leave(store, spoken)) else ""
        source = spoken.received.inbound.source
        title = invocation.words.get("title")
        fresh = yield from store.sessions.reset(
            spoken.received.key, source, spoken.now, by=spoken.principal.name, title=title
        )
        named = f" It is called {fresh.title}." if fresh.title else ""
        return f"This is a fresh conversation.{named} /back returns to the one before.{left}"

    @work
    def back(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        yield from _leave(store, spoken)
        undone = yield from store.moves.back(spoken.received.key, spoken.now, principal=spoken.principal)
        return _told(undone)

    @work
    def resume(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        principal, key = spoken.principal, spoken.received.key
        listed = yield from store.sessions.recent(principal, _LISTED)
        which = invocation.words.get("which")
        if which is None:
            return _listing(listed)
        position = int(which) if which.isdecimal() else 0
        target = listed[position - 1].id if 0 < position <= len(listed) else which
        yield from _leave(store, spoken)
        source, by = spoken.received.inbound.source, principal.name
        resumed = yield from store.sessions.switch(key, source, target, principal, spoken.now, by=by)
        return f"This is {resumed.title or resumed.id} again. /back returns to where you were."

    return [Performance(_NEW, new), Performance(_BACK, back), Performance(_RESUME, resume)]


def _listing(listed: Sequence[Session]) -> str:
    if not listed:
        return "There are no earlier conversations with a title; /new Holiday plans gives one to a fresh conversation."
    lines = (f"{number}. {session.title} ({session.id})" for number, session in enumerate(listed, 1))
    return "\n".join([*lines, "/resume 1 goes on with the first."])


def _leave(store: Store, spoken: Spoken) -> Steps[bool]:
    """Whoever goes elsewhere does not answer what was asked here, and is not held up by it."""
    key, now = spoken.received.key, spoken.now
    return (yield from store.steering.drop_parked(key, now, note=words.LEFT_NOTE, error="left without an answer"))


def _told(undone: Undone | None) -> str:
    if undone is None:
        return "There is nothing to go back to."
    return f"The last {undone.kind} was taken back."
