"""Run one command in a new Modal sandbox and pass its streams on: a program that the supervisor runs.

Its exit code is that of the command, or 125 if there is no sandbox. `remove` ends a sandbox that `run` has made. After
SIGTERM, `run` starts nothing any more.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

NO_SANDBOX, KILLED = 125, 137
LIFETIME_SECONDS = 24 * 60 * 60
"""The longest that Modal allows."""
CHUNK_BYTES = 1 << 16
_ended: list[int] = []
"""The signals that asked this program to end."""


def run(modal: Any, wanted: dict[str, Any]) -> int:  # noqa: ANN401 - a library without our types
    """Run the command of this description to its end, and return its exit code."""
    sandbox = modal.Sandbox.create(
        app=modal.App.lookup(wanted["app"], create_if_missing=True),
        name=wanted["name"],
        image=modal.Image.from_registry(wanted["image"]),
        volumes={wanted["mounted"]: modal.Volume.from_name(wanted["volume"], create_if_missing=True)},
        env=wanted["env"],
        block_network=not wanted["network"],
        timeout=LIFETIME_SECONDS,
    )
    try:
        if _ended:
            return KILLED
        # In a folder that may not be there: the shell says so, where a sandbox would only fail.
        line = 'cd "$0" && exec sh -c "$1"'
        command = ("sh", "-c", line, wanted["workdir"], wanted["command"])
        process = sandbox.exec(*command, text=False, pty=wanted["terminal"])
        outputs = [
            threading.Thread(target=_copy_output, args=(stream, number))
            for number, stream in ((1, process.stdout), (2, process.stderr))
        ]
        threading.Thread(target=_copy_input, args=(process.stdin,), daemon=True).start()
        for output in outputs:
            output.start()
        code = int(process.wait())
        for output in outputs:
            output.join()
        return code
    finally:
        sandbox.terminate()


def remove(modal: Any, wanted: dict[str, Any]) -> None:  # noqa: ANN401
    """End a sandbox with everything in it."""
    with suppress(modal.exception.NotFoundError):  # it has ended
        modal.Sandbox.from_name(wanted["app"], wanted["name"]).terminate()


def _copy_output(stream: Iterable[bytes], number: int) -> None:
    for piece in stream:
        data = piece
        while data:
            data = data[os.write(number, data) :]


def _copy_input(stream: Any) -> None:  # noqa: ANN401
    while data := os.read(0, CHUNK_BYTES):
        stream.write(data)
        stream.drain()
    stream.write_eof()
    stream.drain()


def main() -> None:
    # `remove` ends the command, and then this program ends.
    signal.signal(signal.SIGTERM, lambda number, _: _ended.append(number))
    is_removing = sys.argv[1] == "remove"
    wanted = json.loads(sys.argv[2] if is_removing else os.environ["PALAVER_SANDBOX"])
    try:
        modal: Any = import_module("modal")  # only where it is used
    except ImportError:
        from palaver.protocols.installation import package_line  # noqa: PLC0415 - slow to import, and rarely needed

        sys.stderr.write(f"Modal is not installed. Install it with: {package_line('modal')}\n")
        sys.exit(NO_SANDBOX)
    try:
        code = remove(modal, wanted) if is_removing else run(modal, wanted)
    except modal.exception.Error as error:
        sys.stderr.write(f"Modal: {error}\n")
        code = NO_SANDBOX
    sys.stdout.flush()
    os._exit(code or 0)  # a thread may wait for input
