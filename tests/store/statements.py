"""Which tests of the store run on SQLite only: `python -m tests.store.statements` measures it and writes the list anew.

A test is listed if others run all its statements on PostgreSQL, with values of the same types, and have them refused
for the same reason. Tests that depend on more than that are never listed.
"""

import ast
import os
import re
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import getsource
from pathlib import Path
from typing import Any, cast

import pytest

from palaver.db import in_step, postgres, postgres_batch
from palaver.db.transaction import Lock, Notify, Statement

__all__ = ["LIST", "name_in_list", "needless", "on_sqlite_only"]

LIST = Path(__file__).with_name("on_sqlite.txt")
# Concurrency, outages, processes, the schema, search, and what the types of a server can hold.
_MODULES = re.compile(
    "accounts|beside|crash|cut_connection|erasure_schema|in_step|interruptions|occupying|opening|outage|plans|processes"
    "|ready_queue|search|stateful|tenancy|transfer|turn_control|values"
)
_WORDS = re.compile(r"\b(gather|create_task|listen|open_store|kill\w*|\w*postgres\w*)\b")
"""A test with one of these is about more than its statements."""
_BY_CHANCE = re.compile(r"@given|state_machine|\bRandom\b|processes|crash|interrupt")
"""What such a test sends differs from run to run: others have to send it, too."""
Use = tuple[str, tuple[str, ...], str]
"""A statement, the types of its values, and why the server refused it, if it did."""


def on_sqlite_only() -> frozenset[str]:
    """Return the names of the tests on the list, unless all are wanted on both engines."""
    return frozenset() if os.environ.get("PALAVER_ENGINES") == "all" else frozenset(LIST.read_text().split())


def name_in_list(item: pytest.Item) -> str:
    return item.nodeid.removeprefix("tests/store/").partition("[")[0]


class Recorder:
    """A plugin for pytest that notes what each test sends to PostgreSQL."""

    def __init__(self) -> None:
        self.uses: dict[str, set[Use]] = {}
        self.on_both: set[str] = set()
        self._test: set[Use] = set()
        self._of_tests = _texts(LIST.parent)
        """Statements of the tests themselves, which need no server."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test = set()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres, "_run", self._noting(getattr(postgres, "_run")))  # noqa: B009 - it is private
            fetch = self._noting_batch(getattr(postgres_batch, "_fetch"))  # noqa: B009
            patch.setattr(postgres_batch, "_fetch", fetch)
            done = yield
        name = name_in_list(item)
        source = getsource(cast("Any", item).function)
        if _BY_CHANCE.search(f"{name} {source}"):
            return done
        self.uses.setdefault(name, set()).update(self._test)
        if _MODULES.search(item.path.name) or _WORDS.search(source):
            self.on_both.add(name)
        return done

    def _noting(self, run: Any) -> Any:
        @wraps(run)
        async def noting(connection: object, statement: Statement) -> Any:
            with self._noted([statement]):
                return await run(connection, statement)

        return noting

    def _noting_batch(self, fetch: Any) -> Any:
        @wraps(fetch)
        async def noting(connection: object, text: object, members: in_step.Members) -> Any:
            with self._noted([member.statement for member in members]):
                return await fetch(connection, text, members)

        return noting

    @contextmanager
    def _noted(self, statements: Iterable[Statement | None]) -> Generator[None]:
        refusal = ""
        try:
            yield
        except Exception as error:
            refusal = f"{type(error).__name__} {getattr(error, 'constraint_name', '')}"
            raise
        finally:
            for statement in statements:
                self._note(statement, refusal)

    def _note(self, statement: Statement | None, refusal: str) -> None:
        if statement is None or isinstance(statement, Notify | Lock):
            return
        sql, values = statement
        first: Sequence[object] = next(iter(values), ()) if isinstance(values, list) else values
        if _flat(sql) not in self._of_tests:
            self._test.add((_flat(sql), tuple(type(value).__name__ for value in first), refusal))


def _flat(sql: str) -> str:
    return re.sub(r"\?(, *\?)+", "?, …", " ".join(sql.split()))


def _texts(folder: Path) -> set[str]:
    nodes = [node for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    return {_flat(node.value) for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def needless(uses: dict[str, set[Use]], on_both: set[str]) -> list[str]:
    """Return the names of tests whose every use others have, too. Those that add most stay."""
    seen = {use for name in on_both for use in uses[name]}
    left = {name: uses[name] for name in sorted(uses) if name not in on_both}
    while any(left[name] - seen for name in left):
        seen |= left.pop(max(left, key=lambda name: len(left[name] - seen)))
    return sorted(left)


def main() -> int:
    os.environ["PALAVER_ENGINES"] = "all"
    recorder = Recorder()
    status = pytest.main(["-p", "no:cacheprovider", "-k", "postgres", str(Path(__file__).parent)], plugins=[recorder])
    if status == pytest.ExitCode.OK:
        LIST.write_text("".join(f"{name}\n" for name in needless(recorder.uses, recorder.on_both)))
    return status


if __name__ == "__main__":
    sys.exit(main())
