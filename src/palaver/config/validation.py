"""Check values against the configuration model, and describe its fields."""

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

from palaver.config.errors import Mistake, mistake_at
from palaver.config.model import Config
from palaver.config.nodes import Node, dotted_path
from palaver.config.secrets import mask_secrets
from palaver.model.access import AccessRole
from palaver.model.platform import Platform
from palaver.model.source import STANDARD_KINDS
from palaver.model.tools import ApprovalMode
from palaver.model.value import FieldPath
from palaver.protocols.installation import package_line
from palaver.settings.agents import SAFE_AGENTS
from palaver.settings.types import Syntax, duration_text, words_text


def find_schema_mistakes(node: Node) -> Iterator[Mistake]:
    """Yield what the model rejects."""
    try:
        Config.model_validate(node.plain())
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            path = without_tags(fault["loc"])
            if unset := next(node.nearest(path).find_unset(), None):
                yield unset.mistake
                continue
            match fault["type"]:
                case "extra_forbidden":
                    facts = _unknown(fault["loc"])
                case "missing":
                    facts = _missing(fault["loc"])
                case _:
                    facts = _refused(node, fault["loc"], fault.get("ctx", {}))
            yield Mistake(position=node.nearest(path).position, field=dotted_path(path), **facts)


def _missing(path: FieldPath) -> dict[str, str]:
    place = locate_field(path)
    allowed = place.syntax.allowed if place else "a field"
    section = dotted_path(without_tags(path)[:-1])
    return {"problem": f"{section} lacks", "found": str(path[-1]), "allowed": allowed, "example": _example(path)}


def _unknown(path: FieldPath) -> dict[str, str]:
    section, name = path[:-1], str(path[-1])
    outer, written = locate_field(section), dotted_path(without_tags(section))
    names = outer.names if outer else []
    close = get_close_matches(name, names, n=1)
    return {
        "problem": f"{written} has an unknown field" if section else "Unknown field",
        "found": name,
        "allowed": ", ".join(names),
        "example": _example((*section, *(close or names[:1]))),
        **({"fix": f"Did you mean {close[0]}?"} if close else {}),
    }


def _refused(node: Node, path: FieldPath, context: Mapping[str, str]) -> dict[str, str]:
    written, place = without_tags(path), locate_field(path)
    at, name = node.nearest(written), dotted_path(written)
    syntax = place.syntax if place else Syntax("a field", "…")
    is_text = isinstance(at.value, str)
    return {
        "problem": f"{name} cannot be" if is_text else f"{name}: {context.get('problem', 'cannot be')}",
        "found": mask_secrets(at.raw) if is_text else context.get("found", at.kind),
        "allowed": context.get("allowed", syntax.allowed),
        "example": _example(path, context.get("example")),
        **({"fix": context["fix"]} if context.get("fix") else {}),
    }


def _example(path: FieldPath, value: str | None = None) -> str:
    """Return for example `busy: queue`; for a list item only its fields."""
    place = locate_field(path)
    value, name = value or (place.syntax.example if place else "…"), without_tags(path)[-1]
    return f"{name}: {value}" if isinstance(name, str) else value


def find_user_only_fields(node: Node, users: Path) -> Iterator[Mistake]:
    """Yield what a project's file sets beyond its short list: a downloaded folder must not reroute, weaken or spend."""
    for path in _leaf_paths(node):
        found = node.at(path)
        if found and not _is_for_projects(path, found) and path[0] in Config.model_fields:
            problem, allowed = "{field} cannot be set in a project's file.", f"your own file, {users}"
            yield mistake_at(
                found, path, problem, found="in a project's file", allowed=allowed, example=_example(path[:1])
            )


def _is_for_projects(path: FieldPath, node: Node) -> bool:
    match path:
        case ("agent", "name"):
            return node.value in SAFE_AGENTS
        case ("agent", "instructions") | ("titles",):
            return True
        case ("tools", "allowed", _):
            return node.value == ApprovalMode.NEVER.value
        case _:
            return False


def _leaf_paths(node: Node) -> Iterator[FieldPath]:
    """Yield the paths of the fields, those inside `agent` and `tools.allowed` one by one."""
    for name in node.names():
        inner = node.names((name,)) if name in {"agent", "tools"} else []
        if not inner:
            yield (name,)
        for field in inner:
            deepest = node.names((name, field)) if (name, field) == ("tools", "allowed") else []
            yield from ((name, field, tool) for tool in deepest)
            if not deepest:
                yield name, field


def find_unknown_names(node: Node, platforms: Mapping[str, Platform]) -> Iterator[Mistake]:
    """Yield platforms and chat kinds that do not exist; their settings would have no effect."""
    kinds = {*STANDARD_KINDS, *(kind for platform in platforms.values() for kind in platform.extra_kinds)}
    for path, name in _named(node):
        what, known = ("kind of chat", kinds) if path[0] == "kinds" else ("platform", set(platforms))
        if name not in known:
            close = get_close_matches(name, known, n=1)
            brought = f"{package_line('PACKAGE')}, with a package that supports {name}"
            is_account = node.at((*path, "accounts")) is not None
            yield mistake_at(
                node.nearest(path),
                path,
                f"{{field}}: unknown {what}",
                found=name,
                allowed=", ".join(sorted(known)),
                example=brought if is_account and not close else (close or sorted(known))[0],
                fix=f"Did you mean {close[0]}?" if close else None,
            )


