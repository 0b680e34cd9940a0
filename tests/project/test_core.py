"""The core knows no platform by name: what it may know of one is what the platform declares about itself."""

import ast
from collections.abc import Iterator

import pytest

from palaver.platforms.plugins import PLATFORMS
from tests.source import SOURCE, modules, nodes, parsed

CORE = ("model", "protocols", "db", "store", "engine", "commands", "web")
EVERYWHERE = frozenset({"terminal", "web", "api"})
"""Ours, and served by every gateway."""
NAMES = frozenset(PLATFORMS) - EVERYWHERE
MODULES = [path for room in CORE for path in sorted((SOURCE / room).rglob("*.py"))]


def named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Texts that are the name of a platform, but for examples in errors and the names that a module gives away."""
    spared: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "example":
            spared.update(ast.walk(node.value))
        if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == ["__all__"]:
            spared.update(ast.walk(node.value))
        if isinstance(node, ast.Constant) and node not in spared and node.value in NAMES:
            yield node.lineno, str(node.value)


def test_no_platform_is_named_in_the_core() -> None:
    for path in MODULES:
        assert not list(named(parsed(path))), path


@pytest.mark.parametrize(
    "code",
    [
        'if source.platform == "telegram": pass',
        'LIMITS = {"matrix": 65536}',
        'match name:\n    case "slack": pass',
        'raise Wrong("no", found="webhook", example="telegram")',
        'def send(platform="signal"): ...',
    ],
)
def test_a_name_would_be_found(code: str) -> None:
    assert len(list(named(ast.parse(code)))) == 1


def test_an_example_is_no_knowledge() -> None:
    assert not list(named(ast.parse('__all__ = ["line"]\nraise Wrong("no", example="telegram")')))


def test_only_the_adapter_of_a_platform_imports_its_folder() -> None:
    for path in modules():
        own = path.relative_to(SOURCE).parts
        for node in nodes(path):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            parts = (module or "").split(".")
            if parts[:2] == ["palaver", "platforms"] and len(parts) > 2 and parts[2] in NAMES:
                assert own[:2] == ("platforms", parts[2]), f"{path} imports {module}"
