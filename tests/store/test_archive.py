"""Archives: what comes back is exactly what went, and what cannot come back is named and leaves no trace."""

import json
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.compaction import plan_compaction
from palaver.model.errors import BadArgument, NotFound
from palaver.model.feedback import Rating
from palaver.model.key import JOB, GroupScope, Scope, SessionKey, derive_key, job_key
from palaver.model.label import Label
from palaver.model.session import EndReason, ModelOverride, Principal
from palaver.model.source import Source, identity_of
from palaver.model.transcript import Entry, Role, Sender, ToolCall
from palaver.model.turn import Inbound
from palaver.store.archive.collector import collect, collect_all, collect_some
from palaver.store.archive.exporter import ExportFormat, write_archive
from palaver.store.archive.format import (
    HEADER,
    ArchivedOperation,
    ArchivedSession,
    ArchivedTurn,
    SessionRecord,
    session_lines,
)
from palaver.store.archive.importer import Imported, ImportOutcome, import_sessions
from palaver.store.conversations import branches, deletion, feedback, history, sessions, titles, transcript
from palaver.store.opening import open_store
from palaver.store.people import people
from palaver.store.queue import inbox, turns
from palaver.store.results import Begun
from palaver.store.status import session_list
from palaver.store.status.invariants import violations
from palaver.store.status.session_list import ListFilter
from palaver.store.store import Store
from tests.store.world import LEASE, NEVER, NOON, OPERATOR, World, answer, dm, group, key_of
from tests.strategies import ids, instants, sources

ALICE, BOB = dm("7"), dm("8")
KEY = key_of(ALICE)
HOSTILE = "</pre><script>alert(1)</script>\x1b[31m\u202e&\"' # x\n\x00```\n<img src=x onerror=y>\ud800"


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Store]:
    """A second store, always SQLite: from PostgreSQL an archive crosses over."""
    async with await open_store(f"sqlite:///{tmp_path}/other.db") as opened:
        yield opened


async def export(
    store: Store,
    form: ExportFormat = ExportFormat.JSONL,
    *,
    principal: Principal = OPERATOR,
    wanted: ListFilter = session_list.NO_FILTER,
    hidden: bool = False,
) -> bytes:
    records = collect_all(store.database, principal, wanted)
    return b"".join([piece async for piece in write_archive(records, form, hidden=hidden)])


async def bring(store: Store, archive: bytes | Iterable[bytes], *, as_copy: bool = False) -> list[Imported]:
    source = archive.splitlines(keepends=True) if isinstance(archive, bytes) else archive
    return [imported async for imported in import_sessions(store.database, source, as_copy=as_copy)]


def outcomes_of(outcomes: Iterable[Imported]) -> list[ImportOutcome]:
    return [each.outcome for each in outcomes]


def changed(archive: bytes, number: int, **fields: object) -> bytes:
    """The archive with other fields in one of its lines, counted from 1."""
    said = archive.splitlines(keepends=True)
    line: dict[str, dict[str, Any]] = json.loads(said[number - 1])
    for part in line.values():
        part.update(fields)
    said[number - 1] = json.dumps(line).encode() + b"\n"
    return b"".join(said)


async def eventful(world: World) -> None:
    """Sessions with everything that sessions can have."""
    store = world.store
    begun = await world.exchange("hello", "with\nlines")
    rating = (begun.turn.session, begun.turn.number, "telegram:7", Rating.UP)
    await store.transact(feedback.rate(*rating, world.now, OPERATOR))
    await world.say("use a tool")
    turn = (await world.begin() or begun).turn
    call = ToolCall("c1", "search", '{"q": "ü"}')
    said = [
        answer("", calls=(call,), reasoning="because", blob=bytes(range(256)), tokens=7),
        answer("found \ud800 it", Role.TOOL, answers="c1"),
        answer("overheard", Role.USER, observed=True, sender=Sender("9", Label("\x1b[2J"))),
        answer("later", at=datetime(2026, 3, 1, 14, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))),
    ]
    await store.transact(turns.settle(turn, said, [], world.now))
    await world.exchange("again")
    await store.transact(titles.rename(begun.turn.session, "Holiday", OPERATOR))
    await store.transact(sessions.set_override(begun.turn.session, ModelOverride(model="m", provider="p"), OPERATOR))
    entries = await store.read(transcript.load_visible(begun.turn.session, OPERATOR))
    plan = plan_compaction(entries, keep_exchanges=1)
    await store.transact(transcript.compact(KEY, plan, "short", world.now, by="me"))
    await store.transact(transcript.undo(KEY, 1, world.now, principal=OPERATOR))
    world.later(hours=1)
    await store.transact(branches.branch(KEY, ALICE, OPERATOR, world.now, by="me"))
    await world.exchange("in the branch")
    await store.transact(sessions.reset(KEY, ALICE, world.now, by="me"))
    await store.transact(sessions.switch(KEY, ALICE, begun.turn.session, OPERATOR, world.now, by="me"))
    await store.transact(history.back(KEY, world.now, principal=OPERATOR))
    await world.exchange("in a group", source=group("8"))
    await store.transact(sessions.create(key_of(dm("empty")), dm("empty"), world.now))
    await world.say("not answered yet", BOB)
    await world.begin(BOB)


# There and back


async def test_what_comes_back_is_what_went(world: World, other: Store) -> None:
    await eventful(world)
    archive = await export(world.store)
    assert set(outcomes_of(await bring(other, archive))) == {ImportOutcome.IMPORTED}
    assert await export(other) == archive
    assert await other.read(violations()) == []
    for form in (ExportFormat.MARKDOWN, ExportFormat.HTML):
        assert (await export(other, form, hidden=True)).decode().count("· 👍") >= 1
    theirs = await export(world.store, principal=Principal(identities=frozenset({"telegram:7"})))
    assert b'"rating":' in theirs
    assert b'"identity":' not in theirs


