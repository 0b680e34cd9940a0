"""One open session per key, resets, titles, moves and the way back."""

import asyncio
from contextlib import nullcontext
from dataclasses import replace

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.compaction import plan_compaction
from palaver.model.errors import BadArgument, NotFound, NothingToCompact, SessionBusy
from palaver.model.feedback import Rating
from palaver.model.key import GroupScope, Scope
from palaver.model.prompt import Naming
from palaver.model.session import EndReason, ModelOverride, Principal
from palaver.model.turn import Cause, TurnState, outbound_to
from palaver.model.view import view
from palaver.platforms.plugins import PLATFORMS
from palaver.store.conversations import (
    attach,
    branches,
    feedback,
    history,
    sessions,
    titles,
    transcript,
    voice_settings,
)
from palaver.store.queue import turns
from palaver.store.results import Opening, OperationKind
from palaver.store.store import Store
from tests.store.opened import open_session
from tests.store.world import IDLE_HOUR, LEASE, NEVER, NOON, OPERATOR, World, answer, dm, group, key_of

ALICE, BOB = dm("7"), dm("8")
NAMING = Naming(platform=PLATFORMS[ALICE.platform])


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def snapshot(world: World, session: str) -> bytes:
    return repr(view(await world.store.read(transcript.load_visible(session, OPERATOR)), NAMING)).encode()


@transaction
def damage_settings() -> Statements[None]:
    yield "UPDATE routes SET settings = 'no JSON'", ()


async def test_settings_that_cannot_be_read_count_as_none(world: World) -> None:
    await world.exchange("hi", source=ALICE)
    await world.store.transact(damage_settings())
    assert not await world.store.read(voice_settings.is_spoken(key_of(ALICE)))
    await world.store.transact(voice_settings.set_spoken(key_of(ALICE), is_on=True))
    assert await world.store.read(voice_settings.is_spoken(key_of(ALICE)))


@transaction
def leave(identity: str) -> Statements[None]:
    yield "UPDATE participants SET left_at = 1 WHERE identity = ?", (identity,)


async def test_somebody_who_left_and_speaks_again_takes_part_again(world: World) -> None:
    session = (await world.exchange("one", source=ALICE)).turn.session
    await world.store.transact(leave("telegram:7"))
    with pytest.raises(NotFound):
        await world.store.read(sessions.get_visible(session, Principal.speaking(ALICE)))
    assert (await world.exchange("two", source=ALICE)).turn.session == session
    assert await world.store.read(sessions.get_visible(session, Principal.speaking(ALICE)))


async def test_nobody_is_led_to_what_ended_in_another_conversation(world: World) -> None:
    begun = await world.exchange("theirs", source=BOB)
    await world.store.transact(sessions.end(begun.turn.session_number, EndReason.IDLE, world.now))
    plan = await world.store.read(sessions.plan_opening(key_of(ALICE), ALICE, world.now, NEVER.reset_rule(ALICE)))
    assert (plan.opening, plan.session) == (Opening.CREATED, None)


async def test_somebody_is_alone_only_where_no_other_takes_part_or_is_attached(world: World) -> None:
    place = replace(group("7"), thread_id="5")
    for source, is_alone in ((place, True), (replace(place, user_id="8"), False), (place, False)):
        await world.exchange("hi", source=source)
        await world.say("and?", source)
        begun = await world.begin(source)
        assert begun
        assert begun.opened.is_alone is is_alone
        await world.store.transact(turns.settle(begun.turn, [answer()], [], world.now))
    await world.store.transact(leave("telegram:8"))
    await world.say("and now?", place)
    begun = await world.begin(place)
    assert begun
    assert begun.opened.is_alone
    await world.store.transact(turns.settle(begun.turn, [answer()], [], world.now))
    session = await world.store.read(sessions.get_visible(begun.turn.session, OPERATOR))
    farewell = outbound_to(BOB, "parted")
    await world.store.transact(attach.attach(key_of(BOB), session, world.now, by="x", farewell=farewell))
    await world.say("and with an attached chat?", place)
    begun = await world.begin(place)
    assert begun
    assert not begun.opened.is_alone


async def test_ids_sort_by_time(world: World) -> None:
    made: list[str] = []
    for user in range(5):
        world.later(seconds=1)
        made.append((await world.exchange("hi", source=dm(str(user)))).turn.session)
    assert made == sorted(made)
    assert len(set(made)) == 5


