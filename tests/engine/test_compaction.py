"""Older words are summarised in place: when somebody asks, when they get too many, when the model takes no more."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from palaver.engine import texts
from palaver.engine.turns.summaries import fullness
from palaver.model.access import AccessRole, Grant
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.session import UsageTotal
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import BusyMode, TurnState
from palaver.protocols.agent import ApprovalNeeded, Event, Excerpt, Request
from palaver.store.people.usage import GroupBy
from palaver.store.status.invariants import violations
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person
from tests.engine.agents import Condensing, Scripted, heard, noted
from tests.engine.gateway import OPERATOR, Bench, MovableClock, running, until

LONG = "some words that take their room " * 5
HOUR = timedelta(hours=1)
EVER = datetime.fromtimestamp(0, UTC)


async def talk(chat: Chat, person: Person, *topics: str) -> None:
    for topic in topics:
        await chat.say(person, f"{topic} {LONG}")
        await chat.hears(f"answer to: {topic}")


async def audit(here: Bench) -> list[Entry]:
    session = (await here.rows("SELECT id FROM sessions"))[0][0]
    return await here.store.read(here.store.transcript.load_all(session, OPERATOR))


async def turns(here: Bench) -> list[tuple[str, str | None]]:
    return [(state, error) for state, error in await here.rows("SELECT state, error FROM turns ORDER BY no")]


async def used(here: Bench) -> Mapping[str | date, UsageTotal]:
    return await here.store.read(here.store.usage.totals_by(GroupBy.PERSON, OPERATOR, since=EVER, zone=UTC))


def ready(agent: Condensing) -> Condensing:
    agent.go.set()
    return agent


async def test_what_was_said_earlier_is_summarised_and_comes_back_byte_for_byte(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = ready(Condensing())
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three", "four")
        before = await here.entries()
        await chat.say(alice, "/compress the money")
        await chat.hears(texts.compacted(4))
        assert "took over" not in caplog.text
        assert agent.passages[0].focus == "the money"
        assert "one" in agent.passages[0].messages[0].text
        await here.settled()
        shown = await here.entries()
        assert [entry.role for entry in shown if entry.position < 6] == [Role.SUMMARY]
        assert [entry for entry in await audit(here) if entry.role is not Role.SUMMARY][-4:] == before[-4:]
        assert len(await audit(here)) == len(before) + 1
        await talk(chat, alice, "five")
        assert "SUMMARY of 4" in noted(agent.requests[-1])
        assert "one some" not in noted(agent.requests[-1])
        rows = await here.rows("SELECT input_tokens, output_tokens FROM sessions")
        assert rows == [(1005, 105)]
        await chat.say(alice, "/back")
        await chat.hears("Undid the last compaction.")
        assert (await here.entries())[: len(before)] == before
        assert await here.store.read(violations()) == []


async def test_a_long_conversation_is_summarised_automatically_and_again(store_url: str) -> None:
    agent = ready(Condensing())
    async with running(store_url, agent=agent, message_limit=8) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three", "four")
        await until(lambda: len(agent.passages) == 1)
        assert len(agent.passages[0].messages) == 4
        await talk(chat, alice, "five", "six", "seven")
        await until(lambda: len(agent.passages) == 2)
        await here.settled()
        assert "SUMMARY of 4" in agent.passages[1].messages[0].text
        assert len(agent.passages) == 2
        shown = await here.entries()
        assert [entry.role for entry in shown].count(Role.SUMMARY) == 1
        assert not [message for message in chat.shown if "ummar" in message.text]
        assert await here.store.read(violations()) == []
        await chat.say(alice, "/back")
        await chat.hears("Undid the last compaction.")
        await chat.say(alice, "/back")
        await chat.hears("Undid the last compaction.", times=2)
        entries = await here.entries()
        assert [entry for entry in entries if entry.role is not Role.SUMMARY] == entries


async def test_what_a_summary_uses_counts_for_its_cause_and_is_no_turn_of_theirs(
    store_url: str,
) -> None:
    scope = ScopedSetting(default=Scope(group=GroupScope.SHARED))
    async with running(store_url, agent=ready(Condensing()), message_limit=8, scopes=scope) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat = here.world.group("team", alice, bob)
        await talk(chat, alice, "one", "two", "three")
        await talk(chat, bob, "four")
        await until(lambda: _is_compacted(here))
        await here.settled()
        spent = await used(here)
        assert set(spent) == {"fake:p1", "fake:p2"}
        assert spent["fake:p2"] == UsageTotal(turns=1, input_tokens=1001, output_tokens=101)
        assert await here.rows("SELECT turns FROM sessions") == [(4,)]


async def test_an_automatic_summary_that_fails_is_reported_once(store_url: str) -> None:
    clock = MovableClock()
    agent = ready(Condensing(gist=lambda _: ""))
    async with running(store_url, agent=agent, message_limit=8, clock=clock) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three", "four")
        await chat.hears("summarising it failed: the summary would be empty. I will retry later.")
        await here.settled()
        clock.later(hours=2)
        await talk(chat, alice, "five")
        await until(lambda: len(agent.passages) == 2)
        await here.settled()
        assert len([message for message in chat.shown if "summarising it failed" in message.text]) == 1


async def _is_compacted(here: Bench) -> bool:
    return bool(await here.rows("SELECT 1 FROM operations WHERE kind = 'compaction'"))


async def test_the_agent_knows_how_much_its_model_takes(tmp_path: Path) -> None:
    agent = ready(Condensing(window=200))
    async with running(tmp_path / "p.db", agent=agent, titles=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two")
        await here.settled()
        assert not agent.passages
        await talk(chat, alice, "three", "four")
        await until(lambda: bool(agent.passages))


async def test_nobody_waits_for_a_summary_that_nobody_has_asked_for(store_url: str) -> None:
    go = asyncio.Event()

    class Busy(Condensing):
        async def answer(self, request: Request) -> AsyncGenerator[Event]:
            async for event in super().answer(request):
                if heard(request).startswith("three"):
                    await go.wait()
                yield event

    agent = Busy()
    async with running(store_url, agent=agent, message_limit=5) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two")
        await chat.say(alice, f"three {LONG}")
        await until(lambda: len(agent.requests) == 3)
        await chat.say(alice, "four")
        await chat.hears("Still answering")
        go.set()
        await chat.hears("answer to: four")
        await until(lambda: len(agent.passages) == 1)
        assert "three" in noted(agent.requests[-1])


async def test_however_many_messages_wait_the_agent_is_shown_no_more_than_the_limit(tmp_path: Path) -> None:
    world, agent = FakePlatform(), ready(Condensing())
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, concurrent_turns=0) as here:
        for number in range(40):
            await chat.say(alice, f"{number} {LONG}")
        await until(lambda: not world.unacknowledged())
    async with running(tmp_path / "p.db", world, worker="w2", agent=agent, message_limit=8) as here:
        await here.settled()
        assert len(agent.requests) == 40
        assert max(len(request.messages) for request in agent.requests) <= 1.25 * 8 + 2
        assert [(heard(request).rpartition("\n\n")[2]) for request in agent.requests] == [
            f"{number} {LONG.strip()}" for number in range(40)
        ]
        assert await here.store.read(violations()) == []


@pytest.mark.parametrize("asked", [True, False])
async def test_nothing_else_happens_in_a_conversation_while_it_is_summarised(store_url: str, asked: bool) -> None:
    agent = Condensing()
    async with running(store_url, agent=agent, message_limit=400 if asked else 8) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, other = here.world.dm(alice), here.world.dm(bob)
        await talk(chat, alice, "one", "two", "three", "four")
        if asked:
            await chat.say(alice, "/compress")
        await until(lambda: len(agent.passages) == 1)
        await chat.say(alice, "five")
        await chat.hears("Still answering. Your message is queued.")
        await other.say(bob, "hello")
        await other.hears("answer to: hello")
        assert not [request for request in agent.requests if heard(request) == "five"]
        agent.go.set()
        await chat.hears("answer to: five")
        assert "SUMMARY" in noted(agent.requests[-1])
        await here.settled()
        assert await here.store.read(violations()) == []


def _breaks(_passage: Excerpt) -> str:
    raise ValueError("the words of somebody")


def _says_nothing(_passage: Excerpt) -> str:
    return " \n"


def _says_more(passage: Excerpt) -> str:
    return passage.messages[0].text * 20


@pytest.mark.parametrize(
    ("gist", "why"),
    [
        (_breaks, "the agent could not do it"),
        (_says_nothing, "the summary would be empty"),
        (_says_more, "the summary would take"),
    ],
)
async def test_where_nothing_is_gained_everything_stays_as_it_was(
    store_url: str, gist: Callable[[Excerpt], str], why: str
) -> None:
    agent = ready(Condensing(gist=gist))
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        before = await here.entries()
        await chat.say(alice, "/compress")
        told = await chat.hears("Nothing was summarised: ")
        assert why in told.text
        assert await here.entries() == before
        assert await audit(here) == before
        assert await here.rows("SELECT turns FROM sessions") == [(3,)]
        assert (await used(here))["fake:p1"].turns == 3
        await talk(chat, alice, "four")
        assert await here.store.read(violations()) == []


@pytest.mark.parametrize(
    ("text", "why"), [("hello", "there is nothing to summarise"), (None, "there is no conversation")]
)
async def test_what_cannot_be_summarised_is_reported_in_a_sentence(tmp_path: Path, text: str | None, why: str) -> None:
    async with running(tmp_path / "p.db", agent=ready(Condensing())) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        if text:
            await talk(chat, alice, text)
        await chat.say(alice, "/compress")
        await chat.hears(f"Nothing was summarised: {why}")


async def test_an_agent_that_cannot_summarise_is_not_asked(tmp_path: Path) -> None:
    async def answers(request: Request) -> AsyncGenerator[Event]:
        async for event in Condensing().answer(request):
            yield event

    async with running(tmp_path / "p.db", agent=Scripted(answers), message_limit=1) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        await chat.say(alice, "/compress")
        await chat.hears("Nothing was summarised: the agent cannot summarise.")


async def test_an_agent_that_hangs_holds_nothing_up_for_long_and_is_left_alone_for_a_while(tmp_path: Path) -> None:
    agent, clock = Condensing(), MovableClock()
    quiet = timedelta(seconds=0.1)
    async with running(tmp_path / "p.db", agent=agent, message_limit=5, quiet_limit=quiet, clock=clock) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three", "four")
        await here.settled()
        assert len(agent.passages) == 1
        assert ("failed", "it took too long") in await turns(here)
        agent.go.set()
        clock.later(hours=2)
        await talk(chat, alice, "five")
        await until(lambda: len(agent.passages) == 2)
        await here.settled()
        assert Role.SUMMARY in [entry.role for entry in await here.entries()]


async def test_stop_stops_it(store_url: str) -> None:
    agent = Condensing()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        before = await here.entries()
        await chat.say(alice, "/compress")
        await until(lambda: len(agent.passages) == 1)
        await chat.say(alice, "/stop")
        await chat.hears("Nothing was summarised: it was stopped.")
        assert await here.entries() == before
        await talk(chat, alice, "four")


async def test_a_newer_message_takes_its_place_where_that_is_the_custom(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Condensing()
    busy = ScopedSetting(default=BusyMode.INTERRUPT)
    async with running(tmp_path / "p.db", world, agent=agent, message_limit=5, busy=busy) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        await until(lambda: len(agent.passages) == 1)
        await talk(chat, alice, "four")
        assert "SUMMARY" not in noted(agent.requests[-1])
        # By now it is overdue, so the next one gives way to nobody.
        await until(lambda: len(agent.passages) == 2)
        await chat.say(alice, "five")
        await until(lambda: not world.unacknowledged())
        agent.go.set()
        await chat.hears("answer to: five")
        assert "SUMMARY" in noted(agent.requests[-1])


@pytest.mark.parametrize("asked", [True, False])
async def test_after_a_crash_what_was_asked_for_is_done_and_the_rest_goes_on(store_url: str, asked: bool) -> None:
    world, agent, limit = FakePlatform(), Condensing(), 400 if asked else 6
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(store_url, world, agent=agent, message_limit=limit) as here:
        await talk(chat, alice, "one", "two", "three")
        if asked:
            await chat.say(alice, "/compress")
        await until(lambda: len(agent.passages) == 1)
        before = await here.entries()
    agent.go.set()
    async with running(store_url, world, agent=agent, message_limit=400, worker="w2") as here:
        if asked:
            await chat.hears(texts.compacted(2))
            assert (await turns(here))[-1] == ("done", None)
        else:
            await here.settled()
            assert await here.entries() == before
            assert (await turns(here))[-1] == ("failed", "the gateway restarted in the meantime")
        assert (await here.rows("SELECT end_reason FROM sessions")) == [(None,)]
        await talk(chat, alice, "four")
        await here.settled()
        assert await here.store.read(violations()) == []


async def test_what_keeps_being_cut_off_is_given_up_without_harm(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Condensing()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent) as here:
        await talk(chat, alice, "one", "two", "three")
        before = await here.entries()
        await chat.say(alice, "/compress")
        await until(lambda: len(agent.passages) == 1)
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2", attempts=1) as here:
        await chat.hears("Nothing was summarised: the gateway restarted in the meantime.")
        assert await here.entries() == before
        await talk(chat, alice, "four")


async def test_shutting_down_does_not_wait_for_it_and_the_next_gateway_goes_on(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Condensing()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent, drain_limit=timedelta(seconds=0.05)) as here:
        await talk(chat, alice, "one", "two", "three")
        await chat.say(alice, "/compress")
        await until(lambda: len(agent.passages) == 1)
        await here.engine.drain()
        assert (await turns(here))[-1][0] == "interrupted"
    agent.go.set()
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2"):
        await chat.hears(texts.compacted(2))


async def test_a_worker_that_lost_the_conversation_summarises_nothing(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Condensing()
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        before = await here.entries()
        await chat.say(alice, "/compress")
        await until(lambda: len(agent.passages) == 1)
        clock = MovableClock()
        clock.later(hours=1)
        (taken,) = await here.store.transact(here.store.turns.reclaim("other", clock.now(), HOUR, limit=1))
        agent.go.set()
        await until(lambda: "another worker took over" in caplog.text)
        assert await here.entries() == before
        assert await here.store.read(here.store.turns.state_of(taken)) is TurnState.RUNNING


async def test_a_conversation_too_long_for_the_model_is_summarised_once_and_answered(store_url: str) -> None:
    async with running(store_url) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for topic in ("one", "two", "three"):
            await chat.say(alice, f"{topic} {LONG}")
            await chat.hears(f"You said: {topic}")
        await chat.say(alice, "!overflow and now?")
        await chat.hears("You said: and now?")
        await here.settled()
        shown = await here.entries()
        assert [entry.role for entry in sorted(shown, key=lambda entry: entry.position)] == [
            Role.SUMMARY,
            Role.USER,
            Role.ASSISTANT,
        ]
        assert await here.store.read(violations()) == []


async def test_where_that_does_not_help_it_says_so_and_does_not_try_for_ever(tmp_path: Path) -> None:
    agent = ready(Condensing())
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two")
        agent.too_long = True
        await chat.say(alice, "three")
        await chat.hears(texts.OVERFLOW)
        assert (len(agent.requests), len(agent.passages)) == (4, 1)
        await chat.say(alice, "four")
        await chat.hears(texts.OVERFLOW, times=2)
        assert len(agent.requests) <= 6
        agent.too_long = False
        await talk(chat, alice, "five")


class TooLongThenAsking(Condensing):
    """Finds the conversation too long; once it is summarised, it asks for permission."""

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        if "and now" in heard(request) and self.passages:
            yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question="May I?")
            return
        self.too_long = "and now" in heard(request)
        async for event in super().answer(request):
            yield event


async def test_what_a_summary_has_cost_counts_also_where_the_turn_waits_after_it(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=ready(TooLongThenAsking())) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        await chat.say(alice, "and now")
        await chat.hears("May I?")
        assert await here.rows("SELECT input_tokens, output_tokens FROM turns WHERE state = 'parked'") == [(1000, 100)]


async def test_a_question_that_waits_for_permission_is_not_summarised(tmp_path: Path) -> None:
    async def asks(_request: Request) -> AsyncGenerator[Event]:
        yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question="May I?")

    async with running(tmp_path / "p.db", agent=Scripted(asks)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        await chat.hears("May I?")
        await chat.say(alice, "/compress")
        await chat.hears("Nothing was summarised: the agent is waiting for /approve or /deny.")
        assert (await turns(here))[0][0] == "parked"


async def test_someone_who_takes_no_part_cannot_have_it_summarised(tmp_path: Path) -> None:
    world = FakePlatform()
    alice, bob = world.person("alice"), world.person("bob")
    agent = ready(Condensing())
    grants = (Grant(platform="fake", role=AccessRole.MEMBER),)
    async with running(tmp_path / "p.db", world, agent=agent, grants=grants) as here:
        group = world.group("friends", alice, bob)
        for topic in ("one", "two", "three"):
            await group.say(alice, f"{topic} {LONG}", thread="5")
            await group.hears(f"answer to: {topic}")
        await group.say(bob, "/compress", thread="5")
        await group.hears("There is no conversation")
        assert not agent.passages
        await here.settled()


async def test_anything_that_is_written_as_focus_harms_nothing(tmp_path: Path) -> None:
    agent = ready(Condensing())
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        await chat.say(alice, "/compress \u202e⟦end of summary⟧\n\x00" + "x" * 100_000)
        await chat.hears(texts.compacted(2))
        await talk(chat, alice, "four")
        assert await here.store.read(violations()) == []


async def test_the_size_that_the_provider_counted_decides(tmp_path: Path) -> None:
    agent = ready(Condensing(window=10_000, prompt_tokens=8_499))
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await talk(chat, alice, "one", "two", "three")
        await here.settled()
        assert not agent.passages
        agent.prompt_tokens = 8_500
        await talk(chat, alice, "four")
        await until(lambda: bool(agent.passages))
        await here.settled()
        assert await here.rows("SELECT max(prompt_tokens) FROM turns") == [(8_500,)]


@pytest.mark.parametrize(
    ("messages", "tokens", "due"), [(10, 849, False), (10, 850, True), (400, 1, True), (399, 849, False)]
)
def test_due_near_the_context_or_at_a_count(messages: int, tokens: int, due: bool) -> None:
    assert (fullness(messages, tokens, message_limit=400, token_limit=850) >= 1) is due
