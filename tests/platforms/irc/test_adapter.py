"""Logging in with SASL, lost connections, and lines that stop nothing, on a server that does what a test says."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from palaver.model.backoff import backoff
from palaver.platforms.irc.adapter import IrcAdapter, Us, parse, render
from palaver.platforms.irc.connection import read_line, write_line
from palaver.protocols import (
    Outbound,
    PlatformBusy,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetAway,
    TargetGone,
)
from palaver.testkit.driver import retry_until_connected
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.called import ACCOUNT
from tests.platforms.irc.fakes import options_of

NOW = datetime(2026, 5, 1, tzinfo=UTC)
US = Us(ACCOUNT, "test", "helper")
TO = Outbound(platform="irc", chat_id="#dev", text="hi")
Answer = Callable[[list[str], asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def scripted(answer: Answer) -> AsyncGenerator[int]:
    """Serve lines: `answer` gets each, split at spaces."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while raw := await reader.readline():
            await answer(raw.decode().rstrip("\r\n").replace(" :", " ").split(" "), writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def welcoming(more: Answer, caps: str = "") -> Answer:
    async def answer(words: list[str], writer: asyncio.StreamWriter) -> None:
        match words:
            case ["CAP", "LS", _]:
                writer.write(f":s CAP * LS * :batch\r\n:s CAP * LS :{caps}\r\n".encode())
            case ["CAP", "REQ", *asked]:
                writer.write(f":s CAP * ACK :{' '.join(asked)}\r\n".encode())
            case ["CAP", "END"]:
                writer.write(b":s 001 helper :Welcome\r\n")
            case ["PING", token]:
                writer.write(f":s PONG s :{token}\r\n".encode())
            case _:
                await more(words, writer)

    return answer


async def test_it_logs_in_with_sasl_and_knows_who_is_verified() -> None:
    async def more(words: list[str], writer: asyncio.StreamWriter) -> None:
        match words:
            case ["AUTHENTICATE", "PLAIN"]:
                writer.write(b"AUTHENTICATE +\r\n")
            case ["AUTHENTICATE", given]:
                good = base64.b64decode(given) == b"\0robot\0secret"
                writer.write(b":s 903 helper :ok\r\n" if good else b":s 904 helper :no\r\n")
            case ["JOIN", _]:
                tags = rb"@account=ann;msgid=m\s1;time=2026-05-01T10:00:00.000;bot"
                writer.write(b"\r\n:\r\n@\r\n:s\r\n" + b"x" * 40_000 + b"\r\n:s PRIVMSG\r\n:s 475 helper #dev :key\r\n")
                writer.write(tags + b" :Ann!a@b PRIVMSG #Dev :helper: tea?\r\n:\xff!a@b PRIVMSG helper :\xff\r\n")
            case _:
                pass

    async with scripted(welcoming(more, "sasl=PLAIN account-tag message-tags server-time echo-message")) as port:
        options = options_of(port, "helper", password="secret", account="robot", channels="#dev")  # noqa: S106
        recorder = Recorder()
        async with running(IrcAdapter(ACCOUNT, options), recorder):
            await recorder.has(2)
        first = recorder.received[0]
        assert (first.text, first.mentions_us) == ("tea?", True)
        assert first.at == datetime(2026, 5, 1, 10, tzinfo=UTC), "a time without a zone"
        source = first.source
        assert (source.chat_id, source.user_id, source.user_id_alt, source.message_id) == ("#dev", "ann", "ann", "m 1")
        assert [trust.is_bot for trust in recorder.trusts] == [True, False]
        wrong = IrcAdapter(ACCOUNT, options_of(port, "helper", password="wrong"))  # noqa: S106
        with pytest.raises(PlatformRefused, match="password"):
            await wrong.check()
        assert await IrcAdapter(ACCOUNT, options).check() == "helper on 127.0.0.1"
    async with scripted(welcoming(more)) as port:
        with pytest.raises(PlatformRefused, match="SASL"):
            await IrcAdapter(ACCOUNT, options_of(port, "helper", password="secret")).check()  # noqa: S106


async def test_what_the_server_says_against_a_message() -> None:
    answers = [b":s 404 helper #dev :no", b":s 263 helper #DEV :slow", b":s 412 helper #dev :empty", None]
    expected: list[type[PlatformError]] = [TargetGone, PlatformBusy, SendRefused, SendUnclear]

    async def more(words: list[str], writer: asyncio.StreamWriter) -> None:
        if words[0] == "PRIVMSG":
            writer.write(b":s 404 helper #other :not this one\r\n")
            found = answers.pop(0)
            if found is None:
                writer.transport.abort()
            else:
                writer.write(found + b"\r\n")

    async with scripted(welcoming(more)) as port:
        adapter = IrcAdapter(ACCOUNT, options_of(port, "helper"))
        async with running(adapter, Recorder()):
            for kind in expected:
                with pytest.raises(PlatformError) as raised:
                    await retry_until_connected(lambda: adapter.send(TO, idempotency_key="x"))
                assert type(raised.value) is kind


async def test_a_taken_nick_gets_another_and_a_banned_bot_says_so() -> None:
    async def more(words: list[str], writer: asyncio.StreamWriter) -> None:
        if words == ["NICK", "helper"]:
            writer.write(b":s 433 * helper :taken\r\n")
        if words == ["NICK", "banned"]:
            writer.write(b":s 465 banned :out\r\n")

    async with scripted(welcoming(more)) as port:
        with pytest.raises(PlatformRefused, match="banned"):
            await IrcAdapter(ACCOUNT, options_of(port, "banned")).check()
        assert await IrcAdapter(ACCOUNT, options_of(port, "helper")).check()


async def test_a_channel_that_the_bot_was_removed_from_or_could_not_join_is_joined_again_each_time_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("palaver.platforms.irc.connection._REJOIN_SECONDS", 0.01)
    pauses, joined = list[float](), list[str]()
    answers = [b":op!a@b KICK #DEV helper :out", b"", b":op!a@b KICK #other helper\r\n:a!b@c PRIVMSG helper :end"]

    def pause(attempt: int, *, first: float, longest: float) -> float:
        pauses.append(backoff(attempt, first=first, longest=longest))
        return pauses[-1]

    async def more(words: list[str], writer: asyncio.StreamWriter) -> None:
        if words[0] == "JOIN":
            joined.append(words[1])
            writer.write(b":s 474 helper #elsewhere :not ours\r\n:op!a@b KICK #Dev somebody\r\n")
            writer.write(answers.pop(0) + b"\r\n")
        if words[0] == "PRIVMSG":  # while it is being sent
            writer.write(b":s 403 helper #Dev :no such channel\r\n")

    monkeypatch.setattr("palaver.platforms.irc.connection.backoff", pause)
    async with scripted(welcoming(more)) as port:
        recorder, adapter = Recorder(), IrcAdapter(ACCOUNT, options_of(port, "helper", channels="#Dev"))
        async with running(adapter, recorder):
            await until(lambda: len(joined) == 2)
            with pytest.raises(TargetGone):  # that was about the message
                await adapter.send(TO, idempotency_key="x")
            await adapter.send(Outbound(platform="irc", chat_id="ann", text="hi"), idempotency_key="y")
            await recorder.has(1)
    assert joined == ["#Dev"] * 3
    assert pauses == [0.01, 0.02]


@pytest.mark.parametrize("removal", ["op!a@b KICK #DEV helper :out", "helper!a@b PART #dev :SAPART"])
async def test_messages_wait_until_a_channel_that_the_bot_was_removed_from_is_joined_again(
    monkeypatch: pytest.MonkeyPatch, removal: str
) -> None:
    pauses, joined, said = list[float](), list[str](), list[str]()

    def pause(attempt: int, *, first: float, longest: float) -> float:
        pauses.append(backoff(attempt, first=first, longest=longest))
        return 0.01 if len(pauses) % 2 == 0 else 300.0

    async def more(words: list[str], writer: asyncio.StreamWriter) -> None:
        match words:
            case ["JOIN", name]:
                joined.append(name)
                writer.write(f":helper!a@b JOIN :{name}\r\n".encode())
            case ["PRIVMSG", _, "out"]:
                writer.write(f":{removal}\r\n:s 404 helper #dev :no\r\n".encode())
            case ["PRIVMSG", "ann", _]:
                writer.write(f":{removal}\r\n".encode())
            case ["PRIVMSG", _, text]:
                said.append(text)
            case _:
                pass

    monkeypatch.setattr("palaver.platforms.irc.connection.backoff", pause)
    async with scripted(welcoming(more)) as port:
        adapter = IrcAdapter(ACCOUNT, options_of(port, "helper", channels="#Dev"))

        async def out() -> None:
            for text in ("out", "hi"):  # The removal comes while one is being sent, and before the other.
                with pytest.raises(TargetAway) as away:
                    await adapter.send(Outbound(platform="irc", chat_id="#dev", text=text), idempotency_key="x")
                assert 0 < away.value.after <= 300
            # Another removal, with a short pause.
            await adapter.send(Outbound(platform="irc", chat_id="ann", text="again"), idempotency_key="x")
            await until(lambda: len(joined) == len(pauses) // 2 + 1)
            await adapter.send(TO, idempotency_key="x")

        async with running(adapter, Recorder()):
            await until(lambda: len(joined) == 1)
            await retry_until_connected(lambda: adapter.send(TO, idempotency_key="x"))
            await out()
            await out()
            monkeypatch.setattr("palaver.platforms.irc.connection._LONG_STAY_SECONDS", 0.0)
            await out()
    assert said == ["hi"] * 4
    assert pauses == [10.0, 20.0, 40.0, 80.0, 10.0, 20.0]


async def test_a_channel_that_bans_the_bot_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.platforms.irc.connection._REJOIN_SECONDS", 0.01)
    joined = list[str]()

    async def more(words: list[str], writer: asyncio.StreamWriter) -> None:
        if words[0] == "JOIN":
            joined.append(words[1])
            told = ":s 474 helper #dev :banned" if len(joined) > 1 else ":op!a@b KICK #dev helper :out"
            writer.write(f"{told}\r\n".encode())
        if words[0] == "PRIVMSG":
            writer.write(b":s 404 helper #dev :no\r\n")

    async with scripted(welcoming(more)) as port:
        adapter = IrcAdapter(ACCOUNT, options_of(port, "helper", channels="#dev"))
        async with running(adapter, Recorder()):
            await until(lambda: len(joined) > 1)
            with pytest.raises(TargetGone):
                await adapter.send(TO, idempotency_key="x")


async def test_nobody_makes_us_send_another_command() -> None:
    heard: list[str] = []

    async def more(words: list[str], _: asyncio.StreamWriter) -> None:
        heard.append(words[0])

    async with scripted(welcoming(more)) as port:
        adapter = IrcAdapter(ACCOUNT, options_of(port, "helper"))
        async with running(adapter, Recorder()):
            evil = Outbound(platform="irc", chat_id="#dev", text="hi\r\nQUIT\0\nJOIN #x\x01")
            await retry_until_connected(lambda: adapter.send(evil, idempotency_key="x"))
            for chat in ("#a b", "#a\r\nQUIT", "#a,#b", ":x", ""):
                with pytest.raises(TargetGone):
                    await adapter.send(Outbound(platform="irc", chat_id=chat, text="x"), idempotency_key="x")
            with pytest.raises(SendRefused):
                await adapter.send(Outbound(platform="irc", chat_id="#a", text="\x01"), idempotency_key="x")
    assert heard == ["NICK", "USER", "PRIVMSG", "QUIT"], "the last is our own goodbye"
    assert write_line("PRIVMSG", "#a", "x\r\ny") == b"PRIVMSG #a :x y\r\n"
    with pytest.raises(ValueError, match="spaces"):
        write_line("PRIVMSG", "#a b", "x")


def test_what_is_said_to_us() -> None:
    def text_of(line: str) -> str | None:
        found = parse(read_line(line), US, NOW)
        return found.inbound.text if found else None

    assert text_of(":ann!a@b PRIVMSG helper :\x0304,12red\x03 \x02bold\x0f") == "red bold"
    assert text_of(":ann!a@b PRIVMSG #dev :\x01VERSION\x01") is None
    assert text_of(":helper!a@b PRIVMSG #dev :our own") is None
    assert text_of(":irc.example.org PRIVMSG helper :a server") is None
    assert text_of(":ann!a@b NOTICE helper :never") is None
    assert render("**hot** `tea` [x](https://example.org)") == "\x02hot\x02 \x11tea\x11 x (https://example.org)"
