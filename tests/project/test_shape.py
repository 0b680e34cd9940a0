"""Names, sizes and manners of the code itself."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.source import modules, parsed

ROOT = Path(__file__).parents[2]
PUBLIC = {"protocols", "testkit"}
"""Packages that third parties import: the package or the module lists every public name in `__all__`."""


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


def test_all_is_true_and_every_module_says_what_it_is() -> None:
    for path in modules():
        tree = parsed(path)
        assert ast.get_docstring(tree), path
        declared = declared_names(tree)
        if declared is None:
            if PUBLIC & set(path.parts):
                package = parsed(path.parent / "__init__.py")
                assert public_definitions(tree) <= set(declared_names(package) or ()), path
            continue
        assert public_definitions(tree) <= set(declared), path
        assert set(declared) <= set(bound_names(tree)), path
        assert len(declared) == len(set(declared)), path


PURE = {
    "bisect",
    "collections",
    "contextlib",
    "cronsim",
    "Stemmer",
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
    "shlex",
    "struct",
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


def test_the_model_is_pure() -> None:
    """No I/O, no clock, no asyncio, no logging, no dependency but cronsim."""
    for path in (ROOT / "src/palaver/model").glob("*.py"):
        tree = parsed(path)
        for module in imported_modules(tree):
            assert module in PURE or module.partition(".")[0] in PURE - {"urllib"}, (path, module)
        clocks = {"now", "utcnow", "today"}
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        assert not [call.attr for call in calls if isinstance(call, ast.Attribute) and call.attr in clocks], path


def own_files() -> list[Path]:
    folders = ("src", "tests", "bench", "docs", ".ci", ".github")
    nested = (path for folder in folders for path in (ROOT / folder).rglob("*"))
    found = [path for path in (*ROOT.iterdir(), *nested) if path.is_file()]
    return [path for path in found if path.parent.name != "__pycache__" and path.name != ".git"]


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


def test_one_module_makes_private_files() -> None:
    """`db/private_files.py` gives what root makes to the owner of the folder."""
    mode = re.compile(r"\b0o[67]00\b")
    rooms = ("db", "store", "tools", "config", "gateway")
    found = [
        path
        for path in modules()
        if path.relative_to(ROOT / "src/palaver").parts[0] in rooms and mode.search(path.read_text())
    ]
    assert [path.name for path in found] == ["private_files.py"]
