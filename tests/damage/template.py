"""A store in which something of everything has happened, to be copied and damaged."""

from collections.abc import AsyncIterator
from pathlib import Path
from zoneinfo import ZoneInfo

from palaver.db.transaction import Statements, transaction
from palaver.model.access import Grant
from palaver.model.attachment import Attachment
from palaver.model.compaction import plan_compaction
from palaver.model.job import Job
from palaver.model.label import Label
from palaver.model.schedule import parse_schedule
from palaver.model.session import ModelOverride, Principal
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Inbound, OutboxState, Usage, outbound_to
from palaver.store import accounts
from palaver.store.conversations import attach, branches, sessions, titles, transcript, visibility
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.jobs import jobs
from palaver.store.people import api_tokens, grants, links, pairing
from palaver.store.people.api_tokens import CredentialKind
from palaver.store.queue import inbox, outbox, turns
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.records import inbound_body
from palaver.store.store import Store
from tests.store.world import OPERATOR, World, answer, begin_sends, dm, group, key_of

ANN, BEN, CARL, ZOE = dm("7"), dm("8"), dm("10"), dm("99")
"""Ann's rows are damaged. Ben has to notice nothing of it, and Zoe comes afterwards."""
STRANGER, PHONE = dm("11"), dm("12")
BEN_ALONE = Principal(identities=frozenset({"telegram:8"}))
PICTURE = b"a picture of a fig" * 100


async def exchange(world: World, source: Source, text: str, *replies: str, file: Attachment | None = None) -> int:
    """Somebody says something and is answered where they are, in one message or several."""
    spoken = Source(**{**source.to_json(), "message_id": f"m {text}"})
    inbound = Inbound(source=spoken, text=text, at=world.now, files=(file,) if file else ())
    await world.store.transact(inbox.accept(inbound, key_of(source), world.now))
    begun = await world.begin(source)
    assert begun
    world.later(seconds=1)
    usage = Usage(input_tokens=10, output_tokens=5, cost_micros=3)
    owed = [outbound_to(spoken, reply, reply_to=spoken.message_id) for reply in replies]
    entry = answer("\n\n".join(replies))._replace(at=world.now)
    await world.store.transact(turns.settle(begun.turn, [entry], owed, world.now, usage=usage))
    world.later(seconds=1)
    return begun.turn.number


async def deliver_all(world: World) -> int:
    """Send everything that is due; return how many messages that were."""
    sent = 0
    while claimed := await world.store.transact(begin_sends("w1", world.now)):
        for each in claimed:
            done = outbox.settle_send(each, "w1", OutboxState.DELIVERED, receipt=f"r{each.number}")
            await world.store.transact(done)
            sent += 1
    return sent


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def build(store: Store, files: Path) -> None:
    world = World(store)
    await exchange(world, ANN, "apples", "red apples")  # turn 1: in:1, out:1024, entries 1 and 2 of session 1
    await exchange(world, ANN, "pears", "green", "pears")  # turn 2: in:2, out:2048 and 2049, entries 3 and 4
    kept = await BlobStore(files).keep(_stream(PICTURE), len(PICTURE))
    file = Attachment(Label("fig.png"), "image/png", len(PICTURE), sha256=kept.sha256)
    await exchange(world, ANN, "figs", "sweet figs", file=file)  # turn 3: in:3, out:3072, entries 5 and 6
    note = Entry(seq=0, role=Role.NOTE, at=world.now, text="Ann looked at her figs")
    await store.transact(transcript.append_outside_turn(key_of(ANN), note))  # entry 7
    await exchange(world, ANN, "plums", "blue plums")  # turn 4: in:4, out:4096, entries 8 and 9, undone by operation 1
    await store.transact(transcript.undo(key_of(ANN), 1, world.now, principal=OPERATOR))
    await exchange(world, BEN, "boats", "fast boats")  # turn 5, session 2
    await exchange(world, BEN, "ships", "large ships")  # turn 6
    await exchange(world, BEN, "rafts", "slow rafts")  # turn 7
    shown = await store.read(transcript.load_shown(2))
    plan = plan_compaction(shown, keep_exchanges=1)
    await store.transact(transcript.compact(key_of(BEN), plan, "ab", world.now, by="operator"))  # operation 2
    await exchange(world, CARL, "seeds", "round seeds")  # turn 8, session 3
    await store.transact(branches.branch(key_of(CARL), CARL, OPERATOR, world.now, by="telegram:10", title="Seeds"))
    await exchange(world, CARL, "trees", "tall trees")  # turn 9, session 4, a branch of session 3
    await exchange(world, group("7"), "in the room", "all of you")  # turn 10, session 5
    await deliver_all(world)
    await _people(world)
    notice = outbound_to(ANN, "a notice for Ann")
    await store.transact(outbox.enqueue(notice, SendCause(CauseKind.COMMAND, 1), world.now))  # out:-1
    await exchange(world, ANN, "limes", "sour limes")  # turn 11: in:…, out:11264, due, the last entries of session 1
    await store.transact(_say_and_wait(world))
    await store.transact(_run_jobs_and_processes(world))
    number = await world.say("a secret", STRANGER)
    assert number
    await store.transact(inbox.refuse(number, "no access"))
    await store.search.catch_up()


