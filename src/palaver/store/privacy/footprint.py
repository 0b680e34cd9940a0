"""The trace of a person: under which names they stand in a store, and what of it is theirs."""

from collections.abc import Iterable, Mapping
from typing import Any

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.errors import NotFound
from palaver.model.ids import decode_id, encode_id
from palaver.model.key import SessionKey, canonical_id
from palaver.model.session import identity_of
from palaver.model.source import DM, Source
from palaver.model.transcript import Entry, Role
from palaver.model.value import value
from palaver.store.conversations.transcript import SEQS
from palaver.store.conversations.visibility import Filter
from palaver.store.records import entries_of, from_json, json_text

__all__ = [
    "Share",
    "Trace",
    "commands_about",
    "handoffs_of",
    "marks",
    "own_sessions",
    "own_to",
    "share_of",
    "shared_sessions",
    "trace_of",
]


@value
class Trace:
    """A person as rows name them. An identity is `telegram:7`; a person has an id for each they were born as."""

    identities: frozenset[str]
    people: frozenset[str] = frozenset()
    chats: frozenset[tuple[str, str]] = frozenset()
    """Platform and id of the direct chats that are known to be theirs."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.identities | self.people))

    @property
    def text(self) -> str:
        chats = [list(chat) for chat in sorted(self.chats)]
        return json_text({"identities": sorted(self.identities), "people": sorted(self.people), "chats": chats})

    @classmethod
    def parse(cls, text: str) -> "Trace":
        written: Mapping[str, Any] = from_json(text)
        return cls(
            identities=frozenset(written["identities"]),
            people=frozenset(written["people"]),
            chats=frozenset((platform, chat) for platform, chat in written["chats"]),
        )

    def ids(self, platforms: Iterable[str]) -> frozenset[str]:
        """Their ids on these platforms, as senders carry them."""
        wanted = set(platforms)
        pairs = (identity.split(":", 1) for identity in self.identities)
        return frozenset(decode_id(id_) for platform, id_ in pairs if platform in wanted)

    def speaks(self, source: Source) -> bool:
        return identity_of(source) in self.identities

    def is_named_by(self, key: SessionKey) -> bool:
        """Whether a conversation is told from others by who they are."""
        if key.person:
            return key.person in self.people
        if key.user:
            return f"{key.platform}:{encode_id(key.user)}" in self.identities
        return key.kind == DM and (key.platform, key.chat) in self.chats


def marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values) or "NULL"


@transaction
def trace_of(name: str) -> Statements[Trace]:
    """Of a person's id or of one of their identities, other forms of their ids included. Raises NotFound."""
    rows = yield (
        "SELECT i.identity, i.person, i.born FROM identities i WHERE i.person = ? OR i.person IN"
        " (SELECT person FROM identities WHERE identity = ?)",
        (name, name),
    )
    known = {row[0] for row in rows} or (yield from _unlisted(name))
    identities = yield from _with_aliases(known)
    if not identities:
        raise NotFound("person", name)
    return Trace(identities=frozenset(identities), people=frozenset(name for row in rows for name in row[1:] if name))


def _unlisted(name: str) -> Statements[set[str]]:
    """Somebody nobody was introduced to may have spoken all the same."""
    rows = yield "SELECT 1 FROM participants WHERE identity = ? LIMIT 1", (name,)
    return {name} if rows or ":" in name else set()


def _with_aliases(identities: set[str]) -> Statements[set[str]]:
    rows: list[Row] = yield "SELECT platform, alias, canonical FROM aliases", ()
    by_platform: dict[str, dict[str, str]] = {}
    for platform, alias, stands_for in rows:
        by_platform.setdefault(platform, {})[decode_id(alias)] = decode_id(stands_for)
    found = set(identities)
    for platform, aliases in by_platform.items():
        one_of_them = {canonical_id(decode_id(each), aliases) for each in _ids_on(platform, identities)}
        forms = {*aliases, *aliases.values()}
        found |= {f"{platform}:{encode_id(form)}" for form in forms if canonical_id(form, aliases) in one_of_them}
    return found


def _ids_on(platform: str, identities: Iterable[str]) -> list[str]:
    return [identity.split(":", 1)[1] for identity in identities if identity.startswith(f"{platform}:")]


# Sessions


