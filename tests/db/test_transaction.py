"""Transactions: where their errors appear, and which functions describe one."""

import ast
import traceback

import pytest

from palaver.db.transaction import ConstraintViolated, Statements, transaction
from palaver.model.errors import StoreError
from palaver.store.store import Store
from tests.source import modules, nodes

_INSERT = "INSERT INTO meta (name, value) VALUES (?, ?)"


class Taken(Exception): ...


@transaction
def insert(name: str) -> Statements[None]:
    yield _INSERT, (name, "")


@transaction
def insert_or_explain(name: str) -> Statements[None]:
    try:
        yield from insert(name)
    except ConstraintViolated as error:
        raise Taken(name) from error


@transaction
def insert_and_go_on(name: str, *, once_more: bool) -> Statements[str]:
    try:
        yield from insert(name)
    except ConstraintViolated:
        if once_more:
            yield _INSERT, (f"{name}, too", "")
    return name


@transaction
def names() -> Statements[set[str]]:
    return {row[0] for row in (yield "SELECT name FROM meta", ())}


async def test_a_statement_fails_where_it_was_yielded(store: Store) -> None:
    await store.transact(insert("seen"))
    with pytest.raises(ConstraintViolated) as caught:
        await store.transact(insert("seen"))
    assert "insert" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


async def test_a_violated_constraint_can_be_explained(store: Store) -> None:
    await store.transact(insert("seen"))
    with pytest.raises(Taken):
        await store.transact(insert_or_explain("seen"))
    await store.transact(insert_or_explain("unseen"))
    assert {"seen", "unseen"} <= await store.read(names())


@pytest.mark.parametrize("once_more", [False, True])
async def test_no_transaction_goes_on_after_a_statement_that_failed(store: Store, *, once_more: bool) -> None:
    await store.transact(insert("seen"))
    with pytest.raises(StoreError, match="continued after"):
        await store.transact(insert_and_go_on("seen", once_more=once_more))
    assert "seen, too" not in await store.read(names())


async def test_a_wrong_statement_names_the_function_that_yielded_it(store: Store) -> None:
    @transaction
    def misspell() -> Statements[None]:
        yield "SELEKT 1", ()

    with pytest.raises(StoreError) as caught:
        await store.transact(misspell())
    cause = caught.value.__cause__
    assert cause
    assert "misspell" in [frame.name for frame in traceback.extract_tb(cause.__traceback__)]


def test_every_exported_generator_of_statements_is_a_transaction() -> None:
    for file in modules():
        for node in nodes(file):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.returns:
                is_generator = ast.unparse(node.returns).startswith("Statements[")
                decorators = [ast.unparse(each) for each in node.decorator_list]
                assert not is_generator or "transaction" in decorators, f"{file.name}: {node.name} lacks @transaction"
