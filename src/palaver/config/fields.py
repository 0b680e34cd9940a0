"""Fields of the configuration in words: what each allows, and an example."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from palaver.config.forms import Form, duration_text, words_text
from palaver.config.model import Config
from palaver.domain.access import AccessRole

__all__ = ["Place", "form_of", "place_at", "untagged", "written"]

_NOTHING = Form("nothing", "")
_SAYING_NOTHING: tuple[object, ...] = (None, PydanticUndefined, (), {})


class Place(NamedTuple):
    """Where a way leads: to a field, or into a section or list item that has fields of its own."""

    field: FieldInfo | None = None
    models: tuple[type[BaseModel], ...] = (Config,)
    """The model of a section, or several to choose from; of a list or a section with free names, those of one item."""
    is_item: bool = False

    @property
    def model(self) -> type[BaseModel] | None:
        return self.models[0] if self.models else None

    @property
    def names(self) -> list[str]:
        return list(self.model.model_fields) if self.model else []

    @property
    def form(self) -> Form:
        if self.models and (self.is_item or self.field is None):
            return _section(self.models)
        item = _form_of_item(self.field) if self.field and self.is_item else None
        return item or (form_of(self.field) if self.field else _NOTHING)


def place_at(way: Sequence[str | int]) -> Place | None:
    """None where the configuration has no such field. Behind a choice of sections stands which one is meant."""
    place, steps = Place(), iter(way)
    for step in steps:
        if len(place.models) > 1:
            place = place._replace(models=(_tagged(place.models)[str(step)],), is_item=True)
            continue
        field = place.model.model_fields.get(str(step)) if place.model else None
        if field is None:
            return None
        inside = _has_items(field) and next(steps, None) is not None
        place = Place(field, _inner_models(field), inside)
    return place


def untagged(way: Sequence[str | int]) -> tuple[str | int, ...]:
    """As it stands in a file, which has no steps that say which of several sections is meant."""
    return tuple(step for index, step in enumerate(way) if not _is_tag(way[:index]))


def _is_tag(before: Sequence[str | int]) -> bool:
    place = place_at(before)
    return place is not None and len(place.models) > 1


def _tagged(models: Sequence[type[BaseModel]]) -> dict[str, type[BaseModel]]:
    return {str(model.model_fields["name"].default): model for model in models}


def form_of(field: FieldInfo) -> Form:
    kind: Any = field.annotation
    if inner := _inner_models(field):
        section = _section(inner)
        return Form(f"a list, each {section.allowed}", f"[{section.example}]") if _is_list(field) else section
    form = next((part for part in field.metadata if isinstance(part, Form)), None) or _plain_form(kind)
    example = form.example if field.default in _SAYING_NOTHING else written(field.default)
    return Form(f"{form.allowed}{_range(field.metadata)}", example)


def _form_of_item(field: FieldInfo) -> Form | None:
    """What each value of a section with free names may be, where that is said."""
    kind = get_args(field.annotation)[-1:]
    return next((part for each in kind for part in get_args(each) if isinstance(part, Form)), None)


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


def _section(models: Sequence[type[BaseModel]]) -> Form:
    name, field = next(iter(models[0].model_fields.items()))
    example = f"{{{name}: {form_of(field).example}}}"
    if len(models) > 1:
        return Form(f"a section whose name is {' or '.join(_tagged(models))}", example)
    return Form(f"a section of {', '.join(models[0].model_fields)}", example)


def _inner_models(field: FieldInfo) -> tuple[type[BaseModel], ...]:
    parts: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
    plain = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts]
    return tuple(part for part in plain if isinstance(part, type) and issubclass(part, BaseModel))


def _has_items(field: FieldInfo) -> bool:
    return _is_list(field) or get_origin(field.annotation) is get_origin(Mapping[str, str])


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple
