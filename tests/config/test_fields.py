"""Every field there is: its mistake says where it is, its example can be written, its row is on the page."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from palaver.config import model
from palaver.config.effective import effective_settings
from palaver.config.errors import MalformedConfig
from palaver.config.loader import load, load_with_sources
from palaver.config.model import Config
from palaver.config.nodes import Node, Position
from palaver.config.validation import (
    find_schema_mistakes,
    find_user_only_fields,
    format_value,
    locate_field,
    syntax_of,
    without_tags,
)
from palaver.settings import agents, chats, engine, gateway, limits, quotas, relay, retention, terminal, tools, web
from palaver.settings.types import Section

PAGE = Path(__file__).parents[2] / "docs/configuration.md"
ENVIRON = {"PALAVER_CONFIG": "own.yaml"}


def models() -> Iterator[type[Section]]:
    for module in (model, agents, chats, engine, gateway, quotas, limits, relay, retention, tools, terminal, web):
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, Section) and found.__module__ == module.__name__:
                yield found


def ways(part: type[BaseModel] = Config, outer: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every field, in sections with free names to those of one item."""
    for name, field in part.model_fields.items():
        if outer and name == "name" and outer[-1] != "guide":
            continue  # a name that is none of those there are is refused as that of the first
        yield (*outer, name)
        place = locate_field((*outer, name))
        assert place is not None
        if len(place.models) > 1:
            for member in place.models:
                yield from ways(member, (*outer, name, member.model_fields["name"].default))
        elif place.model is not None:
            arguments = get_args(field.annotation)
            step: tuple[str | int, ...] = ((0,) if Ellipsis in arguments else ("dm",)) if arguments else ()
            yield from ways(place.model, (*outer, name, *step))


NEEDED: Mapping[str | int, Mapping[str, str]] = {
    "model": {"model": "a:b"},
    "program": {"command": "[x]"},
    "acp": {"command": "[x]"},
    "http": {"url": "http://x"},
    "local": {},
    "echo": {},
}
"""What an agent has to be told besides its name."""


def file_of(way: tuple[str | int, ...], value: str) -> tuple[str, int]:
    """A file that says `value` there, one step in a line, and the line in which it does."""
    lines, plain = ["# a file"], without_tags(way)
    for depth, step in enumerate(plain):
        last = depth == len(plain) - 1
        lines.append("  " * depth + ("-" if step == 0 else f"{step}:") + (f" {value}" if last else ""))
    tag = way.index("agent") + 1 if plain != way else len(way)
    beside = {"name": way[tag], **NEEDED[way[tag]]} if way[tag:] and way[tag] in NEEDED else {}
    others = ["  " * (len(plain) - 1) + "model: a:c"] if way[-3:-1] == ("fallback", 0) and way[-1] != "model" else []
    others += ["  " * tag + f"{name}: {known}" for name, known in beside.items() if name != way[tag + 1]]
    return "\n".join((*lines, *others)), len(lines)


@cache
def leaves() -> list[tuple[str | int, ...]]:
    return [way for way in ways() if (place := locate_field(way)) and place.model is None]


def test_there_are_fields() -> None:
    assert len(leaves()) > 80
    assert ("platforms", "dm", "servers", "dm", "chats", "dm", "reset", "at_hour") in leaves()
    assert ("profiles", "dm", "serves", 0, "thread_id") in leaves()


def test_the_mistake_of_every_field_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for way in ways():
        text, line = file_of(way, _wrong_value(way))
        Path("own.yaml").write_text(text)
        with pytest.raises(MalformedConfig) as caught:
            load(Path(), ENVIRON)
        (mistake,) = caught.value.mistakes
        assert str(mistake.position) == f"own.yaml:{line}", text
        assert mistake.field == "".join(f"[{step}]" if step == 0 else f".{step}" for step in without_tags(way))[1:]
        assert mistake.field in mistake.problem
        assert mistake.allowed, text
        assert mistake.example.startswith(f"{way[-1]}: "), text


def _wrong_value(way: tuple[str | int, ...]) -> str:
    is_leaf = way in leaves()
    takes_names = way[-1] in {"accounts", "allowed", "commands", "environment", "headers"} or (
        not is_leaf and way[-1] not in {"grants", "serves", "rules", "fallback"}
    )
    return "[x]" if takes_names else "{no: thing}" if is_leaf else "x"


