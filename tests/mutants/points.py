"""Where a filter or a check can be taken away, and a source in which each of them can be.

Every mutant is in the same copy of the source, so that one process imports and collects once for all of them. A part of
a condition in SQL gets a comment, which `probe.statement` replaces when the statement is run. A part of a condition in
Python asks `probe.taken`, but only where the answer makes a difference: a test that does not ask cannot notice.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

RISKS = (
    (5, r"identit|person|people|participant|owner|principal|visible|profile|left_at|sees_all|barred|within|grant|\brole"),
    (5, r"caller|right|csrf|origin|host|site|secret|token|login|cookie|public|shared|\bkey\b|place|scope|\bown"),
    (4, r"\b(no|id|holder|session_no|turn_no|message_id|account|server|chat|user)\b"),
    (3, r"state|ended|undone|hidden|fence|worker|revoked|refused|observed|deleted|version|answers|halt"),
    (2, r"now|created|since|expires|until|due|lease|\bat\b|before|after|age"),
)
"""What a condition is about, by its words: the first one that is found counts."""
_NAMED = r"(?:[\w.]|\x00\d+\x01)+"
_CONDITION = re.compile(rf"\s*{_NAMED} (?:=|<>|<|>|<=|>=|IN|IS|NOT)\s|\s*(?:NOT )?EXISTS \(|\s*length\(")
_WORDS = re.compile(r"'(?:[^']|'')*'|/\*.*?\*/|\x00\d+\x01|[()?]|[A-Za-z_][\w.]*|[^\s\w]|\d+")
_END = frozenset("ON WHERE AND OR ORDER LIMIT GROUP HAVING RETURNING UNION JOIN LEFT SET THEN ELSE END WHEN DO FROM WINDOW".split())
_TAKES_CONDITIONS = frozenset({"Filter", "given", "among", "select_sessions", "select_one", "drop_refs"})
_SAYS_YES = re.compile(r"(is|has|have|can|may|needs|knows|accepts|allows|sees|meets|startswith|endswith|isinstance)(_|$)")


class Point(NamedTuple):
    """What can be taken away."""

    name: str
    """The same as long as the condition and its function stay as they are: results are kept under it."""
    risk: int
    line: int


class Instrument(ast.NodeTransformer):
    """Rewrite a module so that each of its points can be taken away by number."""

    def __init__(self, path: str, first: int) -> None:
        self.points: list[Point] = []
        self._path, self._first = path, first
        self._scope: list[str] = []
        self._seen: Counter[str] = Counter()
        self._is_sql = "/store/" in path

    def source(self, text: str) -> str:
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.kind = "doc"
        tree = self.visit(tree)
        after = 1 if ast.get_docstring(tree) else 0
        tree.body.insert(after, ast.parse("from tests.mutants import points as _probe").body[0])
        return ast.unparse(ast.fix_missing_locations(tree))

    def _add(self, node: ast.AST, kind: str, text: str) -> int:
        where = ".".join(self._scope) or "module"
        text = " ".join(text.split())
        self._seen[name := f"{self._path}:{where}: {kind} {text}"] += 1
        many = self._seen[name]
        risk = next((risk for risk, words in RISKS if re.search(words, f"{text} {where}", re.IGNORECASE)), 1)
        self.points.append(Point(f"{name} #{many}" if many > 1 else name, risk, getattr(node, "lineno", 0)))
        return self._first + len(self.points) - 1

    # Names

    def _within(self, node: ast.AST) -> ast.AST:
        self._scope.append(getattr(node, "name", ""))
        self.generic_visit(node)
        self._scope.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _within  # noqa: N815

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if self._scope or not isinstance(target, ast.Name):
            return self.generic_visit(node)
        self._scope.append(target.id)
        self.generic_visit(node)
        self._scope.pop()
        return node

    # Conditions in Python

    def visit_If(self, node: ast.If) -> ast.AST:
        number = self._add(node, "if", ast.unparse(node.test)) if _leaves(node) else None
        self.generic_visit(node)
        if number is not None:
            node.test = _off(node.test, number)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        is_and = isinstance(node.op, ast.And)
        numbers = [
            self._add(each, "and" if is_and else "or", ast.unparse(each)) if _is_check(each) else None
            for each in node.values
        ]
        self.generic_visit(node)
        change = _on if is_and else _off
        pairs = zip(node.values, numbers, strict=True)
        node.values = [each if number is None else change(each, number) for each, number in pairs]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        numbers = [self._add(each, "each if", ast.unparse(each)) for each in node.ifs]
        self.generic_visit(node)
        node.ifs = [_on(each, number) for each, number in zip(node.ifs, numbers, strict=True)]
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        is_check = node.value is not None and _is_check(node.value) and not isinstance(node.value, ast.BoolOp)
        number = self._add(node, "return", ast.unparse(node)) if is_check else None
        self.generic_visit(node)
        if number is not None and node.value:
            node.value = _on(node.value, number)
        return node

    # Conditions in SQL

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for each in node.args if name in _TAKES_CONDITIONS else ():
            for text in (*each.keys,) if isinstance(each, ast.Dict) else (each,):
                if isinstance(text, ast.Constant | ast.JoinedStr):
                    setattr(text, "is_condition", True)  # noqa: B010 - an attribute of our own
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, str) or node.kind == "doc" or not self._is_sql:
            return node
        return ast.Constant(self._mark(node, node.value, ()))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        """A call of join does the same, and can be written whatever stands in it."""
        template, given = "", list[ast.expr]()
        for each in node.values:
            if isinstance(each, ast.FormattedValue):
                template += f"\x00{len(given)}\x01"
                given.append(each)
            elif isinstance(each, ast.Constant):
                template += each.value
        texts = [ast.unparse(each.value) for each in given if isinstance(each, ast.FormattedValue)]
        if self._is_sql:
            template = self._mark(node, template, texts)
        parts = re.split(r"\x00(\d+)\x01", template)
        pieces = [ast.Constant(each) if at % 2 == 0 else _formatted(given[int(each)]) for at, each in enumerate(parts)]
        return ast.Call(ast.Attribute(ast.Constant(""), "join", ast.Load()), [ast.Tuple(pieces, ast.Load())], [])

    def _mark(self, node: ast.expr, text: str, given: tuple[str, ...] | list[str]) -> str:
        """Put each part of the conditions in brackets, with its number."""

        def shown(found: re.Match[str]) -> str:
            return f"{{{given[int(found[1])]}}}"

        edits: list[tuple[int, str]] = []
        for start, end in _conjuncts(text, is_condition=hasattr(node, "is_condition")):
            number = self._add(node, "sql", re.sub(r"\x00(\d+)\x01", shown, text[start:end]))
            edits += [(start, "("), (end, f" /*m{number}*/)")]
        for at, what in sorted(edits, key=lambda edit: -edit[0]):
            text = text[:at] + what + text[at:]
        return text


def _leaves(node: ast.If) -> bool:
    return isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue) and not (
        isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    )


def _is_check(node: ast.expr) -> bool:
    """Tell whether an expression is true or false, as far as its form says so."""
    match node:
        case ast.Compare() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) | ast.Attribute(attr=name) | ast.Name(id=name):
            return _SAYS_YES.match(name.lstrip("_")) is not None
        case _:
            return False


def _taken(number: int) -> ast.expr:
    return ast.parse(f"_probe.taken({number})", mode="eval").body


def _on(node: ast.expr, number: int) -> ast.expr:
    return ast.BoolOp(ast.Or(), [node, _taken(number)])


def _off(node: ast.expr, number: int) -> ast.expr:
    return ast.BoolOp(ast.And(), [node, ast.UnaryOp(ast.Not(), _taken(number))])


def _formatted(node: ast.expr) -> ast.expr:
    assert isinstance(node, ast.FormattedValue)
    value = node.value if node.conversion < 0 else ast.Call(ast.Name(chr(node.conversion), ast.Load()), [node.value], [])
    if node.conversion == ord("r"):
        value = ast.Call(ast.Name("repr", ast.Load()), [node.value], [])
    spec = [node.format_spec] if node.format_spec else []
    return ast.Call(ast.Name("format", ast.Load()), [value, *spec], [])


def _conjuncts(sql: str, *, is_condition: bool) -> Iterator[tuple[int, int]]:
    """Find the parts of conditions between WHERE, AND and ON, innermost brackets included."""
    is_sql = re.search(r"\b(WHERE|AND)\b", sql) is not None
    if not is_sql and not is_condition:
        return
    words = [(found.start(), found.end(), found.group()) for found in _WORDS.finditer(sql)]
    starts = [0] if is_condition and _CONDITION.match(sql) else []
    starts += [at + 1 for at, (_, _, word) in enumerate(words) if word in {"WHERE", "AND", "ON"}]
    for first in starts:
        last = _end_of(words, first)
        if last > first and _CONDITION.match(sql, words[first][0]) and not _is_between(words, first):
            yield words[first][0], words[last - 1][1]


def _end_of(words: list[tuple[int, int, str]], first: int) -> int:
    """Return the first word after a part: a keyword, the bracket around it, or what is put in after it."""
    depth = 0
    for at in range(first, len(words)):
        word = words[at][2]
        depth += (word == "(") - (word == ")")
        is_put_in = word.startswith("\x00") and at > first and _is_operand(words[at - 1][2])
        if depth < 0 or (depth == 0 and (word in _END or word == "," or word.startswith("/*") or is_put_in)):
            return at
    return len(words)


def _is_operand(word: str) -> bool:
    is_name = word[0].isalnum() and word.upper() != word and not word.endswith(".")
    return is_name or word in {")", "?", "NULL"} or word.endswith(("\x01", "'")) or word.isdigit()


def _is_between(words: list[tuple[int, int, str]], first: int) -> bool:
    return any(word == "BETWEEN" for _, _, word in words[max(0, first - 4) : first])


# While the tests run

ACTIVE = [0]
"""The number of the point that is taken away."""
hit: set[int] = set()
"""Numbers that were asked for."""


def taken(number: int) -> bool:
    hit.add(number)
    return number == ACTIVE[0]


def statement(asked: Any) -> Any:
    """Return a statement of a transaction without what is taken away."""
    if isinstance(asked, tuple) and (numbers := _numbers(asked[0])):
        hit.update(numbers)
        if ACTIVE[0] in numbers:
            return asked[0].replace(f"/*m{ACTIVE[0]}*/", "OR 1 = 1"), asked[1]
    return asked


@cache
def _numbers(sql: str) -> frozenset[int]:
    return frozenset(map(int, re.findall(r"/\*m(\d+)\*/", sql)))
