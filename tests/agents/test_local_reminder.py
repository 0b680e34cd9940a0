"""The small local model sets a reminder by its own decision, and the reminder comes."""

import os
from pathlib import Path

import pytest

from palaver.agents.local import LocalModel, installed_model, local_agent
from palaver.db.transaction import JOBS, Notify, Statements, transaction
from palaver.tools.toolsets import Toolsets
from tests.engine.gateway import MovableClock, running


@transaction
def look_for_jobs() -> Statements[None]:
    """Wake the scheduler, which knows nothing of a clock that is moved."""
    yield Notify(JOBS)


@pytest.mark.needs("libgomp.so.1")
async def test_the_small_model_sets_a_reminder_and_it_comes(tmp_path: Path) -> None:
    model = LocalModel(file=str(installed_model()), context_window=2048, max_tokens=12, temperature=0.0)
    agent, clock = local_agent(model, os.environ), MovableClock()
    async with running(
        tmp_path / "p.db", agent=agent, clock=clock, toolsets=Toolsets({}).toolsets, titles=False
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "remind me in 20 minutes to check the oven")
        await chat.hears("Job 1 runs once, next ", within=120)
        clock.later(minutes=21)
        await here.store.transact(look_for_jobs())
        reminder = await chat.hears("Reminder: ", within=120)
    assert "oven" in reminder.text  # its exact words depend on the processor
    await agent.close()
