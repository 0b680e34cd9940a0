"""Refusals: what the model of an account's options does not take, told as people write options."""

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from palaver.config.secret_files import FILE, is_secret

__all__ = ["allowed_by", "example_of"]

_FORMS = {"float": "a number", "int": "a whole number", "bool": "true or false", "string": "text", "tuple": "a list"}


def allowed_by(fault: ErrorDetails) -> str:
    """What would have been right."""
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