@transaction
def own_sessions(trace: Trace) -> Statements[list[str]]:
    """The ids of those in which nobody else ever took part, the newest first: branches go before their roots."""
    own = own_to(trace)
    rows = yield f"SELECT s.id FROM sessions s WHERE {own.sql} ORDER BY s.no DESC", own.values
    return [row[0] for row in rows]


def own_to(trace: Trace) -> Filter:
    """Sessions `s` in which nobody else ever took part."""
    ids: tuple[Value, ...] = tuple(sorted(trace.identities))
    return Filter(
        f"(s.owner IN ({marks(ids)}) OR s.no IN"
        f" (SELECT session_no FROM participants WHERE identity IN ({marks(ids)})))"
        " AND NOT EXISTS (SELECT 1 FROM participants p WHERE p.session_no = s.no"
        f" AND p.identity NOT IN ({marks(ids)}))",
        ids * 3,
    )


@transaction
def shared_sessions(trace: Trace) -> Statements[list[int]]:
    """The numbers of those in which others took part too, and of what was branched from any of theirs."""
    ids: tuple[Value, ...] = tuple(sorted(trace.identities))
    rows = yield (
        "WITH RECURSIVE theirs (no, id) AS (SELECT s.no, s.id FROM sessions s JOIN participants p"
        f" ON p.session_no = s.no WHERE p.identity IN ({marks(ids)})"
        " UNION SELECT c.no, c.id FROM sessions c JOIN theirs t ON c.parent = t.id)"
        " SELECT DISTINCT no FROM theirs t WHERE NOT EXISTS (SELECT 1 FROM participants p WHERE p.session_no = t.no)"
        " OR EXISTS (SELECT 1 FROM participants p WHERE p.session_no = t.no"
        f" AND p.identity NOT IN ({marks(ids)})) ORDER BY no",
        ids * 2,
    )
    return [row[0] for row in rows]


@transaction
def handoffs_of(trace: Trace) -> Statements[list[int]]:
    """Of conversations in which they took part: what announced them elsewhere names them by their titles."""
    ids: tuple[Value, ...] = tuple(sorted(trace.identities))
    rows = yield (
        "SELECT DISTINCT o.no FROM participants p JOIN operations o ON o.session_no = p.session_no"
        f" WHERE p.identity IN ({marks(ids)}) AND o.kind = 'handoff'",
        ids,
    )
    return [row[0] for row in rows]


@transaction
def commands_about(session: int) -> Statements[set[int]]:
    """By whomever: said in the session, or answered with words of it."""
    rows = yield "SELECT inbox_no FROM mentions WHERE session_no = ?", (session,)
    return {row[0] for row in rows}


@value
class Share:
    """What is theirs of a session that others share."""

    said: tuple[Entry, ...] = ()
    """By them."""
    answers: tuple[Entry, ...] = ()
    """What was said, called and noted in the turns in which they spoke, and summaries written since."""
    turns: frozenset[int] = frozenset()


@transaction
def share_of(session: int, trace: Trace) -> Statements[Share]:
    rows: list[Row] = yield (
        "SELECT body, turn_no FROM entries WHERE id >= ? AND id < ? ORDER BY id",
        (session * SEQS, (session + 1) * SEQS),
    )
    entries = entries_of(row[0] for row in rows)
    theirs = trace.ids((yield from _platforms(session, trace)))
    said = [entry for entry in entries if entry.sender is not None and entry.sender.id in theirs]
    if not said:
        return Share()
    numbers = {entry.seq: row[1] for entry, row in zip(entries, rows, strict=True)}
    turns = {numbers[entry.seq] for entry in said} - {None}
    first = said[0].seq
    answers = [
        entry
        for entry in entries
        if (entry.role is Role.SUMMARY and entry.seq > first) or (entry.sender is None and numbers[entry.seq] in turns)
    ]
    return Share(said=tuple(said), answers=tuple(answers), turns=frozenset(turns))


def _platforms(session: int, trace: Trace) -> Statements[set[str]]:
    """From which platforms they may have spoken there: an id means something only on its own."""
    ids: tuple[Value, ...] = tuple(sorted(trace.identities))
    rows = yield (
        f"SELECT identity FROM participants WHERE session_no = ? AND identity IN ({marks(ids)})"
        " UNION ALL SELECT platform || ':' FROM sessions WHERE no = ?",
        (session, *ids, session),
    )
    return {row[0].split(":", 1)[0] for row in rows}
