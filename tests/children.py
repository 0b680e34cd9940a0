"""Child processes of a test, by the program that they run."""

from contextlib import suppress

import psutil


def children_running(program: str) -> list[psutil.Process]:
    """Return the child processes that run a program. Others may end meanwhile."""
    found: list[psutil.Process] = []
    for each in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            found += [each] if program in " ".join(each.cmdline()) else []
    return found