async def test_and_back_again(world: World, other: Store) -> None:
    """From one engine to the other and back into an emptied store."""
    await eventful(world)
    archive = await export(world.store)
    await bring(other, archive)
    await world.store.transact(clear())
    assert set(outcomes_of(await bring(world.store, await export(other)))) == {ImportOutcome.IMPORTED}
    assert await export(world.store) == archive
    assert await world.store.read(violations()) == []


@transaction
def clear() -> Statements[None]:
    for table in ("sessions", "participants", "routes", "entries", "inbox", "turns", "outbox", "operations"):
        yield f"DELETE FROM {table}", ()  # noqa: S608


async def test_an_imported_session_is_the_same_in_every_respect(world: World, other: Store) -> None:
    await eventful(world)
    await bring(other, await export(world.store))
    for preview in (await world.store.read(session_list.list_sessions(OPERATOR))).previews:
        found = preview.session
        there = await other.read(sessions.get_visible(found.id, OPERATOR))
        assert (found.title, found.counters, found.override, found.key, found.owner, found.origin) == (
            there.title,
            there.counters,
            there.override,
            there.key,
            there.owner,
            there.origin,
        )
        mine = await world.store.read(transcript.load_all(found.id, OPERATOR))
        theirs = await other.read(transcript.load_all(found.id, OPERATOR))
        nowhere = [entry._replace(turn=None, hidden_by=entry.hidden_by and "x") for entry in mine]
        assert nowhere == [entry._replace(turn=None, hidden_by=entry.hidden_by and "x") for entry in theirs]


async def test_what_was_undone_can_be_redone_after_the_import(world: World, other: Store) -> None:
    await world.exchange("one")
    session = (await world.exchange("two")).turn.session
    await world.store.transact(transcript.undo(KEY, 1, world.now, principal=OPERATOR))
    await bring(other, await export(world.store))
    assert await World(other).texts(session) == ["one", "yes"]
    await other.transact(history.redo(KEY, world.now, principal=OPERATOR))
    assert await World(other).texts(session) == ["one", "yes", "two", "yes"]


async def test_the_way_back_leads_to_the_session_before(world: World, other: Store) -> None:
    first = (await world.exchange("one")).turn.session
    world.later(hours=1)
    await world.store.transact(sessions.reset(KEY, ALICE, world.now, by="me"))
    await world.exchange("two")
    await bring(other, await export(world.store))
    await other.transact(history.back(KEY, world.now, principal=OPERATOR))
    found = await other.read(sessions.open_by_key(KEY))
    assert found
    assert found.id == first


async def test_the_way_back_to_a_session_that_comes_later_in_the_archive(world: World, other: Store) -> None:
    first = (await world.exchange("one")).turn.session
    world.later(hours=1)
    second = await world.store.transact(sessions.reset(KEY, ALICE, world.now, by="me"))
    await world.store.transact(sessions.switch(KEY, ALICE, first, OPERATOR, world.now, by="me"))
    archive = await export(world.store)
    await bring(other, archive)
    assert await export(other) == archive
    there = await other.read(sessions.get_visible(second.id, OPERATOR))
    assert there.id in await other.read(ways())


@pytest.mark.parametrize(
    "wrong",
    [
        {"before": 7},
        {"key": None},
        {"key": "nonsense"},
        {"reason": "boredom"},
        {"ended": "yesterday"},
        {"ended": 1 << 62},
    ],
)
async def test_a_way_back_that_leads_nowhere_is_refused(world: World, other: Store, wrong: dict[str, object]) -> None:
    first = (await world.exchange("one")).turn.session
    await world.store.transact(sessions.reset(KEY, ALICE, world.now, by="me"))
    await world.store.transact(sessions.switch(KEY, ALICE, first, OPERATOR, world.now, by="me"))
    records = collect_some(world.store.database, [first], OPERATOR)
    told = [
        json.loads(line)
        for line in b"".join([part async for part in write_archive(records, ExportFormat.JSONL)]).splitlines()
    ]
    told[1]["session"]["operations"][0]["details"] |= wrong
    assert outcomes_of(await bring(other, [json.dumps(each).encode() + b"\n" for each in told])) == [
        ImportOutcome.REFUSED
    ]


@pytest.mark.parametrize("odd", [{"before": None}, {"before": ""}, {"before": "\0"}, {"to": None}, {"to": 7}])
async def test_details_that_no_column_can_hold_come_back(world: World, other: Store, odd: dict[str, object]) -> None:
    session = (await world.exchange("one")).turn.session
    await world.store.transact(sessions.reset(KEY, ALICE, world.now, by="me"))
    await world.store.transact(sessions.switch(KEY, ALICE, session, OPERATOR, world.now, by="me"))
    record = await world.store.read(collect(session, OPERATOR))
    record.session.operations[0].details |= odd
    assert outcomes_of(await bring(other, [HEADER, *session_lines(record)])) == [ImportOutcome.IMPORTED]
    there = await other.read(collect(session, OPERATOR))
    assert there.session.operations == record.session.operations


@transaction
def ways() -> Statements[list[str | None]]:
    return [row[0] for row in (yield "SELECT from_session FROM operations", ())]


async def test_one_of_several_remembers_the_session_before(world: World, other: Store) -> None:
    await world.exchange("one")
    world.later(hours=1)
    second = await world.store.transact(sessions.reset(KEY, ALICE, world.now, by="me"))
    records = collect_some(world.store.database, [second.id], OPERATOR)
    archive = b"".join([piece async for piece in write_archive(records, ExportFormat.JSONL)])
    await bring(other, archive)
    assert await export(other) == archive
    assert await other.transact(history.back(KEY, world.now, principal=OPERATOR))
    assert await other.read(violations()) == []


async def test_an_open_turn_is_not_run_again_where_it_is_imported(world: World, other: Store) -> None:
    await world.say("one")
    begun = await world.begin()
    assert begun
    archive = await export(world.store)
    await bring(other, archive)
    reclaimed = await other.transact(turns.reclaim("w2", world.now + timedelta(days=1), timedelta(1), alone=True))
    assert reclaimed == []
    assert await export(other) == archive


