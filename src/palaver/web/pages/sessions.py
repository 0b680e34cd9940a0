"""Pages for the list of sessions and for one session: its live transcript and the commands for it."""

import re
from functools import partial
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from palaver.commands.formatting import session_name
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.session import Principal, Session, SessionState
from palaver.model.source import describe_source
from palaver.model.text import legible, one_line
from palaver.model.transcript import Entry
from palaver.store.archive.exporter import ExportFormat
from palaver.store.status.overview import OpenTurn
from palaver.store.status.session_list import ListFilter
from palaver.web.files import PICTURES, download
from palaver.web.pages.common import (
    MAX_SHOWN_TEXT,
    answer_action,
    list_names,
    parse_number,
    person_choices,
    platform_choices,
    platform_name,
    query_value,
    read_form,
    show_page,
    with_query,
)
from palaver.web.routes import WebRequest, action, page

_PAGE_SIZE = 50
_STATES = {state.value: state for state in SessionState}
_ENTRIES_AFTER_TARGET = 15
"""How many entries to show after the one a link jumps to."""
DECISION = r"(approve|deny) [0-9]+-[0-9]+|answer [0-9]+-[0-9]+ #[0-9]{1,2}"
_COMMAND = re.compile(rf"/(undo|redo|back|branch|stop|{DECISION})", re.ASCII)
"""A decision names the question that was shown: by now there can be another."""
_EXPORTS = {
    "md": (ExportFormat.MARKDOWN, "text/markdown"),
    "html": (ExportFormat.HTML, "text/html"),
    "jsonl": (ExportFormat.JSONL, "application/x-ndjson"),
}
_MAX_SEQ = 1 << 24


@page("/sessions")
async def show_list(request: WebRequest) -> Response:
    filters = {name: query_value(request, name) for name in ("title", "platform", "person", "state")}
    after, find = query_value(request, "after") or None, request.store.session_list.list_sessions
    wanted = ListFilter(
        platform=filters["platform"].lower() or None,
        person=filters["person"] or None,
        title=filters["title"] or None,
        state=_STATES.get(filters["state"]),
        latest_versions=_STATES.get(filters["state"]) is not SessionState.ENDED,
    )
    found = await request.browse(lambda who: find(who, wanted=wanted, after=after, limit=_PAGE_SIZE))
    sessions = [preview.session for preview in found.previews]
    names = await list_names(request)
    return show_page(
        request,
        "sessions.html",
        previews=found.previews,
        titles=await request.store.read(request.store.session_list.name_sessions(sessions)),
        next=found.after and with_query(request, after=found.after),
        first=with_query(request, after="") if after else None,
        filters=filters,
        platforms=platform_choices(request, wanted.platform or ""),
        people=person_choices(names, filters["person"]),
        names=names,
        platform_title=partial(platform_name, request),
        states=[("", "open or ended"), *((name, name) for name in _STATES)],
    )


@page("/sessions/{id}")
async def show(request: WebRequest) -> Response:
    audit = request.caller.is_owner and bool(query_value(request, "audit"))
    passage, name, store = _passage(request), request.path["id"], request.store

    @transaction
    def read(principal: Principal) -> Statements[tuple[Session, str, list[Entry], list[OpenTurn]]]:
        session = yield from store.sessions.get_visible(name, principal)
        titles = yield from store.session_list.name_sessions([session])
        before, after = passage.get("before"), passage.get("after")
        entries = yield from store.transcript.page(
            name, principal, before=before, after=after, limit=_PAGE_SIZE, hidden=audit
        )
        turns = yield from store.overview.list_open_turns(principal, 1, session.id)
        return session, titles[session.id], entries, turns

    session, title, entries, turns = await request.read(read)
    is_full = len(entries) >= _PAGE_SIZE
    has_earlier = is_full or (entries and "after" in passage)
    has_later = entries and ("before" in passage or ("after" in passage and is_full))
    return show_page(
        request,
        "transcript.html",
        session=session,
        title=title,
        platform=platform_name(request, session),
        where=describe_source(session.origin),
        entries=entries,
        turns=turns,
        audit=audit,
        is_newest=not passage,
        earlier=entries[0].seq if has_earlier else None,
        later=entries[-1].seq if has_later else None,
        pictures=PICTURES,
        longest=MAX_SHOWN_TEXT,
    )


@page("/sessions/{id}/entries/{seq:int}")
async def show_entry(request: WebRequest) -> Response:
    """Show the whole text of one entry."""
    name, seq, find = request.path["id"], min(request.path["seq"], _MAX_SEQ), request.store.transcript.page
    found = await request.read(lambda who: find(name, who, after=seq - 1, before=seq + 1, limit=1))
    if not found:
        raise NotFound("entry", str(seq))
    return PlainTextResponse(legible(found[0].text))


@page("/sessions/{id}/export")
async def export(request: WebRequest) -> Response:
    wanted, store = query_value(request, "format") or "md", request.store
    if wanted not in _EXPORTS:
        raise HTTPException(400, f"Choose one of these formats: {', '.join(_EXPORTS)}.")
    form, media_type = _EXPORTS[wanted]
    session = await request.read(lambda who: store.sessions.get_visible(request.path["id"], who))
    zone = request.services.engine.settings.zones.default
    exported = await request.read(lambda who: store.exporter.export_session(session.id, form, who, zone))
    file_name = re.sub(r"[^\w-]+", "-", session_name(session)).strip("-")[:60] or session.id
    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file_name)}.{wanted}",
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return Response(exported.content, media_type=media_type, headers=headers)


@action("/sessions/{id}/command")
async def run_command(request: WebRequest) -> Response:
    form = await read_form(request)
    session, text = request.path["id"], form.get("text", "")
    if not _COMMAND.fullmatch(text):
        raise HTTPException(400, "Only /undo, /redo, /back, /branch, /stop, /approve, /deny and choices work here.")
    name = text[1:].partition(" ")[0]
    if name == "branch":
        steps_back = parse_number(form.get("at", ""))
        options = (one_line(form.get("title", ""), 200), f"--at {steps_back}" if steps_back else "")
        text = " ".join(filter(None, (text, *options)))
    notice = await request.run_command(session, text)
    current = (await request.current_session(session)).id if name in {"back", "branch"} else session
    return answer_action(request, notice, f"/sessions/{current}", moved=current != session)


@action("/sessions/{id}/rename")
async def rename(request: WebRequest) -> Response:
    renamed = await request.rename_session(request.path["id"], (await read_form(request)).get("title", ""))
    return answer_action(request, f"Renamed to “{one_line(renamed.title or '', 100)}”.", f"/sessions/{renamed.id}")


@page("/files/{id}")
async def show_file(request: WebRequest) -> Response:
    file = await request.read(lambda who: request.store.attachments.find(request.path["id"], who))
    return download(file, request.services.shelf)


def _passage(request: WebRequest) -> dict[str, int]:
    """Return which entries to read: before one, after one, or around one; nothing for the newest."""
    wanted = {name: parse_number(query_value(request, name)) for name in ("before", "after", "at")}
    given = {name: min(seq, _MAX_SEQ) for name, seq in wanted.items() if seq is not None}
    if "at" in given:
        return {"before": given["at"] + _ENTRIES_AFTER_TARGET}
    return {"before": given["before"]} if "before" in given else given


ROUTES = (show_list, show, show_entry, export, run_command, rename, show_file)
