"""Scheduled jobs from /jobs to the delivered answer: targets, rights, failures, scripts."""

import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.engine.jobs.scripts import Scripts
from palaver.model.access import AccessRole, Grant
from palaver.model.errors import BadArgument, Unreadable
from palaver.model.key import ScopedSetting
from palaver.model.platform import Platform
from palaver.model.quotas import Quota, QuotaKind, QuotaRules
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.split import CUT
from palaver.model.turn import outbound_to
from palaver.platforms.local.adapter import LocalAdapter
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import Event, Failure, FailureKind, Final, Request
from palaver.store.queue.welcome import FIRST_CONTACT_NOTE
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person
from palaver.tools.toolsets import Toolsets
from tests.engine.agents import Scripted, Slow, heard, noted
from tests.engine.gateway import Bench, MovableClock, running, until

OWNER = (Grant(platform="fake", role=AccessRole.OWNER), Grant(platform="other", role=AccessRole.OWNER))
MEMBER = (Grant(platform="fake", role=AccessRole.MEMBER),)
OPERATOR = Principal.operator()
SOON = timedelta(milliseconds=20)


@dataclass(frozen=True)
class Talk:
    """Alice and her jobs, on a clock that the test moves on."""

    here: Bench
    clock: MovableClock
    chat: Chat
    alice: Person
    other: FakePlatform

    async def ask(self, text: str) -> str:
        before = len(self.chat.shown)
        await self.chat.say(self.alice, text)
        return (await self.chat.hears("", times=before + 1)).text

    async def later(self, **span: float) -> None:
        """Time passes, and what is due is done."""
        self.clock.later(**span)
        await until(self.nothing_is_due)
        await self.here.settled()

    async def nothing_is_due(self) -> bool:
        return not await self.here.store.read(self.here.store.firings.list_due(self.clock.now(), 1))

    def texts(self) -> list[str]:
        return [message.text for message in self.chat.shown]


@asynccontextmanager
async def talking(
    path: Path,
    *,
    before: Talk | None = None,
    world: FakePlatform | None = None,
    scripts: Scripts | None = None,
    **changed: object,
) -> AsyncGenerator[Talk]:
    """A gateway with two platforms and files; one that goes on after another has been dropped, as by a crash."""
    clock = before.clock if before else MovableClock()
    world, other = (before.here.world, before.other) if before else (world or FakePlatform(), FakePlatform())
    adapters = [
        FakeAdapter(world),
        FakeAdapter(other, platform=Platform(name="other", title="Other")),
        LocalAdapter(path / "output"),
    ]
    chosen: dict[str, object] = {"grants": OWNER, "poll": SOON, "adapters": adapters, **changed}
    alice = before.alice if before else world.person("alice")
    async with running(
        path / "palaver.db",
        world,
        clock=clock,
        worker=uuid4().hex,
        scripts=scripts,
        **chosen,  # pyright: ignore[reportArgumentType]
    ) as here:
        yield Talk(here, clock, before.chat if before else world.dm(alice), alice, other)


async def test_a_reminder_comes_once_and_in_a_conversation_of_its_own(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        assert (await talk.ask("/jobs add 30m Call Ann")).startswith("Job 1 “Call Ann” runs once, next ")
        await talk.later(minutes=29)
        assert talk.texts()[1:] == []
        await talk.later(minutes=2)
        assert talk.texts()[1:] == ["You said: Call Ann"]
        await talk.later(days=2)
        assert talk.texts()[1:] == ["You said: Call Ann"]
        assert "done, delivered" in await talk.ask("/jobs --all")
        assert await talk.here.rows("SELECT key, schedule_no FROM sessions") == [("agent:main::job:1", 1)]
        assert await talk.ask("/jobs") == "You have no jobs. /jobs add 30m Call Ann makes one."


async def test_a_demoted_person_can_still_see_and_stop_their_own_jobs_and_no_others(tmp_path: Path) -> None:
    guest = (Grant(platform="fake", role=AccessRole.GUEST),)
    async with talking(tmp_path, grants=MEMBER) as talk:
        await talk.ask("/jobs add every 2h news")
        await talk.ask("/jobs add every 3h weather")
        await talk.here.store.transact(_hand_over(2))
    async with talking(tmp_path, before=talk, grants=guest, command_roles={"jobs": AccessRole.ADMIN}) as talk:
        assert (await talk.ask("/jobs")).startswith("1 “news”: every 2 hours")
        assert "news" in await talk.ask("/jobs show 1")
        for refused in ("add every 2h more", "resume 1", "run 1"):
            assert (await talk.ask(f"/jobs {refused}")).startswith("/jobs needs the admin role.")
        assert (await talk.ask("/jobs remove 2")).startswith("There is no job")
        assert await talk.ask("/jobs pause 1") == "Job 1 “news” is paused."
        assert await talk.ask("/jobs remove 1") == "Job 1 “news” is removed."


@transaction
def _hand_over(job: int) -> Statements[None]:
    yield "UPDATE schedules SET owner = 'fake:bob' WHERE no = ?", (job,)


async def test_a_long_answer_is_sent_to_many_chats_as_far_as_a_turn_can(tmp_path: Path) -> None:
    async def script(_: Request) -> AsyncGenerator[Event]:
        yield Final(text="\n".join(f"line {number} {'x' * 80}" for number in range(100)))

    world, agent = FakePlatform(), Scripted(script)
    adapters = [FakeAdapter(world, limits=Limits(text=100 + len(CUT)))]
    async with talking(tmp_path, world=world, adapters=adapters, agent=agent) as talk:
        chats = [world.group(f"Group {number}", talk.alice) for number in range(25)]
        await talk.ask(f"/jobs add 30m Tell everybody --to {','.join(f'fake:{chat.id}' for chat in chats)}")
        await talk.later(minutes=31)
        assert len(agent.requests) == 1
        for chat in chats:
            assert chat.shown[0].text.startswith("line 0 ")
            assert chat.shown[-1].text == CUT


async def test_the_agent_learns_that_it_is_a_job_and_can_be_silent(tmp_path: Path) -> None:
    async def script(request: Request) -> AsyncGenerator[Event]:
        yield Final(text="[SILENT] nothing new" if "quiet" in heard(request) else "news!")

    agent = Scripted(script)
    async with talking(tmp_path, agent=agent) as talk:
        await talk.ask("/jobs add every 2h be quiet")
        await talk.ask("/jobs add every 2h be quiet --always --name loud")
        await talk.ask("/jobs add every 2h tell me")
        await talk.later(hours=2, minutes=1)
        assert sorted(talk.texts()[3:]) == ["[SILENT] nothing new", "news!"]
        told = {heard(request): noted(request) for request in agent.requests}
        assert "job 3 runs now as scheduled; nobody is waiting for the answer. Answer [SILENT]" in told["tell me"]
        assert ["Answer [SILENT]" in noted(request) for request in agent.requests].count(False) == 1
        shown = await talk.ask("/jobs show 1")
        assert "done, nothing sent" in shown


async def test_an_attached_job_runs_in_the_conversation_and_extends_no_idle_time(tmp_path: Path) -> None:
    idle = ScopedSetting(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=600))
    async with talking(tmp_path, resets=idle) as talk:
        await talk.ask("hello")
        before = await talk.here.rows("SELECT last_human FROM sessions WHERE no = 1")
        await talk.ask("/jobs add every 2h what is new? --here")
        for _ in range(3):
            await talk.later(hours=2, minutes=1)
        assert talk.texts()[2:] == ["You said: what is new?"] * 3
        assert await talk.here.rows("SELECT no, last_human FROM sessions") == [(1, before[0][0])]
        await talk.later(hours=6)  # Idle since the hello, although the job ran all the time.
        assert len(await talk.here.rows("SELECT no FROM sessions")) == 2


