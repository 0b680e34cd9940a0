"""Fields of the configuration in words: what each allows, and an example."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from palaver.config.forms import Form, duration_text, words_text
from palaver.config.model import Config
from palaver.domain.access import AccessRole

__all__ = ["Place", "form_of", "place_at", "written"]

_NOTHING = Form("nothing", "")
_SAYING_NOTHING: tuple[object, ...] = (None, PydanticUndefined, (), {})


class Place(NamedTuple):
    """Where a way leads: to a field, or into a section or list item that has fields of its own."""

    field: FieldInfo | None = None
    model: type[BaseModel] | None = Config
    """The model of a section; of a list or a section with free names, the model of one item."""
    is_item: bool = False

    @property
    def names(self) -> list[str]:
        return list(self.model.model_fields) if self.model else []

    @property
    def form(self) -> Form:
        if self.model and (self.is_item or self.field is None):
            return _section(self.model)
        return form_of(self.field) if self.field else _NOTHING


def place_at(way: Sequence[str | int]) -> Place | None:
    """None where the configuration has no such field."""
    place, steps = Place(), iter(way)
    for step in steps:
        field = place.model.model_fields.get(str(step)) if place.model else None
        if field is None:
            return None
        inside = _has_items(field) and next(steps, None) is not None
        place = Place(field, _inner_model(field), inside)
    return place


def form_of(field: FieldInfo) -> Form:
    kind: Any = field.annotation
    inner = _inner_model(field)
    if inner is not None:
        section = _section(inner)
        return Form(f"a list, each {section.allowed}", f"[{section.example}]") if _is_list(field) else section
    form = next((part for part in field.metadata if isinstance(part, Form)), None) or _plain_form(kind)
    example = form.example if field.default in _SAYING_NOTHING else written(field.default)
    return Form(f"{form.allowed}{_range(field.metadata)}", example)


def _plain_form(kind: Any) -> Form:  # noqa: ANN401 - any annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = [str(member.value) for member in kind]
    elif get_origin(kind) is Literal:
        values = [str(value) for value in get_args(kind)]
    elif kind is bool:
        values = ["true", "false"]
    else:
        return Form("a whole number", "3")
    return Form(", ".join(values), values[0])


def _range(metadata: Sequence[object]) -> str:
    low = next((part.ge for part in metadata if isinstance(part, Ge)), None)
    high = next((part.le for part in metadata if isinstance(part, Le)), None)
    if low is None:
        return ""
    return f", from {written(low)} " + ("on" if high is None else f"to {written(high)}")


def written(value: object) -> str:
    """A value as it stands in a file."""
    match value:
        case timedelta():
            return duration_text(value)
        case frozenset():
            return words_text(cast("frozenset[str]", value))
        case AccessRole():
            return value.name.lower()
        case bool():
            return str(value).lower()
        case _:
            return str(value)


def _section(model: type[BaseModel]) -> Form:
    name, field = next(iter(model.model_fields.items()))
    return Form(f"a section of {', '.join(model.model_fields)}", f"{{{name}: {form_of(field).example}}}")


def _inner_model(field: FieldInfo) -> type[BaseModel] | None:
    parts: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
    return next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None)


def _has_items(field: FieldInfo) -> bool:
    return _is_list(field) or get_origin(field.annotation) is get_origin(Mapping[str, str])


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple
