"""Declare an API endpoint with `@endpoint`: its function is served, described in OpenAPI and offered over MCP.

    @endpoint("GET", "/sessions", summary="List sessions, last used first")
    async def list_sessions(request: WebRequest, query: SessionsQuery) -> SessionsSchema: ...

A parameter `query` or `body` is decoded and checked by its type; the return type is the response. A function that
answers with something other than JSON returns a `Response`.
"""

import difflib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from datetime import datetime
from enum import Enum
from typing import Any, cast, get_args, get_type_hints

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.model.errors import BadArgument, PalaverError
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.operations.operation import Operation, Schema
from palaver.store.people.api_tokens import Right
from palaver.web.address import API_ROOT
from palaver.web.bodies import MAX_PLAIN_BYTES
from palaver.web.errors import error_response
from palaver.web.routes import WebRequest

_JSON = "application/json"
_MAX_QUOTED = 300


@value(kw_only=False)
class Deferred:
    """A response to wait for after the request's body has been released."""

    result: Callable[[], Awaitable[object]]


@value
class Endpoint:
    method: str
    path: str
    """Below `/api/v1`; a part in braces is text, or a whole number with `:int`."""
    handler: Callable[..., Awaitable[object]]
    summary: str
    needs: Right | None = Right.READ
    """None for what any key can do."""
    owner_only: bool = False
    for_senders: bool = False
    """A token that can only send can call it too, for what it sent."""
    query: type[Schema] | None
    body: type[Schema] | None
    response: type[Schema] | None
    """None if the response is not JSON."""
    example: Mapping[str, object] = field(default_factory=dict[str, object])
    with_files: bool = False
    """The body can contain files, and be as large as they are."""
    status: int = 200
    media_type: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Request headers that matter, with what they mean."""

    @property
    def scope(self) -> str:
        scope = self.needs.value if self.needs else "any"
        return f"{scope} or {Right.CHAT.value}" if self.for_senders else scope

    async def call(self, request: WebRequest, query: Schema | None, body: Schema | None) -> object:
        arguments = {"query": query if self.query else None, "body": body}
        return await self.handler(request, **{name: given for name, given in arguments.items() if given is not None})


def endpoint(method: str, path: str, **options: Any) -> Callable[[Callable[..., Awaitable[object]]], Endpoint]:  # noqa: ANN401
    """Declare an endpoint; the options are fields of `Endpoint`."""

    def declare(handler: Callable[..., Awaitable[object]]) -> Endpoint:
        hints: dict[str, Any] = get_type_hints(handler)
        returned = hints.get("return")
        found: dict[str, Any] = {
            "query": hints.get("query"),
            "body": hints.get("body"),
            "response": returned if isinstance(returned, type) and issubclass(returned, Schema) else None,
        }
        return Endpoint(method=method, path=path, handler=handler, **{**found, **options})

    return declare


def endpoint_of(operation: Operation[..., Any]) -> Endpoint:
    """Serve an operation: the parts of its path and what it asks for come from the request."""

    async def handle(request: WebRequest, query: Schema | None = None, body: Schema | None = None) -> Schema:
        asked = query or body
        found = await request.operate(operation, **request.path, **({"asked": asked} if asked else {}))
        return operation.form(found, request.store.epochs)

    reads = operation.method == "GET"
    return Endpoint(
        method=operation.method,
        path=operation.path,
        handler=handle,
        summary=operation.summary,
        needs=operation.needs,
        query=operation.asked if reads else None,
        body=None if reads else operation.asked,
        response=operation.answer,
        example=operation.example,
        status=operation.status,
    )


def route_of(endpoint: Endpoint) -> Route:
    async def answer(http: Request) -> Response:
        try:
            result = await _handle(endpoint, WebRequest(http))
            if isinstance(result, Deferred):
                result = await result.result()
        except (PalaverError, HTTPException) as error:
            return error_response(http.url.path, error)
        return result if isinstance(result, Response) else json_response(result, endpoint.status)

    return Route(API_ROOT + endpoint.path, answer, methods=[endpoint.method])


def json_response(content: object, status: int) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type=_JSON)


async def _handle(endpoint: Endpoint, request: WebRequest) -> object:
    can_send = endpoint.for_senders and request.caller.has(Right.CHAT)
    request.require(None if can_send else endpoint.needs, owner_only=endpoint.owner_only)
    query = _parse_query(endpoint, request.http)
    async with _read_body(endpoint, request) as body:
        return await endpoint.call(request, query, body)


def _parse_query(endpoint: Endpoint, http: Request) -> Schema:
    params, schema = http.query_params, endpoint.query or Schema
    names = schema.__struct_fields__
    example = "?limit=20" if "limit" in names else f"?{names[0]}=…" if names else http.url.path
    twice = [name for name in params if len(params.getlist(name)) > 1]
    if twice:
        problem, fix = "The parameter {found} is given twice", "Give it once."
        raise BadArgument(problem, found=twice[0], allowed="once", fix=fix, example=example)
    given = dict(params)
    found = convert(schema, given, example, strict=False)
    # Convert what became a time or nothing again, strictly: the word null is text, and a number is no time.
    texts = {name: text for name, text in given.items() if isinstance(getattr(found, name), datetime | None)}
    return convert(schema, {**msgspec.structs.asdict(found), **texts}, example)


@asynccontextmanager
async def _read_body(endpoint: Endpoint, request: WebRequest) -> AsyncGenerator[Schema | None]:
    if endpoint.body is None:
        yield None
        return
    kind = request.http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON:
        raise HTTPException(415, f"Send the body as JSON, with the header Content-Type: {_JSON}.")
    example = msgspec.json.encode(endpoint.example).decode()
    async with request.read_body(with_files=endpoint.with_files) as content:
        try:
            body = msgspec.json.decode(content, type=endpoint.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _explain(endpoint.body, error, example, _decode_loosely(content)) from error
        yield body


def _decode_loosely(content: bytearray) -> Mapping[str, Any]:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(content[:MAX_PLAIN_BYTES], type=dict[str, Any])
    return {}


def convert(schema: type[Schema], given: Mapping[str, Any], example: str, *, strict: bool = True) -> Schema:
    try:
        return msgspec.convert(given, schema, strict=strict)
    except msgspec.ValidationError as error:
        raise _explain(schema, error, example, given) from error


_FIELD_PATH = re.compile(r" - at `\$\.([^`]+)`$")
_PATH_PART = re.compile(r"\w+")
_AROUND_TYPE = re.compile(r"^(?:Expected|Invalid) |,? got .*$| - at .*$", re.DOTALL)
_EXPECTED = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "datetime": "a time",
    "RFC3339 encoded datetime": "a time such as 2026-03-29T09:30:00+02:00",
    "|": "or",
    "of length <=": "no longer than",
    "of length >=": "no shorter than",
    "<=": "of at most",
    ">=": "of at least",
}
"""What msgspec says of types, and what people say."""
_EXPECTED_TERM = re.compile("|".join(rf"(?<!\S){re.escape(term)}(?!\S)" for term in _EXPECTED))
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def _explain(schema: type[Schema], error: Exception, example: str, given: Mapping[str, Any]) -> BadArgument:
    """Turn a msgspec error into ours: with the value, what is allowed, and the field that was probably meant."""
    text, fields = str(error), schema.__struct_fields__
    allowed = ", ".join(fields) or "nothing"
    if found := _UNKNOWN.match(text):
        name = found[1][:_MAX_QUOTED]
        close = difflib.get_close_matches(name, fields, n=1)
        fix = f"Did you mean {close[0]}?" if close else None
        return BadArgument("Unknown field", found=name, allowed=allowed, fix=fix, example=example)
    if found := _MISSING.fullmatch(text):
        return BadArgument("The field {found} is missing", found=found[1], allowed=allowed, example=example)
    if (at := _FIELD_PATH.search(text)) is None:
        return BadArgument("Invalid request:", found=one_line(text, _MAX_QUOTED), allowed=allowed, example=example)
    name = at[1]
    quoted = one_line(str(_value_at(given, name)), _MAX_QUOTED)
    expected = one_line(_AROUND_TYPE.sub("", text).replace("`", ""), _MAX_QUOTED)
    expected = _EXPECTED_TERM.sub(lambda found: _EXPECTED[found[0]], expected)
    return BadArgument(
        f"{name} cannot be", found=quoted, allowed=_allowed_values(schema, name) or expected, example=example
    )


def _value_at(given: object, path: str) -> object:
    """Return the value at a path such as `files[0].name`, or the path if nothing is there."""
    found = given
    for part in _PATH_PART.findall(path):
        try:
            found = (
                cast("list[object]", found)[int(part)] if part.isdigit() else cast("Mapping[str, object]", found)[part]
            )
        except (LookupError, TypeError):
            return path
    return found


def _allowed_values(schema: type[Schema], name: str) -> str:
    """List the members of an enum, or the ends of a range."""
    hints = _nested_types(get_type_hints(schema, include_extras=True).get(name))
    enums = [hint for hint in hints if isinstance(hint, type) and issubclass(hint, Enum)]
    ranges = [f"{hint.ge} to {hint.le}" for hint in hints if isinstance(hint, msgspec.Meta) and hint.le is not None]
    return ", ".join([*(str(member.value) for enum in enums for member in enum), *ranges])


def _nested_types(hint: object) -> list[object]:
    return [hint, *(nested for argument in get_args(hint) for nested in _nested_types(argument))]
