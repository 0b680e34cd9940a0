"""Commands that find conversations again, by list or name. Where others read along, only those of the place."""

from collections.abc import Sequence

from palaver.commands.moving import leave
from palaver.commands.phrases import called, counted, name_of, quoted, when
from palaver.commands.registry import Performance
from palaver.domain.access import AccessRole
from palaver.domain.command import Arg, ArgKind, Command, Invocation
from palaver.domain.errors import BadArgument, NotAllowed
from palaver.domain.session import Principal, Session
from palaver.domain.source import DM
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.store import Preview
from palaver.ports.work import Steps, work

__all__ = ["finding"]

_GROUP = "finding"
_ALL = Arg(name="all", kind=ArgKind.FLAG)
_PAGE = "page"
_SESSIONS = Command(
    name="sessions",
    help="list your recent conversations, ten on a page; --all lists everybody's, for admins",
    example="/sessions 2",
    args=(Arg(name=_PAGE, kind=ArgKind.NUMBER), _ALL),
    group=_GROUP,
)
_RESUME = Command(
    name="resume",
    help="list earlier conversations that have a title, or go on with one: by its number in the list, title or id",
    example="/resume 2",
    args=(Arg(name="which", kind=ArgKind.REST), _ALL),
    group=_GROUP,
)
_LISTED = 10
_COUNTED = 100
"""How far back conversations have a number."""
_LONGEST_POSITION = len(str(_COUNTED))
_PAGES = _COUNTED // _LISTED


def finding(store: Store) -> list[Performance]:
    @work
    def sessions(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        page = min(max(invocation.numbers.get(_PAGE, 1), 1), _PAGES)
        recent = yield from store.lists.previews(_reader(invocation, spoken), page * _LISTED + 1)
        if not recent:
            return "There are no conversations yet: whatever you write starts one."
        shown = list(enumerate(recent, 1))[(page - 1) * _LISTED : page * _LISTED]
        if not shown:
            return f"There is no page {page}: there are {counted(len(recent), 'conversation')}."
        more = _more(page, invocation) if len(recent) > page * _LISTED else ()
        spoken.mentioned.extend(each.session for _, each in shown)
        return "\n".join((_listing(shown, invocation, spoken), *more))

    @work
    def resume(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        reader, which = _reader(invocation, spoken), invocation.words.get("which")
        recent = yield from store.lists.previews(reader, _COUNTED)
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


def _reader(invocation: Invocation, spoken: Spoken) -> Principal:
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


def _go_on(store: Store, spoken: Spoken, reader: Principal, wanted: Session) -> Steps[str]:
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
    child = yield from store.moves.branch(key, source, reader, spoken.now, by=by, from_session=wanted.id)
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


def _listing(numbered: Sequence[tuple[int, Preview]], invocation: Invocation, spoken: Spoken) -> str:
    flag = _flags(invocation)
    lines = [f"{number}. {_line(each, spoken)}" for number, each in numbered]
    others = [number for number, each in numbered if not spoken.is_in(each.session)]
    return "\n".join([*lines, *(f"/resume {number}{flag} goes on with number {number}." for number in others[:1])])


def _line(preview: Preview, spoken: Spoken) -> str:
    session = preview.session
    here = ", here" if spoken.is_in(session) else ""
    told = f"{session.title or 'untitled'} ({when(session.last_active, spoken.zone)}{here})"
    return f"{told}: {quoted(preview.last_said)}" if preview.last_said.strip() else told
