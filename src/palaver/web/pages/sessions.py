"""Pages for the list of sessions and for one session: its live transcript and the commands for it."""

import re
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from palaver.commands.formatting import session_name
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.session import Principal, Session, SessionState
from palaver.model.text import one_line
from palaver.model.transcript import Entry
from palaver.store.archive.exporter import ExportFormat
from palaver.store.status.overview import OpenTurn
from palaver.store.status.session_list import ListFilter
from palaver.web.caller import Caller
from palaver.web.files import PICTURES, download
from palaver.web.pages.common import (
    MAX_SHOWN_TEXT,
    Link,
    answer_action,
    legible,
    parse_number,
    query_value,
    read_form,
    show_page,
    with_query,
)
from palaver.web.routes import action, page
from palaver.web.services import Services

LINKS = (Link(title="Sessions", path="/sessions", order=10),)
_PAGE_SIZE = 50
_STATES = {state.value: state for state in SessionState}
_ENTRIES_AFTER_TARGET = 15
"""How many entries to show after the one a link jumps to."""
_COMMAND = re.compile(r"/(undo|redo|back|branch|stop|(approve|deny) [0-9]+-[0-9]+)", re.ASCII)
"""An approval names the question that was shown: by now there can be another."""
_EXPORTS = {
    "md": (ExportFormat.MARKDOWN, "text/markdown"),
    "html": (ExportFormat.HTML, "text/html"),
    "jsonl": (ExportFormat.JSONL, "application/x-ndjson"),
}
_MAX_SEQ = 1 << 24


def routes(services: Services) -> list[Route]:
    pages = _Sessions(services)
    return [
        page("/sessions", pages.show_list),
        page("/sessions/{id}", pages.show),
        page("/sessions/{id}/entries/{seq:int}", pages.entry),
        page("/sessions/{id}/export", pages.export),
        action("/sessions/{id}/command", pages.command),
        action("/sessions/{id}/rename", pages.rename),
        page("/files/{name}", pages.file),
    ]


