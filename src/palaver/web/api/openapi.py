"""Serve every endpoint of the API, and the OpenAPI document made from the same declarations."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import JSONResponse, Response

from palaver import __version__
from palaver.operations import jobs
from palaver.operations.operation import Schema
from palaver.web.address import API_ROOT
from palaver.web.api import memory, messages, overview, people, processes, sessions, turns
from palaver.web.api.endpoints import Endpoint, endpoint_of, route_of
from palaver.web.routes import WebRequest, page

ENDPOINTS = (
    *sessions.ENDPOINTS,
    *messages.ENDPOINTS,
    *turns.ENDPOINTS,
    *map(endpoint_of, jobs.OPERATIONS),
    *processes.ENDPOINTS,
    *people.ENDPOINTS,
    *memory.ENDPOINTS,
    *overview.ENDPOINTS,
)
_PATH_PARAMETER = re.compile(r"\{(\w+)(:int)?\}")
_REF = "#/components/schemas/{name}"
_JSON = "application/json"


class Problem(Schema, frozen=True, kw_only=True):
    """An error, after RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    found: str | None = None
    allowed: str | None = None
    example: str | None = None
    list: str | None = None
    """The request that lists what there is, if something is not found."""


@page(f"{API_ROOT}/openapi.json")
async def show_document(request: WebRequest) -> Response:
    return JSONResponse(make_document(ENDPOINTS, __version__, request.services.address.url))


ROUTES = (show_document, *map(route_of, ENDPOINTS))


def make_document(endpoints: Sequence[Endpoint], version: str, url: str) -> dict[str, Any]:
    schemas = [schema for endpoint in endpoints for schema in (endpoint.body, endpoint.response) if schema]
    _, components = msgspec.json.schema_components([Problem, *schemas], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = API_ROOT + _PATH_PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
    problem = {"description": "Error", "content": {"application/problem+json": {"schema": _ref(Problem)}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Palaver", "version": version, "summary": "Talk to an agent from a program."},
        "servers": [{"url": url}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"problem": problem},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    scope = f"Needs the {endpoint.scope} scope" if endpoint.needs else "Needs any token"
    operation: dict[str, Any] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "description": f"{scope}{', for the owner only' if endpoint.owner_only else ''}.",
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint), *_header_parameters(endpoint)],
        "responses": _responses(endpoint),
    }
    if endpoint.body:
        content = {_JSON: {"schema": _ref(endpoint.body), "example": dict(endpoint.example)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _operation_id(endpoint: Endpoint) -> str:
    words = re.findall(r"[a-z]+", _PATH_PARAMETER.sub("", endpoint.path))
    return "_".join([endpoint.method.lower(), *words, *(["one"] if endpoint.path.endswith("}") else [])])


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    text, integer = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}
    return [
        {"name": name, "in": "path", "required": True, "schema": integer if is_integer else text}
        for name, is_integer in _PATH_PARAMETER.findall(endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    (ref,), components = msgspec.json.schema_components([endpoint.query], ref_template=_REF)
    query = components[ref["$ref"].rpartition("/")[2]]
    required = query.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _inline(schema, components)}
        for name, schema in query["properties"].items()
    ]


def _inline(schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    """Resolve references, and drop null: a query parameter is left out instead."""
    if "$ref" in schema:
        return components[schema["$ref"].rpartition("/")[2]]
    kinds = [_inline(kind, components) for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        return kinds[0]
    return {name: value for name, value in schema.items() if (name, value) != ("default", None)}


def _header_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    schema = {"type": "string", "pattern": "^[!-~]{1,100}$"}
    return [
        {"name": name, "in": "header", "description": meaning, "schema": schema}
        for name, meaning in endpoint.headers.items()
    ]


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    content: dict[str, Any] = {endpoint.media_type: {}}
    if endpoint.response:
        content = {_JSON: {"schema": _ref(endpoint.response)}}
    statuses = [str(endpoint.status), *(["202"] if endpoint.path == "/messages" else [])]
    success = {status: {"description": "Done", "content": content} for status in statuses}
    return {**success, "default": {"$ref": "#/components/responses/problem"}}


def _ref(schema: type[Schema]) -> dict[str, str]:
    return {"$ref": _REF.format(name=schema.__name__)}
