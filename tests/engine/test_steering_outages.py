"""What is said into a running turn while the store is away for a moment reaches it once, with its sender."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Literal

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.model.errors import StoreUnavailable
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.transcript import ToolCall
from palaver.model.turn import BusyMode
from palaver.protocols.agent import Event, Final, Request, ToolCalled, ToolReturned
from palaver.protocols.tools import Tool, ToolUse
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted
from tests.engine.gateway import running, until
from tests.engine.trouble import trouble


class Lever:
    """A tool for owners and members."""

    async def tools(self) -> Sequence[Tool]:
        return (Tool(name="lever", description="Pull it.", parameters={"type": "object"}),)

    async def use(self, use: ToolUse) -> str:  # noqa: ARG002
        return "pulled"


@pytest.mark.parametrize(
    ("how", "phrase", "done"),
    [
        ("read", "SELECT stopped_by, key FROM turns", False),
        ("transact", "UPDATE inbox SET state = 'in-turn'", False),
        ("transact", "UPDATE inbox SET state = 'in-turn'", True),
    ],
)
async def test_a_moment_without_the_store_breaks_no_turn_and_forgets_nobody_who_spoke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Literal["read", "transact"], phrase: str, done: bool
) -> None:
    go, told = asyncio.Event(), list[str]()

    async def pulls(request: Request) -> AsyncGenerator[Event]:
        yield ToolCalled(calls=(ToolCall(id="c", name="look"),))
        await go.wait()
        yield ToolReturned(call="c", text="seen")
        told.extend(await request.new_messages())
        yield Final(text=await request.toolbox.use(ToolCall(id="d", name="lever")))

    world, agent = FakePlatform(), Scripted(pulls)
    alice, bob = world.person("alice"), world.person("bob")
    async with running(
        tmp_path / "p.db",
        world,
        agent=agent,
        toolsets=lambda _: (Lever(),),
        grants=(Grant(role=AccessRole.OWNER, platform="fake", user_id=alice.id), Grant(role=AccessRole.GUEST)),
        scopes=ScopedSetting(default=Scope(group=GroupScope.SHARED)),
        busy=ScopedSetting(default=BusyMode.STEER),
    ) as here:
        group = world.group("Dev", alice, bob)
        await group.say(alice, "one")
        await until(lambda: bool(agent.requests))
        await group.say(bob, "two")
        await group.hears("joins this answer")
        happened = trouble(
            monkeypatch, here.store, how, phrase, StoreUnavailable("it is not known whether it happened"), done=done
        )
        go.set()
        await group.hears("Not everybody in this conversation can use this tool.")
        assert happened()
        assert len(told) == 1
        assert "two" in told[0]
        await here.settled()
        assert await here.rows("SELECT state, attempt FROM turns") == [("done", 1)]
        assert (await here.texts()).count("two") == 1
