"""A thousand streams over real connections to a real window."""

import asyncio
import resource

from bench.streams import Stream
from tests.web.conftest import Opened
from tests.web.test_api import program, say

STREAMS = 1000


async def test_a_thousand_streams_of_one_window_hear_what_is_said(window: Opened) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * STREAMS)), hard))
    async with program(window) as owner, asyncio.timeout(120):
        port = window.config.web.port
        streams = [await Stream.open(port, owner.headers["authorization"]) for _ in range(STREAMS)]
        hearing = asyncio.gather(*(stream.entries() for stream in streams))
        await say(owner, "hello", conversation="plans")
        heard = await hearing
        assert len(set(heard)) == 1
        for stream in streams:
            stream.close()
