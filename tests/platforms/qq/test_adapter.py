"""QQ's signatures, its reply windows, and what its answers mean."""

import json
from pathlib import Path

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.platforms.qq.adapter import QqAdapter, Signer, parse
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
from palaver.protocols.recent import ReplyPossibleLater
from palaver.testkit.recorder import Recorder
from tests.engine.gateway import running, until
from tests.platforms.called import ACCOUNT, No, reached, serve
from tests.platforms.qq.fakes import ALICE, GROUP_ID, SECRET, UNION, Qq, call, options_of, said


async def test_the_documented_question_about_the_address_is_answered() -> None:
    body = b'{"d":{"plain_token":"Arq0D5A61EgUu4OxUvOp","event_ts":"1725442341"},"op":13}'
    adapter = QqAdapter(ACCOUNT, options_of())
    headers = {"user-agent": "QQBot-Callback", "x-bot-appid": "11111111"}
    answer = await adapter.handle_callback(HttpRequest(method="POST", headers=headers, body=body), Recorder())
    assert json.loads(answer.body) == {
        "plain_token": "Arq0D5A61EgUu4OxUvOp",
        "signature": (
            "87befc99c42c651b3aac0278e71ada338433ae26fcb24307bdc5ad38c1adc2d0"
            "1bcfcadc0842edac85e85205028a1132afe09280305f13aa6909ffc2d652c706"
        ),
    }, "the documented example"


def test_the_documented_key_is_made_of_the_secret() -> None:
    key = "d7c362fe78aef81ff23287b493628b5db02a3c4fe30b215e4d19609b5d76673a"
    assert Signer("naOC0ocQE3shWLAfffVLB1rhYPG7").public_key.hex() == key
    for signature in ("", "xyz", "00" * 64, "é"):
        assert not Signer(SECRET).is_signed(signature, "1", b"{}")


async def test_nobody_gets_a_signature_for_a_message() -> None:
    """QQ does not sign its question, so anybody can ask it; the signature in the answer must fit no callback."""
    adapter = QqAdapter(ACCOUNT, options_of())
    for token, at in (
        (json.dumps(said("let me in")), "1725442341"),
        ("a", '1{"op":0}'),
        ("", "1"),
        ("a b", "1"),
        ("a\n", "1"),
    ):
        body = json.dumps({"op": 13, "d": {"plain_token": token, "event_ts": at}}).encode()
        answer = await adapter.handle_callback(HttpRequest(method="POST", body=body), Recorder())
        assert (answer.status, answer.body) == (401, b"")
    assert (
        await adapter.handle_callback(HttpRequest(method="POST", body=b'{"op":13,"d":7}'), Recorder())
    ).status == 401


async def test_messages_are_acknowledged() -> None:
    adapter, recorder = QqAdapter(ACCOUNT, options_of()), Recorder()
    for event in (said("hi"), {"op": 0}):
        answer = await adapter.handle_callback(call(event), recorder)
        assert (answer.status, json.loads(answer.body)) == (200, {"op": 12})
    assert recorder.texts == ["hi"]


def test_what_people_send() -> None:
    files = [{"content_type": "voice", "filename": "a.amr", "url": "multimedia.nt.qq.com.cn/x"}]
    inbound = parse(said(" /weather", group=GROUP_ID, attachments=files), ACCOUNT)
    assert inbound
    assert (inbound.text, inbound.mentions_us, inbound.source.user_id_alt) == ("/weather", True, UNION)
    assert inbound.source.chat_id == f"group/{GROUP_ID}"
    assert (inbound.files[0].media_type, inbound.files[0].handle) == (
        "application/octet-stream",
        "https://multimedia.nt.qq.com.cn/x",
    )


async def test_only_pictures_go_out(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x89PNG")
    async with serve(Qq()) as server:
        adapter = QqAdapter(ACCOUNT, options_of(server.url))
        file = Attachment(Label("a.png"), "image/png", 4)
        to = Outbound(platform="qq", chat_id=ALICE, text="look", reply_to="m1", file=file)
        await adapter.send_file(to, tmp_path / "x", idempotency_key="1")
        (sent,) = server.sent
        assert (sent.raw["msg_type"], sent.text, sent.file and sent.file.content) == (7, "look", b"\x89PNG")
        document = Outbound(platform="qq", chat_id=ALICE, text="", reply_to="m1", file=Attachment(Label("a.pdf")))
        with pytest.raises(SendRefused, match="takes no files"):
            await adapter.send_file(document, tmp_path / "x", idempotency_key="2")


async def test_each_answer_means_something() -> None:
    expected: list[tuple[No, type[PlatformError]]] = [
        (No({"code": 22009, "message": "x"}, 400), PlatformBusy),
        (No({"code": 11298, "message": "x"}, 401), PlatformRefused),
        (No({"code": 11265, "message": "x"}, 401), PlatformRefused),
        (No({"code": 304003, "message": "x"}, 400), SendRefused),
        (No({"code": 304026, "message": "x"}, 400), ReplyPossibleLater),
        (No({"code": 304027, "message": "x"}, 400), ReplyPossibleLater),
        (No({"code": 10004, "message": "x"}, 404), TargetGone),
        (No({"code": 40054010, "message": "no URLs"}, 400), SendRefused),
    ]
    async with serve(Qq()) as server:
        adapter = QqAdapter(ACCOUNT, options_of(server.url))
        for number, (no, error) in enumerate(expected):
            server.refuses.append(no)
            to = Outbound(platform="qq", chat_id=ALICE, text="hi", reply_to=f"m{number}")
            with pytest.raises(PlatformError) as raised:
                await adapter.send(to, idempotency_key="1")
            assert type(raised.value) is error, no
        with pytest.raises(ReplyPossibleLater):
            await adapter.send(Outbound(platform="qq", chat_id=ALICE, text="out of the blue"), idempotency_key="2")


async def test_what_cannot_be_a_reply_waits_for_the_next_message(tmp_path: Path) -> None:
    """QQ takes five replies to a message; a sixth part is sent when the person writes again."""
    grants = (Grant(platform="qq", role=AccessRole.MEMBER),)
    async with serve(Qq()) as server:
        adapter = reached(QqAdapter(ACCOUNT, options_of(server.url)), server)
        async with running(tmp_path / "p.db", adapters=[adapter], grants=grants, acknowledges=False):
            server.replies["ROBOT1.0_1"] = 5
            server.push(call(said("one", 1)))
            await until(lambda: server.replies["ROBOT1.0_1"] > 5)
            server.push(call(said("two", 2)))
            await until(lambda: len(server.sent) == 2)
        assert sorted(each.text for each in server.sent) == ["You said: one", "You said: two"]
        assert {each.raw["msg_id"] for each in server.sent} == {"ROBOT1.0_2"}
        assert len({each.raw["msg_seq"] for each in server.sent}) == 2
