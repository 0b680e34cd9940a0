"""How much SQLite has to do for a piece of work, no matter what the machine does meanwhile."""

from contextlib import closing
from pathlib import Path

from palaver.db.sqlite import connect, run_statements
from palaver.db.transaction import Transaction

__all__ = ["steps_of"]


def steps_of(path: Path, work: Transaction[object]) -> int:
    """The steps that SQLite's machine takes; what they change is not kept."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    with closing(connect(path)) as db:
        db.execute("BEGIN")
        db.set_progress_handler(count, 1)
        run_statements(db, iter(work), set())
    return taken