async def test_a_session_is_reused_and_reset_when_due(world: World) -> None:
    first = await world.exchange("one", rules=IDLE_HOUR)
    world.later(minutes=59)
    second = await world.exchange("two", rules=IDLE_HOUR)
    assert (first.opened.opening, second.opened.opening) == (Opening.CREATED, Opening.REUSED)
    world.later(minutes=60)
    third = await world.exchange("three", rules=IDLE_HOUR)
    assert (third.opened.opening, third.opened.reason) == (Opening.RESET, EndReason.IDLE)
    assert third.opened.before == first.turn.session
    ended = await world.store.read(sessions.get_visible(first.turn.session, OPERATOR))
    assert ended.end_reason is EndReason.IDLE
    assert await world.texts(third.turn.session) == ["three", "yes"]


async def test_only_people_extend_idle_time(world: World) -> None:
    first = await world.exchange("one", rules=IDLE_HOUR)
    world.later(minutes=50)
    await world.say("cron says", cause=Cause.SCHEDULE)
    begun = await world.begin(rules=IDLE_HOUR)
    assert begun
    assert begun.opened.session.id == first.turn.session
    await world.store.transact(turns.settle(begun.turn, [], [], world.now))
    world.later(minutes=20)
    third = await world.exchange("back", rules=IDLE_HOUR)
    assert third.opened.opening is Opening.RESET


async def test_reads_change_nothing(world: World) -> None:
    begun = await world.exchange("one")
    before = await world.store.read(sessions.get_visible(begun.turn.session, OPERATOR))
    for _ in range(3):
        await world.store.read(transcript.load_visible(begun.turn.session, OPERATOR))
        await world.store.read(sessions.find(begun.turn.session[:8], OPERATOR))
    assert await world.store.read(sessions.get_visible(begun.turn.session, OPERATOR)) == before


async def test_reset_and_back(world: World) -> None:
    begun = await world.exchange("before", "answer")
    before = await snapshot(world, begun.turn.session)
    key = key_of(ALICE)
    fresh = await world.store.transact(sessions.reset(key, ALICE, world.now, by="alice", title="Fresh"))
    assert fresh.title == "Fresh"
    assert await world.texts(fresh.id) == []
    undone = await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert undone
    assert (undone.kind, undone.session) == (OperationKind.RESET, begun.turn.session)
    current = await world.store.read(sessions.open_by_key(key))
    assert current
    assert current.id == begun.turn.session
    assert await snapshot(world, current.id) == before
    assert await world.store.transact(history.back(key, world.now, principal=OPERATOR)) is None


async def test_undo_clamps_says_what_it_took_and_comes_back(world: World) -> None:
    begun = await world.exchange("one", "answer one")
    await world.exchange("two", "answer two")
    key, session = key_of(ALICE), begun.turn.session
    before = await snapshot(world, session)
    undone = await world.store.transact(transcript.undo(key, 1, world.now, principal=OPERATOR))
    assert undone
    assert [entry.text for entry in undone.entries] == ["two", "answer two"]
    assert await world.texts(session) == ["one", "answer one"]
    audit = await world.store.read(transcript.load_all(session, OPERATOR))
    assert [bool(entry.hidden_by) for entry in audit] == [False, False, True, True]
    await world.store.transact(history.redo(key, world.now, principal=OPERATOR))
    assert await snapshot(world, session) == before
    undone = await world.store.transact(transcript.undo(key, 99, world.now, principal=OPERATOR))
    assert undone
    assert len(undone.entries) == 4
    assert await world.texts(session) == []
    assert await world.store.transact(transcript.undo(key, 1, world.now, principal=OPERATOR)) is None
    await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert await snapshot(world, session) == before


async def test_two_undos_come_back_one_by_one(world: World) -> None:
    for text in ("one", "two"):
        await world.exchange(text)
    begun = await world.exchange("three")
    key, session = key_of(ALICE), begun.turn.session
    await world.store.transact(transcript.undo(key, 1, world.now, principal=OPERATOR))
    await world.store.transact(transcript.undo(key, 1, world.now, principal=OPERATOR))
    assert await world.texts(session) == ["one", "yes"]
    await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert await world.texts(session) == ["one", "yes", "two", "yes"]
    await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert await world.texts(session) == ["one", "yes", "two", "yes", "three", "yes"]