async def test_an_answer_goes_to_every_target_and_into_a_file(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        bob = talk.other.person("bob")
        there, room = talk.other.dm(bob), talk.other.group("room")
        await there.say(bob, "/sethome")
        await there.hears("home channel")
        await there.say(bob, "hello")
        await there.hears("You said: hello")
        said = await talk.ask(f"/jobs add 1h news --to other,other:{room.id},local,origin --mirror --name Öl/../x")
        assert "once" in said
        await talk.later(hours=1, minutes=1)
        for chat in (there, room, talk.chat):
            await chat.hears("You said: news")
        (file,) = [path for path in (tmp_path / "output").rglob("*") if path.is_file()]
        assert file.read_text() == "You said: news\n"
        assert file.relative_to(tmp_path / "output").parts[1] == "ol-x"
        assert file.name.startswith("2026-01-01T")
        assert "done, delivered" in await talk.ask("/jobs show 1")
        # The agent in the other chat knows what it said there.
        session = (await talk.here.rows("SELECT id FROM sessions WHERE platform = 'other' AND schedule_no IS NULL"))[0][
            0
        ]
        assert (await talk.here.texts(session))[-1] == "You said: news"


async def test_where_nothing_can_be_sent_is_refused_when_the_job_is_made(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        for target, problem in {
            "matrix": "Unknown target 'matrix'",
            "other": "Nothing can be sent to 'other'",
            "all": "Nothing can be sent to 'all'",
            "local:x": "names no chat",
        }.items():
            assert problem in await talk.ask(f"/jobs add 1h news --to {target}")
        assert "is not a schedule" in await talk.ask("/jobs add soon call Ann")
        assert "needs a prompt" in await talk.ask("/jobs add every 2h")
        assert "is not 1m or more" in await talk.ask('/jobs add "every 20s" call Ann')
        assert "no model called 'huge'" in await talk.ask("/jobs add 1h call Ann --model huge")
        assert await talk.ask("/jobs show 9") == "There is no job '9' that you can see. /jobs lists yours."
        assert await talk.here.rows("SELECT no FROM schedules") == []


async def test_jobs_of_the_same_name_are_numbered_and_a_run_that_waits_is_mentioned(tmp_path: Path) -> None:
    async with talking(tmp_path, agent=(agent := Slow())) as talk:
        assert (await talk.ask("/jobs add every 2h x --name news")).startswith("Job 1 “news” runs")
        assert (await talk.ask("/jobs add every 2h y --name news")).startswith("Job 2 “news 2” runs")
        assert (await talk.ask("/jobs show news 2")).startswith("2 “news 2”")
        assert await talk.ask("/jobs run news") == "Job 1 “news” runs now."
        await until(lambda: bool(agent.requests))
        talk.clock.later(hours=2, minutes=1)
        await until(talk.nothing_is_due)
        assert "already has a run that waits to begin" in await talk.ask("/jobs run news")
        assert "Did you mean /jobs remove?" in await talk.ask("/jobs delete 1")
        assert "Did you mean /jobs resume?" in await talk.ask("/jobs resum 1")
        agent.go.set()


async def test_a_dry_run_shows_the_next_times_on_the_clock_of_the_chat_and_makes_nothing(tmp_path: Path) -> None:
    zone = ZoneInfo("Asia/Tokyo")
    async with talking(tmp_path, zones=ScopedSetting(default=zone)) as talk:
        shown = (await talk.ask("/jobs add 0 9 * * MON-FRI report --dry-run --repeat 3")).splitlines()
        assert shown[0] == "“report” would run at 09:00 on Monday through Friday in Asia/Tokyo, 3 times, to this chat:"
        nine = talk.clock.now().astimezone(zone).replace(hour=9, minute=0)  # of the day by the clock of the loop
        days = [nine + timedelta(days=day) for day in range(7)]
        wanted = [day for day in days if day > talk.clock.now() and day.weekday() < 5][:3]
        assert shown[1:] == [f"{day:%a %Y-%m-%d %H:%M} JST" for day in wanted]
        assert await talk.here.rows("SELECT no FROM schedules") == []


# Rights


async def test_members_send_only_to_their_own_chat_and_have_a_number_of_jobs(tmp_path: Path) -> None:
    async with talking(tmp_path, grants=MEMBER, jobs_per_person=2) as talk:
        assert "needs the admin role" in await talk.ask("/jobs add 1h news --to local")
        assert "needs the admin role" in await talk.ask("/jobs add 1h news --script x.sh")
        assert "needs the admin role" in await talk.ask("/jobs add 1h news --dir /srv")
        for count in (1, 2):
            assert f"Job {count}" in await talk.ask("/jobs add every 2h news")
        assert await talk.ask("/jobs add every 2h news") == "You already have 2 jobs. Remove one first."
        await talk.ask("/jobs remove 1")
        assert "Job 3" in await talk.ask("/jobs add every 2h news")
        bob = talk.here.world.person("bob")
        theirs = talk.here.world.dm(bob)
        for text in ("/jobs show 2", "/jobs pause 2", "/jobs run 2", "/jobs remove 2"):
            before = len(theirs.shown)
            await theirs.say(bob, text)
            assert "no job '2'" in (await theirs.hears("", times=before + 1)).text
        await theirs.say(bob, "/jobs --all")
        await theirs.hears("You have no jobs.")


async def test_a_job_runs_with_what_its_owner_can_do_when_it_fires(tmp_path: Path) -> None:
    admin = Grant(platform="fake", role=AccessRole.ADMIN)
    async with talking(tmp_path, grants=(admin,)) as talk:
        await talk.ask("/jobs add every 2h news --to local")
        await talk.later(hours=2, minutes=1)
        assert len([*(tmp_path / "output").rglob("*.md")]) == 1
    async with talking(tmp_path, before=talk, grants=MEMBER) as talk:  # no admin any more
        await talk.later(hours=2)
        assert talk.texts()[1] == (
            "The job “news” did not run: it cannot send to local (needs the admin role)."
            " /jobs show 1 shows where it sends."
        )
        assert len([*(tmp_path / "output").rglob("*.md")]) == 1
    async with talking(tmp_path, before=talk, grants=()) as talk:  # no access at all
        await talk.later(hours=2)
        assert len(talk.texts()) == 2
        firing = (await talk.here.store.read(talk.here.store.firings.list_firings("1", OPERATOR)))[0]
        assert (firing.run, firing.delivery) == ("refused", "nothing sent")


async def test_an_answer_goes_only_where_the_owner_of_the_job_can_send_when_it_is_ready(tmp_path: Path) -> None:
    async with talking(tmp_path, grants=MEMBER, agent=(agent := Slow())) as talk:
        store, admin = talk.here.store, Grant(platform="fake", user_id=talk.alice.id, role=AccessRole.ADMIN)
        number = await store.transact(store.grants.add(admin, talk.clock.now(), by="test"))
        await talk.ask("/jobs add 2h news --to local,origin")
        talk.clock.later(hours=2, minutes=1)
        await until(lambda: bool(agent.requests))
        await store.transact(store.grants.remove(number, talk.clock.now(), by="test", force=True))
        agent.go.set()
        await talk.chat.hears("cannot reach every target: local (needs the admin role).")
        await talk.here.settled()
        assert len(talk.texts()) == 3, "the answer came too"
        assert [*(tmp_path / "output").rglob("*.md")] == []


async def test_a_job_is_paid_by_its_owner(tmp_path: Path) -> None:
    caps = QuotaRules(caps={QuotaKind.PERSON_DAY: Quota(tokens=1)})
    async with talking(tmp_path, caps=caps) as talk:
        await talk.ask("/jobs add every 2h news about everything there is")
        for _ in range(3):
            await talk.later(hours=2, minutes=1)
        notices = [text for text in talk.texts()[1:] if "did not run" in text]
        assert len(talk.texts()[1:]) == 2
        assert len(notices) == 1
        assert "because of your daily limit" in notices[0]


async def test_in_a_group_only_jobs_of_that_chat_are_shown(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add every 2h my secret")
        group = talk.here.world.group("friends")
        await group.say(talk.alice, "/jobs add every 2h for all")
        await group.hears("Job 2")
        for text in ("/jobs", "/jobs --all"):
            before = len(group.shown)
            await group.say(talk.alice, text)
            shown = (await group.hears("", times=before + 1)).text
            assert "for all" in shown
            assert "secret" not in shown
        await group.say(talk.alice, "/jobs show 1")
        await group.hears("no job '1'")


# Failures


async def test_a_failed_run_is_reported_once_an_hour_and_names_the_job(tmp_path: Path) -> None:
    async def script(request: Request) -> AsyncGenerator[Event]:
        del request
        yield Failure(kind=FailureKind.FATAL, detail="it said SECRET")

    async with talking(tmp_path, agent=Scripted(script)) as talk:
        talk.clock.later(minutes=60 - talk.clock.now().minute)  # all within one hour of the clock
        await talk.ask("/jobs add every 10m news")
        for _ in range(3):
            await talk.later(minutes=10, seconds=5)
        notice = "The job “news” failed: the agent could not answer. /jobs show 1 shows its last runs."
        assert talk.texts()[2:] == [notice]
        assert talk.texts()[1].startswith("The agent failed."), "once a day, in the only chat of the owner"
        await talk.later(hours=1)
        assert talk.texts()[2:] == [notice] * 2
        assert "SECRET" not in "".join(talk.texts())


async def test_a_target_that_is_gone_is_reported_and_the_rest_is_sent(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        bob = talk.other.person("bob")
        there = talk.other.dm(bob)
        await there.say(bob, "/sethome")
        await there.hears("home channel")
        gone = talk.other.group("gone")
        talk.clock.later(minutes=60 - talk.clock.now().minute)  # all within one hour of the clock
        await talk.ask(f"/jobs add every 20m news --to other,local,other:{gone.id}")
        await talk.here.store.transact(_forget_homes())
        store, lost = talk.here.store, Source(platform="other", account="bot", chat_kind="group", chat_id=gone.id)
        await store.transact(store.accounts.mark_chat_gone(outbound_to(lost, ""), talk.clock.now(), "kicked"))
        for _ in range(2):
            await talk.later(minutes=20, seconds=5)
        assert len([*(tmp_path / "output").rglob("*.md")]) == 2
        assert talk.texts()[1:] == [
            (
                "The job “news” cannot reach every target: other (there is no home channel), "
                f"other:{gone.id} (the chat is gone or the bot was removed from it). /jobs show 1 shows where it sends."
            )
        ]


async def test_a_job_whose_target_stays_dead_pauses_and_says_so(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        gone, there = talk.other.group("gone"), talk.other.group("there")
        await talk.ask(f"/jobs add every 20m news --to other:{gone.id}")
        await talk.ask(f"/jobs add every 20m rest --to other:{gone.id},other:{there.id}")
        gone.gone = True
        for _ in range(5):
            await talk.later(minutes=20, seconds=5)
        reach = "I paused the job “news” because its last 3 answers reached no chat."
        assert [text.partition(" /jobs")[0] for text in talk.texts() if "paused" in text] == [reach]
        assert await talk.here.rows("SELECT name, paused IS NULL FROM schedules ORDER BY no") == [
            ("news", False),
            ("rest", True),
        ]
        assert await talk.here.rows("SELECT count(*) FROM firings WHERE schedule_no = 1") == [(3,)]
        gone.gone = False
        await talk.ask("/jobs resume news")
        for _ in range(3):
            await talk.later(minutes=20, seconds=5)
        assert [each.text for each in gone.shown].count("You said: news") >= 2


async def test_what_happens_to_a_job_in_a_dead_chat_is_told_where_its_owner_is(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        dead = talk.other.dm(talk.alice)
        await dead.say(talk.alice, "/jobs add every 20m news")
        await dead.hears("Job 1")
        dead.gone = True
        await talk.ask("/whoami")  # the only thing that the owner has said in the other chat
        for _ in range(3):
            await talk.later(minutes=20, seconds=5)
        assert any("I paused the job “news”" in text for text in talk.texts())


async def test_a_home_channel_at_an_account_that_is_gone_is_reported(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        for world in (talk.here.world, talk.other):
            there = world.dm(person := world.person("carol"))
            await there.say(person, "/sethome")
            await there.hears("home channel")
        await talk.ask("/jobs add every 2h news --to all")
    only = [FakeAdapter(talk.here.world)]
    async with talking(tmp_path, before=talk, adapters=only) as talk:
        await talk.later(hours=2, minutes=1)
        assert "cannot reach every target: all (this gateway no longer has the account other:bot)." in talk.texts()[-1]


@transaction
def _forget_homes() -> Statements[None]:
    yield "DELETE FROM home_channels", ()


async def test_what_was_missed_runs_once_if_it_is_not_too_old(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add every 1h news")
        await talk.ask("/jobs add 30m Call Ann")
        await talk.here.settled()
    talk.clock.later(hours=5, minutes=30)
    async with talking(tmp_path, before=talk) as talk:
        await talk.later()
        assert sorted(talk.texts()[2:]) == ["You said: Call Ann", "You said: news"]


async def test_a_reminder_that_comes_too_late_is_reported_and_a_missed_repetition_is_not(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add every 24h news")
        await talk.ask("/jobs add 30m Call Ann about the long letter --name Letter")
        await talk.here.settled()
    talk.clock.later(hours=40)
    async with talking(tmp_path, before=talk) as talk:
        await talk.later()
        assert talk.texts()[2:] == [
            "I was away when the job “Letter” was due, so it did not run.\nCall Ann about the long letter"
        ]
        skipped = (await talk.here.store.read(talk.here.store.firings.list_firings("1", OPERATOR)))[0]
        assert (skipped.run, skipped.reason) == ("skipped", "the gateway was away")


async def test_a_job_that_cannot_be_read_holds_up_no_other(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add every 1h broken")
        await talk.ask("/jobs add every 1h sound")
        await talk.here.store.transact(_break_first())
        await talk.later(hours=1, minutes=1)
        paused, answer = sorted(talk.texts()[2:])
        assert paused.startswith("I paused the job “broken” because it could not start. `palaver doctor` and the log")
        assert paused.endswith("Once that is fixed, /jobs resume 1 lets it run again.")
        assert answer == "You said: sound"
        assert await talk.here.rows("SELECT paused IS NOT NULL FROM schedules ORDER BY no") == [(1,), (0,)]


async def test_each_pause_of_a_job_that_cannot_be_read_is_reported_once(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add every 1m broken")
        for times in (1, 2):
            await talk.here.store.transact(_break_first())
            await talk.later(minutes=2)
            await talk.chat.hears("I paused the job", times=times)
            await talk.here.store.transact(_mend_first())
            await talk.ask("/jobs resume 1")
        await talk.ask("/jobs pause 1")
        before = talk.texts()
        await talk.here.store.transact(_break_first(requested=True))
        await talk.later(minutes=2)
        assert await talk.here.rows("SELECT requested FROM schedules") == [(None,)]
        assert talk.texts() == before, "it was paused before"


async def test_a_notice_that_cannot_be_stored_does_not_undo_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @transaction
    def fail(*_: object) -> Statements[None]:
        yield "SELECT 1", ()
        raise Unreadable("home", "1")

    monkeypatch.setattr("palaver.engine.jobs.scheduler.report_paused", fail)
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add every 1h broken")
        await talk.ask("/jobs add every 1h sound")
        await talk.here.store.transact(_break_first())
        await talk.later(hours=1, minutes=1)
        assert talk.texts()[2:] == ["You said: sound"]
        assert await talk.here.rows("SELECT paused IS NOT NULL FROM schedules ORDER BY no") == [(1,), (0,)]
    assert "job.pause_not_reported" in {getattr(record, "action", "") for record in caplog.records}


@transaction
def _break_first(*, requested: bool = False) -> Statements[None]:
    yield "UPDATE schedules SET rule = 'whenever:' || rule, requested = ? WHERE no = 1", (1 if requested else None,)


@transaction
def _mend_first() -> Statements[None]:
    yield "UPDATE schedules SET rule = replace(rule, 'whenever:', '') WHERE no = 1", ()


async def test_a_gateway_that_is_killed_runs_what_fired_once(tmp_path: Path) -> None:
    slow = Slow()
    async with talking(tmp_path, agent=slow) as talk:
        await talk.ask("/jobs add every 1h news")
        await talk.here.settled()
        talk.clock.later(hours=1, minutes=1)
        await until(lambda: slow.at_once == 1)
    async with talking(tmp_path, before=talk, agent=slow) as talk:
        slow.go.set()
        await talk.chat.hears("answer to: news")
        await talk.here.settled()
        assert len(await talk.here.rows("SELECT no FROM inbox WHERE message_id LIKE 'job%'")) == 1
        assert len(talk.texts()) == 2


# Models, tools and approvals


async def test_a_job_has_its_own_model(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add 1h hello --model loud")
        await talk.later(hours=1, minutes=1)
        assert talk.texts()[1:] == ["YOU SAID: HELLO"]
        assert "answered by loud" in await talk.ask("/jobs show 1")


async def test_a_job_asks_for_approval_where_it_was_made(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add 1h !approve the plan")
        await talk.later(hours=1, minutes=1)
        question = talk.texts()[-1]
        assert "May I use the echo tool for: the plan" in question
        name = question.rpartition("/deny ")[2].strip(".")
        assert await talk.ask(f"/approve {name}") == "Approved."
        await talk.chat.hears("You said: the plan")


async def test_the_agent_sets_lists_and_changes_jobs(tmp_path: Path) -> None:
    async with talking(tmp_path, grants=MEMBER, toolsets=Toolsets({}).toolsets) as talk:
        at = talk.clock.now() + timedelta(hours=9)
        call = f'{{"when": "{at:%Y-%m-%dT%H:%M}", "prompt": "Remind Ann", "name": "Ann"}}'
        said = await talk.ask(f"!use schedule_job {call}")
        assert said == f"schedule_job: Job 1 runs once, next {at:%a %Y-%m-%d %H:%M} UTC."
        assert f"1 “Ann”: once, next {at:%a %Y-%m-%d %H:%M} UTC, to this chat" in await talk.ask("!use list_jobs {}")
        # In a group, the others would read it.
        group = talk.here.world.group("Dev", talk.alice, talk.here.world.person("bob"))
        await group.say(talk.alice, "!use list_jobs {}")
        assert "Ann" not in (await group.hears("list_jobs: ")).text
        assert "Job 1 “Ann” is paused." in await talk.ask('!use change_job {"job": "1", "action": "pause"}')
        assert "Job 1 “Ann” runs again." in await talk.ask('!use change_job {"job": "1", "action": "resume"}')
        assert "There is no job 7 here" in await talk.ask('!use change_job {"job": "7", "action": "run"}')
        refused = await talk.ask('!use schedule_job {"when": "1h", "prompt": "x", "to": "local"}')
        assert "Only jobs of admins can send to another chat or to a file." in refused
        await talk.later(hours=9)
        assert talk.texts()[-1] == "You said: Remind Ann"
        # The conversation goes on where the reminder arrived, so the agent knows of it.
        session = (await talk.here.rows("SELECT id FROM sessions WHERE schedule_no IS NULL"))[0][0]
        assert (await talk.here.texts(session))[-1] == "You said: Remind Ann"


async def test_a_job_in_a_chat_is_no_first_contact(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add 1h what is new? --here")
        await talk.later(hours=1, minutes=1)
        session = (await talk.here.rows("SELECT id FROM sessions"))[0][0]
        said = await talk.here.texts(session)
        assert "You said: what is new?" in said
        assert FIRST_CONTACT_NOTE not in said


async def test_a_job_learns_where_its_answer_goes(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        await talk.ask("/jobs add 1h what is new? --to origin,local")
        await talk.ask("/jobs add 1h what else?")
        await talk.later(hours=1, minutes=1)
        sessions = [row[0] for row in await talk.here.rows("SELECT id FROM sessions ORDER BY no")]
        notes = [text for id_ in sessions for text in await talk.here.texts(id_) if "runs now as scheduled" in text]
        assert [note.partition(" Your answer goes to: ")[2] for note in sorted(notes)] == ["this chat, local.", ""]


async def test_a_job_makes_and_changes_no_jobs(tmp_path: Path) -> None:
    async with talking(tmp_path, toolsets=Toolsets({}).toolsets) as talk:
        for where in ("", " --here"):
            await talk.ask(f'/jobs add 1h !use change_job {{"job": "1", "action": "run"}}{where}')
        await talk.ask('/jobs add 1h !use schedule_job {"when": "every 2h", "prompt": "again"}')
        await talk.later(hours=1, minutes=1)
        for name, told in zip(("change_job", "change_job", "schedule_job"), sorted(talk.texts()[3:]), strict=True):
            assert f"There is no tool called {name}. Available tools: " in told
            assert "_job," not in told


# Scripts


def _scripts(folder: Path, **files: str) -> Scripts:
    folder.mkdir()
    for name, text in files.items():
        file = folder / f"{name}.sh"
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return Scripts(folder=folder, environ={"PATH": "/usr/bin:/bin"}, seconds=5.0)


async def test_the_output_of_a_script_is_part_of_the_prompt_or_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAVER_SECRET", "hunter2")
    agent = Scripted(_say_what_was_noted)
    scripts = _scripts(
        tmp_path / "scripts",
        disk='echo "disk $PALAVER_JOB full $PALAVER_SECRET"; pwd',
        quiet="true",
        leaky="echo token: ghp_$(printf '%036d' 7)",
        broken="echo half; exit 3",
        slow="sleep 60",
    )
    async with talking(tmp_path, agent=agent, scripts=scripts) as talk:
        await talk.ask(f"/jobs add 1h is it bad? --script disk.sh --dir {tmp_path}")
        await talk.ask("/jobs add 1h --script disk.sh --no-model")
        await talk.ask("/jobs add 1h --script quiet.sh --no-model")
        await talk.ask("/jobs add 1h --script broken.sh --no-model")
        assert "no script called 'none.sh'. Use broken.sh, disk.sh, leaky.sh, quiet.sh" in await talk.ask(
            "/jobs add 1h x --script none.sh"
        )
        assert "no script called" in await talk.ask("/jobs add 1h x --script ../palaver.db")
        await talk.ask("/jobs add 1h --script leaky.sh --no-model")
        await talk.later(hours=1, minutes=1)
        answers = talk.texts()[7:]
        assert any(
            "the script disk.sh printed this:⟧\ndisk 1 full" in text and str(tmp_path) in text for text in answers
        )
        assert f"disk 2 full \n{tmp_path}/scripts" in answers
        assert "The job “broken.sh” failed: the agent could not answer. /jobs show 4 shows its last runs." in answers
        assert len(answers) == 4
        assert not [text for text in answers if "ghp_00" in text]
        assert len(agent.requests) == 1
        assert "hunter2" not in "".join(answers)


async def _say_what_was_noted(request: Request) -> AsyncGenerator[Event]:
    yield Final(text=noted(request))


async def test_a_script_runs_only_where_it_is_allowed_and_never_twice(tmp_path: Path) -> None:
    scripts = _scripts(tmp_path / "scripts", count="echo x >> runs; sleep 60")
    async with talking(tmp_path) as talk:
        assert "Jobs cannot run scripts here" in await talk.ask("/jobs add 1h x --script count.sh")
        await talk.here.settled()
    async with talking(tmp_path, before=talk, scripts=scripts) as talk:
        await talk.ask("/jobs add 1h --script count.sh --no-model")
        await talk.here.settled()
        talk.clock.later(hours=1, minutes=1)
        await until((tmp_path / "scripts" / "runs").exists)
    async with talking(tmp_path, before=talk, scripts=scripts) as talk:
        await talk.chat.hears("The job “count.sh” failed")
        await talk.here.settled()
        assert (tmp_path / "scripts" / "runs").read_text() == "x\n"
        firing = (await talk.here.store.read(talk.here.store.firings.list_firings("1", OPERATOR)))[0]
        assert firing.reason == "the gateway was stopped while the script ran; it is not run again"


async def test_why_a_script_does_not_run_names_neither_others_nor_their_folder(tmp_path: Path) -> None:
    scripts = _scripts(tmp_path / "scripts", payroll="true")
    with pytest.raises(BadArgument) as gone:
        await scripts.run("gone.sh", 1, None)
    assert str(gone.value) == "There is no script called 'gone.sh'."
    async with talking(tmp_path, scripts=scripts) as talk:
        group = talk.here.world.group("Group", talk.alice)
        await group.say(talk.alice, "/jobs add 1h x --script gone.sh")
        told = await group.hears("There is no script called 'gone.sh'. Use an executable file in the folder")
        assert "payroll" not in told.text
    (tmp_path / "scripts" / "payroll.sh").unlink()
    with pytest.raises(BadArgument) as none:
        scripts.find("gone.sh", names_others=True)
    assert str(tmp_path) not in str(none.value)


async def test_a_script_that_takes_too_long_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    scripts = _scripts(tmp_path / "scripts", slow="sleep 60 & echo $! > child; sleep 60")
    result = await replace(scripts, seconds=0.5).run("slow.sh", 1, None)
    assert result.code is None
    child = int((tmp_path / "scripts" / "child").read_text())
    await until(lambda: _has_ended(child))


async def test_what_a_script_leaves_behind_ends_with_it_and_is_no_failure(tmp_path: Path) -> None:
    left = "sleep 60 & echo $! > child"
    away = f"rm child; echo hi; setsid sh -c '{left}; wait' & while ! test -s child; do sleep 0.01; done"
    scripts = replace(_scripts(tmp_path / "scripts", same=f"echo hi; {left}", away=away), seconds=30.0)
    for name in ("same.sh", "away.sh"):
        result = await scripts.run(name, 1, None)
        assert (result.code, result.output) == (0, "hi\n")
        child = int((tmp_path / "scripts" / "child").read_text())
        await until(lambda child=child: _has_ended(child))


def _has_ended(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return not status.exists() or "Z (zombie)" in status.read_text()
