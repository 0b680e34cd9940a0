"""Search: words that were said in conversations that the visitor may see, with what stands around them."""

from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.model.errors import InvalidInput
from palaver.model.transcript import Role
from palaver.store.search.search import SPOKEN_ROLES, Hit, Order, SearchFilter
from palaver.web.caller import Caller
from palaver.web.http import number
from palaver.web.pages.base import Link
from palaver.web.pages.parts import asked, keep_query, principal, show
from palaver.web.routes import page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="Search", path="/search", place=20)
_PAGE, _MOST = 20, 200
_LONGEST = 400
_DAYS = {"1": "the last day", "7": "the last week", "30": "the last month", "365": "the last year"}
_ROLES = {"": "what was said", **{role.value: role.value for role in Role}, "any": "everything"}
_FIELDS = ("q", "platform", "person", "role", "days", "order")


def routes(services: Services) -> list[Route]:
    async def search(request: Request, caller: Caller) -> Response:
        words, limit = asked(request, "q")[:_LONGEST], _limit(request)
        hits, problem = list[Hit](), ""
        if words:
            try:
                hits = await services.store.search.find(
                    words,
                    await principal(services, caller),
                    filter=_filter(request, services.clock.now()),
                    order=Order.BEST if asked(request, "order") == Order.BEST else Order.NEWEST,
                    limit=limit,
                    neighbours=1,
                )
            except InvalidInput as error:
                problem = str(error)
        return show(
            services,
            request,
            "search.html",
            caller,
            words=words,
            hits=[(hit, list(_pieces(hit))) for hit in hits],
            problem=problem,
            more=keep_query(request, limit=min(limit * 2, _MOST)) if len(hits) == limit < _MOST else None,
            asked={name: asked(request, name) for name in _FIELDS},
            platforms=sorted(services.platforms),
            roles=list(_ROLES.items()),
            days=[("", "any time"), *_DAYS.items()],
            orders=[(Order.NEWEST.value, "newest first"), (Order.BEST.value, "best first")],
        )

    return [page("/search", search)]


def _limit(request: Request) -> int:
    limit = number(asked(request, "limit"))
    return _PAGE if limit is None else max(1, min(limit, _MOST))


def _filter(request: Request, now: datetime) -> SearchFilter:
    role, person, days = asked(request, "role"), asked(request, "person"), asked(request, "days")
    return SearchFilter(
        platform=asked(request, "platform").lower() or None,
        people=frozenset({person} if person else ()),
        roles=_roles(role),
        since=now - timedelta(days=int(days)) if days in _DAYS else None,
    )


def _roles(name: str) -> frozenset[Role]:
    if name == "any":
        return frozenset()
    return frozenset({Role(name)}) if name in set(Role) else SPOKEN_ROLES


def _pieces(hit: Hit) -> list[tuple[str, bool]]:
    """The snippet in pieces, each marked or not."""
    pieces: list[tuple[str, bool]] = []
    at = 0
    for start, end in hit.marks:
        pieces += [(hit.snippet[at:start], False), (hit.snippet[start:end], True)]
        at = end
    return [piece for piece in (*pieces, (hit.snippet[at:], False)) if piece[0]]
