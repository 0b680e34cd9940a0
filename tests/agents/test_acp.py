"""An agent of the Agent Client Protocol behind the gateway: a real process with the official library."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, cast

import psutil
import pytest

from palaver.agents import acp_connection
from palaver.agents.acp import AcpTransport
from palaver.agents.acp_connection import AcpConnection, Asked, Session, Updated
from palaver.agents.external import ExternalAgent
from palaver.agents.wire import ProtocolError
from palaver.engine import texts
from palaver.model.transcript import Role
from palaver.testkit.platform import FakePlatform
from tests.children import children_running
from tests.engine.gateway import Bench, running, until

AGENT = Path(__file__).parent / "acp_agent.py"


@asynccontextmanager
async def talking(
    folder: Path, world: FakePlatform | None = None, *, remembers: bool = True, worker: str = "w1"
) -> AsyncGenerator[Bench]:
    memory = (str(folder / "memory.json"),) if remembers else ()
    agent = ExternalAgent(
        AcpTransport(command=(sys.executable, str(AGENT), *memory), environ=dict(os.environ), folder=folder)
    )
    try:
        async with running(folder / "p.db", world, agent=agent, worker=worker, titles=False) as here:
            yield here
    finally:
        await agent.close()


async def test_conversations_permissions_and_decisions(tmp_path: Path) -> None:
    """To start an agent of the official library takes more than a second, so one answers all of them."""
    async with talking(tmp_path) as here:
        await _remember_each_conversation(here)
        await _ask_for_permission(here)
        await _ask_for_two_permissions(here)
        await _go_on_after_a_failure(here)
        await _say_more_than_text(here)


async def _remember_each_conversation(here: Bench) -> None:
    """One session for each conversation, which remembers."""
    alice, bob = here.world.person("alice"), here.world.person("bob")
    chat, other = here.world.dm(alice), here.world.dm(bob)
    await chat.say(alice, "one")
    await chat.hears("heard 1: ")
    await here.settled()
    heard = await chat.hears("heard 1: ")
    assert heard.text.endswith("one")
    assert "## " in heard.text  # where it is comes with the first prompt
    await chat.say(alice, "two")
    await chat.hears("heard 2: ")
    await here.settled()
    heard = await chat.hears("heard 2: ")
    assert "one" not in heard.text
    assert heard.text.endswith("two")
    await other.say(bob, "three")
    await other.hears("heard 1: ")
    await here.settled()
    answers = [entry for entry in await here.entries() if entry.role is Role.ASSISTANT]
    assert answers[-1].reasoning == "hm"
    await chat.say(alice, "/undo")
    await chat.say(alice, "four")
    await chat.hears("four")
    await here.settled()
    heard = await chat.hears("four")
    assert "heard 1: " in heard.text  # its memory is no longer the conversation's: it reads it again
    assert "two" not in heard.text


async def _ask_for_permission(here: Bench) -> None:
    """A permission is an approval."""
    chat = here.world.dm(carol := here.world.person("carol"))
    for times, (decision, chosen) in enumerate((("/approve", "yes"), ("/deny", "no")), 1):
        await chat.say(carol, "delete it")
        await chat.hears("May I use Delete a.txt?\npath: a.txt", times=times)
        await chat.say(carol, decision)
        await chat.hears(f"The answer was {chosen}.")
    await here.settled()
    called = [entry for entry in await here.entries() if entry.calls]
    assert [entry.calls[0].name for entry in called] == ["acp_delete"] * 2
    assert [entry.text for entry in called] == ["First I tidy up."] * 2
    results = [entry for entry in await here.entries() if entry.role is Role.TOOL]
    assert [entry.text for entry in results] == ["a.txt deleted: yes", "a.txt deleted: no"]
    assert [entry.answers for entry in results] == [entry.calls[0].id for entry in called]
    await chat.say(carol, "delete it")
    await chat.hears("May I use Delete a.txt?", times=3)
    await chat.say(carol, "no, wait")
    await chat.hears("heard 4: ")


async def _ask_for_two_permissions(here: Bench) -> None:
    """Each of two permissions gets its own decision."""
    chat = here.world.dm(dave := here.world.person("dave"))
    await chat.say(dave, "delete both")
    await chat.hears("May I use Delete a.txt?\npath: a.txt")
    await chat.say(dave, "/approve")
    await chat.hears("May I use Delete b.txt?\npath: b.txt")
    await chat.say(dave, "/deny")
    await chat.hears("The answer was no.")
    await here.settled()
    called = {call.id: call.arguments for entry in await here.entries() for call in entry.calls}
    results = {called[entry.answers or ""]: entry.text for entry in await here.entries() if entry.role is Role.TOOL}
    assert sorted(results.values()) == ["a.txt deleted: yes", "b.txt deleted: no"]
    assert all(json.loads(arguments)["path"] in text for arguments, text in results.items())


async def _go_on_after_a_failure(here: Bench) -> None:
    """A prompt that failed after a tool call is not tried again without a word."""
    chat = here.world.dm(erin := here.world.person("erin"))
    await chat.say(erin, "it breaks")
    await chat.hears("heard 2: ")
    await here.settled()
    heard = await chat.hears("heard 2: ")
    assert "ended before you answered" in heard.text
    assert heard.text.endswith("it breaks")


async def _say_more_than_text(here: Bench) -> None:
    """Pictures, links and files are a part of the answer, and what it used is counted."""
    chat = here.world.dm(frank := here.world.person("frank"))
    for times in (1, 2):
        await chat.say(frank, "draw")
        await chat.hears("That is all.", times=times)
        await here.settled()
    answer = (await here.entries())[-1]
    assert answer.text == (
        "Here:\n[The \\[plan\\]](https://example.org/a%20%28b%29)\nnotes.md (file:///notes.md)\n"
        "(image, not readable)\nThat is all."
    )
    files = [(file.name.plain(), file.media_type, file.size) for file in answer.files]
    assert files == [("image-1.png", "image/png", 6), ("my table.csv", "text/csv", 3)]
    used = await here.rows(
        "SELECT input_tokens, cached_tokens, output_tokens, cost_micros, unpriced_tokens FROM turns"
        " WHERE input_tokens > 0"
    )
    assert used == [(40, 30, 5, 250_000, 0)] * 2


async def test_a_restart_loads_the_session_and_remembers_the_decision(tmp_path: Path) -> None:
    world = FakePlatform()
    chat = world.dm(alice := world.person("alice"))
    async with talking(tmp_path, world) as here:
        await chat.say(alice, "one")
        await chat.hears("heard 1: ")
        await chat.say(alice, "delete it")
        await chat.hears("May I use Delete a.txt?")
        await here.settled()
    async with talking(tmp_path, world, worker="w2") as here:
        await chat.say(alice, "/approve")
        await chat.hears("The answer was yes.")
        await chat.say(alice, "more")
        await chat.hears("heard 4: ")
        await here.settled()
        assert not any("replayed" in message.text for message in chat.shown)


async def test_an_agent_that_cannot_load_reads_the_conversation_again(tmp_path: Path) -> None:
    world = FakePlatform()
    chat = world.dm(alice := world.person("alice"))
    for worker, said in (("w1", "one"), ("w2", "two")):
        async with talking(tmp_path, world, remembers=False, worker=worker) as here:
            await chat.say(alice, said)
            await until(lambda said=said: any(said == each.text[-3:] for each in chat.shown))
            await here.settled()
    assert "The conversation so far:" in chat.shown[-1].text
    assert "Person: " in chat.shown[-1].text
    assert chat.shown[-1].text.startswith("heard 1: ")


async def test_stopping_and_crashing(tmp_path: Path) -> None:
    async with talking(tmp_path) as here:
        chat = here.world.dm(alice := here.world.person("alice"))
        await chat.say(alice, "hang")
        await until(lambda: bool((tmp_path / "memory.json").exists()))
        await until(lambda: any("waiting" in each.text for each in chat.shown))
        await chat.say(alice, "/stop")
        await chat.hears("Stopping.")
        await chat.say(alice, "and now?")
        heard = await chat.hears("and now?")
        assert "The conversation so far:" in heard.text  # what it remembers of the stopped turn is not used
        await chat.say(alice, "at length")
        await chat.hears(texts.cut_answer("It begins"))
        await chat.say(alice, "crash")
        await until(lambda: not _agents())
        await chat.say(alice, "/stop")
        await chat.say(alice, "back?")
        await chat.hears("back?")


def _agents() -> list[psutil.Process]:
    return children_running("acp_agent.py")


async def test_sessions_and_what_nobody_reads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_connection, "_MAX_SESSIONS", 2)
    async with talking(tmp_path) as here:
        people = [here.world.person(name) for name in ("alice", "bob", "carol")]
        chats = [here.world.dm(person) for person in people]
        for chat, person in zip(chats, people, strict=True):
            await chat.say(person, "one")
            await chat.hears("heard 1: ")
        await here.settled()
        await chats[0].say(people[0], "two")  # dropped, and loaded again
        heard = await chats[0].hears("heard 2: ")
        assert heard.text.endswith("two")
        await here.settled()
    monkeypatch.setattr(acp_connection, "_MAX_ITEMS", 3)
    told: list[str] = []

    class Silent:
        sessions: ClassVar[dict[str, Session]] = {}

        def notify(self, method: str, params: Mapping[str, Any]) -> None:
            told.append(f"{method} {params['sessionId']}")

    session = Session(id="s1", connection=cast("AcpConnection", Silent()))
    for _ in range(10):
        session.add(Updated(update={}))
    items = [session.items.get_nowait() for _ in range(session.items.qsize())]
    assert [type(item).__name__ for item in items] == ["Updated"] * 3 + ["ProtocolError"]
    assert told == ["session/cancel s1"]


class Program:
    """Says what a test says, and hears what the gateway writes."""

    def __init__(self) -> None:
        self.says, self.heard = asyncio.Queue[Mapping[str, Any] | None](), asyncio.Queue[dict[str, Any]]()

    def write(self, line: bytes) -> None:
        self.heard.put_nowait(json.loads(line))

    async def line(self) -> bytes | None:
        said = await self.says.get()
        return None if said is None else json.dumps(said).encode()

    async def end(self, *, at_once: bool) -> int:
        assert at_once
        return 0


async def test_a_permission_without_usable_options_is_refused_and_a_session_needs_an_id() -> None:
    program = Program()
    connection = AcpConnection(cast("Any", program))
    session = connection.sessions["s"] = Session(id="s", connection=connection)
    good = {"optionId": "yes", "name": "Allow", "kind": "allow_once"}

    def ask(number: int, options: object) -> None:
        asked = {"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": options}
        program.says.put_nowait({"id": number, "method": "session/request_permission", "params": asked})

    wrong: tuple[object, ...] = ([], None, 7, ["yes"], [{"kind": "allow_once"}], [good, {"optionId": "no"}])
    for number, options in enumerate(wrong):
        ask(number, options)
        answer = await program.heard.get()
        assert (answer["id"], answer["error"]["code"]) == (number, -32602)
        assert "needs options" in answer["error"]["message"]
    ask(9, [good])
    assert isinstance(await session.items.get(), Asked)
    session.decide(is_approved=True)
    assert (await program.heard.get())["result"] == {"outcome": {"outcome": "selected", "optionId": "yes"}}
    for number, result in enumerate(({}, {"sessionId": ""}), 1):
        program.says.put_nowait({"id": number, "result": result})
        with pytest.raises(ProtocolError, match="without an id"):
            await connection.create("/")
    await connection.close()
