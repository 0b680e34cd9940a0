"""Checking: nodes against the model, every mistake with its place."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from palaver.config.errors import Mistake
from palaver.config.model import Config
from palaver.config.nodes import Node, Way, dotted
from palaver.config.secrets import hidden
from palaver.config.types import Form, duration_text, words_text
from palaver.model.access import AccessRole
from palaver.model.platform import Platform
from palaver.model.source import STANDARD_KINDS

__all__ = [
    "Place",
    "form_of",
    "misplaced",
    "misshapen",
    "place_at",
    "unknown_names",
    "untagged",
    "written",
]

_ONLY_THE_USERS = ("agent", "commands", "data_dir", "grants", "hooks", "store", "tools", "web")


def misshapen(node: Node) -> Iterator[Mistake]:
    """What the model refuses."""
    try:
        Config.model_validate(node.plain())
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            way = untagged(fault["loc"])
            match fault["type"]:
                case "extra_forbidden":
                    facts = _unknown(fault["loc"])
                case "missing":
                    facts = _lacking(fault["loc"])
                case _:
                    facts = _refused(node, fault["loc"], fault.get("ctx", {}))
            yield Mistake(spot=node.nearest(way).spot, field=dotted(way), **facts)


def _lacking(way: Way) -> dict[str, str]:
    place = place_at(way)
    allowed = place.form.allowed if place else "a field"
    section = dotted(untagged(way)[:-1])
    return {"problem": f"{section} lacks", "found": str(way[-1]), "allowed": allowed, "example": _example(way)}


def _unknown(way: Way) -> dict[str, str]:
    section, name = way[:-1], str(way[-1])
    outer, written = place_at(section), dotted(untagged(section))
    names = outer.names if outer else []
    close = get_close_matches(name, names, n=1)
    return {
        "problem": f"{written} has an unknown field" if section else "Unknown field",
        "found": name,
        "allowed": ", ".join(names),
        "example": _example((*section, *(close or names[:1]))),
        **({"fix": f"Did you mean {close[0]}?"} if close else {}),
    }


def _refused(node: Node, way: Way, told: Mapping[str, str]) -> dict[str, str]:
    written, place = untagged(way), place_at(way)
    at, name = node.nearest(written), dotted(written)
    form = place.form if place else Form("a field", "…")
    is_text = isinstance(at.value, str)
    return {
        "problem": f"{name} cannot be" if is_text else f"{name}: {told.get('problem', 'cannot be')}",
        "found": hidden(at.written) if is_text else told.get("found", at.kind),
        "allowed": told.get("allowed", form.allowed),
        "example": _example(way, told.get("example")),
        **({"fix": told["fix"]} if told.get("fix") else {}),
    }


def _example(way: Way, value: str | None = None) -> str:
    """`busy: queue`; of an item of a list, its fields alone."""
    place = place_at(way)
    value, name = value or (place.form.example if place else "…"), untagged(way)[-1]
    return f"{name}: {value}" if isinstance(name, str) else value


def misplaced(node: Node, users: Path) -> Iterator[Mistake]:
    """What a project's file may not say: whoever made the folder could let strangers in, or be told what is said."""
    accounts = (("platforms", name, "accounts") for name in _fields(node.at(("platforms",))))
    agents = (("profiles", name, "agent") for name in _fields(node.at(("profiles",))))
    for way in (*((name,) for name in _ONLY_THE_USERS), *accounts, *agents):
        if found := node.at(way):
            yield Mistake(
                spot=found.spot,
                field=dotted(way),
                problem=f"{dotted(way)} cannot be",
                found="in a project's file",
                allowed=f"in the user's own file, {users}",
                example=_example(way),
            )


def unknown_names(node: Node, platforms: Mapping[str, Platform]) -> Iterator[Mistake]:
    """Platforms and kinds of chats that do not exist: what is said of them would never count."""
    kinds = {*STANDARD_KINDS, *(kind for platform in platforms.values() for kind in platform.extra_kinds)}
    for way, name in _named(node):
        what, known = ("kind of chat", kinds) if way[0] == "kinds" else ("platform", set(platforms))
        if name not in known:
            close = get_close_matches(name, known, n=1)
            brought = f"pip install PACKAGE, with the one that brings {name}"
            is_account = node.at((*way, "accounts")) is not None
            yield Mistake(
                spot=node.nearest(way).spot,
                field=dotted(way),
                problem=f"{dotted(way)}: unknown {what}",
                found=name,
                allowed=", ".join(sorted(known)),
                example=brought if is_account and not close else (close or sorted(known))[0],
                fix=f"Did you mean {close[0]}?" if close else None,
            )


def _named(node: Node) -> Iterator[tuple[Way, str]]:
    """The names of platforms and kinds, where they stand."""
    for section in ("platforms", "kinds"):
        yield from (((section, name), name) for name in _fields(node.at((section,))))
    routes = (("profiles", name, "serves") for name in _fields(node.at(("profiles",))))
    for way in (("grants",), *routes):
        items = node.at(way)
        for index in range(len(items.value) if items and isinstance(items.value, list) else 0):
            named = node.at((*way, index, "platform"))
            if named and isinstance(named.value, str):
                yield (*way, index, "platform"), named.value


def _fields(node: Node | None) -> list[str]:
    return list(node.value) if node and isinstance(node.value, dict) else []


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
