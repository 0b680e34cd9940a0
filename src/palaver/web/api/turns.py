"""The API: turns in flight, and what they wait for."""

import re

from palaver.db.transaction import Statements, transaction
from palaver.model.access import AccessRole
from palaver.model.errors import NotFound
from palaver.model.lifecycle import TurnState
from palaver.model.session import Principal
from palaver.store.people.api_tokens import Right
from palaver.store.results import Decision
from palaver.store.status.overview import OpenTurn
from palaver.store.store import Store
from palaver.web.api.endpoints import Ask, Endpoint, Schema
from palaver.web.api.schemas import CallSchema, Limit, Moment
from palaver.web.authorization import entitled
from palaver.web.caller import principal_of

__all__ = ["ENDPOINTS", "DecisionSchema", "DoneSchema", "FlightSchema", "FlightsSchema"]

_NAME = re.compile(r"turn:([0-9]{1,18})", re.ASCII)


class FlightSchema(Schema, frozen=True, kw_only=True):
    id: str
    session: str
    title: str | None
    state: TurnState
    started: Moment
    attempt: int
    stop: str | None
    """Who asked it to stop, and when."""
    asks: CallSchema | None
    """What it waits for leave for."""
    question: str | None
    """The name of that, for the answer."""
    waiting: int
    """How many messages wait behind it."""


class FlightsSchema(Schema, frozen=True, kw_only=True):
    turns: list[FlightSchema]


class _TurnsQuery(Schema, frozen=True, kw_only=True):
    session: str | None = None
    limit: Limit = 100


class DecisionSchema(Schema, frozen=True, kw_only=True):
    allow: bool
    question: str
    """As the turn names it: where something else is asked by now, nothing is done."""


class DoneSchema(Schema, frozen=True, kw_only=True):
    done: bool
    """False where there was nothing to do any more."""


def _shape(flight: OpenTurn) -> FlightSchema:
    turn, asked = flight.turn, flight.asked
    return FlightSchema(
        id=f"turn:{turn.number}",
        session=turn.session,
        title=flight.session.title,
        state=turn.state,
        started=turn.started,
        attempt=turn.attempt,
        stop=flight.stop,
        asks=CallSchema(id=asked.id, name=asked.name, arguments=asked.arguments) if asked else None,
        question=flight.question,
        waiting=flight.waiting,
    )


async def _listed(ask: Ask, *states: TurnState) -> FlightsSchema:
    overview, query = ask.services.store.overview, ask.query
    found = await ask.services.read(
        ask.caller, lambda principal: overview.list_open_turns(principal, query.limit, query.session, states=states)
    )
    return FlightsSchema(turns=[_shape(each) for each in found])


async def _list(ask: Ask) -> FlightsSchema:
    return await _listed(ask)


async def _approvals(ask: Ask) -> FlightsSchema:
    return await _listed(ask, TurnState.PARKED)


def _named(store: Store, principal: Principal, name: str) -> Statements[OpenTurn]:
    number = _NAME.fullmatch(name)
    found = (yield from store.overview.list_open_turns(principal, 1, number=int(number[1]))) if number else []
    if not found:
        raise NotFound("turn in flight", name)
    return found[0]


async def _stop(ask: Ask) -> DoneSchema:
    store, now = ask.services.store, ask.services.clock.now()

    @transaction
    def stop() -> Statements[bool]:
        principal = yield from principal_of(ask.caller, store)
        flight = yield from _named(store, principal, ask.path["id"])
        yield from entitled(ask.services, principal, flight.turn.session, "stop")
        if flight.turn.state is TurnState.PARKED:
            decided = yield from store.turn_control.answer_question(flight.turn.key, now, principal, allowed=False)
            return decided is Decision.DONE
        return (yield from store.turn_control.request_stop(flight.turn.key, now, by=principal.name))

    return DoneSchema(done=await store.transact(stop()))


async def _decide(ask: Ask) -> DoneSchema:
    store, now = ask.services.store, ask.services.clock.now()

    @transaction
    def decide() -> Statements[bool]:
        principal = yield from principal_of(ask.caller, store)
        flight = yield from _named(store, principal, ask.path["id"])
        body = ask.body
        there = yield from entitled(ask.services, principal, flight.turn.session, "approve" if body.allow else "deny")
        decider = Principal.operator() if there.role >= AccessRole.ADMIN else principal
        decided = yield from store.turn_control.answer_question(
            flight.turn.key, now, decider, allowed=body.allow, question=body.question
        )
        return decided is Decision.DONE

    return DoneSchema(done=await store.transact(decide()))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/turns",
        does=_list,
        asks=_TurnsQuery,
        gives=FlightsSchema,
        summary="Turns that have not ended, the oldest first",
    ),
    Endpoint(
        method="POST",
        path="/turns/{id}/stop",
        does=_stop,
        gives=DoneSchema,
        needs=Right.MANAGE,
        summary="Stop a turn; what it asked is denied",
    ),
    Endpoint(
        method="GET",
        path="/approvals",
        does=_approvals,
        asks=_TurnsQuery,
        gives=FlightsSchema,
        summary="Turns that wait until a person allows something",
    ),
    Endpoint(
        method="POST",
        path="/approvals/{id}",
        does=_decide,
        takes=DecisionSchema,
        example={"allow": True, "question": "12-1"},
        gives=DoneSchema,
        needs=Right.MANAGE,
        summary="Allow or deny what a turn asks",
    ),
)
