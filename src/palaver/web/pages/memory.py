"""The page for what agents remember: notes about the person, and for the owner those about everybody and every chat."""

from starlette.responses import Response

from palaver.commands.formatting import deleted_note
from palaver.model.memory import NOTE_LIMIT, Note
from palaver.model.source import readable_identity
from palaver.web.api.memory import change_note, remove_note
from palaver.web.pages.common import (
    YOU,
    answer_action,
    list_names,
    parse_number,
    query_value,
    read_form,
    show_page,
    with_query,
)
from palaver.web.routes import WebRequest, action, page

_PAGE_SIZE = 100


@page("/memory")
async def show(request: WebRequest) -> Response:
    after = parse_number(query_value(request, "after")) or 0
    find = request.store.memory.list_visible
    notes = await request.read(lambda principal: find(principal, after=after, limit=_PAGE_SIZE))
    names = await list_names(request)

    def about(note: Note) -> str:
        if note.place:
            return f"the chat {note.place.text}"
        name = names.get(note.identity or "") if request.caller.is_owner else YOU
        return name or readable_identity(note.identity or "")

    more = with_query(request, after=notes[-1].number) if len(notes) == _PAGE_SIZE else None
    return show_page(request, "memory.html", notes=notes, about=about, more=more, longest=NOTE_LIMIT)


@action("/memory/{number:int}")
async def edit(request: WebRequest) -> Response:
    note = await change_note(request, (await read_form(request)).get("text", ""))
    return answer_action(request, f"Note {note.number} is changed.", "/memory")


@action("/memory/{number:int}/forget")
async def forget(request: WebRequest) -> Response:
    note = await remove_note(request)
    return answer_action(request, deleted_note(note), "/memory")


ROUTES = (show, edit, forget)
