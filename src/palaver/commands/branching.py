"""Commands that make a conversation one among several: a branch of it, a title for it."""

from palaver.commands.moving import leave, take_part
from palaver.commands.phrases import called, name_of, quoted
from palaver.commands.registry import Performance
from palaver.domain.command import Arg, ArgKind, Command, Invocation
from palaver.domain.errors import BadArgument
from palaver.domain.session import Session
from palaver.domain.transcript import start_of_last_turns
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["branching"]

_GROUP = "conversations"
_BRANCH = Command(
    name="branch",
    help=(
        "go on from here, from so many messages back, or from the message that you reply to, in a conversation of "
        "its own; the other one stays as it is"
    ),
    example="/branch Another idea --at 2",
    args=(Arg(name="title", kind=ArgKind.REST), Arg(name="at", kind=ArgKind.COUNT)),
    beside=True,
    group=_GROUP,
)
_TITLE = Command(
    name="title",
    help="say what this conversation is called, or call it something else",
    example="/title Holiday plans",
    args=(Arg(name="title", kind=ArgKind.REST),),
    beside=True,
    group=_GROUP,
)
_NOTHING_OPEN = (
    "No conversation is open here: whatever you write starts one; if there was one before, /back returns to it."
)


def branching(store: Store) -> list[Performance]:
    @work
    def branch(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        key, source = spoken.received.key, spoken.received.inbound.source
        yield from leave(store, spoken)
        current = yield from take_part(store, spoken)
        if current is None:
            return _NOTHING_OPEN
        at_seq = yield from _end(store, current, invocation, spoken)
        title, by = invocation.words.get("title"), spoken.principal.name
        child = yield from store.moves.branch(
            key, source, spoken.principal, spoken.now, by=by, title=title, at_seq=at_seq
        )
        return (
            f"This is {called(child)}, a branch of {called(current)}; both go on by themselves. "
            "/back returns to the other one."
        )

    @work
    def title(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        current = yield from take_part(store, spoken)
        wanted = invocation.words.get("title")
        if current is None:
            return _NOTHING_OPEN
        if wanted is None:
            return _titled(current.title)
        renamed = yield from store.sessions.rename(current.id, wanted, spoken.principal)
        before = f" It was called {quoted(current.title)} before." if current.title else ""
        return f"This conversation is called {quoted(name_of(renamed))} now.{before}"

    return [Performance(_BRANCH, branch), Performance(_TITLE, title)]


def _titled(title: str | None) -> str:
    if not title:
        return f"This conversation has no title yet. {_TITLE.example} gives it one."
    another = "/title Shopping list" if _TITLE.example.endswith(f" {title}") else _TITLE.example
    return f"This conversation is called {quoted(title)}. {another} gives it another title."


def _end(store: Store, session: Session, invocation: Invocation, spoken: Spoken) -> Steps[int | None]:
    """The last entry that comes along; None to leave nothing out."""
    inbound = spoken.received.inbound
    if count := invocation.numbers.get("at"):
        start = start_of_last_turns((yield from store.transcripts.load_visible(session.id, spoken.principal)), count)
        return None if start is None else start - 1
    if inbound.reply_to is None:
        return None
    said_at = yield from store.moves.said_at(session, inbound.source, inbound.reply_to)
    if said_at is None:
        raise BadArgument(
            "/branch goes on from the message that you reply to, not from",
            found="one that is not part of this conversation",
            allowed="a message or an answer that is, or /branch as no reply to go on from here",
            example=_BRANCH.example,
        )
    return said_at
