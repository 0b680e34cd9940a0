"""Deeds: the tools of the MCP server, each one line of the API's table."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Protocol

import msgspec

from palaver.model.errors import BadArgument
from palaver.model.value import value
from palaver.store.people.api_tokens import Right
from palaver.web.api import messages, overview, sessions
from palaver.web.api.endpoints import Endpoint

__all__ = [
    "DEEDS",
    "LIST",
    "ME",
    "READ",
    "Deed",
    "Reach",
]


@value
class Deed:
    name: str
    description: str
    endpoint: Endpoint
    named: Mapping[str, str] = field(default_factory=dict[str, str])
    """Arguments that stand in the path, each with the name that it has there."""
    usual: Mapping[str, object] = field(default_factory=dict[str, object])
    """What is meant where nothing is said."""

    @property
    def reads(self) -> bool:
        return self.endpoint.needs is Right.READ

    def schema(self) -> dict[str, Any]:
        shape = self.endpoint.asks or self.endpoint.takes
        found: dict[str, Any] = {"type": "object", "properties": {}, "required": []}
        if shape is not None:
            (ref,), components = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
            found = {**components.pop(ref["$ref"].rpartition("/")[2]), **({"$defs": components} if components else {})}
        path = {name: {"type": "string"} for name in self.named}
        properties = {**path, **found["properties"]}
        return {**found, "properties": properties, "required": [*path, *found.get("required", ())]}

    def check(self, given: Mapping[str, Any]) -> None:
        """Raises BadArgument for what is missing or unknown, by the names that the tool has for it."""
        schema = self.schema()
        names: list[str] = list(schema["properties"])
        missing = next((name for name in schema["required"] if not given.get(name)), None)
        unknown = next((name for name in given if name not in names), None)
        example = ", ".join(f"{name}=…" for name in schema["required"]) or f"{names[0]}=…" if names else "nothing"
        for problem, name in (("There has to be an argument", missing), ("There is no argument", unknown)):
            if name is not None:
                raise BadArgument(problem, found=name, allowed=", ".join(names) or "none", example=example)

    def parts(self, given: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
        """What stands in the path, and the rest."""
        path = {part: str(given.get(name, "")) for name, part in self.named.items()}
        return path, {**self.usual, **{name: value for name, value in given.items() if name not in self.named}}


class Reach(Protocol):
    """How the API is reached: in the gateway itself, or from another process."""

    async def ask(self, deed: Deed, given: Mapping[str, Any]) -> tuple[bool, bytes]:
        """Whether it was done, and the JSON that tells what came of it."""
        ...


def _endpoint(table: tuple[Endpoint, ...], method: str, path: str) -> Endpoint:
    return next(each for each in table if (each.method, each.path) == (method, path))


ME = Deed(name="me", description="What whoever asks may do.", endpoint=_endpoint(overview.ENDPOINTS, "GET", "/me"))
LIST = Deed(
    name="list_sessions",
    description="List conversations, those used last first. Narrow it down by platform, title, person, state or time.",
    endpoint=_endpoint(sessions.ENDPOINTS, "GET", "/sessions"),
    usual={"limit": 20},
)
READ = Deed(
    name="read_session",
    description="Read the transcript of a conversation: its newest entries, or those before or after a seq.",
    endpoint=_endpoint(sessions.ENDPOINTS, "GET", "/sessions/{id}/entries"),
    named={"session": "id"},
)
DEEDS = (
    LIST,
    READ,
    Deed(
        name="search",
        description="Find what was said in conversations.",
        endpoint=_endpoint(sessions.ENDPOINTS, "GET", "/search"),
    ),
    Deed(
        name="send_message",
        description=(
            "Say something to the agent of the gateway, in a session by its id, or in a conversation of your own by a"
            " name, and wait for the answer."
        ),
        endpoint=_endpoint(messages.ENDPOINTS, "POST", "/messages"),
        usual={"wait": 60},
    ),
)
