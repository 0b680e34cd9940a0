"""A mailbox: its options, its errors, and reading it by IMAP."""

import asyncio
import contextlib
import imaplib
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import date
from enum import StrEnum
from imaplib import IMAP4
from typing import Self, TypeVar, cast

from aiosmtplib import (
    SMTPAuthenticationError,
    SMTPConnectResponseError,
    SMTPException,
    SMTPHeloError,
    SMTPRecipientRefused,
    SMTPResponseException,
    SMTPSenderRefused,
)
from imap_tools import AND, BaseMailBox, H, MailBox, MailBoxStartTls, MailBoxUnencrypted, U
from imap_tools.errors import ImapToolsError, MailboxFolderSelectError, MailboxLoginError
from imap_tools.idle import IdleManager
from pydantic import Field, SecretStr, field_validator, model_validator

from palaver.platforms.email import ADDRESS
from palaver.protocols import (
    ClientErrors,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    TargetGone,
    is_loopback,
    one_line,
    value,
)
from palaver.protocols.options import AccountOptions

_BUSY_SECONDS = 60.0
"""Servers that ask for patience, as with greylisting, do not say for how long."""
_MAX_WORDS = 200
_FIRST_ERROR = 400
_PERMANENT = 500
_TOO_LARGE = 552
_CLOSING = 421
_LOGIN_REQUIRED = 530
_WRONG_LOGIN = (
    "The {kind} server rejects the username or password. Correct them; many providers require an app password for "
    "programs."
)
_BAD_CERTIFICATE = "The certificate of the {kind} server is not valid for this name. Correct {option}."
_NO_FOLDER = "The mailbox has no such folder. Correct folder, for example to INBOX."
_NOT_OUR_ADDRESS = "The SMTP server does not let this account send as its address. Correct address or username."
# RFC 3463: 5.1 is a wrong address, 5.2.1 a closed mailbox. 5.7 and others are about us or this mail.
_GONE = re.compile(r"5\.(1\.\d+|2\.1)\b")
_STATUS = re.compile(r"5\.\d+\.\d+\b")
_UNKNOWN_ADDRESS = frozenset({550, 551, 553})
_TEMPORARY = ("[UNAVAILABLE]", "[INUSE]", "[LIMIT]")
"""RFC 5530: the login failed, but not because of the password."""


def _explain_imap(error: Exception, *, sending: bool) -> PlatformError | None:
    del sending
    match error:
        case MailboxLoginError():
            is_temporary = any(code in str(error) for code in _TEMPORARY)
            return None if is_temporary else PlatformRefused(_WRONG_LOGIN.format(kind="IMAP"))
        case MailboxFolderSelectError():
            return PlatformRefused(_NO_FOLDER)
        case _:
            return _explain_certificate(error, "IMAP")


def _explain_certificate(error: BaseException, kind: str) -> PlatformError | None:
    if isinstance(error, ssl.SSLCertVerificationError) or isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return PlatformRefused(_BAD_CERTIFICATE.format(kind=kind, option=f"{kind.lower()}_host"))
    return None


def _explain_smtp(error: Exception, *, sending: bool) -> PlatformError | None:
    if not isinstance(error, SMTPResponseException) or error.code < _FIRST_ERROR:
        return _explain_certificate(error, "SMTP")
    is_permanent = error.code >= _PERMANENT
    words = one_line(str(error.message), _MAX_WORDS)
    if isinstance(error, SMTPAuthenticationError):
        return PlatformRefused(_WRONG_LOGIN.format(kind="SMTP")) if is_permanent else None
    if isinstance(error, SMTPConnectResponseError | SMTPHeloError) or (error.code == _CLOSING and not sending):
        return PlatformDown(f"The SMTP server closes the connection: {error.code} {words}")
    if not is_permanent:
        return PlatformBusy(_BUSY_SECONDS)
    if isinstance(error, SMTPSenderRefused) and error.code != _TOO_LARGE:
        return PlatformRefused(_WRONG_LOGIN.format(kind="SMTP") if error.code == _LOGIN_REQUIRED else _NOT_OUR_ADDRESS)
    return (TargetGone if _is_gone(error) else SendRefused)(f"The SMTP server rejects it: {error.code} {words}")


def _is_gone(error: SMTPResponseException) -> bool:
    if not isinstance(error, SMTPRecipientRefused):
        return False
    if _STATUS.match(error.message):
        return bool(_GONE.match(error.message))
    return error.code in _UNKNOWN_ADDRESS


