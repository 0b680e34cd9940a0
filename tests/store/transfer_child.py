"""Copy a store in a process that kills itself at a step: `python -m tests.store.transfer_child FROM TO ROWS STEP`."""

import asyncio
import os
import signal
import sys
from itertools import count

from palaver.store import transfer as module
from palaver.store.transfer import transfer

steps = count(1)


def show(_what: str, _rows: int) -> None:
    if next(steps) == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)


module._ROWS_PER_STEP = int(sys.argv[3])  # pyright: ignore[reportPrivateUsage]
asyncio.run(transfer(sys.argv[1], sys.argv[2], "old", progress=show))
