"""A command that cannot be done is answered, and the conversation goes on after it."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from palaver.commands.registry import Registry
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole, Grant
from palaver.model.command import Invocation
from palaver.model.errors import NotFound, StoreError
from tests.engine.gateway import running

WORDS = "the words of somebody"


@transaction
def _raises() -> Statements[str]:
    yield from ()
    raise KeyError(WORDS)


@transaction
def _writes_nonsense() -> Statements[str]:
    yield "INSERT INTO sessions (id) VALUES (?)", (WORDS,)
    return "done"


@transaction
def _finds_the_store_broken() -> Statements[str]:
    yield from ()
    raise StoreError(WORDS)


def _raises_at_once() -> Transaction[str]:
    raise ValueError(WORDS)


@pytest.mark.parametrize("breaks", [_raises, _writes_nonsense, _finds_the_store_broken, _raises_at_once])
@pytest.mark.parametrize("command", ["/new", "/status"])
async def test_a_command_that_breaks_is_answered_safely_and_holds_nothing_up(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    breaks: Callable[[], Transaction[str]],
    command: str,
) -> None:
    async def perform(self: Registry, invocation: Invocation, spoken: CommandContext) -> Transaction[str]:  # noqa: ARG001
        return breaks()

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(Registry, "perform", perform)
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, command)
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")
        assert [message.text for message in chat.shown] == [texts.SORRY, "You said: hello"]
        assert await here.rows("SELECT state FROM inbox WHERE turn_no IS NULL") == [("failed",)]
    assert "a command failed" in caplog.text
    assert WORDS not in caplog.text


async def test_what_is_meant_for_people_is_reported_to_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def perform(self: Registry, invocation: Invocation, spoken: CommandContext) -> Transaction[str]:  # noqa: ARG001
        raise NotFound("session", "x")

    monkeypatch.setattr(Registry, "perform", perform)
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/new")
        await chat.hears("There is no conversation")


async def test_answers_name_only_commands_that_the_reader_can_use(tmp_path: Path) -> None:
    grants = (Grant(platform="fake", role=AccessRole.GUEST),)
    roles = {"new": AccessRole.GUEST}
    async with running(tmp_path / "p.db", grants=grants, command_roles=roles) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for text, answer in (("hi", "hi"), ("/whoami", "not linked."), ("/new", "Started a new conversation.")):
            await chat.say(alice, text)
            told = (await chat.hears(answer)).text
            assert "/link" not in told
            assert "/back" not in told


async def test_the_trace_of_a_refused_command_says_why(tmp_path: Path) -> None:
    grants = (Grant(platform="fake", role=AccessRole.GUEST),)
    async with running(tmp_path / "p.db", grants=grants) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for text in ("/new", "/whoami me", "/resume"):
            await chat.say(alice, text)
            await here.settled()
        reasons = await here.rows("SELECT reason FROM inbox WHERE state = 'failed' ORDER BY no")
        member = "it needs the member role"
        said_in_chat = "it cannot be done like this; the answer in the chat says why"
        assert [row[0] for row in reasons] == [member, said_in_chat, member]
