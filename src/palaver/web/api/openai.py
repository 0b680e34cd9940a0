"""The endpoint for clients of OpenAI's: /v1/chat/completions, bound to conversations, and /v1/models."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from palaver.domain.errors import BadArgument, PalaverError
from palaver.domain.turn import Received
from palaver.engine.waitingroom import Waiter
from palaver.ports.answers import Reply
from palaver.ports.window import Right
from palaver.ports.work import Steps, work
from palaver.web.access.visitor import Visitor, principal_of
from palaver.web.api.messages import KEY_HEADER, key_of
from palaver.web.desk import Desk
from palaver.web.openai.answering import Grown, Telling, line, outcome_of
from palaver.web.openai.asked import MODEL, Asked, Read, read, request_of
from palaver.web.openai.finding import Finding
from palaver.web.routing import deed, page
from palaver.web.speaking import Said, Speaking

__all__ = ["SESSION_HEADER", "routes"]

SESSION_HEADER = "X-Palaver-Session"
_PATIENCE = 3600.0
"""Seconds; turns have a limit of their own, and a client goes when it likes."""
_CARD = {"id": MODEL, "object": "model", "created": 0, "owned_by": "palaver"}
_STREAM = {"cache-control": "no-store", "x-accel-buffering": "no"}


def routes(desk: Desk) -> list[Route]:
    async def complete(request: Request, visitor: Visitor) -> Response:
        content = await desk.bodies.read(request.stream(), desk.engine.options, with_files=True)
        return await _Completion.of(desk, visitor, request, request_of(content))

    async def models(_: Request, __: Visitor) -> Response:
        return JSONResponse({"object": "list", "data": [_CARD]})

    async def model(request: Request, _: Visitor) -> Response:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Completion:
    """One request. Whether its client stays or goes, the turn goes on to its end, and is in the conversation."""

    desk: Desk
    speaking: Speaking
    asked: Asked
    read: Read
    finding: Finding

    @staticmethod
    async def of(desk: Desk, visitor: Visitor, request: Request, asked: Asked) -> Response:
        _check_model(asked.model)
        said, speaking = read(asked), Speaking(desk, visitor)
        finding = Finding(
            speaking=speaking,
            read=said,
            key=key_of(request.headers.get(KEY_HEADER)),
            session=request.headers.get(SESSION_HEADER) or (asked.metadata or {}).get("session"),
            user=asked.user,
        )
        completion = _Completion(desk=desk, speaking=speaking, asked=asked, read=said, finding=finding)
        return await completion.answer(request)

    async def answer(self, request: Request) -> Response:
        received = await self._received()
        telling = Telling(number=received.number, created=int(received.received.timestamp()))
        if self.asked.stream:
            return await self._streamed(received, telling)
        reply = await self.speaking.reply(received.number, _PATIENCE, request.receive)
        outcome = outcome_of(reply, self.desk)
        return JSONResponse(telling.whole(outcome, reply), headers=_headers(reply))

    async def _received(self) -> Received:
        """The message that is answered: the one that is said now, was said before, or whose calls have results."""
        if self.read.results:
            return await self._continued()
        before = await self.finding.earlier()
        if before and (found := await self.speaking.earlier(before)):
            return found
        source, text = await self.finding.place()
        if not text.strip() and not self.read.files:
            raise BadArgument("There is nothing to say in", found=text, allowed="text or files", example="hello")
        await self.finding.leave_calls(source)
        files = [await self.speaking.keep(file.name, file.media_type, file.content) for file in self.read.files]
        return await self.speaking.say(source, Said(text=text, files=tuple(files), offers=self.read.offers, plain=True))

    async def _continued(self) -> Received:
        """The turn goes on from which the calls came. Given again, results change nothing."""
        for session in await self.finding.candidates():
            found = await self.desk.store.transact(_given(self, session.id))
            if found is not None:
                return found
        wrong = next(iter(self.read.results))
        raise BadArgument("Nothing waits for a result of the call", found=wrong, allowed="its last calls", example="")

    async def _streamed(self, received: Received, telling: Telling) -> Response:
        """It begins with the first word, so that what goes wrong before is told as what it is."""
        stream = self._pieces(received, telling)
        first = await anext(stream)

        async def pieces() -> AsyncIterator[bytes]:
            yield first
            async for piece in stream:
                yield piece

        return StreamingResponse(pieces(), media_type="text/event-stream", headers=_STREAM)

    async def _pieces(self, received: Received, telling: Telling) -> AsyncIterator[bytes]:
        grown, has_begun = Grown(), False
        with self.desk.waiting.waiting(received.number) as waiter:
            async for piece in self._growing(waiter, grown):
                has_begun = True
                yield telling.piece({"role": "assistant", "content": piece})
        try:
            reply = await self.speaking.reply(received.number)
            outcome = outcome_of(reply, self.desk)
        except (PalaverError, HTTPException) as error:
            if not has_begun:
                raise
            words = str(error.detail) if isinstance(error, HTTPException) else str(error)
            yield line({"error": {"message": words, "type": "server_error", "param": None, "code": None}})
            return
        yield telling.piece({"role": "assistant", "content": grown.rest(outcome.content)})
        for piece in telling.ending(outcome, reply, usage=self.asked.wants_usage):
            yield piece

    async def _growing(self, waiter: Waiter, grown: Grown) -> AsyncIterator[str]:
        while not waiter.is_settled:
            await waiter.news.wait()
            waiter.news.clear()
            if more := grown.more(self.desk.waiting.said(waiter)):
                yield more


def _headers(reply: Reply) -> dict[str, str]:
    session = {SESSION_HEADER: reply.turn.session} if reply.turn else {}
    return {"X-Palaver-Message": f"in:{reply.received.number}", **session}


@work
def _given(completion: _Completion, session: str) -> Steps[Received | None]:
    store, now = completion.desk.store, completion.desk.clock.now()
    results = completion.read.results
    principal = yield from principal_of(completion.speaking.visitor, store)
    for entry in reversed((yield from store.transcripts.load_visible(session, principal))):
        if entry.turn and results.keys() & {call.id for call in entry.calls}:
            yield from store.answers.give_results(int(entry.turn), results, now, principal)
            return (yield from store.answers.heard(int(entry.turn), principal))
    return None