async def test_compaction_and_back(world: World) -> None:
    for number in range(4):
        await world.exchange(f"question {number} " + "word " * 50, "answer " + "word " * 50)
    begun = await world.exchange("question 4 " + "word " * 50, "answer " + "word " * 50)
    key, session = key_of(ALICE), begun.turn.session
    before = await snapshot(world, session)
    plan = plan_compaction(await world.store.read(transcript.load_visible(session, OPERATOR)), keep_exchanges=2)
    await world.store.transact(transcript.compact(key, plan, "they talked", world.now, by="agent"))
    shown = view(await world.store.read(transcript.load_visible(session, OPERATOR)), NAMING)
    assert "they talked" in shown[0].text
    assert "question 0" not in repr(shown)
    assert "question 4" in repr(shown)
    with pytest.raises(NothingToCompact, match="changed"):
        await world.store.transact(transcript.compact(key, plan, "again", world.now, by="agent"))
    undone = await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert undone
    assert undone.kind is OperationKind.COMPACTION
    assert await snapshot(world, session) == before


async def test_a_compaction_without_gain_leaves_everything(world: World) -> None:
    for number in range(4):
        await world.exchange(f"q{number}", "a")
    begun = await world.exchange("q4", "a")
    key, session = key_of(ALICE), begun.turn.session
    before = await snapshot(world, session)
    plan = plan_compaction(await world.store.read(transcript.load_visible(session, OPERATOR)))
    with pytest.raises(NothingToCompact):
        await world.store.transact(transcript.compact(key, plan, "a very long summary " * 50, world.now, by="agent"))
    assert await snapshot(world, session) == before


async def test_switch_to_an_older_session_and_back(world: World) -> None:
    first = await world.exchange("first topic")
    key = key_of(ALICE)
    second = await world.store.transact(sessions.reset(key, ALICE, world.now, by="alice"))
    await world.exchange("second topic")
    me = Principal.speaking(ALICE)
    resumed = await world.store.transact(sessions.switch(key, ALICE, first.turn.session, me, world.now, by="alice"))
    assert resumed.id == first.turn.session
    assert resumed.ended is None
    left = await world.store.read(sessions.get_visible(second.id, OPERATOR))
    assert left.end_reason is EndReason.SWITCHED
    again = await world.store.transact(sessions.switch(key, ALICE, first.turn.session, me, world.now, by="alice"))
    assert again.id == resumed.id
    undone = await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert undone
    assert undone.session == second.id
    assert await world.texts(second.id) == ["second topic", "yes"]


async def test_resume_from_another_platform_moves_the_session_and_back_returns_it(world: World) -> None:
    begun = await world.exchange("from telegram", source=ALICE)
    web = dm("w7", platform="web")
    both = Principal(identities=frozenset({"telegram:7", "web:w7"}))
    moved = await world.store.transact(sessions.switch(key_of(web), web, begun.turn.session, both, world.now, by="a"))
    assert moved.key == key_of(web)
    on_web = await world.exchange("from the web", source=web)
    assert on_web.turn.session == begun.turn.session
    await world.store.transact(history.back(key_of(web), world.now, principal=OPERATOR))
    home = await world.store.read(sessions.open_by_key(key_of(ALICE)))
    assert home
    assert home.id == begun.turn.session
    assert await world.store.read(sessions.open_by_key(key_of(web))) is None
    assert (await world.exchange("fresh on the web", source=web)).turn.session != begun.turn.session


async def test_strangers_cannot_find_read_rename_or_resume(world: World) -> None:
    secret = await world.exchange("the canary", source=ALICE)
    await world.store.transact(titles.rename(secret.turn.session, "Plans", OPERATOR))
    await world.exchange("hello", source=BOB)
    bob = Principal.speaking(BOB)
    session = secret.turn.session
    for work in (
        sessions.get_visible(session, bob),
        sessions.find(session, bob),
        sessions.find(session[:12], bob),
        sessions.find("Plans", bob),
        titles.rename(session, "Mine", bob),
        sessions.set_override(session, ModelOverride(model="m"), bob),
        sessions.switch(key_of(BOB), BOB, session, bob, world.now, by="bob"),
        transcript.load_visible(session, bob),
        transcript.load_all(session, bob),
        branches.branch(key_of(BOB), BOB, bob, world.now, by="bob", from_session=session),
    ):
        with pytest.raises(NotFound) as refused:
            await world.store.transact(work)
        assert "canary" not in str(refused.value)
    current = await world.store.read(sessions.open_by_key(key_of(BOB)))
    assert current
    assert await world.texts(current.id) == ["hello", "yes"]


