"""Count the rows of every table, by state where rows have one: numbers that say nothing about anybody."""

from palaver.db.transaction import Statements, transaction
from palaver.model.turn import InboxState, OutboxState, TurnState

_STATES = {
    "inbox": [state.value for state in InboxState],
    "turns": [state.value for state in TurnState],
    "outbox": [state.value for state in OutboxState],
}
_TABLES = (
    "SELECT /*pg table_name::text FROM information_schema.tables WHERE table_schema = current_schema()"
    " AND table_type = 'BASE TABLE' ORDER BY 1 --*/ name FROM sqlite_master WHERE type = 'table'"
    " AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY 1"
)


@transaction
def count_rows() -> Statements[dict[str, int | dict[str, int]]]:
    """Return the number of rows by table and state. States that are none of ours are `other`."""
    found: dict[str, int | dict[str, int]] = {}
    for (table,) in (yield _TABLES, ()):
        if table in _STATES:
            rows = yield f"SELECT state, count(*) FROM {table} GROUP BY state", ()
            known = {state: count for state, count in rows if state in _STATES[table]}
            found[table] = known | {"other": sum(count for state, count in rows if state not in known)}
        else:
            rows = yield f'SELECT count(*) FROM "{table}"', ()
            found[table] = int(rows[0][0])
    return found
