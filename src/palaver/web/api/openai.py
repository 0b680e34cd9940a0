"""The endpoint for clients of OpenAI's: /v1/chat/completions, bound to conversations, and /v1/models."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive

from palaver.db.transaction import Statements, transaction
from palaver.engine.reply_waiter import PendingReply
from palaver.model.errors import BadArgument, PalaverError
from palaver.model.turn import Received
from palaver.model.value import value
from palaver.store.people.api_tokens import Right
from palaver.store.status.message_status import Reply
from palaver.web.api.messages import KEY_HEADER, key_of
from palaver.web.caller import Caller, principal_of
from palaver.web.event_hub import HEARTBEAT
from palaver.web.message_service import Said, Speaking, refuse_other
from palaver.web.openai.responses import Grown, Telling, line, outcome_of
from palaver.web.openai.schema import MODEL, Asked, read, request_of
from palaver.web.openai.sessions import Finding, folded
from palaver.web.routes import deed, page
from palaver.web.services import Services

__all__ = ["SESSION_HEADER", "routes"]

SESSION_HEADER = "X-Palaver-Session"
_PATIENCE = 3600.0
"""Seconds; turns have a limit of their own, and a client goes when it likes."""
_CARD = {"id": MODEL, "object": "model", "created": 0, "owned_by": "palaver"}
_STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}


def routes(services: Services) -> list[Route]:
    async def complete(request: Request, caller: Caller) -> Response:
        async with services.bodies.read(request.stream(), services.engine.options, with_files=True) as content:
            completion = await _said(services, caller, request, request_of(content))
        return await completion.answer(request.receive)

    async def models(_: Request, __: Caller) -> Response:
        return JSONResponse({"object": "list", "data": [_CARD]})

    async def model(request: Request, _: Caller) -> Response:
        _check_model(request.path_params["id"])
        return JSONResponse(_CARD)

    return [
        deed("/v1/chat/completions", complete, needs=Right.CHAT),
        page("/v1/models", models, needs=Right.CHAT),
        page("/v1/models/{id:path}", model, needs=Right.CHAT),
    ]


def _check_model(name: str) -> None:
    if name != MODEL:
        raise HTTPException(404, f"There is no model {name[:100]!r} here; allowed: {MODEL}, whoever answers behind it.")


async def _said(services: Services, caller: Caller, request: Request, asked: Asked) -> "_Completion":
    _check_model(asked.model)
    said, speaking = read(asked), Speaking(services, caller)
    finding = Finding(
        speaking=speaking,
        read=said,
        key=key_of(request.headers.get(KEY_HEADER)),
        session=request.headers.get(SESSION_HEADER) or (asked.metadata or {}).get("session"),
        user=asked.user,
    )
    received = await (_continued(finding) if said.results else _begun(finding))
    return _Completion(
        services=services, speaking=speaking, received=received, streams=asked.stream, wants_usage=asked.wants_usage
    )


async def _begun(finding: Finding) -> Received:
    """The message that is answered: the one that is said now, or was said before under the same key."""
    speaking, said = finding.speaking, finding.read
    files = [await speaking.keep(file.name, file.media_type, file.content) for file in said.files]
    before = await finding.earlier()
    if before and (found := await speaking.earlier(before)):
        refuse_other(found, [said.text, folded(said.system, said.before, said.text)], files)
        return found
    source, text = await finding.place()
    if not text.strip() and not said.files:
        raise BadArgument("There is nothing to say in", found=text, allowed="text or files", example="hello")
    await finding.leave_calls(source)
    return await speaking.say(source, Said(text=text, files=tuple(files), offers=said.offers, plain=True))


async def _continued(finding: Finding) -> Received:
    """The turn goes on from which the calls came. Given again, results change nothing."""
    for session in await finding.candidates():
        found = await finding.speaking.services.store.transact(_given(finding, session.id))
        if found is not None:
            return found
    wrong = next(iter(finding.read.results))
    raise BadArgument("Nothing waits for a result of the call", found=wrong, allowed="its last calls", example="")


@transaction
def _given(finding: Finding, session: str) -> Statements[Received | None]:
    store, now, results = finding.speaking.services.store, finding.speaking.services.clock.now(), finding.read.results
    principal = yield from principal_of(finding.speaking.caller, store)
    for entry in reversed((yield from store.transcript.load_visible(session, principal))):
        if entry.turn and results.keys() & {call.id for call in entry.calls}:
            yield from store.message_status.submit_tool_results(int(entry.turn), results, now, principal)
            return (yield from store.message_status.last_message_of_turn(int(entry.turn), principal))
    return None


@value
class _Completion:
    """One answer. Whether its client stays or goes, the turn goes on to its end, and is in the conversation."""

    services: Services
    speaking: Speaking
    received: Received
    streams: bool
    wants_usage: bool

    async def answer(self, receive: Receive) -> Response:
        received = self.received
        telling = Telling(number=received.number, created=int(received.received.timestamp()))
        if self.streams:
            return await self._streamed(telling)
        reply = await self.speaking.reply(received.number, _PATIENCE, receive)
        outcome = outcome_of(reply, self.services)
        return JSONResponse(telling.whole(outcome, reply), headers=_headers(reply))

    async def _streamed(self, telling: Telling) -> Response:
        """It begins with the first word, so that what goes wrong before is told as what it is."""
        stream = self._pieces(telling)
        first = await anext(stream)

        async def pieces() -> AsyncIterator[bytes]:
            yield first
            async for piece in stream:
                yield piece

        return StreamingResponse(pieces(), media_type="text/event-stream", headers=_STREAM)

    async def _pieces(self, telling: Telling) -> AsyncIterator[bytes]:
        grown, has_begun = Grown(), False
        try:
            with self.services.waiting.waiting(self.received.number) as waiter:
                async for piece in self._growing(waiter, grown):
                    has_begun = True
                    yield telling.piece({"role": "assistant", "content": piece})
            await self.speaking.refuse_revoked()
            reply = await self.speaking.reply(self.received.number)
            outcome = outcome_of(reply, self.services)
        except (PalaverError, HTTPException) as error:
            if not has_begun:
                raise
            words = str(error.detail) if isinstance(error, HTTPException) else str(error)
            yield line({"error": {"message": words, "type": "server_error", "param": None, "code": None}})
            return
        yield telling.piece({"role": "assistant", "content": grown.rest(outcome.content)})
        for piece in telling.ending(outcome, reply, usage=self.wants_usage):
            yield piece

    async def _growing(self, waiter: PendingReply, grown: Grown) -> AsyncIterator[str]:
        now = asyncio.get_running_loop().time
        asked = now()
        while not waiter.is_settled:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT):
                    await waiter.changed.wait()
            waiter.changed.clear()
            if now() - asked >= HEARTBEAT:
                await self.speaking.refuse_revoked()
                asked = now()
            if more := grown.more(self.services.waiting.partial_texts(waiter)):
                yield more


def _headers(reply: Reply) -> dict[str, str]:
    session = {SESSION_HEADER: reply.turn.session} if reply.turn else {}
    return {"X-Palaver-Message": f"in:{reply.received.number}", **session}
