"""What ntfy's lines and answers mean, and what stops nothing."""

from pathlib import Path

import pytest

from palaver.platforms.ntfy.adapter import NtfyAdapter, parse
from palaver.protocols import (
    Attachment,
    Choice,
    Label,
    Outbound,
    PlatformBusy,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.testkit.driver import run_adapter
from tests.platforms.called import ACCOUNT, No, serve
from tests.platforms.ntfy.fakes import TOKEN, TOPIC, FakeNtfy, Ntfy, error, options_of

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


async def test_files_come_from_the_server_only() -> None:
    adapter = NtfyAdapter(ACCOUNT, options_of("https://ntfy.sh"))
    for handle in ("//evil.example/file/x", "/file/../v1/account", "/v1/account", None):
        with pytest.raises(SendRefused):
            adapter.fetch(Attachment(Label("x"), handle=handle))
    line = (
        '{"event":"message","time":1,"id":"a","topic":"t","attachment":{"url":"https://ntfy.sh.evil.example/file/x"}}'
    )
    inbound = parse(line, ACCOUNT, "https://ntfy.sh").inbound
    assert inbound
    assert not inbound.files


def test_topics_can_be_one_text() -> None:
    assert options_of("https://ntfy.sh", topics="a, b").topics == ["a", "b"]


async def test_each_answer_means_something() -> None:
    expected: list[tuple[No, type[PlatformError]]] = [
        (error(42901, 429), PlatformBusy),
        (error(42908, 429), PlatformBusy),
        (error(40101, 401), PlatformRefused),
        (error(40301, 403), TargetGone),
        (error(40009, 400), SendRefused),
        (error(41301, 413), SendRefused),
        (error(50001, 500), SendUnclear),
        (No({}), SendUnclear),
    ]
    async with serve(Ntfy()) as server:
        adapter = NtfyAdapter(ACCOUNT, options_of(server.url))
        for no, kind in expected:
            server.refuses.append(no)
            with pytest.raises(PlatformError) as raised:
                await adapter.send(TO, idempotency_key="x")
            assert type(raised.value) is kind, no
        for code in (42905, 42908):
            server.refuses.append(error(code, 429))
            with pytest.raises(PlatformBusy) as busy:
                await adapter.send(TO, idempotency_key="x")
            assert busy.value.after == 3600.0
        for no in (server.wrong, server.closed):
            server.trouble = no
            with pytest.raises(PlatformRefused, match="access token"):
                await adapter.check()
