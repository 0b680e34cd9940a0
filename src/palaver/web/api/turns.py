"""API endpoints for open turns, and the approvals and answers they wait for."""

import re
from typing import Annotated

from msgspec import Meta

from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument, NotFound
from palaver.model.session import Principal
from palaver.model.transcript import Sender
from palaver.model.turn import TurnState
from palaver.operations.operation import Limit, Schema, Timestamp, fill
from palaver.store.people.api_tokens import Right
from palaver.store.results import Decision, Words
from palaver.store.status.overview import OpenTurn
from palaver.store.store import Store
from palaver.web.api.endpoints import endpoint
from palaver.web.api.schemas import CallSchema, call_schema
from palaver.web.routes import WebRequest

_TURN_ID = re.compile(r"turn:([0-9]{1,18})", re.ASCII)


class TurnSchema(Schema, frozen=True, kw_only=True):
    id: str
    session: str
    title: str | None
    state: TurnState
    started: Timestamp
    attempt: int
    stop: str | None
    """Who asked it to stop, and when."""
    asks: CallSchema | None
    """The tool call that needs approval, or asks something in words."""
    choices: list[str] | None
    """The answers to choose from, if it asks in words; null if it needs approval."""
    question: str | None
    """The id of that question, to answer it."""
    waiting: int
    """How many messages wait behind it."""


class TurnsSchema(Schema, frozen=True, kw_only=True):
    turns: list[TurnSchema]


class _TurnsQuery(Schema, frozen=True, kw_only=True):
    session: str | None = None
    limit: Limit = 100


def _turn_schema(item: OpenTurn) -> TurnSchema:
    return fill(
        TurnSchema,
        item.turn,
        id=f"turn:{item.turn.number}",
        title=item.session.title,
        stop=item.stop,
        asks=item.asked and call_schema(item.asked),
        choices=list(item.wants.choices) if item.wants else None,
        question=item.question,
        waiting=item.waiting,
    )


async def _list(request: WebRequest, query: _TurnsQuery, *states: TurnState) -> TurnsSchema:
    find = request.store.overview.list_open_turns
    found = await request.read(lambda principal: find(principal, query.limit, query.session, states=states))
    return TurnsSchema(turns=[_turn_schema(item) for item in found if not states or item.question])


@endpoint("GET", "/turns", summary="List open turns, oldest first")
async def list_turns(request: WebRequest, query: _TurnsQuery) -> TurnsSchema:
    return await _list(request, query)


@endpoint("GET", "/approvals", summary="List turns that are waiting for approval or for an answer")
async def list_approvals(request: WebRequest, query: _TurnsQuery) -> TurnsSchema:
    return await _list(request, query, TurnState.PARKED)


def _find(store: Store, principal: Principal, name: str) -> Statements[OpenTurn]:
    number = _TURN_ID.fullmatch(name)
    found = (yield from store.overview.list_open_turns(principal, 1, number=int(number[1]))) if number else []
    if not found:
        raise NotFound("open turn", name)
    return found[0]


class DoneSchema(Schema, frozen=True, kw_only=True):
    done: bool
    """False if there was nothing left to do."""


@endpoint("POST", "/turns/{id}/stop", summary="Stop a turn; deny what it asks for", needs=Right.MANAGE)
async def stop_turn(request: WebRequest) -> DoneSchema:
    store, now = request.store, request.now

    @transaction
    def stop(principal: Principal) -> Statements[bool]:
        item = yield from _find(store, principal, request.path["id"])
        yield from request.check_command(principal, item.turn.session, "stop")
        if item.waits_for_client:
            error = "stopped instead of an answer"
            return (
                yield from store.turn_control.abandon_parked(
                    item.turn.key, now, note=texts.STOPPED_NOTE, error=error, by=principal.name
                )
            )
        if item.turn.state is TurnState.PARKED:
            decided = yield from store.turn_control.answer_question(item.turn.key, now, principal, answer=False)
            return decided is Decision.DONE
        return (yield from store.turn_control.request_stop(item.turn.key, now, by=principal.name))

    return DoneSchema(done=await request.write(stop))


class DecisionSchema(Schema, frozen=True, kw_only=True):
    allow: bool | None = None
    """Needed unless you give an answer."""
    answer: Annotated[str, Meta(min_length=1)] | None = None
    """For a question in words: the number or text of a choice, or your own words."""
    question: str
    """The `question` of the turn. If it asks something else by now, nothing happens."""


@endpoint(
    "POST",
    "/approvals/{id}",
    summary="Approve, deny or answer what a turn asks for",
    needs=Right.MANAGE,
    example={"allow": True, "question": "12-1"},
)
async def decide(request: WebRequest, body: DecisionSchema) -> DoneSchema:
    store, now = request.store, request.now

    if body.allow is None and body.answer is None:
        raise BadArgument("A decision has", found="neither", allowed="allow or answer", example='"allow": true')

    @transaction
    def answer(principal: Principal) -> Statements[bool]:
        item = yield from _find(store, principal, request.path["id"])
        is_answer = body.allow is not False and body.answer is not None
        command = "answer" if is_answer else "approve" if body.allow else "deny"
        there = yield from request.check_command(principal, item.turn.session, command)
        sender = None if principal.sees_all else Sender(id=there.source.participant)
        verdict = Words(body.answer or "", sender) if is_answer else body.allow is True
        decider = Principal.operator() if there.role >= AccessRole.ADMIN else principal
        decided = yield from store.turn_control.answer_question(
            item.turn.key, now, decider, answer=verdict, question=body.question
        )
        return decided is Decision.DONE

    return DoneSchema(done=await request.write(answer))


ENDPOINTS = (list_turns, stop_turn, list_approvals, decide)