async def test_an_imported_conversation_goes_on(world: World, other: Store) -> None:
    session = (await world.exchange("one")).turn.session
    await bring(other, await export(world.store))
    elsewhere = World(other, now=world.now)
    assert (await elsewhere.exchange("two", source=dm("7"))).turn.session == session
    assert await elsewhere.texts(session) == ["one", "yes", "two", "yes"]


async def test_an_empty_store_is_an_archive_too(store: Store, other: Store) -> None:
    archive = await export(store)
    assert archive == HEADER
    assert await bring(other, archive) == []


async def test_large_entries_go_and_come_whole(world: World, other: Store) -> None:
    await world.exchange("ü" * 1_000_000, "\x00\x1f" * 500_000)
    archive = await export(world.store)
    await bring(other, archive)
    assert await export(other) == archive


async def test_the_index_learns_of_imported_entries_but_not_of_copied_ones(world: World, other: Store) -> None:
    await world.exchange("one")
    world.later(hours=1)
    await world.store.transact(branches.branch(KEY, ALICE, OPERATOR, world.now, by="me"))
    await world.exchange("two")
    await bring(other, await export(world.store))
    assert await other.read(journalled()) == [("append", 1, 2), ("append", 3, 4)]


@transaction
def journalled() -> Statements[list[tuple[str, int, int]]]:
    rows = yield "SELECT kind, first_seq, last_seq FROM journal ORDER BY pos", ()
    return [(row[0], row[1], row[2]) for row in rows]


async def test_secrets_do_not_come_in_by_an_archive(world: World, other: Store) -> None:
    session = (await world.exchange("one")).turn.session
    archive = await export(world.store)
    token = "ghp_" + "a1B2" * 9
    await bring(other, changed(archive, 4, role="tool", text=f"token is {token}"))
    assert token not in str(await other.read(transcript.load_all(session, OPERATOR)))


# Any session


_words = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
_plain = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1, max_size=12)
_some = st.one_of(st.none(), _words)
_senders = st.one_of(st.none(), st.builds(Sender, _some, st.one_of(st.none(), st.builds(Label, _words))))
_zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_moments = st.builds(datetime.astimezone, instants, _zones)


@st.composite
def entries(draw: st.DrawFn, turn_count: int, operation_count: int) -> list[Entry]:
    found: list[Entry] = []
    for seq in sorted(draw(st.sets(st.integers(1, 50), max_size=8))):
        turn = draw(st.integers(0, turn_count))
        hidden = draw(st.integers(0, operation_count))
        entry = Entry(
            seq=seq,
            role=draw(st.sampled_from(Role)),
            at=draw(_moments),
            text=draw(_words),
            turn=str(turn) if turn else None,
            sender=draw(_senders),
            message_id=draw(_some),
            calls=tuple(draw(st.lists(st.builds(ToolCall, _words, _words, _words), max_size=2))),
            answers=draw(_some),
            reasoning=draw(_words),
            blob=draw(st.binary(max_size=20)),
            tokens=draw(st.integers(0, 2**40)),
            cost_micros=draw(st.none() | st.integers(0, 2**40)),
            observed=draw(st.booleans()),
            cut=draw(st.booleans()),
            covers=draw(st.one_of(st.none(), st.just((1, 3)))),
            hidden_by=str(hidden) if hidden else None,
        )
        found.append(entry)
    return found


@st.composite
def records(draw: st.DrawFn) -> SessionRecord:
    source = replace(draw(sources), profile=draw(st.sampled_from(("main", "work"))))
    key = derive_key(source, Scope())
    ended = draw(st.one_of(st.none(), instants))
    needed = {"summary": 1, "key": key.text}
    operation = st.builds(
        ArchivedOperation,
        key=st.just(key.text),
        kind=st.sampled_from(("undo", "compaction", "reset", "switch")),
        at=instants,
        by=_plain,
        details=st.dictionaries(ids, st.one_of(st.integers(), ids), max_size=2).map(lambda found: needed | found),
        undone_at=st.one_of(st.none(), instants),
    )
    turn = st.builds(
        ArchivedTurn,
        state=st.sampled_from(("done", "failed")),
        started=instants,
        ended=instants,
        attempt=st.integers(1, 9),
        error=st.one_of(st.none(), _plain),
    )
    operations = draw(st.lists(operation, max_size=2))
    all_turns = draw(st.lists(turn, max_size=3))
    said = draw(entries(len(all_turns), len(operations)))
    used = list(dict.fromkeys(int(entry.turn) for entry in said if entry.turn))
    session = ArchivedSession(
        id=draw(st.text("0123456789abcdefghjkmnpqrstvwxyz", min_size=26, max_size=26)),
        key=key.text,
        profile=key.profile,
        platform=source.platform,
        owner=key.text,
        origin=source.to_json(),
        started=draw(instants),
        last_human=draw(instants),
        last_active=draw(instants),
        next_seq=draw(st.integers(51, 99)),
        title=draw(st.one_of(st.none(), st.sampled_from(("Holiday", "日本", "x #3")))),
        parent=draw(st.one_of(st.none(), st.just("0" * 26))),
        parent_seq=draw(st.one_of(st.none(), st.integers(0, 60))),
        ended=ended,
        end_reason=None if ended is None else draw(st.sampled_from(EndReason)).value,
        turn_count=draw(st.integers(0, 2**40)),
        override=draw(st.one_of(st.none(), st.just({"model": "m", "base_url": "https://models.example.org/v1"}))),
        participants=[theirs] if key.user and (theirs := identity_of(source)) else [],
        turns=[all_turns[number - 1] for number in used],
        operations=operations,
    )
    numbered = [entry._replace(turn=entry.turn and str(used.index(int(entry.turn)) + 1)) for entry in said]
    return SessionRecord(session=session, entries=numbered)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=records())
