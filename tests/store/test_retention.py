"""Retention: what is over its age, count or size goes everywhere; what is still needed stays."""

import asyncio
import hashlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from palaver.db.transaction import Statements, Value, transaction
from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.retention import RetentionClass, RetentionLimit, RetentionRules
from palaver.model.transcript import Role
from palaver.model.turn import Delivery, Inbound, Outbound, OutboxState, TurnState
from palaver.store.archive.importer import ImportOutcome, import_sessions
from palaver.store.conversations import attachments, deletion
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.files import check_references
from palaver.store.damage.repair import find_damage
from palaver.store.opening import open_store
from palaver.store.queue import inbox, outbox, turns
from palaver.store.retention import files, observed, settled
from palaver.store.retention.files import GONE, StoredFile, remove_outputs
from palaver.store.retention.retention import Retention
from palaver.store.status import chat_list
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.test_plans import SHORT, plans
from tests.store.world import LEASE, OPERATOR, World, answer, begin_sends, cause, dm, group, key_of

DAYS = timedelta(days=1)
EXAMPLE = Path(__file__).parents[2] / "docs/examples/sessions.jsonl"
NOTHING = RetentionRules(observed=RetentionLimit(), settled=RetentionLimit())
WORD = "xylophone"


def rules(**limits: RetentionLimit) -> RetentionRules:
    return replace(NOTHING, **limits)


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


@transaction
def ask(sql: str, *values: Value) -> Statements[list[tuple[Any, ...]]]:
    return [tuple(row) for row in (yield sql, values)]


async def run(world: World, wanted: RetentionRules, blobs: BlobStore | None = None) -> dict[RetentionClass, int]:
    """Run it; the preview promised just that."""
    retention = Retention(database=world.store.database, blobs=blobs)
    before = await damage(world, blobs)
    promised = {each.kind: each.items for each in await retention.preview(wanted, world.now)}
    gone = {each.kind: each.items for each in await retention.run(wanted, world.now)}
    assert gone == promised
    assert await world.store.read(violations()) == []
    assert await damage(world, blobs) == before
    assert all(each.items == 0 for each in await retention.preview(wanted, world.now))
    return gone


async def damage(world: World, blobs: BlobStore | None) -> list[str]:
    """What the doctor finds: nothing that retention made."""
    return [check.name async for check in find_damage(world.store, blobs) if not check.ok]


async def left(world: World) -> list[str]:
    return [row[0] for row in await world.store.read(ask("SELECT id FROM sessions ORDER BY no"))]


async def deliver(world: World, source: str = "telegram") -> None:
    for delivery in await world.store.transact(begin_sends("w", world.now, accounts=[f"{source}:"])):
        await world.store.transact(outbox.settle_send(delivery, "w", OutboxState.DELIVERED, receipt="r"))


async def talk(world: World, count: int, **source: str) -> list[str]:
    """A conversation a day, each with another person; all are sent."""
    made: list[str] = []
    for number in range(count):
        begun = await world.exchange(f"{WORD} {number}", source=dm(f"{number}", **source))
        made.append(begun.turn.session)
        await deliver(world)
        world.later(days=1)
    return made


# Conversations


async def test_nothing_goes_unless_it_is_limited(world: World) -> None:
    made = await talk(world, 2)
    world.later(days=1000)
    assert RetentionRules().chat == RetentionLimit()
    await run(world, RetentionRules())
    assert await left(world) == made
    assert await world.texts(made[0]) == [f"{WORD} 0", "yes"]


async def test_idle_conversations_go_by_age_count_and_size(world: World) -> None:
    """They are all open: nobody has ended them. What was used within a day stays, over any limit."""
    made = await talk(world, 7)
    bodies = await world.store.read(
        ask("SELECT max(t) FROM (SELECT sum(length(body)) AS t FROM entries GROUP BY turn_no) x")
    )
    each = int(bodies[0][0])
    for limit, kept in (
        (RetentionLimit(age=99 * DAYS, count=9, size=10**9), 7),
        (RetentionLimit(age=6 * DAYS), 6),
        (RetentionLimit(age=5 * DAYS, count=6), 5),
        (RetentionLimit(count=4), 4),
        (RetentionLimit(size=3 * each), 3),
        (RetentionLimit(size=0), 1),
        (RetentionLimit(count=0), 1),
    ):
        await run(world, rules(chat=limit))
        assert await left(world) == made[7 - kept :]


async def test_each_kind_of_conversation_has_its_own_limit(world: World) -> None:
    chat, api, job = [
        (await world.exchange("hello", source=dm("7", platform=name))).turn.session
        for name in ("telegram", "api", "web")
    ]
    await world.store.transact(ask("UPDATE sessions SET schedule_no = 5 WHERE id = ?", job))
    await world.store.transact(ask("UPDATE outbox SET state = 'delivered'"))
    world.later(days=5)
    week = RetentionLimit(age=2 * DAYS)
    for kind, session in ((RetentionClass.API, api), (RetentionClass.CRON, job), (RetentionClass.CHAT, chat)):
        assert await run(world, rules(**{kind.value: week})) == {kind: 1}
        assert session not in await left(world)


async def test_what_is_still_needed_stays(world: World) -> None:
    """An approval that somebody owes, what is not sent, a pinned one, a job that continues, a version."""
    parked = await world.exchange("parked", source=dm("1"))
    unsent = await world.exchange("unsent", source=dm("2"))
    pinned = await world.exchange("pinned", source=dm("3"))
    job = await world.exchange("job", source=dm("4"))
    old, new = await world.exchange("old", source=dm("5")), await world.exchange("new", source=dm("6"))
    sender = await world.exchange("sender", source=dm("7"))
    version = await world.exchange("a version of the pinned one", source=dm("9"))
    await world.store.transact(ask("UPDATE outbox SET state = 'delivered' WHERE id <> ?", unsent.turn.number * 1024))
    elsewhere, by_tool = (
        Outbound(platform="telegram", chat_id="8", text="x"),
        cause(f"tool:{sender.turn.number}:call:0"),
    )
    await world.store.transact(outbox.enqueue(elsewhere, by_tool, world.now))
    await world.say("again", source=dm("1"))
    begun = await world.begin(source=dm("1"))
    assert begun
    await world.store.transact(turns.halt(begun.turn, TurnState.PARKED, world.now))
    await world.store.transact(chat_list.mark(pinned.turn.session, "web:owner", OPERATOR, pinned=True, now=world.now))
    await world.store.transact(
        ask(
            "INSERT INTO schedules (owner, name, rule, prompt, target, origin, created, next_due)"
            " VALUES ('o', 'n', 'daily', 'p', 't', '{}', 1, 2)"
        )
    )
    await world.store.transact(ask("UPDATE sessions SET schedule_no = 1 WHERE id = ?", job.turn.session))
    for root, other in ((old, new), (pinned, version)):
        await world.store.transact(
            ask("UPDATE sessions SET version_root = ? WHERE id = ?", root.turn.session_number, other.turn.session)
        )
    world.later(days=100)
    await world.exchange("newer", source=dm("6"))
    kept = [parked, unsent, pinned, job, old, new, sender, version]
    week = RetentionLimit(age=7 * DAYS)
    assert await run(world, rules(chat=week, cron=week, api=week)) == dict.fromkeys(
        (RetentionClass.CHAT, RetentionClass.CRON, RetentionClass.API), 0
    )
    assert await left(world) == [each.turn.session for each in kept]


# Overheard


async def overhear(world: World, text: str, chat: str = "-100") -> int | None:
    source = replace(group("9", chat), message_id=str(len(text)))
    inbound = Inbound(source=source, text=text, at=world.now, observed=True)
    number = await world.store.transact(inbox.accept(inbound, key_of(source), world.now))
    begun = await world.begin(source=source)
    assert begun
    await world.store.transact(turns.settle(begun.turn, [], [], world.now))
    return number


async def test_overheard_talk_goes_after_ninety_days(world: World) -> None:
    await overhear(world, WORD)
    world.later(days=60)
    begun = await world.exchange("said to the agent", source=group("9"))
    await overhear(world, "later")
    world.later(days=31)
    assert await run(world, rules(observed=RetentionRules().observed)) == {RetentionClass.OBSERVED: 1}
    assert await world.texts(begun.turn.session) == ["said to the agent", "yes", "later"]
    bodies = await world.store.read(ask("SELECT body FROM inbox UNION ALL SELECT body FROM entries"))
    assert not any(WORD.encode() in bytes(body) for (body,) in bodies)
    # It is still known: delivered again, it is not heard twice.
    source = replace(group("9"), message_id=str(len(WORD)))
    again = Inbound(source=source, text=WORD, at=world.now, observed=True)
    assert await world.store.transact(inbox.accept(again, key_of(source), world.now)) is None


async def test_overheard_talk_by_count_and_size_but_not_during_a_turn(world: World) -> None:
    for number in range(4):
        await overhear(world, "word" * (number + 1))
        world.later(days=2)
    await world.say("wait", source=group("9"))
    begun = await world.begin(source=group("9"))
    assert begun
    retention, limit = Retention(database=world.store.database), rules(observed=RetentionLimit(count=2))
    assert [each.items for each in await retention.run(limit, world.now)] == [0]
    await world.store.transact(turns.settle(begun.turn, [], [], world.now))
    assert await run(world, limit) == {RetentionClass.OBSERVED: 2}
    length = (await world.store.read(ask("SELECT max(length(body)) FROM entries WHERE observed = 1")))[0][0]
    assert await run(world, rules(observed=RetentionLimit(size=length))) == {RetentionClass.OBSERVED: 1}
    assert await world.texts(begun.turn.session) == ["word" * 4, "wait"]
    too_small = rules(observed=RetentionLimit(size=length - 1))
    assert await run(world, too_small) == {RetentionClass.OBSERVED: 1}
    assert await world.texts(begun.turn.session) == ["wait"]


async def test_imported_overheard_talk_goes_by_its_own_time(world: World) -> None:
    """Also what belongs to no turn. Imported turns get new numbers, so a number does not tell what is older."""
    world.now = datetime(2026, 7, 22, 12, tzinfo=UTC)
    await overhear(world, "recent")
    lines = EXAMPLE.read_text().splitlines()[:11]  # said in March, in three turns
    for old, new in (('"turn":1,', ""), ('"role":"user"', '"role":"user","observed":true')):
        lines[2:10] = [line.replace(old, new) for line in lines[2:10]]
    archive = [f"{line}\n".encode() for line in lines]
    assert [each.outcome async for each in import_sessions(world.store.database, archive)] == [ImportOutcome.IMPORTED]
    world.later(days=10)
    assert await run(world, RetentionRules()) == {RetentionClass.OBSERVED: 3, RetentionClass.SETTLED: 0}
    left = await world.store.read(ask("SELECT body FROM entries WHERE observed = 1"))
    assert [b"recent" in bytes(body) for (body,) in left] == [True]


# Inbox and outbox


async def fail(world: World) -> Delivery:
    """Nobody knows whether it arrived."""
    (sent,) = await world.store.transact(begin_sends("w", world.now, accounts=["telegram:"]))
    await world.store.transact(outbox.mark_unclear(sent, "w", world.now, safe=False, error="no answer"))
    return sent


