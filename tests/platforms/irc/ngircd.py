"""A real IRC server beside the tests: ngIRCd, one for each process."""

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

__all__ = ["OPERATOR", "ngircd"]

OPERATOR = "operator-password"
_PATIENCE = 180.0
_CONFIGURATION = """\
[Global]
Name = irc.palaver.test
Info = for tests
Listen = 127.0.0.1
Ports = {port}
[Limits]
MaxConnectionsIP = 0
MaxJoins = 0
MaxNickLength = 30
MaxPenaltyTime = 0
[Options]
DNS = no
Ident = no
PAM = no
OperCanUseMode = yes
[Operator]
Name = op
Password = {password}
"""


@contextmanager
def ngircd() -> Generator[int]:
    """Run it, and return its port."""
    folder = Path(tempfile.mkdtemp(prefix="palaver-ngircd-"))
    port = free_port()
    (folder / "conf").write_text(_CONFIGURATION.format(port=port, password=OPERATOR))
    with (folder / "log").open("wb") as log:
        command = [program("ngircd"), "-n", "-f", str(folder / "conf")]
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        _wait(process, port, folder / "log")
        yield port
    finally:
        process.terminate()
        process.wait(_PATIENCE)
        shutil.rmtree(folder)


def _wait(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"ngIRCd does not start: {log.read_text()[-500:]}")
