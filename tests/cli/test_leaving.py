"""An agent that never heeds its end, in a task or in a thread, does not keep the process alive."""

import asyncio
import subprocess
import sys

from palaver.cli.loop import run

STUBBORN = """
import asyncio, sys, threading
from contextlib import suppress
from palaver.cli import loop, main

async def stubborn():
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

async def serve():
    global task
    task = asyncio.create_task(stubborn())
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    await asyncio.sleep(0.01)
    print("served")

def command(args):
    loop.run(serve())
    return 7

loop._PATIENCE = 0.1
main.main = command
main.run()
"""


def test_a_process_ends_no_matter_what_an_agent_does() -> None:
    done = subprocess.run([sys.executable, "-c", STUBBORN], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (7, "served\n")
    assert "something does not stop" in done.stderr


def test_what_heeds_its_end_is_waited_for() -> None:
    ended: list[str] = []

    async def heeds() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("in good order")

    async def main() -> int:
        tasks.append(asyncio.create_task(heeds()))
        await asyncio.sleep(0)
        return 3

    tasks: list[asyncio.Task[None]] = []
    assert run(main()) == 3
    assert ended == ["in good order"]