def _named(node: Node) -> Iterator[tuple[FieldPath, str]]:
    """Yield the names of platforms and chat kinds with their paths."""
    for section in ("platforms", "kinds"):
        yield from (((section, name), name) for name in node.names((section,)))
    routes = (("profiles", name, "serves") for name in node.names(("profiles",)))
    for path in (("grants",), *routes):
        items = node.at(path)
        for index in range(len(items.value) if items and isinstance(items.value, list) else 0):
            named = node.at((*path, index, "platform"))
            if named and isinstance(named.value, str):
                yield (*path, index, "platform"), named.value


_NOTHING = Syntax("nothing", "")
_NO_DEFAULT: tuple[object, ...] = (None, PydanticUndefined, (), {}, frozenset[str]())


class FieldLocation(NamedTuple):
    """Where a way leads: to a field, or into a section or list item that has fields of its own."""

    field: FieldInfo | None = None
    models: tuple[type[BaseModel], ...] = (Config,)
    """The model of a section, or the alternatives; for a list or mapping, those of one item."""
    is_item: bool = False

    @property
    def model(self) -> type[BaseModel] | None:
        return self.models[0] if self.models else None

    @property
    def names(self) -> list[str]:
        return list(self.model.model_fields) if self.model else []

    @property
    def syntax(self) -> Syntax:
        if self.models and (self.is_item or self.field is None):
            return _section(self.models)
        item = _form_of_item(self.field) if self.field and self.is_item else None
        return item or (syntax_of(self.field) if self.field else _NOTHING)


def locate_field(path: Sequence[str | int]) -> FieldLocation | None:
    """Return None if there is no such field. After a section with alternatives, the next step names one of them."""
    place, steps = FieldLocation(), iter(path)
    for step in steps:
        if len(place.models) > 1:
            place = place._replace(models=(_tagged(place.models)[str(step)],), is_item=True)
            continue
        field = place.model.model_fields.get(str(step)) if place.model else None
        if field is None:
            return None
        inside = _has_items(field) and next(steps, None) is not None
        place = FieldLocation(field, _inner_models(field), inside)
    return place


def without_tags(path: Sequence[str | int]) -> tuple[str | int, ...]:
    """Drop the steps that name an alternative: files do not have them."""
    return tuple(step for index, step in enumerate(path) if not _is_tag(path[:index]))


def _is_tag(before: Sequence[str | int]) -> bool:
    place = locate_field(before)
    return place is not None and len(place.models) > 1


def _tagged(models: Sequence[type[BaseModel]]) -> dict[str, type[BaseModel]]:
    return {str(model.model_fields["name"].default): model for model in models}


def syntax_of(field: FieldInfo) -> Syntax:
    kind: Any = field.annotation
    if inner := _inner_models(field):
        section = _section(inner)
        return Syntax(f"a list, each {section.allowed}", f"[{section.example}]") if _is_list(field) else section
    syntax = next((part for part in field.metadata if isinstance(part, Syntax)), None) or _plain_form(kind)
    example = syntax.example if field.default in _NO_DEFAULT else format_value(field.default)
    return Syntax(f"{syntax.allowed}{_range(field.metadata)}", example)


def _form_of_item(field: FieldInfo) -> Syntax | None:
    """Return the syntax of the values of a mapping, if it is declared or they are a choice."""
    kind = get_args(field.annotation)[-1:]
    if kind and isinstance(kind[0], type) and issubclass(kind[0], Enum):
        return _plain_form(kind[0])
    return next((part for each in kind for part in get_args(each) if isinstance(part, Syntax)), None)


def _plain_form(kind: Any) -> Syntax:  # noqa: ANN401 - any annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        values = [str(member.value) for member in kind]
    elif get_origin(kind) is Literal:
        values = [str(value) for value in get_args(kind)]
    elif kind is bool:
        values = ["true", "false"]
    else:
        return Syntax("a whole number", "3")
    return Syntax(", ".join(values), values[0])


def _range(metadata: Sequence[object]) -> str:
    low = next((part.ge for part in metadata if isinstance(part, Ge)), None)
    high = next((part.le for part in metadata if isinstance(part, Le)), None)
    if low is None:
        return ""
    return f", from {format_value(low)} " + ("up" if high is None else f"to {format_value(high)}")


def format_value(value: object) -> str:
    """Return `value` as it is written in a file."""
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


def _section(models: Sequence[type[BaseModel]]) -> Syntax:
    name, field = next(iter(models[0].model_fields.items()))
    example = f"{{{name}: {syntax_of(field).example}}}"
    if len(models) > 1:
        return Syntax(f"a section whose name is {' or '.join(_tagged(models))}", example)
    return Syntax(f"a section of {', '.join(models[0].model_fields)}", example)


def _inner_models(field: FieldInfo) -> tuple[type[BaseModel], ...]:
    parts: tuple[Any, ...] = (field.annotation, *get_args(field.annotation))
    plain = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts]
    return tuple(part for part in plain if isinstance(part, type) and issubclass(part, BaseModel))


def _has_items(field: FieldInfo) -> bool:
    return _is_list(field) or get_origin(field.annotation) is get_origin(Mapping[str, str])


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple
