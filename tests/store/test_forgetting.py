"""A person is forgotten: everywhere, in steps that can be taken again, and what others said stays."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from palaver.db.transaction import Database, Row, Statements, Transaction, Value, transaction
from palaver.model.access import Effect, Grant
from palaver.model.attachment import Attachment
from palaver.model.compaction import plan_compaction
from palaver.model.errors import BadArgument, NotFound
from palaver.model.label import Label
from palaver.model.revision import RevisionPolicy
from palaver.model.session import Principal
from palaver.model.source import GROUP, Labels, Source
from palaver.model.split import ReplyRoutes
from palaver.model.turn import Inbound, Outbound, Revision, TurnState
from palaver.store import accounts
from palaver.store.conversations import branches, chat_migration, handoff, history, sessions, titles, transcript
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.opening import open_store, sqlite_path
from palaver.store.people import grants, usage
from palaver.store.people.grants import GrantTable as Granted
from palaver.store.people.usage import GroupBy
from palaver.store.privacy import erasure
from palaver.store.privacy.digests import load_digests
from palaver.store.privacy.eraser import ErasurePass
from palaver.store.privacy.erasure import Erasures
from palaver.store.privacy.receipt import Receipt, Verification, delete_digests, get_receipt, read_receipt, verify
from palaver.store.queue import commands, inbox, outbox, turns
from palaver.store.queue.cause import OF_JOB, OF_MESSAGE, OF_SESSION, OF_TURN, CauseKind, SendCause
from palaver.store.queue.revisions import accept_revision
from palaver.store.records import SEQS
from palaver.store.status.invariants import violations
from palaver.store.status.trace import find_traces
from palaver.store.store import Store
from tests.store.conftest import DRIVER
from tests.store.encrypted import read_plain
from tests.store.jobs import add_job, fire_due
from tests.store.process_rows import start_process
from tests.store.world import NOON, OPERATOR, World, answer, cause, dm, key_of

SECRET = "xylographer"  # noqa: S105 - a word that stands nowhere else
"""Said by the person who is forgotten, and to them."""
OTHERS = "marzipan"
ID, NAME = "70071", "Annabel Lee"
ANN, BOB = f"telegram:{ID}", "telegram:8"
NOTHING = Verification()


def room(user: str) -> Source:
    """A thread, which everybody in it shares."""
    return Source(platform="telegram", chat_kind=GROUP, chat_id="-100", thread_id="5", user_id=user)


@transaction
def _rows(sql: str, *values: Value) -> Statements[list[Row]]:
    return (yield sql, values)


async def _everything(url: str) -> bytes:
    """The bytes of a SQLite store; of a PostgreSQL store, every row of every table."""
    path = sqlite_path(url)
    if path is not None:
        return b"".join(read_plain(file) for file in sorted(path.parent.iterdir()))
    connection = await DRIVER.connect(url)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        found = [await connection.fetch(f"SELECT * FROM {table[0]}") for table in tables]  # noqa: S608 - our own
        return "\n".join(json.dumps([_plain(value) for value in row]) for rows in found for row in rows).encode()
    finally:
        await connection.close()


def _plain(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


async def live(store: Store) -> World:
    """Ann alone, Bob alone, both in one room; something refused, something owed, a home, grants."""
    world = World(store)
    await world.exchange(f"my {SECRET} is private", f"I heard {SECRET}", dm(ID))
    await world.exchange(f"bob likes {OTHERS}", f"noted {OTHERS}", dm("8"))
    await world.exchange(f"{SECRET} in the room", f"{SECRET} it is", room(ID))
    await world.exchange(f"{OTHERS} in the room", f"{OTHERS} for bob", room("8"))
    await store.transact(_titled(f"All about {SECRET}"))
    begun = await store.transact(sessions.reset(key_of(room(ID)), room(ID), NOON, by=ANN))
    await store.transact(sessions.join(begun.number, room("8")))
    await store.transact(history.back(key_of(room(ID)), NOON, principal=OPERATOR))
    refused = Inbound(source=room(ID), text=f"{SECRET}!", at=NOON, labels=Labels(user=Label(NAME)))
    await store.transact(inbox.accept(refused, key_of(room(ID)), NOON, refused="a stranger"))
    owed = Outbound(platform="telegram", chat_id=ID, text=f"a word about {SECRET}")
    await store.transact(outbox.enqueue(owed, cause("unclear:1"), NOON))
    await store.transact(accounts.set_home("main", dm(ID), NOON, by=ANN))
    await store.transact(chat_migration.move("telegram", None, "an id from before", ID, NOON))
    fence = await store.transact(accounts.acquire("telegram", None, "w1", NOON, timedelta(hours=1)))
    assert fence
    await store.transact(accounts.save_position("telegram", None, fence, f'bot 7 [{{"inviter":"{ID}"}}]'))
    await store.transact(grants.add(Grant(platform="telegram", user_id=ID), NOON, by=BOB))
    await store.transact(grants.add(Grant(platform="telegram", user_id="8"), NOON, by=ANN))
    await store.transact(store.people.person_of(ANN, NOON, name=NAME))
    await store.transact(store.people.person_of(BOB, NOON, name="Bob"))
    job = await add_job(
        store,
        "every 2h",
        f"tell me about {SECRET}",
        source=dm(ID),
        workdir=f"/srv/{SECRET}",
        script=f"{SECRET}.sh",
    )
    await fire_due(store, job, NOON + timedelta(hours=2))
    await add_job(store, "every 2h", f"greet with {OTHERS}", source=dm("8"), targets=f"telegram:{ID},origin")
    return world


@transaction
def _titled(title: str) -> Statements[None]:
    theirs = "SELECT session_no FROM participants WHERE identity = ?"
    sql = f"UPDATE sessions SET title = ? || no, hidden_title = ? WHERE no IN ({theirs})"  # noqa: S608
    yield sql, (title, title, ANN)


async def forget(store: Store, name: str = ANN, *, keeps_access: bool = False) -> int:
    asked = store.erasures.request(name, NOON, by="operator", keeps_access=keeps_access)
    number = await store.transact(asked)
    outcome = await store.erasures.run(number, NOON)
    assert outcome.done, outcome
    return number


async def _receipt(store: Store, number: int) -> Receipt:
    found = await store.read(get_receipt(number))
    assert found
    return found[0]


async def _texts(store: Store) -> list[str]:
    rows = await store.read(_rows("SELECT id FROM sessions ORDER BY no"))
    return [e.text for row in rows for e in await store.read(transcript.load_visible(row[0], OPERATOR))]


async def test_what_was_undone_comes_back_without_a_title_that_was_forgotten(store: Store) -> None:
    world, mine = World(store), Principal.speaking(room("8"))
    session = (await world.exchange("hi", source=room(ID))).turn.session
    last = (await world.exchange("my parrot", source=room("8"))).turn
    assert last.session == session
    seqs = [entry.seq for entry in await store.read(transcript.load_visible(session, OPERATOR))]
    await store.transact(titles.suggest_title(session, SECRET, made_from=seqs[-1]))
    assert await store.transact(transcript.undo(last.key, 1, NOON, principal=mine))
    await forget(store)
    undone = await store.transact(history.redo(last.key, NOON, principal=mine))
    assert undone
    assert "my parrot" in await _texts(store)


async def test_no_word_and_no_name_is_left_anywhere(store_url: str) -> None:
    async with await open_store(store_url) as store:
        await live(store)
        await store.search.catch_up()
    before = await _everything(store_url)
    assert SECRET.encode() in before
    assert ID.encode() in before
    async with await open_store(store_url) as store:
        number = await forget(store)
        while_open = await _everything(store_url)
        assert await store.read(violations()) == []
        await store.transact(delete_digests(number))
    for left in (while_open, await _everything(store_url)):
        assert SECRET.encode() not in left
        assert ID.encode() not in left
        assert NAME.encode() not in left
        assert OTHERS.encode() in left


async def test_what_was_handed_off_is_forgotten_where_it_went(store_url: str) -> None:
    async with await open_store(store_url) as store:
        await live(store)
        shared = await store.read(sessions.open_by_key(key_of(room(ID))))
        assert shared
        opening = Outbound(platform="telegram", chat_id="-200", text=f"All about {SECRET} goes on here")
        await store.transact(handoff.start(shared, room(ID), dm(ID), opening, NOON, by=ANN))
        (handed,) = await store.read(_rows("SELECT no FROM operations WHERE kind = 'handoff'"))
        number = await forget(store)
        assert await store.read(handoff.endpoints(handed[0])) is None
        assert await store.read(violations()) == []
        await store.transact(delete_digests(number))
    left = await _everything(store_url)
    assert SECRET.encode() not in left
    assert ID.encode() not in left
    assert OTHERS.encode() in left


async def test_what_others_said_and_heard_stays(store: Store) -> None:
    world = await live(store)
    await forget(store)
    assert await _texts(store) == [
        f"bob likes {OTHERS}",
        f"noted {OTHERS}",
        f"{OTHERS} in the room",
        f"{OTHERS} for bob",
    ]
    assert len(await store.search.find(OTHERS, OPERATOR)) == 4
    assert await store.search.find(SECRET, OPERATOR) == []
    begun = await world.exchange("and now?", "now", room("8"))
    assert [e.text for e in await store.read(transcript.load_shown(begun.turn.session_number))][-2:] == [
        "and now?",
        "now",
    ]


async def test_what_a_command_told_others_of_their_words_is_forgotten(store_url: str) -> None:
    async with await open_store(store_url) as store:
        world = await live(store)
        number = await world.say("/search room", dm("8"))
        received = await store.read(inbox.get_message(number or 0, OPERATOR))
        assert received
        found = _found(store, received.number)
        await store.transact(commands.run_command(received, found, ReplyRoutes(), NOON))
        await forget(store)
        assert await store.read(inbox.get_message(received.number, OPERATOR)) is not None
    assert SECRET.encode() not in await _everything(store_url)


async def test_what_they_edited_in_a_room_is_forgotten_with_the_note_about_it(store_url: str) -> None:
    async with await open_store(store_url) as store:
        world = await live(store)
        for user, text in ((ID, SECRET), ("8", OTHERS)):
            begun = await world.exchange(f"more {text}", "yes", room(user))
            source = begun.messages[0].inbound.source
            edit = Inbound(source=source, text=f"even more {text}", at=NOON, revision=Revision(version="1"))
            await store.transact(accept_revision(edit, key_of(source), NOON, RevisionPolicy.NOTE))
        assert sum("edited an earlier message" in text for text in await _texts(store)) == 2
        await forget(store)
        assert [text for text in await _texts(store) if "edited an earlier message" in text]
    left = await _everything(store_url)
    assert SECRET.encode() not in left
    assert f"even more {OTHERS}".encode() in left


async def test_what_others_were_told_because_of_them_is_forgotten_for_every_cause(store: Store) -> None:
    await live(store)
    count, before = sum(map(len, (OF_MESSAGE, OF_TURN, OF_SESSION, OF_JOB))), await store.erasures.preview(ANN)
    for who, word in ((ANN, SECRET), (BOB, OTHERS)):
        for kinds, id_ in (await store.read(_caused_by(who))).items():
            for kind in kinds:
                told = Outbound(platform="telegram", chat_id="900", text=f"{word}, because of {kind} {id_}")
                assert await store.transact(outbox.enqueue(told, SendCause(kind, id_, "told"), NOON))
    assert (await store.erasures.preview(ANN)).sends == before.sends + count
    await forget(store)
    left = str(await store.read(_rows("SELECT body FROM outbox")))
    assert SECRET not in left
    assert left.count(f"{OTHERS}, because of") == count


@transaction
def _caused_by(who: str) -> Statements[dict[frozenset[CauseKind], int | str]]:
    ((message, turn),) = yield "SELECT min(no), max(turn_no) FROM inbox WHERE identity = ?", (who,)
    ((session,),) = yield "SELECT id FROM sessions WHERE owner = ? ORDER BY no LIMIT 1", (who,)
    ((job,),) = yield "SELECT min(no) FROM schedules WHERE owner = ?", (who,)
    return {OF_MESSAGE: message, OF_TURN: turn, OF_SESSION: session, OF_JOB: job}


@transaction
def _found(store: Store, number: int) -> Statements[str]:
    rows = yield (
        "SELECT s.id FROM sessions s JOIN entries e ON e.id / ? = s.no WHERE s.key = ?",
        (SEQS, key_of(room(ID)).text),
    )
    session = yield from sessions.get_visible(rows[0][0], OPERATOR)
    yield from store.mentions.record_mentions(number, [session])
    return f"1. {SECRET} in the room"


async def test_forgotten_is_a_stranger_unless_access_is_kept(store: Store) -> None:
    world = await live(store)
    await store.transact(grants.add(Grant(platform="telegram", user_id=ID, effect=Effect.BLOCK), NOON, by=BOB))
    await forget(store, keeps_access=True)
    kept = (await store.read(grants.load_table(Granted()))).grants.values()
    assert {grant.effect for grant in kept if grant.user_id == ID} == {Effect.ALLOW, Effect.BLOCK}
    await forget(store)
    left = [grant for grant in (await store.read(grants.load_table(Granted()))).grants.values() if grant.user_id == ID]
    assert [grant.effect for grant in left] == [Effect.BLOCK]
    await world.say("hello again", dm(ID))
    begun = await world.begin(dm(ID))
    assert begun
    assert begun.opened.is_first_contact


async def test_a_summary_that_covers_them_goes_and_what_it_hid_of_others_is_shown_again(store: Store) -> None:
    world = World(store)
    for number in range(4):
        await world.exchange(f"{OTHERS} {number}", f"about {OTHERS}", room("8"))
        await world.exchange(f"{SECRET} {number}", f"about {SECRET}", room(ID))
    begun = await world.exchange("the last", "yes", room("8"))
    for text in (f"they spoke of {SECRET}", f"still {SECRET}"):
        entries = await store.read(transcript.load_shown(begun.turn.session_number))
        plan = plan_compaction(entries, keep_exchanges=2)
        await store.transact(transcript.compact(key_of(room("8")), plan, text, NOON, by="agent"))
        begun = await world.exchange("more " * 40, "yes", room("8"))
    await forget(store)
    left = await _texts(store)
    assert not any(SECRET in text for text in left)
    assert [text for text in left if text.startswith(f"{OTHERS} ")] == [f"{OTHERS} {number}" for number in range(4)]
    assert await store.read(violations()) == []


async def test_what_was_branched_from_their_words_is_found(store: Store) -> None:
    world = await live(store)
    key, bob = key_of(room("8")), room("8")
    await store.transact(branches.branch(key, bob, OPERATOR, NOON, by=BOB, title="mine"))
    assert sum(SECRET in text for text in await _texts(store)) > 4
    await forget(store)
    assert not any(SECRET in text for text in await _texts(store))
    assert await world.begin(room("8")) is None


async def test_what_is_left_of_a_branch_that_they_began_is_found(store: Store) -> None:
    """What was said there first stands for what was copied into it, when it is written and when it is taken away."""
    world = await live(store)
    await store.transact(branches.branch(key_of(room(ID)), room(ID), OPERATOR, NOON, by=ANN, title="mine"))
    await world.exchange(f"{SECRET} in the branch", f"{SECRET} there", room(ID))
    await world.exchange(f"{OTHERS} in the branch", f"{OTHERS} there", room("8"))
    await forget(store)
    assert {hit.entry.text for hit in await store.search.find(OTHERS, OPERATOR) if hit.entry} == {
        text for text in await _texts(store) if OTHERS in text
    }
    assert await store.search.find(SECRET, OPERATOR) == []
    assert await store.search.strays() == 0


async def test_a_running_turn_is_not_pulled_away_and_a_halted_one_is_ended(store: Store) -> None:
    world = await live(store)
    await world.say(f"{SECRET}?", dm(ID))
    running = await world.begin(dm(ID))
    assert running
    number = await store.transact(store.erasures.request(ANN, NOON, by="operator"))
    outcome = await store.erasures.run(number, NOON)
    assert not outcome.done
    assert running.turn.session in outcome.busy
    await store.transact(turns.halt(running.turn, TurnState.PARKED, NOON))
    (outcome,) = await store.erasures.resume_all(NOON)
    assert outcome.done
    assert await store.erasures.resume_all(NOON) == []
    assert not any(SECRET in text for text in await _texts(store))


class Breaks(Exception): ...


class Brittle:
    """A database that breaks after so many steps."""

    def __init__(self, database: Database, steps: int) -> None:
        self._database = database
        self._left = steps
        self.read = database.read
        self.listen = database.listen
        self.close = database.close
        self.scrub = database.scrub

    async def transact(self, work: Transaction[object]) -> object:
        if not self._left:
            raise Breaks
        self._left -= 1
        return await self._database.transact(work)


@pytest.mark.drops_transactions
@pytest.mark.parametrize("steps", [2, 7, 12])
async def test_it_is_gone_on_with_after_it_was_cut_off_anywhere(store: Store, steps: int) -> None:
    await live(store)
    number = await store.transact(store.erasures.request(ANN, NOON, by="operator"))
    brittle = Erasures(Brittle(store.database, steps), store.search)  # pyright: ignore[reportArgumentType]
    try:
        await brittle.run(number, NOON)
    except Breaks:
        assert await store.transact(store.erasures.request(ANN, NOON, by="operator")) == number
        assert (await store.erasures.run(number, NOON)).done
    assert not any(SECRET in text for text in await _texts(store))
    receipt = await _receipt(store, number)
    assert receipt.counts["entry"] == 4
    assert receipt.counts["message"] == 4
    assert await store.read(violations()) == []
    assert await verify(store.database, store.search, receipt) == NOTHING


async def test_it_is_done_only_when_nothing_was_found_any_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    await live(store)
    monkeypatch.setattr(erasure, "_MAX_PASSES", 1)
    number = await store.transact(store.erasures.request(ANN, NOON, by="operator"))
    first = await store.erasures.run(number, NOON)
    assert (first.done, first.busy) == (False, ())
    assert first.counts.total() > 0
    assert await store.read(get_receipt(number)) is None
    second = await store.erasures.run(number, NOON)
    assert (second.done, second.counts.total()) == (True, 0)


async def test_what_is_owed_in_a_chat_of_theirs_is_found_in_every_pass(store: Store) -> None:
    """Also when the messages are gone that told whose chat it is."""
    refused = Inbound(source=Source(platform="telegram", chat_id="chat of ann", user_id=ID), text="hello", at=NOON)
    await store.transact(inbox.accept(refused, key_of(refused.source), NOON, refused="a stranger"))
    number = await store.transact(store.erasures.request(ANN, NOON, by="operator"))
    later = outbox.enqueue(Outbound(platform="telegram", chat_id="chat of ann", text=SECRET), cause("late"), NOON)
    late = False

    async def run(one: ErasurePass) -> None:
        nonlocal late
        await one_pass(one)
        if not late:
            late = True
            await store.transact(later)

    one_pass = ErasurePass.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ErasurePass, "run", run)
        assert (await store.erasures.run(number, NOON)).done
    assert await store.read(_rows("SELECT count(*) FROM outbox WHERE chat <> 'forgotten'")) == [(0,)]


async def test_the_receipt_finds_what_was_put_back(store: Store) -> None:
    await live(store)
    entries = await store.read(_rows("SELECT id, role, turn_no, body FROM entries ORDER BY id"))
    messages = await store.read(_rows("SELECT message_id, key, received, body FROM inbox ORDER BY no"))
    number = await forget(store)
    receipt = await _receipt(store, number)
    text = receipt.text(await store.transact(load_digests()))
    assert SECRET not in text
    assert ID not in text
    read = read_receipt(text, await store.transact(load_digests()))
    assert read == receipt
    assert await verify(store.database, store.search, read) == NOTHING
    await store.transact(_put_back(entries[0], messages[0]))
    verdict = await verify(store.database, store.search, read)
    assert not verdict.holds
    assert len(verdict.back) == 2
    assert verdict.named == ()


@transaction
def _put_back(entry: Row, message: Row) -> Statements[None]:
    yield "INSERT INTO entries (id, role, turn_no, body) VALUES (?, ?, ?, ?)", entry
    yield (
        "INSERT INTO inbox (message_id, key, received, body, state) VALUES (?, ?, ?, ?, 'done')",
        ("x", "agent:main:telegram:group:-9", *message[2:]),
    )


async def test_someone_who_comes_back_is_named_again_and_that_is_no_fault(store: Store) -> None:
    world = await live(store)
    receipt = await _receipt(store, await forget(store))
    await world.exchange("hello again", source=dm(ID))
    verdict = await verify(store.database, store.search, receipt)
    assert verdict.holds
    assert "participants.identity" in verdict.named


@pytest.mark.parametrize("change", ['"by": "operator"', '"version": 1', '"seal": "'])
async def test_a_receipt_that_was_changed_is_refused(store: Store, change: str) -> None:
    await live(store)
    receipt, digests = await _receipt(store, await forget(store)), await store.transact(load_digests())
    text = receipt.text(digests)
    for broken in (text.replace(change, change[:-2] + 'x"' if change.endswith('r"') else change + "0"), "", "[]"):
        with pytest.raises(BadArgument):
            read_receipt(broken, digests)


async def test_what_they_used_counts_on_for_nobody(store: Store) -> None:
    await live(store)
    since, until = NOON - timedelta(days=1), NOON + timedelta(days=1)
    before = await store.read(usage.total(since))
    await forget(store)
    assert await store.read(usage.total(since)) == before
    by_person = await store.read(usage.totals_by(GroupBy.PERSON, OPERATOR, since=since, until=until, zone=UTC))
    assert set(by_person) == {"", BOB}


async def test_no_number_is_given_twice(store_url: str) -> None:
    """A log line names a message by its number, and a platform knows a send again by it."""
    hers, owed = Inbound(source=dm(ID), text=SECRET, at=NOON), Outbound(platform="telegram", chat_id=ID, text=SECRET)
    numbers: list[tuple[int, int]] = []
    async with await open_store(store_url) as store:
        for turn in range(3):
            if turn == 1:
                await World(store).exchange(SECRET, SECRET, dm(ID))
            message = await store.transact(inbox.accept(hers, key_of(dm(ID)), NOON, refused="a stranger"))
            send = await store.transact(outbox.enqueue(owed, cause(f"unclear:{turn}"), NOON))
            numbers.append((message or 0, send or 0))
            await store.transact(store.people.person_of(ANN, NOON))
            await store.transact(delete_digests(await forget(store)))
            assert await store.read(violations()) == []
            for name in (f"in:{message}", f"out:{send}"):
                told = repr(await store.read(find_traces(name, OPERATOR)))
                assert ID not in told
        left = await _everything(store_url)
    assert [first[0] < then[0] for first, then in pairwise(numbers)] == [True, True]
    assert [first[1] > then[1] for first, then in pairwise(numbers)] == [True, True]
    assert SECRET.encode() not in left
    assert ID.encode() not in left


async def test_files_that_only_they_had_go_with_the_erasure(store: Store, tmp_path: Path) -> None:
    """Content included; what somebody else has, too, stays."""
    shelf, world = BlobStore(tmp_path / "files"), World(store)
    alone, both, another = [(await shelf.keep(_content(text), 9)).sha256 for text in ("alone", "both", "another")]
    await _sends_files(world, dm(ID), alone, both)
    await _sends_files(world, room(ID), alone)
    await _sends_files(world, dm("8"), both)
    await _sends_files(world, room("8"), another)
    assert (await store.erasures.preview(ANN)).files == 2
    number = await store.transact(store.erasures.request(ANN, NOON, by="operator"))
    assert (await store.erasures.run(number, NOON, blobs=shelf)).done
    assert {name for name in (alone, both, another) if shelf.place(name)} == {both, another}
    receipt = await _receipt(store, number)
    assert receipt.counts["file"] == 1
    assert await verify(store.database, store.search, receipt, blobs=shelf) == NOTHING
    await shelf.keep(_content("alone"), 9)
    back = (await verify(store.database, store.search, receipt, blobs=shelf)).back
    assert back == (f"file {alone[:16]}",)
    await _sends_files(world, dm("8"), alone)
    assert await verify(store.database, store.search, receipt, blobs=shelf) == NOTHING


async def _content(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


async def _sends_files(world: World, source: Source, *names: str) -> None:
    files = tuple(Attachment(Label("x"), "image/png", 5, sha256=name) for name in names)
    inbound = Inbound(source=source, text="look", at=NOON, files=files)
    await world.store.transact(inbox.accept(inbound, key_of(source), NOON))
    begun = await world.begin(source)
    assert begun
    owed = Outbound(platform="telegram", chat_id=source.chat_id or "", text="", file=files[0])
    await world.store.transact(turns.settle(begun.turn, [answer(f"for {source}")], [owed], NOON))


async def test_nobody_of_that_name(store: Store) -> None:
    with pytest.raises(NotFound):
        await store.transact(store.erasures.request("nobody", NOON, by="operator"))
    with pytest.raises(NotFound):
        await store.erasures.preview("nobody")


async def test_the_preview_changes_nothing_and_says_how_much_there_is(store: Store) -> None:
    await live(store)
    await store.transact(_busy_and_noted())
    before = await _texts(store)
    found = await store.erasures.preview(ANN)
    assert found.identities == (ANN,)
    assert (found.own, found.own_entries, found.shared, found.said, found.answers) == (1, 2, 1, 1, 1)
    assert (found.messages, found.sends) == (4, 3)
    assert (found.jobs, found.processes, found.notes) == (1, 1, 1)
    assert await _texts(store) == before


@transaction
def _busy_and_noted() -> Statements[None]:
    ((number,),) = yield "SELECT min(session_no) FROM participants WHERE identity = ?", (ANN,)
    yield from start_process(number)
    for who in (ANN, BOB):
        yield "INSERT INTO memory_notes (profile, identity, text, created) VALUES ('main', ?, 'noted', 0)", (who,)


async def test_other_forms_of_an_id_are_the_same_person(store: Store) -> None:
    world = await live(store)
    await store.transact(_alias())
    await world.exchange(f"{SECRET} by another name", source=room("+49170"))
    await forget(store)
    assert not any(SECRET in text for text in await _texts(store))
    assert await store.read(_rows("SELECT * FROM aliases")) == []


@transaction
def _alias() -> Statements[None]:
    yield "INSERT INTO aliases (platform, alias, canonical) VALUES ('telegram', '+49170', ?)", (ID,)


async def test_a_notice_that_something_cannot_be_delivered_to_them_goes_too(store: Store) -> None:
    """It goes to somebody else and names their chat."""
    await live(store)
    owed = Outbound(platform="telegram", chat_id=ID, text="a word")
    number = await store.transact(outbox.enqueue(owed, cause("unclear:9"), NOON))
    notice = Outbound(platform="telegram", chat_id="8", text=f"Nothing can be delivered to telegram:{ID}.")
    other = Outbound(platform="telegram", chat_id="8", text="Nothing can be delivered to telegram:9.")
    assert await store.transact(outbox.enqueue(notice, cause(f"gone:{number}"), NOON))
    kept = await store.transact(outbox.enqueue(other, cause("gone:-999"), NOON))
    await store.erasures.run(await store.transact(store.erasures.request(ANN, NOON, by="operator")), NOON)
    left = await store.read(_rows("SELECT id FROM outbox WHERE cause_kind = 'gone'"))
    assert left == [(kept,)]
