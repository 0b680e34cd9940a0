"""Checking: nodes against the model, every mistake with its place."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from palaver.config.fields import place_at, untagged
from palaver.config.forms import Form
from palaver.config.mistakes import Mistake
from palaver.config.model import Config
from palaver.config.nodes import Node, Way, dotted
from palaver.config.secrets import hidden
from palaver.domain.platform import Platform
from palaver.domain.source import USUAL_KINDS

__all__ = ["misplaced", "misshapen", "unknown_names"]

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
        "problem": f"{written} has an unknown field" if section else "unknown field",
        "found": name,
        "allowed": ", ".join(names) + (f"; perhaps {close[0]}" if close else ""),
        "example": _example((*section, *(close or names[:1]))),
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
    kinds = {*USUAL_KINDS, *(kind for platform in platforms.values() for kind in platform.extra_kinds)}
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
                allowed=", ".join(sorted(known)) + (f"; perhaps {close[0]}" if close else ""),
                example=brought if is_account and not close else (close or sorted(known))[0],
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
