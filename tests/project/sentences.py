"""Every sentence the program can say to a person, by file."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.source import SOURCE, modules, nodes

__all__ = ["collect"]

SQL_WORDS = "SELECT|INSERT|UPDATE|DELETE|CREATE|FROM|WHERE|JOIN|AND|ORDER BY|VALUES|SET|PRAGMA|SAVEPOINT|coalesce"
SQL = re.compile(rf"\b({SQL_WORDS})\b|= \?|^[a-z_., ]*, [a-z_., ]*$")
SQL_ROOMS = ("store", "db")
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "log_broken"}
TAG = re.compile(r"<(script|style).*?</\1>|\{[%#].*?[%#]\}|\{\{.*?\}\}|<[^>]*>", re.DOTALL)


def collect() -> Iterator[tuple[str, str]]:
    """Yield the sentences of every module and page, each with the file that says it."""
    for path in sorted([*modules(), *SOURCE.rglob("*.html")]):
        found = _of_page(path.read_text()) if path.suffix == ".html" else _of_module(path)
        for sentence in sorted(set(found)):
            yield str(path.relative_to(SOURCE)), sentence


def _of_page(text: str) -> Iterator[str]:
    for line in TAG.sub("\n", text).splitlines():
        if _is_sentence(said := " ".join(line.split())):
            yield said


def _of_module(path: Path) -> Iterator[str]:
    room = path.relative_to(SOURCE).parts[0]
    skipped = {id(part) for node in nodes(path) for unsaid in _unsaid(node) for part in ast.walk(unsaid)}
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef) and any(".command(" in ast.unparse(each) for each in node.decorator_list):
            yield " ".join((ast.get_docstring(node) or "").split())
        if id(node) in skipped or not isinstance(node, ast.Constant | ast.JoinedStr):
            continue
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in ast.walk(node) if isinstance(part, ast.Constant))
        said = " ".join(_text(node).split())
        if _is_sentence(said) and not (room in SQL_ROOMS and SQL.search(said)):
            yield said


def _unsaid(node: ast.AST) -> Iterator[ast.AST]:
    """Yield docstrings and log messages."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in LOG_METHODS:
            yield node


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{…}" for part in node.values)


def _is_sentence(text: str) -> bool:
    return len(text.split()) > 2 and bool(re.search(r"[a-z]{2}", text))
