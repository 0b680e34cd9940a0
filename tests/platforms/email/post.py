"""The mail server of the tests: aiosmtpd takes mail from people and from us, Dovecot keeps what is for us."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.header import Header
from email.message import EmailMessage
from email.utils import format_datetime
from itertools import count
from typing import Any

import aiosmtplib
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from palaver.platforms.email.adapter import EmailAdapter
from palaver.platforms.email.mailbox import EmailOptions
from tests.platforms.email.dovecot import PASSWORD, Dovecot, Inbox
from tests.platforms.matrix.proxy import Proxy

__all__ = ["ACCOUNT", "ANN", "BOB", "SERVER", "PostOffice", "post_office"]

ACCOUNT, SERVER = "helper", "mx.palaver.test"
ANN, BOB = "ann@example.org", "bob@example.org"
_numbers = count(1)
logging.getLogger("mail.log").setLevel(logging.ERROR)  # aiosmtpd warns of itself


class PostOffice:
    """Verifies as a real server does, except that a test says what comes out."""

    def __init__(self, inbox: Inbox, imap: Proxy, imap_port: int) -> None:
        self.inbox = inbox
        self.imap = imap
        self.imap_port = imap_port
        self.smtp_port = 0
        self.sent: list[EmailMessage] = []
        """What we sent to people, in order."""
        self.results: str | None = "dmarc=pass header.from=example.org"
        """What the server finds out about the sender of a mail; None for nothing."""
        self.answers: dict[str, list[str]] = {}
        """What the next commands are answered with: MAIL, RCPT, DATA."""
        self.gone: set[str] = set()
        self.loses: bool | None = None
        """Lose the connection during the next mail, after it was sent or before."""
        self.lines: set[asyncio.Transport] = set()

    # What aiosmtpd asks

    def authenticate(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        del server, session, envelope, mechanism
        is_right = isinstance(data, LoginPassword) and data.password == PASSWORD.encode()
        return AuthResult(success=is_right, handled=False)

    async def handle_MAIL(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        del server, options
        if address == self.inbox.address and not session.authenticated:
            return "530 5.7.0 Authentication required"
        envelope.mail_from = address
        return self._answer("MAIL") if session.authenticated else "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        del server, session, options
        if address in self.gone:
            return "550 5.1.1 No such user here"
        answer = self._answer("RCPT")
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        content = envelope.original_content or b""
        if not session.authenticated:
            self.deliver(content, sender=envelope.mail_from or "")
            return "250 2.0.0 Queued"
        answer, is_lost = self._answer("DATA"), self.loses
        self.loses = None
        if answer.startswith("250") and is_lost is not False:
            self.sent.append(message_from_bytes(content, policy=policy.default))  # pyright: ignore[reportArgumentType]
        if is_lost is not None and isinstance(server.transport, asyncio.Transport):
            server.transport.abort()
        return answer

    def _answer(self, command: str) -> str:
        waiting = self.answers.get(command)
        return waiting.pop(0) if waiting else "250 OK"

    def deliver(self, content: bytes, *, sender: str = ANN, flags: str = "", at: datetime | None = None) -> None:
        """Put it into the mailbox, with the headers that a server adds."""
        result = f"Authentication-Results: {SERVER}; {self.results}\r\n" if self.results else ""
        added = f"Return-Path: <{sender}>\r\n{result}Received: from example.org by {SERVER}; now\r\n"
        self.inbox.deliver(added.encode() + content, flags=flags, at=at)

    # What a test does

    @property
    def options(self) -> dict[str, Any]:
        return {
            "address": self.inbox.address,
            "password": PASSWORD,
            "name": "Helper",
            "imap_host": "127.0.0.1",
            "imap_port": self.imap_port,
            "imap_encryption": "none",
            "smtp_host": "127.0.0.1",
            "smtp_port": self.smtp_port,
            "smtp_encryption": "none",
            "auth_server": SERVER,
        }

    def adapter(self, **changed: Any) -> EmailAdapter:
        """Without the pace that real servers ask for."""
        adapter = EmailAdapter(ACCOUNT, EmailOptions.model_validate({**self.options, **changed}))
        adapter.limits = type(adapter.limits)(text=adapter.limits.text)
        return adapter

    def compose(
        self,
        text: str | None,
        *,
        sender: str = ANN,
        name: str = "",
        to: str | None = None,
        subject: str = "Tea",
        headers: Mapping[str, str] | None = None,
    ) -> EmailMessage:
        mail = EmailMessage(policy.SMTP.clone(max_line_length=998))
        mail["To"] = to or self.inbox.address
        mail["Subject"] = subject
        mail["Date"] = format_datetime(datetime(2026, 5, 1, 9, 30, next(_numbers) % 60, tzinfo=UTC))
        mail["Message-ID"] = f"<{next(_numbers)}.said@example.org>"
        for header, content in (headers or {}).items():
            del mail[header]
            mail[header] = content
        if text is not None:
            mail.set_content(text)
        encoded = f"{Header(name, 'utf-8', maxlinelen=10_000).encode()} " if name else ""
        mail._headers.append(("From", f"{encoded}<{sender}>"))  # type: ignore[attr-defined]
        return mail

    async def post(self, mail: EmailMessage | bytes, *, sender: str = ANN) -> None:
        """Send it to us by SMTP."""
        content = mail if isinstance(mail, bytes) else mail.as_bytes()
        async with aiosmtplib.SMTP(hostname="127.0.0.1", port=self.smtp_port, start_tls=False) as client:
            await client.sendmail(sender, [self.inbox.address], content)


@asynccontextmanager
async def post_office(
    server: Dovecot, tls: ssl.SSLContext | None = None, *, starts: bool = False
) -> AsyncGenerator[PostOffice]:
    """Serve mail, encrypted from the beginning or after STARTTLS."""
    loop, proxy, serving = asyncio.get_running_loop(), Proxy(server.port), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.serve(reader, writer))
        serving.add(task)
        await asyncio.wait({task})
        serving.discard(task)

    imap = await asyncio.start_server(serve, "127.0.0.1", 0)
    office = PostOffice(server.inbox(), proxy, imap.sockets[0].getsockname()[1])
    lines: list[SMTP] = []

    def answer() -> SMTP:
        lines.append(
            SMTP(
                office,
                authenticator=office.authenticate,
                auth_require_tls=False,
                hostname=SERVER,
                loop=loop,
                tls_context=tls if starts else None,
            )
        )
        return lines[-1]

    smtp = await loop.create_server(answer, "127.0.0.1", 0, ssl=None if starts else tls)
    office.smtp_port = smtp.sockets[0].getsockname()[1]
    try:
        yield office
    finally:
        smtp.close()
        imap.close()
        await _rounds()  # A connection that was just accepted is known some rounds later.
        office.inbox.close()
        for task in list(serving):
            task.cancel()
        if serving:
            await asyncio.wait(serving)
        for line in lines:
            if isinstance(line.transport, asyncio.Transport):
                line.transport.abort()
        await _rounds()  # Connections are closed one round after somebody says so.


async def _rounds() -> None:
    for _ in range(3):
        await asyncio.sleep(0)
