"""The web chat: the caller's own conversations, with files, commands and buttons for open questions."""

import secrets
from collections.abc import AsyncIterator

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from palaver.db.transaction import Statements, transaction
from palaver.model.attachment import Attachment, TooLarge, format_size
from palaver.model.people import Reception
from palaver.model.redact import browser_pattern
from palaver.model.session import model_name
from palaver.model.text import escape_invisible, one_line
from palaver.protocols.agent import Choosing
from palaver.settings.limits import LimitsConfig
from palaver.store.people.api_tokens import Right
from palaver.web.auth_middleware import CSRF_HEADER
from palaver.web.caller import OWNER, person_of, principal_of
from palaver.web.chat_rooms import (
    MAIN_CHAT,
    Room,
    chat_name,
    continue_here,
    find_room,
    find_room_of,
    name_of_chat,
    path_of_chat,
    platform_title,
    read_window,
    source_of_chat,
)
from palaver.web.files import PICTURES, SOUNDS, download
from palaver.web.message_service import MAX_TEXT_LENGTH, MessageService, require_own_conversation
from palaver.web.pages.chat_list import newest_path, read_list
from palaver.web.pages.common import normalize_newlines, parse_number, query_value, show_page
from palaver.web.routes import WebRequest, action, page
from palaver.web.services import Services

_CHUNK_BYTES = 1 << 16
_MAX_BYTES_BESIDE_FILES = 2_000_000
_MAX_FIELDS = 10


@page("/chat", needs=Right.CHAT)
async def show_newest(request: WebRequest) -> Response:
    """Go to the conversation that was last used."""
    return RedirectResponse(await newest_path(request) or path_of_chat(MAIN_CHAT), status_code=303)


@page("/chat/{name}", needs=Right.CHAT)
async def show(request: WebRequest) -> Response:
    return await _show(request, await find_room(request))


@page("/chat/s/{id}", needs=Right.CHAT)
async def show_session(request: WebRequest) -> Response:
    """Show any conversation; one that is at home in a web chat of the reader is shown there."""
    room = await find_room_of(request, request.path["id"])
    if room.home is not None:
        return RedirectResponse(room.home, status_code=303)
    return await _show(request, room)


async def _show(request: WebRequest, room: Room) -> Response:
    before = parse_number(query_value(request, "before"))
    fragment = request.http.headers.get("x-fragment")
    window = await read_window(request, room, before=before)
    context = {
        "room": room,
        "session": room.session,
        "window": window,
        "items": window.items,
        "platform": platform_title(request, room.session),
        "pictures": PICTURES,
        "sounds": SOUNDS,
        "explain_refusal": _explain_refusal,
        "waits": [reception.value for reception in Reception if reception.keeps],
        "can_act": request.caller.has(Right.MANAGE) and room.is_open,
        "can_read": request.caller.has(Right.READ),
        "models": _models(request, room),
        "model": _model(room),
        "offers": await request.services.find_offers() if request.caller.is_owner else (),
        "suggestions": () if window.items else await request.services.engine.suggestions(room.source),
    }
    if fragment:
        return show_page(request, "parts/messages.html" if before else "parts/conversation.html", **context)
    limits = request.services.engine.settings.limits
    return show_page(
        request,
        "chat.html",
        **context,
        listed=await read_list(request),
        current=room.path,
        commands=sorted((name, command.help) for name, command in request.services.commands.table.items()),
        message_id=secrets.token_hex(12),
        max_file_size=limits.file_size,
        max_files=limits.files_per_message,
        max_length=MAX_TEXT_LENGTH,
        key_pattern=browser_pattern(),
    )


def _models(request: WebRequest, room: Room) -> list[str]:
    """Return the models that the conversation can choose."""
    agent = request.services.engine.agent_of(room.profile)
    return [model_name(each) for each in agent.models()] if isinstance(agent, Choosing) else []


def _model(room: Room) -> str:
    return model_name(room.session.override) if room.session and room.session.override else ""


def _explain_refusal(reason: str) -> str:
    """Say to its author why a message is not answered."""
    match reason:
        case Reception.CODE | Reception.WAITS | Reception.LOCKED:
            return "Not answered yet: it waits until the owner of this gateway approves you."
        case Reception.TOO_OFTEN:
            return "Not kept: enough of your messages wait for approval. Send it again once you are approved."
        case Reception.TOO_MANY:
            return "Not kept: too many people are asking for access right now. Send it again later."
        case _:
            return f"Refused: {reason}"