async def test_an_unclear_send_keeps_its_content_until_somebody_settled_it(world: World) -> None:
    await world.exchange(WORD, reply=WORD)
    await fail(world)
    sent = await fail(world)  # sent once more, marked
    world.later(days=91)
    limit = rules(settled=RetentionRules().settled)
    retention = Retention(database=world.store.database)
    assert [each.items for each in await retention.run(limit, world.now)] == [1]
    unclear = await world.store.read(ask("SELECT body FROM outbox WHERE state = 'unclear'"))
    assert WORD.encode() in bytes(unclear[0][0])
    assert await world.store.transact(outbox.settle_unclear(sent.number, OutboxState.DELIVERED, world.now))
    assert [each.items for each in await retention.run(limit, world.now)] == [1]
    assert not [row for row in await world.store.read(ask("SELECT body FROM outbox")) if WORD.encode() in bytes(row[0])]


async def test_settled_contents_go_and_nothing_is_answered_twice(world: World) -> None:
    begun = await world.exchange(WORD, reply=WORD)
    await deliver(world)
    notice = Outbound(platform="telegram", chat_id="7", text=WORD)
    await world.store.transact(outbox.enqueue(notice, cause("n1"), world.now))
    await deliver(world)
    world.later(days=80)
    await world.exchange("recent", reply="recent")
    world.later(days=11)
    assert await run(world, rules(settled=RetentionRules().settled)) == {RetentionClass.SETTLED: 3}
    rows = await world.store.read(ask("SELECT body FROM inbox UNION ALL SELECT body FROM outbox"))
    bodies = [bytes(row[0]) for row in rows]
    assert not any(WORD.encode() in body for body in bodies)
    assert sum(b"recent" in body for body in bodies) == 2
    assert await world.texts(begun.turn.session) == [WORD, WORD, "recent", "recent"]
    assert await world.say(WORD, id_="m1") is None
    assert await world.store.transact(outbox.enqueue(notice, cause("n1"), world.now)) is None


