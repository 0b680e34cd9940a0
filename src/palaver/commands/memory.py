"""`/memory`: list, edit and delete the notes that the agent keeps about a person or a chat."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from palaver.commands.formatting import ago, deleted_note, in_quotes
from palaver.commands.registry import CommandGroup
from palaver.db.transaction import Statements, transaction
from palaver.engine.commands import CommandContext
from palaver.model.command import YES, Arg, ArgKind, Invocation, as_said
from palaver.model.errors import BadArgument, NotFound
from palaver.model.memory import MemoryScope, Note
from palaver.model.source import identity_of
from palaver.model.text import counted
from palaver.store.conversations.visibility import get, get_visible
from palaver.store.people.memory import sessions_of
from palaver.store.store import Store

commands = CommandGroup("people")

_ALL = "all"
_SYNONYMS = (
    *((word, "forget") for word in ("delete", "del", "rm", "remove", "clear")),
    *((word, "edit") for word in ("change", "set", "replace")),
    *((word, "list") for word in ("ls", "show")),
)


@commands.add(
    "memory",
    "List what the agent remembers about you, or in a group about the chat; edit or delete a note",
    "/memory edit 3 Prefers tea",
    Arg(name="action", choices=("list", "edit", "forget"), synonyms=_SYNONYMS),
    Arg(name="note", kind=ArgKind.REST, hint="number, or number and text"),
    YES,
)
@transaction
def memory(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    action, what = invocation.words.get("action", "list"), invocation.words.get("note", "").strip()
    scope = _scope(context)
    if action == "list":
        return (yield from _list(store, scope, context))
    if action == "forget" and what.lower() == _ALL:
        return (yield from _forget_all(store, scope, confirmed=YES.name in invocation.flags))
    number, text = _split(action, what)
    if action == "edit":
        changed = yield from store.memory.edit(number, text, scope, context.memory_limits, context.now)
        return f"Note {changed.number} is now: {as_said(changed.text)}"
    deleted = yield from store.memory.delete(number, scope)
    yield from _mention([deleted], context)
    return deleted_note(deleted)


def _scope(context: CommandContext) -> MemoryScope:
    """Return whose notes a person sees here: their own in a direct chat, those of the chat where others read along."""
    received = context.received
    identity = identity_of(received.inbound.source)
    place = received.place or received.key
    return MemoryScope(
        profile=received.key.profile, identity=identity, place=place if context.is_overheard or not identity else None
    )


def _list(store: Store, scope: MemoryScope, context: CommandContext) -> Statements[str]:
    notes = yield from store.memory.list_with_replaced(scope)
    yield from _mention(notes, context)
    whom = "this chat" if scope.place else "you"
    if not notes:
        return f"The agent has no notes about {whom}."
    sources = yield from _sources(notes, context)
    lines: list[str] = []
    for note in notes:
        lines.append(_line(note, sources, context.now))
        lines.extend(f"replaced {_line(old, sources, context.now)}" for old in note.replaced)
    number = notes[0].number
    hint = f"/memory edit {number} … changes one, /memory forget {number} deletes it."
    return "\n".join([f"Notes about {whom}:", *lines, hint])


def _sources(notes: Sequence[Note], context: CommandContext) -> Statements[dict[str | None, str]]:
    """Return the conversations that notes came from: by title, if all who read the answer can see that."""
    found: dict[str | None, str] = {None: ""}
    for session in {each.session for note in notes for each in (note, *note.replaced) if each.session}:
        found[session] = f", from {session}"
        with suppress(NotFound):
            title = (yield from get_visible(session, context.audience)).title
            found[session] = f", from {in_quotes(title)}" if title else found[session]
    return found


def _line(note: Note, sources: Mapping[str | None, str], now: datetime) -> str:
    when = f"edited {ago(note.edited, now)}" if note.edited else ago(note.created, now)
    return f"{note.number}: {as_said(note.text)} ({when}{sources[note.session]})"


def _mention(notes: Sequence[Note], context: CommandContext) -> Statements[None]:
    """Delete the answer together with the conversations that the notes came from."""
    for number in sessions_of(notes):
        context.mentioned.append((yield from get(number)))


def _forget_all(store: Store, scope: MemoryScope, *, confirmed: bool) -> Statements[str]:
    if not confirmed:
        if not (found := (yield from store.memory.list_notes(scope))):
            return "There is nothing to delete."
        return f"This permanently deletes {counted(len(found), 'note')}. To confirm, send: /memory forget all --yes"
    return f"Deleted {counted((yield from store.memory.delete_all(scope)), 'note')}."


def _split(action: str, what: str) -> tuple[int, str]:
    number, _, text = what.partition(" ")
    example = "/memory edit 3 Prefers tea" if action == "edit" else "/memory forget 3"
    if not (number.isascii() and number.isdecimal()) or (action == "edit") != bool(text.strip()):
        needed = "the number of a note and its new text" if action == "edit" else "the number of a note, or all"
        raise BadArgument(f"/memory {action} cannot use", found=what, allowed=needed, example=example)
    return int(number[:18]), text
