"""Describe validation errors of plugin options in terms of the configuration file."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from palaver.config.nodes import FieldPath, Node
from palaver.config.secrets import FILE, is_secret

_TYPES = {
    "float": "a number",
    "int": "a whole number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
}


def by_place(node: Node, error: ValidationError) -> Mapping[FieldPath, Sequence[ErrorDetails]]:
    """Group errors by path; with alternatives, the errors of each.

    If an alternative fits so far, only the errors inside it count.
    """
    found: dict[FieldPath, list[ErrorDetails]] = {}
    for fault in error.errors(include_url=False, include_context=False):
        if fault["type"] != "extra_forbidden":
            found.setdefault(_written(node, fault), []).append(fault)
    inside = {path[:length] for path in found for length in range(len(path))}
    return {path: faults for path, faults in found.items() if path not in inside}


def _written(node: Node, fault: ErrorDetails) -> FieldPath:
    """Return the path in the file; names of alternatives are not in it."""
    path: FieldPath = ()
    for step in fault["loc"]:
        if node.at((*path, step)) is not None:
            path = (*path, step)
    if fault["type"] == "missing":
        return (*path, fault["loc"][-1])
    return path or fault["loc"][:1]


def allowed_by(faults: Sequence[ErrorDetails]) -> str:
    """Describe what is accepted."""
    return " or ".join(dict.fromkeys(map(_allowed, faults)))


def _allowed(fault: ErrorDetails) -> str:
    kind, _, trouble = fault["type"].partition("_")
    if kind in _TYPES and trouble in {"parsing", "type", "from_float"}:
        return _TYPES[kind]
    return fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")


def example_of(model: type[BaseModel], option: str) -> str:
    """Return an example line, from the field's examples or its default."""
    field = next((each for name, each in model.model_fields.items() if option in {name, each.alias}), None)
    if field is None:
        return f"{option}: …"
    if is_secret(field.annotation):
        return f"{option}{FILE}: ~/.secrets/{option}"
    usual = field.examples[0] if field.examples else None if field.is_required() else field.default
    return f"{option}: {'…' if usual is None or usual == () else str(usual)}"
