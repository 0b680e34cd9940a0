"""A whole gateway between Exim and Dovecot, both as Debian ships them: nothing between us and people is ours."""

import asyncio
from collections.abc import Generator
from email import policy
from email.message import EmailMessage
from itertools import count
from pathlib import Path

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Outbound
from palaver.platforms.email.adapter import EmailAdapter
from palaver.platforms.email.mailbox import EmailOptions
from palaver.protocols.adapter import PlatformRefused, SendRefused, TargetGone
from tests.engine.gateway import running, until
from tests.needs import needing
from tests.platforms.email.dovecot import Dovecot
from tests.platforms.email.exim import Exim, exim
from tests.platforms.email.fakes import text_of

ANN, BOB = "ann@example.org", "bob@example.org"
_numbers = count(1)


@pytest.fixture(scope="module")
@needing("exim4")
def server(imap_server: Dovecot) -> Generator[Exim]:
    with exim(imap_server) as server:
        yield server


def adapter_of(server: Exim, **changed: object) -> EmailAdapter:
    adapter = EmailAdapter("helper", EmailOptions.model_validate({**server.options, **changed}))
    adapter.limits = type(adapter.limits)(text=adapter.limits.text)
    return adapter


def mail_from(sender: str, text: str, server: Exim, **headers: str) -> EmailMessage:
    mail = EmailMessage(policy.SMTP)
    about = {
        "From": sender,
        "To": server.inbox.address,
        "Subject": "Tea",
        "Message-ID": f"<{next(_numbers)}@example.org>",
    }
    for name, content in {**about, **headers}.items():
        mail[name.replace("_", "-")] = content
    mail.set_content(text)
    return mail


def to(chat: str, text: str = "hi", **more: object) -> Outbound:
    return Outbound(platform="email", account="helper", chat_id=chat, text=text, **more)  # pyright: ignore[reportArgumentType]


async def test_mail_goes_both_ways_and_only_people_whom_the_server_knows_are_answered(
    server: Exim, tmp_path: Path
) -> None:
    grants = (Grant(platform="email", role=AccessRole.MEMBER),)
    forged = {"Authentication_Results": "mx.palaver.test; dmarc=pass header.from=example.org"}
    async with running(tmp_path / "p.db", adapters=[adapter_of(server)], grants=grants, acknowledges=False) as here:
        for login, mail in (
            (ANN, mail_from(ANN, "Green or black?", server)),
            (BOB, mail_from(ANN, "spoofed by somebody who has logged in", server)),
            ("", mail_from(ANN, "spoofed with a header of our server", server, **forged)),
            ("away@example.org", mail_from("away@example.org", "to be answered by a vacation notice", server)),
            ("full@example.org", mail_from("full@example.org", "to be answered by a bounce", server)),
        ):
            await asyncio.to_thread(server.post, mail, login=login, sender=login or ANN)
        await until(lambda: len(server.mailbox("ann")) == 1 and len(server.mailbox("away")) == 1)
        # The notice and the bounce are in our mailbox, and stay there unread, like both that were spoofed.
        await until(lambda: server.inbox.unread() == 4)
        await asyncio.to_thread(server.post, mail_from(ANN, "And now?", server), login=ANN)
        await until(lambda: len(server.mailbox("ann")) == 2)
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM inbox")) == 4
    first, second = server.mailbox("ann")
    assert (first["Subject"], text_of(first)) == ("Re: Tea", "You said: Green or black?")
    assert text_of(second) == "You said: And now?"
    assert len(server.mailbox("away")) == 1


async def test_what_the_server_refuses_is_understood(server: Exim, tmp_path: Path) -> None:
    adapter = adapter_of(server)
    assert await adapter.check() == server.inbox.address
    with pytest.raises(PlatformRefused, match="SMTP server rejects the username or password"):
        await adapter_of(server, password="wrong").send(to(ANN), idempotency_key="0")  # noqa: S106
    with pytest.raises(TargetGone, match="550"):
        await adapter.send(to("nobody@example.org"), idempotency_key="1")
    large = tmp_path / "large"
    large.write_bytes(b"x" * 300_000)
    file = Attachment(Label("large.bin"), "application/octet-stream", 300_000, "0" * 64)
    with pytest.raises(SendRefused, match="552"):
        await adapter.send_file(to(ANN, file=file), large, idempotency_key="2")
    before = len(server.mailbox("bob"))
    await adapter.send(to(f"{BOB},nobody@example.org", "one of two"), idempotency_key="3")
    await until(lambda: len(server.mailbox("bob")) == before + 1)
