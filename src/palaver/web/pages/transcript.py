"""A transcript: what was said in one conversation, from its end, as it grows; and what can be done about it."""

import re
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from palaver.commands.formatting import name_of
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.session import Principal, Session
from palaver.model.text import one_line
from palaver.model.transcript import Entry
from palaver.store.archive.exporter import ExportFormat
from palaver.store.status.overview import OpenTurn
from palaver.web.authorization import rename
from palaver.web.caller import Caller
from palaver.web.http import PICTURES, download, number
from palaver.web.pages.parts import LONGEST_TEXT, asked, done, form_of, legible, order, show
from palaver.web.routes import deed, page
from palaver.web.services import Services

__all__ = ["routes"]

_PAGE = 50
_AHEAD = 15
"""How many entries are shown behind one that was jumped to."""
_ORDER = re.compile(r"/(undo|redo|back|branch|stop|(approve|deny) [0-9]+-[0-9]+)", re.ASCII)
"""An answer names the question that was seen: by now there may be another."""
_FORMS = {
    "md": (ExportFormat.MARKDOWN, "text/markdown"),
    "html": (ExportFormat.HTML, "text/html"),
    "jsonl": (ExportFormat.JSONL, "application/x-ndjson"),
}
_LONGEST_SEQ = 1 << 24


def routes(services: Services) -> list[Route]:
    transcript = _Transcript(services)
    return [
        page("/sessions/{id}", transcript.show),
        page("/sessions/{id}/entries/{seq:int}", transcript.entry),
        page("/sessions/{id}/export", transcript.export),
        deed("/sessions/{id}/order", transcript.order),
        deed("/sessions/{id}/rename", transcript.rename),
        page("/files/{name}", transcript.file),
    ]


class _Transcript:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store

    async def show(self, request: Request, caller: Caller) -> Response:
        audit = caller.is_owner and bool(asked(request, "audit"))
        place = _place(request)
        session, entries, flights = await self._services.read(
            caller, lambda principal: self._looked(request.path_params["id"], principal, place, audit=audit)
        )
        is_newest = not place
        return show(
            self._services,
            request,
            "transcript.html",
            caller,
            session=session,
            entries=entries,
            flights=flights,
            audit=audit,
            is_newest=is_newest,
            earlier=entries[0].seq if len(entries) >= _PAGE or (entries and "after" in place) else None,
            later=entries[-1].seq
            if entries and ("before" in place or ("after" in place and len(entries) >= _PAGE))
            else None,
            pictures=PICTURES,
            longest=LONGEST_TEXT,
        )

    @transaction
    def _looked(
        self, name: str, principal: Principal, place: dict[str, int], *, audit: bool
    ) -> Statements[tuple[Session, list[Entry], list[OpenTurn]]]:
        session = yield from self._store.sessions.get_visible(name, principal)
        entries = yield from self._store.transcript.page(name, principal, **place, limit=_PAGE, hidden=audit)
        flights = yield from self._store.overview.list_open_turns(principal, 1, session.id)
        return session, entries, flights

    async def entry(self, request: Request, caller: Caller) -> Response:
        """One entry as plain text, whole."""
        name, seq = request.path_params["id"], request.path_params["seq"]
        found = await self._services.read(
            caller,
            lambda principal: self._store.transcript.page(
                name, principal, after=min(seq, _LONGEST_SEQ) - 1, before=min(seq, _LONGEST_SEQ) + 1, limit=1
            ),
        )
        if not found:
            raise NotFound("entry", str(seq))
        return PlainTextResponse(legible(found[0].text))

    async def export(self, request: Request, caller: Caller) -> Response:
        name, wanted = request.path_params["id"], asked(request, "format") or "md"
        if wanted not in _FORMS:
            raise HTTPException(400, f"A conversation is exported as one of {', '.join(_FORMS)}.")
        form, kind = _FORMS[wanted]
        session = await self._services.read(caller, lambda principal: self._store.sessions.get_visible(name, principal))
        content = await self._services.read(
            caller, lambda principal: self._store.exporter.export_session(session.id, form, principal)
        )
        called = re.sub(r"[^\w-]+", "-", name_of(session)).strip("-")[:60] or session.id
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(called)}.{wanted}",
            "content-security-policy": "sandbox; default-src 'none'",
        }
        return Response(content, media_type=kind, headers=headers)

    async def order(self, request: Request, caller: Caller) -> Response:
        """The same commands as in the chat."""
        form = await form_of(request)
        session, text = request.path_params["id"], str(form.get("text", ""))
        if not _ORDER.fullmatch(text):
            raise HTTPException(400, "Here one can order /undo, /redo, /back, /branch, /stop, and answer a question.")
        name = text[1:].partition(" ")[0]
        if name == "branch":
            text = " ".join(filter(None, (text, one_line(str(form.get("title", "")), 200), _back(form.get("at")))))
        said = await order(self._services, caller, session, text)
        back = await self._leads_to(caller, session) if name in {"back", "branch"} else session
        return done(request, said, f"/sessions/{back}", moved=back != session)

    async def _leads_to(self, caller: Caller, session: str) -> str:
        """The session in which the conversation goes on."""

        @transaction
        def found(principal: Principal) -> Statements[str]:
            left = yield from self._store.sessions.get_visible(session, principal)
            status = yield from self._store.turn_control.get_status(left.key, principal)
            return status.session.id if status.session else session

        return await self._services.read(caller, found)

    async def rename(self, request: Request, caller: Caller) -> Response:
        title, session = str((await form_of(request)).get("title", "")), request.path_params["id"]
        renamed = await rename(self._services, caller, session, title)
        return done(
            request, f"This conversation is called “{one_line(renamed.title or '', 100)}” now.", f"/sessions/{session}"
        )

    async def file(self, request: Request, caller: Caller) -> Response:
        name = request.path_params["name"]
        found = await self._services.read(caller, lambda principal: self._store.attachments.find(name, principal))
        return download(found, self._services.shelf)


def _place(request: Request) -> dict[str, int]:
    """Which passage is wanted: before an entry, after one, or around one; nothing for the newest."""
    wanted = {name: number(asked(request, name)) for name in ("before", "after", "at")}
    given = {name: min(seq, _LONGEST_SEQ) for name, seq in wanted.items() if seq is not None}
    if "at" in given:
        return {"before": given["at"] + _AHEAD}
    return {"before": given["before"]} if "before" in given else given


def _back(at: object) -> str:
    count = number(str(at or ""))
    return f"--at {count}" if count else ""
