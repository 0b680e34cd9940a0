"""Open one new file after another, each as soon as it may: `python -m tests.store.opener FOLDER COUNT`."""

import asyncio
import sys
import time
from pathlib import Path

from palaver.store.opening import open_store


async def open_all(folder: Path, rounds: int) -> None:
    print("ready", flush=True)  # noqa: T201 - the test reads it
    for number in range(rounds):
        while not (folder / f"go {number}").exists():
            time.sleep(0.0005)  # noqa: ASYNC251 - nothing else runs here
        async with await open_store(str(folder / f"{number}.db")):
            pass
        print("opened", flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(open_all(Path(sys.argv[1]), int(sys.argv[2])))
