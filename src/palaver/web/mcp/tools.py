"""The tools of the MCP server: each calls one endpoint of the API."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import msgspec

from palaver.model.errors import BadArgument
from palaver.model.value import value
from palaver.operations.operation import Schema
from palaver.store.people.api_tokens import Right
from palaver.web.api.endpoints import Endpoint
from palaver.web.api.messages import send_message
from palaver.web.api.overview import get_me
from palaver.web.api.sessions import get_entries, list_sessions, search


@value
class McpTool:
    name: str
    description: str
    endpoint: Endpoint
    path_arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arguments that go into the path, with their names there."""
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def is_read_only(self) -> bool:
        return self.endpoint.needs is Right.READ

    def input_schema(self) -> dict[str, Any]:
        schema = self.endpoint.query or self.endpoint.body
        found: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
        if schema is not None:
            found = _object_schema(schema)
        path = {name: {"type": "string"} for name in self.path_arguments}
        properties = {**path, **found["properties"]}
        return {**found, "properties": properties, "required": [*path, *found.get("required", ())]}

    def output_schema(self) -> dict[str, Any] | None:
        """Return what the API's document says of the response; None if it is not JSON."""
        return None if self.endpoint.response is None else _object_schema(self.endpoint.response)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise BadArgument for a missing or unknown argument, by the tool's own names."""
        schema = self.input_schema()
        names: list[str] = list(schema["properties"])
        missing = next((name for name in schema["required"] if not arguments.get(name)), None)
        unknown = next((name for name in arguments if name not in names), None)
        example = ", ".join(f"{name}=…" for name in schema["required"]) or f"{names[0]}=…" if names else "nothing"
        for problem, name in (("Missing argument", missing), ("Unknown argument", unknown)):
            if name is not None:
                raise BadArgument(problem, found=name, allowed=", ".join(names) or "none", example=example)

    def split(self, arguments: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the path parameters, and the rest for the query or body."""
        path = {part: str(arguments.get(name, "")) for name, part in self.path_arguments.items()}
        rest = {name: given for name, given in arguments.items() if name not in self.path_arguments}
        return path, {**self.defaults, **rest}


def _object_schema(schema: type[Schema]) -> dict[str, Any]:
    (ref,), components = msgspec.json.schema_components([schema], ref_template="#/$defs/{name}")
    return {**components.pop(ref["$ref"].rpartition("/")[2]), **({"$defs": components} if components else {})}


ME = McpTool(name="me", description="Show what this token can do.", endpoint=get_me)
LIST_SESSIONS = McpTool(
    name="list_sessions",
    description="List conversations, last used first. Filter by platform, title, person, state or time.",
    endpoint=list_sessions,
    defaults={"limit": 20},
)
READ_SESSION = McpTool(
    name="read_session",
    description="Read the transcript of a conversation: its newest entries, or those before or after a seq.",
    endpoint=get_entries,
    path_arguments={"session": "id"},
)
TOOLS = (
    LIST_SESSIONS,
    READ_SESSION,
    McpTool(name="search", description="Search the text of conversations.", endpoint=search),
    McpTool(
        name="send_message",
        description=(
            "Send a message to the gateway's agent and wait for the answer: in a session by its id, or in a"
            " conversation of your own by a name."
        ),
        endpoint=send_message,
        defaults={"wait": 60},
    ),
)
