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
    yield "UPDATE sessions SET title = ? WHERE no = ?", (free, found.root)
    return (yield from get(found.number))


@transaction
def suggest_title(session: str, title: str) -> Statements[str | None]:
    """Set the title of a session that has none; return the title it has then."""
    rows = yield "SELECT owner FROM sessions WHERE id = ?", (session,)
    free = (yield from free_title(rows[0][0], title)) if rows and one_line(title, TITLE_LIMIT) else None
    rows = yield (
        "UPDATE sessions SET title = coalesce(title, ?)"
        " WHERE no = (SELECT coalesce(version_root, no) FROM sessions WHERE id = ?) RETURNING title",
        (free, session),
    )
    return rows[0][0] if rows else None
