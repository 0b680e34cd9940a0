"""What the buttons of the chat do: chat commands in the conversation that is shown, and paging through its versions."""

import re
import secrets

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from palaver.commands.sessions import ENTRY
from palaver.commands.transcripts import EDITED_TEXT
from palaver.db.transaction import Statements, transaction
from palaver.model.command import Invocation
from palaver.model.errors import NotFound, SessionBusy
from palaver.model.feedback import Rating
from palaver.model.session import Principal, Session
from palaver.store.conversations.visibility import hold
from palaver.store.people.api_tokens import Right
from palaver.web.chat_rooms import name_of_chat, path_of_chat, source_of_chat
from palaver.web.message_service import MAX_TEXT_LENGTH
from palaver.web.pages.common import parse_number, read_form
from palaver.web.pages.sessions import DECISION
from palaver.web.routes import WebRequest, action

_COMMAND = re.compile(rf"/(undo|redo|back|stop|{DECISION}|model \S{{1,200}})", re.ASCII)
"""A decision names the question that was shown: by now there can be another."""


async def _form(request: WebRequest) -> dict[str, str]:
    return await read_form(request, MAX_TEXT_LENGTH)


@action("/chat/-/{id}/command")
async def run_command(request: WebRequest) -> Response:
    text = (await _form(request)).get("text", "")
    if not _COMMAND.fullmatch(text):
        raise HTTPException(400, "Only /undo, /redo, /back, /stop, /approve, /deny, /model and choices work here.")
    return await _run(request, text)


@action("/chat/-/{id}/again")
async def answer_again(request: WebRequest) -> Response:
    """Answer the message of an entry again, as it was or with another text."""
    form = await _form(request)
    seq, text = parse_number(form.get("entry", "")), form.get("text")
    if text is not None and not text.strip():
        raise HTTPException(400, "Write something.")
    if text is not None and len(text) > MAX_TEXT_LENGTH:
        raise HTTPException(413, f"A message can have at most {MAX_TEXT_LENGTH:,} characters, not {len(text):,}.")
    asked = Invocation(
        command=request.services.commands.table["retry"],
        words={} if text is None else {EDITED_TEXT: text},
        numbers={} if seq is None else {ENTRY.name: seq},
    )
    return await _run(request, asked)


async def _run(request: WebRequest, given: str | Invocation) -> Response:
    try:
        return await _answer(request, await request.run_command(request.path["id"], given))
    except NotFound as error:
        raise HTTPException(409, _GONE if isinstance(given, Invocation) else _CHANGED) from error
    except SessionBusy as error:
        raise HTTPException(409, _BUSY) from error


_BUSY = "It is still answering. Stop it or wait, then try again."
_CHANGED = "This conversation was changed in another tab or chat. Nothing was done."
_GONE = "This message is not part of the conversation any more: it was undone or replaced. Nothing was changed."


@action("/chat/-/{id}/branch")
async def branch(request: WebRequest) -> Response:
    """Go on from an entry in a web chat of its own."""
    seq = parse_number((await _form(request)).get("entry", ""))
    source = source_of_chat(request, secrets.token_hex(4))
    key, now = await request.services.engine.place_of(source), request.now

    @transaction
    def copy(principal: Principal) -> Statements[Session]:
        there = yield from request.check_command(principal, request.path["id"], "branch")
        entries = yield from request.store.transcript.load_visible(there.session.id, principal)
        if seq is not None and all(entry.seq != seq for entry in entries):
            raise HTTPException(409, _GONE)
        make = request.store.branches.branch
        return (
            yield from make(key, source, principal, now, by=principal.name, from_session=there.session.id, at_seq=seq)
        )

    made = await request.write(copy)
    request.services.hub.hint("sessions")
    return JSONResponse({"session": made.id, "path": path_of_chat(name_of_chat(source.chat_id or ""))})


@action("/chat/-/{id}/feedback", needs=Right.CHAT)
async def rate(request: WebRequest) -> Response:
    """Keep thumbs up or down for an answer, or take them back."""
    form, identity, now = await _form(request), request.caller.identity, request.now
    turn, ratings = parse_number(form.get("turn", "")), {str(int(each)): each for each in Rating}
    if turn is None or form.get("rating") not in ratings:
        raise HTTPException(400, "Say which answer, and 1, -1 or 0.")
    rating, keep = ratings[form["rating"]], request.store.feedback.rate
    await request.write(lambda principal: keep(request.path["id"], turn, identity, rating, now, principal))
    request.services.hub.hint("sessions")
    return await _answer(request, "")


@action("/chat/-/{id}/version")
async def show_version(request: WebRequest) -> Response:
    """Go on with another version of the conversation that is open."""
    wanted = (await _form(request)).get("version", "")
    store, id_, now = request.store, request.path["id"], request.now

    @transaction
    def switch(principal: Principal) -> Statements[None]:
        there = yield from request.check_command(principal, id_, "resume")
        session = yield from hold(there.session.number)
        versions = yield from store.chat_list.list_versions(session)
        if wanted not in {version.id for version in versions} or session.ended is not None:
            raise NotFound("version", wanted)
        yield from store.sessions.check_not_busy(session)
        yield from store.sessions.switch(session.key, session.origin, wanted, principal, now, by=principal.name)

    try:
        await request.write(switch)
    except SessionBusy as error:
        raise HTTPException(409, _BUSY) from error
    request.services.hub.hint("sessions", "turns")
    return await _answer(request, "")


async def _answer(request: WebRequest, notice: str) -> Response:
    """Return what a command says, and the session in which the conversation goes on."""
    request.services.hub.hint_chat(request.caller.identity)
    current = await request.current_session(request.path["id"])
    return JSONResponse({"notice": notice, "session": current.id})


ROUTES = (run_command, answer_again, branch, rate, show_version)
