"""Pages for messages in and out, and for tracing one message."""

import re

from starlette.responses import Response

from palaver.commands.trace_steps import trace_steps, trace_title
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import BadArgument, InvalidInput, NotFound
from palaver.model.session import Principal
from palaver.model.turn import InboxState, OutboxState
from palaver.store.status.trace import NAMES, DeliveryTrace, InboundTrace, Trace
from palaver.web.pages.common import answer_action, parse_number, query_value, read_form, show_page, with_query
from palaver.web.routes import WebRequest, action, page

_PAGE_SIZE = 50
_MAX_NAME_LENGTH = 500
_FILTERS = {
    "": ((), ()),
    "open": (
        (InboxState.WAITING, InboxState.IN_TURN, InboxState.RELAY),
        (OutboxState.DUE, OutboxState.CLAIMED, OutboxState.SENDING),
    ),
    "problems": ((InboxState.FAILED, InboxState.REFUSED), (OutboxState.DEAD, OutboxState.UNCLEAR)),
}
_FILTER_CHOICES = [("", "everything"), ("open", "unsettled"), ("problems", "problems")]
_SETTLE_STATES = {"delivered": OutboxState.DELIVERED, "again": OutboxState.DUE}
_OUTBOX_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


@page("/messages")
async def messages(request: WebRequest) -> Response:
    wanted, before = query_value(request, "show"), parse_number(query_value(request, "before"))
    inbox_states, outbox_states = _FILTERS.get(wanted, _FILTERS[""])
    lists = request.store.overview

    @transaction
    def read(principal: Principal) -> Statements[tuple[list[InboundTrace], list[DeliveryTrace]]]:
        inbound = yield from lists.list_inbound(principal, states=inbox_states, before=before, limit=_PAGE_SIZE)
        outbound = yield from lists.list_outbound(principal, states=outbox_states, limit=_PAGE_SIZE)
        return inbound, outbound

    inbound, outbound = await request.read(read)
    return show_page(
        request,
        "messages.html",
        inbound=inbound,
        outbound=outbound,
        is_newest=before is None,
        older=with_query(request, before=inbound[-1].number) if len(inbound) == _PAGE_SIZE else None,
        wanted=wanted,
        choices=_FILTER_CHOICES,
        names=NAMES,
    )


@page("/trace")
async def trace(request: WebRequest) -> Response:
    name, found, problem = query_value(request, "name")[:_MAX_NAME_LENGTH], list[Trace](), ""
    try:
        found = await request.browse(lambda who: request.store.trace.find_traces(name, who)) if name else []
    except (NotFound, InvalidInput) as error:
        problem = str(error)
    epochs = request.store.epochs
    traces = [(trace_title(trace), trace_steps(trace, request.now, epochs), _unclear(trace)) for trace in found]
    return show_page(request, "trace.html", name=name, traces=traces, problem=problem, names=NAMES)


@action("/sends/{number}/settle", owner_only=True)
async def settle(request: WebRequest) -> Response:
    """Record what only a person can know: whether a send arrived."""
    outcome, number = (await read_form(request)).get("how", ""), request.path["number"]
    if not _OUTBOX_NUMBER.fullmatch(number):
        raise NotFound("send", number)
    if outcome not in _SETTLE_STATES:
        allowed = ", ".join(_SETTLE_STATES)
        raise BadArgument("A send cannot be settled as", found=outcome, allowed=allowed, example="delivered")
    resolve = request.store.outbox.settle_unclear(int(number), _SETTLE_STATES[outcome], request.now)
    if not await request.store.transact(resolve):
        raise NotFound("unclear send", request.store.epochs.send(int(number)))
    return answer_action(request, "Settled.", f"/trace?name={request.store.epochs.send(int(number))}")


def _unclear(trace: Trace) -> list[int]:
    return [item.delivery.number for item in trace.deliveries if item.delivery.state is OutboxState.UNCLEAR]


ROUTES = (messages, trace, settle)
