"""API endpoints for the notes that agents keep about people and chats."""

from typing import Annotated

from msgspec import Meta

from palaver.model.memory import NOTE_LIMIT, Note
from palaver.operations.operation import Limit, Schema, Timestamp, fill
from palaver.store.people.api_tokens import Right
from palaver.web.api.endpoints import endpoint
from palaver.web.routes import WebRequest

_Number = Annotated[int, Meta(ge=0, le=1 << 53)]


class NoteSchema(Schema, frozen=True, kw_only=True):
    number: int
    profile: str
    identity: str | None
    """Whom it is about; in a chat, whose message led to it."""
    chat: str | None
    """The key of the chat that it is about; null for a note about a person."""
    text: str
    created: Timestamp
    edited: Timestamp | None
    """When a person changed it."""
    session: str | None
    """The session that it came from, if that still exists and nobody has edited the note."""
    seq: int | None
    """The entry there."""
    replaced_by: int | None
    """The note that replaced it. The agent no longer sees it."""
    replaced: "list[NoteSchema]"
    """What it replaced, newest first."""


class NotesSchema(Schema, frozen=True, kw_only=True):
    notes: list[NoteSchema]
    after: int | None
    """Where the next page begins; null on the last one."""


def _note_schema(note: Note) -> NoteSchema:
    return fill(
        NoteSchema, note, chat=note.place.text if note.place else None, replaced=list(map(_note_schema, note.replaced))
    )


class _NotesQuery(Schema, frozen=True, kw_only=True):
    after: _Number = 0
    limit: Limit = 100


@endpoint("GET", "/memory", summary="List notes about you; the owner sees all")
async def list_notes(request: WebRequest, query: _NotesQuery) -> NotesSchema:
    find = request.store.memory.list_visible
    found = await request.read(lambda principal: find(principal, after=query.after, limit=query.limit))
    after = found[-1].number if len(found) == query.limit else None
    return NotesSchema(notes=list(map(_note_schema, found)), after=after)


class ChangedNoteSchema(Schema, frozen=True, kw_only=True):
    text: Annotated[str, Meta(min_length=1, max_length=NOTE_LIMIT)]


@endpoint("PATCH", "/memory/{number:int}", summary="Change a note", needs=Right.MANAGE, example={"text": "Prefers tea"})
async def edit_note(request: WebRequest, body: ChangedNoteSchema) -> NoteSchema:
    return _note_schema(await change_note(request, body.text))


@endpoint("DELETE", "/memory/{number:int}", summary="Delete a note and what it replaced for good", needs=Right.MANAGE)
async def delete_note(request: WebRequest) -> NoteSchema:
    return _note_schema(await remove_note(request))


async def change_note(request: WebRequest, text: str) -> Note:
    memory, number = request.store.memory, request.path["number"]
    limits = request.services.engine.settings.limits.memory
    changed = await request.write(lambda principal: memory.edit(number, text, principal, limits, request.now))
    request.services.hub.hint("people")
    return changed


async def remove_note(request: WebRequest) -> Note:
    deleted = await request.write(lambda principal: request.store.memory.delete(request.path["number"], principal))
    request.services.hub.hint("people")
    return deleted


ENDPOINTS = (list_notes, edit_note, delete_note)
