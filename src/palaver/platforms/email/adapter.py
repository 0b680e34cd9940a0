"""The e-mail adapter. How far it has read is a UID, which is stored after each mail."""

import asyncio
import contextlib
import email.policy
import hashlib
import logging
import re
import ssl
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from email import message_from_bytes
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from functools import partial
from pathlib import Path

import aiosmtplib

from palaver.platforms.email import PLATFORM
from palaver.platforms.email.mailbox import ADDRESS, SMTP, EmailOptions, Encryption, Mailbox, opened
from palaver.platforms.email.parse import UNVERIFIED, NewMail, Skipped, files_of, parse, subject_of
from palaver.protocols import (
    Attachment,
    Limits,
    Outbound,
    PlatformError,
    Receiver,
    SendRefused,
    SystemClock,
    Trust,
    file_to_send,
    one_line,
    parse_or_skip,
    request_leaves,
)
from palaver.protocols.markdown import to_html
from palaver.protocols.recent import remember

# Longer lines than usual, or ids of mails would be broken; every server reads 7-bit text.
_POLICY = email.policy.SMTP.clone(max_line_length=998, cte_type="7bit")
_REFERENCE = re.compile(r"[\x21-\x3b\x3d\x3f-\x7e]{1,400}")
_MAX_SUBJECT = 120
_MEDIA_TYPE = re.compile(r"([\w.+-]+)/([\w.+-]+)", re.ASCII)


def recipients_of(outbound: Outbound) -> list[str]:
    found = outbound.chat_id.removeprefix(UNVERIFIED).split(",")
    if not all(ADDRESS.fullmatch(address.lower()) for address in found):
        raise SendRefused("The chat is not an e-mail address like ann@example.org.")
    return found


