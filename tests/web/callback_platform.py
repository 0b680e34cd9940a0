"""A platform that calls over HTTP, as a package would bring it: each call with the secret in it is a message."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Self

import pytest
from pydantic import BaseModel, SecretStr

from palaver.model.errors import StoreUnavailable
from palaver.model.platform import Platform
from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound, Outbound
from palaver.protocols.adapter import Limits, PlatformBusy, PlatformDown, Receiver
from palaver.protocols.capabilities import HttpRequest, HttpResponse
from tests.packages import bring

__all__ = ["CallerAdapter", "Options", "install"]


class Options(BaseModel):
    secret: SecretStr


CALLER = Platform(name="caller", title="Caller", adapter="tests.web.callback_platform:CallerAdapter")


@dataclass
class CallerAdapter:
    account: str
    secret: str
    platform: ClassVar[Platform] = CALLER
    options: ClassVar[type[BaseModel]] = Options
    limits: ClassVar[Limits] = Limits()
    takes_callbacks: ClassVar[bool] = True
    heard: ClassVar[list[HttpRequest]] = []

    @classmethod
    def make(cls, account: str, options: Options) -> Self:
        return cls(account, options.secret.get_secret_value())

    async def run(self, receiver: Receiver) -> None:
        await receiver.connected()
        await asyncio.Event().wait()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return f"{idempotency_key} {outbound.chat_id}"

    async def handle_callback(self, call: HttpRequest, receiver: Receiver) -> HttpResponse:
        self.heard.append(call)
        if call.headers.get("x-secret") != self.secret:
            return HttpResponse(status=401, body=b"wrong secret")
        match call.path:
            case "busy":
                raise PlatformBusy(6.2)
            case "down":
                raise PlatformDown("the platform does not know who we are")
            case "outage":
                raise StoreUnavailable("the store is away")
            case "broken":
                raise RuntimeError(self.secret)
            case _:
                source = Source(
                    platform="caller",
                    account=self.account,
                    chat_id="7",
                    user_id="7",
                    message_id=call.query.get("id", "1"),
                )
                await receiver.receive(Inbound(source=source, text=call.body.decode(), at=datetime.now(UTC)), Trust())
                cheats = {"set-cookie": "a=b", "Content-Security-Policy": "default-src *", "x-own": "kept"}
                return HttpResponse(body=b"<b>heard</b>", media_type="text/html", headers=cheats)


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(folder, monkeypatch, {"caller": "tests.web.callback_platform:CALLER"})
    monkeypatch.setattr(CallerAdapter, "heard", [])
