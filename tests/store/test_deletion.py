"""Sessions deleted for good: whole, only by those who may, only while nobody works in them."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from palaver.db.transaction import Statements, Value, transaction
from palaver.model.attachment import Attachment
from palaver.model.errors import BadArgument, NotFound, SessionBusy
from palaver.model.label import Label
from palaver.model.revision import RevisionPolicy
from palaver.model.session import EndReason, Principal
from palaver.model.turn import Inbound, Outbound, Revision, TurnState
from palaver.store.conversations import branches, deletion, history, sessions, transcript
from palaver.store.conversations.deletion import ProcessRuns, Pruned, PruneRule, Survey
from palaver.store.queue import inbox, outbox, revisions, turns
from palaver.store.queue.cause import CAUSE_COLUMNS, cause_of
from palaver.store.results import Opening
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.process_rows import end_process, start_process
from tests.store.world import LEASE, NOON, OPERATOR, World, cause, dm, key_of

_CAUSES = f"SELECT {CAUSE_COLUMNS} FROM outbox WHERE cause_kind IS NOT NULL ORDER BY id DESC"  # noqa: S608

ALICE, BOB = dm("7"), dm("8")
KEY = key_of(ALICE)
TABLES = ("sessions", "participants", "routes", "entries", "inbox", "turns", "outbox", "operations", "processes")


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@transaction
def sizes() -> Statements[dict[str, int]]:
    found: dict[str, int] = {}
    for table in TABLES:
        rows = yield f"SELECT count(*) FROM {table}", ()  # noqa: S608
        found[table] = rows[0][0]
    return found


@transaction
def one(sql: str, *values: Value) -> Statements[list[tuple[Any, ...]]]:
    rows = yield sql, values
    return [tuple(row) for row in rows]


async def delete(world: World, session: str, principal: Principal = OPERATOR) -> deletion.Removed:
    return await world.store.transact(deletion.delete(session, principal, world.now))


async def assert_sound(world: World) -> None:
    assert await world.store.read(violations()) == []


# One


async def test_everything_of_a_session_goes_and_nothing_else(world: World) -> None:
    await world.exchange("from bob", source=BOB)
    before = await world.store.read(sizes())
    session = (await world.exchange("one")).turn.session
    await world.exchange("two")
    await world.store.transact(transcript.undo(KEY, 1, world.now, principal=OPERATOR))
    removed = await delete(world, session)
    assert (removed.session.id, removed.entries, removed.turns) == (session, 4, 2)
    after = await world.store.read(sizes())
    assert after | {"inbox": 1} == before
    words = await world.store.read(one("SELECT no FROM inbox WHERE length(body) > 0"))
    assert len(words) == 1
    with pytest.raises(NotFound):
        await world.texts(session)
    await assert_sound(world)


async def test_what_was_sent_because_of_its_turns_goes_with_its_files(world: World) -> None:
    """Anything else that the outbox has stays, and the last number given is given to nobody else."""
    begun = await world.exchange("one")
    turn = begun.turn.number
    file = Attachment(name=Label("secret.txt"), sha256="a" * 64, size=1)
    change = Inbound(source=dm(message_id="m1"), text="uno", at=NOON, revision=Revision(version="2"))
    changed = await world.store.transact(revisions.accept_revision(change, KEY, NOON, RevisionPolicy.IGNORE))
    session = begun.turn.session
    kept = ("command:1:0", f"tool:{turn}0:x", f"busy:{turn}0", f"halt:{turn}0:1:0", "welcome:another:0")
    gone = (f"busy:{turn}", f"parked:{turn}", f"halt:{turn}:1:0", f"tool:{turn}:x", f"tool:{turn}:y")
    gone = (*gone, f"told:{turn}:x", f"revision:{changed}:0", f"welcome:{session}:0", f"news:{session}:0")
    for name in (*kept, *gone):
        outbound = Outbound(platform="telegram", chat_id="elsewhere", text="secret", file=file)
        await world.store.transact(outbox.enqueue(outbound, cause(name), world.now))
    removed = await delete(world, begun.turn.session)
    left = await world.store.read(one(_CAUSES))
    assert [cause_of(*row) for row in left] == [*map(cause, kept)]
    held = await world.store.read(one("SELECT count(*) FROM attachments"))
    assert (removed.files, held) == ((), [(len(kept),)])
    fresh = await world.store.transact(
        outbox.enqueue(Outbound(platform="telegram", chat_id="7", text="new"), cause("n"), NOON)
    )
    assert fresh == -len(kept + gone) - 1
    await assert_sound(world)


async def test_turns_that_left_no_entry_go_too(world: World) -> None:
    session = (await world.exchange("one")).turn.session
    number = await world.store.transact(turns.reserve(KEY, world.now))
    assert number
    taken = await world.store.transact(turns.resume(number, "w", world.now, timedelta(minutes=1)))
    assert taken
    await world.store.transact(turns.settle(taken, [], [], world.now, error="nothing was gained"))
    assert (await delete(world, session)).turns == 2
    await assert_sound(world)


async def test_a_deleted_message_that_is_delivered_again_starts_nothing(world: World) -> None:
    number = await world.say("one", id_="m1")
    begun = await world.begin()
    assert begun
    await world.store.transact(turns.settle(begun.turn, [], [], world.now))
    await delete(world, begun.turn.session)
    assert await world.say("one", id_="m1") is None
    assert await world.store.read(inbox.get_message(number or 0, OPERATOR)) is None
    assert await world.begin() is None


async def test_the_search_index_follows(world: World) -> None:
    begun = await world.exchange("secret")
    await delete(world, begun.turn.session)
    rows = await world.store.read(one("SELECT session_no, kind, first_seq, last_seq FROM journal ORDER BY pos DESC"))
    assert rows[0] == (begun.turn.session_number, "delete", 1, 2)


async def test_an_empty_session_can_be_deleted(world: World) -> None:
    session = await world.store.transact(sessions.create(KEY, ALICE, world.now))
    assert (await delete(world, session.id)).entries == 0
    await assert_sound(world)


async def test_the_next_message_starts_fresh(world: World) -> None:
    session = (await world.exchange("one")).turn.session
    await delete(world, session)
    begun = await world.exchange("two")
    assert begun.opened.opening is Opening.CREATED
    assert begun.turn.session != session
    assert await world.texts(begun.turn.session) == ["two", "yes"]


async def test_those_who_can_read_it_can_delete_it_and_nobody_else(world: World) -> None:
    session = (await world.exchange("one")).turn.session
    for stranger in (Principal.speaking(BOB), Principal()):
        with pytest.raises(NotFound):
            await delete(world, session, stranger)
    assert await world.texts(session) == ["one", "yes"]
    assert (await delete(world, session, Principal.speaking(ALICE))).entries == 2


@pytest.mark.parametrize("state", [TurnState.RUNNING, TurnState.PARKED, TurnState.INTERRUPTED])
async def test_not_while_a_turn_is_open(world: World, state: TurnState) -> None:
    await world.say("one")
    begun = await world.begin()
    assert begun
    if state is not TurnState.RUNNING:
        await world.store.transact(turns.halt(begun.turn, state, world.now))
    with pytest.raises(SessionBusy, match="in the middle of a turn"):
        await delete(world, begun.turn.session)
    assert await world.texts(begun.turn.session) == ["one"]
    turn = begun.turn
    if state is not TurnState.RUNNING:
        resumed = await world.store.transact(turns.resume(turn.number, "w1", world.now, LEASE))
        assert resumed
        turn = resumed
    await world.store.transact(turns.settle(turn, [], [], world.now))
    await delete(world, begun.turn.session)
    await assert_sound(world)


async def test_not_while_a_process_runs(world: World) -> None:
    begun = await world.exchange("one")
    await world.store.transact(start_process(begun.turn.session_number))
    with pytest.raises(ProcessRuns, match="process"):
        await delete(world, begun.turn.session)
    await world.store.transact(end_process())
    await delete(world, begun.turn.session)
    assert (await world.store.read(sizes()))["processes"] == 0


async def test_no_way_back_leads_to_what_is_gone(world: World) -> None:
    first = (await world.exchange("one")).turn.session
    second = await world.store.transact(sessions.reset(KEY, ALICE, world.now, by="me"))
    await delete(world, first)
    assert await world.store.transact(history.back(KEY, world.now, principal=OPERATOR)) is None
    assert (await world.exchange("two")).turn.session == second.id
    await assert_sound(world)


async def test_the_way_back_leads_past_what_is_gone(world: World) -> None:
    kept = (await world.exchange("kept")).turn.session
    await world.store.transact(sessions.reset(KEY, dm(), world.now, by="me"))
    gone = (await world.exchange("gone")).turn.session
    await world.store.transact(sessions.reset(KEY, dm(), world.now, by="me"))
    await world.exchange("last")
    await world.store.transact(deletion.delete(gone, OPERATOR, world.now))
    undone = await world.store.transact(history.back(KEY, world.now, principal=OPERATOR))
    assert undone
    assert undone.session == kept
    assert await world.store.transact(history.back(KEY, world.now, principal=OPERATOR)) is None


async def test_no_way_back_leads_to_what_is_gone_no_matter_where_it_was(world: World) -> None:
    first = (await world.exchange("one")).turn.session
    await world.store.transact(sessions.reset(KEY, ALICE, world.now, by="me"))
    await world.store.transact(sessions.switch(key_of(BOB), BOB, first, OPERATOR, world.now, by="me"))
    await delete(world, first)
    assert await world.store.transact(history.back(KEY, world.now, principal=OPERATOR)) is None
    assert await world.store.transact(history.back(key_of(BOB), world.now, principal=OPERATOR)) is None
    await assert_sound(world)


async def test_a_branch_outlives_its_parent(world: World) -> None:
    parent = (await world.exchange("one")).turn.session
    child = await world.store.transact(branches.branch(KEY, ALICE, OPERATOR, world.now, by="me"))
    removed = await delete(world, parent)
    assert removed.turns == 1
    assert await world.texts(child.id) == ["one", "yes"]
    assert (await delete(world, child.id)).turns == 0
    await assert_sound(world)


async def test_a_branch_leaves_the_turns_of_its_parent(world: World) -> None:
    parent = (await world.exchange("one")).turn.session
    before = await world.store.read(sizes())
    child = await world.store.transact(branches.branch(KEY, ALICE, OPERATOR, world.now, by="me"))
    await delete(world, child.id)
    after = await world.store.read(sizes())
    assert {name: after[name] for name in ("entries", "inbox", "turns", "outbox")} == {
        name: before[name] for name in ("entries", "inbox", "turns", "outbox")
    }
    assert await world.texts(parent) == ["one", "yes"]


# Many


async def ended(
    world: World, count: int, platform: str = "telegram", *, reason: EndReason = EndReason.IDLE
) -> list[str]:
    """Sessions that ended a day apart."""
    made: list[str] = []
    for user in range(count):
        source = dm(f"{platform}{user}", platform=platform)
        begun = await world.exchange("hi", source=source)
        await world.store.transact(sessions.end(begun.turn.session_number, reason, world.now))
        made.append(begun.turn.session)
        world.later(days=1)
    return made


async def survey(world: World, rule: PruneRule, principal: Principal = OPERATOR) -> Survey:
    return await world.store.read(deletion.survey(rule, principal))


async def prune(world: World, rule: PruneRule, principal: Principal = OPERATOR) -> Pruned:
    found = await survey(world, rule, principal)
    return await deletion.prune(world.store.database, found.where, world.now)


async def left(world: World) -> list[str]:
    return [str(row[0]) for row in await world.store.read(one("SELECT id FROM sessions ORDER BY no"))]


def day(number: float) -> datetime:
    return NOON + timedelta(days=number)


async def test_a_rule_needs_a_limit() -> None:
    with pytest.raises(BadArgument):
        PruneRule(platform="telegram")
    with pytest.raises(BadArgument):
        PruneRule(keep_newest=-1)


async def test_nothing_to_prune_in_an_empty_store(world: World) -> None:
    for rule in (PruneRule(keep_newest=0), PruneRule(keep_newest=5), PruneRule(before=day(9))):
        assert (await survey(world, rule)).sessions == 0
        assert await prune(world, rule) == Pruned()


async def test_by_age_and_open_ones_by_their_last_use(world: World) -> None:
    made = await ended(world, 4)
    still_open = (await world.exchange("open")).turn.session
    rule = PruneRule(before=day(2))
    found = await survey(world, rule)
    assert (found.sessions, found.entries, found.oldest, found.newest) == (2, 4, day(0), day(1))
    assert [session.id for session in found.sample] == made[:2]
    assert await left(world) == [*made, still_open]
    assert await prune(world, rule) == Pruned(sessions=2, entries=4)
    assert await left(world) == [*made[2:], still_open]
    assert (await survey(world, PruneRule(keep_newest=0))).sessions == 2
    idle = PruneRule(before=world.now + timedelta(seconds=1))
    assert [session.id for session in (await survey(world, idle)).sample] == [*made[2:], still_open]
    await world.say("I am back")
    assert await prune(world, idle) == Pruned(sessions=2, entries=4, busy=1)
    assert await left(world) == [still_open]
    await world.begin()
    assert await prune(world, idle) == Pruned(busy=1)
    await assert_sound(world)


async def test_keep_the_newest(world: World) -> None:
    made = await ended(world, 5)
    assert await prune(world, PruneRule(keep_newest=5)) == Pruned()
    assert await prune(world, PruneRule(keep_newest=3)) == Pruned(sessions=2, entries=4)
    assert await left(world) == made[2:]
    assert await prune(world, PruneRule(keep_newest=1, before=day(3))) == Pruned(sessions=1, entries=2)
    assert await left(world) == made[3:]
    assert await prune(world, PruneRule(keep_newest=0)) == Pruned(sessions=2, entries=4)
    assert await left(world) == []


async def test_by_platform(world: World) -> None:
    here, there = await ended(world, 3), await ended(world, 2, "signal")
    assert (await prune(world, PruneRule(keep_newest=1, platform="signal"))).sessions == 1
    assert await left(world) == [*here, there[1]]


async def test_only_what_the_principal_can_see(world: World) -> None:
    made = await ended(world, 3)
    theirs = Principal(identities=frozenset({"telegram:telegram1"}))
    assert (await survey(world, PruneRule(keep_newest=0), theirs)).sessions == 1
    assert (await survey(world, PruneRule(keep_newest=0), Principal())).sample == ()
    assert (await prune(world, PruneRule(keep_newest=0), theirs)).sessions == 1
    assert await left(world) == [made[0], made[2]]


@pytest.mark.parametrize(("most_sessions", "most_entries"), [(1, 10_000), (2, 10_000), (50, 1), (50, 5)])
async def test_in_small_transactions(
    world: World, monkeypatch: pytest.MonkeyPatch, most_sessions: int, most_entries: int
) -> None:
    monkeypatch.setattr(deletion, "_SESSIONS_PER_BATCH", most_sessions)
    monkeypatch.setattr(deletion, "_ENTRIES_PER_BATCH", most_entries)
    await ended(world, 7)
    found = await survey(world, PruneRule(keep_newest=1))
    steps: list[int] = []
    done = await deletion.prune(
        world.store.database, found.where, world.now, progress=lambda pruned: steps.append(pruned.sessions)
    )
    assert done == Pruned(sessions=6, entries=12)
    assert len(steps) >= 3
    assert steps == sorted(set(steps))
    assert len(await left(world)) == 1


async def test_what_came_to_life_since_the_survey_stays(world: World) -> None:
    made = await ended(world, 3, reason=EndReason.SWITCHED)
    found = await survey(world, PruneRule(before=world.now))
    await world.exchange("again", source=dm("telegram1"))
    done = await deletion.prune(world.store.database, found.where, world.now)
    assert done.sessions == 2
    assert made[1] in await left(world)


async def test_one_in_use_is_left_alone_and_counted(world: World) -> None:
    await ended(world, 2)
    await world.say("busy")
    begun = await world.begin()
    assert begun
    await world.store.transact(sessions.end(begun.turn.session_number, EndReason.IDLE, day(-1)))
    assert await prune(world, PruneRule(before=day(9))) == Pruned(sessions=2, entries=4, busy=1)
    assert await left(world) == [begun.turn.session]
