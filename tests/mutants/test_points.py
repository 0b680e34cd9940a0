"""What can be taken away, and what is left then."""

from typing import Any

import pytest

from tests.mutants import points
from tests.mutants.points import Instrument, statement

SOURCE = '''"""Whom WHERE and AND do not matter to."""
SHOWN = "hidden_by IS NULL"


def names(people, me, sees_all):
    if not people:
        return None
    return [each for each in people if sees_all or each == me]


def query(table, most):
    where = f"no = ? AND left_at IS NULL AND {SHOWN}"
    return f"SELECT a FROM {table} t JOIN b ON b.no = t.{most} WHERE {where} AND (c = 1 OR b.{most} IN (1, 2)) LIMIT 3"
'''


@pytest.mark.parametrize(
    ("taken", "people", "found", "where"),
    [
        ("", ["a", "b"], ["a"], "WHERE"),
        ("if not people", [], [], "WHERE"),
        ("each if sees_all or each == me", ["a", "b"], ["a", "b"], "WHERE"),
        ("or each == me", ["a", "b"], [], "WHERE"),
        ("sql left_at IS NULL", [], None, "AND (left_at IS NULL OR 1 = 1) AND"),
        ("sql b.no = t.{most}", [], None, "ON (b.no = t.n OR 1 = 1) WHERE"),
        ("sql b.{most} IN (1, 2)", [], None, "OR b.n IN (1, 2)"),
    ],
)
def test_one_condition_is_taken_away(
    monkeypatch: pytest.MonkeyPatch, taken: str, people: list[str], found: list[str] | None, where: str
) -> None:
    instrument, module = Instrument("store/names.py", 1), dict[str, Any]()
    exec(instrument.source(SOURCE), module)  # noqa: S102 - our own text, above
    numbers = {point.name.partition(": ")[2]: number for number, point in enumerate(instrument.points, 1)}
    monkeypatch.setattr(points, "ACTIVE", [numbers.get(taken, 0)])
    assert module["names"](people, "a", False) == found
    sql, values = statement((module["query"]("x", "n"), ("7",)))
    assert where in sql
    assert values == ("7",)


def test_a_test_comes_to_a_condition_only_where_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "hit", set[int]())
    assert points.on(1, 5) == 1
    assert points.off("", 6) == ""
    assert points.hit == set()
    assert points.on(0, 7) == 0
    assert points.off("x", 8) == "x"
    assert points.hit == {7, 8}
