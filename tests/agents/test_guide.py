"""The guide: what it understands, what it does with the gateway's tools, and what it offers to whom."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from playwright.async_api import Browser, expect

from palaver.agents.guide import GuideAgent
from palaver.agents.guide_rules import RULES
from palaver.config.model import Config
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.label import note_marker
from palaver.model.prompt import TurnFacts
from palaver.model.tools import NOT_APPROVED
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import INTERRUPTED, Message
from palaver.protocols.agent import (
    ApprovalNeeded,
    Event,
    Excerpt,
    Final,
    Priced,
    Request,
    Suggesting,
    Summarising,
    TextDelta,
    Titling,
    ToolCalled,
)
from palaver.protocols.tools import Tool
from palaver.settings.agents import GuideAgentConfig
from palaver.testkit.chat import Person
from palaver.testkit.platform import FakePlatform
from palaver.tools.toolsets import Toolsets
from tests.cli.processes import Place
from tests.cli.test_chat_live import Terminal
from tests.engine.gateway import MovableClock, running, until
from tests.engine.test_jobs import OWNER, SOON, Talk
from tests.web.conftest import browser, opened

__all__ = ["browser"]

TIMES = ("in 1 minute", "in 1 hour", "tomorrow at 9am")
BAD_HOUR = "The hour of “25:00” is not from 0 to 23."
WHO = "I am Palaver's guide, not a language model"
ALL = "schedule_job list_jobs change_job terminal process remember forget search ask_user"
NOTES = '## What you remember\nYour notes, by number.\n- 3: "I like \\"green\\" tea"\n- 4: "my name is Ada"'


@dataclass
class Tools:
    names: str = ALL
    asks: bool = False
    result: str = "done"
    used: list[ToolCall] = field(default_factory=list[ToolCall])

    @property
    def tools(self) -> Sequence[Tool]:
        return [Tool(name=name, description="", parameters={}) for name in self.names.split()]

    async def question(self, call: ToolCall) -> str | None:
        return f"May I use {call.name}?" if self.asks else None

    async def use(self, call: ToolCall) -> str:
        self.used.append(call)
        return self.result


def user(text: str) -> Message:
    return Message(role=Role.USER, text=text)


def request(*messages: Message, tools: Tools | None = None, **changed: Any) -> Request:
    usual: dict[str, Any] = {"session": "s", "turn": 1, "attempt": 1, "section": NOTES, "messages": messages}
    given: dict[str, Any] = {**usual, "toolbox": tools or Tools(), **changed}
    return Request(**given)


def facts(platform: str, user_id: str = "owner") -> TurnFacts:
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    source = {"platform": platform, "user_id": user_id}
    return TurnFacts(
        key="k", source=source, labels={}, shared=False, started=at, at=at, zone="Asia/Tokyo", participants=()
    )


async def events(asked: Request) -> list[Event]:
    return [event async for event in GuideAgent().answer(asked)]


async def said(text: str, **changed: Any) -> str:
    """What it answers. What streams is what it says in the end."""
    found = await events(request(user(text), **changed))
    assert isinstance(found[-1], Final)
    assert "".join(event.text for event in found if isinstance(event, TextDelta)) == found[-1].text
    return found[-1].text


async def called(text: str) -> tuple[str, dict[str, Any]]:
    (calls,) = (event.calls for event in await events(request(user(text))) if isinstance(event, ToolCalled))
    return calls[0].name, json.loads(calls[0].arguments)


@pytest.mark.parametrize(
    ("text", "when", "about"),
    [
        ("remind me in 1 minute to stretch", "in 1 minute", "stretch"),
        ("Remind me to stretch in 1 minute.", "in 1 minute", "stretch"),
        ("hello, can you please remind me in an hour to call Bob?", "in an hour", "call Bob"),
        ("remind me tomorrow at 9am that the milk is out", "tomorrow at 9am", "the milk is out"),
        ("Every day at 9am remind me to plan the day", "Every day at 9am", "plan the day"),
        ("set a reminder for 9am to water the plants", "9am", "water the plants"),
        ("set a timer for 5 minutes", "5 minutes", "it is time"),
        ("wake me up at 7:00", "at 7:00", "it is time"),
        ("remind me to call Bob tomorrow at noon about the house", "tomorrow at noon", "call Bob about the house"),
        ("remind me friday 18:00:\n- buy\n- cook", "friday 18:00", "buy - cook"),
    ],
)
async def test_a_reminder_in_many_words(text: str, when: str, about: str) -> None:
    name, arguments = await called(text)
    assert (name, arguments["when"], arguments["prompt"]) == ("schedule_job", when, f"Reminder: {about}")


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("run ls", "terminal", {"command": "ls"}),
        ("Please run `ls -la` for me", "terminal", {"command": "ls -la"}),
        ("run the command: df -h", "terminal", {"command": "df -h"}),
        ("run\n```sh\nls\npwd\n```", "terminal", {"command": "ls\npwd"}),
        ("$ ls", "terminal", {"command": "ls"}),
        ("date", "terminal", {"command": "date"}),
        ("hello\n\nrun ls", "terminal", {"command": "ls"}),
        ("sleep 20 in the background", "terminal", {"command": "sleep 20", "background": True}),
        ("Run sleep 20 in the background!", "terminal", {"command": "sleep 20", "background": True}),
        ("start a background process: sleep 5", "terminal", {"command": "sleep 5", "background": True}),
        ("run in the background sleep 3", "terminal", {"command": "sleep 3", "background": True}),
        ("what is running?", "process", {"action": "list"}),
        ("kill p1", "process", {"action": "kill", "process": "p1"}),
        ("note that I like tea", "remember", {"text": "I like tea"}),
        ("Remember: my dog is called Rex.", "remember", {"text": "my dog is called Rex"}),
        ("don't forget that Ann comes on Monday", "remember", {"text": "Ann comes on Monday"}),
        ("my name is Ada", "remember", {"text": "my name is Ada"}),
        ('forget that I like "green" tea', "forget", {"note": 3}),
        ("forget note 4", "forget", {"note": 4}),
        ("what did I say about tea?", "search", {"query": '"tea"', "limit": 20}),
        ("do you remember what I said about the dentist?", "search", {"query": '"dentist"', "limit": 20}),
        ('search for "-draft OR tea"', "search", {"query": '"draft" "tea"', "limit": 20}),
        ("list my reminders", "list_jobs", {}),
        ("cancel reminder 1", "change_job", {"job": "1", "action": "remove"}),
        ("remind me to stretch", "ask_user", {"question": "When?", "choices": list(TIMES)}),
        *(
            (f"remind me {time} to stretch", "ask_user", {"question": f"{BAD_HOUR} When?", "choices": list(TIMES)})
            for time in ("tomorrow at 25:00", "at 25:00 tomorrow")
        ),
    ],
)
async def test_what_is_said_becomes_a_call(text: str, tool: str, arguments: dict[str, Any]) -> None:
    assert await called(text) == (tool, arguments)


@pytest.mark.parametrize(
    ("text", "answers", "when", "about"),
    [
        ("remind me at 9 to call", ["tomorrow"], "at 9 tomorrow", "call"),
        ("remind me at 9 to call", ["please remind me at 9am to call Bob"], "at 9am", "call Bob"),
        ("remind me in 100 years to smile", ["remind me in 10 seconds to breathe"], "in 10 seconds", "breathe"),
        ("remind me to smile", ["remind me at 9 to call", "at 9am"], "at 9am", "call"),
        ("remind me on 24 December to pack", ["10 past 9", "10am"], "on 24 December 10am", "pack"),
    ],
)
async def test_an_answer_completes_a_reminder_and_a_new_one_replaces_it(
    text: str, answers: list[str], when: str, about: str
) -> None:
    tools = Tools()
    said = [user(text)]
    for answer in answers:
        asked = (await events(request(*said, tools=tools)))[-1]
        assert isinstance(asked, ApprovalNeeded)
        said.append(Message(role=Role.TOOL, text=answer, answers=asked.call.id))
    await events(request(*said, tools=tools))
    arguments = json.loads(tools.used[-1].arguments)
    assert (arguments["when"], arguments["prompt"]) == (when, f"Reminder: {about}")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([], "“at 9” can be before or after noon. When?"),
        (["whenever"], "I do not understand “whenever” as a time. When?"),
        (["whenever", "at 25:00", "9"], "I do not understand “9” as a time. Try: remind me in 1 minute to stretch"),
        (["never mind"], "No reminder was set."),
        (["what time is it?"], "It is "),
    ],
)
async def test_what_is_no_time_is_asked_again_and_named(answers: list[str], words: str) -> None:
    said = [user("remind me at 9 to call")]
    last = (await events(request(*said)))[-1]
    for answer in answers:
        assert isinstance(last, ApprovalNeeded)
        said.append(Message(role=Role.TOOL, text=answer, answers=last.call.id))
        last = (await events(request(*said)))[-1]
    assert isinstance(last, ApprovalNeeded | Final)
    assert (last.question if isinstance(last, ApprovalNeeded) else last.text).startswith(words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(
            (text, WHO)
            for text in ("hello", "Hi there!", "hey, how are you", "who are you?", "are you ChatGPT?", "help", "?")
        ),
        *((text, WHO) for text in ("what can you do", "tell me a joke", "why is the sky blue?", "你好", "👋")),
        *((text, "`/undo`") for text in ("undo", "how do I undo?", "oops", "I made a mistake", "let's start over")),
        *((text, "palaver setup") for text in ("connect a model", "I have an OpenAI API key", "use it on my phone")),
        ("thanks!", "You are welcome."),
        ("yes", "I asked you nothing just now."),
        ("what do you remember?", '3. I like "green" tea\n4. my name is Ada'),
        ("what time is it", "21:00 on Sunday, 2026-03-01 in Asia/Tokyo"),
        ("bye", "Goodbye."),
    ],
)
async def test_what_is_said_gets_a_true_answer(text: str, words: str) -> None:
    assert words in await said(text, facts=lambda: facts("terminal"))


@given(st.text(max_size=300) | st.sampled_from([rule.example for rule in RULES]).map(lambda text: f"{text} " * 9))
@example("remind me " + "at 9 in the on every " * 90)
@example("do you remember " * 120)
@example("`" * 1999)
@example("run " + "\n" * 1500)
async def test_anything_gets_an_answer(text: str) -> None:
    found = await events(request(user(text)))
    assert isinstance(found[-1], Final | ApprovalNeeded)
    assert not isinstance(found[-1], Final) or found[-1].text.strip()


async def test_it_offers_only_what_is_there_for_this_person() -> None:
    agent, everything = GuideAgent(), set(ALL.split())
    assert agent.suggestions(everything)[:3] == [
        "remind me in 1 minute to stretch",
        "run date",
        "run sleep 20 in the background",
    ]
    for text in ("help", "hello", "tell me a joke"):
        answer = await said(text, tools=Tools(names="search"), facts=lambda: facts("telegram", "7"))
        assert "run date" not in answer
        assert "remind me" not in answer
        assert "paste" not in answer
    assert "I cannot do that for you here" in await said("run ls", tools=Tools(names="search"))
    assert all(rule.tool in {"", *everything} for rule in RULES)
    for example_ in agent.suggestions(everything):
        assert WHO not in await said(example_) or example_ == "connect a model"


@pytest.mark.parametrize(
    ("platform", "user_id", "is_owner"),
    [("terminal", "owner", True), ("web", "owner", True), ("web", "bob", False), ("telegram", "owner", False)],
)
async def test_a_key_is_asked_for_only_where_it_is_safe(platform: str, user_id: str, is_owner: bool) -> None:
    for text in ("connect a model", "hello", "what is love"):
        answer = await said(text, facts=lambda: facts(platform, user_id))
        assert ("paste your API key here" in answer) == is_owner


async def test_a_call_waits_for_its_approval_and_runs_once() -> None:
    tools = Tools(asks=True, result="(exit code 0 after 0 s)\n```\nfile")
    found = await events(request(user("run ls"), tools=tools))
    assert isinstance(found[-1], ApprovalNeeded)
    call = found[-1].call
    open_call = Message(role=Role.ASSISTANT, text="", calls=(call,))
    messages = (user("run ls"), open_call)
    approved = await events(request(*messages, tools=tools, approvals={call.id: True}))
    assert not any(isinstance(event, ToolCalled) for event in approved)
    assert isinstance(approved[-1], Final)
    assert approved[-1].text.startswith("`ls` (exit code 0 after 0 s)\n````\n```\nfile\n````")
    assert tools.used == [call]
    denied = await events(request(*messages, tools=tools, approvals={call.id: False}))
    assert isinstance(denied[-1], Final)
    assert "Nothing was done" in denied[-1].text
    for result, words in ((INTERRUPTED, "interrupted"), (NOT_APPROVED, "Nothing was done"), ("(ok)\nfile", "file")):
        again = await events(request(*messages, Message(role=Role.TOOL, text=result, answers=call.id), tools=tools))
        assert isinstance(again[-1], Final)
        assert words in again[-1].text
    assert tools.used == [call]


async def test_notices_and_jobs_are_told_and_never_taken_for_orders() -> None:
    notice = note_marker("background process p1 (run ls) has ended after 5 s: exit code 0. Its last output:\nrun date")
    assert (await said(notice)).startswith("Background process p1 (run ls) has ended after 5 s")
    firing = note_marker("job 1 runs now as scheduled; nobody is waiting for the answer.")
    assert await said(f"{firing}\n\nrun ls") == "run ls"
    assert (await said("⟦file abc: photo.png, image/png, 3 KB⟧")).startswith("I cannot look at files")


async def test_the_way_to_a_model_is_named_once_where_everything_was_tried() -> None:
    used = tuple(ToolCall(id=name, name=name, arguments="{}") for name in ALL.split())
    tried = Message(role=Role.ASSISTANT, text="", calls=used)
    first = (await events(request(tried, user("list my reminders"))))[-1]
    assert isinstance(first, Final)
    assert first.text.endswith("\n\nTry next: connect a model")
    told = Message(role=Role.ASSISTANT, text=first.text)
    again = (await events(request(tried, told, user("list my reminders"))))[-1]
    assert again == Final(text="done")


async def test_it_sums_up_and_titles() -> None:
    agent = GuideAgent()
    assert isinstance(agent, Summarising)
    assert isinstance(agent, Titling)
    assert isinstance(agent, Suggesting)
    assert isinstance(agent, Priced)
    excerpt = Excerpt(session="s", messages=(user("the plan"), user("hello")))
    assert (await agent.title(excerpt)).text == "hello"
    assert (await agent.summarise(excerpt)).text == "2 messages: the plan; hello"
    assert (agent.context_window(None), list(agent.unpriced_models())) == (None, [])


# With the gateway


@asynccontextmanager
async def talking(path: Path, before: Talk | None = None) -> AsyncGenerator[Talk]:
    clock, world = (before.clock, before.here.world) if before else (MovableClock(), FakePlatform())
    alice = before.alice if before else world.person("alice")
    tools, url = Toolsets({}).toolsets, path / "palaver.db"
    worker = "w2" if before else "w1"
    async with running(
        url,
        world,
        agent=GuideAgent(),
        clock=clock,
        worker=worker,
        toolsets=tools,
        grants=OWNER,
        poll=SOON,
        acknowledges=False,
    ) as here:
        yield Talk(here, clock, before.chat if before else world.dm(alice), alice, FakePlatform())


async def test_a_reminder_arrives_after_a_restart_and_notes_and_search_work(tmp_path: Path) -> None:
    async with talking(tmp_path) as talk:
        assert "Reminder 1 is set" in await talk.ask("remind me in 1 minute to stretch")
        assert "Kept as note 1 about you" in await talk.ask("remember that I like green tea")
        assert "remember that I like green tea" in await talk.ask("what did I say about tea?")
        assert "Nothing was found" in await talk.ask("what did I say about coffee?")
        assert "1. I like green tea" in await talk.ask("what do you remember?")
        assert "“stretch”" in await talk.ask("list my reminders")
        await talk.here.settled()
    async with talking(tmp_path, before=talk) as talk:
        before = len(talk.chat.shown)
        await talk.later(seconds=70)
        await until(lambda: len(talk.chat.shown) > before)
        assert talk.texts()[before:] == ["Reminder: stretch"]
        asked = "\n".join(["When?", *(f"{number}. {time}" for number, time in enumerate(TIMES, 1))])
        assert (await talk.ask("remind me to drink")).startswith(asked)
        assert "Reminder 2 is set" in await talk.ask("2")
        assert (await talk.ask("remind me at 9 to call")).startswith("“at 9” can be before or after noon. When?")
        assert (await talk.ask("remind me to breathe")).startswith("When?")
        assert "Reminder 3 is set" in await talk.ask("in 10 seconds")
        assert "“breathe”" in await talk.ask("list my reminders")
        assert "Undid" in await talk.ask("/undo")


async def test_a_search_in_a_group_names_what_others_said_and_titles(tmp_path: Path) -> None:
    world, shared = FakePlatform(), ScopedSetting(default=Scope(group=GroupScope.SHARED))
    alice, bob = world.person("Alice"), world.person('Bob "B": "x"')
    group = world.group("Team", alice, bob)
    tools = Toolsets({}).toolsets
    async with running(
        tmp_path / "p.db", world, agent=GuideAgent(), toolsets=tools, grants=OWNER, scopes=shared, acknowledges=False
    ) as here:

        async def ask(person: Person, text: str) -> str:
            before = len(group.shown)
            await group.say(person, text, mentions=("bot",))
            return (await group.hears("", times=before + 1)).text

        await ask(bob, 'the tea is green, he said: "yes"')
        await ask(alice, "/title tea ceremony")
        told = await ask(alice, "what did I say about tea?")
        others, titles = told.split("\nTitles:\n")
        assert re.fullmatch(r'Others said:\n- [^,]*, fake:\w+ ".*": the tea is green, he said: "yes"', others), others
        assert "tea ceremony" in titles
        await ask(alice, "my tea is black")
        told = await ask(alice, "search for tea")
        assert "You said:" in told.split("Others said:")[0]
        assert "my tea is black" in told.split("Others said:")[0]
        await here.settled()


# As people meet it


class Unconfigured(Place):
    """New interpreters, in which no test has chosen an agent."""

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"PYTHONNODEBUGRANGES": "1"}


@pytest.fixture
def place(tmp_path: Path) -> Any:
    place = Unconfigured(tmp_path)
    yield place
    place.close()


def test_a_pipe_with_nothing_configured(place: Unconfigured) -> None:
    done = place.run("chat", says="hello\nremind me in 1 minute to stretch\nrun date\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Hello! {WHO}")
    assert "paste your API key here" in done.stdout
    assert "Reminder 1 is set" in done.stdout
    assert "May I use terminal?\ncommand: date" in done.stdout
    assert place.run("chat", "--chat", "other", "--agent", "echo", "-m", "hi").stdout == "You said: hi\n"
    wrong = place.run("chat", "--agent", "parrot", "-m", "hi")
    assert (wrong.returncode, "guide, echo, local" in wrong.stderr) == (2, True)


def test_a_running_gateway_keeps_its_agent(place: Unconfigured) -> None:
    gateway = place.up()
    refused = place.run("chat", "--agent", "echo", "-m", "hi")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "A gateway is running" in refused.stderr
    gateway.terminate()
    assert gateway.wait(60) == 0


def test_a_terminal_shows_three_lines_to_try_and_reports_the_end_of_a_process(place: Unconfigured) -> None:
    terminal = Terminal(place)
    try:
        shown = terminal.shows("Try, for example:") and terminal.shows("run sleep 20 in the background")
        assert "remind me in 1 minute to stretch" in shown
        terminal.types("sleep 1 in the background\r")
        terminal.shows("May I use terminal?")
        terminal.types("/approve\r")
        terminal.shows("Started p1 in the background")
        terminal.shows("Background process p1 (sleep 1) has ended")
        assert terminal.ends() == 0
    finally:
        terminal.close()


async def test_the_window_has_chips_for_what_this_person_can_do(tmp_path: Path, browser: Browser) -> None:
    grants = [{"platform": "web", "user_id": "bob", "role": "member"}]
    config = Config.model_validate(
        {"data_dir": tmp_path, "store": str(tmp_path / "p.db"), "agent": GuideAgentConfig(), "grants": grants}
    )
    async with opened(config) as window:
        async with window.visit("web:bob") as bob:
            page = (await bob.get("/chat/main")).text
            assert 'data-say="remember that I like tea"' in page
            assert "run date" not in page
        tab = await browser.new_page()
        await tab.goto(await window.link())
        await tab.goto(f"{window.url}/chat/main")
        await tab.get_by_role("button", name="run date").click()
        await tab.get_by_role("button", name="Approve").first.click()
        await expect(tab.locator(".message.answer").last).to_contain_text("exit code 0")
        await expect(tab.locator(".chips")).to_have_count(0)


def test_a_new_interpreter_has_the_guide_as_its_default() -> None:
    code = "from palaver.config.model import Config; print(Config.model_fields['agent'].default.name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "guide\n"