async def test_nobody_sees_nothing(world: World) -> None:
    begun = await world.exchange("hello")
    with pytest.raises(NotFound):
        await world.store.read(sessions.get_visible(begun.turn.session, Principal()))


async def test_those_who_speak_in_a_shared_conversation_can_read_it(world: World) -> None:
    shared = Scope(group=GroupScope.SHARED)
    ann, ben = group("1"), group("2")
    key = key_of(ann, shared)
    opened = await world.store.transact(open_session(key, ann, NOON, NEVER.reset_rule(ann)))
    with pytest.raises(NotFound):
        await world.store.read(sessions.get_visible(opened.session.id, Principal.speaking(ben)))
    await world.store.transact(open_session(key_of(ben, shared), ben, NOON, NEVER.reset_rule(ben)))
    await world.store.read(sessions.get_visible(opened.session.id, Principal.speaking(ben)))


async def test_titles_are_cleaned_numbered_and_found(world: World) -> None:
    key = key_of(ALICE)
    me = Principal.speaking(ALICE)
    ids: list[str] = []
    for wanted, got in (
        ("Plan\u202e\n", "Plan"),
        ("Plan", "Plan #2"),
        ("Plan #draft", "Plan #draft"),
        ("Plan", "Plan #3"),
    ):
        made = await world.store.transact(sessions.reset(key, ALICE, world.now, by="alice"))
        named = await world.store.transact(titles.rename(made.id, wanted, me))
        assert named.title == got
        ids.append(made.id)
    assert (await world.store.read(sessions.find("Plan", me))).id == ids[3]
    assert (await world.store.read(sessions.find("Plan #2", me))).id == ids[1]
    assert (await world.store.read(sessions.find("Plan #draft", me))).id == ids[2]
    with pytest.raises(NotFound):
        await world.store.read(sessions.find("Plan #9", me))
    other = await world.exchange("hi", source=BOB)
    assert (await world.store.transact(titles.rename(other.turn.session, "Plan", OPERATOR))).title == "Plan"
    with pytest.raises(BadArgument):
        await world.store.transact(titles.rename(ids[0], "\u200b", me))


async def test_an_answer_is_rated_in_its_own_session(world: World) -> None:
    mine, other = [(await world.exchange("hi", source=source)).turn for source in (ALICE, BOB)]
    me = Principal.speaking(ALICE)
    for turn, is_mine in ((mine, True), (other, False)):
        rated = feedback.rate(mine.session, turn.number, "telegram:7", Rating.UP, world.now, me)
        with nullcontext() if is_mine else pytest.raises(NotFound):
            await world.store.transact(rated)
    assert [each.turn for each in await world.store.read(feedback.list_feedback([1, 2]))] == [mine.number]


async def test_a_title_leads_to_no_version_that_somebody_else_made(world: World) -> None:
    ann, ben = (replace(group(user), thread_id="5") for user in ("7", "8"))
    first = (await world.exchange("one", source=ann)).turn.session
    await world.store.transact(titles.rename(first, "Plan", OPERATOR))
    branch = branches.branch(key_of(ben), ben, OPERATOR, world.now, by="ben", at_seq=0, is_version=True)
    other = (await world.store.transact(branch)).id
    assert other != first
    assert (await world.store.read(sessions.find("Plan", Principal.speaking(ann)))).id == first
    world.later(hours=1)
    await world.store.transact(sessions.switch(key_of(ann), ann, first, OPERATOR, world.now, by="ann"))
    await world.store.transact(sessions.reset(key_of(ann), ann, world.now, by="ann"))
    assert (await world.store.read(sessions.find("Plan", OPERATOR))).id == first, "the version that was used last"


async def test_the_same_title_at_the_same_moment(world: World) -> None:
    made = [await world.store.transact(sessions.reset(key_of(ALICE), ALICE, world.now, by="a")) for _ in range(10)]
    named = await asyncio.gather(*(world.store.transact(titles.rename(each.id, "Same", OPERATOR)) for each in made))
    assert len({each.title for each in named}) == 10


