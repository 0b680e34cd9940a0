"""A message of each platform that answers with codes, for `bench.adapters`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bench.canned import Answers
from palaver.model.turn import Outbound

__all__ = ["PLATFORMS", "Called"]

# What any of them expects: a token, who we are, and the id of what was sent.
_ANSWER = {
    **dict.fromkeys(("tenant_access_token", "access_token", "accessToken"), "t"),
    **dict.fromkeys(("expire", "expires_in", "expireIn"), 7200),
    **dict.fromkeys(("msgid", "processQueryKey", "id"), "m"),
    "bot": {"open_id": "ou_bot", "app_name": "Helper"},
    "data": {"message_id": "om_2"},
    "sentMessages": [{"id": "2"}],
}
_KEY = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"


def _answer(_: str) -> tuple[int, object]:
    return 200, _ANSWER


@dataclass(frozen=True, kw_only=True)
class Called:
    payload: bytes
    parse: Callable[[bytes], object]
    render: Callable[[Outbound], object]
    options: Callable[[str], dict[str, object]]
    answers: Answers | None = _answer
    chat: str = "7"


def _of(name: str) -> Any:  # noqa: ANN401 - a module
    return import_module(f"palaver.platforms.{name}")


def _feishu(said: str) -> Called:
    parse, render = _of("feishu.parse").parse, _of("feishu.render").render
    message = {"message_id": "om_1", "create_time": "1777000000000", "chat_id": "oc_1", "chat_type": "p2p"}
    message |= {"message_type": "text", "content": json.dumps({"text": said})}
    sender = {"sender_id": {"open_id": "ou_1", "union_id": "on_1"}, "sender_type": "user"}
    event = {"header": {"event_type": "im.message.receive_v1"}, "event": {"sender": sender, "message": message}}
    return Called(
        payload=json.dumps(event).encode(),
        parse=lambda payload: parse(json.loads(payload), "main", "ou_bot"),
        render=render,
        options=lambda url: {"app_id": "cli_1", "app_secret": "s", "encrypt_key": "k", "api_url": url},
        chat="oc_1",
    )


def _weixin(said: str, platform: str, options: dict[str, object], render: Callable[[Outbound], object]) -> Called:
    fields = {"FromUserName": "u1", "CreateTime": "1777000000", "MsgType": "text", "Content": said, "MsgId": "1"}
    parse = _of("wechat.parse").parse
    return Called(
        payload=json.dumps(fields).encode(),
        parse=lambda payload: parse(json.loads(payload), platform, "main"),
        render=render,
        options=lambda url: {**options, "token": "token", "encoding_aes_key": _KEY, "api_url": url},
        chat="u1",
    )


def _wechat(said: str) -> Called:
    return _weixin(said, "wechat", {"app_id": "wx1", "app_secret": "s"}, _of("wechat.render").render)


def _wecom(said: str) -> Called:
    markdown = _of("wechat.render").wecom_markdown
    options: dict[str, object] = {"corp_id": "ww1", "agent_id": 1, "secret": "s"}
    return _weixin(said, "wecom", options, lambda outbound: markdown(outbound.text))


def _dingtalk(said: str) -> Called:
    parse, render = _of("dingtalk.parse").parse, _of("dingtalk.render").render
    message = {"conversationType": "1", "senderStaffId": "u1", "senderNick": "Ann", "msgId": "1"}
    message |= {"createAt": 1777000000000, "msgtype": "text", "text": {"content": said}}
    return Called(
        payload=json.dumps(message).encode(),
        parse=lambda payload: parse(json.loads(payload), "main"),
        render=lambda outbound: render(outbound.text),
        options=lambda url: {"client_id": "d", "client_secret": "s", "mode": "http", "api_url": url, "media_url": url},
    )


def _qq(said: str) -> Called:
    parse, render = _of("qq.parse").parse, _of("qq.render").render
    message = {"id": "1", "author": {"user_openid": "u1"}, "content": said, "timestamp": "2026-05-01T12:00:00+08:00"}
    return Called(
        payload=json.dumps({"op": 0, "t": "C2C_MESSAGE_CREATE", "d": message}).encode(),
        parse=lambda payload: parse(json.loads(payload), "main"),
        render=lambda outbound: render(outbound.text, "1", "key"),
        options=lambda url: {"app_id": "1", "app_secret": "s", "api_url": url, "token_url": url},
        answers=None,  # It only replies.
    )


def _line(said: str) -> Called:
    parse, render = _of("line.parse").parse, _of("line.render").render
    event: dict[str, object] = {"type": "message", "timestamp": 1777000000000, "replyToken": "r"}
    event |= {"source": {"type": "user", "userId": "U1"}, "message": {"id": "1", "type": "text", "text": said}}
    return Called(
        payload=json.dumps(event).encode(),
        parse=lambda payload: parse(json.loads(payload), "main"),
        render=render,
        options=lambda url: {"channel_secret": "s", "token": "t", "api_url": url, "data_url": url},
        chat="U1",
    )


def _yuanbao(said: str) -> Called:
    parse, rendering, wire = _of("yuanbao.parse").parse, _of("yuanbao.render"), _of("yuanbao.wire")
    encode = import_module("palaver.protocols.protobuf").encode
    (part,) = wire.elements([("TIMTextElem", encode((1, said)))])
    pushed = encode((2, "u1"), (4, "Ann"), (10, 1777000000), (12, "1"), (13, part))
    return Called(
        payload=json.dumps(pushed.hex()).encode(),
        parse=lambda _: parse(pushed, "main", "bot"),
        render=lambda outbound: rendering.render(outbound, rendering.body_of(outbound.text, {}), us="bot", key="k"),
        options=lambda _: {"app_key": "k", "app_secret": "s"},
        answers=None,
    )


PLATFORMS: Mapping[str, Callable[[str], Called]] = {
    "dingtalk": _dingtalk,
    "feishu": _feishu,
    "line": _line,
    "qq": _qq,
    "wechat": _wechat,
    "wecom": _wecom,
    "yuanbao": _yuanbao,
}
