"""BlueBubbles calls a gateway as it is started, at the address that the gateway registered."""

from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from palaver.config.model import Config, PlatformConfig
from palaver.protocols import HttpRequest, HttpResponse
from palaver.settings.quotas import GrantConfig
from tests.engine.gateway import until
from tests.platforms.imessage.fakes import ACCOUNT, PUBLIC_URL, FakeAsking
from tests.platforms.imessage.server import PASSWORD, serving
from tests.platforms.imessage.world import ANN, Mac
from tests.web.conftest import opened


async def test_a_call_wakes_the_gateway_and_one_without_the_secret_does_not(tmp_path: Path) -> None:
    async with serving(Mac()) as server:
        config = Config(
            data_dir=tmp_path,
            store=str(tmp_path / "palaver.db"),
            platforms={
                "imessage": PlatformConfig(
                    accounts={ACCOUNT: {"url": server.url, "password": PASSWORD, "public_url": PUBLIC_URL}}
                )
            },
            grants=(GrantConfig(platform="imessage", user_id=ANN),),
        )
        async with opened(config) as window, httpx2.AsyncClient(base_url=window.url, timeout=60) as program:
            statuses: list[int] = []

            async def call(request: HttpRequest) -> HttpResponse:
                (hook,) = server.webhooks.values()
                path = urlsplit(str(hook["url"])).path
                forged = await program.post(path, content=request.body, params={"secret": "guess"})
                answer = await program.post(path, content=request.body, params=dict(request.query))
                statuses.extend((forged.status_code, answer.status_code))
                return HttpResponse(status=answer.status_code)

            await until(lambda: bool(server.webhooks))
            server.calls_us = call
            await FakeAsking(server).say("hello")
            await until(lambda: [message["text"] for message in server.mac.sent] == ["You said: hello"])
    assert statuses == [401, 200]
