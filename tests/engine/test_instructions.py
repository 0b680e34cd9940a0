"""Instructions of a profile, a platform, a chat and a thread: they add up, and are given again after /new."""

from collections.abc import AsyncGenerator
from pathlib import Path

from palaver.config.loader import load
from palaver.protocols.agent import Event, Final, Request
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Scripted
from tests.engine.gateway import running, until

MARK = "Instructions, from general to specific; where they differ, the last ones count:\n\n"


async def _tell(request: Request) -> AsyncGenerator[Event]:
    yield Final(text=request.section.partition(MARK)[2] or "none")


async def _ask(chat: Chat, text: str, thread: str | None = None) -> str:
    said = await chat.say(chat.people[0], text, thread=thread)
    await until(lambda: any(each.reply_to == said.id for each in chat.shown))
    return next(each.text for each in chat.shown if each.reply_to == said.id)


async def test_they_add_up_from_wide_to_narrow_and_a_topic_has_its_own_role(tmp_path: Path) -> None:
    world, agent = FakePlatform(), Scripted(_tell)
    alice = world.person("alice")
    group, other = world.group("Dev", alice), world.group("Others", alice)
    role = tmp_path / "cook.md"
    role.write_text("You are a cook.\n")
    (tmp_path / "palaver.yaml").write_text(
        f"""
grants: [{{platform: fake, role: member}}]
instructions: Be brief.
platforms:
  telegram: {{instructions: Never seen.}}
  fake:
    instructions: Use no emoji.
    chats:
      {group.id}:
        instructions: This is a group of friends.
        threads:
          t1: {{instructions_file: cook.md}}
"""
    )
    environ = {"PALAVER_HOME": str(tmp_path), "PALAVER_CONFIG": str(tmp_path / "palaver.yaml")}
    options = load(tmp_path, environ).settings()
    async with running(tmp_path / "p.db", world, agent=agent, **vars(options)):
        friends = "Be brief.\n\nUse no emoji.\n\nThis is a group of friends."
        assert await _ask(other, "hello") == "Be brief.\n\nUse no emoji."
        assert await _ask(group, "hello") == friends
        assert await _ask(group, "hello", "t1") == f"{friends}\n\nYou are a cook."
        await _ask(group, "/new", "t1")
        assert await _ask(group, "hello", "t1") == f"{friends}\n\nYou are a cook."
        assert await _ask(group, "hello", "t2") == friends
        assert agent.requests[-3].section == agent.requests[-2].section
        role.write_text("You are a gardener now.\n")
        assert await _ask(group, "hello", "t1") == f"{friends}\n\nYou are a gardener now."
        role.unlink()  # what it said last still counts
        assert await _ask(group, "hello", "t1") == f"{friends}\n\nYou are a gardener now."
