"""What a homeserver may answer, and what strangers may send, stops nothing and is taken for nothing else."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from palaver.platforms.matrix.direct import Direct
from palaver.platforms.matrix.hearing import Batch, Hearing
from tests.platforms.matrix.odd import ROOM, Odd, odd, synced

ALICE = "@alice:example.org"


def event(kind: str, content: dict[str, Any], name: str = "$1", **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "event_id": name,
        "sender": ALICE,
        "origin_server_ts": 1,
        "room_id": ROOM,
        "content": content,
        **more,
    }


ENCRYPTED = event("m.room.encryption", {"algorithm": "m.megolm.v1.aes-sha2"}, "$0", state_key="")
UNREADABLE = event(
    "m.room.encrypted",
    {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AAAA", "sender_key": "", "device_id": "D", "session_id": "s"},
)


def hearing(server: Odd) -> Hearing:
    return Hearing(server.client, Direct(server.client), "helper", threads=True)


def names(batch: Batch) -> list[str]:
    return [each.event.event_id for each in batch.heard]


@pytest.mark.parametrize("limited", [False, True])
async def test_what_nobody_could_have_encrypted_is_passed_over(tmp_path: Path, limited: bool) -> None:
    """In what is new, and in what is fetched because there was too much of it."""
    after = event("m.room.message", {"msgtype": "m.text", "body": "hi"}, "$2")

    def reply(request: web.Request) -> dict[str, Any]:
        if request.path.endswith("/messages"):
            return {"chunk": [after, UNREADABLE], "start": "before", "end": "before"}
        said = () if limited else (UNREADABLE, after)
        return {**synced(f"s{len(server.asked)}", *said, state=(ENCRYPTED,), limited=limited)}

    async with odd(reply, tmp_path / "keys") as server:
        heard = hearing(server)
        assert names(await heard.batch("s")) == ["$1", "$2"]
        assert await heard.batch("s1")