def test_what_is_given_as_an_example_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for way in leaves():
        place = locate_field(way)
        assert place is not None
        text, _ = file_of(way, place.syntax.example)
        needs_a_platform = way[0] == "grants" and str(way[-1]).endswith(("_id", "account"))
        needs_a_place = way[:2] == ("tools", "servers") and way[-1] not in {"command", "url"}
        beside = "\n    platform: irc" if needs_a_platform else "\n      command: x" if needs_a_place else ""
        Path("own.yaml").write_text(text + beside)
        load(Path(), {**ENVIRON, "OPENAI_API_KEY": "x", "AGENT_TOKEN": "x", "PALAVER_KEY": "x"})


def test_what_is_shown_can_be_written_and_is_then_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = list(effective_settings(load_with_sources(Path(), {"PALAVER_HOME": "/data"})))
    assert {str(setting.position) for setting in settings} == {"default", "PALAVER_HOME"}
    ways_there = [setting.field.replace("agent.", "agent.echo.") for setting in settings]
    texts = [
        file_of(tuple(field.split(".")), format_value(setting.value))
        for field, setting in zip(ways_there, settings, strict=True)
    ]
    for text, line in texts:
        Path("own.yaml").write_text(text)
        again = load_with_sources(Path(), {"PALAVER_HOME": "/data", **ENVIRON})
        assert again.config == load(Path(), {"PALAVER_HOME": "/data"})
        froms = {str(setting.position) for setting in effective_settings(again)}
        assert f"own.yaml:{line}" in froms or "data_dir" in text


trees = st.recursive(
    st.text(max_size=5) | st.sampled_from(["true", "1", "queue", "never", "1h"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(sorted({str(step) for way in ways() for step in way})), inner)
    ),
    max_leaves=20,
)


def node_of(tree: Any) -> Node:
    position = Position(file=Path("x"), line=1)
    if isinstance(tree, Mapping):
        return Node(position=position, value={str(name): node_of(inner) for name, inner in tree.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(tree, list):
        return Node(position=position, value=[node_of(inner) for inner in tree])  # pyright: ignore[reportUnknownVariableType]
    return Node(position=position, value=str(tree), raw=str(tree))


@given(st.dictionaries(st.sampled_from(list(Config.model_fields)), trees))
def test_any_tree_is_right_or_has_mistakes_with_places(tree: dict[str, object]) -> None:
    for mistake in find_schema_mistakes(node_of({"data_dir": "x", "store": "x", **tree})):
        assert mistake.field
        assert mistake.position.line == 1
        assert mistake.allowed
        assert str(mistake)


# The page


def row(name: str, field: FieldInfo) -> str:
    allowed = syntax_of(field).allowed
    shape = next((shape for shape in ("a section", "a list") if allowed.startswith(shape)), "")
    usual = "" if shape or field.default in {PydanticUndefined, None} else f"`{format_value(field.default)}`"
    return f"| `{name}` | {shape or allowed} | {usual} | {field.description} |"


def test_every_field_has_its_row_on_the_page() -> None:
    page = PAGE.read_text()
    for part in models():
        bases = [base for base in part.__bases__ if base is not Section]
        inherited = {name for base in bases for name in getattr(base, "model_fields", {})}
        rows = [row(name, field) for name, field in part.model_fields.items() if name not in inherited]
        assert "\n".join(rows) in page, "\n".join(rows)


def test_the_examples_of_the_page_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) > 3
    for example in examples:
        Path("own.yaml").write_text(example)
        environ = dict.fromkeys(re.findall(r"\$\{(\w+)\}", example), "x")
        assert load(Path(), {**ENVIRON, **environ}).settings()


def test_the_page_says_what_a_projects_file_can_say() -> None:
    (sentence,) = re.findall(r"may set only (.*?)\. ", PAGE.read_text(), re.DOTALL)
    listed = set(re.findall(r"`([\w.]+)", sentence))
    fields = {"agent": {"name": "guide", "instructions": "x"}, "titles": "true", "tools": {"allowed": {"x": "never"}}}
    assert listed == {"agent.name", "agent.instructions", "titles", "tools.allowed", "guide", "echo", "local", "never"}
    assert not list(find_user_only_fields(_node(fields), Path("own.yaml")))
    others = {name: "x" for name in Config.model_fields if name != "titles"}
    assert [mistake.field for mistake in find_user_only_fields(_node(others), Path("own.yaml"))] == list(others)


def _node(value: Mapping[str, object] | str) -> Node:
    if isinstance(value, str):
        return Node(position=Position(), value=value, raw=value)
    inner = {name: _node(cast("Mapping[str, object] | str", each)) for name, each in value.items()}
    return Node(position=Position(), value=inner)