IMAP = ClientErrors(
    title="the IMAP server",
    raised=(imaplib.IMAP4.error, ImapToolsError, OSError, EOFError),
    explain=_explain_imap,
    hint="Check imap_host and imap_port.",
)
SMTP = ClientErrors(
    title="the SMTP server",
    raised=(SMTPException, OSError),
    explain=_explain_smtp,
    hint="Check smtp_host and smtp_port.",
)


class Encryption(StrEnum):
    TLS = "tls"
    STARTTLS = "starttls"
    NONE = "none"


class Unverified(StrEnum):
    """What happens to a mail whose sender the server could not verify."""

    REFUSE = "refuse"
    STRANGER = "stranger"


class EmailOptions(AccountOptions):
    address: str = Field(description="The address of the mailbox.")
    password: SecretStr = Field(description="Its password, or an app password.")
    username: str = Field(default="", description="The name to log in with; by default the address.")
    name: str = Field(default="", description="The name that people see as the sender.")
    aliases: tuple[str, ...] = Field(default=(), description="Other addresses of the mailbox.")
    imap_host: str = Field(min_length=1, description="The IMAP server.")
    imap_port: int = Field(default=993, ge=1, le=65535, description="Its port.")
    imap_encryption: Encryption = Field(default=Encryption.TLS, description="`tls`, `starttls`, or `none` on loopback.")
    smtp_host: str = Field(min_length=1, description="The SMTP server.")
    smtp_port: int = Field(default=465, ge=1, le=65535, description="Its port.")
    smtp_encryption: Encryption = Field(default=Encryption.TLS, description="`tls`, `starttls`, or `none` on loopback.")
    folder: str = Field(default="INBOX", min_length=1, description="The folder to read.")
    auth_server: str = Field(
        min_length=1, description="The name of your mail server in the header Authentication-Results."
    )
    unverified: Unverified = Field(
        default=Unverified.REFUSE,
        description="What to do with unverified senders: `refuse`, or treat each as a `stranger`.",
    )
    max_bytes: int = Field(default=25_000_000, ge=1, description="The largest mail that is read whole.")

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str) -> str:
        if not ADDRESS.fullmatch(address.lower()):
            raise ValueError("an e-mail address, like helper@example.org")
        return address.lower()

    @field_validator("aliases")
    @classmethod
    def _check_aliases(cls, aliases: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cls._check_address(alias) for alias in aliases)

    @model_validator(mode="after")
    def _check_encryption(self) -> Self:
        plain = {
            host
            for host, how in ((self.imap_host, self.imap_encryption), (self.smtp_host, self.smtp_encryption))
            if how is Encryption.NONE
        }
        if not all(map(is_loopback, plain)):
            raise ValueError("tls or starttls: the password would be readable on the way to another machine")
        return self

    @property
    def login(self) -> str:
        return self.username or self.address

    @property
    def own(self) -> frozenset[str]:
        """Every address of the mailbox."""
        return frozenset((self.address, *self.aliases))


T = TypeVar("T")

_TIMEOUT_SECONDS = 30.0
_IDLE_SECONDS = 300.0
"""Often enough to notice a connection that is dead without saying so."""
_SIZE = re.compile(rb"RFC822\.SIZE (\d+)")
_SEARCHABLE = re.compile(r"[\x21-\x7e]{1,900}")


class _Idle(IdleManager):
    """Also sees a notice that came in one packet with the response to IDLE: the socket alone does not show it."""

    def __init__(self, box: BaseMailBox) -> None:
        super().__init__(box)
        self._client = box.client

    def poll(self, timeout: float | None) -> list[bytes]:
        return self._buffered() or super().poll(timeout)

    def _buffered(self) -> list[bytes]:
        lines: list[bytes] = []
        self._client.sock.settimeout(0)
        try:
            while True:
                lines.append(self._client._get_line())  # type: ignore[attr-defined]  # noqa: SLF001 - as imap-tools does
        except (OSError, IMAP4.abort):  # nothing more to read
            return lines
        finally:
            self._client.sock.settimeout(_TIMEOUT_SECONDS)


@value
class RawMail:
    content: bytes
    size: int
    """As the server states it."""
    is_whole: bool = True
    """False if it is so large that only its headers were read."""


