"""The web chat: conversations of whoever is logged in, with files, commands and buttons for what is asked."""

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
from palaver.model.session import Principal, Session
from palaver.model.source import Source
from palaver.model.text import escape_invisible, one_line
from palaver.store.people.api_tokens import Right
from palaver.store.results import Status
from palaver.store.status.webchat_log import WebchatMessage
from palaver.store.store import Store
from palaver.web.caller import Caller
from palaver.web.http import download, number
from palaver.web.message_service import refuse_elsewhere
from palaver.web.pages.base import Link
from palaver.web.pages.parts import LONGEST_TEXT, entered, show
from palaver.web.routes import deed, page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="Chat", path="/chat", place=1, needs=Right.CHAT)
_MAIN = "main"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_LINES = 50
_CHATS = 100
_PIECE = 1 << 16
_LONGEST_REST = 2_000_000
_MOST_FIELDS = 10
_LONGEST_TEXT = 200_000
_LAST_MOMENT = 10**16


def routes(services: Services) -> list[Route]:
    chat = _Chat(services)
    return [
        page("/chat", chat.show, needs=Right.CHAT),
        deed("/chat", chat.begin, needs=Right.CHAT),
        page("/chat/{name}", chat.show, needs=Right.CHAT),
        deed("/chat/{name}", chat.say, needs=Right.CHAT),
        page("/chat/{name}/files/{message}/{place:int}", chat.file, needs=Right.CHAT),
    ]


class _Chat:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def show(self, request: Request, caller: Caller) -> Response:
        source, engine = self._source(request, caller), self._services.engine
        before = _moment(request.query_params.get("before", ""))
        place, key = await engine.place_of(source), await engine.key_of(source)

        @transaction
        def looked() -> Statements[tuple[list[WebchatMessage], Status, list[Session]]]:
            store = self._services.store
            principal = yield from self._speaker(store, caller)
            lines = yield from store.webchat_log.list_messages(
                place, source.chat_id or "", principal, before=before, limit=_LINES
            )
            status = yield from store.turn_control.get_status(key, principal)
            previews = yield from store.session_list.recent_sessions(principal, _CHATS)
            return lines, status, [preview.session for preview in previews]

        lines, status, sessions = await self._services.store.read(looked())
        return show(
            self._services,
            request,
            "chat.html",
            caller,
            name=_name(request),
            chat=source.chat_id,
            lines=lines,
            state=status,
            chats=_chats(sessions, _name(request)),
            earlier=int(lines[0].at.timestamp() * 1_000_000) if len(lines) == _LINES else None,
            is_old=before is not None,
            commands=sorted((name, each.help) for name, each in self._services.commands.table.items()),
            message=secrets.token_hex(12),
            largest=engine.options.file_size,
            most_files=engine.options.files_per_message,
            longest=LONGEST_TEXT,
        )

    async def begin(self, _: Request, __: Caller) -> Response:
        """A conversation is there as soon as something is said in it."""
        return RedirectResponse(f"/chat/{secrets.token_hex(4)}", status_code=303)

    async def say(self, request: Request, caller: Caller) -> Response:
        source, name = self._source(request, caller), _name(request)
        self._refuse_too_much(request)
        files_at_most = self._services.engine.options.files_per_message
        async with request.form(max_files=files_at_most, max_fields=_MOST_FIELDS) as form:
            text, message = entered(str(form.get("text", ""))), str(form.get("id", "")) or secrets.token_hex(12)
            files = [await self._kept(each) for each in _uploads(form)]
        if not text.strip() and not files:
            raise HTTPException(400, "There is nothing to say.")
        if len(text) > _LONGEST_TEXT:
            raise HTTPException(413, f"A message has at most {_LONGEST_TEXT:,} characters, not {len(text):,}.")
        await refuse_elsewhere(self._services, caller, source)
        await self._services.webchat.say(
            source.user_id or "", name, message, text, files=files, talk_only=caller.talk_only
        )
        if "text/html" in request.headers.get("accept", "") and "x-csrf-token" not in request.headers:
            return RedirectResponse(f"/chat/{name}", status_code=303)
        return PlainTextResponse("")

    def _refuse_too_much(self, request: Request) -> None:
        """Before any of it is written to a disk."""
        options, length = self._services.engine.options, number(request.headers.get("content-length", ""))
        if length is None:
            raise HTTPException(411, "A message has to say how long it is.")
        # What is no file is read into memory.
        files = options.files_per_message if "multipart/form-data" in request.headers.get("content-type", "") else 0
        if length > options.file_size * files + _LONGEST_REST:
            limit = format_size(options.file_size if files else _LONGEST_REST)
            raise HTTPException(413, f"{'A file' if files else 'This'} is larger than {limit}.")

    async def _kept(self, upload: UploadFile) -> Attachment:
        async def pieces() -> AsyncIterator[bytes]:
            while piece := await upload.read(_PIECE):
                yield piece

        limit = self._services.engine.options.file_size
        called, kind = upload.filename or "file", upload.content_type or ""
        try:
            return await self._services.webchat.keep(called, kind, pieces(), limit)
        except TooLarge as error:
            raise HTTPException(
                413, f"{escape_invisible(one_line(called, 100))} is larger than {format_size(limit)}."
            ) from error

    async def file(self, request: Request, caller: Caller) -> Response:
        source, line = self._source(request, caller), request.path_params["message"]

        @transaction
        def found() -> Statements[WebchatMessage]:
            principal = yield from self._speaker(self._services.store, caller)
            return (yield from self._services.store.webchat_log.get_message(line, source.chat_id or "", principal))

        files = (await self._services.store.read(found())).files
        place = int(request.path_params["place"])
        if place >= len(files):
            raise HTTPException(404, "There is no such file.")
        return download(files[place], self._services.shelf)

    @staticmethod
    @transaction
    def _speaker(store: Store, caller: Caller) -> Statements[Principal]:
        """The person who talks: also the owner reads no other chats here than their own."""
        return (yield from store.people.principal_of(caller.identity))

    def _source(self, request: Request, caller: Caller) -> Source:
        if caller.user is None:
            raise HTTPException(403, "This login has no web chat of its own: it takes one made with --as web:NAME.")
        return self._services.webchat.source(caller.user, _name(request))


def _name(request: Request) -> str:
    name = request.path_params.get("name", _MAIN)
    if not _NAME.fullmatch(name):
        raise HTTPException(404, "There is no such chat.")
    return name


def _uploads(form: FormData) -> list[UploadFile]:
    return [each for each in form.getlist("files") if isinstance(each, UploadFile) and each.filename]


def _moment(text: str) -> datetime | None:
    """Of microseconds since 1970; so far as there are years."""
    micros = number(text)
    return None if micros is None else datetime.fromtimestamp(min(micros, _LAST_MOMENT) / 1_000_000, UTC)


def _chats(sessions: list[Session], here: str) -> list[tuple[str, str]]:
    """Names and titles of the person's chats, the one used last in front."""
    found: dict[str, str] = {}
    for session in sessions:
        if session.origin.platform == "web":
            _, _, name = (session.origin.chat_id or "").partition("/")
            if _NAME.fullmatch(name or _MAIN):
                found.setdefault(name or _MAIN, session.title or name or "Main")
    for name in (_MAIN, here):
        found.setdefault(name, "Main" if name == _MAIN else "New conversation")
    return list(found.items())