async def test_any_session_comes_back_exactly(store: Store, record: SessionRecord) -> None:
    try:
        archive = [HEADER, *session_lines(record)]
        assert outcomes_of(await bring(store, archive)) == [ImportOutcome.IMPORTED]
        there = await store.read(collect(record.session.id, OPERATOR))
        there.session.routes = []  # an open session is given one
        assert [HEADER, *session_lines(there)] == archive
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", b"".join(archive).decode())
        assert outcomes_of(await bring(store, archive)) == [ImportOutcome.UNCHANGED]
        assert await store.read(violations()) == []
    finally:
        await store.transact(deletion.delete(record.session.id, OPERATOR, NOON))


# Twice, and over what is there


async def test_importing_twice_changes_nothing(world: World, other: Store) -> None:
    await eventful(world)
    archive = await export(world.store)
    first = await bring(other, archive)
    assert set(outcomes_of(await bring(other, archive))) == {ImportOutcome.UNCHANGED}
    assert await export(other) == archive
    assert set(outcomes_of(await bring(world.store, archive))) == {ImportOutcome.UNCHANGED}
    assert len(first) == 6


async def test_a_session_that_has_gone_on_is_not_overwritten(world: World) -> None:
    await world.exchange("one")
    await world.exchange("bob", source=BOB)
    archive = await export(world.store)
    await world.exchange("two")
    now = await export(world.store)
    outcomes = await bring(world.store, archive)
    assert outcomes_of(outcomes) == [ImportOutcome.REFUSED, ImportOutcome.UNCHANGED] or outcomes_of(outcomes) == [
        ImportOutcome.UNCHANGED,
        ImportOutcome.REFUSED,
    ]
    refused = next(each for each in outcomes if each.outcome is ImportOutcome.REFUSED)
    assert refused.session
    assert "different content" in refused.notes[0]
    assert refused.session in refused.notes[0]
    assert await export(world.store) == now


async def test_a_copy_beside_what_has_gone_on_and_only_one(world: World) -> None:
    session = (await world.exchange("one")).turn.session
    await world.store.transact(titles.rename(session, "Holiday", OPERATOR))
    archive = await export(world.store)
    await world.exchange("two")
    (copied,) = await bring(world.store, archive, as_copy=True)
    assert copied.outcome is ImportOutcome.COPIED
    assert copied.id
    assert copied.id != session
    assert copied.id[:10] == session[:10]
    assert await world.texts(copied.id) == ["one", "yes"]
    copy = await world.store.read(sessions.get_visible(copied.id, OPERATOR))
    assert (copy.title, copy.end_reason) == ("Holiday #2", EndReason.SWITCHED)
    assert any("Holiday #2" in note for note in copied.notes)
    assert await world.texts(session) == ["one", "yes", "two", "yes"]
    assert outcomes_of(await bring(world.store, archive, as_copy=True)) == [ImportOutcome.UNCHANGED]
    assert await world.store.read(violations()) == []


async def test_a_copied_branch_belongs_to_the_copied_parent(world: World) -> None:
    parent = (await world.exchange("one")).turn.session
    world.later(hours=1)
    child = await world.store.transact(branches.branch(KEY, ALICE, OPERATOR, world.now, by="me"))
    archive = await export(world.store)
    await world.exchange("more")
    await world.store.transact(sessions.switch(KEY, ALICE, parent, OPERATOR, world.now, by="me"))
    await world.exchange("more")
    copies = await bring(world.store, archive, as_copy=True)
    assert outcomes_of(copies) == [ImportOutcome.COPIED, ImportOutcome.COPIED]
    there = await world.store.read(sessions.get_visible(copies[1].id or "", OPERATOR))
    assert (copies[1].session, there.parent) == (child.id, copies[0].id)


async def test_a_title_that_is_taken_gets_the_next_number(world: World, other: Store) -> None:
    session = (await world.exchange("one")).turn.session
    await world.store.transact(titles.rename(session, "Holiday", OPERATOR))
    elsewhere = World(other)
    mine = (await elsewhere.exchange("mine")).turn.session
    await other.transact(titles.rename(mine, "Holiday", OPERATOR))
    archive = await export(world.store)
    (imported,) = await bring(other, archive)
    assert imported.outcome is ImportOutcome.IMPORTED
    assert any("Holiday #2" in note for note in imported.notes)
    assert (await other.read(sessions.get_visible(session, OPERATOR))).title == "Holiday #2"
    assert outcomes_of(await bring(other, archive)) == [ImportOutcome.UNCHANGED]


async def test_a_conversation_that_goes_on_elsewhere_is_not_interrupted(world: World, other: Store) -> None:
    session = (await world.exchange("one")).turn.session
    mine = (await World(other).exchange("mine")).turn.session
    (imported,) = await bring(other, await export(world.store))
    assert any("ended" in note for note in imported.notes)
    found = await other.read(sessions.open_by_key(KEY))
    assert found
    assert found.id == mine
    assert (await other.read(sessions.get_visible(session, OPERATOR))).end_reason is EndReason.SWITCHED
    assert await other.read(violations()) == []


# What is wrong


async def refused(store: Store, archive: bytes) -> list[str]:
    return [
        note for each in await bring(store, archive) if each.outcome is ImportOutcome.REFUSED for note in each.notes
    ]


async def test_a_file_that_is_no_archive_is_refused(store: Store) -> None:
    for line in (
        b"\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b'{"session":null}\n',
        b'{"format":"palaver-sessions"}\n',
        b'{"format":"something","version":1}\n',
        b'{"format":"palaver-sessions","version":2}\n',
        b'{"format":"palaver-sessions","version":"1"}\n',
        b"\xff\xfe\n",
        b"[" * 100_000,
    ):
        with pytest.raises(BadArgument, match="Use "):
            await bring(store, line)
    with pytest.raises(BadArgument):
        await bring(store, [])