def message_id(account: str, key: str, options: EmailOptions) -> str:
    """Return the id of our mail: the same for the same key, so that mail programs recognise a repetition."""
    digest = hashlib.sha256(f"{account}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"palaver.{digest[:40]}@{options.address.rpartition('@')[2]}"


def subject_for(outbound: Outbound, thread_subject: str | None) -> str:
    """Return the thread's subject, or for a new thread its name or the beginning of the text."""
    if thread_subject is not None:
        return one_line(f"Re: {thread_subject}", _MAX_SUBJECT)
    file = outbound.file.name.plain() if outbound.file else ""
    text = outbound.text.strip().partition("\n")[0].strip("#*_` ")
    return one_line(outbound.opens or text or file or "Message", _MAX_SUBJECT)


def render(outbound: Outbound, options: EmailOptions, own_id: str, subject: str, now: datetime) -> EmailMessage:
    mail = EmailMessage(_POLICY)
    mail["From"] = Address(one_line(options.name, _MAX_SUBJECT), addr_spec=options.address)
    mail["To"] = [Address(addr_spec=address) for address in recipients_of(outbound)]
    mail["Subject"] = subject
    mail["Date"] = format_datetime(now)
    mail["Message-ID"] = f"<{own_id}>"
    answered = [each for each in (outbound.thread_id, outbound.reply_to) if each and _REFERENCE.fullmatch(each)]
    if answered:
        mail["In-Reply-To"] = f"<{answered[-1]}>"
        mail["References"] = " ".join(f"<{each}>" for each in dict.fromkeys(answered))
    # RFC 3834: no vacation notice or other program answers it.
    mail["Auto-Submitted"] = "auto-replied" if answered else "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(outbound.text)
    if html := to_html(outbound.text):
        mail.add_alternative(html, subtype="html")
    return mail


def attach(mail: EmailMessage, file: Attachment, content: Path) -> None:
    kind = _MEDIA_TYPE.fullmatch(file.media_type)
    main, sub = kind.groups() if kind and kind[1] not in {"multipart", "message"} else ("application", "octet-stream")
    name = file.name.plain() or "file"
    mail.add_attachment(content.read_bytes(), maintype=main, subtype=sub, filename=name)


log = logging.getLogger(__name__)

_POLL_SECONDS = 60.0
"""How often to look on a server without IDLE."""
_FIRST_LOOK_BACK = timedelta(days=1)
"""A new account does not answer unread mail that is older."""
_SEND_TIMEOUT_SECONDS = 60.0
_MAX_FILE_BYTES = 18_000_000
"""Most servers accept mails of 25 MB, and a file grows by a third in one."""
_PERMANENT = 500
_MAX_SUBJECTS = 1_000
_CHUNK_BYTES = 1 << 16
_HANDLE = re.compile(r"[0-9]{1,10}\.[0-9]{1,10}\.[0-9]{1,3}")


class EmailAdapter:
    platform = PLATFORM
    options = EmailOptions
    limits = Limits(text=50_000, interval=1.0, announces_requests=True)

    def __init__(self, account: str, options: EmailOptions) -> None:
        self.account = account
        self._options = options
        self._clock = SystemClock()
        self._subjects: dict[str, str] = {}
        """Subjects of recent threads; others are looked up."""

    async def check(self) -> str:
        async with opened(self._options):
            pass
        with SMTP.requests():
            async with self._smtp():
                return self._options.address

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        async with opened(self._options) as mailbox:
            await receiver.connected()
            last = await self._catch_up(mailbox, receiver)
            while True:
                uids = await mailbox.call(partial(mailbox.uids_after, last))
                for uid in uids:
                    await self._take(mailbox, uid, receiver)
                    last = uid
                    await receiver.save_position(f"{mailbox.validity}:{last}")
                if not uids:  # What came in the meantime would not be announced again.
                    await self._wait(mailbox)

    async def _wait(self, mailbox: Mailbox) -> None:
        if mailbox.can_idle:
            await mailbox.call(mailbox.idle)
        else:
            await asyncio.sleep(_POLL_SECONDS)

    async def _catch_up(self, mailbox: Mailbox, receiver: Receiver) -> int:
        """Return the last UID that was handled. Without one that still counts, take what is unread."""
        position = await receiver.load_position()
        validity, _, uid = (position or "").partition(":")
        if validity == str(mailbox.validity) and uid.isascii() and uid.isdecimal():
            return int(uid)
        since = None if position else (self._clock.now() - _FIRST_LOOK_BACK).date()
        last = mailbox.next_uid - 1
        for found in await mailbox.call(partial(mailbox.unseen, since)):
            await self._take(mailbox, found, receiver)
            last = max(last, found)
        # Only now: after a crash in between, the rest is still unread.
        await receiver.save_position(f"{mailbox.validity}:{last}")
        return last

    async def _take(self, mailbox: Mailbox, uid: int, receiver: Receiver) -> None:
        """Hand over a mail and then mark it as read, or leave it unread."""
        match await mailbox.call(partial(self._read, mailbox, uid)):
            case NewMail(inbound=inbound, subject=subject):
                remember(self._subjects, inbound.source.thread_id or "", subject, _MAX_SUBJECTS)
                await receiver.receive(inbound, Trust())
                await mailbox.call(partial(mailbox.mark_seen, uid))
            case Skipped(reason=reason):
                log.info("ignored a mail that is %s", reason, extra={"action": "email.ignored"})
            case None:
                pass

    def _read(self, mailbox: Mailbox, uid: int) -> NewMail | Skipped | None:
        raw = mailbox.read(uid, max_bytes=self._options.max_bytes)
        if raw is None:
            return None
        handle = f"{mailbox.validity}.{uid}"
        now = self._clock.now()
        return parse_or_skip(self.platform.name, lambda: parse(raw, self._options, self.account, handle, now))

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        if not _HANDLE.fullmatch(file.handle or ""):
            raise SendRefused("The file did not come with a mail.")
        validity, uid, number = map(int, (file.handle or "").split("."))
        async with opened(self._options) as mailbox:
            if validity != mailbox.validity:
                raise SendRefused("The mailbox was rebuilt since the file came.")
            raw = await mailbox.call(partial(mailbox.read, uid, max_bytes=self._options.max_bytes))
        files = files_of(message_from_bytes(raw.content)) if raw else ()
        if number >= len(files):
            raise SendRefused("The mail with the file was deleted.")
        content = files[number].payload
        for start in range(0, len(content), _CHUNK_BYTES):
            yield content[start : start + _CHUNK_BYTES]

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._send(outbound, idempotency_key)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file_to_send(outbound, content, _MAX_FILE_BYTES)
        return await self._send(outbound, idempotency_key, content)

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Start a thread: its id is that of its first mail."""
        return await self._send(outbound, idempotency_key)

    async def _send(self, outbound: Outbound, key: str, content: Path | None = None) -> str:
        own_id = message_id(self.account, key, self._options)
        known = await self._thread_subject(outbound)
        subject = subject_for(outbound, known)
        mail = render(outbound, self._options, own_id, subject, self._clock.now())
        if content is not None and outbound.file is not None:
            await asyncio.to_thread(attach, mail, outbound.file, content)
        await self._deliver(mail, recipients_of(outbound))
        if outbound.thread_id is None:
            remember(self._subjects, own_id, subject, _MAX_SUBJECTS)
        return own_id

    async def _deliver(self, mail: EmailMessage, recipients: list[str]) -> None:
        """Send in steps: until DATA nothing is sent."""
        content = mail.as_bytes()
        with SMTP.requests():
            client = self._smtp()
            await client.connect()
        try:
            with SMTP.requests():
                has_size = client.supports_extension("size")
                await client.mail(self._options.address, options=[f"size={len(content)}"] if has_size else None)
                await _address(client, recipients)
            with SMTP.sends():
                await request_leaves()
                await client.data(content)
            with contextlib.suppress(*SMTP.raised):
                await client.quit()
        finally:
            client.close()

    async def _thread_subject(self, outbound: Outbound) -> str | None:
        """Return the subject of the thread, from its mails if need be; None for a new thread."""
        ids = [each for each in (outbound.thread_id, outbound.reply_to) if each]
        known = next((self._subjects[each] for each in ids if each in self._subjects), None)
        if not ids or known is not None:
            return known
        found: str | None = None
        with contextlib.suppress(PlatformError):  # An answer with another subject is better than none.
            async with opened(self._options) as mailbox:
                for each in reversed(ids):
                    found = found or await mailbox.call(partial(_find_subject, mailbox, each))
        remember(self._subjects, ids[0], found or "", _MAX_SUBJECTS)
        return found

    def _smtp(self) -> aiosmtplib.SMTP:
        options = self._options
        how = self._options.smtp_encryption
        return aiosmtplib.SMTP(
            hostname=options.smtp_host,
            port=options.smtp_port,
            username=options.login,
            password=options.password.get_secret_value(),
            timeout=_SEND_TIMEOUT_SECONDS,
            use_tls=how is Encryption.TLS,
            start_tls=how is Encryption.STARTTLS,
            tls_context=None if how is Encryption.NONE else ssl.create_default_context(),
            local_hostname=options.address.rpartition("@")[2],
        )


async def _address(client: aiosmtplib.SMTP, recipients: list[str]) -> None:
    """Name the recipients. If the server rejects some for good, the others get it."""
    refused: list[aiosmtplib.SMTPRecipientRefused] = []
    for recipient in recipients:
        try:
            await client.rcpt(recipient)
        except aiosmtplib.SMTPRecipientRefused as refusal:
            if refusal.code < _PERMANENT:
                raise
            refused.append(refusal)
    if len(refused) == len(recipients):
        raise refused[0]
    if refused:
        extra = {"action": "email.recipient_refused"}
        log.warning("the SMTP server rejects %d of %d recipients", len(refused), len(recipients), extra=extra)


def _find_subject(mailbox: Mailbox, message_id: str) -> str | None:
    uid = mailbox.uid_of(message_id)
    raw = mailbox.read(uid, max_bytes=0) if uid is not None else None
    return subject_of(message_from_bytes(raw.content)) if raw else None
