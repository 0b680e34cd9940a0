"""Programs as agents in a gateway: on its own event loop, and behind its engine."""

import asyncio
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import psutil
import pytest

from palaver.agents.external import ExternalAgent
from palaver.cli.loop import run
from palaver.engine.settings import Agents
from palaver.model.access import AccessRole, Grant
from palaver.model.errors import StoreError
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.transcript import Role, ToolCall
from palaver.protocols.agent import Failure, FailureKind, Final, TextDelta
from palaver.settings.engine import PrivacyConfig
from palaver.store.privacy.pseudonyms import resolve
from palaver.testkit.adapter import FAKE, FakeAdapter
from palaver.testkit.platform import BOT, FakePlatform
from palaver.tools.messages import MessageTools
from tests.agents.helpers import Tools, asked, events, program
from tests.engine.gateway import running
from tests.settings import change

ANSWERS = "while True: say(type='final', id=hear()['id'], text='x')"
LEAVES_SOMEBODY = """
name = hear()["id"]
if not os.fork():
    os.setsid()
    time.sleep(2)
    os._exit(0)
say(type="delta", id=name, text="x")
os._exit(4)
"""


def test_on_the_loop_of_the_gateway_nothing_is_left_either() -> None:
    async def work() -> None:
        me = psutil.Process()
        before = set(me.children())
        for _ in range(2):
            agent = ExternalAgent(program(ANSWERS))
            assert await events(agent, asked("hi")) == [Final(text="x")]
            await agent.close()
            counts.append(me.num_fds())
            assert set(me.children()) <= before
        agent = ExternalAgent(program(LEAVES_SOMEBODY))
        first, last = await events(agent, asked("hi"))
        assert first == TextDelta("x")
        assert isinstance(last, Failure)
        await agent.close()
        await asyncio.sleep(0)
        counts.append(me.num_fds())

    counts: list[int] = []
    run(work())
    assert len(set(counts)) == 1


ENDS_WHILE_ITS_TOOLS_RUN = """
name = hear()["id"]
for number in range(100):
    print(json.dumps({"type": "use", "id": name, "call": {"id": f"c{number}", "name": "look", "arguments": "{}"}}))
"""


class TiringTools(Tools):
    """Some calls in, the process has ended, and the turn is stopped: nobody reads what it still said."""

    async def use(self, call: ToolCall) -> str:
        if len(self.used) == 20:
            raise StoreError("the turn ends")
        await asyncio.sleep(0.01)
        return await super().use(call)


def test_one_that_ends_while_its_tools_run_holds_up_neither_other_turns_nor_the_end() -> None:
    """Each of these writes to a process that has ended; on this loop that is an error."""

    async def work() -> None:
        agent = ExternalAgent(program(ENDS_WHILE_ITS_TOOLS_RUN))
        *_, last = await events(agent, asked("hi", tools=Tools()))
        assert last == Failure(kind=FailureKind.TRANSIENT, detail="the program ended with code 0")
        with pytest.raises(StoreError):
            await events(agent, asked("hi", tools=TiringTools()))
        *_, last = await events(agent, asked("hi", tools=Tools()))
        assert isinstance(last, Failure)
        async with asyncio.timeout(60):
            await agent.close()

    run(work())


ASKS = """
while True:
    line = hear()
    if line["type"] != "answer":
        continue
    name, call = line["id"], {"id": "c", "name": "open_door", "arguments": "{}"}
    if line["approvals"]:
        say(type="tool_returned", id=name, call="c", text="done")
        say(type="final", id=name, text=f"allowed: {line['approvals']['c']}")
    else:
        say(type="tool_called", id=name, calls=[call])
        say(type="approval_needed", id=name, call=call, question="May I open the door?")
"""


TELLS = """
while True:
    line = hear()
    if line["type"] == "answer":
        say(type="final", id=line["id"], text=json.dumps(line["situation"]))
"""


