"""What ntfy's lines and answers mean, and what stops nothing."""

from pathlib import Path

import pytest

from palaver.platforms.ntfy.adapter import NtfyAdapter, parse
from palaver.protocols import (
    Attachment,
    Choice,
    Label,
    Outbound,
    PlatformRefused,
)
from palaver.testkit.driver import run_adapter
from tests.platforms.called import ACCOUNT, serve
from tests.platforms.ntfy.fakes import TOKEN, TOPIC, FakeNtfy, Ntfy, options_of

TO = Outbound(platform="ntfy", chat_id=TOPIC, text="hi", choices=(Choice("Yes", "/approve 1"),))


async def test_our_own_messages_and_unreadable_lines_are_skipped(tmp_path: Path) -> None:
    async with serve(Ntfy()) as server:
        fake = FakeNtfy(server)
        async with run_adapter(fake) as (adapter, recorder):
            assert isinstance(adapter, NtfyAdapter)
            await fake.say("one", title="Tea")
            await recorder.has(1)
            await adapter.send(TO, idempotency_key="1")
            (tmp_path / "f").write_bytes(b"x")
            file = Attachment(Label("ü.txt"), "text/plain", 1, "0" * 64)
            about = Outbound(platform="ntfy", chat_id=TOPIC, text="look", file=file)
            await adapter.send_file(about, tmp_path / "f", idempotency_key="2")
            for line in server.lines:
                await line.write(
                    b'\n{\n[]\nnull\n{"event":"message","time":"x"}\n\xff\n{"event":"keepalive","time":1}\n'
                )
            await server.tell(server.message(message="no topic"))
            await fake.say("two", attachment={"name": "x", "url": "http://169.254.169.254/file/secret"})
            await recorder.has(2)
    assert recorder.texts == ["Tea\none", "two"]
    assert not recorder.received[1].files, "it is on another server"
    assert [(each.text, each.file and each.file.name) for each in server.sent] == [("hi", None), ("look", "ü.txt")]


async def test_a_protected_topic_has_no_buttons() -> None:
    async with serve(Ntfy()) as server:
        for token in (None, TOKEN):
            server.token = token
            adapter = NtfyAdapter(ACCOUNT, options_of(server.url, token=token))
            assert TOPIC in await adapter.check()
            await adapter.send(TO, idempotency_key="x")
            assert ("actions" in server.sent[-1].raw) is (token is None)
            assert TOKEN not in str(server.sent[-1].raw)


def test_a_file_on_another_server_is_none() -> None:
    line = (
        '{"event":"message","time":1,"id":"a","topic":"t","attachment":{"url":"https://ntfy.sh.evil.example/file/x"}}'
    )
    inbound = parse(line, ACCOUNT, "https://ntfy.sh").inbound
    assert inbound
    assert not inbound.files


def test_topics_can_be_one_text() -> None:
    assert options_of("https://ntfy.sh", topics="a, b").topics == ["a", "b"]


async def test_a_token_that_is_rejected_says_what_to_do() -> None:
    async with serve(Ntfy()) as server:
        adapter = NtfyAdapter(ACCOUNT, options_of(server.url))
        for no in (server.wrong, server.closed):
            server.trouble = no
            with pytest.raises(PlatformRefused, match="access token"):
                await adapter.check()
