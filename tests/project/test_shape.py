"""Names, sizes and manners of the code itself."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "src/palaver").rglob("*.py"))
LONGEST_FILE = 400
LONGEST_FUNCTION = 50
FORBIDDEN_ENDINGS = ("Manager", "Helper", "Util", "Utils", "Handler", "Mixin", "Data", "Info")


def module_id(path: Path) -> str:
    return str(path.relative_to(ROOT / "src"))


def public_definitions(tree: ast.Module) -> set[str]:
    """Functions, classes and constants, but no type variables."""
    return {name for node in tree.body for name in defined_names(node) if not name.startswith("_")}


def defined_names(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign() | ast.AnnAssign():
            names = (
                part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            )
            yield from (name for name in names if name.isupper() and len(name) > 1)
        case _:
            pass


def declared_names(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def bound_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=alias):
                yield alias or name
            case _:
                pass


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_all_is_true(path: Path) -> None:
    tree = ast.parse(path.read_text())
    declared = declared_names(tree)
    if declared is None:
        assert not public_definitions(tree)
        return
    assert public_definitions(tree) <= set(declared)
    assert set(declared) <= set(bound_names(tree))
    assert len(declared) == len(set(declared))


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_a_module_is_one_sentence_and_one_sitting(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text))
    assert text.count("\n") <= LONGEST_FILE


@pytest.mark.parametrize("path", MODULES, ids=module_id)
def test_functions_are_short_and_classes_well_named(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < LONGEST_FUNCTION, node.name
        if isinstance(node, ast.ClassDef):
            assert not node.name.endswith(FORBIDDEN_ENDINGS), node.name


PURE = {
    "bisect",
    "collections",
    "cronsim",
    "dataclasses",
    "datetime",
    "difflib",
    "enum",
    "functools",
    "hashlib",
    "hmac",
    "itertools",
    "json",
    "math",
    "operator",
    "palaver",
    "re",
    "typing",
    "unicodedata",
    "urllib.parse",
    "zoneinfo",
}


def imported_modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", sorted((ROOT / "src/palaver/domain").glob("*.py")), ids=module_id)
def test_the_domain_is_pure(path: Path) -> None:
    """No I/O, no clock, no asyncio, no logging, no dependency but cronsim."""
    tree = ast.parse(path.read_text())
    for module in imported_modules(tree):
        assert module in PURE or module.partition(".")[0] in PURE - {"urllib"}, module
    clocks = {"now", "utcnow", "today"}
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    assert not [call.attr for call in calls if isinstance(call, ast.Attribute) and call.attr in clocks]


def own_files() -> list[Path]:
    folders = ("src", "tests", "bench", "docs", ".ci", ".github")
    nested = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    return [path for path in (*ROOT.iterdir(), *nested) if path.is_file() and path.parent.name != "__pycache__"]


def test_the_repository_names_no_registry_and_no_machine() -> None:
    hosts = "|".join(("py" + r"pi\.org", "pythonhosted" + r"\.org", "npm" + r"js\.org", "deb" + r"ian\.org"))
    homes = "|".join(("/ro" + "ot/", "/ho" + "me/[a-z]", "/wo" + "rk/"))
    named = re.compile(f"{hosts}|{homes}|--(extra-)?index-url")
    for path in own_files():
        text = path.read_text(errors="replace")
        if path.name != Path(__file__).name:
            assert not named.search(text), path


def test_versions_are_pinned_exactly() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert pins
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    # Constraints do not reach the environment in which pip builds.
    assert set(tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]) <= set(pins)
