"""Messages in and out, and what became of each."""

import re

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.commands.formatting import steps_of, title_of
from palaver.db.transaction import Statements, transaction
from palaver.model.errors import InvalidInput, NotFound
from palaver.model.lifecycle import InboxState, OutboxState
from palaver.model.session import Principal
from palaver.store.status.trace import NAMES, DeliveryTrace, InboundTrace, Trace
from palaver.web.caller import Caller
from palaver.web.http import number
from palaver.web.pages.base import Link
from palaver.web.pages.parts import asked, done, form_of, keep_query, show
from palaver.web.routes import deed, page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="Messages", path="/messages", place=40)
_PAGE = 50
_SHOWN = {
    "": ((), ()),
    "open": ((InboxState.WAITING, InboxState.IN_TURN), (OutboxState.DUE, OutboxState.CLAIMED)),
    "problems": ((InboxState.FAILED, InboxState.REFUSED), (OutboxState.DEAD, OutboxState.UNCLEAR)),
}
_CHOICES = [("", "everything"), ("open", "what is not settled"), ("problems", "what went wrong")]
_SETTLED = {"delivered": OutboxState.DELIVERED, "again": OutboxState.DUE}


def routes(services: Services) -> list[Route]:
    async def messages(request: Request, caller: Caller) -> Response:
        wanted, before = asked(request, "show"), asked(request, "before")
        states = _SHOWN.get(wanted, _SHOWN[""])
        last = number(before)

        @transaction
        def looked(principal: Principal) -> Statements[tuple[list[InboundTrace], list[DeliveryTrace]]]:
            came = yield from services.store.overview.list_inbound(
                principal, states=states[0], before=last, limit=_PAGE
            )
            went = yield from services.store.overview.list_outbound(principal, states=states[1], limit=_PAGE)
            return came, went

        came, went = await services.read(caller, looked)
        return show(
            services,
            request,
            "messages.html",
            caller,
            came=came,
            went=[] if last else went,
            is_newest=last is None,
            older=keep_query(request, before=came[-1].number) if len(came) == _PAGE else None,
            wanted=wanted,
            choices=_CHOICES,
            names=NAMES,
        )

    async def trace(request: Request, caller: Caller) -> Response:
        name, now = asked(request, "name")[:500], services.clock.now()
        found, problem = await _told(services, caller, name) if name else ([], "")
        stories = [(title_of(trace), steps_of(trace, now), _unclear(trace)) for trace in found]
        return show(services, request, "trace.html", caller, name=name, stories=stories, problem=problem, names=NAMES)

    async def settle(request: Request, caller: Caller) -> Response:
        """What only a person can know: whether a send arrived."""
        how, number = str((await form_of(request)).get("how", "")), request.path_params["number"]
        if not _NUMBER.fullmatch(number):
            raise NotFound("send", number)
        if how not in _SETTLED or not caller.is_owner:
            raise HTTPException(403, "The owner settles a send, as delivered or again.")
        resolve = services.store.outbox.settle_unclear(int(number), _SETTLED[how], services.clock.now())
        if not await services.store.transact(resolve):
            raise NotFound("unclear send", f"out:{number}")
        return done(request, "Settled.", f"/trace?name=out:{number}")

    return [page("/messages", messages), page("/trace", trace), deed("/sends/{number}/settle", settle)]


async def _told(services: Services, caller: Caller, name: str) -> tuple[list[Trace], str]:
    """What became of it, or why that cannot be told."""
    try:
        return await services.read(caller, lambda principal: services.store.trace.find_traces(name, principal)), ""
    except (NotFound, InvalidInput) as error:
        return [], str(error)


_NUMBER = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def _unclear(trace: Trace) -> list[int]:
    return [each.delivery.number for each in trace.deliveries if each.delivery.state is OutboxState.UNCLEAR]
