"""The web chat: the caller's own conversations, with files, commands and buttons for open questions."""

import re
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from palaver.db.transaction import Statements, transaction
from palaver.engine.options import Options
from palaver.model.attachment import Attachment, TooLarge, format_size
from palaver.model.people import Reception
from palaver.model.session import Session
from palaver.model.source import Source
from palaver.model.text import escape_invisible, one_line
from palaver.store.people.api_tokens import Right
from palaver.store.results import Status
from palaver.store.status.webchat_log import WebchatMessage
from palaver.web.auth_middleware import CSRF_HEADER
from palaver.web.files import download
from palaver.web.message_service import MAX_TEXT_LENGTH, MessageService, require_own_conversation
from palaver.web.pages.common import MAX_SHOWN_TEXT, normalize_newlines, parse_number, show_page
from palaver.web.routes import WebRequest, action, page
from palaver.web.services import Services

_MAIN_CHAT = "main"
_CHAT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_PAGE_SIZE = 50
_MAX_CHATS = 100
_CHUNK_BYTES = 1 << 16
_MAX_BYTES_BESIDE_FILES = 2_000_000
_MAX_FIELDS = 10
_MAX_MICROSECONDS = 10**16


async def _show(request: WebRequest) -> Response:
    name, source, store, engine = _chat_name(request), _source(request), request.store, request.services.engine
    before = _parse_time(request.http.query_params.get("before", ""))
    place, key = await engine.place_of(source), await engine.key_of(source)

    @transaction
    def read() -> Statements[tuple[list[WebchatMessage], Status, list[Session]]]:
        # As the person themselves: even the owner reads only their own chats here.
        principal = yield from store.people.principal_of(request.caller.identity)
        messages = yield from store.webchat_log.list_messages(
            place, source.chat_id or "", principal, before=before, limit=_PAGE_SIZE
        )
        status = yield from store.turn_control.get_status(key, principal)
        previews = yield from store.session_list.recent_sessions(principal, _MAX_CHATS)
        return messages, status, [preview.session for preview in previews]

    messages, status, sessions = await store.read(read())
    return show_page(
        request,
        "chat.html",
        name=name,
        chat=source.chat_id,
        messages=messages,
        state=status,
        chats=_chats(sessions, name),
        earlier=int(messages[0].at.timestamp() * 1_000_000) if len(messages) == _PAGE_SIZE else None,
        is_old=before is not None,
        commands=sorted((name, command.help) for name, command in request.services.commands.table.items()),
        message_id=secrets.token_hex(12),
        max_file_size=engine.options.file_size,
        max_files=engine.options.files_per_message,
        longest=MAX_SHOWN_TEXT,
        explain_refusal=_explain_refusal,
        waits=[reception.value for reception in Reception if reception.keeps],
    )


def _explain_refusal(reason: str) -> str:
    """Say to its author why a message is not answered."""
    match reason:
        case Reception.CODE | Reception.WAITS:
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
    source, name, services, http = _source(request), _chat_name(request), request.services, request.http
    MessageService(request).count_message()
    _check_length(http, services.engine.options)
    async with http.form(max_files=services.engine.options.files_per_message, max_fields=_MAX_FIELDS) as form:
        text, message_id = normalize_newlines(str(form.get("text", ""))), str(form.get("id", ""))
        uploads = [item for item in form.getlist("files") if isinstance(item, UploadFile) and item.filename]
        files = [await _store_file(services, upload) for upload in uploads]
    if not text.strip() and not files:
        raise HTTPException(400, "Write something or choose a file.")
    if len(text) > MAX_TEXT_LENGTH:
        raise HTTPException(413, f"A message can have at most {MAX_TEXT_LENGTH:,} characters, not {len(text):,}.")
    await require_own_conversation(request, source)
    message_id, talk_only = message_id or secrets.token_hex(12), request.caller.talk_only
    await services.webchat.say(source.user_id or "", name, message_id, text, files=files, talk_only=talk_only)
    if "text/html" in http.headers.get("accept", "") and CSRF_HEADER not in http.headers:
        return RedirectResponse(f"/chat/{name}", status_code=303)
    return PlainTextResponse("")


def _check_length(http: Request, options: Options) -> None:
    """Refuse a request that is too large before any of it is written to disk."""
    length = parse_number(http.headers.get("content-length", ""))
    if length is None:
        raise HTTPException(411, "Send a Content-Length.")
    # Only files go to disk; the rest of the form is read into memory.
    files = options.files_per_message if "multipart/form-data" in http.headers.get("content-type", "") else 0
    if length > options.file_size * files + _MAX_BYTES_BESIDE_FILES:
        limit = format_size(options.file_size if files else _MAX_BYTES_BESIDE_FILES)
        raise HTTPException(413, f"{'A file' if files else 'The message'} is larger than {limit}.")


async def _store_file(services: Services, upload: UploadFile) -> Attachment:
    async def chunks() -> AsyncIterator[bytes]:
        while chunk := await upload.read(_CHUNK_BYTES):
            yield chunk

    limit, name = services.engine.options.file_size, upload.filename or "file"
    try:
        return await services.webchat.keep(name, upload.content_type or "", chunks(), limit)
    except TooLarge as error:
        shown = escape_invisible(one_line(name, 100))
        raise HTTPException(413, f"{shown} is larger than {format_size(limit)}.") from error


@page("/chat/{name}/files/{message}/{place:int}", needs=Right.CHAT)
async def show_file(request: WebRequest) -> Response:
    chat, store = _source(request).chat_id or "", request.store

    @transaction
    def read() -> Statements[WebchatMessage]:
        principal = yield from store.people.principal_of(request.caller.identity)
        return (yield from store.webchat_log.get_message(request.path["message"], chat, principal))

    files, place = (await store.read(read())).files, int(request.path["place"])
    if place >= len(files):
        raise HTTPException(404, "There is no such file.")
    return download(files[place], request.services.shelf)


def _source(request: WebRequest) -> Source:
    if request.caller.web_user is None:
        raise HTTPException(403, "This login has no web chat. Use one made with --as web:NAME.")
    return request.services.webchat.source(request.caller.web_user, _chat_name(request))


def _chat_name(request: WebRequest) -> str:
    name = request.path.get("name", _MAIN_CHAT)
    if not _CHAT_NAME.fullmatch(name):
        raise HTTPException(404, "There is no such chat.")
    return name


def _parse_time(text: str) -> datetime | None:
    """Parse microseconds since 1970, as far as datetime reaches."""
    micros = parse_number(text)
    return None if micros is None else datetime.fromtimestamp(min(micros, _MAX_MICROSECONDS) / 1_000_000, UTC)


def _chats(sessions: list[Session], current: str) -> list[tuple[str, str]]:
    """Return names and titles of the person's chats, last used first."""
    chats: dict[str, str] = {}
    for session in sessions:
        if session.origin.platform == "web":
            _, _, name = (session.origin.chat_id or "").partition("/")
            if _CHAT_NAME.fullmatch(name or _MAIN_CHAT):
                chats.setdefault(name or _MAIN_CHAT, session.title or name or "Main")
    for name in (_MAIN_CHAT, current):
        chats.setdefault(name, "Main" if name == _MAIN_CHAT else "New conversation")
    return list(chats.items())


ROUTES = (
    page("/chat", needs=Right.CHAT)(_show),
    page("/chat/{name}", needs=Right.CHAT)(_show),
    *(start, send, show_file),
)
