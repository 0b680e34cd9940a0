"""The process table of this machine: who started whom, and when."""

import os

UNKNOWN = "-"
"""The start of a process of which nothing is known."""


def signal_process(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended, or became another user


def children_by_parent() -> dict[int, list[int]]:
    """Read the process table; empty where there is no /proc."""
    found: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return found
    for name in names:
        if name.isdigit() and (fields := stat_fields(int(name))):
            found.setdefault(int(fields[1]), []).append(int(name))
    return found


def with_variable(setting: bytes) -> list[int]:
    """Return the processes whose environment has this setting, `NAME=value`, as far as we can read it."""
    found: list[int] = []
    for pid in (pid for pids in children_by_parent().values() for pid in pids):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if setting in file.read().split(b"\0"):
                    found.append(pid)
        except OSError:
            pass  # it has ended, or is another user's
    return found


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on, which stands after the name."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def start_time(pid: int) -> str:
    """Return when a process started, so that no later one with its id passes for it."""
    fields = stat_fields(pid)
    if not fields:
        return UNKNOWN
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = "-"
    return f"{boot}:{int(fields[19])}"
