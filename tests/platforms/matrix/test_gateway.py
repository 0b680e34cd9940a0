"""A whole gateway in rooms of a real homeserver: a conversation goes on through a restart and a new room."""

import asyncio
from pathlib import Path

from palaver.domain.access import AccessRole, Grant
from palaver.platforms.kit.notebook import PATIENCE
from palaver.ports.clock import SystemClock
from tests.engine.gateway import running
from tests.platforms.matrix.homeserver import Homeserver
from tests.platforms.matrix.rigs import MatrixRig, rigged

_EVERYBODY = (Grant(platform="matrix", role=AccessRole.MEMBER),)


async def shows(rig: MatrixRig, *texts: str) -> None:
    """In the room, once each."""
    async with asyncio.timeout(PATIENCE):
        while [shown.text for shown in await rig.shown()] != list(texts):  # noqa: ASYNC110 - it has to be looked for
            await asyncio.sleep(0.05)


async def test_a_conversation_goes_on_through_a_restart_and_in_the_room_that_replaces_its_own(
    home: Homeserver, tmp_path: Path
) -> None:
    async with rigged(home, tmp_path) as rig:
        place, first = tmp_path / "store.db", rig.chat_id
        async with running(place, adapters=[rig.adapter()], clock=SystemClock(), grants=_EVERYBODY):
            await rig.is_heard()
            await rig.say("nobody is meant")
            await rig.mention("one")
            await shows(rig, "You said: one")
        await rig.mention("two")
        async with running(place, adapters=[rig.adapter()], clock=SystemClock(), grants=_EVERYBODY) as bench:
            await shows(rig, "You said: one", "You said: two")
            await rig.move_chat()
            await rig.proxy.answered("/m.room.tombstone")
            await rig.mention("three")
            await shows(rig, "You said: three")
            sessions = await bench.rows("SELECT count(*) FROM sessions")
    assert sessions[0][0] == 1
    assert first != rig.chat_id
