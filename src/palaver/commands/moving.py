"""Commands that start fresh and go back."""

from palaver.commands.registry import Performance
from palaver.domain.command import Arg, ArgKind, Command, Invocation
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
_BACK = Command(
    name="back", help="return to where you were before the last reset, switch, undo or compaction", example="/back"
)


def moving(store: Store) -> list[Performance]:
    @work
    def new(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        source = spoken.received.inbound.source
        title = invocation.words.get("title")
        fresh = yield from store.sessions.reset(
            spoken.received.key, source, spoken.now, by=spoken.principal.name, title=title
        )
        named = f" It is called {fresh.title}." if fresh.title else ""
        return f"This is a fresh conversation.{named} /back returns to the one before."

    @work
    def back(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        undone = yield from store.moves.back(spoken.received.key, spoken.now, principal=spoken.principal)
        return _told(undone)

    return [Performance(_NEW, new), Performance(_BACK, back)]


def _told(undone: Undone | None) -> str:
    if undone is None:
        return "There is nothing to go back to."
    return f"The last {undone.kind} was taken back."
