"""Commands for conversations: start, resume, list, branch, rename and go back."""

from collections.abc import Sequence

from palaver.commands.formatting import format_time, in_quotes, session_name, session_phrase
from palaver.commands.registry import CommandGroup, direct_chat_only, is_owner
from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import Arg, ArgKind, Invocation, as_said
from palaver.model.errors import BadArgument, NotAllowed, NotFound
from palaver.model.session import Principal, Session, unquoted
from palaver.model.text import counted
from palaver.model.transcript import start_of_last_turns
from palaver.store.people.grants import ChangeKind
from palaver.store.results import OperationKind, Preview
from palaver.store.store import Store

commands = CommandGroup("conversations")


@commands.add(
    "new",
    "Start a new conversation. /back returns to the previous one",
    "/new Holiday plans",
    Arg(name="title", kind=ArgKind.REST),
    aliases=("reset",),
    remote=True,
)
@transaction
def new(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    left = yield from drop_pending_question(store, context)
    source = context.received.inbound.source
    title = invocation.words.get("title")
    fresh = yield from store.sessions.reset(
        context.received.key, source, context.now, by=context.principal.name, title=title
    )
    title_note = f" Its title is {in_quotes(fresh.title)}." if fresh.title else ""
    return f"Started a new conversation.{title_note} /back returns to the previous one.{left}"


@commands.add("back", "Undo the last reset, switch, undo, branch or compaction", "/back", remote=True)
@transaction
def back(store: Store, _invocation: Invocation, context: CommandContext) -> Statements[str]:
    yield from join_open_session(store, context)
    key, place, principal = context.received.key, context.received.place, context.principal
    asks = yield from store.turn_control.is_parked(key)
    drop = drop_pending_question(store, context)
    undone = yield from store.history.back(key, context.now, principal=principal, place=place, leaving=drop)
    if undone is None:
        return "There is nothing to undo."
    left = _DENIED if asks and not (yield from store.turn_control.is_parked(key)) else ""
    now_open = yield from store.sessions.open_by_key(key)
    where = f" This is {session_phrase(now_open)}." if now_open and place is None else ""
    return f"Undid the last {undone.command_name or _OPERATIONS.get(undone.kind, undone.kind)}.{where}{left}"


_DENIED = " The open question there was denied."
_OPERATIONS = {OperationKind.REVISION: "edit or deletion of a message"}


@transaction
def drop_pending_question(store: Store, context: CommandContext) -> Statements[str]:
    """Deny the question that waits here, as the person goes elsewhere; return a sentence about it if there is one."""
    key, now = context.received.key, context.now
    denied = yield from store.turn_control.abandon_parked(
        key, now, note=texts.LEFT_NOTE, error="left without an answer"
    )
    return _DENIED if denied else ""


@transaction
def join_open_session(store: Store, context: CommandContext) -> Statements[Session | None]:
    """Return the open session here. The caller joins it and can read it from now on."""
    current = yield from store.sessions.open_by_key(context.received.key)
    if current is not None:
        yield from store.sessions.join(current.number, context.received.inbound.source)
    return current


_ALL = Arg(name="all", kind=ArgKind.FLAG)
ENTRY = Arg(name="entry", kind=ArgKind.COUNT)
"""The number of an entry, as the transcript in the dashboard shows it."""
_PAGE = "page"
_PAGE_SIZE = 10
_MAX_NUMBERED = 100
"""Only the most recent conversations have a number."""
_MAX_POSITION_DIGITS = len(str(_MAX_NUMBERED))
_MAX_PAGES = _MAX_NUMBERED // _PAGE_SIZE


@commands.add(
    "sessions",
    "List your recent conversations, ten per page. The owner can list everybody's with --all",
    "/sessions 2",
    Arg(name=_PAGE, kind=ArgKind.NUMBER),
    _ALL,
    group="finding",
)
@transaction
def sessions(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    asked = max(invocation.numbers.get(_PAGE, 1), 1)
    page = min(asked, _MAX_PAGES)
    recent = yield from store.session_list.recent_sessions(_reader(invocation, context), page * _PAGE_SIZE + 1)
    yield from _log_reading(store, invocation, context)
    if not recent:
        return "You have no conversations yet. Send a message to start one."
    shown = list(enumerate(recent, 1))[(page - 1) * _PAGE_SIZE : page * _PAGE_SIZE]
    if asked > page and len(recent) > _MAX_NUMBERED:
        return (
            f"There is no page {asked}: the newest {_MAX_NUMBERED} conversations are listed. /search finds older ones."
        )
    if asked > page or not shown:
        return f"There is no page {asked}: there are {counted(len(recent), 'conversation')}."
    more = _more(page, invocation) if len(recent) > page * _PAGE_SIZE else ()
    yield from store.mentions.record_listing(context.received.number, ((at, each.session) for at, each in shown))
    return "\n".join((_listing(shown, invocation, context), *more))


@commands.add(
    "resume",
    "List earlier conversations that have a title, or continue one by number, title or id. The owner can continue"
    " anybody's with --all",
    "/resume 2",
    Arg(name="which", kind=ArgKind.REST),
    _ALL,
    group="finding",
)
@transaction
def resume(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    reader, which = _reader(invocation, context), invocation.words.get("which")
    if which is None:
        recent = yield from store.session_list.recent_sessions(reader, _MAX_NUMBERED)
        titled = [each for each in enumerate(recent, 1) if each[1].session.title]
        if all(context.is_in(each.session) for _, each in titled):
            titled = list(enumerate(recent, 1))  # Titles can be off: then list those without.
        if all(context.is_in(each.session) for _, each in titled):
            return "There are no earlier conversations."
        more = _more(1, invocation) if len(titled) > _PAGE_SIZE or len(recent) == _MAX_NUMBERED else ()
        shown = ((at, each.session) for at, each in titled[:_PAGE_SIZE])
        yield from store.mentions.record_listing(context.received.number, shown)
        yield from _log_reading(store, invocation, context)
        return "\n".join((_listing(titled[:_PAGE_SIZE], invocation, context), *more))
    wanted = yield from _find_session(store, context, which, reader)
    context.mentioned.append(wanted)
    yield from _log_reading(store, invocation, context, wanted)
    if context.is_in(wanted):
        return f"You are already in {session_phrase(wanted)}. What you write continues it."
    left = yield from drop_pending_question(store, context)
    return (yield from _switch_or_branch(store, context, reader, wanted)) + left


def _reader(invocation: Invocation, context: CommandContext) -> Principal:
    """Return whose conversations to list: for the owner in a direct chat, everybody's."""
    if _ALL.name not in invocation.flags:
        return context.audience
    name = f"/{invocation.command.name} --all"
    if not is_owner(context):
        raise NotAllowed(name, AccessRole.OWNER.text)
    if context.is_overheard:
        raise direct_chat_only(name, "a group")
    return Principal.operator()


def _log_reading(
    store: Store, invocation: Invocation, context: CommandContext, session: Session | None = None
) -> Statements[None]:
    """Record in the access log that the owner looks at what others said."""
    if _ALL.name in invocation.flags:
        details = {"command": f"/{invocation.command.name}"} | ({"session": session.id} if session else {})
        yield from store.grants.record(ChangeKind.READ_ALL, context.now, context.principal.name, None, details)


def _find_session(store: Store, context: CommandContext, which: str, reader: Principal) -> Statements[Session]:
    """Find a conversation by id, title, or its number in the list that was last shown here. A title wins."""
    try:
        return (yield from store.sessions.find(which, reader))
    except NotFound:
        listed = yield from _find_listed(store, context, unquoted(which) or which)
        if listed is None:
            raise
        return (yield from store.sessions.find(listed, reader))


def _find_listed(store: Store, context: CommandContext, which: str) -> Statements[str | None]:
    position = int(which) if len(which) <= _MAX_POSITION_DIGITS and which.isdecimal() else 0
    if not position:
        return None
    return (yield from store.mentions.find_listed(context.received, position, _PAGE_SIZE))


def _switch_or_branch(store: Store, context: CommandContext, reader: Principal, wanted: Session) -> Statements[str]:
    """Switch to an own conversation; branch from one that others share or read."""
    key, source, by = context.received.key, context.received.inbound.source, context.principal.name
    if context.received.place is not None:
        raise BadArgument(
            "This chat is attached to a conversation of other chats, so it cannot switch to",
            found=session_name(wanted),
            allowed="/detach first",
            example="/detach",
            fix="Send /detach first.",
        )
    identities = context.principal.identities
    if wanted.key == key or wanted.can_move_with(identities):
        resumed = yield from store.sessions.switch(key, source, wanted.id, reader, context.now, by=by)
        return f"Resumed {session_phrase(resumed)}. /back returns to where you were."
    child = yield from store.branches.branch(key, source, reader, context.now, by=by, from_session=wanted.id)
    where = "in its group" if wanted.owner in identities else "with the others who take part in it"
    return f"This is {_branch_phrase(child, wanted)}, which stays {where}. /back returns to where you were."


def _branch_phrase(child: Session, parent: Session) -> str:
    branch = f"a branch of {session_phrase(parent)}"
    return branch if child.title and child.title == parent.title else f"{session_phrase(child)}, {branch}"


def _more(page: int, invocation: Invocation) -> tuple[str]:
    """Return the hint after a page that is not the last."""
    if page < _MAX_PAGES:
        return (f"There are more. Send /sessions {page + 1}{_flags(invocation)} to list them.",)
    return ("There are more. Find them with /search.",)


def _flags(invocation: Invocation) -> str:
    return "".join(f" --{name}" for name in sorted(invocation.flags))


def _listing(numbered: Sequence[tuple[int, Preview]], invocation: Invocation, context: CommandContext) -> str:
    flag = _flags(invocation)
    lines = [f"{number}. {_line(each, context)}" for number, each in numbered]
    others = [number for number, each in numbered if not context.is_in(each.session)]
    return "\n".join([*lines, *(f"/resume {number}{flag} continues number {number}." for number in others[:1])])


def _line(preview: Preview, context: CommandContext) -> str:
    session = preview.session
    here = ", here" if context.is_in(session) else ""
    told = f"{as_said(session.title or 'untitled')} ({format_time(session.last_active, context.zone)}{here})"
    return f"{told}: {in_quotes(preview.last_said)}" if preview.last_said.strip() else told


_NOTHING_OPEN = "No conversation is open here. Send a message to start one, or /back to return to the previous one."


@commands.add(
    "branch",
    "Continue in a new conversation from here, from the message you reply to, or from a few messages back",
    "/branch Another idea --at 2",
    Arg(name="title", kind=ArgKind.REST),
    Arg(name="at", kind=ArgKind.COUNT),
    ENTRY,
    remote=True,
)
@transaction
def branch(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    key, source = context.received.key, context.received.inbound.source
    left = yield from drop_pending_question(store, context)
    current = yield from join_open_session(store, context)
    if current is None:
        return _NOTHING_OPEN
    at_seq = yield from _branch_point(store, current, invocation, context)
    title, by = invocation.words.get("title"), context.principal.name
    child = yield from store.branches.branch(
        key, source, context.principal, context.now, by=by, title=title, at_seq=at_seq
    )
    separate = "from now on they are separate. /back returns to the other one."
    return f"This is {_branch_phrase(child, current)}; {separate}{left}"


@commands.add(
    "title",
    "Show or change the title of this conversation",
    "/title Holiday plans",
    Arg(name="title", kind=ArgKind.REST),
    remote=True,
)
@transaction
def title(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    current = yield from join_open_session(store, context)
    wanted = invocation.words.get("title")
    if current is None:
        return _NOTHING_OPEN
    if wanted is None:
        return _describe_title(current.title)
    renamed = yield from store.titles.rename(current.id, wanted, context.principal)
    if renamed.title == current.title:
        return f"This conversation is already called {in_quotes(session_name(renamed))}."
    before = f" It was called {in_quotes(current.title)} before." if current.title else ""
    return f"This conversation is now called {in_quotes(session_name(renamed))}.{before}"


def _describe_title(title: str | None) -> str:
    if not title:
        return "This conversation has no title yet. /title Holiday plans gives it one."
    another = "Shopping list" if title == "Holiday plans" else "Holiday plans"
    return f"This conversation is called {in_quotes(title)}. /title {another} gives it another title."


def _branch_point(
    store: Store, session: Session, invocation: Invocation, context: CommandContext
) -> Statements[int | None]:
    """Return the last entry to keep, or None for all."""
    inbound = context.received.inbound
    if seq := invocation.numbers.get(ENTRY.name):
        return seq
    if count := invocation.numbers.get("at"):
        start = start_of_last_turns((yield from store.transcript.load_visible(session.id, context.principal)), count)
        return None if start is None else start - 1
    if inbound.reply_to is None:
        return None
    said_at = yield from store.branches.last_seq_of_message(session, inbound.source, inbound.reply_to)
    if said_at is None:
        raise BadArgument(
            "The message you reply to is not part of this conversation.",
            found=inbound.reply_to,
            allowed="a reply to a message of this conversation, or /branch without a reply",
            example=invocation.command.example,
            fix="Reply to a message of this conversation, or send /branch without a reply.",
        )
    return said_at
