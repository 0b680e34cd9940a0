"""A running gateway deletes what is over its limits, beside its turns."""

from datetime import timedelta

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.engine import maintenance
from palaver.model.retention import RetentionLimit, RetentionRules
from palaver.store.status.invariants import violations
from tests.engine.gateway import running, until


@transaction
def _age() -> Statements[None]:
    yield "UPDATE sessions SET last_active = last_active - 3000000000000", ()


async def test_an_old_conversation_goes_while_another_is_answered(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "RETENTION_PAUSE_SECONDS", 0.02)
    rules = RetentionRules(chat=RetentionLimit(age=timedelta(days=30)))
    async with running(store_url, retention=rules) as here:
        ann, bob = here.world.person("Ann"), here.world.person("Bob")
        hers, his = here.world.dm(ann), here.world.dm(bob)
        await hers.say(ann, "from long ago")
        await hers.hears("You said: from long ago")
        await here.settled()
        await here.store.transact(_age())
        await his.say(bob, "now")
        await his.hears("You said: now")

        async def is_gone() -> bool:
            return len(await here.rows("SELECT 1 FROM sessions")) == 1

        await until(is_gone)
        assert await here.store.read(violations()) == []
        # Nothing of it is known any more.
        await hers.say(ann, "me again")
        await hers.hears("You said: me again")
