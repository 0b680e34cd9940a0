"""A model agent whose work outlives its turn: a reminder that comes, and a build that fails and is reported.

The provider follows a script and speaks the real wire format; the client library, the tools, the scheduler and the
supervisor are real. What the model learns is read from what arrived at the provider.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.options import ModelOptions
from palaver.db.transaction import JOBS, Notify, Statements, transaction
from palaver.tools.toolsets import Toolsets
from tests.agents.fake_provider import Call, Provider, Says, providing
from tests.agents.model_helpers import KEY, MODEL
from tests.engine.gateway import MovableClock, running
from tests.processes.workshop import OWNERS, workshop


@asynccontextmanager
async def asked(*script: Says) -> AsyncGenerator[tuple[ModelAgent, Provider]]:
    async with providing(*script) as provider:
        agent = ModelAgent.of(ModelOptions(model=MODEL, key=KEY, base_url=provider.openai))
        try:
            yield agent, provider
        finally:
            await agent.close()


def offered(request: dict[str, Any]) -> set[str]:
    return {each["function"]["name"] for each in request["tools"]}


def last(request: dict[str, Any]) -> str:
    return request["messages"][-1]["content"]


@transaction
def look_for_jobs() -> Statements[None]:
    """Wake the scheduler, which knows nothing of a clock that is moved."""
    yield Notify(JOBS)


async def test_a_model_sets_a_reminder_and_it_comes(tmp_path: Path) -> None:
    when = json.dumps({"when": "30m", "prompt": "Remind Alice to call Ann."})
    clock = MovableClock()
    async with (
        asked(Says(calls=(Call("schedule_job", when),)), Says(text="I will."), Says(text="Call Ann!")) as (
            agent,
            model,
        ),
        running(tmp_path / "p.db", agent=agent, clock=clock, toolsets=Toolsets({}).toolsets, titles=False) as here,
    ):
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "remind me to call Ann in half an hour")
        await chat.hears("I will.")
        assert "schedule_job" in offered(model.requests[0])
        assert last(model.requests[1]).startswith("Job 1 runs once, next ")
        clock.later(minutes=31)
        await here.store.transact(look_for_jobs())
        await chat.hears("Call Ann!")
        fired = last(model.requests[2])
        assert "Remind Alice to call Ann." in fired
        assert "job 1 runs now as scheduled" in fired


async def test_a_model_starts_a_build_that_fails_and_reports_it(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/Makefile").write_text("all:\n\t@echo main.c:3: error; exit 1\n")
    build = json.dumps({"command": "make", "background": True})
    script = (
        Says(calls=(Call("terminal", build),)),
        Says(text="The build runs. I tell you when it is done."),
        Says(text="The build failed in line 3 of main.c."),
    )
    async with (
        asked(*script) as (agent, model),
        workshop(tmp_path / "p.db", tmp_path, agent=agent, grants=OWNERS, titles=False) as shop,
    ):
        await shop.chat.say(shop.alice, "build it, and tell me if it fails")
        # Nobody asks again: the end of the process is what makes the model speak.
        await shop.chat.hears("The build failed in line 3 of main.c.")
        assert [each.text for each in shop.chat.shown][-2] == "The build runs. I tell you when it is done."
    assert {"terminal", "process"} <= offered(model.requests[0])
    assert last(model.requests[1]).startswith("Started p1 in the background.")
    assert "background process p1 (make) has ended" in last(model.requests[2])
    assert "exit code 2. Its last output:⟧\n```\nmain.c:3: error" in last(model.requests[2])
