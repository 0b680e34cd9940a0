"""A real IMAP server beside the tests: Dovecot, one for each process, without touching the system's own."""

import grp
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from imaplib import IMAP4, Time2Internaldate
from itertools import count
from pathlib import Path

from tests.needs import program
from tests.ports import free_port

__all__ = ["PASSWORD", "Dovecot", "Inbox", "dovecot"]

PASSWORD = "a-password-of-everybody"  # noqa: S105
_PATIENCE = 180.0
_CONFIGURATION = """\
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
ssl = {ssl}
ssl_cert = <{folder}/cert.pem
ssl_key = <{folder}/key.pem
disable_plaintext_auth = no
auth_failure_delay = 0
default_internal_user = {internal}
default_internal_group = {group}
default_login_user = {login}
first_valid_uid = 1
mail_location = maildir:~/Maildir
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={user} gid={group} home={folder}/mail/%n
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
"""


@dataclass
class Inbox:
    """The mailbox of an account, into which the tests put mail by IMAP.

    A file that is put into a Maildir is sometimes noticed seconds later: its folder changes twice in one moment.
    """

    name: str
    folder: Path
    port: int
    owner: int

    @property
    def address(self) -> str:
        return f"{self.name}@palaver.test"

    @cached_property
    def _client(self) -> IMAP4:
        client = IMAP4("127.0.0.1", self.port, timeout=_PATIENCE)
        client.login(self.name, PASSWORD)
        return client

    def deliver(self, mail: bytes, *, flags: str = "", at: datetime | None = None) -> None:
        when = Time2Internaldate(at) if at else ""
        status, words = self._client.append("INBOX", flags, when, mail)
        assert status == "OK", words

    def unread(self) -> int:
        """How many mails nobody has marked as read."""
        _, (found,) = self._client.status("INBOX", "(UNSEEN)")
        return int(found.rpartition(b" ")[2].rstrip(b")"))

    def rebuild(self) -> None:
        """Forget all UIDs, as a server does that was restored from a backup."""
        self.close()
        for file in self.folder.glob("dovecot*"):
            file.unlink()
        (self.folder / "dovecot-uidlist").write_text(f"3 V{time.time_ns() % 10**9} N1\n")
        os.chown(self.folder / "dovecot-uidlist", self.owner, -1)

    def close(self) -> None:
        if "_client" in self.__dict__:
            self._client.logout()
            del self._client


@dataclass
class Dovecot:
    folder: Path
    port: int
    tls_port: int
    owner: int
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def inbox(self) -> Inbox:
        name = f"helper{next(self._numbers)}"
        folder = self.folder / "mail" / name / "Maildir"
        for part in ("cur", "new", "tmp"):
            (folder / part).mkdir(parents=True)
        for path in (folder.parent, folder, *folder.iterdir()):
            os.chown(path, self.owner, -1)
        return Inbox(name, folder, self.port, self.owner)


@contextmanager
def dovecot(tls: tuple[Path, Path] | None = None) -> Generator[Dovecot]:
    """Run it; `tls` is a certificate and its key."""
    folder = Path(tempfile.mkdtemp(prefix="palaver-dovecot-"))
    folder.chmod(0o755)
    try:
        port, tls_port = free_port(), free_port()
        for name, file in zip(("cert.pem", "key.pem"), tls or (), strict=False):
            shutil.copy(file, folder / name)
        owner = _configure(folder, port, tls_port, tls=tls is not None)
        command = ["setpriv", "--pdeathsig", "TERM", program("dovecot"), "-F", "-c", str(folder / "dovecot.conf")]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            _wait(folder, port, server)
            yield Dovecot(folder, port, tls_port, owner)
        finally:
            server.terminate()
            server.wait(_PATIENCE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path, port: int, tls_port: int, *, tls: bool) -> int:
    """As root it changes to users without rights; otherwise everything runs as ourselves."""
    is_root = os.getuid() == 0
    ours = pwd.getpwuid(os.getuid())
    user = pwd.getpwnam("nobody") if is_root else ours
    (folder / "mail").mkdir()
    text = _CONFIGURATION.format(
        folder=folder,
        ssl="yes" if tls else "no",
        internal="dovecot" if is_root else ours.pw_name,
        login="dovenull" if is_root else ours.pw_name,
        user=user.pw_name,
        group="nogroup" if is_root else grp.getgrgid(os.getgid()).gr_name,
        password=PASSWORD,
        port=port,
        tls_port=tls_port if tls else 0,
    )
    lines = text.splitlines() if tls else [line for line in text.splitlines() if not line.startswith("ssl_")]
    (folder / "dovecot.conf").write_text("\n".join(lines) + "\n")
    return user.pw_uid


def _wait(folder: Path, port: int, server: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as line:
            assert line.recv(100).startswith(b"* OK")
            return
        time.sleep(0.02)
    log = folder / "log"
    raise AssertionError(f"Dovecot did not start: {log.read_text() if log.exists() else ''}")