WRONG: list[tuple[int, dict[str, object], str]] = [
    (2, {"id": "../../x"}, "id"),
    (2, {"id": "UPPER"}, "id"),
    (2, {"key": "agent"}, "session key"),
    (2, {"started": "yesterday"}, "started"),
    (2, {"started": "2026-03-01T12:00:00"}, "started"),
    (2, {"started": 5}, "started"),
    (2, {"next_seq": 2}, "entry 2"),
    (2, {"next_seq": 2**40}, "next_seq"),
    (2, {"turn_count": -1}, "turn_count"),
    (2, {"unknown": 1}, "unknown"),
    (2, {"ended": "2026-03-01T12:00:00Z"}, "without"),
    (2, {"ended": "2026-03-01T12:00:00Z", "end_reason": "bored"}, "bored"),
    (2, {"title": "\u200b"}, "visible"),
    (2, {"owner": "a\0b"}, "NUL or a lone surrogate"),
    (2, {"owner": "\ud800"}, "NUL or a lone surrogate"),
    (2, {"participants": ["\0"]}, "NUL or a lone surrogate"),
    (2, {"origin": {}}, "platform"),
    (2, {"origin": {"platform": "x", "chat_id": 7}}, "origin"),
    (2, {"override": {"model": "m", "base_url": "https://a:b@c/"}}, "credentials"),
    (2, {"override": {"api_key": "x"}}, "override"),
    (2, {"routes": [{"key": "x", "address": {"platform": "x"}}]}, "session key"),
    (
        2,
        {"turns": [{"state": "running", "started": "2026-03-01T12:00:00Z", "ended": "2026-03-01T12:00:00Z"}]},
        "only ended turns",
    ),
    (2, {"turns": []}, "turn 1"),
    (2, {"operations": [{"key": "x", "kind": "undo", "at": "2026-03-01T12:00:00Z", "by": "x"}]}, "session key"),
    (3, {"seq": 0}, "seq"),
    (3, {"seq": 2}, "entry 2"),
    (3, {"seq": 2**30}, "seq"),
    (3, {"role": "emperor"}, "emperor"),
    (3, {"blob": "!"}, "blob"),
    (3, {"turn": 9}, "turn 9"),
    (3, {"turn": 0}, "turn 0"),
    (3, {"hidden_by": 1}, "operation 1"),
    (3, {"at": None}, "at"),
    (5, {"entries": 3}, "promises"),
    (5, {"session": "x"}, "promises"),
]


async def test_a_wrong_line_is_named_and_costs_one_session(world: World, other: Store) -> None:
    await world.exchange("one")
    world.later(hours=1)
    bob = (await world.exchange("bob", source=BOB)).turn.session
    archive = await export(world.store)
    for number, fields, reason in WRONG:
        notes = await refused(other, changed(archive, number, **fields))
        assert len(notes) == 1, fields
        assert re.match(r"line [2-5]: ", notes[0]), fields
        assert reason in notes[0], fields
        assert await other.read(session_list.list_session_ids(OPERATOR)) == [bob], fields
        assert await other.read(violations()) == [], fields


GARBAGE = [b"garbage\n", b'{"entry":\n', b"\xff\n", b'{"entry":{},"end":{}}\n', b"[" * 9999 + b"\n"]


@pytest.mark.parametrize("before", [2, 3, 4, 5, 6, 10])
async def test_garbage_between_the_lines(world: World, other: Store, before: int) -> None:
    await world.exchange("one")
    world.later(hours=1)
    await world.exchange("bob", source=BOB)
    said = (await export(world.store)).splitlines(keepends=True)
    sessions = 1 if before in {3, 4, 5} else 2
    for round_number, garbage in enumerate(GARBAGE):
        outcomes = await bring(other, [*said[: before - 1], garbage, *said[before - 1 :]])
        notes = [note for each in outcomes for note in each.notes]
        assert len(notes) == 1, garbage
        assert notes[0].startswith(f"line {before}: "), garbage
        expected = ImportOutcome.UNCHANGED if round_number else ImportOutcome.IMPORTED
        assert outcomes_of(outcomes).count(expected) == sessions, garbage


async def test_an_archive_that_breaks_off(world: World, other: Store) -> None:
    await eventful(world)
    archive = await export(world.store)
    for length in range(len(HEADER), len(archive), 997):
        outcomes = await bring(other, archive[:length])
        assert outcomes_of(outcomes).count(ImportOutcome.REFUSED) <= 1
        assert await other.read(violations()) == []
    assert ImportOutcome.REFUSED not in outcomes_of(await bring(other, archive))
    assert await export(other) == archive


async def test_empty_lines_are_nothing(world: World, other: Store) -> None:
    await world.exchange("one")
    archive = await export(world.store)
    assert outcomes_of(await bring(other, archive.replace(b"\n", b"\r\n\r\n"))) == [ImportOutcome.IMPORTED]
    assert await export(other) == archive


# For people


