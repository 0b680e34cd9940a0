"""Kill a process for real, at the nth step that changes a file."""

import os
import shutil
import signal
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

_STEPS = (
    (os, "fsync"),
    (os, "utime"),
    (Path, "replace"),
    (Path, "rename"),
    (Path, "unlink"),
    (os, "mkdir"),
    (shutil, "rmtree"),
)


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Do the work in a process of its own, which is killed before this step. Return whether it came so far."""
    child = os.fork()
    if child == 0:
        _arm(step)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def _arm(step: int) -> None:
    steps = count(1)
    for owner, name in _STEPS:
        setattr(owner, name, _counted(getattr(owner, name), steps, step))


def _counted(function: Callable[..., Any], steps: "count[int]", last: int) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return call
