"""The documented examples of the encryption, what messages mean, and answers within and after five seconds."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.platforms.wechat.adapter import WeChatAdapter
from palaver.platforms.wechat.parse import parse, plain_text, wecom_markdown
from palaver.platforms.wechat.wecom import WeComAdapter
from palaver.protocols import (
    Attachment,
    HttpRequest,
    Label,
    Outbound,
    PlatformBusy,
    PlatformError,
    PlatformRefused,
    SendRefused,
    TargetGone,
)
from palaver.protocols.agent import Event, Final, Request
from palaver.protocols.recent import ReplyPossibleLater
from palaver.protocols.sealed import BadEnvelope, Envelope, read_xml
from palaver.testkit.recorder import Recorder
from tests.engine.agents import Scripted
from tests.engine.gateway import Bench, running, until
from tests.platforms.called import ACCOUNT, No, serve
from tests.platforms.wechat.fakes import (
    ALICE,
    APP_ID,
    KEY,
    TOKEN,
    FakeWeChat,
    WeChat,
    WeCom,
    call,
    query_of,
    wechat_options,
    wecom_options,
)

WECHAT_EXAMPLE = (
    "hyzAe4OzmOMbd6TvGdIOO6uBmdJoD0Fk53REIHvxYtJlE2B655HuD0m8KUePWB3+LrPXo87wzQ1QLvbeUgmBM4x6F8PGHQHFVAFmOD2LdJF9FrXpbUAh"
    "0B5GIItb52sn896wVsMSHGuPE328HnRGBcrS7C41IzDWyWNlZkyyXwon8T332jisa+h6tEDYsVticbSnyU8dKOIbgU6ux5VTjg3yt+WGzjlpKn6NPhRj"
    "pA912xMezR4kw6KWwMrCVKSVCZciVGCgavjIQ6X8tCOp3yZbGpy0VxpAe+77TszTfRd5RJSVO/HTnifJpXgCSUdUue1v6h0EIBYYI1BD1DlD+C0CR8e6"
    "OewpusjZ4uBl9FyJvnhvQl+q5rv1ixrcpCumEPo5MJSgM9ehVsNPfUM669WuMyVWQLCzpu9GhglF2PE="
)
WECOM_EXAMPLE = (
    "http://x?msg_signature=5c45ff5e21c57e6ad56bac8758b79b1d9ac89fd3&timestamp=1409659589&nonce=263014780&echostr="
    "P9nAzCzyDtyTWESHep1vC5X9xho%2FqYX3Zpb4yKa9SKld1DsH3Iyt3tP3zNdtp%2B4RPcs8TgAE7OaBO%2BFZXvnaqQ%3D%3D"
)


def to(text: str = "hi", **more: Any) -> Outbound:
    return Outbound(platform="wechat", account=ACCOUNT, chat_id=ALICE, text=text, **more)


def test_the_documented_example_of_wechat_is_opened() -> None:
    stamps = {
        "signature": "5d197aaffba7e9b25a30732f161a50dee96bd5fa",
        "timestamp": "1409735669",
        "nonce": "1320562132",
    }
    envelope = Envelope(token=TOKEN, encoding_key=KEY, receiver=APP_ID)
    found = read_xml(envelope.open(WECHAT_EXAMPLE, **stamps))
    assert (found["Content"], found["MsgId"]) == ("abcdteT", "6054768590064713728")
    other = Envelope(token=TOKEN, encoding_key=KEY, receiver="wx_somebody_else")
    with pytest.raises(BadEnvelope, match="not for us"):
        other.open(WECHAT_EXAMPLE, **stamps)
    with pytest.raises(BadEnvelope, match="signature"):
        envelope.open(WECHAT_EXAMPLE, **{**stamps, "nonce": "1"})


async def test_the_question_about_the_address_is_answered() -> None:
    key = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C"
    wecom = WeComAdapter(ACCOUNT, wecom_options(token="QDG6eK", encoding_aes_key=key))  # noqa: S106 - of the example
    asked = HttpRequest(method="GET", query=query_of(WECOM_EXAMPLE))
    answer = await wecom.handle_callback(asked, Recorder())
    assert (answer.status, answer.body) == (200, b"1616140317555161061"), "the documented example"
    wechat = WeChatAdapter(ACCOUNT, wechat_options())
    signature = Envelope(token=TOKEN, encoding_key=KEY, receiver=APP_ID).sign("1", "2")
    query = {"signature": signature, "timestamp": "1", "nonce": "2", "echostr": "4375120948345356249"}
    answer = await wechat.handle_callback(HttpRequest(method="GET", query=query), Recorder())
    assert (answer.status, answer.body) == (200, b"4375120948345356249")
    for wrong in ({**query, "nonce": "3"}, {"echostr": "1"}, {}):
        assert (await wechat.handle_callback(HttpRequest(method="GET", query=wrong), Recorder())).status == 401


def test_xml_has_no_entities() -> None:
    outside = b'<!DOCTYPE xml SYSTEM "http://example.org/x"><xml></xml>'
    for bomb in (b'<!DOCTYPE x [<!ENTITY a "b">]><xml><a>&a;</a></xml>', outside, b"<xml>&x;</xml>", b"", b"<xml"):
        with pytest.raises(ValueError, match=r"document type|not XML"):
            read_xml(bomb)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-7", "cp037"])
def test_xml_is_read_as_utf_8_alone(encoding: str) -> None:
    """A document type in another encoding does not show as ASCII bytes."""
    bomb = '<?xml version="1.0" encoding="{}"?><!DOCTYPE x [<!ENTITY a "b">]><xml><Encrypt>&a;</Encrypt></xml>'
    with pytest.raises(ValueError, match=r"document type|not XML"):
        read_xml(bomb.format(encoding).encode(encoding))
    for plain in ("<xml><a>你好</a></xml>", '<?xml version="1.0" encoding="UTF-8"?><xml><a>你好</a></xml>'):
        assert read_xml(plain.encode()) == read_xml(plain.encode("utf-8-sig")) == {"a": "你好"}


def test_what_people_send() -> None:
    common = {"FromUserName": ALICE, "CreateTime": "1409735668", "MsgId": "1"}
    for fields, text in (
        ({"MsgType": "text", "Content": "hi"}, "hi"),
        ({"MsgType": "voice", "MediaId": "m", "Recognition": "hello"}, "hello"),
        (
            {"MsgType": "location", "Location_X": "23.1", "Location_Y": "113.3", "Label": "here"},
            "[location 23.1, 113.3 here]",
        ),
        ({"MsgType": "link", "Title": "T", "Description": "D", "Url": "https://x.y"}, "T\nD\nhttps://x.y"),
        ({"MsgType": "file"}, "[content that cannot be shown here]"),
    ):
        found = parse({**common, **fields}, "wechat", ACCOUNT)
        assert found
        assert found.text == text


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"Event": "CLICK", "EventKey": "opening hours"}, "opening hours"),
        ({"Event": "click", "EventKey": "/new"}, "/new"),
        ({"Event": "subscribe", "EventKey": "qrscene_123123", "Ticket": "T"}, "/help"),
        ({"Event": "subscribe"}, "/help"),
        ({"Event": "unsubscribe"}, None),
        ({"Event": "VIEW", "EventKey": "https://example.org"}, None),
        ({"Event": "CLICK", "EventKey": ""}, None),
        ({"Event": "bind", "MsgType": "device_event", "DeviceType": "gh_1", "DeviceID": "1"}, None),
    ],
)
def test_a_tap_on_the_menu_and_a_new_follower_say_something(fields: dict[str, str], text: str | None) -> None:
    """Events have no MsgId; WeChat advises to know them by FromUserName and CreateTime."""
    event = {"FromUserName": ALICE, "CreateTime": "1409735668", "MsgType": "event", **fields}
    found = parse(event, "wechat", ACCOUNT)
    assert (found and found.text) == text
    if found:
        again = parse(event, "wechat", ACCOUNT)
        later = parse({**event, "CreateTime": "1409735669"}, "wechat", ACCOUNT)
        assert again
        assert later
        assert found.mentions_us
        assert found.source == again.source != later.source


def test_wechat_shows_plain_text_and_wecom_some_markdown() -> None:
    text = "# Tea\n\n**hot** [map](https://example.org) `x`"
    assert plain_text(text) == "Tea\n\nhot map (https://example.org) x"
    assert wecom_markdown(text) == "**Tea**\n\n**hot** [map](https://example.org) `x`"


async def test_each_error_code_means_something() -> None:
    expected: list[tuple[type[WeChat | WeCom], int, type[PlatformError]]] = [
        (WeChat, -1, PlatformBusy),
        (WeChat, 45009, PlatformBusy),
        (WeChat, 45015, ReplyPossibleLater),
        (WeChat, 45047, ReplyPossibleLater),
        (WeChat, 48001, PlatformRefused),
        (WeChat, 40164, PlatformRefused),
        (WeChat, 40003, TargetGone),
        (WeChat, 45002, SendRefused),
        (WeCom, 60020, PlatformRefused),
        (WeCom, 301002, PlatformRefused),
        (WeCom, 60111, TargetGone),
        (WeCom, 45033, PlatformBusy),
        (WeCom, 44004, SendRefused),
    ]
    async with serve(WeChat()) as wechat, serve(WeCom()) as wecom:
        adapters = {
            WeChat: WeChatAdapter(ACCOUNT, wechat_options(wechat.url)),
            WeCom: WeComAdapter(ACCOUNT, wecom_options(wecom.url)),
        }
        for kind, code, error in expected:
            (wechat if kind is WeChat else wecom).refuses.append(No({"errcode": code, "errmsg": "x"}))
            with pytest.raises(PlatformError) as raised:
                await adapters[kind].send(to(), idempotency_key="1")
            assert type(raised.value) is error, code


async def test_wechat_takes_pictures_but_no_documents(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x89PNG\r\n")
    async with serve(WeChat()) as server:
        adapter = WeChatAdapter(ACCOUNT, wechat_options(server.url))
        picture = Attachment(Label("a.png"), "image/png", 6)
        await adapter.send_file(to("look", file=picture), tmp_path / "x", idempotency_key="1")
        assert [(each.raw["msgtype"], each.text) for each in server.sent] == [("image", ""), ("text", "look")]
        with pytest.raises(SendRefused):
            await adapter.send_file(to(file=Attachment(Label("a.pdf"))), tmp_path / "x", idempotency_key="2")
        with pytest.raises(SendRefused, match="invalid media_id"):
            _ = [chunk async for chunk in adapter.fetch(Attachment(Label("x"), handle="none"))]
        await adapter.typing(to())
        assert server.typed == [ALICE]


def said(text: str, number: str) -> HttpRequest:
    fields = {"ToUserName": "gh_1", "FromUserName": ALICE, "CreateTime": "1", "MsgType": "text", "MsgId": number}
    return call({**fields, "Content": text}, APP_ID)


async def test_an_unverified_account_answers_the_call_or_keeps_the_answer_for_the_next(tmp_path: Path) -> None:
    """Within five seconds the answer is in the response; later, it waits for WeChat's next call."""
    hurries = asyncio.Event()

    async def answers(request: Request) -> AsyncGenerator[Event]:
        if "slow" in str(request):
            await hurries.wait()
        yield Final(text="done & dusted")

    async with serve(WeChat()) as server:
        adapter = WeChatAdapter(ACCOUNT, wechat_options(server.url, passive=True))
        adapter.repeat_seconds = 0.0
        reached_by: list[Any] = []
        run = adapter.run

        async def listen(receiver: Any) -> None:
            reached_by.append(receiver)
            await run(receiver)

        setattr(adapter, "run", listen)  # noqa: B010
        grants = (Grant(platform="wechat", role=AccessRole.MEMBER),)
        agent = Scripted(answers)
        async with running(
            tmp_path / "p.db", adapters=[adapter], grants=grants, agent=agent, acknowledges=False
        ) as here:
            await until(lambda: bool(reached_by))
            reply = await adapter.handle_callback(said("quick", "1"), reached_by[0])
            assert opened(reply.body)["Content"] == "done & dusted"
            adapter.reply_seconds = 0.05
            for _ in range(3):
                reply = await adapter.handle_callback(said("slow", "2"), reached_by[0])
                assert reply.body == b"success"
            hurries.set()
            await until(lambda: waits(here))
            adapter.reply_seconds = 30.0
            reply = await adapter.handle_callback(said("hello?", "3"), reached_by[0])
            assert opened(reply.body)["Content"] == "done & dusted"
            assert not server.sent


