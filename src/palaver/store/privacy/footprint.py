"""The footprint of a person: the names under which the store knows them, and what belongs to them."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.key import SessionKey
from palaver.model.label import Label
from palaver.model.source import (
    DM,
    Source,
    canonical_id,
    decode_id,
    encode_id,
    identity_of,
    identity_text,
    readable_identity,
    source_of_identity,
)
from palaver.model.transcript import Entry, Role, UnreadableEntry
from palaver.model.value import value
from palaver.store.conversations.visibility import Filter
from palaver.store.people.aliases import load_all as load_all_aliases
from palaver.store.records import SEQS, addressee_column, entries_of, entry_span, from_json, json_text


@value
class Footprint:
    """Every name of a person. An identity is `telegram:7`; merged people have several person ids."""

    identities: frozenset[str]
    people: frozenset[str] = frozenset()
    chats: frozenset[tuple[str, str]] = frozenset()
    """Platform and id of their known direct chats."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.identities | self.people))

    @property
    def text(self) -> str:
        chats = [list(chat) for chat in sorted(self.chats)]
        return json_text({"identities": sorted(self.identities), "people": sorted(self.people), "chats": chats})

    @classmethod
    def parse(cls, text: str) -> "Footprint":
        written: Mapping[str, Any] = from_json(text)
        return cls(
            identities=frozenset(written["identities"]),
            people=frozenset(written["people"]),
            chats=frozenset((platform, chat) for platform, chat in written["chats"]),
        )

    @property
    def addresses(self) -> frozenset[tuple[str, str]]:
        """Platform and id of their accounts and direct chats, as notices write them."""
        readable = (readable_identity(identity).split(":", 1) for identity in self.identities)
        return self.chats | {(platform, id_) for platform, id_ in readable}

    def is_named_in(self, text: str) -> bool:
        """Return whether a text of the gateway names one of their accounts or direct chats."""
        return any(
            re.search(rf"\b{platform}(?:@[^\s:]*)?:{re.escape(id_)}(?![\w@:-]|\.\w)", text)
            for platform, id_ in self.addresses
        )

    def ids(self, platforms: Collection[str]) -> frozenset[str]:
        """Return who they are on these platforms, as `participant_text` writes it."""
        pairs = (identity.split(":", 1) for identity in self.identities)
        return frozenset(decode_id(id_) for platform, id_ in pairs if platform in platforms)

    def identifies(self, column: str) -> Filter:
        """Return the condition that a column holds one of their identities."""
        return Filter.among(column, self.identities)

    def is_sender(self, source: Source) -> bool:
        return identity_of(source) in self.identities

    def occurs_in(self, text: str) -> bool:
        """Return whether a text that cannot be read contains one of their ids, in quotes or behind a colon."""
        ids = {identity.partition(":")[2] for identity in self.identities} | {chat for _, chat in self.chats}
        names = "|".join(re.escape(name) for name in {*ids, *map(decode_id, ids), *self.people} if name)
        return bool(names) and re.search(rf"[\"':]({names})(?![\w-])", text) is not None

    def is_named_by(self, key: SessionKey) -> bool:
        """Return whether the key of a conversation contains one of their names."""
        if key.person:
            return key.person in self.people
        if key.user:
            return identity_text(key.platform, key.user) in self.identities
        return key.kind == DM and (key.platform, key.chat) in self.chats


@transaction
def find_footprint(name: str) -> Statements[Footprint]:
    """Find a person by id or by an identity, including aliases of their ids. Raises NotFound."""
    rows = yield (
        "SELECT i.identity, i.person, i.original_person FROM identities i WHERE i.person = ? OR i.person IN"
        " (SELECT person FROM identities WHERE identity = ?)",
        (name, name),
    )
    known = {row[0] for row in rows} or (yield from _unregistered(name))
    identities = yield from _with_aliases(known)
    if not identities:
        raise NotFound("person", name)
    people = frozenset(name for row in rows for name in row[1:] if name)
    found = Footprint(identities=frozenset(identities), people=people)
    return replace(found, chats=(yield from _direct_chats(found)))


def _direct_chats(footprint: Footprint) -> Statements[frozenset[tuple[str, str]]]:
    own = sole_participant_filter(footprint)
    rows = yield f"SELECT DISTINCT s.key FROM sessions s WHERE {own.sql}", own.values
    keys = [SessionKey.parse(row[0]) for row in rows]
    return frozenset((key.platform, key.chat) for key in keys if key.kind == DM and key.chat)


def _unregistered(name: str) -> Statements[set[str]]:
    """Accept an identity without a person: it may still have sent messages."""
    rows = yield "SELECT 1 FROM participants WHERE identity = ? LIMIT 1", (name,)
    return {name} if rows or ":" in name else set()


def _with_aliases(identities: set[str]) -> Statements[set[str]]:
    found = set(identities)
    for platform, aliases in (yield from load_all_aliases()).items():
        ids = Footprint(identities=frozenset(identities)).ids({platform})
        canonical_ids = {canonical_id(each, aliases) for each in ids}
        forms = {*aliases, *aliases.values()}
        found |= {identity_text(platform, form) for form in forms if canonical_id(form, aliases) in canonical_ids}
    return found


# Sessions


@transaction
def own_sessions(footprint: Footprint) -> Statements[list[str]]:
    """Return ids of sessions without other participants, newest first: branches come before their parents."""
    own = sole_participant_filter(footprint)
    rows = yield f"SELECT s.id FROM sessions s WHERE {own.sql} ORDER BY s.no DESC", own.values
    return [row[0] for row in rows]