@action("/chat", needs=Right.CHAT)
async def start(_: WebRequest) -> Response:
    """Open an empty chat; it exists once something is said in it."""
    return RedirectResponse(f"/chat/{secrets.token_hex(4)}", status_code=303)


@action("/chat/{name}", needs=Right.CHAT)
async def send(request: WebRequest) -> Response:
    return await _send(request)


@action("/chat/s/{id}", needs=Right.CHAT)
async def send_to_session(request: WebRequest) -> Response:
    """Continue any conversation from here: attach to one that is open elsewhere, resume one that has ended."""
    return await _send(request, request.path["id"])


async def _send(request: WebRequest, session: str | None = None) -> Response:
    services, http = request.services, request.http
    MessageService(request).count_message()
    _check_length(http, services.engine.settings.limits)
    async with http.form(max_files=services.engine.settings.limits.files_per_message, max_fields=_MAX_FIELDS) as form:
        text, message_id = normalize_newlines(str(form.get("text", ""))), str(form.get("id", ""))
        uploads = [item for item in form.getlist("files") if isinstance(item, UploadFile) and item.filename]
        files = [await _store_file(services, upload) for upload in uploads]
    if not text.strip() and not files:
        raise HTTPException(400, "Write something or choose a file.")
    if len(text) > MAX_TEXT_LENGTH:
        raise HTTPException(413, f"A message can have at most {MAX_TEXT_LENGTH:,} characters, not {len(text):,}.")
    source = await continue_here(request, session) if session else source_of_chat(request, chat_name(request))
    await require_own_conversation(request, source)
    user, chat = source.user_id or "", name_of_chat(source.chat_id or "")
    message_id = message_id or secrets.token_hex(12)
    name = "" if user == OWNER else user.capitalize()  # People who were invited have their name as id.
    talk_only = request.caller.talk_only
    await services.webchat.say(user, chat, message_id, text, name=name, files=files, talk_only=talk_only)
    if "text/html" in http.headers.get("accept", "") and CSRF_HEADER not in http.headers:
        return RedirectResponse(http.url.path, status_code=303)
    return PlainTextResponse("")


def _check_length(http: Request, limits: LimitsConfig) -> None:
    """Refuse a request that is too large before any of it is written to disk."""
    length = parse_number(http.headers.get("content-length", ""))
    if length is None:
        raise HTTPException(411, "Send a Content-Length.")
    # Only files go to disk; the rest of the form is read into memory.
    files = limits.files_per_message if "multipart/form-data" in http.headers.get("content-type", "") else 0
    if length > limits.file_size * files + _MAX_BYTES_BESIDE_FILES:
        limit = format_size(limits.file_size if files else _MAX_BYTES_BESIDE_FILES)
        raise HTTPException(413, f"{'A file' if files else 'The message'} is larger than {limit}.")


async def _store_file(services: Services, upload: UploadFile) -> Attachment:
    async def chunks() -> AsyncIterator[bytes]:
        while chunk := await upload.read(_CHUNK_BYTES):
            yield chunk

    limit, name = services.engine.settings.limits.file_size, upload.filename or "file"
    try:
        return await services.webchat.keep(name, upload.content_type or "", chunks(), limit)
    except TooLarge as error:
        shown = escape_invisible(one_line(name, 100))
        raise HTTPException(413, f"{shown} is larger than {format_size(limit)}.") from error


@page("/chat/{name}/files/{message}/{place:int}", needs=Right.CHAT)
async def show_file(request: WebRequest) -> Response:
    """Serve a file of a message that is in no transcript yet."""
    chat = source_of_chat(request, chat_name(request)).chat_id or ""
    find, name = request.store.webchat_log.get_message, request.path["message"]
    files = (await request.read_as_person(lambda person: find(name, chat, person))).files
    place = int(request.path["place"])
    if place >= len(files):
        raise HTTPException(404, "There is no such file.")
    return download(files[place], request.services.shelf)


@page("/chat/-/files/{id}", needs=Right.CHAT)
async def show_entry_file(request: WebRequest) -> Response:
    """Serve a file of a transcript that the caller can read as themselves."""
    store = request.store

    @transaction
    def find() -> Statements[Attachment]:
        principal = yield from person_of(request.caller, store)
        if request.caller.has(Right.READ):
            principal = yield from principal_of(request.caller, store)
        return (yield from store.attachments.find(request.path["id"], principal))

    return download(await store.read(find()), request.services.shelf)


ROUTES = (show_newest, show_entry_file, show_session, show_file, show, start, send_to_session, send)