async def waits(here: Bench) -> bool:
    found = await here.rows("SELECT error FROM outbox WHERE state = 'due'")
    return ["sent when somebody writes there again" in str(error) for (error,) in found] == [True]


def opened(body: bytes) -> dict[str, str]:
    sealed = read_xml(body)
    stamps = {"signature": sealed["MsgSignature"], "timestamp": sealed["TimeStamp"], "nonce": sealed["Nonce"]}
    plain = Envelope(token=TOKEN, encoding_key=KEY, receiver=APP_ID).open(sealed["Encrypt"], **stamps)
    return read_xml(plain)


async def test_somebody_who_writes_again_gets_what_was_held_back(tmp_path: Path) -> None:
    """After 48 hours WeChat takes nothing for a person; it waits until they write."""
    grants = (Grant(platform="wechat", role=AccessRole.MEMBER),)
    async with serve(WeChat()) as server:
        fake = FakeWeChat(server)
        server.refuses += [No({"errcode": 45015, "errmsg": "response out of time limit"})]
        async with running(tmp_path / "p.db", adapters=[fake.adapter()], grants=grants, acknowledges=False):
            await fake.say("one")
            await until(lambda: not server.refuses)
            await fake.say("two")
            await until(lambda: len(server.sent) == 2)
        assert sorted(each.text for each in server.sent) == ["You said: one", "You said: two"]
