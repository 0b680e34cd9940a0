"""Platforms that show commands learn of them after each connection; what goes wrong with that does no harm."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from palaver.model.access import AccessRole
from palaver.protocols.adapter import PlatformBusy
from palaver.protocols.capabilities import MenuCommand
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import BOT, FakePlatform
from tests.engine.gateway import NoPauses, running, until


async def test_people_are_shown_what_a_member_can_use_as_help_lists_it(tmp_path: Path) -> None:
    roles = {"status": AccessRole.ADMIN, "platforms": AccessRole.MEMBER}
    async with running(tmp_path / "p.db", command_roles=roles) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/help")
        listed = (await chat.hears("Send /help and a command name for details.")).text.splitlines()
        lines = [f"/{line.name}: {line.help}" for line in here.world.menus[BOT]]
        said = [line for line in listed if line.startswith("/") and ":" in line]
        assert [line.partition(":")[0].split(",")[0] for line in said] == [line.partition(":")[0] for line in lines]
        assert {"/platforms", "/new"} <= {line.partition(":")[0] for line in lines}
        assert "/status" not in {line.partition(":")[0] for line in lines}


class Counting(FakeAdapter):
    """Knows how to show a menu, and does not manage to."""

    menus = 0

    async def show_menu(self, commands: Sequence[MenuCommand]) -> None:
        self.menus += 1
        if self.menus == 1:
            raise PlatformBusy(30)
        assert commands
        await asyncio.Event().wait()


async def test_once_for_each_connection_and_nothing_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = FakePlatform()
    adapter = Counting(world)
    async with running(tmp_path / "p.db", world, adapters=[adapter], chance=NoPauses()):
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("You said: one")
        await until(lambda: "menu.failed" in {getattr(record, "action", "") for record in caplog.records})
        assert adapter.menus == 1
        world.cut()
        await chat.say(alice, "two")
        await chat.hears("You said: two")
        assert adapter.menus == 2