class Mailbox:
    """The folder of an account. Every method but `call` and `cut` blocks."""

    def __init__(self, options: EmailOptions) -> None:
        self._options = options
        self._thread = ThreadPoolExecutor(1, "imap")
        self._box: BaseMailBox | None = None
        self.validity = 0
        """UIDs are valid only together with it."""
        self.next_uid = 1
        self.can_idle = False

    async def call(self, work: Callable[[], T]) -> T:
        """Do it on the connection's thread, and translate errors."""
        with IMAP.requests():
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def open(self) -> None:
        self._box = _connect(self._options)
        self._box.idle = _Idle(self._box)
        self._box.login(self._options.login, self._options.password.get_secret_value(), self._options.folder)
        self.validity, self.next_uid = (self._selected(name) for name in ("UIDVALIDITY", "UIDNEXT"))
        # Many servers name it only after the login.
        self.can_idle = b"IDLE" in b" ".join(self._box.client.capability()[1]).upper().split()

    def _selected(self, name: str) -> int:
        found = self._opened.client.response(name)[1][0]
        return int(found) if isinstance(found, bytes | str) else 1

    @property
    def _opened(self) -> BaseMailBox:
        if self._box is None:
            raise OSError("not connected")
        return self._box

    def uids_after(self, uid: int) -> Sequence[int]:
        """Return newer mails in order. After none, every later one is announced while we idle."""
        client = self._opened.client
        is_announced = True
        while is_announced:
            client.response("EXISTS")
            # `7:*` includes the last mail even if it is older.
            found = [number for number in map(int, self._opened.uids(AND(uid=U(str(uid + 1), "*")))) if number > uid]
            if found:
                return sorted(found)
            # The server can announce a mail with the response to a search that did not see it.
            is_announced = client.response("EXISTS")[1] != [None]
        return ()

    def unseen(self, since: date | None) -> Sequence[int]:
        """Return unread mails in order."""
        criteria = AND(seen=False, date_gte=since) if since else AND(seen=False)
        return sorted(map(int, self._opened.uids(criteria)))

    def uid_of(self, message_id: str) -> int | None:
        if not _SEARCHABLE.fullmatch(message_id):
            return None
        found = self._opened.uids(AND(header=H("Message-ID", f"<{message_id}>")))
        return int(found[0]) if found else None

    def read(self, uid: int, *, max_bytes: int) -> RawMail | None:
        """Return a mail, or only its headers if it is larger; None if it was deleted."""
        found = _SIZE.search(b"".join(self._fetch(uid, "(RFC822.SIZE)")))
        if found is None:
            return None
        size = int(found[1])
        is_whole = size <= max_bytes
        parts = self._fetch(uid, "(BODY.PEEK[])" if is_whole else "(BODY.PEEK[HEADER])")
        return RawMail(content=parts[1], size=size, is_whole=is_whole) if len(parts) > 1 else None

    def _fetch(self, uid: int, what: str) -> Sequence[bytes]:
        _, data = self._opened.client.uid("FETCH", str(uid), what)
        first: object = data[0] if data else None
        return cast("Sequence[bytes]", first) if isinstance(first, tuple) else (cast("bytes | None", first) or b"",)

    def mark_seen(self, uid: int) -> None:
        self._opened.client.uid("STORE", str(uid), "+FLAGS.SILENT", r"(\Seen)")

    def idle(self) -> None:
        """Wait until something happens in the folder, at most for some minutes."""
        self._opened.idle.wait(_IDLE_SECONDS)

    async def close(self, *, is_cut: bool) -> None:
        """End the thread. A waiting one is woken by closing its connection."""
        loop = asyncio.get_running_loop()
        box = self._box
        if box is not None and is_cut:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(box.client.sock, socket.SHUT_RDWR)  # beneath TLS, which belongs to the thread
        ending = loop.run_in_executor(self._thread, self._log_out)
        self._thread.shutdown(wait=False)
        if box is not None:  # Nobody waits for a server that does not even connect.
            await asyncio.shield(ending)

    def _log_out(self) -> None:
        if self._box is not None:
            with contextlib.suppress(*IMAP.raised):
                self._box.client.logout()
            with contextlib.suppress(*IMAP.raised):
                self._box.client.shutdown()  # if the server did not answer


def _connect(options: EmailOptions) -> BaseMailBox:
    host = options.imap_host
    port = options.imap_port
    match options.imap_encryption:
        case Encryption.TLS:
            return MailBox(host, port, _TIMEOUT_SECONDS, ssl_context=ssl.create_default_context())
        case Encryption.STARTTLS:
            return MailBoxStartTls(host, port, _TIMEOUT_SECONDS, ssl.create_default_context())
        case Encryption.NONE:
            return MailBoxUnencrypted(host, port, _TIMEOUT_SECONDS)


@asynccontextmanager
async def opened(options: EmailOptions) -> AsyncGenerator[Mailbox]:
    mailbox = Mailbox(options)
    is_cut = True
    try:
        await mailbox.call(mailbox.open)
        yield mailbox
        is_cut = False
    finally:
        await mailbox.close(is_cut=is_cut)
