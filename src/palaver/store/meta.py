"""Named values of a store: keys, positions and marks."""

import secrets

from palaver.db.transaction import Statements, transaction

SET_META = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


@transaction
def read_meta(name: str) -> Statements[str | None]:
    rows = yield "SELECT value FROM meta WHERE name = ?", (name,)
    return rows[0][0] if rows else None


@transaction
def load_secret(name: str, length: int) -> Statements[str]:
    """Return random bytes as hex digits. They are made at first use, and all workers get the same."""
    found = yield from read_meta(name)
    if found is None:
        made = secrets.token_hex(length)
        yield "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", (name, made)
        found = (yield from read_meta(name)) or made
    return found


@transaction
def write_nothing() -> Statements[bool]:
    """Write a row as it is, to see whether that succeeds."""
    yield "UPDATE meta SET value = value WHERE name = 'schema'", ()
    return True
