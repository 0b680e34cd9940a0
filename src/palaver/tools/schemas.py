"""JSON schemas of tool arguments."""

from collections.abc import Mapping


def object_schema(*required: str, **properties: Mapping[str, object]) -> Mapping[str, object]:
    """Return the schema of an object with these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def text_schema(description: str) -> Mapping[str, object]:
    return {"type": "string", "description": description}
