"""Where a filter or a check can be taken away, and a source in which each of them can be.

Every mutant is in the same copy of the source, so that one process imports and collects once for all of them. A part
of a condition in SQL gets a comment, which `statement` replaces when a transaction runs it. A part of a condition in
Python goes through `on` or `off`, which count it only where it decides: no other test can notice.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

_RISKS = (
    (
        5,
        r"identit|person|people|participant|owner|principal|visible|profile|left_at|sees_all|placed|within|grant|\brole",
    ),
    (5, r"caller|right|csrf|origin|host|site|secret|token|login|cookie|public|shared|\bkey\b|place|scope|\bown"),
    (4, r"\b(no|id|holder|session_no|turn_no|message_id|account|server|chat|user)\b"),
    (3, r"state|ended|undone|hidden|fence|worker|revoked|refused|observed|deleted|version|answers|halt"),
    (2, r"now|created|since|expires|until|due|lease|\bat\b|before|after|age"),
)
"""How bad it would be, by the words of a condition: the first that is found counts."""
_CONDITION = re.compile(r"\s*(?:[\w.]|\x00\d+\x01)+ (?:=|<>|<|>|<=|>=|IN|IS|NOT)\s|\s*(?:NOT )?EXISTS \(|\s*length\(")
_WORDS = re.compile(r"'(?:[^']|'')*'|/\*.*?\*/|\x00\d+\x01|[()?,]|[A-Za-z_][\w.]*|[^\s\w]|\d+")
_BEGIN = frozenset({"WHERE", "AND", "ON"})
_END = re.compile(
    "ON|WHERE|AND|OR|ORDER|LIMIT|GROUP|HAVING|RETURNING|UNION|JOIN|LEFT|SET|THEN|ELSE|END|WHEN|DO|FROM|,|/\\*.*"
)
_TAKE_CONDITIONS = frozenset({"Filter", "given", "among", "select_sessions", "select_one", "drop_refs"})
_CHECK = re.compile(r"(is|has|have|can|may|needs|knows|accepts|allows|sees|meets|startswith|endswith|isinstance)(_|$)")


class Point(NamedTuple):
    """What can be taken away."""

    name: str
    """The same as long as the condition and its function stay as they are: results are kept under it."""
    risk: int


class Instrument(ast.NodeTransformer):
    """Rewrite a module so that each of its points can be taken away by number."""

    def __init__(self, path: str, first: int) -> None:
        self.points: list[Point] = []
        self._path, self._first = path, first
        self._scope: list[str] = []
        self._seen: Counter[str] = Counter()
        self._has_sql = path.startswith("store/")
        self._conditions: set[ast.expr] = set()
        self._docs: set[ast.expr] = set()

    def source(self, text: str) -> str:
        tree = ast.parse(text)
        self._docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        tree = self.visit(tree)
        tree.body[1:1] = ast.parse("from tests.mutants import points as _points").body
        return ast.unparse(ast.fix_missing_locations(tree))

    def _add(self, kind: str, text: str) -> int:
        where = ".".join(self._scope) or "module"
        self._seen[name := f"{self._path}:{where}: {kind} {' '.join(text.split())}"] += 1
        risk = next((risk for risk, words in _RISKS if re.search(words, f"{text} {where}", re.IGNORECASE)), 1)
        many = self._seen[name]
        self.points.append(Point(f"{name} #{many}" if many > 1 else name, risk))
        return self._first + len(self.points) - 1

    def _visit_within(self, name: str, node: ast.AST) -> ast.AST:
        self._scope.append(name)
        self.generic_visit(node)
        self._scope.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._visit_within(node.name, node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._visit_within(node.name, node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._visit_within(node.name, node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        return self.generic_visit(node) if self._scope else self._visit_within(ast.unparse(node.targets[0]), node)

    # Conditions in Python

    def _change(self, how: str, kind: str, node: ast.expr) -> ast.expr:
        """Return a condition that can be taken away: `on` lets it hold, `off` not."""
        number = self._add(kind, ast.unparse(node))
        call: Any = ast.parse(f"_points.{how}(0, {number})", mode="eval").body
        call.args[0] = self.visit(node)
        return call

    def visit_If(self, node: ast.If) -> ast.AST:
        if isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue):
            node.test = self._change("off", "if", node.test)
        else:
            node.test = self.visit(node.test)
        node.body = [self.visit(each) for each in node.body]
        node.orelse = [self.visit(each) for each in node.orelse]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        how, kind = ("on", "and") if isinstance(node.op, ast.And) else ("off", "or")
        node.values = [self._change(how, kind, each) if _is_check(each) else self.visit(each) for each in node.values]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        conditions, node.ifs = node.ifs, []
        self.generic_visit(node)
        node.ifs = [self._change("on", "each if", each) for each in conditions]
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value and _is_check(node.value):
            node.value = self._change("on", "return", node.value)
            return node
        return self.generic_visit(node)

    # Conditions in SQL

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if getattr(node.func, "attr", getattr(node.func, "id", "")) in _TAKE_CONDITIONS:
            for each in node.args:
                self._conditions |= set(filter(None, each.keys)) if isinstance(each, ast.Dict) else {each}
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and self._has_sql and node not in self._docs:
            return ast.Constant(self._mark(node, node.value, ()))
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """Return a call of join: it does the same, and any expression can be written in it."""
        given = [each for each in node.values if isinstance(each, ast.FormattedValue)]
        numbers = {each: f"\x00{number}\x01" for number, each in enumerate(given)}
        text = "".join(numbers.get(each) or str(getattr(each, "value", "")) for each in node.values)  # pyright: ignore[reportArgumentType, reportCallIssue]
        if self._has_sql:
            text = self._mark(node, text, [ast.unparse(each.value) for each in given])
        parts = re.split(r"\x00(\d+)\x01", text)
        call: Any = ast.parse("''.join([])", mode="eval").body
        call.args[0].elts = [
            ast.JoinedStr([given[int(part)]]) if at % 2 else ast.Constant(part) for at, part in enumerate(parts)
        ]
        return call

    def _mark(self, node: ast.expr, text: str, given: Sequence[str]) -> str:
        """Put each part of the conditions in brackets, with its number."""
        edits: list[tuple[int, str]] = []
        for start, end in _parts(text, is_condition=node in self._conditions):
            shown = re.sub(r"\x00(\d+)\x01", lambda found: f"{{{given[int(found[1])]}}}", text[start:end])
            edits += [(start, "("), (end, f" /*m{self._add('sql', shown)}*/)")]
        for at, mark in sorted(edits, key=lambda edit: -edit[0]):
            text = text[:at] + mark + text[at:]
        return text


def _is_check(node: ast.expr) -> bool:
    """Tell whether an expression is true or false, as far as its form says so."""
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) | ast.Attribute(attr=name) | ast.Name(id=name):
            return _CHECK.match(name.lstrip("_")) is not None
        case _:
            return False


def _parts(sql: str, *, is_condition: bool) -> Iterator[tuple[int, int]]:
    """Find what stands between WHERE, AND and ON, also within brackets."""
    words = [(found.start(), found.end(), found.group()) for found in _WORDS.finditer(sql)]
    starts = [at + 1 for at, (_, _, word) in enumerate(words) if word in _BEGIN]
    for first in ([0] if is_condition else []) + starts:
        last = _end_of(words, first)
        is_range = any(word == "BETWEEN" for _, _, word in words[max(0, first - 4) : first])
        if last > first and not is_range and _CONDITION.match(sql, words[first][0]):
            yield words[first][0], words[last - 1][1]


def _end_of(words: Sequence[tuple[int, int, str]], first: int) -> int:
    """Return the place of the first word after a part: a keyword, the bracket around it, or something put in."""
    depth = 0
    for at in range(first, len(words)):
        word = words[at][2]
        depth += (word == "(") - (word == ")")
        is_put_in = at > first and word.startswith("\x00") and _is_operand(words[at - 1][2])
        if depth < 0 or (not depth and (is_put_in or _END.fullmatch(word))):
            return at
    return len(words)


def _is_operand(word: str) -> bool:
    is_name = word[0].isalnum() and word.upper() != word and not word.endswith(".")
    return is_name or word.isdigit() or word in {")", "?", "NULL"} or word.endswith(("\x01", "'"))


# While the tests run

ACTIVE = [0]
"""The number of the point that is taken away."""
hit: set[int] = set()
"""Points that were come to."""


def on(found: Any, number: int) -> Any:
    """Let a condition that does not hold hold, if it is the one that is taken away."""
    return found or _is_taken(number) or found


def off(found: Any, number: int) -> Any:
    """Let a condition that holds not hold."""
    return found and (False if _is_taken(number) else found)


def _is_taken(number: int) -> bool:
    hit.add(number)
    return number == ACTIVE[0]


def statement(asked: Any) -> Any:
    """Return a statement of a transaction without what is taken away."""
    if not isinstance(asked, tuple):
        return asked
    sql, values = cast("tuple[str, object]", asked)
    numbers = _numbers(sql)
    hit.update(numbers)
    return sql.replace(f"/*m{ACTIVE[0]}*/", "OR 1 = 1"), values


@cache
def _numbers(sql: str) -> frozenset[int]:
    return frozenset(map(int, re.findall(r"/\*m(\d+)\*/", sql)))