def sole_participant_filter(footprint: Footprint) -> Filter:
    """Return the SQL condition on `sessions s` without other participants."""
    owner, took_part, theirs = map(footprint.identifies, ("s.owner", "identity", "p.identity"))
    return Filter(
        f"({owner.sql} OR s.no IN (SELECT session_no FROM participants WHERE {took_part.sql})) AND NOT EXISTS"
        f" (SELECT 1 FROM participants p WHERE p.session_no = s.no AND NOT {theirs.sql})",
        theirs.values * 3,
    )


@transaction
def shared_sessions(footprint: Footprint) -> Statements[list[int]]:
    """Return numbers of sessions with other participants, and of branches of any of their sessions."""
    is_theirs = footprint.identifies("p.identity")
    rows = yield (
        "WITH RECURSIVE theirs (no, id) AS (SELECT s.no, s.id FROM sessions s JOIN participants p"
        f" ON p.session_no = s.no WHERE {is_theirs.sql}"
        " UNION SELECT c.no, c.id FROM sessions c JOIN theirs t ON c.parent = t.id)"
        " SELECT DISTINCT no FROM theirs t WHERE NOT EXISTS (SELECT 1 FROM participants p WHERE p.session_no = t.no)"
        f" OR EXISTS (SELECT 1 FROM participants p WHERE p.session_no = t.no AND NOT {is_theirs.sql}) ORDER BY no",
        is_theirs.values * 2,
    )
    return [row[0] for row in rows]


@transaction
def handoffs_of(footprint: Footprint) -> Statements[list[int]]:
    """Return handoffs of their sessions: the announcement quotes the title."""
    is_theirs = footprint.identifies("p.identity")
    rows = yield (
        "SELECT DISTINCT o.no FROM participants p JOIN operations o ON o.session_no = p.session_no"
        f" WHERE {is_theirs.sql} AND o.kind = 'handoff'",
        is_theirs.values,
    )
    return [row[0] for row in rows]


@transaction
def jobs_of(footprint: Footprint) -> Statements[list[int]]:
    """Return the numbers of the jobs that they made."""
    is_theirs = footprint.identifies("owner")
    rows = yield f"SELECT no FROM schedules WHERE {is_theirs.sql}", is_theirs.values
    return [row[0] for row in rows]


def chat_filters(footprint: Footprint, column: str = "chat") -> Iterator[Filter]:
    """Yield the conditions on rows about their chats, and about chats without an id, at any of our accounts."""
    chats = {(platform, encode_id(chat)) for platform, chat in footprint.chats}
    people = map(source_of_identity, footprint.identities)
    chats |= {(source.platform, addressee_column(*source.addressee)) for source in people}
    for platform, chat in sorted(chats):
        prefix = f"{platform}:"
        yield Filter(f"{column} = ? AND substr(account, 1, ?) = ?", (chat, len(prefix), prefix))


@transaction
def commands_mentioning(session: int) -> Statements[set[int]]:
    """Return the commands, by anybody, that were given in the session or answered with its content."""
    rows = yield "SELECT inbox_no FROM mentions WHERE session_no = ?", (session,)
    return {row[0] for row in rows}


@value
class Share:
    """What belongs to a person in a shared session."""

    said: tuple[Entry, ...] = ()
    answers: tuple[Entry, ...] = ()
    """Other entries of the turns in which they spoke, and later summaries."""
    turns: frozenset[int] = frozenset()
    unreadable: tuple[Entry, ...] = ()
    """Entries that nobody can read: anybody can have said them."""


@transaction
def find_share(session: int, footprint: Footprint) -> Statements[Share]:
    rows: list[Row] = yield (
        "SELECT id, body, turn_no FROM entries WHERE id >= ? AND id < ? ORDER BY id",
        entry_span(session),
    )
    entries = entries_of(rows)
    theirs = footprint.ids((yield from _platforms(session, footprint)))
    said = [entry for entry in entries if entry.sender is not None and entry.sender.id in theirs]
    unreadable = tuple(entry for entry in entries if isinstance(entry, UnreadableEntry))
    if not said:
        return Share(unreadable=unreadable)
    numbers = {row[0] % SEQS: row[2] for row in rows}
    turns = {numbers[entry.seq] for entry in said} - {None}
    first = said[0].seq
    answers = [
        entry
        for entry in entries
        if (entry.role is Role.SUMMARY and entry.seq > first)
        or (
            entry.sender is None
            and entry not in unreadable
            and (numbers[entry.seq] in turns or _is_edit_note(entry, said))
        )
    ]
    return Share(said=tuple(said), answers=tuple(answers), turns=frozenset(turns), unreadable=unreadable)


def _is_edit_note(entry: Entry, said: Collection[Entry]) -> bool:
    """Return whether a note quotes what they said, because they edited it."""
    quoted = (each for each in said if each.message_id is not None and each.message_id == entry.message_id)
    return entry.role is Role.NOTE and any(Label(each.text).quoted() in entry.text for each in quoted)


def _platforms(session: int, footprint: Footprint) -> Statements[set[str]]:
    """Return the platforms they may have written from: a user id is only unique per platform."""
    is_theirs = footprint.identifies("identity")
    rows = yield (
        f"SELECT identity FROM participants WHERE session_no = ? AND {is_theirs.sql}"
        " UNION ALL SELECT platform || ':' FROM sessions WHERE no = ?",
        (session, *is_theirs.values, session),
    )
    return {row[0].split(":", 1)[0] for row in rows}