async def test_a_prefix_must_fit_one_session(world: World) -> None:
    one = await world.exchange("one", source=ALICE)
    two = await world.exchange("two", source=BOB)
    shared = one.turn.session[:6]
    assert two.turn.session.startswith(shared)
    with pytest.raises(BadArgument, match="longer prefix"):
        await world.store.read(sessions.find(shared, OPERATOR))
    assert (await world.store.read(sessions.find(shared, Principal.speaking(BOB)))).id == two.turn.session


async def test_branches_go_on_independently(world: World) -> None:
    begun = await world.exchange("one", "answer one")
    await world.exchange("two", "answer two")
    key, me = key_of(ALICE), Principal.speaking(ALICE)
    child = await world.store.transact(
        branches.branch(key, ALICE, me, world.now, by="alice", title="Other way", at_seq=2)
    )
    assert child.parent == begun.turn.session
    assert await world.texts(child.id) == ["one", "answer one"]
    await world.exchange("three", "answer three")
    assert await world.texts(child.id) == ["one", "answer one", "three", "answer three"]
    assert await world.texts(begun.turn.session) == ["one", "answer one", "two", "answer two"]
    await world.store.transact(transcript.undo(key, 1, world.now, principal=OPERATOR))
    undone = await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert undone
    assert undone.kind is OperationKind.UNDO
    undone = await world.store.transact(history.back(key, world.now, principal=OPERATOR))
    assert undone
    assert (undone.kind, undone.session) == (OperationKind.BRANCH, begun.turn.session)


async def test_a_model_override_survives_without_credentials(world: World) -> None:
    begun = await world.exchange("hi")
    override = ModelOverride(model="m", provider="p", base_url="https://models.example.org/v1")
    await world.store.transact(sessions.set_override(begun.turn.session, override, OPERATOR))
    assert (await world.store.read(sessions.get_visible(begun.turn.session, OPERATOR))).override == override
    await world.store.transact(sessions.set_override(begun.turn.session, None, OPERATOR))
    assert (await world.store.read(sessions.get_visible(begun.turn.session, OPERATOR))).override is None
    with pytest.raises(BadArgument, match="credentials"):
        ModelOverride(model="m", base_url="https://user:" + "pass@models.example.org")


async def test_a_session_ended_by_its_turn_limit_starts_fresh_and_a_handed_off_one_reopens(world: World) -> None:
    begun = await world.exchange("hi")
    number = begun.opened.session.number
    await world.store.transact(sessions.end(number, EndReason.SWITCHED, world.now))
    assert (await world.exchange("back")).opened.opening is Opening.REOPENED
    await world.store.transact(sessions.end(number, EndReason.SUSPENDED, world.now))
    assert (await world.exchange("fresh")).opened.opening is Opening.RESET


async def test_an_append_goes_to_the_session_of_the_turn(world: World) -> None:
    await world.say("question")
    begun = await world.begin()
    assert begun
    await world.store.transact(sessions.reset(key_of(ALICE), ALICE, world.now, by="alice"))
    await world.store.transact(turns.append_to_turn(begun.turn, [answer("still here")]))
    assert await world.texts(begun.turn.session) == ["question", "still here"]


async def test_a_session_does_not_change_hands_in_the_middle_of_a_turn(world: World) -> None:
    await world.say("question")
    begun = await world.begin()
    assert begun
    web = dm("w7", platform="web")
    both = Principal(identities=frozenset({"telegram:7", "web:w7"}))
    move = sessions.switch(key_of(web), web, begun.turn.session, both, world.now, by="alice")
    turn = begun.turn
    for state in (TurnState.PARKED, TurnState.INTERRUPTED, None):
        with pytest.raises(SessionBusy, match="in the middle of a turn"):
            await world.store.transact(move)
        if state:
            await world.store.transact(turns.halt(turn, state, world.now, asked="c"))
            with pytest.raises(SessionBusy):
                await world.store.transact(move)
            turn = await world.store.transact(turns.resume(turn.number, "w2", world.now, LEASE)) or turn
    await world.store.transact(turns.settle(turn, [answer()], [], world.now))
    await world.store.transact(move)
    await world.say("on the web", web)
    assert await world.begin(web)
    with pytest.raises(SessionBusy):
        await world.store.transact(history.back(key_of(web), world.now, principal=OPERATOR))
