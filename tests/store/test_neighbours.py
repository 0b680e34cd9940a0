"""What somebody does changes nothing of a neighbour who has the same of everything, row by row."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from palaver.db.tables import TableShape, copy_order
from palaver.db.transaction import Row, Statements, Transaction, transaction
from palaver.model.access import AccessRole, Grant
from palaver.model.compaction import plan_compaction
from palaver.model.feedback import Rating
from palaver.model.job import JobAction
from palaver.model.memory import MemoryLimits, MemoryScope
from palaver.model.revision import RevisionPolicy
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.transcript import ToolCall
from palaver.model.turn import Inbound, Outbound, Revision, TurnState, outbound_to
from palaver.store import accounts, processes
from palaver.store.conversations import (
    attach,
    branches,
    chat_migration,
    deletion,
    feedback,
    handoff,
    history,
    sessions,
    titles,
    transcript,
)
from palaver.store.conversations.expiry import expire
from palaver.store.opening import open_store
from palaver.store.people import api_tokens, grants, key_rights, links, memory, pairing
from palaver.store.people.api_tokens import CredentialKind
from palaver.store.privacy import erasure
from palaver.store.queue import inbox, revisions, turn_control, turns
from tests.store.jobs import add_job
from tests.store.world import IDLE_HOUR, LEASE, OPERATOR, World, answer, dm, group, key_of

ANN, BEN = "17", "18"
_GLOBAL = frozenset({"journal", "meta"})
"""Tables about everybody."""
Picture = dict[str, list[Row]]
Deed = Callable[[World, str], Awaitable[object]]


def desk(who: str) -> Source:
    return dm(who)


def phone(who: str) -> Source:
    return dm(f"{who}00")


def room(who: str, speaker: str = "") -> Source:
    return replace(group(speaker or who, chat=f"-{who}"), thread_id="5")


def principal(who: str) -> Principal:
    return Principal(identities=frozenset({f"telegram:{who}", f"telegram:{who}00"}), speaks_as=f"telegram:{who}")


@transaction
def _attach(world: World, who: str) -> Statements[None]:
    key = key_of(phone(who))
    found = yield from attach.find_attachable(f"now of {who}", key, principal(who))
    yield from attach.attach(key, found, world.now, by=f"telegram:{who}", farewell=outbound_to(phone(who), "parted"))


@transaction
def _start_process(number: int, who: str) -> Statements[None]:
    columns = "id, session_no, place, origin, backend, command, folder, terminal, home, host, worker, identity"
    values = "?, ?, ?, ?, 'local', 'sleep 600', '/', 0, 'home', 'host', 'worker', ?"
    yield (
        f"INSERT INTO processes ({columns}, lease_until, started, exit_notice) VALUES ({values}, 0, 0, 'off')",  # noqa: S608 - our own words
        (f"p{who}", number, key_of(room(who)).text, b"{}", f"telegram:{who}"),
    )


async def live(world: World, who: str) -> None:
    """Have one of everything: talk that was summarised, undone, left, rated, attached, asked about and sent."""
    store, here, key = world.store, desk(who), key_of(desk(who))
    said = [f"question {number} ............." for number in range(3)]
    *_, begun = [await world.exchange(text, f"to {text}", source=here) for text in said]
    first = begun.turn.session
    await store.transact(titles.rename(first, f"plans of {who}", OPERATOR))
    await store.transact(feedback.store_rating(begun.turn.number, f"telegram:{who}", Rating.UP, world.now))
    await store.transact(store.chat_list.mark(first, f"telegram:{who}", principal(who), world.now, pinned=True))
    shown = await store.read(transcript.load_visible(first, OPERATOR))
    plan = plan_compaction(shown, keep_exchanges=2)
    await store.transact(transcript.compact(key, plan, "short", world.now, by="agent"))
    await store.transact(transcript.undo(key, 1, world.now, principal=principal(who)))
    fresh = await store.transact(sessions.reset(key, here, world.now, by=f"telegram:{who}"))
    await store.transact(titles.rename(fresh.id, f"now of {who}", OPERATOR))
    await world.exchange("at the desk", source=here)
    await store.transact(_attach(world, who))
    await world.say("waits", phone(who), id_=f"w{who}")
    await world.exchange("aloud", source=room(who))
    await world.exchange("in the room", source=room(who, f"{who}1"))
    await world.say("remember", room(who), id_=f"r{who}")
    noting = await world.begin(room(who))
    assert noting
    call = ToolCall(id="c", name="look")
    await store.transact(turns.append_to_turn(noting.turn, [answer("", calls=(call,))]))
    for scope in (MemoryScope(profile="main", identity=f"telegram:{who}"),):
        for place in (None, key_of(room(who))):
            noted = memory.remember(noting.turn, replace(scope, place=place), "likes tea", MemoryLimits(), world.now)
            await store.transact(noted)
    await store.transact(turns.halt(noting.turn, TurnState.PARKED, world.now, asked="c", notices=[to(who)]))
    await store.transact(_start_process(noting.turn.session_number, who))
    await add_job(store, "every 2h", f"job of {who}", source=here, now=world.now)
    await store.transact(grants.add(Grant(platform="telegram", user_id=who, chat_id=f"-{who}"), world.now, by="x"))
    await store.transact(links.link(f"telegram:{who}", f"telegram:{who}00", world.now, by="x"))
    await store.transact(accounts.mark_chat_gone(outbound_to(phone(who), ""), world.now, "away"))
    hello, code = Inbound(source=stranger(who), text="let me in", at=world.now), f"CODE{who}"
    await store.transact(pairing.request(hello, key_of(stranger(who)), world.now, code=code, answer=[to(who)]))
    await store.transact(links.offer(stranger(who, 98), None, f"code of {who}", world.now))
    await store.transact(
        api_tokens.add(f"token of {who}", CredentialKind.TOKEN, world.now, name="t", identity=f"telegram:{who}")
    )


def to(who: str) -> Outbound:
    return outbound_to(room(who), "May I?")


def stranger(who: str, number: int = 99) -> Source:
    return dm(f"{who}{number}", message_id="1")


@transaction
def _rows(shape: TableShape) -> Statements[list[Row]]:
    return (yield f"SELECT {', '.join(shape.columns)} FROM {shape.name}", ())  # noqa: S608 - our own words


async def picture(world: World) -> Picture:
    return {each.name: await world.store.read(_rows(each)) for each in copy_order() if each.name not in _GLOBAL}


def _of(who: str, before: Picture, after: Picture) -> list[tuple[str, Row]]:
    """Return the rows that name a session or a conversation of somebody, and were not there before."""
    shapes = {each.name: each.columns for each in copy_order()}
    numbers = {row[shapes["sessions"].index("no")] for row in before["sessions"]}
    keys = {key_of(place(who)).text for place in (desk, phone, room)}
    theirs = {"session_no": numbers, "key": keys, "place": keys}
    found: list[tuple[str, Row]] = []
    for table, rows in after.items():
        columns = [(at, theirs[name]) for at, name in enumerate(shapes.get(table, ())) if name in theirs]
        found += [(table, row) for row in rows if any(row[at] in names for at, names in columns)]
    return [each for each in found if each[1] not in before[each[0]]]


async def _first(world: World, who: str) -> str:
    return (await world.store.read(sessions.find(f"plans of {who}", OPERATOR))).id


async def _number(world: World, sql: str) -> int:
    @transaction
    def ask() -> Statements[int]:
        return (yield sql, ())[0][0]

    return await world.store.read(ask())


async def _back(world: World, who: str) -> object:
    return await world.store.transact(history.back(key_of(desk(who)), world.now, principal=principal(who)))


async def _switch(world: World, who: str) -> object:
    here, first = desk(who), await _first(world, who)
    moved = await world.store.transact(
        sessions.switch(key_of(here), here, first, principal(who), world.now, by=f"telegram:{who}")
    )
    return moved, await world.store.transact(history.redo(key_of(here), world.now, principal=principal(who)))


async def _hand_off(world: World, who: str) -> object:
    store, here, there = world.store, desk(who), dm(f"{who}01")
    session = await store.read(sessions.open_by_key(key_of(here)))
    assert session
    await store.transact(handoff.start(session, here, there, outbound_to(there, "it comes"), world.now, by="x"))
    number = await _number(world, "SELECT max(no) FROM operations WHERE kind = 'handoff'")
    told = outbound_to(here, "told")
    arrive = handoff.complete(number, key_of(there), there, world.now, recalled=told, returned=told)
    return await store.transact(arrive), await _back(world, who)


async def _cancel_handoff(world: World, who: str) -> object:
    store, here, there = world.store, desk(who), dm(f"{who}01")
    session = await store.read(sessions.open_by_key(key_of(here)))
    assert session
    await store.transact(handoff.start(session, here, there, outbound_to(there, "it comes"), world.now, by="x"))
    number = await _number(world, "SELECT max(no) FROM operations WHERE kind = 'handoff'")
    return await store.transact(handoff.cancel(number, world.now))


async def _erase(world: World, who: str) -> object:
    number = await world.store.transact(erasure.request(f"telegram:{who}", world.now, by="x"))
    return await world.store.erasures.run(number, world.now)


async def _end_question(world: World, who: str) -> object:
    key = key_of(room(who))
    return await world.store.transact(turn_control.abandon_parked(key, world.now, note="left", error="x"))


async def _answer_question(world: World, who: str) -> object:
    answered = turn_control.answer_question(key_of(room(who)), world.now, principal(who), answer=True)
    decided = await world.store.transact(answered)
    return decided, await world.store.transact(turns.reclaim("w2", world.now, LEASE))


async def _revise(world: World, who: str, deleted: bool, message: str) -> object:
    source = replace(room(who) if message.startswith("r") else phone(who), message_id=message)
    change = Inbound(source=source, text="else", at=world.now, revision=Revision(version="2", deleted=deleted))
    revise = revisions.accept_revision(change, key_of(source), world.now, RevisionPolicy.NOTE)
    return await world.store.transact(revise)


async def _delete(world: World, who: str) -> object:
    first = await _first(world, who)
    return await world.store.transact(deletion.delete(first, OPERATOR, world.now))


async def _expire(world: World, who: str) -> object:
    await world.store.transact(inbox.fail_waiting(key_of(desk(who)), "it was too late", before=0))
    session = await world.store.read(sessions.open_by_key(key_of(desk(who))))
    assert session
    world.later(days=2)
    return await world.store.transact(expire(session, IDLE_HOUR.reset_rule(desk(who)), world.now))


async def _serve(world: World, who: str) -> object:
    begun = await world.begin(desk(who))
    assert begun
    await world.store.transact(turn_control.request_stop(begun.turn.key, world.now, by="x"))
    return await world.store.transact(turns.settle(begun.turn, [answer()], [outbound_to(desk(who), "x")], world.now))


async def _undo(world: World, who: str) -> object:
    return await world.store.transact(transcript.undo(key_of(desk(who)), 9, world.now, principal=principal(who)))


async def _version(world: World, who: str) -> object:
    begun = await world.store.read(inbox.list_waiting(key_of(desk(who))))
    await world.store.transact(inbox.fail_waiting(key_of(desk(who)), "it was too late", before=0))
    return await world.store.transact(branches.retry(begun[0], principal(who), world.now))


async def _forget_notes(world: World, who: str) -> object:
    scopes = [MemoryScope(profile="main", identity=f"telegram:{who}", place=each) for each in (None, key_of(room(who)))]
    return [await world.store.transact(memory.delete_all(scope)) for scope in scopes]


async def _end_job(world: World, who: str) -> object:
    for action in (JobAction.PAUSE, JobAction.RESUME, JobAction.RUN):
        await world.store.transact(world.store.jobs.change(f"job of {who}", action, principal(who), world.now))
    return await world.store.transact(world.store.jobs.remove(f"job of {who}", principal(who)))


async def _stop_process(world: World, who: str) -> object:
    number = await _number(world, f"SELECT no FROM processes WHERE id = 'p{who}'")  # noqa: S608 - our own words
    return await world.store.transact(processes.ask_stop([number], world.now, by="x"))


async def _link(world: World, who: str) -> object:
    store, guest = world.store, stranger(who, 97)
    assert await store.transact(links.enter_code(guest, None, f"code of {who}", world.now))
    for number in (97, 98):
        await store.transact(links.agree(f"telegram:{who}{number}", world.now))
    return await store.transact(links.unlink_last(f"telegram:{who}97", world.now, by="x"))


async def _end_keys(world: World, who: str) -> object:
    number = await _number(world, f"SELECT no FROM grants WHERE user_id = '{who}'")  # noqa: S608 - our own words
    change = grants.remove(number, world.now, by="x")
    return await world.store.transact(key_rights.end_lost_keys(change, (), world.now, by="x"))


def _do(make: Callable[[World, str], Transaction[object]]) -> Deed:
    async def deed(world: World, who: str) -> object:
        return await world.store.transact(make(world, who))

    return deed


DEEDS: dict[str, Deed] = {
    "detach": _do(lambda world, who: attach.detach(key_of(phone(who)), world.now)),
    "reset": _do(lambda world, who: sessions.reset(key_of(desk(who)), desk(who), world.now, by="x")),
    "back": _back,
    "switch and redo": _switch,
    "undo": _undo,
    "branch": _do(
        lambda world, who: branches.branch(key_of(desk(who)), desk(who), principal(who), world.now, by="x", title="y")
    ),
    "retry": _version,
    "hand off": _hand_off,
    "hand off in vain": _cancel_handoff,
    "move": _do(lambda world, who: chat_migration.move("telegram", None, f"-{who}", f"-100{who}", world.now)),
    "move a direct chat": _do(lambda world, who: chat_migration.move("telegram", None, who, f"9{who}", world.now)),
    "delete": _delete,
    "expire": _expire,
    "unlink": _do(lambda world, who: links.unlink(f"telegram:{who}", world.now, by="x")),
    "erase": _erase,
    "leave a question": _end_question,
    "answer a question": _answer_question,
    "edit what waits": lambda world, who: _revise(world, who, deleted=False, message=f"w{who}"),
    "delete what was read": lambda world, who: _revise(world, who, deleted=True, message=f"r{who}"),
    "serve": _serve,
    "forget notes": _forget_notes,
    "end a job": _end_job,
    "stop a process": _stop_process,
    "merge": _do(lambda world, who: links.merge(f"telegram:{who}00", f"telegram:{who}")),
    "fail what waits": _do(lambda _, who: inbox.fail_waiting(key_of(desk(who)), "x", before=0)),
    "approve": _do(
        lambda world, who: pairing.approve(f"telegram:{who}99", AccessRole.MEMBER, world.now, by="x", notice="in")
    ),
    "deny": _do(lambda world, who: pairing.deny(f"telegram:{who}99", world.now, by="x", blocks=True)),
    "link": _link,
    "withdraw": _do(lambda world, who: links.withdraw(f"telegram:{who}98", world.now)),
    "end keys": _end_keys,
    "reach a chat": _do(lambda _, who: accounts.mark_chat_reachable(outbound_to(phone(who), ""))),
}


async def _prepare(path: Path) -> tuple[Picture, Picture]:
    """Let Ben live, then Ann. Return what there was before Ann, and now."""
    async with await open_store(f"sqlite:///{path}") as store:
        world = World(store)
        await live(world, BEN)
        before = await picture(world)
        await live(world, ANN)
        return before, await picture(world)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Picture, Picture]:
    path = tmp_path_factory.mktemp("neighbours") / "palaver.db"
    return path, *asyncio.run(_prepare(path))


def _gone(before: Picture, after: Picture) -> Picture:
    found = {table: [row for row in rows if row not in after[table]] for table, rows in before.items()}
    return {table: rows for table, rows in found.items() if rows}


@pytest.mark.parametrize("name", DEEDS)
async def test_a_neighbour_keeps_everything(tmp_path: Path, prepared: tuple[Path, Picture, Picture], name: str) -> None:
    path, alone, both = prepared
    assert not _gone(alone, both)
    shutil.copy(path, tmp_path / path.name)
    async with await open_store(f"sqlite:///{tmp_path / path.name}") as store:
        world = World(store)
        await DEEDS[name](world, ANN)
        after = await picture(world)
    assert after != both, "it did nothing"
    assert not _gone(alone, after)
    assert not _of(BEN, alone, after)
