"""WeChat and WeCom on the loopback, as their documentation describes them, and a person there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from aiohttp import web

from palaver.platforms.wechat.adapter import WeChatAdapter
from palaver.platforms.wechat.parse import WeChatOptions, WeComOptions
from palaver.platforms.wechat.wecom import WeComAdapter
from palaver.protocols import Adapter, HttpRequest, NewFile, Source
from palaver.protocols.sealed import Envelope
from palaver.testkit.fake_server import NotPossible
from tests.platforms.called import ACCOUNT, CalledChat, Json, Loopback, No, Sent, forget_names, reached, read_form

KEY = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"
APP_ID, CORP_ID, TOKEN, SECRET, AGENT = "wx2c2769f8efd9abc2", "wx5823bf96d3bd56c7", "spamtest", "s3cret", 1000002
ALICE = "oyORnuP8q7ou2gfYjqLzSIWZf0rs"
_MAX_BYTES = 2048


def call(fields: Json, receiver: str, *, token: str = TOKEN) -> HttpRequest:
    """Return an encrypted and signed callback."""
    xml = f"<xml>{''.join(f'<{tag}>{escape(str(text))}</{tag}>' for tag, text in fields.items())}</xml>"
    envelope = Envelope(token=token, encoding_key=KEY, receiver=receiver)
    sealed = envelope.seal(xml.encode(), timestamp="1409735669", nonce="1320562132")
    query = {"msg_signature": sealed.signature, "timestamp": "1409735669", "nonce": "1320562132"}
    body = f"<xml><ToUserName>gh_1</ToUserName><Encrypt><![CDATA[{sealed.encrypted}]]></Encrypt></xml>"
    return HttpRequest(method="POST", query=query, body=body.encode())


def wechat_options(url: str = "https://api.weixin.qq.com", **more: Any) -> WeChatOptions:
    given = {"app_id": APP_ID, "app_secret": SECRET, "token": TOKEN, "encoding_aes_key": KEY, "api_url": url}
    return WeChatOptions.model_validate({**given, **more})


def wecom_options(url: str = "https://qyapi.weixin.qq.com", **more: Any) -> WeComOptions:
    given = {"corp_id": CORP_ID, "agent_id": AGENT, "secret": SECRET, "token": TOKEN, "encoding_aes_key": KEY}
    return WeComOptions.model_validate({**given, "api_url": url, **more})


@dataclass
class _Weixin(Loopback):
    typed: list[str] = field(default_factory=list[str])

    async def token_for(self, request: web.Request) -> Json:
        raise NotImplementedError

    async def answer_call(self, path: str, request: web.Request) -> object:
        raise NotImplementedError

    async def api(self, method: str, path: str, request: web.Request) -> object:  # noqa: ARG002
        if path in {"/cgi-bin/stable_token", "/cgi-bin/gettoken"}:
            return await self.token_for(request)
        if request.query.get("access_token") != self.token:
            raise No({"errcode": 42001, "errmsg": "access_token expired"})
        match path:
            case "/cgi-bin/media/get":
                found = self.files.get(request.query["media_id"])
                return found or web.json_response({"errcode": 40007, "errmsg": "invalid media_id"})
            case "/cgi-bin/media/upload":
                name, content = (await read_form(request))["media"]
                return {"type": request.query["type"], "media_id": self.keep(NewFile(name, content))}
            case _:
                return await self.answer_call(path, request)

    async def show_message(self, request: web.Request) -> str:
        assert b"\\u" not in await request.read(), "WeChat shows escapes as they are"
        asked = await request.json()
        kind = asked["msgtype"]
        body = asked[kind]
        file = self.files[body["media_id"]] if "media_id" in body else None
        text = body.get("content") or body.get("head_content") or ""
        if len(text.encode()) > _MAX_BYTES:
            raise No({"errcode": 45002, "errmsg": "content size out of limit"})
        message = f"msg-{next(self.numbers)}"
        await self.show(request, Sent(asked["touser"], text, message, asked, file=file))
        return message


@dataclass
class WeChat(_Weixin):
    busy: ClassVar[No] = No({"errcode": 45011, "errmsg": "api minute-quota reach limit"})
    closed: ClassVar[No] = No({"errcode": 43004, "errmsg": "require subscribe"})
    wrong: ClassVar[No] = No({"errcode": 40125, "errmsg": "invalid appsecret"})

    async def token_for(self, request: web.Request) -> Json:
        asked = await request.json()
        assert asked == {"grant_type": "client_credential", "appid": APP_ID, "secret": SECRET}
        return {"access_token": self.new_token(), "expires_in": 7200}

    async def answer_call(self, path: str, request: web.Request) -> object:
        match path:
            case "/cgi-bin/get_api_domain_ip":
                return {"ip_list": ["101.226.62.77"]}
            case "/cgi-bin/message/custom/send":
                await self.show_message(request)
                return {"errcode": 0, "errmsg": "ok"}
            case "/cgi-bin/message/custom/typing":
                self.typed.append((await request.json())["touser"])
                return {"errcode": 0, "errmsg": "ok"}
            case _:
                raise No({"errcode": 40066, "errmsg": "invalid url"})


@dataclass
class WeCom(_Weixin):
    busy: ClassVar[No] = No({"errcode": 45009, "errmsg": "api freq out of limit"})
    closed: ClassVar[No] = No({"errcode": 81013, "errmsg": "user & party & tag all invalid"})
    wrong: ClassVar[No] = No({"errcode": 40001, "errmsg": "invalid credential"})

    async def token_for(self, request: web.Request) -> Json:
        assert dict(request.query) == {"corpid": CORP_ID, "corpsecret": SECRET}
        return {"errcode": 0, "errmsg": "ok", "access_token": self.new_token(), "expires_in": 7200}

    async def answer_call(self, path: str, request: web.Request) -> object:
        match path:
            case "/cgi-bin/agent/get":
                return {"errcode": 0, "agentid": AGENT, "name": "Helper"}
            case "/cgi-bin/user/get":
                return {"errcode": 0, "userid": request.query["userid"], "name": self.name}
            case "/cgi-bin/message/send":
                return {"errcode": 0, "errmsg": "ok", "msgid": await self.show_message(request)}
            case _:
                raise No({"errcode": 40066, "errmsg": "invalid url"})


class _Chat(CalledChat):
    person = ALICE
    chat_id = ALICE
    receiver: ClassVar[str]

    def _push(self, kind: str, name: str = "alice", **more: Any) -> Source:
        number = str(next(self.server.numbers))
        common = {"ToUserName": "gh_1", "FromUserName": ALICE, "CreateTime": "1409735668", "MsgType": kind}
        self.server.push(call({**common, "MsgId": number, **more}, self.receiver), name)
        return self.source(number)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        return self._push("text", name, Content=text)

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        said = await self.say(text)
        for file in files:
            self._push("image", MediaId=self.server.keep(file), PicUrl="http://mmbiz.qpic.cn/1")
        return said


class FakeWeChat(_Chat):
    platform = "wechat"
    receiver = APP_ID
    fix = "AppSecret"

    async def takes_documents(self) -> None:
        raise NotPossible("only pictures: test_adapter sends one")

    def adapter(self) -> Adapter:
        return reached(WeChatAdapter(ACCOUNT, wechat_options(self.server.url)), self.server)

    async def shown_files(self) -> Sequence[NewFile]:
        return [each.file for each in self.server.sent if each.file]

    async def choices(self) -> Sequence[str]:
        return [line["content"] for line in self.server.sent[-1].raw["msgmenu"]["list"]]

    async def press(self, label: str) -> Source:
        lines = self.server.sent[-1].raw["msgmenu"]["list"]
        chosen = next(line["id"] for line in lines if line["content"] == label)
        return self._push("text", Content=label, bizmsgmenuid=chosen)


class FakeWeCom(_Chat):
    platform = "wecom"
    receiver = CORP_ID
    fix = "Secret"

    def adapter(self) -> Adapter:
        adapter = WeComAdapter(ACCOUNT, wecom_options(self.server.url))
        forget_names(adapter, "_people")
        return reached(adapter, self.server)


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
