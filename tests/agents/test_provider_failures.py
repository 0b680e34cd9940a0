"""Recorded failures of four interfaces: what is retried, what the person sees, and what the owner learns."""

from pathlib import Path

import pytest

from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.options import ModelOptions
from palaver.engine import texts
from palaver.model.access import AccessRole, Grant
from palaver.model.problem import describe_agent_problem, is_agent_problem
from palaver.protocols.agent import Failure, FailureKind, Final
from palaver.testkit.platform import FakePlatform
from tests.agents.fake_provider import Provider, providing
from tests.agents.model_helpers import KEY, events, request
from tests.agents.provider_failures import CASES, FORMATS
from tests.engine.gateway import NoPauses, running

DECLINED = "I can't help with that."
TRIES = 3
KINDS = {
    "limited": FailureKind.RATE_LIMITED,
    "no credit": FailureKind.NO_CREDIT,
    "wrong key": FailureKind.UNAUTHORIZED,
    "no permission": FailureKind.UNAUTHORIZED,
    "unknown model": FailureKind.UNKNOWN_MODEL,
    "down": FailureKind.TRANSIENT,
    "overloaded": FailureKind.TRANSIENT,
    "cut": FailureKind.TRANSIENT,
    "malformed": FailureKind.TRANSIENT,
    "error in the stream": FailureKind.TRANSIENT,
    "too long": FailureKind.OVERFLOW,
    "too long with its answer": FailureKind.OVERFLOW,
    "flagged": FailureKind.REJECTED,
    "filtered": FailureKind.REJECTED,
}
SEEN = {
    FailureKind.RATE_LIMITED: (texts.RATE_LIMITED, TRIES),
    FailureKind.TRANSIENT: (texts.SORRY, TRIES),
    FailureKind.NO_CREDIT: (texts.UNAVAILABLE, 1),
    FailureKind.UNAUTHORIZED: (texts.UNAVAILABLE, 1),
    FailureKind.UNKNOWN_MODEL: (texts.UNAVAILABLE, 1),
    FailureKind.OVERFLOW: (texts.OVERFLOW, 1),
    FailureKind.REJECTED: (texts.REJECTED, 1),
}
"""What the person sees, and how often the provider is asked."""


def kind_of(case: str) -> FailureKind:
    return KINDS[case.split(",", maxsplit=1)[0]]


def agent_of(name: str, provider: Provider) -> ModelAgent:
    model, path = FORMATS[name]
    return ModelAgent.of(ModelOptions(model=model, key=KEY, base_url=provider.url + path))


@pytest.mark.parametrize("name", FORMATS)
async def test_each_is_a_failure_of_its_kind(name: str) -> None:
    for case, step in CASES[name].items():
        async with providing(step) as provider:
            agent = agent_of(name, provider)
            *_, last = await events(agent, request())
            await agent.close()
        assert len(provider.requests) == 1, case
        if case == "declined":
            assert last == Final(text=DECLINED)
            continue
        assert isinstance(last, Failure)
        later = 7.0 if case.endswith("later") else None
        assert (case, last.kind, last.after) == (case, kind_of(case), later)
        assert KEY not in last.detail


@pytest.mark.parametrize("name", FORMATS)
async def test_what_is_retried_and_who_learns_what(name: str, tmp_path: Path) -> None:
    world = FakePlatform()
    owner = world.person("owner")
    grants = (
        Grant(platform="fake", role=AccessRole.MEMBER),
        Grant(platform="fake", role=AccessRole.OWNER, user_id=owner.id),
    )
    home = world.dm(owner)
    model = FORMATS[name][0]
    async with providing() as provider:
        agent = agent_of(name, provider)
        async with running(
            tmp_path / "p.db", world, agent=agent, grants=grants, chance=NoPauses(), titles=False, agent_tries=TRIES
        ) as here:
            await home.say(owner, "/sethome")
            await home.hears("home")
            told = set[str]()
            for case, step in CASES[name].items():
                if case.endswith("later"):
                    continue  # it would wait as long as the provider says
                provider.script, provider.requests = [step] * TRIES, []
                ann = world.person(case)
                chat = world.dm(ann)
                await chat.say(ann, "hi")
                seen, asked = (DECLINED, 1) if case == "declined" else SEEN[kind_of(case)]
                await chat.hears(seen)
                await here.settled()
                assert (case, [message.text for message in chat.shown]) == (case, [seen])
                assert (case, len(provider.requests)) == (case, asked)
                if case != "declined" and is_agent_problem(kind_of(case)):
                    told.add(" ".join(describe_agent_problem(kind_of(case), model, "main")))
            notices = [message.text for message in home.shown if "palaver trace" in message.text]
            assert {text.partition(" palaver trace")[0] for text in notices} == told
            assert len(notices) == len(told), "once for each kind"
        await agent.close()
