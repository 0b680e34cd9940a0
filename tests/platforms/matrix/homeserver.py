"""A real Synapse beside the tests: one for all workers, which ends when the last of them has gone.

Run as a program, it is the one that looks after the server.
"""

import fcntl
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.ports import free_port

__all__ = ["PASSWORD", "SERVER_NAME", "Account", "Homeserver", "Stage", "shared"]

SERVER_NAME = "palaver.test"
PASSWORD = "a password of everybody"  # noqa: S105
_SECRET = "only for tests"  # noqa: S105
_PATIENCE = 180.0
_API = "/_matrix/client/v3"
_numbers = count(1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    user_id: str
    device_id: str
    token: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    bot: Account
    human: Account
    room_id: str
    encrypted: bool = False


class Homeserver:
    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._admin: Account | None = None

    def register(self, name: str, *, admin: bool = False) -> Account:
        """With the secret that the server and the tests share."""
        name = f"{name}-{os.getpid()}-{next(_numbers)}"
        nonce = str(self.ask("GET", "/_synapse/admin/v1/register")["nonce"])
        fields = (nonce, name, PASSWORD, "admin" if admin else "notadmin")
        mac = hmac.new(_SECRET.encode(), "\0".join(fields).encode(), hashlib.sha1).hexdigest()
        body = {"nonce": nonce, "username": name, "password": PASSWORD, "admin": admin, "mac": mac}
        made = self.ask("POST", "/_synapse/admin/v1/register", body)
        return Account(user_id=made["user_id"], device_id=made["device_id"], token=made["access_token"])

    def limit(self, user_id: str) -> None:
        """Anything this user sends from now on is too much."""
        self._limits(user_id, "POST", {"messages_per_second": 1, "burst_count": 0})

    def unlimit(self, user_id: str) -> None:
        self._limits(user_id, "DELETE", None)

    def _limits(self, user_id: str, method: str, body: Mapping[str, Any] | None) -> None:
        self._admin = self._admin or self.register("admin", admin=True)
        self.ask(method, f"/_synapse/admin/v1/users/{user_id}/override_ratelimit", body, self._admin.token)

    def stage(self, *, encrypted: bool = False) -> "Stage":
        """A room with somebody and our account in it."""
        bot, human = self.register("helper"), self.register("alice")
        secrets = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
        body = {"name": "Dev", "invite": [bot.user_id], "initial_state": [secrets] if encrypted else []}
        room_id = self.ask("POST", f"{_API}/createRoom", body, human.token)["room_id"]
        self.join(room_id, bot)
        return Stage(bot=bot, human=human, room_id=room_id, encrypted=encrypted)

    def join(self, room_id: str, account: Account) -> None:
        self.ask("POST", f"{_API}/join/{room_id}", {}, account.token)

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, token: str | None = None
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)  # noqa: S310 - our own address
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=_PATIENCE) as response:  # noqa: S310
            return json.load(response)


@contextmanager
def shared(folder: Path) -> Generator[Homeserver]:
    """The server of this folder, started by the first one to come."""
    folder.mkdir(exist_ok=True)
    with (folder / "guests").open("a") as guests, (folder / "door").open("a") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(guests, fcntl.LOCK_SH)
        if not (folder / "port").exists():
            _start(folder)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield Homeserver(int((folder / "port").read_text()))


def _start(folder: Path) -> None:
    port = free_port()
    _configure(folder, port)
    # It outlives the process that has started it, so nobody keeps it.
    output = (os.POSIX_SPAWN_OPEN, 1, str(folder / "output"), os.O_WRONLY | os.O_CREAT, 0o600)
    actions = [output, (os.POSIX_SPAWN_DUP2, 1, 2)]
    os.posix_spawn(sys.executable, [sys.executable, "-m", __name__, str(folder)], os.environ, file_actions=actions)
    until = time.monotonic() + _PATIENCE
    while not _answers(port):
        if time.monotonic() > until:
            raise AssertionError(f"Synapse did not start: {(folder / 'output').read_text()}")
        time.sleep(0.05)
    (folder / "port").write_text(str(port))


def _answers(port: int) -> bool:
    with suppress(OSError, urllib.error.URLError):
        Homeserver(port).ask("GET", "/_matrix/client/versions")
        return True
    return False


def _configure(folder: Path, port: int) -> None:
    """JSON is YAML. Nothing leaves the machine, passwords are cheap, and nobody is slowed down."""
    (folder / "signing.key").write_text(f"ed25519 a_test {b64encode(bytes(32)).decode().rstrip('=')}\n")
    freely = {"per_second": 100_000, "burst_count": 100_000}
    log = {"version": 1, "root": {"level": "ERROR"}}
    (folder / "log.yaml").write_text(json.dumps(log))
    configuration = {
        "server_name": SERVER_NAME,
        "report_stats": False,
        "signing_key_path": str(folder / "signing.key"),
        "media_store_path": str(folder / "media"),
        "log_config": str(folder / "log.yaml"),
        "listeners": [
            {
                "port": port,
                "bind_addresses": ["127.0.0.1"],
                "type": "http",
                "resources": [{"names": ["client", "media"]}],
            }
        ],
        "database": {"name": "sqlite3", "args": {"database": str(folder / "synapse.db")}},
        "registration_shared_secret": _SECRET,
        "macaroon_secret_key": _SECRET,
        "form_secret": _SECRET,
        # Else who begins to listen within two minutes of another begins where that one did.
        "caches": {"sync_response_cache_duration": "0s"},
        "bcrypt_rounds": 4,
        "federation_domain_whitelist": [],
        "trusted_key_servers": [],
        "presence": {"enabled": False},
        "stats": {"enabled": False},
        "enable_room_list_search": False,
        "user_directory": {"enabled": False},
        "push": {"enabled": False},
        "rc_message": freely,
        "rc_login": {"address": freely, "account": freely, "failed_attempts": freely},
        "rc_joins": {"local": freely},
        "rc_invites": {"per_room": freely, "per_user": freely, "per_issuer": freely},
    }
    (folder / "homeserver.yaml").write_text(json.dumps(configuration))


def _look_after(folder: Path) -> None:
    command = [sys.executable, "-m", "synapse.app.homeserver", "-c", str(folder / "homeserver.yaml")]
    server = subprocess.Popen(command, cwd=folder)
    with (folder / "guests").open("a") as guests:
        # Had when the last guest has gone, however they went.
        fcntl.flock(guests, fcntl.LOCK_EX)
        (folder / "port").unlink(missing_ok=True)
        server.kill()
        server.wait()


if __name__ == "__main__":
    _look_after(Path(sys.argv[1]))
