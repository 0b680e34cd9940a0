"""The OpenAPI document: made from the table that the API is served from."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from palaver.web.api.endpoints import PREFIX, Endpoint, Schema

__all__ = ["Problem", "document"]

_PART = re.compile(r"\{(\w+)(:int)?\}")
_REF = "#/components/schemas/{name}"
_JSON = "application/json"


class Problem(Schema, frozen=True, kw_only=True):
    """What went wrong, after RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    found: str | None = None
    allowed: str | None = None
    example: str | None = None


def document(endpoints: Sequence[Endpoint], version: str, url: str) -> dict[str, Any]:
    shapes = [Problem, *_shapes(endpoints)]
    _, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = PREFIX + _PART.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Palaver", "version": version, "summary": "Conversations with an agent, from programs."},
        "servers": [{"url": url}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"problem": {"description": "What went wrong", "content": _content(Problem, "problem+json")}},
        },
    }


def _shapes(endpoints: Sequence[Endpoint]) -> Iterator[Any]:
    for endpoint in endpoints:
        yield from filter(None, (endpoint.takes, endpoint.gives))


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    scope = f"Needs the scope {endpoint.scope}" if endpoint.needs else "Needs any key"
    found: dict[str, Any] = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "description": f"{scope}{', for the owner only' if endpoint.for_owner else ''}.",
        "parameters": [*_path(endpoint), *_query(endpoint), *_headers(endpoint)],
        "responses": _responses(endpoint),
    }
    if endpoint.takes:
        content = {_JSON: {"schema": _ref(endpoint.takes), "example": dict(endpoint.example)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _name(endpoint: Endpoint) -> str:
    words = re.findall(r"[a-z]+", _PART.sub("", endpoint.path))
    return "_".join([endpoint.method.lower(), *words, *(["one"] if endpoint.path.endswith("}") else [])])


def _path(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0} if number else {"type": "string", "minLength": 1},
        }
        for name, number in _PART.findall(endpoint.path)
    ]


def _query(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.asks is None:
        return []
    (shape,), components = msgspec.json.schema_components([endpoint.asks], ref_template=_REF)
    inner = components[shape["$ref"].rpartition("/")[2]]
    return [
        {
            "name": name,
            "in": "query",
            "required": name in inner.get("required", ()),
            "schema": _plain(schema, components),
        }
        for name, schema in inner["properties"].items()
    ]


def _plain(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out, and never null; what it refers to stands in its place."""
    if "$ref" in schema:
        return components[schema["$ref"].rpartition("/")[2]]
    kinds = [_plain(kind, components) for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return kinds[0]
    return {name: value for name, value in schema.items() if (name, value) != ("default", None)}


def _headers(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "description": meaning,
            "schema": {"type": "string", "pattern": "^[!-~]{1,100}$"},
        }
        for name, meaning in endpoint.headers.items()
    ]


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    problem = {"$ref": "#/components/responses/problem"}
    good: dict[str, Any] = {"description": "Done"}
    if endpoint.gives is not None:
        good["content"] = {_JSON: {"schema": _ref(endpoint.gives)}}
    else:
        good["content"] = {endpoint.media_type: {}}
    statuses = [str(endpoint.status), *(["202"] if endpoint.path == "/messages" else [])]
    return {**dict.fromkeys(statuses, good), "default": problem}


def _ref(shape: type[Schema]) -> dict[str, str]:
    return {"$ref": _REF.format(name=shape.__name__)}


def _content(shape: type[Schema], kind: str) -> dict[str, Any]:
    return {f"application/{kind}": {"schema": _ref(shape)}}
