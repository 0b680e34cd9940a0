"""Commands that search and export conversations; in a group, only those of the chat."""

import re
from collections.abc import Sequence
from datetime import datetime

from palaver.commands.formatting import format_time, session_name, session_phrase
from palaver.commands.registry import CommandGroup, reply
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.commands import CommandContext
from palaver.model.attachment import Attachment, NewFile
from palaver.model.command import Arg, ArgKind, Invocation, as_said
from palaver.model.errors import BadArgument, MalformedTime, NotFound
from palaver.model.local_time import parse_past
from palaver.model.session import Session
from palaver.model.text import counted
from palaver.model.transcript import Role
from palaver.store.archive.exporter import ExportFormat
from palaver.store.search.search import SPOKEN_ROLES, Hit, Order, SearchFilter
from palaver.store.store import Store

commands = CommandGroup("finding")

_ME = "me"
_ROLES = (Role.USER, Role.ASSISTANT, Role.TOOL)
_ORDER = Arg(name="order", kind=ArgKind.OPTION, choices=tuple(order.value for order in Order))
_MAX_HITS = 10


@commands.add(
    "search",
    'Search your conversations and their titles with a question or a few words. To be exact, put "phrases" in quotes,'
    " end a word with * to match its start, use OR, leave out a -word",
    '/search invoice OR bill "second reminder" pay* -draft --since 30d',
    Arg(name="words", kind=ArgKind.REST, required=True),
    Arg(name="from", kind=ArgKind.OPTION, hint="me or an account"),
    Arg(name="role", kind=ArgKind.OPTION, choices=tuple(role.value for role in _ROLES)),
    Arg(name="since", kind=ArgKind.OPTION, hint="3d or a date"),
    Arg(name="platform", kind=ArgKind.OPTION),
    _ORDER,
)
async def search(store: Store, invocation: Invocation, context: CommandContext) -> Transaction[str]:
    narrowed = _search_filter(invocation, context)
    order = Order(invocation.words[_ORDER.name]) if _ORDER.name in invocation.words else None
    words = invocation.words["words"]
    hits = await store.search.find(words, context.audience, filter=narrowed, order=order, limit=_MAX_HITS + 1)
    context.mentioned.extend(hit.session for hit in hits)
    return reply(_found(hits, context))


def _search_filter(invocation: Invocation, context: CommandContext) -> SearchFilter:
    asked = invocation.words
    platform = asked.get("platform")
    return SearchFilter(
        people=_people(asked.get("from"), context),
        roles=frozenset({Role(asked["role"])}) if "role" in asked else SPOKEN_ROLES,
        since=_since(asked["since"], context) if "since" in asked else None,
        platform=platform and platform.lower(),
    )


def _people(who: str | None, context: CommandContext) -> frozenset[str]:
    if who is None:
        return frozenset()
    if who.lower() == _ME:
        return context.principal.identities
    if ":" not in who:
        allowed = f"{_ME}, or an account such as telegram:7"
        raise BadArgument(
            "There is no account", found=who, allowed=allowed, example="/search invoice --from telegram:7"
        )
    return frozenset({who})


def _since(text: str, context: CommandContext) -> datetime:
    try:
        return parse_past(text, context.now, context.zone)
    except MalformedTime as error:
        allowed, example = "an age such as 3d, a date, or a time (ISO 8601)", "/search invoice --since 30d"
        raise BadArgument("--since cannot be", found=text, allowed=allowed, example=example) from error


def _found(hits: Sequence[Hit], context: CommandContext) -> str:
    if not hits:
        return "Nothing found."
    shown = hits[:_MAX_HITS]
    lines = [
        as_said(f"{session_name(hit.session)}, {format_time(hit.at, context.zone)}, {hit.found_in}: {hit.snippet}")
        for hit in shown
    ]
    head = f"The first {_MAX_HITS} results:" if len(hits) > _MAX_HITS else f"Found {counted(len(hits), 'result')}:"
    # By id: several conversations can share a title.
    others = [hit.session.id for hit in shown if not context.is_in(hit.session)]
    return "\n".join(
        [head, *lines, *(f"/resume {session} continues the first other conversation." for session in others[:1])]
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
_MAX_FILE_NAME_CHARS = 60
_AS_TEXT = "This chat cannot receive files, so here it is as text."


@commands.add(
    "export",
    "Send this conversation, or another one by title or id, as a file: md, html or jsonl",
    "/export html Holiday plans",
    Arg(name="format"),
    Arg(name="which", kind=ArgKind.REST),
)
async def export(store: Store, invocation: Invocation, context: CommandContext) -> Transaction[str]:
    form, which = _parse_export(invocation)
    session = await store.read(_export_session(store, which, context))
    if session is None:
        return reply("There is no conversation to export. Send a message to start one.")
    context.mentioned.append(session)
    wanted = form if context.files else ExportFormat.MARKDOWN
    exported = await store.read(store.exporter.export_session(session.id, wanted, context.audience, context.zone))
    missing = _missing_contents(exported.files)
    if context.files is None:
        notes = [*([] if form is wanted else [_AS_TEXT]), *missing]
        return reply("\n\n".join([*([" ".join(notes)] if notes else []), as_said(exported.content.decode())]))
    suffix, kind = _KINDS[form]
    file = await context.files.store(NewFile(f"{_file_name(session)}.{suffix}", exported.content, kind))
    told = " ".join([f"This is {session_phrase(session)}.", *missing])
    return _attach_file(context.files.send(file, context.now), file, told)


def _missing_contents(files: int) -> list[str]:
    """Say that the contents of files are left out, if there are any."""
    if not files:
        return []
    names = f"It names {counted(files, 'attached file')}, without the contents."
    return [f"{names} An export with palaver sessions export has them."]


def _parse_export(invocation: Invocation) -> tuple[ExportFormat, str]:
    """Return format and name; a first word that is no format belongs to the name."""
    first, rest = invocation.words.get("format", ""), invocation.words.get("which", "")
    if first.lower() in _FORMS:
        return _FORMS[first.lower()], rest
    return ExportFormat.MARKDOWN, f"{first} {rest}".strip()


@transaction
def _export_session(store: Store, which: str, context: CommandContext) -> Statements[Session | None]:
    if which:
        return (yield from _find_session(store, which, context))
    current = yield from store.sessions.open_by_key(context.received.key)
    if current is None:
        return None
    return (yield from store.sessions.get_visible(current.id, context.audience))


def _find_session(store: Store, which: str, context: CommandContext) -> Statements[Session]:
    """Find a session; the error also lists the formats."""
    try:
        return (yield from store.sessions.find(which, context.audience))
    except NotFound as error:
        raise BadArgument(
            "There is no conversation or format",
            found=which,
            allowed="md, html or jsonl, then a title or id from /sessions",
            example="/export html Holiday plans",
        ) from error


def _file_name(session: Session) -> str:
    return re.sub(r"[^\w-]+", "-", session_name(session)).strip("-")[:_MAX_FILE_NAME_CHARS] or session.id


@transaction
def _attach_file(send: Transaction[int], file: Attachment, told: str) -> Statements[str]:
    yield from send
    return told if file.sha256 else ""
