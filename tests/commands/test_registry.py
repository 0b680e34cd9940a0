"""The registry: what a command may await, and what is committed of it."""

from datetime import UTC, datetime

import pytest

from palaver.commands.registry import Performance, Registry
from palaver.domain.access import AccessRole
from palaver.domain.command import Command, Invocation
from palaver.domain.errors import NotAllowed
from palaver.domain.key import derive_key
from palaver.domain.lifecycle import InboxState
from palaver.domain.scope import Scope
from palaver.domain.session import Principal
from palaver.domain.source import Source
from palaver.domain.turn import Inbound, Received
from palaver.ports.commands import Spoken
from palaver.ports.work import Steps, Work, work

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = Source(platform="fake", chat_id="c", chat_kind="dm", user_id="u")


def spoken(text: str, role: AccessRole = AccessRole.MEMBER) -> Spoken:
    received = Received(
        number=1,
        key=derive_key(SOURCE, Scope()),
        inbound=Inbound(source=SOURCE, text=text, at=NOW),
        state=InboxState.WAITING,
        received=NOW,
        role=role,
    )
    return Spoken(received=received, principal=Principal.speaking(SOURCE), now=NOW)


@work
def _say(text: str) -> Steps[str]:
    yield from ()
    return text


def outcome(done: Work[str]) -> str:
    steps = iter(done)
    with pytest.raises(StopIteration) as end:
        next(steps)
    return end.value.value


async def said(registry: Registry, text: str, role: AccessRole = AccessRole.MEMBER) -> str:
    invocation = registry.parse(text)
    assert invocation is not None
    return outcome(await registry.perform(invocation, spoken(text, role)))


async def test_a_command_may_await_something_before_its_work() -> None:
    async def slow(_invocation: Invocation, spoken: Spoken) -> Work[str]:
        return _say(f"{spoken.received.inbound.text} was awaited")

    def quick(_invocation: Invocation, _spoken: Spoken) -> Work[str]:
        return _say("at once")

    registry = Registry(
        [
            Performance(Command(name="slow", help="", example=""), slow),
            Performance(Command(name="quick", help="", example=""), quick),
        ]
    )
    assert [await said(registry, "/slow"), await said(registry, "/quick")] == ["/slow was awaited", "at once"]


async def test_nothing_is_awaited_for_somebody_who_may_not() -> None:
    async def never(_invocation: Invocation, _spoken: Spoken) -> Work[str]:
        raise AssertionError

    registry = Registry([Performance(Command(name="x", help="", example="", role=AccessRole.ADMIN), never)])
    with pytest.raises(NotAllowed):
        await said(registry, "/x")
