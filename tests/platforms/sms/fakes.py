"""Twilio on the loopback, as its documentation describes it, and a person with a telephone."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

from aiohttp import web

from palaver.platforms.sms.adapter import SmsAdapter, SmsOptions, sign
from palaver.protocols import (
    Adapter,
    HttpRequest,
    NewFile,
    PlatformBusy,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    Source,
    TargetGone,
)
from palaver.testkit.fake_server import Refusal
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, reached

SID, TOKEN = "AC" + "0" * 32, "sms-token"
OURS, ALICE = "+15550100300", "+15550100301"
ADDRESS = "https://gateway.example.org/in/sms/helper"


def call(form: Json, *, token: str = TOKEN, url: str = ADDRESS) -> HttpRequest:
    fields = {name: str(text) for name, text in form.items()}
    headers = {"x-twilio-signature": sign(url, fields, token)}
    return HttpRequest(method="POST", headers=headers, body=urlencode(fields).encode())


def form_of(text: str, number: int = 1, **more: Any) -> Json:
    sid = f"SM{number:032}"
    return {"MessageSid": sid, "AccountSid": SID, "From": ALICE, "To": OURS, "Body": text, "NumMedia": "0", **more}


def options_of(url: str = "https://api.twilio.com", **more: Any) -> SmsOptions:
    given = {"account_sid": SID, "auth_token": TOKEN, "sender": OURS, "webhook_url": ADDRESS, "api_url": url}
    return SmsOptions.model_validate({**given, **more})


def error(code: int, status: int) -> No:
    return No({"code": code, "message": f"No: {code}", "status": status}, status)


@dataclass
class Twilio(Loopback):
    busy: ClassVar[No] = error(20429, 429)
    closed: ClassVar[No] = error(21610, 400)
    wrong: ClassVar[No] = error(20003, 401)

    async def api(self, method: str, path: str, request: web.Request) -> object:
        if path.startswith("/elsewhere/"):
            assert "authorization" not in request.headers
            return self.files[path.removeprefix("/elsewhere/")]
        expected = base64.b64encode(f"{SID}:{TOKEN}".encode()).decode()
        if self.trouble or request.headers.get("authorization") != f"Basic {expected}":
            raise self.trouble or self.wrong
        match method, path.removeprefix(f"/2010-04-01/Accounts/{SID}").split("/"):
            case "GET", [".json"]:
                return {"sid": SID, "friendly_name": "Example", "status": "active"}
            case "POST", ["", "Messages.json"]:
                asked = await request.post()
                if len(str(asked["Body"])) > 1600:
                    raise error(21617, 400)
                sid = f"SM{next(self.numbers):032}"
                await self.show(request, Sent(str(asked["To"]), str(asked["Body"]), sid, dict(asked)))
                return web.json_response({"sid": sid, "status": "queued"}, status=201)
            case "GET", ["", "Messages", _, "Media", handle]:
                # The content is on another host.
                raise web.HTTPTemporaryRedirect(f"{self.url.replace('127.0.0.1', 'localhost')}/elsewhere/{handle}")
            case _:
                raise error(20404, 404)


class FakeSms(CalledChat):
    platform = "sms"
    person = ALICE
    chat_id = ALICE
    fix = "Auth Token"
    foreign = ("/etc/passwd", "//evil.example/x", f"/2010-04-01/Accounts/{SID}/../x", "")
    refused_as = (
        Refusal(answer=error(20429, 429), means=PlatformBusy),
        Refusal(answer=error(20003, 401), means=PlatformRefused),
        Refusal(answer=error(21606, 400), means=PlatformRefused),
        Refusal(answer=error(21610, 400), means=TargetGone),
        Refusal(answer=error(21211, 400), means=TargetGone),
        Refusal(answer=error(21408, 400), means=SendRefused),
        Refusal(answer=error(0, 500), means=SendUnclear),
        Refusal(answer=error(20500, 500), means=SendUnclear),
        Refusal(answer=No({}), means=SendUnclear),
        Refusal(answer=error(14107, 429), means=PlatformBusy, after=30.0),
        Refusal(answer=error(21611, 429), means=PlatformBusy, after=3600.0),
        Refusal(answer=error(60728, 429), means=PlatformBusy, after=3600.0),
        Refusal(answer=error(63038, 429), means=PlatformBusy, after=3600.0),
    )

    def adapter(self) -> Adapter:
        return reached(SmsAdapter(ACCOUNT, options_of(self.server.url)), self.server)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None, **more: Any) -> Source:
        assert thread_id is None
        form = form_of(text, next(self.server.numbers), **more)
        self.server.push(call(form), name)
        return self.source(form["MessageSid"])

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        media: Json = {"NumMedia": len(files)}
        for number, file in enumerate(files):
            handle = self.server.keep(file)
            media[f"MediaUrl{number}"] = f"https://api.twilio.com/2010-04-01/Accounts/{SID}/Messages/MM1/Media/{handle}"
            media[f"MediaContentType{number}"] = file.media_type
        return await self.say(text, **media)

    async def say_nonsense(self) -> None:
        for form in ({"Body": "x"}, form_of("x", From=""), form_of("x", NumMedia="many"), form_of("x", NumMedia="9")):
            self.server.push(call(form))
