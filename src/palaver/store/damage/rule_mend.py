"""How the rows that break an invariant are mended: by statements, or one by one."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from palaver.db.transaction import Statements, transaction
from palaver.store.damage.health_check import Mend, in_transaction
from palaver.store.damage.set_aside import set_aside
from palaver.store.records import micros
from palaver.store.status.invariants import INVARIANTS

Step = Callable[[Any, datetime], Statements[None]]
"""What to do about one value that a rule names."""
_OFFENDERS = {invariant.sentence: invariant.offenders for invariant in INVARIANTS}


class RuleMend(NamedTuple):
    sentence: str
    """Of the invariant."""
    deed: str
    """What a repair does."""
    mend: Mend


def by_statements(sentence: str, deed: str, *statements: str) -> RuleMend:
    """Mend with statements, in which `?` is the current time."""

    @transaction
    def mend(now: datetime) -> Statements[None]:
        for statement in statements:
            yield statement, (micros(now),) * statement.count("?")

    return RuleMend(sentence, deed, in_transaction(mend))


def one_by_one(sentence: str, deed: str, step: Step) -> RuleMend:
    """Do a step for each value that the rule names."""

    @transaction
    def mend(now: datetime) -> Statements[None]:
        for row in (yield _OFFENDERS[sentence], ()):
            yield from step(row[0], now)

    return RuleMend(sentence, deed, in_transaction(mend))


def by_setting_aside(sentence: str, table: str, name: str) -> RuleMend:
    def _step(row: Any, now: datetime) -> Statements[None]:  # noqa: ANN401 - of any column
        yield from set_aside(table, f"{name} = ?", (row,), f"it breaks a rule: {sentence}", now)

    return one_by_one(sentence, "sets it aside", _step)
