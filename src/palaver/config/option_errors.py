"""Refusals: what the model of an account's options does not take, told as people write options."""

from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from palaver.config.nodes import Node, Way
from palaver.config.secret_files import FILE, is_secret

__all__ = [
    "allowed_by",
    "by_place",
    "example_of",
]

_FORMS = {"float": "a number", "int": "a whole number", "bool": "true or false", "string": "text", "tuple": "a list"}


def by_place(node: Node, error: ValidationError) -> Mapping[Way, Sequence[ErrorDetails]]:
    """What is wrong, by where it was written; with several alternatives, what is wrong with each.

    Of an alternative that fits as far as it goes, what is wrong inside of it counts alone.
    """
    found: dict[Way, list[ErrorDetails]] = {}
    for fault in error.errors(include_url=False, include_context=False):
        if fault["type"] != "extra_forbidden":
            found.setdefault(_written(node, fault), []).append(fault)
    inside = {way[:length] for way in found for length in range(len(way))}
    return {way: faults for way, faults in found.items() if way not in inside}


def _written(node: Node, fault: ErrorDetails) -> Way:
    """Where it stands in the file; the names of alternatives stand nowhere."""
    way: Way = ()
    for step in fault["loc"]:
        if node.at((*way, step)) is not None:
            way = (*way, step)
    if fault["type"] == "missing":
        return (*way, fault["loc"][-1])
    return way or fault["loc"][:1]


def allowed_by(faults: Sequence[ErrorDetails]) -> str:
    """What would have been right."""
    return " or ".join(dict.fromkeys(map(_allowed, faults)))


def _allowed(fault: ErrorDetails) -> str:
    kind, _, trouble = fault["type"].partition("_")
    if kind in _FORMS and trouble in {"parsing", "type", "from_float"}:
        return _FORMS[kind]
    return fault["msg"].removeprefix("Value error, ").removeprefix("Input should be ")


def example_of(model: type[BaseModel], option: str) -> str:
    """A line as it could be written: with what the model gives as an example, or counts on where nothing is said."""
    field = next((each for name, each in model.model_fields.items() if option in {name, each.alias}), None)
    if field is None:
        return f"{option}: …"
    if is_secret(field.annotation):
        return f"{option}{FILE}: ~/.secrets/{option}"
    usual = field.examples[0] if field.examples else None if field.is_required() else field.default
    return f"{option}: {'…' if usual is None or usual == () else str(usual)}"
