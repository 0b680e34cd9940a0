"""The process table of this machine: who started whom, and when."""

import os


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


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on, which stands after the name."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def start_time(pid: int) -> str:
    """Return when a process started, so that no later one with its id passes for it; `-` if unknown."""
    fields = stat_fields(pid)
    if not fields:
        return "-"
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
    except OSError:
        boot = "-"
    return f"{boot}:{int(fields[19])}"
