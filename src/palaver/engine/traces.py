"""Errors in the log: their class and where they arose, never their words, which may quote what was said."""

import logging
import traceback
from asyncio import Task
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["log_broken", "log_if_broken", "trace"]

_PLACES = 4


def trace(error: BaseException) -> str:
    """`ValueError at delivery.py:139 > adapter.py:51`, and the same of what caused it."""
    frames = [(Path(frame.f_code.co_filename).name, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = " > ".join(f"{file}:{line}" for file, line in frames[-_PLACES:])
    told = f"{_name(error)} at {places}" if places else _name(error)
    return told if error.__cause__ is None else f"{told}, from {trace(error.__cause__)}"


def _name(error: BaseException) -> str:
    """`IntegrityError SQLITE_CONSTRAINT_UNIQUE`: databases name what is wrong, and quote nobody in the name."""
    named: object = getattr(error, "sqlite_errorname", None) or getattr(error, "sqlstate", None)
    return f"{type(error).__name__} {named}" if named else type(error).__name__


def log_broken(log: logging.Logger, what: str, error: BaseException, told: Mapping[str, object]) -> None:
    """Something that is not ours raised what it should not have."""
    log.error("%s: %s", what, trace(error), extra=told)


def log_if_broken(log: logging.Logger, what: str, told: Mapping[str, object], task: Task[Any]) -> None:
    """For a task that is done and that nobody waits for."""
    if not task.cancelled() and (error := task.exception()):
        log_broken(log, what, error, told)
