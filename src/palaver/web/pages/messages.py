"""Pages for messages in and out, and for tracing one message."""

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.commands.formatting import trace_steps, trace_title
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import BadArgument, InvalidInput, NotFound
from palaver.model.session import Principal
from palaver.model.turn import InboxState, OutboxState
from palaver.store.status.trace import NAMES, DeliveryTrace, InboundTrace, Trace
from palaver.web.caller import Caller
from palaver.web.pages.common import (
    Link,
    answer_action,
    parse_number,
    query_value,
    read_form,
    show_page,
    with_query,
)
from palaver.web.routes import action, page
from palaver.web.services import Services

LINKS = (Link(title="Messages", path="/messages", order=40),)
_PAGE_SIZE = 50
_MAX_NAME_LENGTH = 500
_FILTERS = {
    "": ((), ()),
    "open": ((InboxState.WAITING, InboxState.IN_TURN), (OutboxState.DUE, OutboxState.CLAIMED)),
    "problems": ((InboxState.FAILED, InboxState.REFUSED), (OutboxState.DEAD, OutboxState.UNCLEAR)),
}
_FILTER_CHOICES = [("", "everything"), ("open", "unsettled"), ("problems", "problems")]
_SETTLE_STATES = {"delivered": OutboxState.DELIVERED, "again": OutboxState.DUE}
_OUTBOX_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def routes(services: Services) -> list[Route]:
    store = services.store

    async def messages(request: Request, caller: Caller) -> Response:
        wanted, before = query_value(request, "show"), parse_number(query_value(request, "before"))
        inbox_states, outbox_states = _FILTERS.get(wanted, _FILTERS[""])

        @transaction
        def read(principal: Principal) -> Statements[tuple[list[InboundTrace], list[DeliveryTrace]]]:
            inbound = yield from store.overview.list_inbound(
                principal, states=inbox_states, before=before, limit=_PAGE_SIZE
            )
            outbound = yield from store.overview.list_outbound(principal, states=outbox_states, limit=_PAGE_SIZE)
            return inbound, outbound

        inbound, outbound = await services.read(caller, read)
        return show_page(
            services,
            request,
            "messages.html",
            caller,
            inbound=inbound,
            outbound=outbound,
            is_newest=before is None,
            older=with_query(request, before=inbound[-1].number) if len(inbound) == _PAGE_SIZE else None,
            wanted=wanted,
            choices=_FILTER_CHOICES,
            names=NAMES,
        )

    async def trace(request: Request, caller: Caller) -> Response:
        name, now = query_value(request, "name")[:_MAX_NAME_LENGTH], services.clock.now()
        found, problem = await _find_traces(services, caller, name) if name else ([], "")
        traces = [(trace_title(trace), trace_steps(trace, now), _unclear(trace)) for trace in found]
        return show_page(
            services, request, "trace.html", caller, name=name, traces=traces, problem=problem, names=NAMES
        )

    async def settle(request: Request, _: Caller) -> Response:
        """Record what only a person can know: whether a send arrived."""
        outcome, number = str((await read_form(request)).get("how", "")), request.path_params["number"]
        if not _OUTBOX_NUMBER.fullmatch(number):
            raise NotFound("send", number)
        if outcome not in _SETTLE_STATES:
            allowed = ", ".join(_SETTLE_STATES)
            raise BadArgument("A send cannot be settled as", found=outcome, allowed=allowed, example="delivered")
        resolve = store.outbox.settle_unclear(int(number), _SETTLE_STATES[outcome], services.clock.now())
        if not await store.transact(resolve):
            raise NotFound("unclear send", f"out:{number}")
        return answer_action(request, "Settled.", f"/trace?name=out:{number}")

    return [
        page("/messages", messages),
        page("/trace", trace),
        action("/sends/{number}/settle", settle, owner_only=True),
    ]


async def _find_traces(services: Services, caller: Caller, name: str) -> tuple[list[Trace], str]:
    """Return the traces, or why there are none."""
    try:
        return await services.read(caller, lambda principal: services.store.trace.find_traces(name, principal)), ""
    except (NotFound, InvalidInput) as error:
        return [], str(error)


def _unclear(trace: Trace) -> list[int]:
    return [item.delivery.number for item in trace.deliveries if item.delivery.state is OutboxState.UNCLEAR]
