"""Print the path of one message: every palaver module and function that runs from "hello" to its delivered answer.

Run it with `python -m bench.path`. It starts a gateway on a temporary store with the fake platform and the echo agent,
sends one message to warm up, and records the next one on every thread.
"""

import asyncio
import inspect
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import palaver
from tests.engine.gateway import running

__all__ = ["Path", "Recorder", "functions_by_module", "record_hello"]

ROOT = Path(palaver.__file__).parent
ADAPTER = "testkit.adapter"
"""The fake platform's other modules are its server side, not on the gateway's path."""
RESUMES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
QUIET_SECONDS = 0.3


class Recorder:
    """Collects the functions of palaver that run while `recording`, in order, with how often each was called."""

    def __init__(self) -> None:
        self.calls: dict[CodeType, int] = {}
        self._is_on = False

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if self._is_on and event == "call" and code.co_filename.startswith(str(ROOT)):
            # A generator is entered each time it goes on, so count it once.
            self.calls[code] = 1 if code.co_flags & RESUMES else self.calls.get(code, 0) + 1

    @contextmanager
    def installed(self) -> Generator[None]:
        """Watch this thread and every thread that starts meanwhile."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def recording(self) -> Generator[None]:
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False


async def record_hello(recorder: Recorder) -> None:
    """Record the second message of a conversation, from the platform until its answer is delivered."""
    with tempfile.TemporaryDirectory() as folder, recorder.installed():
        async with running(Path(folder) / "palaver.db", titles=False) as here:
            alice = here.world.person("alice")
            chat = here.world.dm(alice)
            await chat.say(alice, "hi")
            await chat.hears("hi")
            await here.settled()
            await asyncio.sleep(QUIET_SECONDS)
            with recorder.recording():
                await chat.say(alice, "hello")
                await chat.hears("hello")
                await asyncio.sleep(QUIET_SECONDS)


def functions_by_module(recorder: Recorder) -> dict[str, list[str]]:
    """Return the recorded functions under their modules, in the order in which the message reached them."""
    found: dict[str, list[str]] = {}
    for code, count in recorder.calls.items():
        module = ".".join(Path(code.co_filename).relative_to(ROOT).with_suffix("").parts)
        if module == ADAPTER or not module.startswith("testkit."):
            found.setdefault(module, []).append(f"{code.co_qualname} x{count}" if count > 1 else code.co_qualname)
    return found


def main() -> None:
    recorder = Recorder()
    asyncio.run(record_hello(recorder))
    functions = functions_by_module(recorder)
    for module, names in functions.items():
        print(f"{module}: {', '.join(names)}")
    print(f"\n{len(functions)} modules, {sum(map(len, functions.values()))} functions")


if __name__ == "__main__":
    main()
