"""The command that gives a conversation as a file."""

import re

from palaver.commands.phrases import called, name_of
from palaver.commands.registry import Performance, say
from palaver.domain.attachment import Attachment, NewFile
from palaver.domain.command import Arg, ArgKind, Command, Invocation
from palaver.domain.errors import BadArgument, NotFound
from palaver.domain.session import Session
from palaver.ports.archives import Form
from palaver.ports.commands import Desk, Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, Work, work

__all__ = ["exporting"]

_EXPORT = Command(
    name="export",
    help="give this conversation, or another one by title or id, as a file: md, html or jsonl",
    example="/export html Holiday plans",
    args=(Arg(name="format"), Arg(name="which", kind=ArgKind.REST)),
    group="finding",
)
_FORMS = {"md": Form.MARKDOWN, "markdown": Form.MARKDOWN, "html": Form.HTML, "jsonl": Form.JSONL}
_KINDS = {
    Form.MARKDOWN: ("md", "text/markdown"),
    Form.HTML: ("html", "text/html"),
    Form.JSONL: ("jsonl", "application/x-ndjson"),
}
_LONGEST_NAME = 60
_AS_TEXT = "Files cannot be sent here, so it comes as text."


def exporting(store: Store) -> list[Performance]:
    async def export(invocation: Invocation, spoken: Spoken) -> Work[str]:
        form, which = _asked(invocation)
        session = await store.read(_wanted(store, which, spoken))
        spoken.mentioned.append(session)
        if spoken.desk is None:
            text = (await store.read(store.archives.written(session.id, Form.MARKDOWN, spoken.audience))).decode()
            return say(text if form is Form.MARKDOWN else f"{_AS_TEXT}\n\n{text}")
        content = await store.read(store.archives.written(session.id, form, spoken.audience))
        suffix, kind = _KINDS[form]
        file = await spoken.desk.keep(NewFile(f"{_file_name(session)}.{suffix}", content, kind))
        return _handed_over(spoken.desk, file, session, spoken)

    return [Performance(_EXPORT, export)]


def _asked(invocation: Invocation) -> tuple[Form, str]:
    """The first word may be a format; else it belongs to the name."""
    first, rest = invocation.words.get("format", ""), invocation.words.get("which", "")
    if first.lower() in _FORMS:
        return _FORMS[first.lower()], rest
    return Form.MARKDOWN, f"{first} {rest}".strip()


@work
def _wanted(store: Store, which: str, spoken: Spoken) -> Steps[Session]:
    if which:
        return (yield from _named(store, which, spoken))
    current = yield from store.sessions.open_by_key(spoken.received.key)
    if current is None:
        raise NotFound("session", "here")
    return (yield from store.sessions.get_visible(current.id, spoken.audience))


def _named(store: Store, which: str, spoken: Spoken) -> Steps[Session]:
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


@work
def _handed_over(desk: Desk, file: Attachment, session: Session, spoken: Spoken) -> Steps[str]:
    yield from desk.owe(file, spoken.now)
    return f"This is {called(session)}." if file.sha256 else ""