class _Page(HTMLParser):
    """What a browser would make of it: which elements, with which attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


async def hostile(world: World) -> str:
    source = dm("7", thread_id=HOSTILE)
    begun = await world.exchange(HOSTILE, HOSTILE, source=source)
    await world.say("more", source)
    turn = (await world.begin(source) or begun).turn
    call = ToolCall(HOSTILE, HOSTILE, HOSTILE)
    said = [answer(HOSTILE, calls=(call,), reasoning=HOSTILE, sender=Sender(HOSTILE, Label(HOSTILE)))]
    said.append(answer("by " + HOSTILE, Role.USER, sender=Sender(HOSTILE, Label(HOSTILE))))
    await world.store.transact(turns.settle(turn, said, [], world.now))
    await world.store.transact(titles.rename(begun.turn.session, HOSTILE, OPERATOR))
    return begun.turn.session


async def test_a_page_holds_no_script_no_matter_what_was_said(world: World) -> None:
    await hostile(world)
    page = (await export(world.store, ExportFormat.HTML)).decode()
    found = _Page(page)
    assert not found.elements & {"script", "img", "iframe", "link", "object", "embed", "form"}
    assert not [name for name in found.attributes if name.startswith("on") or name in {"src", "href", "style"}]
    assert "<script>alert(1)</script>" in found.text
    assert page.count("<!doctype html>") == page.count("</html>") == 1
    assert "prefers-color-scheme: dark" in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800]", page)


async def test_markdown_cannot_be_broken_out_of(world: World) -> None:
    await hostile(world)
    text = (await export(world.store, ExportFormat.MARKDOWN)).decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800]", text)
    structure = [line for line in text.splitlines() if line and not line.startswith(">")]
    assert [line for line in structure if line.startswith("#")] == structure[:1]
    assert all(line.startswith(("# ", "- ", "**")) for line in structure)
    assert not [line for line in structure if re.search(r"(?<![\\`])<script", line) and not line.startswith("- ")]


@pytest.mark.parametrize("form", [ExportFormat.HTML, ExportFormat.MARKDOWN])
async def test_what_is_hidden_is_left_out_or_marked(world: World, form: ExportFormat) -> None:
    await world.exchange("kept")
    await world.exchange("taken back")
    await world.store.transact(transcript.undo(KEY, 1, world.now, principal=OPERATOR))
    plain = (await export(world.store, form)).decode()
    assert "kept" in plain
    assert "taken back" not in plain
    full = (await export(world.store, form, hidden=True)).decode()
    assert "taken back" in full
    assert "· hidden" in full


@pytest.mark.parametrize("form", [ExportFormat.HTML, ExportFormat.MARKDOWN])
async def test_names_times_and_titles_are_there(world: World, form: ExportFormat) -> None:
    session = (await world.exchange("hello", "hi there")).turn.session
    await world.store.transact(titles.rename(session, "Holiday", OPERATOR))
    text = (await export(world.store, form)).decode()
    for expected in ("Holiday", "name of 7", "hello", "hi there", "2026-03-01 12:00:00 UTC", session):
        assert expected in text


# Whose


async def test_only_what_the_principal_can_see(world: World) -> None:
    alice = (await world.exchange("from alice")).turn.session
    bob = (await world.exchange("from bob", source=BOB)).turn.session
    mine = Principal.speaking(ALICE)
    for form in ExportFormat:
        text = (await export(world.store, form, principal=mine)).decode()
        assert "from alice" in text
        assert bob not in text
        assert "from bob" not in text
        assert "from alice" not in (await export(world.store, form, principal=Principal())).decode()
    with pytest.raises(NotFound):
        await world.store.read(collect(bob, mine))
    records = collect_some(world.store.database, [alice, bob], mine)
    with pytest.raises(NotFound):
        _ = [piece async for piece in write_archive(records, ExportFormat.JSONL)]


async def test_the_session_before_is_not_told_to_whom_it_is_not_visible(world: World) -> None:
    """Alice takes over a conversation in Bob's chat: what he had there is his."""
    alice = (await world.exchange("from alice")).turn.session
    bob = (await world.exchange("from bob", source=BOB)).turn.session
    await world.store.transact(sessions.switch(key_of(BOB), BOB, alice, OPERATOR, world.now, by="me"))
    assert bob in (await export(world.store, wanted=ListFilter(person="telegram:7"))).decode()
    assert bob not in (await export(world.store, principal=Principal.speaking(ALICE))).decode()


async def test_a_choice_of_sessions(world: World) -> None:
    await world.exchange("here")
    await world.exchange("there", source=dm("9", platform="signal"))
    text = (await export(world.store, wanted=ListFilter(platform="signal"))).decode()
    assert ("there" in text, 'here"' in text.replace("there", "")) == (True, False)


async def test_times_of_an_archive_are_those_of_the_store(world: World) -> None:
    session = (await world.exchange("one")).turn.session
    record = await world.store.read(collect(session, OPERATOR))
    assert record.session.started == NOON.astimezone(UTC)
    assert record.session.turns[0].ended == NOON


# What an archive claims


def claimed(archive: bytes, **fields: object) -> bytes:
    return changed(archive, 2, **fields)


_A, _B = "telegram:7", "telegram:8"
_THREAD, _PERSON = replace(ALICE, thread_id="1"), SessionKey("main", person="of nobody")
_MINE, _GROUP = key_of(ALICE), derive_key(group("7"), Scope(group=GroupScope.SHARED))


@pytest.mark.parametrize(
    ("key", "origin", "claimed_people", "kept"),
    [
        (_MINE, ALICE, [_A], [_A]),
        (_MINE, ALICE, ["irc:7"], []),
        (_MINE, BOB, [_B], []),
        (_MINE, ALICE, [_A, "irc:9"], [_A, "irc:9"]),
        (_MINE, ALICE, [_A, _B], [_A]),
        (_MINE._replace(kind=JOB, user="7"), ALICE, [_A], []),
        (key_of(group("7")), group("7"), [_A], [_A]),
        (key_of(group("7")), group("8"), [_B], []),
        (key_of(group("7", chat="-300")), group("7", chat="-300"), [_A, _B], [_A]),
        (_GROUP, group("7"), [_A, _B], [_A, _B]),
        (_GROUP._replace(chat="7"), group("7", chat="7"), [_A, _B], [_A, _B]),
        (SessionKey("main", person="of 7 and 9"), ALICE, [_A, "irc:9"], [_A, "irc:9"]),
        (SessionKey("main", person="of 7 and 9"), ALICE, [_A, _B], [_A]),
        (_PERSON, ALICE, [_A], [_A]),
        (SessionKey("main", "web", chat="alice/plans"), dm("mallory", "web"), ["web:mallory"], []),
        (key_of(dm("room")), replace(dm("room"), user_id="8"), [_B], [_B]),
        (key_of(dm("alice/plans")), replace(dm("alice/plans"), user_id="8"), [_B], []),
    ],
)
async def test_only_people_of_a_conversation_are_believed_to_be_in_it(
    world: World, other: Store, *, key: SessionKey, origin: Source, claimed_people: list[str], kept: list[str]
) -> None:
    await world.exchange("hello", source=ALICE)
    for identity in (_A, "irc:9", _B):
        await other.transact(people.person_of(identity, NOON))
    await other.transact(_same_person("of 7 and 9", _A, "irc:9"))
    archive = await export(world.store)
    told = {
        "key": key.text,
        "owner": key.text,
        "participants": claimed_people,
        "origin": origin.to_json(),
        "routes": [],
    }
    await World(other).exchange("in the same group", source=group("8", chat="-300"))
    (imported,) = await bring(other, claimed(archive, **told))
    assert imported.outcome is ImportOutcome.IMPORTED, imported.notes
    assert imported.id
    assert sorted(await other.read(_people_in(imported.id))) == sorted(kept)
    assert any("apart" in note for note in imported.notes) == (kept != claimed_people or key.chat == "room")


