"""The verdict finds what it is there to find."""

import asyncio
from pathlib import Path

from palaver.db.transaction import Statements, transaction
from palaver.engine.texts import MAY_BE_DUPLICATE
from palaver.model.turn import Outbound
from palaver.store.records import REPLIES, SEQS
from palaver.testkit.chat import Chat
from tests.crash.background import Background
from tests.crash.verdict import LEAVING_MS, Arrived, Verdict, judge, line, quiet, token
from tests.engine.gateway import Bench, running


async def talk(here: Bench) -> list[Chat]:
    """Two people say two things each and are answered."""
    people = [here.world.person(name) for name in ("alice", "bob")]
    chats = [here.world.dm(person) for person in people]
    for number in range(2):
        for person, chat in zip(people, chats, strict=True):
            await chat.say(person, token(chat, number))
    for chat in chats:
        await chat.hears(token(chat, 1))
    while not await here.store.read(quiet()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return chats


def found(verdict: Verdict) -> dict[str, list[str]]:
    kinds = ("lost", "duplicate_turns", "duplicate_sends", "out_of_order", "leaked")
    return {kind: list(getattr(verdict, kind)) for kind in kinds if getattr(verdict, kind)}


async def test_all_is_well(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        verdict = await judge(await talk(here), here.store)
    assert verdict.complaints == []
    assert line(verdict, verdict) == (
        "kills=0 messages=8 lost=0 duplicate_turns=0 duplicate_sends=0 unclear=0 out_of_order=0 leaked=0"
        " marked=0 marked_falsely=0 killed_leaving=0 never_requested=0 computed_again=0"
    )


async def test_what_was_not_heard_or_not_shown_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        one, other = await talk(here)
        other.messages.remove(other.shown[0])
    await one.say(one.people[0], token(one, 7))
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        verdict = await judge([one, other], here.store)
    assert found(verdict) == {"lost": [token(one, 7), token(other, 0)]}
    assert "inbox []" in verdict.complaints[0]


async def test_only_the_end_of_a_connection_that_died_is_not_our_loss(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        one, other = await talk(here)
    stored = [message.id for message in one.messages if message.key is None]
    for number in range(7, 12):
        await one.say(one.people[0], token(one, number))
    seven, eight, nine, ten, eleven = [message.id for message in one.messages if message.key is None][2:]
    connections = [[seven, stored[0], eight, nine], [stored[1], nine], [ten, nine], [eleven]]
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        verdict = await judge([one, other], here.store, connections)
    # Seven came before one that was stored, and the last connection is still open.
    assert found(verdict) == {"lost": [token(one, 7), token(one, 11)]}
    assert verdict.cut_off == [[eight, nine], [nine], [ten, nine]]


def _to(chat: Chat, text: str) -> Outbound:
    return Outbound(platform="fake", chat_id=chat.id, text=text)


async def test_an_answer_shown_again_without_the_mark_is_one_too_many(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        one, other = await talk(here)
        for chat, words in ((one, ""), (other, f"\n{MAY_BE_DUPLICATE}")):
            again = chat.shown[0]
            chat.show("bot", _to(chat, again.text + words), key=str(again.key))
        verdict = await judge([one, other], here.store)
    assert found(verdict) == {"duplicate_sends": [token(one, 0), str(one.shown[0].key)]}


async def test_an_answer_in_another_chat_has_leaked(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        one, other = await talk(here)
        other.show("bot", _to(other, token(one, 0)), key="9")
        verdict = await judge([one, other], here.store)
    assert found(verdict) == {"leaked": [token(one, 0)]}


async def test_an_answer_before_the_one_before_it_is_out_of_order(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        one, other = await talk(here)
        one.messages.sort(key=lambda message: message.text, reverse=True)
        verdict = await judge([one, other], here.store)
    assert found(verdict) == {"out_of_order": [token(one, 1)]}


@transaction
def repeat_entries() -> Statements[None]:
    columns = "role, turn_no, hidden_by, observed, body"
    yield f"INSERT INTO entries (id, {columns}) SELECT id + 1000, {columns} FROM entries", ()  # noqa: S608


async def test_a_message_that_stands_twice_in_a_transcript_had_two_turns(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        chats = await talk(here)
        await here.store.transact(repeat_entries())
        verdict = await judge(chats, here.store)
    assert set(found(verdict)) == {"duplicate_turns"}
    assert verdict.broken


@transaction
def copy_entries(session: int, to: int) -> Statements[None]:
    columns = "role, hidden_by, observed, body"
    copied = f"SELECT ? + id % ?, {columns} FROM entries WHERE id / ? = ?"  # noqa: S608
    yield f"INSERT INTO entries (id, {columns}) {copied}", (to * SEQS + 1000, SEQS, SEQS, session)


async def test_what_stands_in_two_transcripts_was_not_written_twice(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        chats = await talk(here)
        ((one,), (other,)) = await here.rows("SELECT no FROM sessions ORDER BY no")
        for to, is_broken in ((other, False), (one, True)):
            await here.store.transact(copy_entries(one, to))
            verdict = await judge(chats, here.store)
            assert any("written twice" in words for words in verdict.broken) == is_broken


async def test_background_work_that_is_not_there_is_lost_and_an_answer_too_many_is_doubled(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        work = Background(world=here.world, folder=tmp_path)
        await work.order()
        await work.order()
        (chat,) = work.jobs.values()
        await chat.hears("You said: tell j2")
        await here.settled()
        (unknown,) = work.processes.values()
        await unknown.hears("no tool called terminal")
        assert await work.judge(here.store) == []
        chat.show("bot", _to(chat, "You said: tell j2"), key="9")
        unknown.show("bot", _to(unknown, "terminal: Started p1"), key="10")
        lost, doubled = await work.judge(here.store)
        assert "process w1.: []" in lost
        assert "job tell j2: doubled" in doubled


async def test_a_mark_is_false_if_no_request_or_draft_came_before_it(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        one, other = await talk(here)
        keys = [str(chat.shown[0].key) for chat in (one, other)]
        drafted = f"palaver:{7 * REPLIES}:1"
        said = [(keys[0], False), (keys[0], True), (keys[1], True), ("draft:7-0:1", False), (drafted, True)]
        requests = [Arrived(key, is_marked, at) for at, (key, is_marked) in enumerate(said)]
        one.show("bot", _to(one, f"again\n{MAY_BE_DUPLICATE}"), key=keys[0])
        verdict = await judge([one, other], here.store, requests=requests)
        assert (verdict.marked, list(verdict.marked_falsely), verdict.killed_leaving) == (1, [keys[1]], {})
        number = int(keys[1].split(":")[1])
        for first, is_known, lived, is_false in (
            (f"begin_send {number}", True, LEAVING_MS / 2, False),
            (f"begin_send {number}", True, LEAVING_MS * 2, True),
            (f"begin_send {number}", False, LEAVING_MS * 2, False),  # It was killed in the commit.
            (f"begin_draft {number // REPLIES}", True, LEAVING_MS / 2, False),
        ):
            notes = [f"{first} w1 1.0", f"begin_send {number} w2 1.9", f"begin_send {number} w3 3.0"]
            notes += [f"committed_{first} w1 1.0"] if is_known else []
            killed = {"w1": 1.0 + lived / 1000}
            verdict = await judge([one, other], here.store, requests=requests, notes=notes, killed=killed)
            assert (keys[1] in verdict.marked_falsely, keys[1] in verdict.killed_leaving) == (is_false, not is_false)
        # What made it unclear was no kill.
        verdict = await judge([one, other], here.store, requests=requests, notes=notes)
        assert list(verdict.marked_falsely) == [keys[1]]


@transaction
def leave_unclear() -> Statements[None]:
    yield "UPDATE outbox SET state = 'unclear' WHERE id = ?", (REPLIES,)


async def test_what_is_left_to_a_person_has_left_us_and_is_told(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        chats = await talk(here)
        await here.store.transact(leave_unclear())
        key = next(str(each.key) for chat in chats for each in chat.shown if f":{REPLIES}:" in str(each.key))
        for requests, never in (([], [f"out:{REPLIES}"]), ([Arrived(key, is_marked=False)], [])):
            verdict = await judge(chats, here.store, requests=requests, told=True)
            assert (verdict.never_requested, verdict.untold) == (never, [f"out:{REPLIES}"])
            assert len(verdict.complaints) >= 1 + len(never)


async def test_a_turn_that_is_asked_for_after_its_agent_had_ended_is_computed_again(tmp_path: Path) -> None:
    said = ("asked 1 w1", "asked 2 w1", "ended 1 w1", "asked 2 w2", "ended 2 w2", "asked 1 w2", "asked 1 w3")
    notes = [f"{words} {number}" for number, words in enumerate(said)]
    async with running(tmp_path / "p.db", acknowledges=False) as here:
        verdict = await judge(await talk(here), here.store, notes=notes, killed={"w1": 2.5})
    assert verdict.computed_again == {"1": 500.0}
