"""Which model answers: chosen for a conversation, checked, kept over restarts, ended with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.agents.echo import EchoAgent
from palaver.model.access import AccessRole, Grant
from palaver.model.session import ModelOverride
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow
from tests.engine.gateway import running

OFFERED = [
    ModelOverride(model="small", provider="acme", base_url="https://models.example/v1"),
    ModelOverride(model="big", provider="acme"),
    ModelOverride(model="big", provider="zenith"),
]


@dataclass
class Several(Slow):
    """Has models to choose from."""

    def models(self) -> Sequence[ModelOverride]:
        return OFFERED


async def test_the_chosen_model_reaches_the_agent_over_restarts_and_ends_with_the_conversation(store_url: str) -> None:
    world, agent = FakePlatform(), Several()
    agent.go.set()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(store_url, world, agent=agent) as here:
        await chat.say(alice, "/model small")
        await chat.hears("This conversation uses acme:small.")
        await chat.say(alice, "one")
        await chat.hears("answer to: one")
        await here.settled()
    async with running(store_url, world, agent=agent) as here:
        await chat.say(alice, "two")
        await chat.hears("answer to: two")
        await chat.say(alice, "/new")
        await chat.say(alice, "three")
        await chat.hears("answer to: three")
        await here.settled()
        assert [request.override for request in agent.requests] == [OFFERED[0], OFFERED[0], None]


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (
            "/model",
            "uses the agent's default model. You can choose default, acme:small, acme:big, zenith:big.",
        ),
        ("/model zenith/big", "uses zenith:big."),
        ("/model zenith:big", "uses zenith:big."),
        ("/model big", "Several models are called 'big'. Use default, acme:small, acme:big, zenith:big"),
        ("/model \u202ehuge", "This agent has no model called '\\u202ehuge'"),
        ("/model DEFAULT", "uses the agent's default model. It applies from your next message."),
        ("/model a b", "does not take 'b'"),
    ],
)
async def test_what_is_said_of_models(tmp_path: Path, said: str, heard: str) -> None:
    async with running(tmp_path / "p.db", agent=Several()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, said)
        await chat.hears(heard)


async def test_an_agent_without_models_has_none_to_choose(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Slow()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/model")
        await chat.hears("The agent offers no other model.")
        await chat.say(alice, "/model small")
        await chat.hears("no model called 'small'. Use default")


async def test_the_echo_can_be_loud(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=EchoAgent()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/model loud")
        await chat.say(alice, "hello")
        await chat.hears("YOU SAID: HELLO")
        await chat.say(alice, "/model default")
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")


async def test_platforms_are_for_admins_who_see_what_is_connected(tmp_path: Path) -> None:
    admins = (
        Grant(platform="fake", role=AccessRole.MEMBER),
        Grant(platform="fake", user_id="p1", role=AccessRole.ADMIN),
    )
    async with running(tmp_path / "p.db", grants=admins, lease=timedelta(minutes=1)) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        mine, other = here.world.dm(alice), here.world.dm(bob)
        await mine.say(alice, "/sethome")
        await mine.hears("is now the home channel")
        await mine.say(alice, "/platforms")
        await mine.hears(f" UTC\nHome channel: fake:{mine.id} (DM with ")
        await other.say(bob, "/platforms")
        await other.hears("needs the admin role")
