"""A real XMPP server beside the tests: Prosody, one for each process."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.needs import program
from tests.ports import free_port

__all__ = ["DOMAIN", "ROOMS", "Prosody", "prosody"]

DOMAIN = "localhost"
ROOMS = f"rooms.{DOMAIN}"
_PATIENCE = 180.0
# Accounts are authenticated without passwords being hashed, and everything is kept in files below the folder.
_CONFIGURATION = """\
data_path = "{folder}/data"
pidfile = "{folder}/pid"
plugin_paths = {{}}
daemonize = false
run_as_root = true
log = {{ warn = "{folder}/log" }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {port} }}
s2s_ports = {{ }}
http_ports = {{ {http_port} }}
https_ports = {{ }}
http_external_url = "http://127.0.0.1:{http_port}/"
http_host = "127.0.0.1"
c2s_require_encryption = {encryption}
allow_unencrypted_plain_auth = true
disable_sasl_mechanisms = {{ "SCRAM-SHA-1", "SCRAM-SHA-256", "DIGEST-MD5" }}
authentication = "internal_plain"
storage = "internal"
archive_expires_after = "never"
modules_enabled = {{ "roster", "tls", "saslauth", "disco", "ping", "mam", "smacks", "offline" }}
{tls}
VirtualHost "{domain}"
Component "{rooms}" "muc"
  modules_enabled = {{ "muc_mam" }}
  muc_log_by_default = true
  muc_room_locking = false
  muc_room_default_public_jids = true
  muc_room_default_persistent = true
Component "files.{domain}" "http_file_share"
  http_host = "127.0.0.1"
  http_external_url = "http://127.0.0.1:{http_port}/"
"""
_NO_TLS = 'modules_disabled = { "tls", "s2s" }'
_TLS = 'modules_disabled = {{ "s2s" }} ssl = {{ certificate = "{certificate}", key = "{certificate}" }}'


class Prosody:
    def __init__(self, folder: Path, certificate: Path | None, *, has_archive: bool, encryption: bool) -> None:
        self.folder = folder
        self.port, self.http_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir()
        tls = _TLS.format(certificate=certificate) if certificate else _NO_TLS
        tls = tls if has_archive else tls.replace('"s2s"', '"s2s", "mam"')
        configuration = _CONFIGURATION.format(
            tls=tls,
            encryption=str(encryption).lower(),
            folder=folder,
            port=self.port,
            http_port=self.http_port,
            domain=DOMAIN,
            rooms=ROOMS,
        )
        (folder / "prosody.cfg.lua").write_text(configuration)

    def register(self, name: str, password: str) -> None:
        """Make an account, as its file on the disk."""
        accounts = self.folder / "data" / DOMAIN / "accounts"
        accounts.mkdir(parents=True, exist_ok=True)
        (accounts / f"{name}.dat").write_text(f'return {{ ["password"] = "{password}"; }};\n')

    def start(self) -> None:
        command = [program("prosody"), "--config", str(self.folder / "prosody.cfg.lua"), "-F"]
        with (self.folder / "out").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self.folder)
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError(f"Prosody does not start: {self._logged()}")

    def stop(self, *, hard: bool = False) -> None:
        if self._process is not None:
            self._process.kill() if hard else self._process.terminate()
            self._process.wait(_PATIENCE)
            self._process = None

    def _logged(self) -> str:
        return "\n".join(
            (self.folder / name).read_text()[-2000:] for name in ("out", "log") if (self.folder / name).exists()
        )


@contextmanager
def prosody(
    certificate: Path | None = None, *, has_archive: bool = True, encryption: bool = False
) -> Generator[Prosody]:
    """Run it; with TLS if there is a certificate, in one file with its key. `encryption` demands it."""
    folder = Path(tempfile.mkdtemp(prefix="palaver-prosody-"))
    server = Prosody(folder, certificate, has_archive=has_archive, encryption=encryption)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
