"""Rules that every database keeps: which rows break one, and how a repair mends them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from palaver.db.transaction import Database, Statements, Transaction, transaction
from palaver.model.text import counted
from palaver.store.damage.health_check import HealthCheck, Mend, in_transaction, repair_step
from palaver.store.damage.set_aside import set_aside
from palaver.store.records import micros

PROMISES = {
    "P1": "nothing accepted is lost",
    "P2": "nothing is done twice",
    "P3": "nobody sees another's conversation",
    "P4": "nothing is irreversible",
}
_MAX_EXAMPLES = 5


class Invariant(NamedTuple):
    sentence: str
    offenders: str
    """SQL that returns one value for each row that breaks it. Every `?` in it is the current time."""
    fix: str
    mend: Mend | None = None
    """None if a person has to mend it."""
    promise: str = "P1"

    @property
    def name(self) -> str:
        return f"{self.promise}, {PROMISES[self.promise]}: {self.sentence}"


class Violation(NamedTuple):
    invariant: Invariant
    times: int
    examples: tuple[str, ...]


def keeping(promise: str, *invariants: Invariant) -> tuple[Invariant, ...]:
    """Return the invariants that together keep a promise."""
    return tuple(invariant._replace(promise=promise) for invariant in invariants)


Step = Callable[[Any, datetime], Statements[None] | Transaction[None]]
"""What to do about one value that a rule names."""


def by_statements(sentence: str, offenders: str, deed: str, *statements: str) -> Invariant:
    """Mend with statements, in which `?` is the current time."""

    @transaction
    def mend(now: datetime) -> Statements[None]:
        for statement in statements:
            yield statement, (micros(now),) * statement.count("?")

    return Invariant(sentence, offenders, repair_step(deed), in_transaction(mend))


def one_by_one(sentence: str, offenders: str, deed: str, step: Step) -> Invariant:
    """Do a step for each value that the rule names."""

    @transaction
    def mend(now: datetime) -> Statements[None]:
        for row in (yield offenders, ()):
            yield from step(row[0], now)

    return Invariant(sentence, offenders, repair_step(deed), in_transaction(mend))


def by_setting_aside(sentence: str, offenders: str, table: str, name: str) -> Invariant:
    def _step(row: Any, now: datetime) -> Statements[None]:  # noqa: ANN401 - of any column
        yield from set_aside(table, f"{name} = ?", (row,), f"it breaks a rule: {sentence}", now)

    return one_by_one(sentence, offenders, "sets it aside", _step)


@transaction
def find_broken(invariants: Sequence[Invariant], now_micros: int = 0) -> Statements[list[Violation]]:
    """Return every broken invariant, with the number of rows and a few of them."""
    found: list[Violation] = []
    for invariant in invariants:
        values = (now_micros,) * invariant.offenders.count("?")
        rows = yield f"SELECT count(*) FROM ({invariant.offenders}) AS broken", values
        if rows[0][0]:
            examples = yield f"{invariant.offenders} LIMIT {_MAX_EXAMPLES}", values
            found.append(Violation(invariant, rows[0][0], tuple(str(row[0]) for row in examples)))
    return found


async def check_rule(database: Database, invariant: Invariant, now_micros: int = 0) -> HealthCheck:
    broken = await database.read(find_broken((invariant,), now_micros))
    count = counted(broken[0].times, "row breaks", "rows break") if broken else ""
    return HealthCheck(
        name=invariant.name,
        ok=not broken,
        found=f"{count} it, such as {', '.join(broken[0].examples)}" if broken else "holds",
        public=f"{count} it" if broken else "holds",
        fix=invariant.fix,
        mends=(invariant.mend,) if invariant.mend else (),
    )