async def test_what_is_settled_late_goes_late(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that waits for its approval keeps nothing else, and is found again after it."""
    monkeypatch.setattr(settled, "_PAGE", 2)
    await world.say(WORD, source=dm("8"))
    begun = await world.begin(source=dm("8"))
    assert begun
    await world.store.transact(turns.halt(begun.turn, TurnState.PARKED, world.now))
    await talk(world, 5)
    world.later(days=100)
    retention, limit = Retention(database=world.store.database), rules(settled=RetentionLimit(age=50 * DAYS))
    assert [each.items for each in await retention.run(limit, world.now)] == [10]
    assert [each.items for each in await retention.run(limit, world.now)] == [0]
    resumed = await world.store.transact(turns.resume(begun.turn.number, "w", world.now, LEASE))
    assert resumed
    late = Outbound(platform="telegram", chat_id="8", text=WORD)
    await world.store.transact(turns.settle(resumed, [answer(WORD)], [late], world.now))
    await deliver(world)
    assert [each.items for each in await retention.run(limit, world.now)] == [0]
    world.later(days=51)
    assert [each.items for each in await retention.run(limit, world.now)] == [2]
    bodies = await world.store.read(ask("SELECT body FROM inbox UNION ALL SELECT body FROM outbox"))
    assert not [body for (body,) in bodies if WORD.encode() in bytes(body)]
    assert await world.store.read(ask("SELECT count(*) FROM retention_skipped")) == [(0,)]


async def test_the_answer_to_a_message_that_waited_long_is_counted_once(world: World) -> None:
    await world.say(WORD)
    world.later(days=55)
    limit = rules(settled=RetentionLimit(age=50 * DAYS))
    assert await run(world, limit) == {RetentionClass.SETTLED: 0}, "it is passed, not settled"
    begun = await world.begin()
    assert begun
    late = Outbound(platform="telegram", chat_id="7", text=WORD)
    await world.store.transact(turns.settle(begun.turn, [answer(WORD)], [late], world.now))
    await deliver(world)
    world.later(days=60)
    assert await run(world, limit) == {RetentionClass.SETTLED: 2}


async def test_the_preview_counts_what_goes_with_conversations_and_what_stays_once(world: World) -> None:
    """What goes with its conversation is no content of the inbox; what is not settled stays; late replies count."""
    await talk(world, 3)
    notice = Outbound(platform="telegram", chat_id="7", text=WORD)
    await world.store.transact(outbox.enqueue(notice, cause("n1"), world.now))
    await world.say(WORD, source=dm("8"))
    parked = await world.begin(source=dm("8"))
    assert parked
    await world.store.transact(turns.halt(parked.turn, TurnState.PARKED, world.now))
    await overhear(world, WORD)
    world.later(days=60)
    await talk(world, 2)
    world.later(days=50)
    limits = rules(
        chat=RetentionLimit(age=80 * DAYS),
        settled=RetentionLimit(age=40 * DAYS),
        observed=RetentionLimit(age=40 * DAYS),
    )
    gone = await run(world, limits)
    assert gone[RetentionClass.CHAT] == 2, "one person of three, and the group"
    assert gone[RetentionClass.SETTLED] >= 4, "of two conversations that stay"
    resumed = await world.store.transact(turns.resume(parked.turn.number, "w", world.now, LEASE))
    assert resumed
    await world.store.transact(turns.settle(resumed, [answer(WORD)], [replace(notice, chat_id="8")], world.now))
    await deliver(world)
    world.later(days=51)
    assert (await run(world, replace(limits, chat=RetentionLimit())))[RetentionClass.SETTLED] >= 2


async def test_the_preview_knows_what_the_classes_before_leave(world: World, blobs: BlobStore) -> None:
    """Files and overheard talk of conversations that go need nothing and go with them; numbers count from the start."""
    early = await keep(blobs, b"early", world)
    await overhear(world, "before")
    world.later(days=10)
    await overhear(world, "in another chat", chat="-200")
    for name in (b"two", b"others"):
        await keep(blobs, name, world)
    world.later(seconds=1)
    await send_file(world, early, "1")
    world.later(days=50)
    await world.exchange("used again", source=group("9"))
    world.later(days=2)
    limits = rules(
        chat=RetentionLimit(age=40 * DAYS), observed=RetentionLimit(count=1), attachments=RetentionLimit(count=2)
    )
    gone = await run(world, limits, blobs)
    assert gone == {RetentionClass.CHAT: 2, RetentionClass.OBSERVED: 1, RetentionClass.ATTACHMENTS: 1}


async def test_files_of_local_targets_go_by_age_and_number(world: World, tmp_path: Path) -> None:
    folder, retention = tmp_path / "output", Retention(database=world.store.database, outputs=tmp_path / "output")
    for number, name in enumerate(("ann-1/report/a.md", "ann-1/report/b.md", "bob-2/news/c.md")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(WORD)
        at = (world.now + number * DAYS).timestamp()
        os.utime(path, (at, at))
    world.later(days=100)
    for limit, left in ((RetentionLimit(), 3), (RetentionLimit(count=2), 2), (RetentionLimit(age=DAYS), 0)):
        before = len([path for path in folder.rglob("*") if path.is_file()])
        promised = [each.items for each in await retention.preview(rules(output=limit), world.now)]
        assert [each.items for each in await retention.run(rules(output=limit), world.now)] == promised
        kept = [path for path in folder.rglob("*") if path.is_file()]
        assert (len(kept), sum(promised)) == (left, before - left)
    assert list(folder.iterdir()) == [], "folders that are empty go, too"


def test_a_file_that_cannot_be_deleted_keeps_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.md", "b.md", "c.md"):
        (tmp_path / name).write_text(WORD)
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "b.md":
            raise PermissionError(path)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError):
        remove_outputs(tmp_path, datetime.max.replace(tzinfo=UTC))
    assert [path.name for path in tmp_path.iterdir()] == ["b.md"]


def test_a_file_that_is_written_again_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, noon = files.list_outputs, datetime(2026, 3, 1, 12, tzinfo=UTC)

    def list_then_write(folder: Path) -> list[StoredFile]:
        found = listed(folder)
        (tmp_path / "again.md").write_text(WORD)
        (tmp_path / "gone.md").unlink()
        return found

    old = (noon - DAYS).timestamp()
    for name in ("again.md", "gone.md", "old.md"):
        (tmp_path / name).write_text(WORD)
        os.utime(tmp_path / name, (old, old))
    monkeypatch.setattr(files, "list_outputs", list_then_write)
    remove_outputs(tmp_path, noon)
    assert [path.name for path in tmp_path.iterdir()] == ["again.md"]


async def test_settled_contents_by_count_and_size(world: World) -> None:
    await talk(world, 4)
    world.later(days=2)
    assert await run(world, rules(settled=RetentionLimit(count=3))) == {RetentionClass.SETTLED: 2}
    assert await run(world, rules(settled=RetentionLimit(size=0))) == {RetentionClass.SETTLED: 6}


# Files


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "files")


async def keep(blobs: BlobStore, content: bytes, world: World) -> Attachment:
    async def chunks() -> AsyncIterator[bytes]:
        yield content

    kept = await blobs.keep(chunks(), 10**6)
    place = blobs.place(kept.sha256)
    assert place
    os.utime(place, (world.now.timestamp(), world.now.timestamp()))
    return Attachment(Label("report.txt"), "text/plain", len(content), kept.sha256)


async def send_file(world: World, file: Attachment, user: str) -> str:
    source = replace(dm(user), message_id=f"f{user}")
    inbound = Inbound(source=source, text="look", at=world.now, files=(file,))
    await world.store.transact(inbox.accept(inbound, key_of(source), world.now))
    begun = await world.begin(source=source)
    assert begun
    await world.store.transact(turns.settle(begun.turn, [answer("thanks")], [], world.now))
    return begun.turn.session


@pytest.mark.parametrize("limit", [RetentionLimit(age=30 * DAYS), RetentionLimit(count=1), RetentionLimit(size=40)])
async def test_old_files_go_with_their_content(world: World, blobs: BlobStore, limit: RetentionLimit) -> None:
    old, young = b"old content of a file", b"young content of a file"
    first = await send_file(world, await keep(blobs, old, world), "1")
    world.later(days=40)
    await send_file(world, await keep(blobs, young, world), "2")
    world.later(days=2)
    assert await run(world, rules(attachments=limit), blobs) == {RetentionClass.ATTACHMENTS: 1}
    assert blobs.place(hashlib.sha256(old).hexdigest()) is None
    assert blobs.place(hashlib.sha256(young).hexdigest()) is not None
    entries = await world.store.read(world.store.transcript.load_visible(first, OPERATOR))
    assert [(file.sha256, file.problem) for file in entries[0].files] == [(None, GONE)]
    assert entries[0].role is Role.USER
    assert (await check_references(world.store.database)).ok


async def test_a_file_that_somebody_still_needs_stays(world: World, blobs: BlobStore) -> None:
    """It came again yesterday, it is in a pinned conversation, or its message waits."""
    shared = await keep(blobs, b"shared", world)
    await send_file(world, shared, "1")
    pinned = await send_file(world, await keep(blobs, b"pinned", world), "2")
    await world.store.transact(chat_list.mark(pinned, "web:owner", OPERATOR, pinned=True, now=world.now))
    waits = replace(dm("3"), message_id="w")
    inbound = Inbound(source=waits, text="look", at=world.now, files=(await keep(blobs, b"waits", world),))
    await world.store.transact(inbox.accept(inbound, key_of(waits), world.now))
    for received in await world.store.read(inbox.list_waiting(key_of(waits))):
        await world.store.transact(attachments.set_files(received, inbound.files))
    world.later(days=99)
    await send_file(world, shared, "4")
    world.later(days=1)
    wanted = rules(attachments=RetentionLimit(age=30 * DAYS))
    assert await run(world, wanted, blobs) == {RetentionClass.ATTACHMENTS: 0}


# Small steps, killed in between


async def test_a_run_that_is_killed_continues(world: World, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is stopped between two steps, in the end the same has gone."""
    for module, name in ((settled, "_PAGE"), (observed, "_PAGE"), (deletion, "_SESSIONS_PER_BATCH")):
        monkeypatch.setattr(module, name, 1)
    await send_file(world, await keep(blobs, WORD.encode(), world), "1")
    await overhear(world, WORD)
    await world.exchange(WORD, reply=WORD, source=dm("2"))
    await deliver(world)
    world.later(days=400)
    month = RetentionLimit(age=30 * DAYS)
    wanted = RetentionRules(observed=month, settled=month, attachments=month, chat=RetentionLimit(age=300 * DAYS))
    runs = 0

    async def stop() -> None:
        raise asyncio.CancelledError

    retention = Retention(database=world.store.database, blobs=blobs)
    while any(each.items for each in await retention.preview(wanted, world.now)):
        runs += 1
        with pytest.raises(asyncio.CancelledError):
            await replace(retention, pause=stop).run(wanted, world.now)
        assert await world.store.read(violations()) == []
    assert runs > 3
    assert await blobs.list_files() == []
    for table, column in (("inbox", "body"), ("outbox", "body"), ("entries", "body")):
        for (body,) in await world.store.read(ask(f"SELECT {column} FROM {table}")):  # noqa: S608
            assert WORD.encode() not in bytes(body)


def test_after_kills_no_word_is_left_in_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in tables, nor in the search index, the log or a file, and nothing else is gone."""
    for module, name in ((settled, "_PAGE"), (observed, "_PAGE"), (deletion, "_SESSIONS_PER_BATCH")):
        monkeypatch.setattr(module, name, 2)
    url, blobs = str(tmp_path / "palaver.db"), BlobStore(tmp_path / "files")

    async def fill() -> World:
        async with await open_store(url) as store:
            world = World(store)
            for number in range(3):
                await send_file(world, await keep(blobs, f"{WORD} {number}".encode(), world), f"{number}")
                await overhear(world, f"{WORD}{'!' * number}")
                await world.exchange(WORD, reply=WORD, source=dm(f"1{number}"))
                await deliver(world)
            world.later(days=400)
            await world.exchange("kept", source=dm("20"))
            await store.search.catch_up()
            return world

    world = asyncio.run(fill())
    month = RetentionLimit(age=30 * DAYS)
    wanted = RetentionRules(chat=month, observed=month, settled=month, attachments=month)

    async def delete(last: int | None) -> None:
        steps = count(1)

        async def pause() -> None:
            if next(steps) == last:
                os.kill(os.getpid(), signal.SIGKILL)

        async with await open_store(url) as store:
            await Retention(database=store.database, blobs=blobs, pause=pause).run(wanted, world.now)
            await store.search.catch_up()
            await store.scrub()
            assert await store.read(violations()) == []

    for last in (2, 3, 2):
        child = os.fork()
        if child == 0:
            asyncio.run(delete(last))
            os._exit(0)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    asyncio.run(delete(None))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path.name for path in files if WORD.encode() in path.read_bytes()] == []
    assert [path.name for path in files if b"kept" in path.read_bytes()] != []


async def test_no_step_reads_a_whole_table(tmp_path: Path) -> None:
    async with await open_store(str(tmp_path / "p.db")) as store:
        world = World(store)
        await overhear(world, "a")
        await talk(world, 2)
        later = world.now + 100 * DAYS
        for work in (
            observed.find_page(later, (-1, -1)),
            observed.find_without_turn(later, -1),
            observed.remove([], later),
            *(settled.empty_page(source, later) for source in settled.SOURCES),
            *(settled.empty_skipped(source, later, 0) for source in settled.SOURCES),
        ):
            steps = await store.transact(plans(work))
            assert [step for step in steps if step.startswith("SCAN") and not step.endswith(SHORT)] == []
