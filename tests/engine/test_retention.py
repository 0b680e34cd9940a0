"""A running gateway deletes what is over its limits, beside its turns."""

from datetime import timedelta

import pytest

from palaver.engine import maintenance
from palaver.model.retention import RetentionLimit, RetentionRules
from palaver.store.status.invariants import violations
from palaver.testkit.platform import LoopClock
from tests.engine.gateway import running, until


async def test_an_old_conversation_goes_soon_after_the_start_while_another_is_answered(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next pass is an hour later."""
    monkeypatch.setattr(maintenance, "RETENTION_START_SECONDS", 0.02)
    rules = RetentionRules(chat=RetentionLimit(age=timedelta(days=30)))
    async with running(store_url) as here:
        ann = here.world.person("Ann")
        hers = here.world.dm(ann)
        await hers.say(ann, "from long ago")
        await hers.hears("You said: from long ago")
        await here.settled()
    month = LoopClock(LoopClock().now() + timedelta(days=31))
    async with running(store_url, here.world, retention=rules, clock=month) as here:
        bob = here.world.person("Bob")
        his = here.world.dm(bob)
        await his.say(bob, "now")
        await his.hears("You said: now")

        async def is_gone() -> bool:
            return len(await here.rows("SELECT 1 FROM sessions")) == 1

        await until(is_gone)
        assert await here.store.read(violations()) == []
        # Nothing of it is known any more.
        await hers.say(ann, "me again")
        await hers.hears("You said: me again")