@transaction
def _same_person(person: str, *identities: str) -> Statements[None]:
    yield (
        "UPDATE people SET id = ? WHERE id = (SELECT person FROM identities WHERE identity = ?)",
        (person, identities[0]),
    )
    for each in identities:
        yield "UPDATE identities SET person = ? WHERE identity = ?", (person, each)


@transaction
def _people_in(session: str) -> Statements[list[str]]:
    rows = yield (
        "SELECT p.identity FROM participants p JOIN sessions s ON s.no = p.session_no WHERE s.id = ?",
        (session,),
    )
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    ("origin", "routes", "is_open", "left_out"),
    [
        (ALICE, {}, True, False),
        (BOB, {}, False, False),
        (BOB, {KEY.text: ALICE}, True, False),
        (BOB, {KEY.text: BOB}, False, True),
        (_THREAD, {}, False, False),
        (ALICE, {key_of(_THREAD).text: _THREAD}, True, False),
        (ALICE, {key_of(BOB).text: BOB}, True, True),
        (ALICE, {_PERSON.text: ALICE}, True, False),
        (ALICE, {_PERSON.text: BOB}, True, True),
        (ALICE, {_PERSON.text: replace(ALICE, profile="work")}, True, True),
        (ALICE, {_PERSON.text: group("7")}, True, True),
    ],
)
async def test_a_session_is_open_only_where_its_answers_have_a_chat(
    world: World, other: Store, *, origin: Source, routes: dict[str, Source], is_open: bool, left_out: bool
) -> None:
    await world.exchange("hello", source=ALICE)
    listed = [{"key": key, "address": address.to_json()} for key, address in routes.items()]
    archive = claimed(await export(world.store), origin=origin.to_json(), routes=listed)
    (imported,) = await bring(other, archive)
    assert any("left out" in note for note in imported.notes) is left_out
    assert (await other.read(sessions.open_by_key(KEY)) is not None) is is_open


async def test_the_conversation_of_a_job_is_imported_as_ended(world: World, other: Store) -> None:
    """Its answers go where the job says, and the archive brings no jobs."""
    await world.exchange("hello", source=ALICE)
    archive = claimed(await export(world.store), key=job_key("main", 3).text, participants=[], owner="", routes=[])
    (imported,) = await bring(other, archive)
    assert any("does not say where its answers go" in note for note in imported.notes)
    assert await other.read(sessions.open_by_key(job_key("main", 3))) is None


async def test_the_route_of_a_chat_may_name_who_spoke_there_or_nobody(world: World, other: Store) -> None:
    room = derive_key(group("7"), Scope(group=GroupScope.SHARED))
    archive = await shared_archive(world, room, "7")
    await shared_archive(World(other), room, "7")
    await other.transact(sessions.reset(room, group("7"), NOON, by="me"))
    nobody = replace(group("7"), user_id=None)
    (imported,) = await bring(other, claimed(archive, routes=[{"key": room.text, "address": nobody.to_json()}]))
    assert not any("routes" in note for note in imported.notes)


@pytest.mark.parametrize("is_open", [True, False])
async def test_nobody_is_planted_in_the_conversation_of_another(world: World, other: Store, is_open: bool) -> None:
    """The key of a direct chat names its person; whoever else the archive names reads nothing that is said next."""
    mine = dm("mallory", platform="api")
    begun = await world.exchange("planted", source=mine)
    if not is_open:
        await world.store.transact(sessions.reset(key_of(mine), mine, world.now, by="me"))
    records = collect_some(world.store.database, [begun.turn.session], OPERATOR)
    archive = b"".join([part async for part in write_archive(records, ExportFormat.JSONL)])
    victim = dm("alice", platform="api")
    (imported,) = await bring(other, claimed(archive, key=key_of(victim).text, origin=victim.to_json()))
    assert imported.outcome is ImportOutcome.IMPORTED
    assert any("imported as ended and apart" in note and "api:mallory" in note for note in imported.notes)
    there = World(other)
    said = await there.exchange("my secret", source=victim)
    mallory = Principal(identities=frozenset({"api:mallory"}))
    assert said.turn.session != begun.turn.session
    with pytest.raises(NotFound):
        await other.read(sessions.get_visible(said.turn.session, mallory))
    with pytest.raises(NotFound):
        await other.read(sessions.get_visible(begun.turn.session, mallory))
    assert await other.read(violations()) == []


async def test_ratings_of_people_who_are_not_in_an_imported_conversation_are_left_out(
    world: World, other: Store
) -> None:
    """An archive can name anybody: what they never said here would be exported and shown as theirs."""
    begun = await world.exchange("hello", source=ALICE)
    for rating in (Rating.UP, Rating.DOWN):
        identity = "telegram:7" if rating is Rating.UP else "telegram:8"
        rated = feedback.rate(begun.turn.session, begun.turn.number, identity, rating, NOON, OPERATOR)
        await world.store.transact(rated)
    await bring(other, await export(world.store))
    turns_here = [row[0] for row in await other.read(_turn_numbers())]
    found = await other.read(feedback.list_feedback(turns_here))
    assert [(each.identity, each.rating) for each in found] == [("telegram:7", Rating.UP)]