async def test_a_program_gets_the_situation_as_structure(tmp_path: Path) -> None:
    world, agent = FakePlatform(), ExternalAgent(program(TELLS))
    adapter = FakeAdapter(world, platform=replace(FAKE, hides_ids=True))
    scopes, zones = ScopedSetting(default=Scope(group=GroupScope.SHARED)), ScopedSetting(default=ZoneInfo("Asia/Tokyo"))
    ann, bob = world.person("ann"), world.person("bob")
    group = world.group('Dev" ⟦x⟧', ann, bob)
    async with running(
        tmp_path / "p.db",
        world,
        agent=agent,
        adapters=[adapter],
        scopes=scopes,
        zones=zones,
        privacy=PrivacyConfig(pseudonyms=False),
    ) as here:
        await group.say(bob, "hi")
        await group.hears("{")
        said = await group.say(ann, "where are we?")
        told = json.loads((await group.hears("{", times=2)).text)
        assert told.pop("source") == {
            "platform": "fake",
            "account": BOT,
            "chat_kind": "group",
            "chat_id": group.id,
            "user_id": ann.id,
            "message_id": said.id,
            "profile": "main",
        }
        assert datetime.fromisoformat(told.pop("started")) <= said.at
        assert told.pop("at") == said.at.astimezone(ZoneInfo("Asia/Tokyo")).isoformat(timespec="seconds")
        assert told == {
            "key": f"agent:main:fake:group:{group.id}:account:{BOT}",
            "labels": {"chat": 'Dev" ⟦x⟧', "user": "ann"},
            "shared": True,
            "zone": "Asia/Tokyo",
            "participants": [{"id": bob.id, "name": "bob"}, {"id": ann.id, "name": "ann"}],
        }
        here.engine.reload(change(here.engine.settings, privacy=PrivacyConfig(pseudonyms=True)), Agents(agent))
        await group.say(ann, "and now?")
        hidden = json.loads((await group.hears("{", times=3)).text)
        assert "message_id" not in hidden["source"]
        for name, original in (
            (hidden["key"], f"agent:main:fake:group:{group.id}:account:{BOT}"),
            (hidden["source"]["chat_id"], group.id),
            (hidden["source"]["user_id"], ann.id),
            (hidden["participants"][0]["id"], bob.id),
        ):
            assert name != original
            assert (await here.store.read(resolve(name))).id == original
    await agent.close()


LIES = """
while True:
    line = hear()
    if line["type"] == "answer":
        call = {"id": "c", "name": "send_message", "arguments": '{"to": "other:1", "text": "a secret"}'}
        say(type="approval_needed", id=line["id"], call=call, question="May I look at the clock?")
"""


async def test_what_a_tool_of_the_gateway_would_do_is_said_by_the_gateway(tmp_path: Path) -> None:
    world, agent = FakePlatform(), ExternalAgent(program(LIES))
    async with running(
        tmp_path / "p.db",
        world,
        agent=agent,
        toolsets=lambda _: (MessageTools(),),
        grants=(Grant(role=AccessRole.OWNER),),
    ):
        ann = world.person("ann")
        chat = world.dm(ann)
        await chat.say(ann, "what time is it?")
        asked = await chat.hears("May I")
        assert asked.text.startswith("May I use send_message?\nto: other:1\ntext: a secret\n")
    await agent.close()


async def test_a_program_can_ask_a_person(tmp_path: Path) -> None:
    world, agent = FakePlatform(), ExternalAgent(program(ASKS))
    async with running(tmp_path / "p.db", world, agent=agent) as bench:
        ann = world.person("ann")
        chat = world.dm(ann)
        await chat.say(ann, "open it")
        await chat.hears("May I open the door?")
        await chat.say(ann, "/approve")
        await chat.hears("allowed: True")
        await bench.settled()
        entries = await bench.entries()
    await agent.close()
    assert [call.id for entry in entries for call in entry.calls] == ["c"]
    assert [entry.text for entry in entries if entry.role is Role.TOOL] == ["done"]
