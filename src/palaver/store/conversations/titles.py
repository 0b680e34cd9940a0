"""Titles of sessions: unique among those of their owner, numbered where they repeat."""

from palaver.db.transaction import Lock, Statements, transaction
from palaver.model.session import TITLE_LIMIT, Principal, Session, clean_title, lineage, lineage_prefix, next_in_lineage
from palaver.model.text import one_line
from palaver.store.conversations.visibility import get, get_visible
from palaver.store.records import placeholders


@transaction
def free_title(owner: str, title: str, *, besides: int = 0) -> Statements[str]:
    """Return the title, or the next of its lineage that none of the owner's accounts uses, `besides` one session."""
    rows = yield (
        "SELECT o.identity, o.person FROM identities o JOIN identities i ON i.person = o.person WHERE i.identity = ?",
        (owner,),
    )
    owners = sorted({owner, *(row[0] for row in rows)})
    yield Lock(f"titles of {rows[0][1] if rows else owner}")
    title = clean_title(title)
    base, _ = lineage(title)
    prefix = lineage_prefix(base)
    rows = yield (
        f"SELECT title FROM sessions WHERE owner IN ({placeholders(owners)}) AND title IS NOT NULL AND no <> ?"
        " AND (title = ? OR title = ? OR substr(title, 1, ?) = ?)",
        (*owners, besides, title, base, len(prefix), prefix),
    )
    return next_in_lineage(title, [row[0] for row in rows])


@transaction
def renumber_titles(identity: str) -> Statements[None]:
    """Number the titles that several accounts of a person have, except the oldest of each."""
    doubles = yield (
        "SELECT s.no, s.owner, s.title FROM sessions s JOIN identities i ON i.identity = s.owner"
        " WHERE s.title IS NOT NULL AND i.person = (SELECT person FROM identities WHERE identity = ?)"
        " AND EXISTS (SELECT 1 FROM sessions o JOIN identities oi ON oi.identity = o.owner"
        "  WHERE oi.person = i.person AND o.title = s.title AND o.no < s.no) ORDER BY s.no",
        (identity,),
    )
    for number, owner, title in doubles:
        yield (
            "UPDATE sessions SET title = ? WHERE no = ?",
            ((yield from free_title(owner, title)), number),
        )


@transaction
def rename(session: str, title: str, principal: Principal) -> Statements[Session]:
    """Set the title; one that the owner already uses gets the next number of its lineage."""
    found = yield from get_visible(session, principal)
    if found.title == clean_title(title):
        return found
    free = yield from free_title(found.owner, title, besides=found.root)
    yield f"UPDATE sessions SET title = ?, title_seq = NULL, {_NONE_HIDDEN} WHERE no = ?", (free, found.root)
    return (yield from get(found.number))


@transaction
def suggest_title(session: str, title: str, *, made_from: int | None = None) -> Statements[str | None]:
    """Set the title of a session that has none; return the title it has then.

    `made_from` is the last entry that it was made from, if it was made from what was said.
    """
    rows = yield "SELECT owner FROM sessions WHERE id = ?", (session,)
    free = (yield from free_title(rows[0][0], title)) if rows and one_line(title, TITLE_LIMIT) else None
    rows = yield (
        "UPDATE sessions SET title_seq = CASE WHEN title IS NULL THEN ? ELSE title_seq END, title = coalesce(title, ?)"
        " WHERE no = (SELECT coalesce(version_root, no) FROM sessions WHERE id = ?) RETURNING title",
        (made_from, free, session),
    )
    return rows[0][0] if rows else None


_NONE_HIDDEN = "hidden_title = NULL, title_hidden_by = NULL"


@transaction
def hide_title(session: Session, first: int, operation: int) -> Statements[None]:
    """Hide the title of a session with what it was made from, if that goes beyond the entry `first`."""
    yield (
        "UPDATE sessions SET hidden_title = title, title_hidden_by = ?, title = NULL"
        " WHERE no = ? AND title IS NOT NULL AND title_seq >= ?",
        (operation, session.root, first),
    )


@transaction
def show_title(session_number: int, operation: int) -> Statements[None]:
    """Bring the title back that an operation hid, unless there is another by now."""
    rows = yield (
        "SELECT no, owner, title, hidden_title FROM sessions WHERE title_hidden_by = ?"
        " AND no = (SELECT coalesce(version_root, no) FROM sessions WHERE no = ?)",
        (operation, session_number),
    )
    for number, owner, title, hidden in rows:
        shown = title or (yield from free_title(owner, hidden, besides=number))
        yield f"UPDATE sessions SET title = ?, {_NONE_HIDDEN} WHERE no = ?", (shown, number)


@transaction
def pass_on_title(number: int, heir: int) -> Statements[None]:
    """Leave the title of a conversation to another version of it."""
    columns = "title, title_seq, hidden_title, title_hidden_by"
    rows = yield f"SELECT {columns} FROM sessions WHERE no = ?", (number,)
    yield f"UPDATE sessions SET title = NULL, {_NONE_HIDDEN} WHERE no = ?", (number,)
    yield f"UPDATE sessions SET ({columns}) = (?, ?, ?, ?) WHERE no = ?", [(*row, heir) for row in rows]
