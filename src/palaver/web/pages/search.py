"""The search page: find text in the sessions a caller can see, with the entries around each hit."""

from datetime import datetime, timedelta
from functools import partial

from starlette.responses import Response

from palaver.model.errors import InvalidInput
from palaver.model.transcript import Role
from palaver.store.search.search import SPOKEN_ROLES, Hit, Order, SearchFilter
from palaver.web.pages.common import (
    list_names,
    parse_number,
    person_choices,
    platform_choices,
    platform_name,
    query_value,
    show_page,
    with_query,
)
from palaver.web.routes import WebRequest, page

_PAGE_SIZE, _MAX_HITS = 20, 200
_MAX_QUERY_LENGTH = 400
_DAYS = {"1": "the last day", "7": "the last week", "30": "the last month", "365": "the last year"}
_ROLES = {"": "messages", **{role.value: role.value for role in Role}, "any": "everything"}
_FIELDS = ("q", "platform", "person", "role", "days", "order")


@page("/search")
async def search(request: WebRequest) -> Response:
    fields = {name: query_value(request, name) for name in _FIELDS}
    words, limit = fields["q"][:_MAX_QUERY_LENGTH], _limit(request)
    hits, problem = list[Hit](), ""
    if words:
        try:
            hits = await request.store.search.find(
                words,
                await request.principal(),
                filter=_filter(fields, request.now),
                order=Order(fields["order"]) if fields["order"] in set(Order) else None,
                limit=limit,
                neighbours=1,
            )
        except InvalidInput as error:
            problem = str(error)
    sessions = [hit.session for hit in hits]
    return show_page(
        request,
        "search.html",
        titles=await request.store.read(request.store.session_list.name_sessions(sessions)),
        platform_title=partial(platform_name, request),
        words=words,
        hits=[(hit, _pieces(hit)) for hit in hits],
        problem=problem,
        more=with_query(request, limit=min(limit * 2, _MAX_HITS)) if len(hits) == limit < _MAX_HITS else None,
        fields=fields,
        platforms=platform_choices(request, fields["platform"].lower()),
        people=person_choices(await list_names(request), fields["person"]),
        roles=list(_ROLES.items()),
        days=[("", "any time"), *_DAYS.items()],
        orders=[("", "what fits"), (Order.NEWEST.value, "newest first"), (Order.BEST.value, "best first")],
    )


def _limit(request: WebRequest) -> int:
    limit = parse_number(query_value(request, "limit"))
    return _PAGE_SIZE if limit is None else max(1, min(limit, _MAX_HITS))


def _filter(fields: dict[str, str], now: datetime) -> SearchFilter:
    person, days = fields["person"], fields["days"]
    return SearchFilter(
        platform=fields["platform"].lower() or None,
        people=frozenset({person} if person else ()),
        roles=_roles(fields["role"]),
        since=now - timedelta(days=int(days)) if days in _DAYS else None,
    )


def _roles(name: str) -> frozenset[Role]:
    if name == "any":
        return frozenset()
    return frozenset({Role(name)}) if name in set(Role) else SPOKEN_ROLES


def _pieces(hit: Hit) -> list[tuple[str, bool]]:
    """Cut the snippet into pieces, each marked or not."""
    pieces: list[tuple[str, bool]] = []
    position = 0
    for start, end in hit.marks:
        pieces += [(hit.snippet[position:start], False), (hit.snippet[start:end], True)]
        position = end
    return [piece for piece in (*pieces, (hit.snippet[position:], False)) if piece[0]]


ROUTES = (search,)
