"""A server that restarts, a network that breaks: what returned is there once, what is not known is said to be."""

import asyncio
import os
import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from palaver.db import postgres, postgres_pool
from palaver.db.high_water import Seen
from palaver.db.transaction import (
    Lock,
    Notify,
    Row,
    Statements,
    Transaction,
    answering_request,
    keyed,
    transaction,
    waiting_of_request,
)
from palaver.engine.retry import retry_until_stored
from palaver.model.errors import PalaverError, StoreUnavailable
from palaver.model.turn import Inbound, Outbound
from palaver.store import epochs
from palaver.store.conversations import sessions, titles
from palaver.store.damage.set_aside import list_set_aside
from palaver.store.opening import open_store
from palaver.store.queue import inbox, outbox, turns
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.conftest import fresh_store
from tests.store.outages import Cut, Proxy, Server
from tests.store.world import NOON, OPERATOR, World, cause, dm, key_of

DRIVER: Any = asyncpg  # it has no types of its own
PATIENCE = 180
"""Not a measure of speed: something that should come at all and does not, ends the test."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = tempfile.mkdtemp(prefix="palaver-outage-")
    started = Server(folder)
    try:
        yield started
    finally:
        started.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def url(server: Server) -> str:
    return await fresh_store(server.url)


# The network


@pytest.fixture
async def proxy(server: Server, url: str) -> AsyncIterator[Proxy]:
    folder = Path(tempfile.mkdtemp(prefix="palaver-proxy-"))
    async with Proxy(server, url, folder).running() as running:
        yield running
    shutil.rmtree(folder)


# What is written, and what became of it


class Outcome(StrEnum):
    RETURNED = "returned"
    NOT_KNOWN = "not known"
    FAILED = "failed"


def accept(text: str, user: str = "7") -> Transaction[int | None]:
    """A message without an id: the store cannot tell a second one from the first."""
    return inbox.accept(Inbound(source=dm(user), text=text, at=NOON), key_of(dm(user)), NOON)


async def outcome_of(store: Store, step: Transaction[object]) -> Outcome:
    try:
        await store.transact(step)
    except StoreUnavailable as error:
        return Outcome.NOT_KNOWN if "may or may not have happened" in str(error) else Outcome.FAILED
    return Outcome.RETURNED


@transaction
def bodies() -> Statements[list[Row]]:
    return (yield "SELECT convert_from(body, 'UTF8')::json ->> 'text' FROM inbox", ())


async def check_outcomes(url: str, outcomes: dict[str, Outcome]) -> None:
    """Returned: there once. Not known: there once or not. Failed: not there."""
    async with await open_store(url) as store:
        times = Counter(row[0] for row in await store.read(bodies()))
        assert await store.read(violations()) == []
    allowed = {Outcome.RETURNED: {1}, Outcome.NOT_KNOWN: {0, 1}, Outcome.FAILED: {0}}
    assert {name: times[name] for name, outcome in outcomes.items() if times[name] not in allowed[outcome]} == {}


async def write_through(store: Store, disturb: Callable[[], Awaitable[None]]) -> dict[str, Outcome]:
    """Many write all the time; the disturbance comes in the middle of it, and all go on until it is over."""
    outcomes: dict[str, Outcome] = {}
    over = asyncio.Event()

    async def write(task: int) -> None:
        number = 0
        while not over.is_set():
            name = f"{task} {(number := number + 1)}"
            outcomes[name] = await outcome_of(store, accept(name))
        assert await outcome_of(store, accept(f"{task} afterwards")) is Outcome.RETURNED
        outcomes[f"{task} afterwards"] = Outcome.RETURNED

    writers = [asyncio.create_task(write(task)) for task in range(20)]
    while len(outcomes) < 60:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await disturb()
    before = len(outcomes)
    while len(outcomes) < before + 60:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    over.set()
    await asyncio.gather(*writers)
    return outcomes


@pytest.mark.parametrize("mode", ["immediate", "fast"])
async def test_a_server_that_restarts_in_the_middle(server: Server, url: str, mode: str) -> None:
    async with await open_store(url) as store:
        outcomes = await write_through(store, lambda: asyncio.to_thread(server.restart, mode))
    assert Outcome.RETURNED in outcomes.values()
    await check_outcomes(url, outcomes)


async def test_a_network_that_is_cut_again_and_again(proxy: Proxy, url: str) -> None:
    async def disturb() -> None:
        for _ in range(4):
            proxy.cut()
            await asyncio.sleep(0.15)
            proxy.mend()
            await asyncio.sleep(0.15)

    async with await open_store(proxy.url) as store:
        outcomes = await write_through(store, disturb)
    await check_outcomes(url, outcomes)


async def test_an_outage_that_does_not_end_is_said_and_nothing_was_written(
    proxy: Proxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_MAX_ATTEMPTS", 3)
    async with await open_store(proxy.url) as store:
        await store.transact(accept("before"))
        proxy.cut()
        steps = (store.transact(accept("during")), store.read(bodies()))
        for result in await asyncio.gather(*steps, return_exceptions=True):
            assert isinstance(result, StoreUnavailable)
            assert "PostgreSQL does not answer" in str(result)
        proxy.mend()
        await store.transact(accept("after"))
    async with await open_store(url) as store:
        assert sorted(await store.read(bodies())) == [("after",), ("before",)]


# Other servers


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_ANSWER_SECONDS", "_REPLICA_TIMEOUT_SECONDS", "_PATIENCE_SECONDS"):
        monkeypatch.setattr(postgres, name, 1.0)
    monkeypatch.setattr(postgres, "_PING_SECONDS", 0.05)
    monkeypatch.setattr(postgres_pool, "_HEAD_START_SECONDS", 0.1)


@pytest.mark.usefixtures("impatient")
async def test_a_standby_is_an_outage_until_it_is_promoted(server: Server, url: str) -> None:
    async with await open_store(url) as store:
        await store.transact(accept("before"))
        await asyncio.to_thread(server.demote)
        with pytest.raises(StoreUnavailable, match="is a standby"):
            await store.transact(accept("during"))
        await asyncio.to_thread(server.promote)
        await store.transact(accept("after"))
        assert sorted(await store.read(bodies())) == [("after",), ("before",)]


@pytest.mark.usefixtures("impatient")
async def test_a_host_that_is_frozen_is_left_for_another(proxy: Proxy, server: Server, url: str) -> None:
    """What waits for its answer goes on, and new connections do not wait for it."""
    folder = f"host={server.socket.parent}"
    frozen_first = url.replace(folder, f"host={proxy.folder},{server.socket.parent}")
    async with await open_store(frozen_first, exclusive=True) as store, await open_store(url) as other:
        await store.transact(accept("before"))
        await until_heard(other, store)
        assert proxy.connections
        proxy.thawed.clear()
        async with asyncio.timeout(PATIENCE):
            assert await store.read(bodies()) == [("before",)]
            await retry_until_stored(store, accept("after"))
        proxy.thawed.set()


@pytest.mark.usefixtures("impatient")
async def test_a_host_that_freezes_while_we_come_back_is_left_for_another(
    proxy: Proxy, server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_HOLD_ATTEMPT_SECONDS", 1.0)
    freezing_first = url.replace(f"host={server.socket.parent}", f"host={proxy.folder},{server.socket.parent}")
    async with await open_store(freezing_first, exclusive=True) as store:
        await store.transact(accept("before"))
        proxy.freeze_at(b"pg_advisory_lock_shared")
        proxy.cut()
        proxy.mend()
        async with asyncio.timeout(PATIENCE):
            while proxy.thawed.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await retry_until_stored(store, accept("after"))
        proxy.thawed.set()


async def test_a_standby_is_asked_again_while_another_host_is_silent(
    proxy: Proxy, server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "_CONNECT_TIMEOUT_SECONDS", 3600.0)
    await asyncio.to_thread(server.demote)
    proxy.thawed.clear()
    both = url.replace(f"host={server.socket.parent}", f"host={proxy.folder},{server.socket.parent}")
    connecting = asyncio.create_task(postgres_pool.Connector(both).connect())
    await asyncio.sleep(1)
    assert not connecting.done()
    await asyncio.to_thread(server.promote)
    connection = await asyncio.wait_for(connecting, PATIENCE)
    await connection.close()
    proxy.thawed.set()


async def test_a_connection_that_freezes_before_its_first_use_holds_nobody(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither until the driver's limit, nor while it says goodbye."""
    monkeypatch.setattr(postgres_pool, "_CONNECT_TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(postgres_pool, "_COMMAND_TIMEOUT_SECONDS", 3600.0)

    async def check_nothing(_: object) -> None: ...

    proxy.freeze_at(b"set_config")
    pool = postgres_pool.Pool(postgres_pool.Connector(proxy.url), check_nothing)
    await pool.open()
    async with asyncio.timeout(PATIENCE) as patience:
        with pytest.raises(TimeoutError):
            await pool.run(check_nothing)
    assert not patience.expired()
    assert not proxy.thawed.is_set()
    proxy.thawed.set()
    pool.terminate()


async def test_what_breaks_on_a_dropped_connection_can_be_tried_again(url: str) -> None:
    """Dropped between the steps of one call, asyncpg's connection has no protocol any more."""

    async def check_nothing(_: object) -> None: ...

    pool = postgres_pool.Pool(postgres_pool.Connector(url), check_nothing)
    await pool.open()

    async def be_dropped(_: object) -> None:
        await pool.drop()
        raise AttributeError

    with pytest.raises(ConnectionResetError):
        await pool.run(be_dropped)
    pool.terminate()


@pytest.mark.usefixtures("impatient")
async def test_a_replica_that_is_frozen_is_left_alone_for_a_while(proxy: Proxy, url: str) -> None:
    async with await open_store(f"{url}&replica={proxy.folder}") as store:
        await store.transact(accept("there"))
        assert await store.browse(bodies()) == [("there",)]
        proxy.thawed.clear()
        async with asyncio.timeout(PATIENCE):
            assert await store.browse(bodies()) == [("there",)]
        tried = proxy.connections
        assert await store.browse(bodies()) == [("there",)]
        assert proxy.connections == tried
        proxy.thawed.set()


async def test_an_outage_that_is_known_is_known_to_be_over(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 0.0)
    async with await open_store(proxy.url) as store:
        assert not store.is_away
        proxy.cut()
        async with asyncio.timeout(PATIENCE):
            while not store.is_away:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            proxy.mend()
            while store.is_away:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


# A promotion that lacks commits


NOTICE = Outbound(platform="telegram", chat_id="7", text="a notice", account="b")


async def promote_without(server: Server, url: str, first_lost: int) -> None:
    """Lose a message and all later ones with their numbers; then continue on a new timeline."""
    observer = await DRIVER.connect(url)
    try:
        await observer.execute("DELETE FROM inbox WHERE no >= $1", first_lost)
        await observer.execute("SELECT setval(pg_get_serial_sequence('inbox', 'no'), $1)", first_lost - 1)
    finally:
        await observer.close()
    await asyncio.to_thread(server.demote)
    await asyncio.to_thread(server.promote)


async def accepted(store: Store, text: str) -> int:
    number = await retry_until_stored(store, accept(text))
    assert number is not None
    return number


async def test_a_promotion_without_the_last_commits_gives_no_number_and_no_id_twice(server: Server, url: str) -> None:
    async with await open_store(url, exclusive=True) as store:
        kept, lost = await accepted(store, "kept"), await accepted(store, "lost")
        ids = [store.epochs.message(number) for number in (kept, lost)]
        store.saw(Seen("in", lost, "telegram chat 7", NOON))
        sent = await store.transact(outbox.enqueue(NOTICE, cause("n"), NOON))
        assert sent is not None
        store.saw(Seen("out", sent, "telegram chat 7", NOON, "r-9"))  # the receipt is lost, too
        await promote_without(server, url, lost)
        given = await accepted(store, "new")
        assert given > lost + 1000
        assert [store.epochs.message(number) for number in (kept, lost)] == ids
        assert store.epochs.message(given)[-6:] not in {id_[-6:] for id_ in ids}
        loss = store.take_loss()
        assert loss
        assert [each.number for each in loss.missing] == [lost]
        assert store.epochs.doubt(loss.began) == loss.began
        for id_, number in zip(ids, (kept, None), strict=True):
            found = store.epochs.find_message(id_)
            assert found
            received = await store.read(inbox.get_message(found, OPERATOR))
            assert (received and received.number) == number
        rows = await store.read(list_set_aside())
        assert any(row.row == ids[1] and "telegram chat 7" in row.reason for row in rows)
        delivery = await store.read(outbox.get_delivery(sent))
        assert (delivery and delivery.receipt) == "r-9"
        newest = store.epochs.newest
    async with await open_store(url) as again:
        assert again.epochs.newest == newest
        assert again.take_loss() is None


async def test_a_gateway_that_has_seen_more_leaves_out_more(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "_MARGIN", 1)
    async with await open_store(url) as one, await open_store(url) as other:
        lost = await accepted(one, "lost")
        other.saw(Seen("in", lost + 500, "telegram chat 7", NOON))  # its commit reached nobody else
        await promote_without(server, url, lost)
        async with asyncio.timeout(PATIENCE):
            while other.take_loss() is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await accepted(one, "new") > lost + 500


@transaction
def settings_here() -> Statements[Row]:
    asked = "SELECT current_setting('synchronous_commit'), current_setting('application_name')"
    return tuple((yield asked, ())[0])


async def test_a_commit_is_durable_even_if_the_server_would_not_wait(url: str) -> None:
    observer = await DRIVER.connect(url)
    await observer.execute(f"ALTER DATABASE {urlsplit(url).path[1:]} SET synchronous_commit = off")
    await observer.close()
    async with await open_store(url) as store:
        assert await store.read(settings_here()) == ("on", f"palaver, pid {os.getpid()} on {socket.gethostname()}"[:63])


# A cut at one exact point


@pytest.mark.parametrize(("cut", "there"), [(Cut.UNHEARD, 0), (Cut.UNANSWERED, 1)])
async def test_a_commit_without_an_answer_is_not_known_and_not_repeated(
    proxy: Proxy, url: str, cut: Cut, there: int
) -> None:
    async with await open_store(proxy.url) as store:
        proxy.fail_at(b"COMMIT;", cut)
        assert await outcome_of(store, accept("perhaps")) is Outcome.NOT_KNOWN
        assert proxy.faults == 1
        await store.transact(accept("certainly"))
    async with await open_store(url) as store:
        assert Counter(row[0] for row in await store.read(bodies())) == Counter(perhaps=there, certainly=1)


async def test_a_cut_while_traces_are_removed_is_made_good_or_told(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_store(proxy.url) as store:
        proxy.fail_at(b"VACUUM ", Cut.UNHEARD)
        await store.scrub()
        assert proxy.faults == 1
        monkeypatch.setattr(postgres, "_MAX_ATTEMPTS", 2)
        proxy.cut()
        with pytest.raises(StoreUnavailable):
            await store.scrub()
        proxy.mend()


async def test_a_read_that_is_cut_at_its_end_is_read_again(proxy: Proxy) -> None:
    async with await open_store(proxy.url) as store:
        await store.transact(accept("there"))
        proxy.fail_at(b"COMMIT;", Cut.UNANSWERED)
        assert await store.read(bodies()) == [("there",)]
        assert proxy.faults == 1


@pytest.mark.parametrize("cut", [Cut.UNHEARD, Cut.UNANSWERED])
async def test_a_cut_before_the_commit_is_made_good(proxy: Proxy, url: str, cut: Cut) -> None:
    async with await open_store(proxy.url) as store:
        for words in (b"BEGIN", b"INSERT INTO inbox"):
            proxy.fail_at(words, cut)
            assert await outcome_of(store, accept(words.decode())) is Outcome.RETURNED
        assert proxy.faults == 2
    async with await open_store(url) as store:
        assert sorted(await store.read(bodies())) == [("BEGIN",), ("INSERT INTO inbox",)]


async def test_a_cut_after_the_commit_does_not_do_it_again(proxy: Proxy, url: str) -> None:
    """When the connection goes back to the pool the work is done: a cut just then is nobody's failure."""
    async with await open_store(proxy.url) as store:
        await store.transact(accept("first"))
        proxy.fail_at(b"COMMIT;", Cut.ANSWERED)
        assert await outcome_of(store, accept("second")) is Outcome.RETURNED
        assert proxy.faults == 1
        await store.transact(accept("third"))
    async with await open_store(url) as store:
        assert sorted(await store.read(bodies())) == [("first",), ("second",), ("third",)]


# Wake-ups


async def watch(store: Store, wanted: int) -> None:
    """Listen, look, then wait, until everything has been seen."""
    with store.listen(turns.INBOX) as event:
        while True:
            event.clear()
            try:
                if len(await store.read(bodies())) >= wanted:
                    return
            except StoreUnavailable:  # The cut met this read.
                continue
            await event.wait()


async def test_no_wake_up_is_missed(url: str) -> None:
    async with await open_store(url) as one, await open_store(url) as other:
        watchers = [asyncio.create_task(watch(store, wanted)) for store in (one, other) for wanted in (1, 10, 20)]
        for number in range(20):
            await one.transact(accept(str(number)))
        await asyncio.wait_for(asyncio.gather(*watchers), PATIENCE)


async def test_no_wake_up_is_missed_across_cuts(proxy: Proxy, url: str) -> None:
    """What is written while the listener is deaf is seen when it hears again, though nothing more is written."""
    async with await open_store(url) as writing, await open_store(proxy.url) as listening:
        for number in range(1, 6):
            watcher = asyncio.create_task(watch(listening, number))
            await asyncio.sleep(0.05)
            proxy.cut()
            await writing.transact(accept(str(number)))
            await asyncio.sleep(0.1)
            proxy.mend()
            await asyncio.wait_for(watcher, PATIENCE)


@transaction
def notify(topic: str) -> Statements[None]:
    yield Notify(topic)


async def until_heard(store: Store, by: Store) -> None:
    """Say something until the other store hears it: then that listens, and has heard everything before it."""
    with by.listen("echo") as echo:
        while not echo.is_set():
            await store.transact(notify("echo"))
            await asyncio.sleep(0.01)


async def test_everybody_is_woken_after_a_reconnect(proxy: Proxy, url: str) -> None:
    async with await open_store(proxy.url) as store, await open_store(url) as other:
        with store.listen("one") as one, store.listen("two") as two:
            await until_heard(other, store)
            one.clear()
            two.clear()
            await until_heard(other, store)
            assert not one.is_set()
            assert not two.is_set()
            proxy.cut()
            proxy.mend()
            await asyncio.wait_for(asyncio.gather(one.wait(), two.wait()), PATIENCE)


async def test_a_rolled_back_work_wakes_nobody(url: str) -> None:
    @transaction
    def fail() -> Statements[None]:
        yield from accept("never")
        raise PalaverError

    async with await open_store(url) as store, await open_store(url) as other:
        await until_heard(store, other)
        with store.listen(turns.INBOX) as here, other.listen(turns.INBOX) as there:
            with pytest.raises(PalaverError):
                await store.transact(fail())
            await until_heard(store, other)
            assert not here.is_set()
            assert not there.is_set()
        assert await store.read(bodies()) == []


# Commits that wait


class Stall:
    """No standby answers: what is committed waits, and is not visible yet."""

    def __init__(self, observer: Any, probe: Any) -> None:
        self.observer = observer
        self._probe = probe

    async def waiting(self) -> int:
        return await self.observer.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND datname = current_database()"
        )

    async def seen(self) -> int:
        return await self.observer.fetchval("SELECT count(*) FROM inbox")

    async def begin(self) -> None:
        """Return when it has begun: the server takes a moment to read its settings."""
        await self.observer.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        await self.observer.execute("SELECT pg_reload_conf()")
        async with asyncio.timeout(PATIENCE):
            while True:
                probing = asyncio.create_task(self._probe.execute("SELECT pg_logical_emit_message(true, 'stall', '')"))
                while not (probing.done() or await self.waiting()):  # noqa: ASYNC110 - it is elsewhere
                    await asyncio.sleep(0.01)
                if not probing.done():
                    await self.observer.execute("SELECT pg_cancel_backend($1)", self._probe.get_server_pid())
                    await probing
                    return

    async def end(self) -> None:
        await self.observer.execute("ALTER SYSTEM RESET synchronous_standby_names")
        await self.observer.execute("SELECT pg_reload_conf()")


@pytest.fixture
async def stall(url: str) -> AsyncIterator[Stall]:
    observer, probe = await DRIVER.connect(url), await DRIVER.connect(url)
    await observer.execute("SET synchronous_commit = off")
    stall = Stall(observer, probe)
    try:
        yield stall
    finally:
        await stall.end()
        await observer.close()
        await probe.close()


async def test_a_commit_that_waits_for_a_standby_fails_no_other(
    url: str, stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a timeout end the wait: the commit would stay, without the standby, and count as done."""
    quick = "SET LOCAL lock_timeout = '20ms'; SET LOCAL statement_timeout = '50ms';"
    monkeypatch.setattr(postgres, "BEGIN_BATCH", f"BEGIN; {quick}")
    async with await open_store(url) as one, await open_store(url) as other:
        await asyncio.gather(until_heard(one, other), until_heard(other, one))
        await stall.begin()
        commits = [
            asyncio.create_task(store.transact(keyed(name, accept(name, user=name))))
            for store, name in ((one, "ann"), (other, "bob"))
        ]

        async def all_wait() -> bool:
            return await stall.waiting() == 2 or any(commit.done() for commit in commits)

        await until(all_wait)
        await stall.observer.execute("SELECT pg_sleep(0.2)")
        assert not any(commit.done() for commit in commits)
        await stall.end()
        await asyncio.wait_for(asyncio.gather(*commits), PATIENCE)
        assert len(await one.read(bodies())) == 2


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_commit_that_nobody_waits_for_any_more_is_not_shown_before_its_standby_has_it(
    url: str, stall: Stall, monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    """A cancelled commit would be: others would answer what a failover loses."""
    monkeypatch.setattr(postgres, "COMMIT_SECONDS", None if is_cancelled else 0.5)
    async with await open_store(url) as store, await open_store(url) as other:
        await asyncio.gather(until_heard(store, other), until_heard(other, store))  # nothing else commits any more
        await stall.begin()
        writing = asyncio.create_task(store.transact(accept("there")))
        await until(lambda: _is(stall.waiting, 1))
        if is_cancelled:
            writing.cancel()
        with pytest.raises(asyncio.CancelledError if is_cancelled else StoreUnavailable):
            await asyncio.wait_for(writing, PATIENCE)
        await stall.observer.execute("SELECT pg_sleep(0.2)")
        assert (await stall.waiting(), await stall.seen()) == (1, 0)
        await stall.end()
        await until(lambda: _is(stall.seen, 1))


async def _is(count: Callable[[], Awaitable[int]], wanted: int) -> bool:
    return await count() == wanted


async def test_a_request_waits_for_a_stall_once_and_the_next_one_not_at_all(
    url: str, stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 0.2)
    async with await open_store(url) as store, await open_store(url) as other:
        await asyncio.gather(until_heard(store, other), until_heard(other, store))  # nothing else commits any more
        await stall.begin()
        assert not store.is_stalled
        with answering_request(), pytest.raises(StoreUnavailable, match="may or may not"):
            async with asyncio.timeout(PATIENCE):
                await store.transact(accept("first"))
        assert store.is_stalled
        assert await stall.waiting() == 1  # it goes on
        await stall.observer.execute("SELECT pg_sleep(0.6)")
        with answering_request():
            with pytest.raises(StoreUnavailable, match="for a while"):
                await store.transact(accept("second"))
            assert await store.read(bodies()) == []
        assert await stall.waiting() == 1
        others = asyncio.create_task(store.transact(accept("not of a request", user="8")))
        await until(lambda: _is(stall.waiting, 2))
        await stall.end()
        await asyncio.wait_for(others, PATIENCE)
        async with asyncio.timeout(PATIENCE):
            while store.is_stalled:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert sorted(await store.read(bodies())) == [("first",), ("not of a request",)]


async def test_what_a_request_has_waited_for_counts_for_all_that_it_does_later(
    url: str, stall: Stall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "_PATIENCE_SECONDS", 3600.0)
    monkeypatch.setattr(postgres, "_SILENT_SECONDS", 0.2)
    async with await open_store(url) as store, await open_store(url) as other:
        await asyncio.gather(until_heard(store, other), until_heard(other, store))  # nothing else commits any more
        await stall.begin()
        with answering_request():
            waiting = waiting_of_request()
            assert waiting
            waiting.seconds = 3600.0
            with pytest.raises(StoreUnavailable, match="may or may not"):
                async with asyncio.timeout(PATIENCE):
                    await store.transact(accept("late"))
        await stall.end()


async def test_what_a_request_starts_is_no_request() -> None:
    async def starts() -> bool:
        return waiting_of_request() is None

    with answering_request():
        assert waiting_of_request() is not None
        assert await asyncio.create_task(starts())
    assert waiting_of_request() is None


async def test_a_commit_that_gets_no_lock_is_tried_again(url: str) -> None:
    observer = await DRIVER.connect(url)
    await observer.execute(
        """
        CREATE SEQUENCE tries;
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('tries') = 1 THEN RAISE EXCEPTION USING ERRCODE = 'lock_not_available'; END IF;
            RETURN NULL;
        END $$;
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON inbox DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION refuse();
        """
    )
    await observer.close()
    async with await open_store(url) as store:
        await store.transact(keyed("a", accept("there")))
        assert await store.read(bodies()) == [("there",)]


# Cancellation and conflicts


@transaction
def sleep_long(text: str) -> Statements[None]:
    """In a conversation of its own, so that none waits for another."""
    source = dm(text)
    yield from inbox.accept(Inbound(source=source, text=text, at=NOON), key_of(source), NOON)
    yield "SELECT pg_sleep(3600)", ()


async def other_states(connection: Any) -> list[str]:
    query = "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    return [row[0] for row in await connection.fetch(query)]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_long_statement_that_is_cancelled_rolls_back_and_leaves_a_clean_pool(url: str) -> None:
    observer = await DRIVER.connect(url)

    async def sleeps() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        return await observer.fetchval(query) == 12 - 2

    async def rests() -> bool:
        return set(await other_states(observer)) <= {"idle"}

    try:
        async with await open_store(url) as store:
            sleepers = [asyncio.create_task(store.transact(sleep_long(f"lost {n}"))) for n in range(12)]
            await until(sleeps)
            for sleeper in sleepers:
                sleeper.cancel()
            results = await asyncio.gather(*sleepers, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)
            await until(rests)
            await asyncio.gather(*(store.transact(accept(f"kept {n}")) for n in range(30)))
            texts = [row[0] for row in await store.read(bodies())]
            assert sorted(texts) == sorted(f"kept {n}" for n in range(30))
    finally:
        await observer.close()


async def test_a_cancelled_work_stays_cancelled_when_the_network_breaks(proxy: Proxy, url: str) -> None:
    """The connection is lost just when the work is taken back: that is no reason to try it again."""
    async with await open_store(proxy.url) as store:
        sleeper = asyncio.create_task(store.transact(sleep_long("lost")))
        observer = await DRIVER.connect(url)

        async def sleeps() -> bool:
            return "active" in await other_states(observer)

        await until(sleeps)
        proxy.fail_at(b"ROLLBACK;", Cut.UNHEARD)
        sleeper.cancel()
        await asyncio.wait([sleeper], timeout=PATIENCE)
        await observer.close()
        assert proxy.faults == 1
        assert sleeper.cancelled()
        await store.transact(accept("kept"))
        assert await store.read(bodies()) == [("kept",)]


@transaction
def take_both(first: str, second: str, text: str) -> Statements[None]:
    yield Lock(first)
    yield "SELECT pg_sleep(0.01)", ()
    yield Lock(second)
    yield from accept(text)


async def shorten_deadlocks(url: str) -> None:
    connection = await DRIVER.connect(url)
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '20ms'")
    await connection.close()


async def test_locks_in_opposite_order_never_block_for_good(url: str) -> None:
    await shorten_deadlocks(url)
    async with await open_store(url) as one, await open_store(url) as other:
        async with asyncio.timeout(PATIENCE):
            for number in range(10):
                forward = one.transact(take_both("a", "b", f"one {number}"))
                await asyncio.gather(forward, other.transact(take_both("b", "a", f"other {number}")))
        assert len(await one.read(bodies())) == 20


async def test_work_that_always_gives_way_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_FIRST_PAUSE_SECONDS", 0.001)

    @transaction
    def give_way() -> Statements[None]:
        yield from accept("never")
        yield "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'serialization_failure'; END $$", ()

    async with await open_store(url) as store:
        with pytest.raises(StoreUnavailable, match="rolled the transaction back 8 times, and nothing was written"):
            await store.transact(give_way())
        assert await store.read(bodies()) == []


async def test_a_wake_up_with_any_words_arrives(url: str) -> None:
    async with await open_store(url) as store, await open_store(url) as other:
        await until_heard(store, other)
        with other.listen("it's '; --") as event:
            await store.transact(notify("it's '; --"))
            await asyncio.wait_for(event.wait(), PATIENCE)


async def test_nothing_of_a_work_is_left_in_its_session(url: str) -> None:
    """Connections go from work to work as they are: none may keep a lock, a setting or a transaction."""
    observer = await DRIVER.connect(url)
    try:
        async with await open_store(url) as store:
            await asyncio.gather(*(World(store, worker=f"w{n}").exchange("hi", source=dm(str(n))) for n in range(20)))
            await store.search.find("hi", OPERATOR)
            assert set(await other_states(observer)) == {"idle"}
            assert await observer.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    finally:
        await observer.close()


async def test_two_clients_that_race_on_one_key_both_get_through(url: str) -> None:
    """Renaming takes the titles and then the session, resetting with a title the session and then the titles."""
    await shorten_deadlocks(url)
    key = key_of(dm())
    async with await open_store(url) as one, await open_store(url) as other:
        begun = await World(one).exchange("hello")
        async with asyncio.timeout(PATIENCE):
            for number in range(10):
                await asyncio.gather(
                    one.transact(sessions.reset(key, dm(), NOON, by="one", title="Plan")),
                    other.transact(titles.rename(begun.turn.session, f"Plan {number}", OPERATOR)),
                    other.transact(sessions.reset(key, dm(), NOON, by="other", title="Plan")),
                    one.transact(titles.rename(begun.turn.session, "Plan", OPERATOR)),
                )
        assert await one.read(violations()) == []


async def test_a_value_the_driver_refuses_is_no_outage(url: str) -> None:
    @transaction
    def too_large() -> Statements[None]:
        yield "SELECT 1 FROM inbox WHERE no = ?", (1 << 80,)

    async with await open_store(url) as store:
        with pytest.raises(Exception, match="range") as refused:
            await store.transact(too_large())
        assert not isinstance(refused.value, StoreUnavailable)
