"""A connection to the IMAP server. imap-tools blocks, so each connection has a thread of its own."""

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import date
from imaplib import IMAP4
from typing import TypeVar, cast

from imap_tools import AND, BaseMailBox, H, MailBox, MailBoxStartTls, MailBoxUnencrypted, U
from imap_tools.idle import IdleManager

from palaver.platforms.email.errors import IMAP
from palaver.platforms.email.options import EmailOptions, Encryption
from palaver.protocols import value

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
        client, is_announced = self._opened.client, True
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
        loop, box = asyncio.get_running_loop(), self._box
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
    host, port = options.imap_host, options.imap_port
    match options.imap_encryption:
        case Encryption.TLS:
            return MailBox(host, port, _TIMEOUT_SECONDS, ssl_context=ssl.create_default_context())
        case Encryption.STARTTLS:
            return MailBoxStartTls(host, port, _TIMEOUT_SECONDS, ssl.create_default_context())
        case Encryption.NONE:
            return MailBoxUnencrypted(host, port, _TIMEOUT_SECONDS)


@asynccontextmanager
async def opened(options: EmailOptions) -> AsyncGenerator[Mailbox]:
    mailbox, is_cut = Mailbox(options), True
    try:
        await mailbox.call(mailbox.open)
        yield mailbox
        is_cut = False
    finally:
        await mailbox.close(is_cut=is_cut)
