"""The modules of the package as syntax trees. Several tests walk all of them: each is parsed once."""

import ast
from functools import cache
from pathlib import Path

__all__ = ["SOURCE", "modules", "nodes", "parsed"]

SOURCE = Path(__file__).parents[1] / "src/palaver"


@cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(SOURCE.rglob("*.py")))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(path)))
