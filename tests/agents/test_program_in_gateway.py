"""Programs as agents in a gateway: on its own event loop, and behind its engine."""

import asyncio
from pathlib import Path

import psutil

from palaver.agents.external import ExternalAgent
from palaver.cli.loop import run
from palaver.model.access import AccessRole, Grant
from palaver.model.transcript import Role
from palaver.protocols.agent import Failure, Final, TextDelta
from palaver.testkit.platform import FakePlatform
from palaver.tools.messages import MessageTools
from tests.agents.helpers import asked, events, program
from tests.engine.gateway import running

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


async def test_a_program_may_ask_a_person(tmp_path: Path) -> None:
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
