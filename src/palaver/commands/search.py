"""The command that finds words. Where others read along, only in the conversations of the place."""

import re
from collections.abc import Sequence
from datetime import datetime

from palaver.commands.formatting import called, counted, name_of, when
from palaver.commands.registry import Performance, say
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.attachments import CommandFiles
from palaver.engine.commands import CommandContext
from palaver.model.attachment import Attachment, NewFile
from palaver.model.command import Arg, ArgKind, Command, Invocation
from palaver.model.errors import BadArgument, MalformedTime, NotFound
from palaver.model.local_time import parse_past
from palaver.model.session import Session
from palaver.model.transcript import Role
from palaver.store.archive.exporter import ExportFormat
from palaver.store.search.search import SPOKEN_ROLES, Hit, Order, SearchFilter
from palaver.store.store import Store

__all__ = [
    "exporting",
    "searching",
]

_ME = "me"
_ROLES = (Role.USER, Role.ASSISTANT, Role.TOOL)
_BEST = Arg(name="best", kind=ArgKind.FLAG)
_SEARCH = Command(
    name="search",
    help='find words in your conversations, "phrases" in quotes, beginnings of words with a star; --best ranks them',
    example='/search invoice "second reminder" pay* --from me --since 30d',
    args=(
        Arg(name="words", kind=ArgKind.REST, required=True),
        Arg(name="from", kind=ArgKind.OPTION, hint="me or an account"),
        Arg(name="role", kind=ArgKind.OPTION, choices=tuple(role.value for role in _ROLES)),
        Arg(name="since", kind=ArgKind.OPTION, hint="3d or a date"),
        Arg(name="platform", kind=ArgKind.OPTION),
        _BEST,
    ),
    group="finding",
)
_HITS = 10


def searching(store: Store) -> list[Performance]:
    async def search(invocation: Invocation, spoken: CommandContext) -> Transaction[str]:
        narrowed = _narrowed(invocation, spoken)
        order = Order.BEST if _BEST.name in invocation.flags else Order.NEWEST
        words = invocation.words["words"]
        hits = await store.search.find(words, spoken.audience, filter=narrowed, order=order, limit=_HITS + 1)
        spoken.mentioned.extend(hit.session for hit in hits)
        return say(_found(hits, spoken, order))

    return [Performance(_SEARCH, search)]


def _narrowed(invocation: Invocation, spoken: CommandContext) -> SearchFilter:
    asked = invocation.words
    platform = asked.get("platform")
    return SearchFilter(
        people=_people(asked.get("from"), spoken),
        roles=frozenset({Role(asked["role"])}) if "role" in asked else SPOKEN_ROLES,
        since=_since(asked["since"], spoken) if "since" in asked else None,
        platform=platform and platform.lower(),
    )


def _people(who: str | None, spoken: CommandContext) -> frozenset[str]:
    if who is None:
        return frozenset()
    if who.lower() == _ME:
        return spoken.principal.identities
    if ":" not in who:
        allowed = f"{_ME}, or an account as /whoami names it"
        raise BadArgument(
            "Nobody has the account", found=who, allowed=allowed, example="/search invoice --from telegram:7"
        )
    return frozenset({who})


def _since(text: str, spoken: CommandContext) -> datetime:
    try:
        return parse_past(text, spoken.now, spoken.zone)
    except MalformedTime as error:
        allowed, example = "an age such as 3d, a date, or a time (ISO 8601)", "/search invoice --since 30d"
        raise BadArgument("--since cannot be", found=text, allowed=allowed, example=example) from error


def _found(hits: Sequence[Hit], spoken: CommandContext, order: Order) -> str:
    if not hits:
        return "Nothing was found."
    shown = hits[:_HITS]
    lines = [
        f"{name_of(hit.session)}, {when(hit.entry.at, spoken.zone)}, {hit.entry.role}: {hit.snippet}" for hit in shown
    ]
    many = f"The {order.value} {_HITS} that were found:"
    head = many if len(hits) > _HITS else f"Found {counted(len(hits), 'time')}:"
    # Asked for by its title it would be the newest of that title.
    others = [hit.session.id for hit in shown if not spoken.is_in(hit.session)]
    return "\n".join(
        [head, *lines, *(f"/resume {session} goes on with the first elsewhere." for session in others[:1])]
    )


_EXPORT = Command(
    name="export",
    help="give this conversation, or another one by title or id, as a file: md, html or jsonl",
    example="/export html Holiday plans",
    args=(Arg(name="format"), Arg(name="which", kind=ArgKind.REST)),
    group="finding",
)
_FORMS = {
    "md": ExportFormat.MARKDOWN,
    "markdown": ExportFormat.MARKDOWN,
    "html": ExportFormat.HTML,
    "jsonl": ExportFormat.JSONL,
}
_KINDS = {
    ExportFormat.MARKDOWN: ("md", "text/markdown"),
    ExportFormat.HTML: ("html", "text/html"),
    ExportFormat.JSONL: ("jsonl", "application/x-ndjson"),
}
_LONGEST_NAME = 60
_AS_TEXT = "Files cannot be sent here, so it comes as text."


def exporting(store: Store) -> list[Performance]:
    async def export(invocation: Invocation, spoken: CommandContext) -> Transaction[str]:
        form, which = _asked(invocation)
        session = await store.read(_wanted(store, which, spoken))
        spoken.mentioned.append(session)
        if spoken.files is None:
            text = (
                await store.read(store.exporter.export_session(session.id, ExportFormat.MARKDOWN, spoken.audience))
            ).decode()
            return say(text if form is ExportFormat.MARKDOWN else f"{_AS_TEXT}\n\n{text}")
        content = await store.read(store.exporter.export_session(session.id, form, spoken.audience))
        suffix, kind = _KINDS[form]
        file = await spoken.files.store(NewFile(f"{_file_name(session)}.{suffix}", content, kind))
        return _handed_over(spoken.files, file, session, spoken)

    return [Performance(_EXPORT, export)]


def _asked(invocation: Invocation) -> tuple[ExportFormat, str]:
    """The first word may be a format; else it belongs to the name."""
    first, rest = invocation.words.get("format", ""), invocation.words.get("which", "")
    if first.lower() in _FORMS:
        return _FORMS[first.lower()], rest
    return ExportFormat.MARKDOWN, f"{first} {rest}".strip()


@transaction
def _wanted(store: Store, which: str, spoken: CommandContext) -> Statements[Session]:
    if which:
        return (yield from _named(store, which, spoken))
    current = yield from store.sessions.open_by_key(spoken.received.key)
    if current is None:
        raise NotFound("session", "here")
    return (yield from store.sessions.get_visible(current.id, spoken.audience))


def _named(store: Store, which: str, spoken: CommandContext) -> Statements[Session]:
    """What is no title may have been meant as a format."""
    try:
        return (yield from store.sessions.find(which, spoken.audience))
    except NotFound as error:
        raise BadArgument(
            "There is no conversation that you may see, and no format, called",
            found=which,
            allowed="md, html or jsonl, and then a title or id of those that /sessions lists",
            example=_EXPORT.example,
        ) from error


def _file_name(session: Session) -> str:
    return re.sub(r"[^\w-]+", "-", name_of(session)).strip("-")[:_LONGEST_NAME] or session.id


@transaction
def _handed_over(files: CommandFiles, file: Attachment, session: Session, spoken: CommandContext) -> Statements[str]:
    yield from files.owe(file, spoken.now)
    return f"This is {called(session)}." if file.sha256 else ""