class _Sessions:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store

    async def show_list(self, request: Request, caller: Caller) -> Response:
        filters = {name: query_value(request, name) for name in ("title", "platform", "person", "state")}
        after = query_value(request, "after") or None
        wanted = ListFilter(
            platform=filters["platform"].lower() or None,
            person=filters["person"] or None,
            title=filters["title"] or None,
            state=_STATES.get(filters["state"]),
        )
        found = await self._services.read(
            caller,
            lambda principal: self._store.session_list.list_sessions(
                principal, wanted=wanted, after=after, limit=_PAGE_SIZE
            ),
        )
        return show_page(
            self._services,
            request,
            "sessions.html",
            caller,
            previews=found.previews,
            next=found.after and with_query(request, after=found.after),
            first=with_query(request, after="") if after else None,
            filters=filters,
            platforms=sorted(self._services.platforms),
            states=[("", "open or ended"), *((name, name) for name in _STATES)],
        )

    async def show(self, request: Request, caller: Caller) -> Response:
        audit = caller.is_owner and bool(query_value(request, "audit"))
        passage = _passage(request)
        session, entries, turns = await self._services.read(
            caller, lambda principal: self._read(request.path_params["id"], principal, passage, audit=audit)
        )
        is_full = len(entries) >= _PAGE_SIZE
        has_earlier = is_full or (entries and "after" in passage)
        has_later = entries and ("before" in passage or ("after" in passage and is_full))
        return show_page(
            self._services,
            request,
            "transcript.html",
            caller,
            session=session,
            entries=entries,
            turns=turns,
            audit=audit,
            is_newest=not passage,
            earlier=entries[0].seq if has_earlier else None,
            later=entries[-1].seq if has_later else None,
            pictures=PICTURES,
            longest=MAX_SHOWN_TEXT,
        )

    @transaction
    def _read(
        self, name: str, principal: Principal, passage: dict[str, int], *, audit: bool
    ) -> Statements[tuple[Session, list[Entry], list[OpenTurn]]]:
        session = yield from self._store.sessions.get_visible(name, principal)
        entries = yield from self._store.transcript.page(name, principal, **passage, limit=_PAGE_SIZE, hidden=audit)
        turns = yield from self._store.overview.list_open_turns(principal, 1, session.id)
        return session, entries, turns

    async def entry(self, request: Request, caller: Caller) -> Response:
        """Show the whole text of one entry."""
        name, seq = request.path_params["id"], min(request.path_params["seq"], _MAX_SEQ)
        found = await self._services.read(
            caller,
            lambda principal: self._store.transcript.page(name, principal, after=seq - 1, before=seq + 1, limit=1),
        )
        if not found:
            raise NotFound("entry", str(seq))
        return PlainTextResponse(legible(found[0].text))

    async def export(self, request: Request, caller: Caller) -> Response:
        name, wanted = request.path_params["id"], query_value(request, "format") or "md"
        if wanted not in _EXPORTS:
            raise HTTPException(400, f"Choose one of these formats: {', '.join(_EXPORTS)}.")
        form, media_type = _EXPORTS[wanted]
        session = await self._services.read(caller, lambda principal: self._store.sessions.get_visible(name, principal))
        content = await self._services.read(
            caller, lambda principal: self._store.exporter.export_session(session.id, form, principal)
        )
        file_name = re.sub(r"[^\w-]+", "-", session_name(session)).strip("-")[:60] or session.id
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(file_name)}.{wanted}",
            "content-security-policy": "sandbox; default-src 'none'",
        }
        return Response(content, media_type=media_type, headers=headers)

    async def command(self, request: Request, caller: Caller) -> Response:
        form = await read_form(request)
        session, text = request.path_params["id"], form.get("text", "")
        if not _COMMAND.fullmatch(text):
            raise HTTPException(400, "Only /undo, /redo, /back, /branch, /stop, /approve and /deny work here.")
        name = text[1:].partition(" ")[0]
        if name == "branch":
            steps_back = parse_number(form.get("at", ""))
            options = (one_line(form.get("title", ""), 200), f"--at {steps_back}" if steps_back else "")
            text = " ".join(filter(None, (text, *options)))
        notice = await self._services.run_command(caller, session, text)
        current = await self._current_session(caller, session) if name in {"back", "branch"} else session
        return answer_action(request, notice, f"/sessions/{current}", moved=current != session)

    async def _current_session(self, caller: Caller, session: str) -> str:
        """Return the session in which the conversation continues."""

        @transaction
        def find(principal: Principal) -> Statements[str]:
            left = yield from self._store.sessions.get_visible(session, principal)
            status = yield from self._store.turn_control.get_status(left.key, principal)
            return status.session.id if status.session else session

        return await self._services.read(caller, find)

    async def rename(self, request: Request, caller: Caller) -> Response:
        title, session = (await read_form(request)).get("title", ""), request.path_params["id"]
        renamed = await self._services.rename_session(caller, session, title)
        return answer_action(request, f"Renamed to “{one_line(renamed.title or '', 100)}”.", f"/sessions/{session}")

    async def file(self, request: Request, caller: Caller) -> Response:
        name = request.path_params["name"]
        file = await self._services.read(caller, lambda principal: self._store.attachments.find(name, principal))
        return download(file, self._services.shelf)


def _passage(request: Request) -> dict[str, int]:
    """Return which entries to read: before one, after one, or around one; nothing for the newest."""
    wanted = {name: parse_number(query_value(request, name)) for name in ("before", "after", "at")}
    given = {name: min(seq, _MAX_SEQ) for name, seq in wanted.items() if seq is not None}
    if "at" in given:
        return {"before": given["at"] + _ENTRIES_AFTER_TARGET}
    return {"before": given["before"]} if "before" in given else given
