"""The adapter with its servers: where it starts to read, what it says about errors, subjects, files, and TLS."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiosmtplib import (
    SMTPAuthenticationError,
    SMTPConnectResponseError,
    SMTPReadTimeoutError,
    SMTPResponseException,
)
from imap_tools.errors import MailboxLoginError

from palaver.platforms.email.adapter import EmailAdapter
from palaver.platforms.email.mailbox import IMAP, SMTP, EmailOptions, Mailbox
from palaver.protocols import (
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.email.dovecot import dovecot
from tests.platforms.email.post import ANN, BOB, PostOffice, post_office
from tests.platforms.jwts import self_signed


def to(chat: str = ANN, text: str = "Hello", **more: Any) -> Outbound:
    return Outbound(platform="email", account="helper", chat_id=chat, text=text, **more)


class Positioned(Recorder):
    """Shows how far the adapter says it has read."""

    position: str | None = None

    async def save_position(self, position: str) -> None:
        await super().save_position(position)
        self.position = position


async def test_the_check_names_the_address_or_says_what_to_do(office: PostOffice) -> None:
    assert await office.adapter().check() == office.inbox.address
    for wrong, error, words in (
        ({"password": "wrong"}, PlatformRefused, "IMAP server rejects the username or password"),
        ({"folder": "Nowhere"}, PlatformRefused, "no such folder"),
        ({"imap_port": 1}, PlatformDown, "Check imap_host and imap_port"),
        ({"smtp_port": 1}, PlatformDown, "Check smtp_host and smtp_port"),
        ({"imap_encryption": "tls", "imap_port": office.inbox.port}, PlatformDown, "no connection to the IMAP server"),
    ):
        with pytest.raises(error, match=words):
            await office.adapter(**wrong).check()


async def test_what_the_smtp_server_says_is_understood(office: PostOffice) -> None:
    adapter = office.adapter()
    for command, answer, error in (
        ("MAIL", "451 4.7.1 Try again later", PlatformBusy),
        ("MAIL", "421 4.3.2 Shutting down", PlatformDown),
        ("MAIL", "552 5.3.4 Message too big", SendRefused),
        ("MAIL", "553 5.7.1 Sender not yours", PlatformRefused),
        ("RCPT", "450 4.2.0 Greylisted", PlatformBusy),
        ("RCPT", "550 5.1.1 No such user", TargetGone),
        ("RCPT", "550 No such user", TargetGone),
        ("RCPT", "550 5.7.1 You look like spam", SendRefused),
        ("DATA", "452 4.3.1 Disk full", PlatformBusy),
        ("DATA", "554 5.7.1 Virus", SendRefused),
    ):
        office.answers[command] = [answer]
        with pytest.raises(error) as raised:
            await adapter.send(to(), idempotency_key="1")
        assert type(raised.value) is error, answer
    assert office.sent == []


def test_errors_that_a_server_seldom_has() -> None:
    for error, expected in (
        (SMTPConnectResponseError(554, "You are blocked"), PlatformDown),
        (SMTPAuthenticationError(535, "5.7.8 Wrong"), PlatformRefused),
        (SMTPAuthenticationError(454, "4.7.0 Later"), PlatformDown),
        (SMTPResponseException(-1, "garbage"), PlatformDown),
        (ConnectionResetError(), PlatformDown),
    ):
        assert type(SMTP.of_request(error)) is expected, error
    for lost in (SMTPResponseException(-1, "garbage"), SMTPReadTimeoutError("late"), ConnectionResetError()):
        assert type(SMTP.of_send(lost)) is SendUnclear, lost
    for words, expected in (("[UNAVAILABLE] later", PlatformDown), ("[AUTHENTICATIONFAILED]", PlatformRefused)):
        assert type(IMAP.of_request(MailboxLoginError(("NO", [words.encode()]), "OK"))) is expected


async def test_a_lost_send_is_repeated_under_the_same_id(office: PostOffice) -> None:
    adapter = office.adapter()
    office.loses = True
    with pytest.raises(SendUnclear):
        await adapter.send(to(), idempotency_key="1")
    receipt = await office.adapter().send(to(), idempotency_key="1")
    assert [mail["Message-ID"] for mail in office.sent] == [f"<{receipt}>"] * 2


async def test_some_of_several_can_be_gone(office: PostOffice) -> None:
    office.gone = {BOB}
    await office.adapter().send(to(f"{ANN},{BOB}"), idempotency_key="1")
    assert [mail["To"] for mail in office.sent] == [f"{ANN}, {BOB}"]
    office.gone = {ANN, BOB}
    with pytest.raises(TargetGone):
        await office.adapter().send(to(f"{ANN},{BOB}"), idempotency_key="2")


async def test_an_answer_has_the_subject_of_its_thread_after_a_restart_too(office: PostOffice) -> None:
    mail = office.compose("Green?", subject="Grüner Tee")
    root = str(mail["Message-ID"])[1:-1]
    recorder = Recorder()
    async with running(adapter := office.adapter(), recorder):
        await office.post(mail)
        await recorder.has(1)
        await adapter.send(to(thread_id=root, reply_to=root), idempotency_key="1")
    await office.adapter().send(to(thread_id=root), idempotency_key="2")
    await office.adapter().send(to(thread_id="lost@example.org"), idempotency_key="3")
    assert [mail["Subject"] for mail in office.sent] == ["Re: Grüner Tee", "Re: Grüner Tee", "Hello"]
    assert {mail["References"] for mail in office.sent[:2]} == {f"<{root}>"}


async def test_only_accepted_mail_is_marked_as_read(office: PostOffice) -> None:
    recorder = Recorder()
    async with running(office.adapter(), recorder):
        await office.post(office.compose("spam", headers={"List-Id": "<x.example.org>"}))
        await office.post(b"no headers at all")
        await office.post(b'From: "=\\?utf-8?b?A?=" <ann@example.org>\r\n\r\nno encoding at all')
        office.results = None
        await office.post(office.compose("spoofed"))
        office.results = "dmarc=pass header.from=example.org"
        await office.post(office.compose("good"))
        await recorder.has(1)
        await until(lambda: office.inbox.unread() == 4)
    assert recorder.texts == ["good"]
    assert office.inbox.unread() == 4


async def test_mail_that_somebody_else_has_read_is_not_missed(office: PostOffice) -> None:
    recorder = Positioned()
    async with running(office.adapter(), recorder):
        await office.post(office.compose("one"))
        await until(lambda: recorder.position is not None)
    office.deliver(office.compose("two").as_bytes(), flags=r"(\Seen)")
    async with running(office.adapter(), recorder):
        await recorder.has(2)
    assert recorder.texts == ["one", "two"]


async def test_a_rebuilt_mailbox_is_read_on_where_it_is_unread(office: PostOffice) -> None:
    recorder = Recorder()
    async with running(office.adapter(), recorder):
        await office.post(office.compose("one"))
        await recorder.has(1)
        await until(lambda: not office.inbox.unread())
    office.inbox.rebuild()
    await office.post(office.compose("two"))
    async with running(office.adapter(), recorder):
        await recorder.has(2)
    assert [inbound.text for inbound in recorder.offered] == ["one", "two"], "what was read is not taken again"


async def test_a_new_account_takes_no_old_mail(office: PostOffice) -> None:
    recorder = Recorder()
    office.deliver(office.compose("old").as_bytes(), at=datetime.now(UTC) - timedelta(days=7))
    await office.post(office.compose("new"))
    async with running(office.adapter(), recorder):
        await recorder.has(1)
        await office.post(office.compose("newer"))
        await recorder.has(2)
    assert recorder.texts == ["new", "newer"]


async def test_a_mail_that_is_too_large_is_announced_without_its_text(office: PostOffice) -> None:
    recorder = Recorder()
    async with running(office.adapter(max_bytes=2_000), recorder):
        await office.post(office.compose("long\n" * 1_000))
        await recorder.has(1)
    assert recorder.texts[0].startswith("[mail of ")
    assert recorder.received[0].source.user_id == ANN


async def test_a_file_that_is_no_longer_there_is_refused(office: PostOffice) -> None:
    recorder, adapter = Recorder(), office.adapter()
    mail = office.compose("look")
    mail.add_attachment(b"x" * 100_000, maintype="image", subtype="gif", filename="x.gif")
    async with running(adapter, recorder):
        await office.post(mail)
        (file,) = await recorder.has_files(1)
    assert b"".join([chunk async for chunk in adapter.fetch(file)]) == b"x" * 100_000
    validity, uid, _ = (file.handle or "").split(".")
    for handle in (f"{validity}.{uid}.7", f"{validity}.99.0", f"1.{uid}.0", "nonsense", "a.b.c", None):
        with pytest.raises(SendRefused):
            _ = [chunk async for chunk in adapter.fetch(file._replace(handle=handle))]


async def test_a_server_without_idle_is_asked_again(office: PostOffice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaver.platforms.email.adapter._POLL_SECONDS", 0.01)
    usual = Mailbox.open

    def open_without_idle(mailbox: Mailbox) -> None:
        usual(mailbox)
        mailbox.can_idle = False

    monkeypatch.setattr(Mailbox, "open", open_without_idle)
    recorder = Recorder()
    async with running(office.adapter(), recorder):
        for number in range(2):
            await office.post(office.compose(str(number)))
            await recorder.has(number + 1)
    assert recorder.texts == ["0", "1"]


async def test_what_comes_in_one_packet_with_the_response_to_idle_is_noticed() -> None:
    """The socket alone would not show it, and the mail would wait for the next one."""
    answers = {
        b"LOGIN": b"",
        b"SELECT": b"* 0 EXISTS\r\n* OK [UIDVALIDITY 7] x\r\n* OK [UIDNEXT 1] x\r\n",
        b"CAPABILITY": b"* CAPABILITY IMAP4rev1 IDLE\r\n",
        b"LOGOUT": b"* BYE now\r\n",
    }
    searches = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal searches
        writer.write(b"* OK ready\r\n")
        while line := await reader.readline():
            tag, *words = line.split()
            if words[:1] == [b"IDLE"]:
                writer.write(b"+ idling\r\n* 1 EXISTS\r\n")
                assert await reader.readline() == b"DONE\r\n"
                words = [b"IDLE"]
            searches += words[:2] == [b"UID", b"SEARCH"]
            found = b"* SEARCH\r\n" if b"SEARCH" in words else answers.get(words[0], b"")
            writer.write(found + tag + b" OK done\r\n")
            if searches > 3:
                done.set()
        writer.close()

    done = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        adapter = _adapter_at(port)
        async with running(adapter, Recorder()), asyncio.timeout(60):
            await done.wait()


def _adapter_at(port: int) -> EmailAdapter:
    given = {"address": "a@example.net", "password": "p", "imap_host": "127.0.0.1", "imap_port": port}
    more = {"imap_encryption": "none", "smtp_host": "s", "auth_server": "mx"}
    return EmailAdapter("helper", EmailOptions.model_validate({**given, **more}))


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = self_signed("localhost")
    cert.write_bytes(made)
    key.write_bytes(made)
    return cert, key


@pytest.mark.needs("dovecot")
async def test_both_connections_are_encrypted_and_the_servers_known(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    host = {"imap_host": "localhost", "smtp_host": "localhost"}
    with dovecot(certificate) as server:
        async with post_office(server, context) as office:
            tls = {"imap_port": server.tls_port, "imap_encryption": "tls", "smtp_encryption": "tls"}
            adapter = office.adapter(**host, **tls)
            with pytest.raises(PlatformRefused, match="certificate of the IMAP server"):
                await adapter.check()
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
            assert await adapter.check() == office.inbox.address
            recorder = Recorder()
            async with running(adapter, recorder):
                for number in range(2):
                    office.deliver(office.compose(str(number)).as_bytes())
                    await recorder.has(number + 1)
                await adapter.send(to(), idempotency_key="1")
            assert len(office.sent) == 1
        async with post_office(server, context, starts=True) as office:
            start = {"imap_port": server.port, "imap_encryption": "starttls", "smtp_encryption": "starttls"}
            assert await office.adapter(**host, **start).check() == office.inbox.address
            with pytest.raises(PlatformRefused, match="certificate of the SMTP server"):
                await office.adapter(**{**host, **start, "smtp_host": "127.0.0.1"}).check()
