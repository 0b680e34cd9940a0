"""Jobs and firings in the store: who sees them, who fires them, what becomes of a firing."""

from datetime import timedelta

import pytest

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.access import Basis
from palaver.model.errors import BadArgument, NotFound
from palaver.model.job import RunState
from palaver.model.session import ModelOverride, Principal
from palaver.model.turn import Outbound
from palaver.store.damage.invariants import find_broken
from palaver.store.queue import turns
from palaver.store.records import micros
from palaver.store.results import Begun
from palaver.store.search.search import Order
from palaver.store.status.invariants import DEADLINES, violations
from palaver.store.status.trace import find_traces
from palaver.store.store import Store
from tests.store.jobs import add_job, fire_due
from tests.store.world import LEASE, NEVER, NOON, OPERATOR, World, answer, dm, key_of

ANN, BOB = (Principal.speaking(dm(user)) for user in ("7", "8"))
HOUR = timedelta(hours=1)


@transaction
def _rows(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


async def _answer(store: Store, *, delivered: str = "delivered", error: str | None = None) -> None:
    """A worker answers what waits, and its reply gets this state."""
    for key in await store.read(store.inbox.list_ready(10)):
        begun = await store.transact(turns.begin(key, "w1", NOON, LEASE, NEVER))
        assert isinstance(begun, Begun)
        reply = Outbound(platform="telegram", chat_id="7", text="yes")
        await store.transact(turns.settle(begun.turn, [answer()], [reply], NOON, error=error, failure="fatal"))
    await store.transact(_rows(f"UPDATE outbox SET state = '{delivered}' WHERE state = 'due' RETURNING id"))  # noqa: S608


async def test_a_job_is_kept_as_it_was_made(store: Store) -> None:
    job = await add_job(
        store,
        "every 2h",
        "what is new?",
        targets="telegram:-100,local",
        name="News",
        repeats=3,
        attached=True,
        mirrors=True,
        model=ModelOverride(model="small", provider="p"),
        workdir="/srv",
        script="news.sh",
        uses_model=False,
        skips_silent=False,
    )
    assert await store.read(store.jobs.find("News", ANN)) == job
    assert (job.schedule.text, job.next_due) == ("every 2h from 2026-03-01T12:00:00Z", NOON + 2 * HOUR)
    assert (job.targets, job.repeats, job.attached, job.mirrors) == ("telegram:-100,local", 3, True, True)
    assert (job.model, job.workdir, job.script) == (ModelOverride(model="small", provider="p"), "/srv", "news.sh")
    assert (job.uses_model, job.skips_silent, job.state) == (False, False, "active")


async def test_people_see_their_own_jobs_and_the_operator_all(store: Store) -> None:
    mine, theirs = await add_job(store, "every 2h", "mine"), await add_job(store, "1h", "theirs", source=dm("8"))
    assert await store.read(store.jobs.list_jobs(ANN)) == [mine]
    assert await store.read(store.jobs.list_jobs(OPERATOR)) == [theirs, mine]
    assert await store.read(store.jobs.list_jobs(Principal())) == []
    for name in ("2", "theirs", "99999999999999999999", "no such job"):
        with pytest.raises(NotFound):
            await store.read(store.jobs.find(name, ANN))
    for change in (
        store.jobs.pause("2", ANN, NOON),
        store.jobs.resume("2", ANN, NOON),
        store.jobs.request_run("2", ANN, NOON),
        store.jobs.remove("2", ANN),
        store.firings.list_firings("2", ANN),
    ):
        with pytest.raises(NotFound):
            await store.transact(change)
    await add_job(store, "every 2h", "mine")
    with pytest.raises(BadArgument, match="Several jobs are called"):
        await store.read(store.jobs.find("mine", ANN))


async def test_one_worker_fires_and_the_message_is_there_once(store: Store) -> None:
    job, now = await add_job(store, "every 2h", basis=Basis.PLATFORM_ROLE), NOON + 2 * HOUR
    assert await store.read(store.firings.list_due(now - HOUR, 10)) == []
    assert await store.read(store.firings.list_due(now, 10)) == [job.number]
    fired = [await fire_due(store, job, now) for _ in range(3)]
    assert [each is None for each in fired] == [False, True, True]
    assert await store.read(store.firings.list_due(now, 10)) == []
    assert await store.read(store.firings.next_due()) == now + 2 * HOUR
    rows = await store.read(_rows("SELECT message_id, key, identity, state FROM inbox"))
    assert rows == [("job%3A1%3A2026-03-01T14%3A00%3A00Z", "agent:main::job:1", "telegram:7", "waiting")]
    message = await store.read(store.inbox.get_message(1, OPERATOR))
    assert message
    assert (message.role, message.basis) == (job.role, Basis.PLATFORM_ROLE), "it runs with the rights of its owner"
    assert await store.read(violations()) == []


async def test_run_and_delivery_have_results_of_their_own(store: Store) -> None:
    results: list[tuple[RunState, str]] = []
    for count, (delivered, error) in enumerate(
        [("delivered", None), ("dead", None), ("unclear", "it said SECRET")], start=1
    ):
        job = await store.read(store.jobs.get(1)) or await add_job(store, "every 2h")
        await fire_due(store, job, NOON + count * 2 * HOUR)
        waiting = (await store.read(store.firings.list_firings("1", ANN)))[0]
        assert (waiting.run, waiting.deliveries) == (RunState.WAITING, ())
        await _answer(store, delivered=delivered, error=error)
        newest = (await store.read(store.firings.list_firings("1", ANN)))[0]
        results.append((newest.run, newest.delivery))
    assert results == [
        (RunState.DONE, "delivered"),
        (RunState.DONE, "dead"),
        (RunState.FAILED, "unclear"),
    ]
    # Only the operator sees what an agent said when it failed.
    seen = [(await store.read(store.firings.list_firings("1", each)))[0].reason for each in (ANN, OPERATOR)]
    assert seen == ["fatal", "it said SECRET"]
    last = await store.read(store.firings.last_firings([await add_job(store, "1h")], ANN))
    assert last == {}


async def test_while_a_run_waits_another_is_not_added(store: Store) -> None:
    job = await add_job(store, "every 2h")
    await fire_due(store, job, NOON + 2 * HOUR)
    again = await store.read(store.jobs.get(job.number))
    assert again
    fired = await fire_due(store, again, NOON + 4 * HOUR)
    assert fired
    assert fired.message is None
    newest = (await store.read(store.firings.list_firings("1", ANN)))[0]
    assert (newest.run, newest.reason) == (RunState.SKIPPED, "the run before it has not begun")
    assert await store.read(violations()) == []


async def test_a_job_ends_after_its_runs(store: Store) -> None:
    for when, runs in (("30m", 1), ("every 2h", 3)):
        job = await add_job(store, when, when, repeats=None if when == "30m" else runs)
        fired = 0
        while (current := await store.read(store.jobs.get(job.number))) and current.next_due:
            fired += (await fire_due(store, current, current.next_due)) is not None
            await _answer(store)
        assert fired == runs
    assert await store.read(store.jobs.list_jobs(ANN)) == []
    assert [job.state for job in await store.read(store.jobs.list_jobs(ANN, ended=True))] == ["ended", "ended"]
    assert await store.read(store.jobs.count_active(["telegram:7"])) == 0


async def test_a_paused_job_does_not_fire_and_resumes_with_its_next_time(store: Store) -> None:
    job = await add_job(store, "every 2h")
    await store.transact(store.jobs.pause("1", ANN, NOON))
    assert await store.read(store.firings.list_due(NOON + 9 * HOUR, 10)) == []
    assert await fire_due(store, job, NOON + 2 * HOUR) is None
    assert await store.read(store.firings.next_due()) is None
    resumed = await store.transact(store.jobs.resume("1", ANN, NOON + 9 * HOUR))
    assert (resumed.paused, resumed.next_due) == (None, NOON + 10 * HOUR)
    once = await add_job(store, "1h")
    await store.transact(store.jobs.pause("2", ANN, NOON))
    assert (await store.transact(store.jobs.resume("2", ANN, NOON + 2 * HOUR))).next_due is None
    with pytest.raises(BadArgument, match="has ended"):
        await store.transact(store.jobs.resume(str(once.number), ANN, NOON))


async def test_only_the_pause_of_a_job_that_was_not_paused_says_whose_it_is(store: Store) -> None:
    job = await add_job(store, "every 2h", name="News")
    assert await store.transact(store.jobs.pause_unreadable(1, NOON)) == ("News", job.origin)
    await store.transact(store.jobs.request_run("1", ANN, NOON + HOUR))
    assert await store.transact(store.jobs.pause_unreadable(1, NOON + HOUR)) is None
    paused = await store.read(store.jobs.get(1))
    assert paused
    assert (paused.paused, paused.requested) == (NOON, None)


async def test_a_job_whose_origin_cannot_be_read_is_paused(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    await add_job(store, "every 2h")
    await store.transact(_rows("UPDATE schedules SET origin = '[' WHERE no = 1 RETURNING no"))
    assert await store.transact(store.jobs.pause_unreadable(1, NOON)) is None
    assert await store.read(_rows("SELECT paused IS NOT NULL FROM schedules")) in ([(1,)], [(True,)])
    assert caplog.records == [], "nothing is left out"


async def test_a_firing_that_waits_does_not_run_after_a_pause(store: Store) -> None:
    await fire_due(store, await add_job(store, "every 2h"), NOON + 2 * HOUR)
    await store.transact(store.jobs.pause("1", ANN, NOON + 2 * HOUR))
    (firing,) = await store.read(store.firings.list_firings("1", ANN))
    assert (firing.run, firing.reason) == (RunState.SKIPPED, "its job was paused")
    assert await store.read(_rows("SELECT 1 FROM ready_queue")) == []
    assert await store.read(violations()) == []


async def test_a_run_besides_the_schedule_changes_nothing_of_it(store: Store) -> None:
    job = await add_job(store, "every 2h", repeats=1)
    await store.transact(store.jobs.pause("1", ANN, NOON))
    await store.transact(store.jobs.request_run("1", ANN, NOON + HOUR))
    assert await store.read(store.firings.list_due(NOON + HOUR, 10)) == [job.number]
    asked = await store.read(store.jobs.get(1))
    assert asked
    assert [await fire_due(store, asked, NOON + HOUR) is None for _ in range(2)] == [False, True]
    after = await store.read(store.jobs.get(1))
    assert after
    assert (after.requested, after.next_due, after.repeats, after.state) == (None, NOON + 2 * HOUR, 1, "paused")
    assert [firing.at for firing in await store.read(store.firings.list_firings("1", ANN))] == [NOON + HOUR]
    soon = NOON + HOUR + timedelta(seconds=59)
    merged = await store.transact(store.jobs.request_run("1", ANN, soon))
    assert merged.requested == NOON + HOUR, "the run that waits is the one"
    assert await store.read(store.firings.list_due(soon, 10)) == []
    await _answer(store)
    with pytest.raises(BadArgument, match="ran less than a minute ago"):
        await store.transact(store.jobs.request_run("1", ANN, soon))
    await store.transact(store.jobs.request_run("1", ANN, soon + timedelta(seconds=1)))


async def test_a_removed_job_leaves_nothing_that_would_run(store: Store) -> None:
    await fire_due(store, await add_job(store, "every 2h"), NOON + 2 * HOUR)
    await store.transact(store.jobs.remove("1", ANN))
    assert await store.read(_rows("SELECT state, reason FROM inbox")) == [("done", "its job was removed")]
    assert await store.read(_rows("SELECT 1 FROM firings UNION ALL SELECT 1 FROM ready_queue")) == []
    assert await store.read(violations()) == []


async def test_only_the_newest_firings_are_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.store.jobs.firings.KEPT_FIRINGS", 3)
    job = await add_job(store, "every 2h")
    for count in range(1, 6):
        current = await store.read(store.jobs.get(job.number))
        assert current
        await fire_due(store, current, NOON + count * 2 * HOUR)
        await _answer(store)
    firings = await store.read(store.firings.list_firings("1", ANN))
    assert [firing.at for firing in firings] == [NOON + count * 2 * HOUR for count in (5, 4, 3)]
    for count in range(6, 12):  # The first of them waits, so the others are skipped.
        current = await store.read(store.jobs.get(job.number))
        assert current
        await fire_due(store, current, NOON + count * 2 * HOUR)
    firings = await store.read(store.firings.list_firings("1", ANN))
    assert [firing.at for firing in firings] == [NOON + count * 2 * HOUR for count in (11, 10, 9, 6)]


async def test_a_list_begins_with_active_jobs_and_the_newest_and_goes_on_after_any(store: Store) -> None:
    for when in ("1h", "every 2h", "2h", "every 4h", "every 6h"):
        job = await add_job(store, when, when)
        if not when.startswith("every"):
            await fire_due(store, job, NOON + 2 * HOUR)
            await _answer(store)
    listed, after = list[int](), 0
    while page := await store.read(store.jobs.list_jobs(ANN, ended=True, after=after, limit=2)):
        listed += [job.number for job in page]
        after = listed[-1]
    assert listed == [5, 4, 2, 3, 1]
    again = await add_job(store, "every 2h", "1h")
    assert await store.read(store.jobs.find("1h", ANN)) == again, "not the one that has ended"


async def test_jobs_that_have_ended_are_kept_for_a_while(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for hours in (1, 2, 3):
        await fire_due(store, await add_job(store, f"{hours}h", str(hours)), NOON + hours * HOUR)
        await _answer(store)
    await add_job(store, "every 2h", "regular")
    for before, left in ((NOON + HOUR, 4), (NOON + 2 * HOUR, 3), (NOON + 2 * HOUR, 3)):
        await store.transact(store.jobs.drop_ended(before))
        assert len(await store.read(store.jobs.list_jobs(ANN, ended=True))) == left
    monkeypatch.setattr("palaver.store.jobs.jobs.KEPT_ENDED", 1)
    await store.transact(store.jobs.trim_ended(["telegram:7"]))
    names = {job.name for job in await store.read(store.jobs.list_jobs(ANN, ended=True))}
    assert names == {"3", "regular"}
    await store.transact(store.jobs.request_run("3", ANN, NOON + 9 * HOUR))
    monkeypatch.setattr("palaver.store.jobs.jobs.KEPT_ENDED", 0)
    await store.transact(store.jobs.trim_ended(["telegram:7"]))
    await store.transact(store.jobs.drop_ended(NOON + 99 * HOUR))
    assert await store.read(store.jobs.get(3)), "it is to run once more"
    assert await store.read(violations()) == []


async def test_the_conversation_of_a_job_is_its_own_and_not_listed(store: Store) -> None:
    world = World(store)
    await world.exchange("hello", "hi", dm())
    before = await store.read(_rows("SELECT last_human FROM sessions WHERE no = 1"))
    await fire_due(store, await add_job(store, "every 2h", "what is new?"), NOON + 2 * HOUR)
    await _answer(store)
    rows = await store.read(_rows("SELECT key, title, owner, schedule_no FROM sessions WHERE no = 2"))
    assert rows == [("agent:main::job:1", "what is new?", "telegram:7", 1)]
    listed = await store.read(store.session_list.recent_sessions(ANN, 10))
    assert [preview.session.number for preview in listed] == [1]
    assert len((await store.read(store.session_list.list_sessions(ANN))).previews) == 2
    assert await store.read(_rows("SELECT last_human FROM sessions WHERE no = 1")) == before
    # Anyone who goes on with it elsewhere makes it a conversation like any other.
    session = await store.read(store.sessions.open_by_key((await store.read(store.jobs.find("1", ANN))).key))
    assert session
    here = dm("7", thread_id="t")
    await store.transact(store.sessions.switch(key_of(here), here, session.id, ANN, NOON, by="telegram:7"))
    assert await store.read(_rows("SELECT schedule_no FROM sessions WHERE no = 2")) == [(None,)]


async def test_what_people_said_is_found_before_what_jobs_said(store: Store) -> None:
    world = World(store)
    await world.exchange("the harvest was good", "yes", dm())
    for count in (1, 2):
        job = await store.read(store.jobs.get(1)) or await add_job(store, "every 2h", "how is the harvest?")
        await fire_due(store, job, NOON + count * 2 * HOUR)
        await _answer(store)
    for order in ("newest", "best"):
        hits = await store.search.find("harvest", ANN, order=Order(order), limit=10)
        said = [hit.entry.text for hit in hits if hit.entry]
        assert said == ["the harvest was good", *["how is the harvest?"] * 2]
        assert [hit.entry is None for hit in hits] == [False, False, False, True], "the title of the job is last"
        assert len(await store.search.find("harvest", ANN, order=Order(order), limit=2)) == 2


async def test_a_job_is_traced_and_an_overdue_one_found(store: Store) -> None:
    job = await add_job(store, "every 2h")
    await fire_due(store, job, NOON + 2 * HOUR)
    await _answer(store)
    (trace,) = await store.read(find_traces("job:1", ANN))
    inbound = trace.messages[0].inbound
    assert inbound
    assert inbound.job == job.fired
    assert trace.turn
    with pytest.raises(NotFound):
        await store.read(find_traces("job:1", BOB))
    await store.transact(store.accounts.acquire("telegram", None, "w1", NOON, 99 * HOUR))
    late = await store.read(find_broken(DEADLINES, micros(NOON + 5 * HOUR)))
    assert [each.examples for each in late if "no job" in each.invariant.sentence] == [("job:1",)]


async def test_a_new_name_of_a_person_is_the_owner_of_their_jobs(store: Store) -> None:
    await add_job(store, "every 2h")
    await store.transact(store.aliases.learn("telegram", "7", "70", NOON))
    assert [job.owner for job in await store.read(store.jobs.list_jobs(OPERATOR))] == ["telegram:70"]
