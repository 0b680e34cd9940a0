"""The web chat: the caller's own conversations, with files, commands and buttons for open questions."""

import re
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from palaver.db.transaction import Statements, transaction
from palaver.model.attachment import Attachment, TooLarge, format_size
from palaver.model.session import Session
from palaver.model.source import Source
from palaver.model.text import escape_invisible, one_line
from palaver.store.people.api_tokens import Right
from palaver.store.results import Status
from palaver.store.status.webchat_log import WebchatMessage
from palaver.web.auth_middleware import CSRF_HEADER
from palaver.web.caller import Caller
from palaver.web.files import download
from palaver.web.message_service import MAX_TEXT_LENGTH, require_own_conversation
from palaver.web.pages.common import MAX_SHOWN_TEXT, Link, normalize_newlines, parse_number, show_page
from palaver.web.routes import action, page
from palaver.web.services import Services

LINKS = (Link(title="Chat", path="/chat", order=1, needs=Right.CHAT),)
_MAIN_CHAT = "main"
_CHAT_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_PAGE_SIZE = 50
_MAX_CHATS = 100
_CHUNK_BYTES = 1 << 16
_MAX_BYTES_BESIDE_FILES = 2_000_000
_MAX_FIELDS = 10
_MAX_MICROSECONDS = 10**16


def routes(services: Services) -> list[Route]:
    chat = _Chat(services)
    return [
        page("/chat", chat.show, needs=Right.CHAT),
        action("/chat", chat.start, needs=Right.CHAT),
        page("/chat/{name}", chat.show, needs=Right.CHAT),
        action("/chat/{name}", chat.send, needs=Right.CHAT),
        page("/chat/{name}/files/{message}/{place:int}", chat.file, needs=Right.CHAT),
    ]


class _Chat:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store

    async def show(self, request: Request, caller: Caller) -> Response:
        name, source, engine = _chat_name(request), self._source(request, caller), self._services.engine
        before = _parse_time(request.query_params.get("before", ""))
        place, key = await engine.place_of(source), await engine.key_of(source)

        @transaction
        def read() -> Statements[tuple[list[WebchatMessage], Status, list[Session]]]:
            # As the person themselves: even the owner reads only their own chats here.
            principal = yield from self._store.people.principal_of(caller.identity)
            messages = yield from self._store.webchat_log.list_messages(
                place, source.chat_id or "", principal, before=before, limit=_PAGE_SIZE
            )
            status = yield from self._store.turn_control.get_status(key, principal)
            previews = yield from self._store.session_list.recent_sessions(principal, _MAX_CHATS)
            return messages, status, [preview.session for preview in previews]

        messages, status, sessions = await self._store.read(read())
        return show_page(
            self._services,
            request,
            "chat.html",
            caller,
            name=name,
            chat=source.chat_id,
            messages=messages,
            state=status,
            chats=_chats(sessions, name),
            earlier=int(messages[0].at.timestamp() * 1_000_000) if len(messages) == _PAGE_SIZE else None,
            is_old=before is not None,
            commands=sorted((name, command.help) for name, command in self._services.commands.table.items()),
            message_id=secrets.token_hex(12),
            max_file_size=engine.options.file_size,
            max_files=engine.options.files_per_message,
            longest=MAX_SHOWN_TEXT,
        )

    async def start(self, _: Request, __: Caller) -> Response:
        """Open an empty chat; it exists once something is said in it."""
        return RedirectResponse(f"/chat/{secrets.token_hex(4)}", status_code=303)

    async def send(self, request: Request, caller: Caller) -> Response:
        source, name = self._source(request, caller), _chat_name(request)
        self._check_length(request)
        max_files = self._services.engine.options.files_per_message
        async with request.form(max_files=max_files, max_fields=_MAX_FIELDS) as form:
            text, message_id = normalize_newlines(str(form.get("text", ""))), str(form.get("id", ""))
            files = [await self._store_file(upload) for upload in _uploads(form)]
        if not text.strip() and not files:
            raise HTTPException(400, "Write something or choose a file.")
        if len(text) > MAX_TEXT_LENGTH:
            raise HTTPException(413, f"A message can have at most {MAX_TEXT_LENGTH:,} characters, not {len(text):,}.")
        await require_own_conversation(self._services, caller, source)
        message_id = message_id or secrets.token_hex(12)
        await self._services.webchat.say(
            source.user_id or "", name, message_id, text, files=files, talk_only=caller.talk_only
        )
        if "text/html" in request.headers.get("accept", "") and CSRF_HEADER not in request.headers:
            return RedirectResponse(f"/chat/{name}", status_code=303)
        return PlainTextResponse("")

    def _check_length(self, request: Request) -> None:
        """Refuse a request that is too large before any of it is written to disk."""
        options, length = self._services.engine.options, parse_number(request.headers.get("content-length", ""))
        if length is None:
            raise HTTPException(411, "Send a Content-Length.")
        # Only files go to disk; the rest of the form is read into memory.
        files = options.files_per_message if "multipart/form-data" in request.headers.get("content-type", "") else 0
        if length > options.file_size * files + _MAX_BYTES_BESIDE_FILES:
            limit = format_size(options.file_size if files else _MAX_BYTES_BESIDE_FILES)
            raise HTTPException(413, f"{'A file' if files else 'The message'} is larger than {limit}.")

    async def _store_file(self, upload: UploadFile) -> Attachment:
        async def chunks() -> AsyncIterator[bytes]:
            while chunk := await upload.read(_CHUNK_BYTES):
                yield chunk

        limit = self._services.engine.options.file_size
        name, media_type = upload.filename or "file", upload.content_type or ""
        try:
            return await self._services.webchat.keep(name, media_type, chunks(), limit)
        except TooLarge as error:
            raise HTTPException(
                413, f"{escape_invisible(one_line(name, 100))} is larger than {format_size(limit)}."
            ) from error

    async def file(self, request: Request, caller: Caller) -> Response:
        source, message_id = self._source(request, caller), request.path_params["message"]

        @transaction
        def read() -> Statements[WebchatMessage]:
            principal = yield from self._store.people.principal_of(caller.identity)
            return (yield from self._store.webchat_log.get_message(message_id, source.chat_id or "", principal))

        files = (await self._store.read(read())).files
        place = int(request.path_params["place"])
        if place >= len(files):
            raise HTTPException(404, "There is no such file.")
        return download(files[place], self._services.shelf)

    def _source(self, request: Request, caller: Caller) -> Source:
        if caller.web_user is None:
            raise HTTPException(403, "This login has no web chat. Use one made with --as web:NAME.")
        return self._services.webchat.source(caller.web_user, _chat_name(request))


def _chat_name(request: Request) -> str:
    name = request.path_params.get("name", _MAIN_CHAT)
    if not _CHAT_NAME.fullmatch(name):
        raise HTTPException(404, "There is no such chat.")
    return name


def _uploads(form: FormData) -> list[UploadFile]:
    return [item for item in form.getlist("files") if isinstance(item, UploadFile) and item.filename]


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
