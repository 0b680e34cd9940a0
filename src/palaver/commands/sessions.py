"""Commands that start fresh and go back, and what everybody has to do who goes elsewhere."""

from collections.abc import Sequence

from palaver.commands.formatting import called, counted, name_of, quoted, when
from palaver.commands.registry import Performance
from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import Arg, ArgKind, Command, Invocation
from palaver.model.errors import BadArgument, NotAllowed
from palaver.model.session import Principal, Session
from palaver.model.source import DM
from palaver.model.transcript import start_of_last_turns
from palaver.store.results import Preview
from palaver.store.store import Store

__all__ = [
    "branching",
    "finding",
    "leave",
    "moving",
    "take_part",
]

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
    @transaction
    def new(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        left = " What was asked there was not allowed." if (yield from leave(store, spoken)) else ""
        source = spoken.received.inbound.source
        title = invocation.words.get("title")
        fresh = yield from store.sessions.reset(
            spoken.received.key, source, spoken.now, by=spoken.principal.name, title=title
        )
        named = f" It is called {quoted(fresh.title)}." if fresh.title else ""
        return f"This is a fresh conversation.{named} /back returns to the one before.{left}"

    @transaction
    def back(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        yield from leave(store, spoken)
        key, place = spoken.received.key, spoken.received.place
        undone = yield from store.history.back(key, spoken.now, principal=spoken.principal, place=place)
        if undone is None:
            return "There is nothing to go back to."
        now_open = yield from store.sessions.open_by_key(key)
        where = f" This is {called(now_open)}." if now_open and place is None else ""
        return f"The last {undone.command_name or undone.kind} was taken back.{where}"

    return [Performance(_NEW, new), Performance(_BACK, back)]


@transaction
def leave(store: Store, spoken: CommandContext) -> Statements[bool]:
    """Whoever goes elsewhere does not answer what was asked here, and is not held up by it."""
    key, now = spoken.received.key, spoken.now
    return (
        yield from store.turn_control.abandon_parked(key, now, note=texts.LEFT_NOTE, error="left without an answer")
    )


@transaction
def take_part(store: Store, spoken: CommandContext) -> Statements[Session | None]:
    """The open session of the conversation that was spoken in. Whoever acts on it takes part in it, and may read it."""
    current = yield from store.sessions.open_by_key(spoken.received.key)
    if current is not None:
        yield from store.sessions.join(current.number, spoken.received.inbound.source)
    return current


_GROUP_FINDING = "finding"
_ALL = Arg(name="all", kind=ArgKind.FLAG)
_PAGE = "page"
_SESSIONS = Command(
    name="sessions",
    help="list your recent conversations, ten on a page; --all lists everybody's, for admins",
    example="/sessions 2",
    args=(Arg(name=_PAGE, kind=ArgKind.NUMBER), _ALL),
    group=_GROUP_FINDING,
)
_RESUME = Command(
    name="resume",
    help="list earlier conversations that have a title, or go on with one: by its number in the list, title or id",
    example="/resume 2",
    args=(Arg(name="which", kind=ArgKind.REST), _ALL),
    group=_GROUP_FINDING,
)
_LISTED = 10
_COUNTED = 100
"""How far back conversations have a number."""
_LONGEST_POSITION = len(str(_COUNTED))
_PAGES = _COUNTED // _LISTED


def finding(store: Store) -> list[Performance]:
    @transaction
    def sessions(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        page = min(max(invocation.numbers.get(_PAGE, 1), 1), _PAGES)
        recent = yield from store.session_list.recent_sessions(_reader(invocation, spoken), page * _LISTED + 1)
        if not recent:
            return "There are no conversations yet: whatever you write starts one."
        shown = list(enumerate(recent, 1))[(page - 1) * _LISTED : page * _LISTED]
        if not shown:
            return f"There is no page {page}: there are {counted(len(recent), 'conversation')}."
        more = _more(page, invocation) if len(recent) > page * _LISTED else ()
        spoken.mentioned.extend(each.session for _, each in shown)
        return "\n".join((_listing(shown, invocation, spoken), *more))

    @transaction
    def resume(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        reader, which = _reader(invocation, spoken), invocation.words.get("which")
        recent = yield from store.session_list.recent_sessions(reader, _COUNTED)
        if which is None:
            titled = [each for each in enumerate(recent, 1) if each[1].session.title]
            if not titled:
                return _NO_TITLES
            more = _more(1, invocation) if len(titled) > _LISTED or len(recent) == _COUNTED else ()
            spoken.mentioned.extend(each.session for _, each in titled[:_LISTED])
            return "\n".join((_listing(titled[:_LISTED], invocation, spoken), *more))
        wanted = yield from store.sessions.find(_named(which, recent), reader)
        spoken.mentioned.append(wanted)
        if spoken.is_in(wanted):
            return f"This is {called(wanted)} already: what you write goes on with it."
        yield from leave(store, spoken)
        return (yield from _go_on(store, spoken, reader, wanted))

    return [Performance(_SESSIONS, sessions), Performance(_RESUME, resume)]


_NO_TITLES = (
    "There are no earlier conversations with a title; /title Holiday plans gives one to this conversation, "
    "/sessions lists those without."
)


def _reader(invocation: Invocation, spoken: CommandContext) -> Principal:
    """Admins may ask for everybody's conversations, where nobody else reads the answer."""
    if _ALL.name not in invocation.flags:
        return spoken.audience
    name = f"/{invocation.command.name} --all"
    if (spoken.received.role or AccessRole.GUEST) < AccessRole.ADMIN:
        raise NotAllowed(name, "admin")
    if spoken.is_overheard:
        raise BadArgument(f"{name} is not answered in", found="a group", allowed="a direct chat", example=name)
    return Principal.operator()


def _named(which: str, recent: Sequence[Preview]) -> str:
    """A number stands for a conversation of the list."""
    position = int(which) if len(which) <= _LONGEST_POSITION and which.isdecimal() else 0
    return recent[position - 1].session.id if 0 < position <= len(recent) else which


def _go_on(store: Store, spoken: CommandContext, reader: Principal, wanted: Session) -> Statements[str]:
    """What is one's own comes along. What others share or read stays with them: one goes on from it in a branch."""
    key, source, by = spoken.received.key, spoken.received.inbound.source, spoken.principal.name
    if spoken.received.place is not None:
        raise BadArgument(
            "This place is attached to a conversation of other places, which would all go along to",
            found=name_of(wanted),
            allowed="/detach first",
            example="/detach",
        )
    is_own = wanted.owner in spoken.principal.identities
    # Out of a group nothing comes along: on the way back there it would take with it what was said in private.
    if wanted.key == key or (is_own and wanted.key.kind == DM):
        resumed = yield from store.sessions.switch(key, source, wanted.id, reader, spoken.now, by=by)
        return f"This is {called(resumed)} again. /back returns to where you were."
    child = yield from store.history.branch(key, source, reader, spoken.now, by=by, from_session=wanted.id)
    where = "in its group" if is_own else "with the others who take part in it"
    return (
        f"This is {called(child)}, a branch of {called(wanted)}, which stays {where}. /back returns to where you were."
    )


def _more(page: int, invocation: Invocation) -> tuple[str]:
    """What follows on a page that is not the last."""
    if page < _PAGES:
        return (f"There are more: /sessions {page + 1}{_flags(invocation)} lists them.",)
    return ("There are more: /search finds them by what was said.",)


def _flags(invocation: Invocation) -> str:
    return "".join(f" --{name}" for name in sorted(invocation.flags))


def _listing(numbered: Sequence[tuple[int, Preview]], invocation: Invocation, spoken: CommandContext) -> str:
    flag = _flags(invocation)
    lines = [f"{number}. {_line(each, spoken)}" for number, each in numbered]
    others = [number for number, each in numbered if not spoken.is_in(each.session)]
    return "\n".join([*lines, *(f"/resume {number}{flag} goes on with number {number}." for number in others[:1])])


def _line(preview: Preview, spoken: CommandContext) -> str:
    session = preview.session
    here = ", here" if spoken.is_in(session) else ""
    told = f"{session.title or 'untitled'} ({when(session.last_active, spoken.zone)}{here})"
    return f"{told}: {quoted(preview.last_said)}" if preview.last_said.strip() else told


_GROUP_BRANCHING = "conversations"
_BRANCH = Command(
    name="branch",
    help=(
        "go on from here, from so many messages back, or from the message that you reply to, in a conversation of "
        "its own; the other one stays as it is"
    ),
    example="/branch Another idea --at 2",
    args=(Arg(name="title", kind=ArgKind.REST), Arg(name="at", kind=ArgKind.COUNT)),
    beside=True,
    group=_GROUP_BRANCHING,
)
_TITLE = Command(
    name="title",
    help="say what this conversation is called, or call it something else",
    example="/title Holiday plans",
    args=(Arg(name="title", kind=ArgKind.REST),),
    beside=True,
    group=_GROUP_BRANCHING,
)
_NOTHING_OPEN = (
    "No conversation is open here: whatever you write starts one; if there was one before, /back returns to it."
)


def branching(store: Store) -> list[Performance]:
    @transaction
    def branch(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        key, source = spoken.received.key, spoken.received.inbound.source
        yield from leave(store, spoken)
        current = yield from take_part(store, spoken)
        if current is None:
            return _NOTHING_OPEN
        at_seq = yield from _end(store, current, invocation, spoken)
        title, by = invocation.words.get("title"), spoken.principal.name
        child = yield from store.history.branch(
            key, source, spoken.principal, spoken.now, by=by, title=title, at_seq=at_seq
        )
        return (
            f"This is {called(child)}, a branch of {called(current)}; both go on by themselves. "
            "/back returns to the other one."
        )

    @transaction
    def title(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
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


def _end(store: Store, session: Session, invocation: Invocation, spoken: CommandContext) -> Statements[int | None]:
    """The last entry that comes along; None to leave nothing out."""
    inbound = spoken.received.inbound
    if count := invocation.numbers.get("at"):
        start = start_of_last_turns((yield from store.transcript.load_visible(session.id, spoken.principal)), count)
        return None if start is None else start - 1
    if inbound.reply_to is None:
        return None
    said_at = yield from store.history.last_seq_of_message(session, inbound.source, inbound.reply_to)
    if said_at is None:
        raise BadArgument(
            "/branch goes on from the message that you reply to, not from",
            found="one that is not part of this conversation",
            allowed="a message or an answer that is, or /branch as no reply to go on from here",
            example=_BRANCH.example,
        )
    return said_at
