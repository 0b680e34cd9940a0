"""What a homeserver, or anyone who stands before it, says no with: for ever, or for now."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Outbound
from palaver.platforms.matrix.send import upload
from palaver.protocols.adapter import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
)
from tests.platforms.matrix.scripted_server import ROOM, odd, synced
from tests.platforms.matrix.test_hostile_server import listening, sender


async def test_a_token_that_ended_is_refused_with_what_does_not_end() -> None:
    said = {"errcode": "M_UNKNOWN_TOKEN", "error": "Token is not active"}
    async with odd(lambda _: web.json_response(said, status=401)) as server:
        with pytest.raises(PlatformRefused, match="configure password there instead"):
            await listening(server).batch("s")


@pytest.mark.parametrize(
    ("status", "error"),
    [(429, PlatformBusy), (408, SendUnclear), (502, SendUnclear), (400, SendRefused), (413, SendRefused)],
)
async def test_passing_trouble_is_no_refusal_of_a_message(status: int, error: type[PlatformError]) -> None:
    """Anyone who stands before a homeserver answers without its codes."""

    def reply(request: web.Request) -> dict[str, Any] | web.Response:
        return {**synced("s1")} if request.path.endswith("/sync") else web.Response(status=status, text="no")

    async with odd(reply) as server:
        await listening(server).batch("s")
        with pytest.raises(PlatformError) as refused:
            await sender(server).send(Outbound(platform="matrix", chat_id=ROOM, text="hi"), "key")
    assert type(refused.value) is error


@pytest.mark.parametrize(
    ("status", "error"),
    [(429, PlatformBusy), (408, PlatformDown), (502, PlatformDown), (400, SendRefused), (413, SendRefused)],
)
async def test_passing_trouble_is_no_refusal_of_a_file(status: int, error: type[PlatformError], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"words")
    file = Attachment(Label("a.txt"), "text/plain", 5)
    async with odd(lambda _: web.Response(status=status, text="no")) as server:
        with pytest.raises(PlatformError) as refused:
            await upload(server.client, file, tmp_path / "file", encrypt=False)
    assert type(refused.value) is error
