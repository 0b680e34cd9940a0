"""The list of tests that run on SQLite only is true of the tests that there are."""

import ast
from pathlib import Path

from tests.store.statements import LIST, needless

HERE = Path(__file__).parent


def test_every_test_on_the_list_exists() -> None:
    modules = {path.name: ast.parse(path.read_text()).body for path in HERE.glob("test_*.py")}
    tests = {
        f"{name}::{each.name}"
        for name, body in modules.items()
        for each in body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    listed = LIST.read_text().split()
    assert set(listed) - tests == set(), "run `python -m tests.store.statements`, or take them off the list"
    assert listed == sorted(set(listed))


def test_a_test_is_listed_only_if_others_do_all_that_it_does() -> None:
    one, other, null = ("SELECT 1", (), ""), ("SELECT ?", ("int",), ""), ("SELECT ?", ("NoneType",), "")
    uses = {"a": {one, other}, "b": {one}, "c": {one, null}, "d": {one}}
    assert needless(uses, {"d"}) == ["b"]
    assert needless(uses, set()) == ["b", "d"]
