"""The same chat id on two servers is two chats: in rates, in moves and in targets."""

from dataclasses import replace
from pathlib import Path

import pytest

from palaver.engine.explain import explain
from palaver.engine.settings import Settings
from palaver.model.access import AccessRole, Grant
from palaver.model.key import ChatSelector, GroupScope, Scope, ScopedSetting, SessionKey
from palaver.model.platform import Platform
from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound, Outbound
from palaver.protocols import Receiver
from palaver.protocols.adapter import ChatMoved, Limits
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform, LoopClock
from palaver.testkit.updates import Update
from tests.engine.gateway import running
from tests.engine.test_tools import all_tools, use
from tests.store.world import NOON, cause

PLATFORM = Platform(name="fake", title="Fake platform", has_servers=True)


class ServersAdapter(FakeAdapter):
    """Each chat of the world is called `general`, on a server with the chat's own id."""

    def __init__(self, world: FakePlatform, limits: Limits | None = None) -> None:
        super().__init__(world, platform=PLATFORM, limits=limits)
        self.names = dict[str, str]()
        self.receiver: Receiver | None = None

    async def run(self, receiver: Receiver) -> None:
        self.receiver = receiver
        await super().run(receiver)

    async def move(self, server: str, new: str, *, silently: bool = False) -> None:
        self.names[server] = new
        assert self.receiver
        if not silently:
            await self.receiver.chat_moved("general", new, server=server)

    def _inbound(self, update: Update) -> Inbound:
        inbound = super()._inbound(update)
        name = self.names.get(update.chat, "general")
        return replace(inbound, source=replace(inbound.source, scope_id=update.chat, chat_id=name))

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        server = outbound.scope_id or ""
        if outbound.chat_id != (name := self.names.get(server, "general")):
            raise ChatMoved(name)
        return await super().send(replace(outbound, chat_id=server), idempotency_key=idempotency_key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await super().edit(receipt, replace(outbound, chat_id=outbound.scope_id or ""))


async def test_each_server_has_its_own_rate(store_url: str) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    one, two = world.dm(alice), world.group("Two", alice)
    async with running(store_url, world, adapters=[ServersAdapter(world, Limits(interval=600))]):
        await one.say(alice, "in one")
        await one.hears("You said: in one")
        await two.say(alice, "in two", mentions=("bot",))
        await two.hears("You said: in two")


@pytest.mark.parametrize("silently", [False, True], ids=["told", "found out by a send"])
async def test_a_chat_moves_on_one_server(store_url: str, silently: bool) -> None:
    world = FakePlatform()
    adapter, alice = ServersAdapter(world), world.person("alice")
    one, two = world.group("One", alice), world.group("Two", alice)
    async with running(store_url, world, adapters=[adapter]) as here:
        for chat in (one, two):
            await chat.say(alice, "before", mentions=("bot",))
            await chat.hears("You said: before")
        await adapter.move(one.id, "lobby", silently=silently)
        if silently:
            owed = Outbound(platform="fake", account="bot", scope_id=one.id, chat_id="general", text="owed")
            await here.store.transact(here.store.outbox.enqueue(owed, cause("owed"), LoopClock().now()))
            await one.hears("owed")
        for chat in (one, two):
            await chat.say(alice, "after", mentions=("bot",))
            await chat.hears("You said: after")
        await here.settled()
        keys = [SessionKey.parse(key) for (key,) in await here.rows("SELECT key FROM sessions ORDER BY no")]
        assert [(key.scope, key.chat) for key in keys] == [(one.id, "lobby"), (two.id, "general")]
        assert await here.rows("SELECT state FROM outbox WHERE state <> 'delivered'") == []
        assert await here.store.read(violations()) == []


async def test_a_target_names_the_server(store_url: str) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    one, two = world.dm(alice), world.group("Two", alice)
    owners = (Grant(role=AccessRole.OWNER),)
    async with running(store_url, world, adapters=[ServersAdapter(world)], toolsets=all_tools, grants=owners) as here:
        await one.say(alice, use("send_message", to=f"fake@{two.id}:general", text="hello there"))
        await one.hears("text: hello there")
        await one.say(alice, "/approve")
        await one.hears("send_message: The message is queued.")
        await two.hears("hello there")
        await here.settled()
        assert "hello there" not in [message.text for message in one.shown]


async def test_a_setting_that_followed_a_chat_is_named_with_its_line(tmp_path: Path) -> None:
    field = ("platforms", "fake", "chats", "general", "scope", "group")
    given = Settings(
        scopes=ScopedSetting(default=Scope(), chats={ChatSelector("fake", "general"): Scope(group=GroupScope.SHARED)}),
        written_at=lambda path: "palaver.yaml, line 7" if path == field else "",
    )
    async with await open_store(str(tmp_path / "p.db")) as store:
        await store.transact(store.chat_migration.move("fake", "bot", "general", "lobby", NOON, server="s"))
        here = Source(platform="fake", account="bot", chat_kind="group", scope_id="s", chat_id="lobby", user_id="p1")
        said = Inbound(source=here, text="hi", at=NOON)
        step = explain(said, Trust(), NOON, settings=given, accounts={"fake:bot": PLATFORM}, commands={})
        (rule,) = (await store.read(step)).key_rules
        assert (rule.value, rule.where) == ("shared", "palaver.yaml, line 7")
