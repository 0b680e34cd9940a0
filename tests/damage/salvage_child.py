"""Salvage a store in a process that kills itself at a step: `python -m tests.damage.salvage_child FROM TO STEP`."""

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from itertools import count

from palaver.store.damage.salvage import salvage

steps = count(1)


def show(_what: str, _rows: int) -> None:
    if next(steps) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)


asyncio.run(salvage(sys.argv[1], sys.argv[2], "damaged", datetime.now(UTC), progress=show))