@transaction
def _turn_numbers() -> Statements[list[Row]]:
    return (yield "SELECT no FROM turns", ())


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_nobody_is_planted_in_a_group_that_is_known_here(world: World, other: Store, is_deleted: bool) -> None:
    room = Scope(group=GroupScope.SHARED)
    key = derive_key(group("7"), room)
    here = World(other)
    archive = await shared_archive(world, key, "9")
    await shared_archive(here, key, "8")
    if is_deleted:
        theirs = await other.read(sessions.open_by_key(key))
        assert theirs
        await other.transact(deletion.delete(theirs.id, OPERATOR, here.now))
    (imported,) = await bring(other, archive)
    assert any("imported as ended and apart" in note for note in imported.notes)
    assert outcomes_of(await bring(other, archive)) == [ImportOutcome.UNCHANGED]
    await shared_archive(here, key, "8", "again")
    current = await other.read(sessions.open_by_key(key))
    assert current
    with pytest.raises(NotFound):
        await other.read(sessions.get_visible(current.id, Principal(identities=frozenset({"telegram:9"}))))


@pytest.mark.parametrize("is_led_there", [False, True])
async def test_nobody_is_planted_in_a_group_in_which_nobody_has_spoken_here(
    world: World, other: Store, *, is_led_there: bool
) -> None:
    """Nor by a route from a conversation of their own."""
    key = derive_key(group("7"), Scope(group=GroupScope.SHARED))
    mallory = Principal(identities=frozenset({"telegram:9"}))
    if is_led_there:
        await world.exchange("planted", source=dm("9"))
        there = {"key": key.text, "address": group("8").to_json()}
        archive = claimed(await export(world.store), routes=[there])
    else:
        archive = await shared_archive(world, key, "9")
    (imported,) = await bring(other, archive)
    expected = "routes of chats" if is_led_there else "imported as ended, since nobody has spoken in that chat here yet"
    assert any(expected in note for note in imported.notes)
    assert outcomes_of(await bring(other, archive)) == [ImportOutcome.UNCHANGED]
    await shared_archive(World(other), key, "8")
    current = await other.read(sessions.open_by_key(key))
    assert current
    with pytest.raises(NotFound):
        await other.read(sessions.get_visible(current.id, mallory))
    assert await other.read(violations()) == []
    theirs = await other.read(sessions.get_visible(imported.id or "", mallory))
    assert theirs.id != current.id


async def shared_archive(world: World, key: SessionKey, user: str, text: str = "hello") -> bytes:
    """What is exported of a group in which one person spoke."""
    spoken = Source(**{**group(user).to_json(), "message_id": f"{text}{user}"})
    await world.store.transact(inbox.accept(Inbound(source=spoken, text=text, at=world.now), key, world.now))
    begun = await world.store.transact(turns.begin(key, "w1", world.now, LEASE, NEVER))
    assert isinstance(begun, Begun)
    await world.store.transact(turns.settle(begun.turn, [answer("yes")], [], world.now))
    return await export(world.store)


async def test_who_has_left_is_no_participant_of_what_is_imported(world: World, other: Store) -> None:
    """Their words were copied into a branch that others made."""
    ann, ben = (replace(group(user), thread_id="5") for user in ("7", "8"))
    for source in (ann, ben):
        await world.exchange("hello", source=source)
    branch = await world.store.transact(branches.branch(key_of(ann), ann, OPERATOR, world.now, by="ann"))
    await bring(other, await export(world.store))
    await other.read(sessions.get_visible(branch.id, Principal.speaking(ann)))
    for store in (world.store, other):
        with pytest.raises(NotFound):
            await store.read(sessions.get_visible(branch.id, Principal.speaking(ben)))


async def test_no_route_and_no_way_back_leads_into_the_conversation_of_another(world: World, other: Store) -> None:
    begun = await world.exchange("mine", source=BOB)
    await world.store.transact(sessions.reset(key_of(BOB), BOB, world.now, by="me"))
    await world.store.transact(sessions.switch(key_of(BOB), BOB, begun.turn.session, OPERATOR, world.now, by="me"))
    records = collect_some(world.store.database, [begun.turn.session], OPERATOR)
    archive = b"".join([part async for part in write_archive(records, ExportFormat.JSONL)])
    told = [json.loads(line) for line in archive.splitlines()]
    session = told[1]["session"]
    routes = ((KEY.text, BOB), (session["key"], ALICE))
    session["routes"] = [{"key": key, "address": address.to_json()} for key, address in routes]
    for operation in session["operations"]:
        operation["details"]["key"] = KEY.text
    (imported,) = await bring(other, [json.dumps(each).encode() + b"\n" for each in told])
    assert any("routes" in note for note in imported.notes)
    assert await other.read(sessions.open_by_key(KEY)) is None
    assert await other.read(ways()) == []
    said = await World(other).exchange("hello", source=ALICE)
    assert said.turn.session != begun.turn.session


async def test_a_hash_alone_opens_nobodys_file(world: World, other: Store) -> None:
    await world.exchange("look")
    file = {"name": "plan.pdf", "media_type": "application/pdf", "size": 3, "sha256": "ab" * 32}
    archive = changed(await export(world.store), 3, files=[file])
    (imported,) = await bring(other, archive)
    assert any("without the content" in note for note in imported.notes)
    entries = await other.read(transcript.load_visible(imported.id or "", OPERATOR))
    assert [each.sha256 for each in entries[0].files] == [None]
    assert outcomes_of(await bring(other, archive)) == [ImportOutcome.UNCHANGED]
