"""The registry: what a command may await, what it says before it is confirmed, and the help it gives."""

import re
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from palaver.commands.builtin import builtin_commands
from palaver.commands.registry import CommandHandler, Registry, reply
from palaver.db.transaction import Transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import YES, Arg, ArgKind, Command, Invocation
from palaver.model.errors import NotAllowed, UnknownCommand
from palaver.model.key import Scope, derive_key
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.text import without_invisible
from palaver.model.turn import Inbound, InboxState, Received

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = Source(platform="fake", chat_id="c", chat_kind="dm", user_id="u")


def spoken(text: str, role: AccessRole = AccessRole.MEMBER) -> CommandContext:
    received = Received(
        number=1,
        key=derive_key(SOURCE, Scope()),
        inbound=Inbound(source=SOURCE, text=text, at=NOW),
        state=InboxState.WAITING,
        received=NOW,
        role=role,
    )
    return CommandContext(received=received, principal=Principal.speaking(SOURCE), now=NOW)


def _nothing(_invocation: Invocation, _spoken: CommandContext) -> Transaction[str]:
    return reply("")


def outcome(done: Transaction[str]) -> str:
    steps = iter(done)
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


async def said(registry: Registry, text: str, role: AccessRole = AccessRole.MEMBER) -> str:
    invocation = registry.parse(text)
    assert invocation is not None
    return outcome(await registry.perform(invocation, spoken(text, role)))


async def test_a_command_can_await_something_before_its_work() -> None:
    async def slow(_invocation: Invocation, spoken: CommandContext) -> Transaction[str]:
        return reply(f"{spoken.received.inbound.text} was awaited")

    def quick(_invocation: Invocation, _spoken: CommandContext) -> Transaction[str]:
        return reply("at once")

    registry = Registry(
        [
            CommandHandler(Command(name="slow", help="", example=""), slow),
            CommandHandler(Command(name="quick", help="", example=""), quick),
        ]
    )
    assert [await said(registry, "/slow"), await said(registry, "/quick")] == ["/slow was awaited", "at once"]


async def test_nothing_is_awaited_for_somebody_who_has_no_right_to_it() -> None:
    async def never(_invocation: Invocation, _spoken: CommandContext) -> Transaction[str]:
        raise AssertionError

    registry = Registry([CommandHandler(Command(name="x", help="", example="", role=AccessRole.ADMIN), never)])
    with pytest.raises(NotAllowed):
        await said(registry, "/x")


# Confirmation


def _forgetting() -> Registry:
    def does(_invocation: Invocation, _spoken: CommandContext) -> Transaction[str]:
        return reply("forgotten")

    async def would(_invocation: Invocation, _spoken: CommandContext) -> Transaction[str]:
        return reply("This would forget 3 things.")

    command = Command(name="forget", help="", example="", args=(Arg(name="what", kind=ArgKind.REST), YES))
    return Registry([CommandHandler(command, does, preview=would)])


async def test_without_yes_a_command_says_what_it_would_do_and_how_to_have_it_done() -> None:
    told = await said(_forgetting(), "/forget all\u202e of it")
    assert told.startswith("This would forget 3 things.\nNothing has changed yet.")
    assert without_invisible(told).endswith("/forget all of it --yes")


async def test_with_yes_it_is_done() -> None:
    assert await said(_forgetting(), "/forget all --yes") == "forgotten"


def test_what_would_be_done_is_only_said_where_it_can_be_confirmed() -> None:
    with pytest.raises(ValueError, match="needs YES"):
        CommandHandler(Command(name="x", help="", example=""), _nothing, preview=_nothing)


# Help


def _helping() -> Registry:
    commands = [
        Command(name="new", help="start", example="/new", group="conversations", aliases=("reset",)),
        Command(name="look", help="look at it", example="/look", role=AccessRole.GUEST, urgent=True),
        Command(name="sethome", help="home", example="/sethome", role=AccessRole.ADMIN, group="gateway", args=(YES,)),
    ]
    return Registry([CommandHandler(command, _nothing) for command in commands])


async def test_help_lists_what_a_role_can_use_group_by_group() -> None:
    everything = (await said(_helping(), "/help", AccessRole.OWNER)).splitlines()
    assert everything == [
        "Conversations:",
        "/new, /reset: start",
        "",
        "Gateway:",
        "/help: List all commands, or explain one",
        "/sethome: home",
        "",
        "More:",
        "/look: look at it",
        "",
        "Send /help and a command name for details.",
    ]
    assert "/sethome" not in await said(_helping(), "/help", AccessRole.MEMBER)
    guest = await said(_helping(), "/help", AccessRole.GUEST)
    assert ("/look" in guest, "/new," in guest) == (True, False)


async def test_help_explains_one_command_by_any_of_its_names() -> None:
    told = await said(_helping(), "/help /RESET")
    assert told.splitlines() == ["/new", "start", "Example: /new", "Also: /reset"]
    assert "admin role" in await said(_helping(), "/help sethome")
    assert "--yes" in await said(_helping(), "/help sethome")
    assert "Acts at once" in await said(_helping(), "/help look")
    with pytest.raises(UnknownCommand, match="Unknown command"):
        await said(_helping(), "/help nonsense")


def test_every_command_that_a_notice_names_is_one_of_members() -> None:
    # `can_use` does not know the registry.
    sentences = [text for name, text in vars(texts).items() if name.isupper() and name != "NO_HOME"]
    said = " ".join(text for text in sentences if isinstance(text, str))
    named = set(re.findall(r"(?<!\S)/([a-z]+)", said))
    assert {"new", "back", "approve", "stop"} <= named
    table = builtin_commands(cast("Any", None)).table
    assert {name for name in named if table[name].role is not AccessRole.MEMBER} == set()
