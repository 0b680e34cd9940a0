"""The table of the API: what answers where, what it takes and gives; served and described from the same lines."""

import difflib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from datetime import datetime
from enum import Enum
from typing import Any, get_args, get_type_hints

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.model.errors import BadArgument, PalaverError
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.store.people.api_tokens import Right
from palaver.web.auth_middleware import caller_of
from palaver.web.bodies import SMALL
from palaver.web.caller import Caller
from palaver.web.errors import problem
from palaver.web.routes import check
from palaver.web.services import Services

__all__ = [
    "PREFIX",
    "Ask",
    "Endpoint",
    "Later",
    "Schema",
    "body_of",
    "checked",
    "converted",
    "route_of",
]

PREFIX = "/api/v1"
_JSON = "application/json"
_AT = re.compile(r" - at `\$\.([^`]+)`$")
_AROUND = re.compile(r"^(?:Expected|Invalid) |,? got .*$| - at .*$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_LONGEST = 300


class Schema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is taken or given as JSON."""


@value
class Ask:
    """One request, read and checked."""

    services: Services
    caller: Caller
    request: Request
    path: Mapping[str, Any]
    query: Any
    """An instance of what the endpoint asks; the same holds for `body` and what it takes."""
    body: Any


@value(kw_only=False)
class Later:
    """What is told once something came of it. Until then nothing is held of what the request brought."""

    tells: Callable[[], Awaitable[object]]


@value
class Endpoint:
    method: str
    path: str
    """Below `/api/v1`; parts in braces are text, or whole numbers with `:int`."""
    does: Callable[[Ask], Awaitable[object]]
    """Gives what is told, as `gives` says, or a whole response; now or later."""
    gives: Any
    """A type; None for what is no JSON, or nothing at all."""
    summary: str
    needs: Right | None = Right.READ
    """None for what any key may ask."""
    for_owner: bool = False
    """It is about the gateway, and not about anybody's own conversations."""
    asks: type[Schema] | None = None
    takes: type[Schema] | None = None
    example: Mapping[str, object] = field(default_factory=dict[str, object])
    """A body that is taken."""
    with_files: bool = False
    """A body may bring files, and be as large as they are."""
    status: int = 200
    media_type: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers that count, and what they mean."""

    @property
    def scope(self) -> str:
        return self.needs.value if self.needs else "any"


def route_of(endpoint: Endpoint, services: Services) -> Route:
    async def answer(request: Request) -> Response:
        try:
            told = await _done(endpoint, services, request)
            if isinstance(told, Later):
                told = await told.tells()
        except (PalaverError, HTTPException) as error:
            return problem(request.url.path, error)
        if isinstance(told, Response):
            return told
        return body_of(told, endpoint.status)

    return Route(PREFIX + endpoint.path, answer, methods=[endpoint.method])


def body_of(told: object, status: int) -> Response:
    return Response(msgspec.json.encode(told), status_code=status, media_type=_JSON)


def checked(endpoint: Endpoint, caller: Caller) -> None:
    """Raises where the visitor may not do this."""
    check(caller, endpoint.needs, for_owner=endpoint.for_owner)


async def _done(endpoint: Endpoint, services: Services, request: Request) -> object:
    caller = caller_of(request)
    checked(endpoint, caller)
    query = _query(endpoint, request)
    async with _body(endpoint, services, request) as body:
        ask = Ask(services=services, caller=caller, request=request, path=request.path_params, query=query, body=body)
        return await endpoint.does(ask)


def _query(endpoint: Endpoint, request: Request) -> Schema | None:
    given, shape = request.query_params, endpoint.asks or Schema
    names = shape.__struct_fields__
    example = "?limit=20" if "limit" in names else f"?{names[0]}=…" if names else request.url.path
    twice = [name for name in given if len(given.getlist(name)) > 1]
    if twice:
        raise BadArgument("A parameter is given twice:", found=twice[0], allowed="each once", example=example)
    return _from_text(shape, dict(given), example)


@asynccontextmanager
async def _body(endpoint: Endpoint, services: Services, request: Request) -> AsyncGenerator[Schema | None]:
    if endpoint.takes is None:
        yield None
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise HTTPException(415, f"A body is {_JSON} here; add the header Content-Type: {_JSON}.")
    options, example = services.engine.options, msgspec.json.encode(endpoint.example).decode()
    async with services.bodies.read(request.stream(), options, with_files=endpoint.with_files) as content:
        yield _decoded(content, endpoint.takes, example)


def _decoded(content: bytearray, shape: type[Schema], example: str) -> Schema:
    try:
        return msgspec.json.decode(content, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(shape, error, example, _plain(content)) from error


def _plain(content: bytearray) -> Mapping[str, Any]:
    """As it is written, where that is little."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(content[:SMALL], type=dict[str, Any])
    return {}


def _from_text(shape: type[Schema], given: Mapping[str, str], example: str) -> Schema:
    try:
        found = msgspec.convert(given, shape, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(shape, error, example, given) from error
    # Read once more as they are written: the word null is never nothing, and a number is no time.
    texts = {name: text for name, text in given.items() if isinstance(getattr(found, name), datetime | None)}
    return converted(shape, {**msgspec.structs.asdict(found), **texts}, example)


def converted(shape: type[Schema], given: Mapping[str, Any], example: str) -> Schema:
    try:
        return msgspec.convert(given, shape)
    except msgspec.ValidationError as error:
        raise _wrong(shape, error, example, given) from error


def _wrong(shape: type[Schema], error: Exception, example: str, given: Mapping[str, Any]) -> BadArgument:
    """What is wrong with it; a field that does not exist may have been meant for one that does."""
    said, fields = str(error), shape.__struct_fields__
    allowed = ", ".join(fields) or "nothing"
    if found := _UNKNOWN.match(said):
        close = difflib.get_close_matches(found[1][:_LONGEST], fields, n=1)
        meant = f"{close[0]}, perhaps; there are: {allowed}" if close else allowed
        return BadArgument("There is no field", found=found[1][:_LONGEST], allowed=meant, example=example)
    if found := _MISSING.fullmatch(said):
        return BadArgument("There has to be a field", found=found[1], allowed=allowed, example=example)
    if (at := _AT.search(said)) is None:
        return BadArgument("This is not right:", found=one_line(said, _LONGEST), allowed=allowed, example=example)
    name = at[1]
    value = one_line(str(given[name]), _LONGEST) if name in given else name
    return BadArgument(f"{name} cannot be", found=value, allowed=_values(shape, name) or _kind(said), example=example)


def _kind(said: str) -> str:
    """What a field takes, by what was said of one that is wrong: ``Expected `int`, got `str` - at `$.limit```."""
    return one_line(_AROUND.sub("", said).replace("`", ""), _LONGEST)


def _values(shape: type[Schema], name: str) -> str:
    """What a field takes, where that can be counted up, or has two ends."""
    hints = _parts(get_type_hints(shape, include_extras=True).get(name))
    kinds = [kind for kind in hints if isinstance(kind, type) and issubclass(kind, Enum)]
    ranges = [f"{each.ge} to {each.le}" for each in hints if isinstance(each, msgspec.Meta) and each.le is not None]
    return ", ".join([*(str(member.value) for kind in kinds for member in kind), *ranges])


def _parts(hint: object) -> list[object]:
    return [hint, *(part for each in get_args(hint) for part in _parts(each))]