@transaction
def _say_and_wait(world: World) -> Statements[None]:
    spoken = Source(**{**ANN.to_json(), "message_id": "m waits"})
    number = yield from inbox.accept(Inbound(source=spoken, text="melons", at=world.now), key_of(ANN), world.now)
    yield "INSERT INTO mentions (inbox_no, session_no) VALUES (?, 1)", (number,)


@transaction
def _run_jobs_and_processes(world: World) -> Statements[None]:
    zone = ZoneInfo("UTC")
    for source in (BEN, CARL):
        schedule = parse_schedule("every day at 09:00", zone, world.now)
        job = Job(
            number=0,
            owner=f"telegram:{source.chat_id}",
            name="report",
            schedule=schedule,
            prompt="report",
            targets="origin",
            origin=source,
            created=world.now,
            next_due=schedule.next_after(world.now),
        )
        number = yield from jobs.add(job)
        yield "INSERT INTO firings (schedule_no, at, inbox_no) VALUES (?, ?, ?)", (number, 1, 4 + number)
        origin = inbound_body(Inbound(source=source, text="", at=world.now), None, None)
        yield (
            (
                "INSERT INTO processes (id, session_no, place, origin, backend, command, folder, terminal, home, host,"
                " worker, lease_until, started, exited, ended, exit_notice)"
                " VALUES (?, ?, ?, ?, 'local', 'ls', '/', 0, 'home', 'host', 'w1', 0, 1, 2, 3, 'done')"
            ),
            (f"process {number}", number, key_of(source).text, origin),
        )


async def _people(world: World) -> None:
    store, now = world.store, world.now
    first = (await store.read(visibility.get(1))).id
    await store.transact(titles.rename(first, "Fruit", OPERATOR))
    await store.transact(sessions.set_override(first, ModelOverride(model="m1"), OPERATOR))
    await store.transact(links.link("telegram:8", "matrix:ben", now, by="operator"))
    await store.transact(grants.add(Grant(platform="telegram", user_id="8"), now, by="operator"))
    await store.transact(grants.add(Grant(platform="telegram", user_id="7"), now, by="operator"))
    await store.transact(accounts.set_home("main", ANN, now, by="telegram:7"))
    token = api_tokens.add("d" * 64, CredentialKind.TOKEN, now, name="backup", identity="telegram:8")
    await store.transact(token)
    await store.transact(_attach_phone(world))
    asking = Inbound(source=Source(**{**STRANGER.to_json(), "message_id": "m hello"}), text="let me in", at=now)
    await store.transact(pairing.request(asking, key_of(STRANGER), now, code="CODE", answer=[]))


@transaction
def _attach_phone(world: World) -> Statements[None]:
    rows = yield "SELECT id FROM sessions WHERE no = 2", ()
    found = yield from attach.find_attachable(rows[0][0], key_of(PHONE), OPERATOR)
    yield from attach.attach(key_of(PHONE), found, world.now, by="operator", farewell=outbound_to(PHONE, "parted"))
