"""The way back: no matter what moved or hid a conversation, all is as it was before, here and where it came from."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from palaver.db.transaction import Row, Statements, Transaction, transaction
from palaver.model.compaction import plan_compaction
from palaver.model.errors import NotFound, SessionBusy
from palaver.model.key import GroupScope, Scope
from palaver.model.session import EndReason, ModelOverride, Principal, Session
from palaver.model.source import Source
from palaver.model.turn import Outbound, outbound_to
from palaver.store.conversations import attach, branches, deletion, history, sessions, transcript
from palaver.store.queue import turns
from palaver.store.records import micros, source_of
from palaver.store.results import Opening, OperationKind, Undone
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.opened import open_session
from tests.store.process_rows import end_process, start_process
from tests.store.world import IDLE_HOUR, NEVER, OPERATOR, World, answer, dm, group, key_of

HOME, DESK, TRAIN = dm("7"), dm("7", thread_id="desk"), dm("7", thread_id="train")
ME = Principal.speaking(HOME)
KEY = key_of(HOME)


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def carry(world: World, session: str, to: Source) -> Session:
    return await world.store.transact(sessions.switch(key_of(to), to, session, ME, world.now, by="me"))


async def back(world: World, place: Source = HOME, principal: Principal = ME) -> Undone | None:
    return await world.store.transact(history.back(key_of(place), world.now, principal=principal))


async def reset(world: World, place: Source = HOME) -> Session:
    return await world.store.transact(sessions.reset(key_of(place), place, world.now, by="me"))


async def end(world: World, session: str, reason: EndReason) -> None:
    found = await get(world, session)
    await world.store.transact(sessions.end(found.number, reason, world.now))


async def get(world: World, session: str) -> Session:
    return await world.store.read(sessions.get_visible(session, OPERATOR))


async def summarised_after(world: World, *summarised: int) -> str:
    """Exchange questions and answers; summarise all but the last one after some of them. Return the session."""
    session = ""
    for number in range(1, max(summarised) + 1):
        begun = await world.exchange(f"question {number} ...................", f"answer {number} ...................")
        session = begun.turn.session
        if number in summarised:
            await summarise(world, session, f"summary {number}")
    return session


async def summarise(world: World, session: str, summary: str) -> None:
    shown = await world.store.read(transcript.load_visible(session, OPERATOR))
    plan = plan_compaction(shown, keep_exchanges=1)
    await world.store.transact(transcript.compact(KEY, plan, summary, world.now, by="agent"))


async def open_at(world: World, place: Source = HOME) -> str | None:
    current = await world.store.read(sessions.open_by_key(key_of(place)))
    return current and current.id


@transaction
def state() -> Statements[tuple[list[Row], list[Row]]]:
    """Where every conversation leads, and how every session stands."""
    routes = yield "SELECT key, session_no, settings, address FROM routes ORDER BY key", ()
    stand = yield "SELECT no, key, ended, end_reason FROM sessions ORDER BY no", ()
    return [(*row[:3], source_of(row[3]).thread_id) for row in routes], [tuple(row) for row in stand]


@transaction
def settle_down(place: Source) -> Statements[None]:
    """What somebody has set for the conversations of a place."""
    yield "UPDATE routes SET settings = '{\"loud\":true}' WHERE key = ?", (key_of(place).text,)


# Sessions that were carried about


@pytest.mark.parametrize("reason", [None, EndReason.EXPIRED, EndReason.SWITCHED])
async def test_back_leaves_the_place_a_session_was_taken_from_as_it_was(world: World, reason: EndReason | None) -> None:
    taken = (await world.exchange("at home")).turn.session
    await world.store.transact(settle_down(HOME))
    if reason:
        await end(world, taken, reason)
    await world.exchange("at the desk", source=DESK)
    before = await world.store.read(state())
    world.later(minutes=5)
    await carry(world, taken, DESK)
    world.later(minutes=5)
    await back(world, DESK)
    assert await world.store.read(state()) == before


async def test_back_remembers_where_a_place_led_whose_session_was_handed_on(world: World) -> None:
    """From home to the desk, home again, and all the way back: where answers go and what was set stays known."""
    session = (await world.exchange("at home")).turn.session
    await world.store.transact(settle_down(HOME))
    before = await world.store.read(state())
    await carry(world, session, DESK)
    between = await world.store.read(state())
    await carry(world, session, HOME)
    await back(world)
    assert await world.store.read(state()) == between
    await back(world, DESK)
    routes, stand = await world.store.read(state())
    assert (routes[:1], stand) == (before[0][:1], before[1])


async def test_back_from_a_resumed_session_that_had_ended_here(world: World) -> None:
    first = (await world.exchange("first")).turn.session
    second = await reset(world)
    before = await world.store.read(state())
    world.later(minutes=5)
    await carry(world, first, HOME)
    await back(world)
    assert await world.store.read(state()) == before
    assert await open_at(world) == second.id


async def test_what_was_said_meanwhile_stays_where_it_was_said(world: World) -> None:
    taken = (await world.exchange("at home")).turn.session
    await carry(world, taken, DESK)
    fresh = (await world.exchange("meanwhile")).turn.session
    await back(world, DESK)
    assert await open_at(world) == fresh
    assert ((await get(world, taken)).key, (await get(world, taken)).end_reason) == (key_of(HOME), EndReason.SWITCHED)


async def test_back_takes_nothing_from_a_place_that_the_asker_cannot_see(world: World) -> None:
    """Ann goes on alone with what the group has left; nobody brings her words before the group."""
    shared = Scope(group=GroupScope.SHARED)
    ann, ben, private = group("1"), group("2"), dm("1")
    key = key_of(ann, shared)
    left = (await world.store.transact(open_session(key, ann, world.now, NEVER.reset_rule(ann)))).session
    await world.store.transact(sessions.reset(key, ann, world.now, by="ann"))
    await world.store.transact(open_session(key, ben, world.now, NEVER.reset_rule(ben)))
    me = Principal.speaking(ann)
    await world.store.transact(sessions.switch(key_of(private), private, left.id, me, world.now, by="ann"))
    with pytest.raises(NotFound):
        await world.store.transact(history.back(key, world.now, principal=Principal.speaking(ben)))
    assert await open_at(world, private) == left.id
    undone = await world.store.transact(history.back(key, world.now, principal=me))
    assert undone
    assert undone.session == left.id


async def test_someone_who_took_part_before_or_since_can_go_back_and_nobody_else(world: World) -> None:
    shared = Scope(group=GroupScope.SHARED)
    ann, ben, cy = group("1"), group("2"), group("3")
    key = key_of(ann, shared)
    left = (await world.store.transact(open_session(key, ann, world.now, NEVER.reset_rule(ann)))).session
    for who in (ann, ben):
        await world.store.transact(sessions.reset(key, ben, world.now, by="ben"))
        with pytest.raises(NotFound):
            await world.store.transact(history.back(key, world.now, principal=Principal.speaking(cy)))
        undone = await world.store.transact(history.back(key, world.now, principal=Principal.speaking(who)))
        assert undone
        assert undone.session == left.id
    await end(world, left.id, EndReason.EXPIRED)
    with pytest.raises(NotFound):
        await world.store.transact(history.back(key, world.now, principal=Principal.speaking(cy)))
    assert await world.store.transact(history.back(key, world.now, principal=Principal.speaking(ann)))


# What was hidden


async def test_what_was_undone_is_brought_back_where_the_session_is_now(world: World) -> None:
    session = (await world.exchange("one")).turn.session
    await world.store.transact(transcript.undo(key_of(HOME), 1, world.now, principal=ME))
    await carry(world, session, DESK)
    await world.exchange("something else")
    for step in (history.redo, history.back):
        assert await world.store.transact(step(key_of(HOME), world.now, principal=ME)) is None
    assert await world.texts(session) == []
    undone = await world.store.transact(history.redo(key_of(DESK), world.now, principal=ME))
    assert undone
    assert (undone.kind, undone.session) == (OperationKind.UNDO, session)
    assert await world.texts(session) == ["one", "yes"]
    undone = await back(world, DESK)
    assert undone
    assert undone.kind is OperationKind.SWITCH


async def test_what_was_undone_before_others_came_stays_hidden_from_them(world: World) -> None:
    await world.exchange("one")
    session = (await world.exchange("two")).turn.session
    await world.store.transact(transcript.undo(key_of(HOME), 1, world.now, principal=ME))
    found = await world.store.transact(attach.find_attachable(session, key_of(DESK), ME))
    opened = attach.attach(key_of(DESK), found, world.now, by=ME.name, farewell=outbound_to(DESK, "parted"))
    await world.store.transact(opened)
    redo = partial(history.redo, key_of(HOME), world.now, principal=ME)
    assert await world.store.transact(redo(place=key_of(DESK))) is None
    assert await world.texts(session) == ["one", "yes"]
    assert await world.store.transact(redo())
    await world.store.transact(transcript.undo(key_of(HOME), 1, world.now, principal=ME))
    assert await world.store.transact(redo(place=key_of(DESK)))


async def test_redo_brings_nothing_back_in_a_conversation_that_was_left(world: World) -> None:
    first = (await world.exchange("one")).turn.session
    await world.store.transact(transcript.undo(key_of(HOME), 1, world.now, principal=ME))
    await reset(world)
    assert await world.store.transact(history.redo(key_of(HOME), world.now, principal=ME)) is None
    assert await world.texts(first) == []
    for kind in (OperationKind.RESET, OperationKind.UNDO):
        undone = await back(world)
        assert undone
        assert undone.kind is kind
    assert await world.texts(first) == ["one", "yes"]


@pytest.mark.parametrize("step", [history.redo, history.back])
async def test_what_was_undone_past_summaries_comes_back_summarised(
    world: World, step: Callable[..., Transaction[Undone | None]]
) -> None:
    session = await summarised_after(world, 3, 5)
    before = await world.texts(session)
    undone = await world.store.transact(transcript.undo(KEY, 4, world.now, principal=ME))
    assert undone
    assert undone.summaries == 2
    assert await world.texts(session) == ["question 1 ...................", "answer 1 ..................."]
    redone = await world.store.transact(step(KEY, world.now, principal=ME))
    assert redone
    assert (redone.kind, redone.summaries) == (OperationKind.UNDO, 2)
    assert await world.texts(session) == before
    assert await world.store.read(violations()) == []
    for kind in (OperationKind.COMPACTION, OperationKind.COMPACTION):
        undone = await back(world)
        assert undone
        assert undone.kind is kind
    assert len(await world.texts(session)) == 10


async def test_a_summary_made_since_an_undo_stays(world: World) -> None:
    session = await summarised_after(world, 3, 5)
    await world.store.transact(transcript.undo(KEY, 3, world.now, principal=ME))
    for number in (6, 7):
        await world.exchange(f"question {number} ...................", f"answer {number} ...................")
    await summarise(world, session, "anew")
    await world.store.transact(history.redo(KEY, world.now, principal=ME))
    shown = await world.texts(session)
    assert "anew" in shown
    assert "summary 3" not in shown
    assert "question 3 ..................." in shown


# In the middle of a turn


@transaction
def owed_by(turn: int) -> Statements[int]:
    rows = yield "SELECT count(*) FROM outbox WHERE id / 1024 = ?", (turn,)
    return rows[0][0]


async def test_a_turn_ends_where_it_began_when_its_conversation_is_left(world: World) -> None:
    """It goes on writing into its own session; the next message is answered in the new one."""
    other = (await world.exchange("other topic")).turn.session
    await reset(world)
    await world.say("question")
    begun = await world.begin()
    assert begun
    await carry(world, other, HOME)
    await world.say("next")
    assert await world.begin() is None
    await world.store.transact(turns.append_to_turn(begun.turn, [answer("thinking")]))
    reply = Outbound(platform="telegram", chat_id="7", text="answer")
    await world.store.transact(turns.settle(begun.turn, [answer("answer")], [reply], world.now))
    assert await world.texts(begun.turn.session) == ["question", "thinking", "answer"]
    assert await world.store.read(owed_by(begun.turn.number)) == 1
    following = await world.begin()
    assert following
    assert following.turn.session == other
    assert await world.texts(other) == ["other topic", "yes", "next"]
    assert await world.store.read(violations()) == []


async def test_a_conversation_can_be_left_and_resumed_in_the_middle_of_its_own_turn(world: World) -> None:
    """One place has one turn at a time, so nobody else writes to it."""
    await world.say("question")
    begun = await world.begin()
    assert begun
    await reset(world)
    assert (await carry(world, begun.turn.session, HOME)).id == begun.turn.session
    await world.store.transact(turns.settle(begun.turn, [answer()], [], world.now))
    assert await world.texts(begun.turn.session) == ["question", "yes"]
    await world.say("again")
    again = await world.begin()
    assert again
    await reset(world)
    with pytest.raises(SessionBusy):
        await carry(world, again.turn.session, DESK)


async def test_no_reset_in_the_middle_of_a_turn(world: World) -> None:
    await world.say("a long task")
    begun = await world.begin(rules=IDLE_HOUR)
    assert begun
    world.later(hours=5)
    step = open_session(key_of(HOME), HOME, world.now, IDLE_HOUR.reset_rule(HOME), human=False)
    opened = await world.store.transact(step)
    assert (opened.opening, opened.session.id) == (Opening.REUSED, begun.turn.session)
    await world.store.transact(turns.settle(begun.turn, [answer()], [], world.now))
    assert (await world.store.transact(step)).opening is Opening.RESET


# Fresh starts


async def test_a_live_process_of_the_session_holds_it_for_a_day(world: World) -> None:
    begun = await world.exchange("start the build", rules=IDLE_HOUR)
    await world.store.transact(start_process(begun.turn.session_number, micros(world.now)))
    world.later(hours=23)
    assert (await world.exchange("done?", rules=IDLE_HOUR)).opened.opening is Opening.REUSED
    world.later(hours=2)
    assert (await world.exchange("and now?", rules=IDLE_HOUR)).opened.opening is Opening.RESET
    begun = await world.exchange("another build", rules=IDLE_HOUR)
    await world.store.transact(end_process())
    world.later(hours=2)
    assert (await world.exchange("done?", rules=IDLE_HOUR)).opened.opening is Opening.RESET


@pytest.mark.parametrize("reason", [EndReason.IDLE, EndReason.DAILY, EndReason.EXPIRED, EndReason.SUSPENDED])
async def test_the_way_back_to_a_conversation_that_ended_on_its_own(world: World, reason: EndReason) -> None:
    """Nobody spoke when it was ended: the next message starts fresh, says after what, and can be taken back."""
    first = (await world.exchange("first")).turn.session
    await end(world, first, reason)
    fresh = await world.exchange("hello")
    assert (fresh.opened.opening, fresh.opened.reason, fresh.opened.before) == (Opening.RESET, reason, first)
    undone = await back(world)
    assert undone
    assert (undone.kind, undone.session) == (OperationKind.RESET, first)
    assert await open_at(world) == first


async def test_back_as_the_first_word_after_a_conversation_ended_on_its_own(world: World) -> None:
    first = (await world.exchange("first")).turn.session
    second = await reset(world)
    await world.exchange("second")
    await end(world, second.id, EndReason.EXPIRED)
    undone = await back(world)
    assert undone
    assert (undone.kind, undone.session) == (OperationKind.RESET, second.id)
    assert await open_at(world) == second.id
    undone = await back(world)
    assert undone
    assert undone.session == first


@pytest.mark.parametrize("move", ["reset", "switch", "branch"])
async def test_back_to_a_conversation_that_would_have_been_reopened(world: World, move: str) -> None:
    other = (await world.exchange("elsewhere", source=DESK)).turn.session
    first = (await world.exchange("first")).turn.session
    await end(world, first, EndReason.SWITCHED)
    if move == "reset":
        await reset(world)
    elif move == "switch":
        await carry(world, other, HOME)
    else:
        await world.store.transact(branches.branch(key_of(HOME), HOME, ME, world.now, by="me", from_session=other))
    assert await open_at(world) not in {None, first}
    undone = await back(world)
    assert undone
    assert undone.session == first
    assert (await world.exchange("again")).turn.session == first


# Branches


async def test_a_branch_from_what_was_summarised_since(world: World) -> None:
    """What a later summary covers is copied itself; an earlier summary is not."""
    key, parent = KEY, await summarised_after(world, 3, 6)
    child = await world.store.transact(branches.branch(key, HOME, ME, world.now, by="me", at_seq=2))
    assert await world.texts(child.id) == ["question 1 ...................", "answer 1 ..................."]
    step = branches.branch(key, HOME, ME, world.now, by="me", from_session=parent, at_seq=6)
    child = await world.store.transact(step)
    kept = sorted(await world.texts(child.id))
    assert kept == ["answer 3 ...................", "question 3 ...................", "summary 3"]
    step = branches.branch(key, HOME, ME, world.now, by="me", from_session=parent)
    child = await world.store.transact(step)
    kept = sorted(await world.texts(child.id))
    assert kept == ["answer 6 ...................", "question 6 ...................", "summary 6"]


async def test_a_branch_has_no_word_that_was_undone(world: World) -> None:
    await world.exchange("one")
    await world.exchange("two")
    await world.store.transact(transcript.undo(key_of(HOME), 1, world.now, principal=ME))
    child = await world.store.transact(branches.branch(key_of(HOME), HOME, ME, world.now, by="me", at_seq=9))
    assert await world.texts(child.id) == ["one", "yes"]


async def test_a_branch_goes_on_with_the_same_model(world: World) -> None:
    begun = await world.exchange("one")
    override = ModelOverride(model="m")
    await world.store.transact(sessions.set_override(begun.turn.session, override, ME))
    child = await world.store.transact(branches.branch(key_of(HOME), HOME, ME, world.now, by="me"))
    assert child.override == override
    assert (await reset(world)).override is None


# At the same time


async def test_a_session_that_is_deleted_meanwhile_is_not_found(world: World) -> None:
    """Anyone who has found it, and waits for the conversation, finds out."""
    first = (await world.exchange("first")).turn.session
    number = (await get(world, first)).number

    @transaction
    def delete_between() -> Statements[Session]:
        found = yield from sessions.find(first, ME)
        yield from deletion.delete(first, OPERATOR, world.now)
        return (yield from sessions.get(found.number))

    with pytest.raises(NotFound):
        await world.store.transact(delete_between())
    await world.store.transact(deletion.delete(first, OPERATOR, world.now))
    with pytest.raises(NotFound):
        await world.store.read(sessions.get(number))


async def test_one_session_wanted_in_many_places_at_once(world: World) -> None:
    """It ends up in one of them, wherever it was meanwhile, and every other place has nothing of it."""
    places = [dm("7", thread_id=str(number)) for number in range(8)]
    session = (await world.exchange("hello")).turn.session

    async def use(place: Source, number: int) -> None:
        for _ in range(3):
            try:
                await carry(world, session, place)
                await world.say("here", place, id_=f"{number} {_}")
                begun = await world.begin(place)
                if begun:
                    await world.store.transact(turns.settle(begun.turn, [answer()], [], world.now))
                await back(world, place)
            except SessionBusy:
                continue

    await asyncio.gather(*(use(place, number) for number, place in enumerate(places)))
    assert await world.store.read(violations()) == []
    assert await world.store.read(turns_in_strange_places()) == []


@transaction
def turns_in_strange_places() -> Statements[list[Row]]:
    """Two turns that wrote to one session at the same time leave their words mixed."""
    rows = yield "SELECT id / 16777216, turn_no FROM entries ORDER BY id", ()
    seen: dict[tuple[int, int], None] = {}
    mixed: list[Row] = []
    last: tuple[int, int] | None = None
    for row in rows:
        here = (row[0], row[1])
        if here != last and here in seen:
            mixed.append(row)
        seen[here], last = None, here
    return mixed


async def test_the_way_back_is_the_same_when_the_clock_was_set_back(world: World) -> None:
    session = (await world.exchange("one")).turn.session
    for said in ("two", "three"):
        await world.exchange(said)
    for _ in range(2):
        await world.store.transact(transcript.undo(key_of(HOME), 1, world.now, principal=ME))
        world.later(hours=-1)
    assert await world.texts(session) == ["one", "yes"]
    await back(world)
    assert await world.texts(session) == ["one", "yes", "two", "yes"]
