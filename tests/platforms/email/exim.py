"""A real SMTP server beside the tests: Exim, which delivers to Dovecot, without touching the system's own."""

import os
import pwd
import shutil
import smtplib
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from tests.needs import program
from tests.platforms.email.dovecot import PASSWORD, Dovecot, Inbox
from tests.ports import free_port

__all__ = ["SERVER", "Exim", "exim"]

SERVER = "mx.palaver.test"
_PATIENCE = 180.0
_LDA = "/usr/lib/dovecot/dovecot-lda"
_CONFIGURATION = """\
primary_hostname = {server}
exim_path = {folder}/exim
spool_directory = {folder}/spool
log_file_path = {folder}/%slog
pid_file_path = {folder}/pid
exim_user = {user}
exim_group = {group}
never_users =
deliver_drop_privilege
local_interfaces = 127.0.0.1
daemon_smtp_ports = {port}
tls_advertise_hosts =
auth_advertise_hosts = *
rfc1413_query_timeout = 0s
message_size_limit = 200K
keep_environment =
acl_smtp_rcpt = recipient
acl_smtp_data = content

begin acl
recipient:
  accept verify = recipient
  deny message = Unknown address
content:
  accept remove_header = Authentication-Results
         add_header = :at_start:${{authresults{{$primary_hostname}}}}

begin routers
agent:
  driver = accept
  domains = palaver.test
  local_parts = {name}
  transport = dovecot
full:
  driver = redirect
  domains = example.org
  local_parts = full
  data = :fail: the mailbox is full
  allow_fail
  no_verify
vacation:
  driver = accept
  domains = example.org
  local_parts = away
  transport = vacation
  unseen
people:
  driver = accept
  domains = example.org
  local_parts = ann : bob : full : away
  transport = people

begin transports
dovecot:
  driver = pipe
  command = {lda} -c {dovecot}/dovecot.conf -o log_path={folder}/ldalog \
    -o mail_location=maildir:{dovecot}/mail/{name}/Maildir -o postmaster_address=root@palaver.test -e
  environment = HOME={dovecot}/mail/{name},USER={name}
  return_path_add
  log_output
people:
  driver = appendfile
  directory = {folder}/people/$local_part_data
  maildir_format
  create_directory
vacation:
  driver = autoreply
  to = $sender_address
  from = away@example.org
  subject = Away: $h_subject:
  text = I am on vacation.

begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${{if eq{{$auth3}}{{{password}}}}}
  server_set_id = $auth2
"""


@dataclass
class Exim:
    folder: Path
    port: int
    imap_port: int
    inbox: Inbox

    @property
    def options(self) -> dict[str, Any]:
        return {
            "address": self.inbox.address,
            "password": PASSWORD,
            "imap_host": "127.0.0.1",
            "imap_port": self.imap_port,
            "imap_encryption": "none",
            "smtp_host": "127.0.0.1",
            "smtp_port": self.port,
            "smtp_encryption": "none",
            "auth_server": SERVER,
        }

    def post(self, mail: EmailMessage, *, login: str = "", sender: str | None = None) -> None:
        """Send it to us, as somebody who has logged in, or as another server does."""
        with _connect(self.port) as client:
            if login:
                client.login(login, PASSWORD)
            client.sendmail(login if sender is None else sender, [self.inbox.address], mail.as_bytes())

    def mailbox(self, person: str) -> list[EmailMessage]:
        """What somebody has got, in order."""
        files = sorted((self.folder / "people" / person / "new").glob("*"), key=lambda path: path.stat().st_mtime_ns)
        return [message_from_bytes(path.read_bytes(), policy=policy.default) for path in files]  # pyright: ignore[reportArgumentType]


@contextmanager
def exim(dovecot: Dovecot) -> Generator[Exim]:
    """Run it as the owner of the mailboxes, without rights of its own."""
    folder, inbox, port = dovecot.folder / "exim", dovecot.inbox(), free_port()
    owner = pwd.getpwuid(dovecot.owner)
    (folder / "spool").mkdir(parents=True)
    shutil.copyfile(program("exim4"), folder / "exim")  # not set-user-id
    (folder / "exim").chmod(0o755)
    about = {"server": SERVER, "folder": folder, "port": port, "user": owner.pw_uid, "group": owner.pw_gid}
    about |= {"dovecot": dovecot.folder, "name": inbox.name, "password": PASSWORD, "lda": _LDA}
    (folder / "exim.conf").write_text(_CONFIGURATION.format(**about))
    for path in (folder, folder / "spool"):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    command = [str(folder / "exim"), "-C", str(folder / "exim.conf"), "-bdf"]
    as_owner: dict[str, Any] = (
        {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
    )
    with (folder / "errlog").open("wb") as errors:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors, **as_owner)
    try:
        _wait(folder, port, server)
        yield Exim(folder, port, dovecot.port, inbox)
    finally:
        inbox.close()
        server.terminate()
        server.wait(_PATIENCE)


def _connect(port: int) -> smtplib.SMTP:
    """Connect under a name, or Python would look for one in the network."""
    return smtplib.SMTP("127.0.0.1", port, "client.example.org", _PATIENCE)


def _wait(folder: Path, port: int, server: "subprocess.Popen[Any]") -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and server.poll() is None:
        with suppress(OSError, smtplib.SMTPException), _connect(port):
            return
        time.sleep(0.02)
    said = "".join(path.read_text() for path in folder.glob("*log"))
    raise AssertionError(f"Exim did not start: {said}")
