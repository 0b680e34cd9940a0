"""The programs that tests need beyond Python, and `python tests/programs.py`, which installs those that are missing.

`make test` and `.ci/run` run it before anything else is there, so it needs nothing but Python.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from ctypes import CDLL
from dataclasses import dataclass

__all__ = ["NEEDS", "PROGRAMS", "Program", "Right", "find", "install", "is_ci", "missing_programs"]

SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"
"""Where Debian keeps servers, and where few people's PATH leads."""
APT_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1", "SYSTEMD_OFFLINE": "1"}
"""Ask nothing, and start no server that a package brings."""


@dataclass(frozen=True, kw_only=True)
class Program:
    name: str
    package: str
    """The Debian package; several are divided by spaces."""
    purpose: str
    other_names: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        return find(self.name) is not None

    @property
    def remedy(self) -> str:
        return f"apt-get install {self.package}"


@dataclass(frozen=True, kw_only=True)
class Right:
    name: str
    purpose: str
    check: Callable[[], bool]
    remedy: str

    @property
    def is_there(self) -> bool:
        return self.check()


def _is_root() -> bool:
    return os.geteuid() == 0


def _may_mount() -> bool:
    """Whether this process has CAP_SYS_ADMIN, which root of an ordinary container has not."""
    try:
        with open("/proc/self/status") as status:  # noqa: PTH123 - quick
            (capabilities,) = [line.split()[1] for line in status if line.startswith("CapEff:")]
    except (OSError, ValueError):
        return False
    return bool(int(capabilities, 16) >> 21 & 1)


PROGRAMS = {
    each.name: each
    for each in (
        Program(
            name="chromium-headless-shell",
            package="chromium-headless-shell fonts-dejavu-core",
            purpose="the web pages, in a browser",
            other_names=("chromium",),
        ),
        Program(name="curl", package="curl openssl", purpose="the calls of the page about webhooks"),
        Program(name="dovecot", package="dovecot-imapd", purpose="e-mail, on a real IMAP server"),
        Program(name="espeak-ng", package="espeak-ng", purpose="voice messages, spoken"),
        Program(name="exim4", package="exim4-daemon-light", purpose="e-mail, through a real mail server"),
        Program(name="ffmpeg", package="ffmpeg", purpose="voice messages, converted"),
        Program(name="less", package="less", purpose="background processes with a terminal"),
        Program(name="libgomp.so.1", package="libgomp1", purpose="a model on this machine"),
        Program(name="ngircd", package="ngircd", purpose="IRC, on a real server"),
        Program(name="pgbouncer", package="pgbouncer", purpose="PostgreSQL, behind a connection pooler"),
        Program(name="prosody", package="prosody", purpose="XMPP, on a real server"),
        Program(name="ssh", package="openssh-client", purpose="commands on another machine"),
        Program(name="sshd", package="openssh-server", purpose="commands on another machine"),
        Program(name="systemd-analyze", package="systemd", purpose="the unit of the service"),
    )
}
RIGHTS = {
    each.name: each
    for each in (
        Right(name="root", purpose="files of other users", check=_is_root, remedy="run the tests as root"),
        Right(
            name="mount",
            purpose="a disk that is full",
            check=_may_mount,
            remedy="run the tests as root; in a container, with --privileged",
        ),
    )
}
NEEDS: Mapping[str, Program | Right] = {**PROGRAMS, **RIGHTS}


def find(name: str) -> str | None:
    if ".so." in name:
        return name if _loads(name) else None
    path = f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_FOLDERS}"
    others = PROGRAMS[name].other_names if name in PROGRAMS else ()
    for each in (name, *others):
        if found := shutil.which(each, path=path):
            return found
    return None


def _loads(library: str) -> bool:
    try:
        CDLL(library)
    except OSError:
        return False
    return True


def is_ci() -> bool:
    return os.environ.get("CI") == "true"


def missing_programs() -> list[Program]:
    return [each for each in PROGRAMS.values() if not each.is_there]


# Installing


def install(missing: Sequence[Program], say: Callable[[str], object]) -> bool:
    """Install them with apt, if this user may. Whether all of them are there now."""
    if not missing:
        return True
    prefix = _as_root()
    if prefix is None or not shutil.which("apt-get"):
        return False
    packages = [package for each in missing for package in each.package.split()]
    say(f"installing for the tests, with apt-get: {' '.join(packages)}")
    apt = (*prefix, "env", *(f"{name}={value}" for name, value in APT_ENVIRONMENT.items()), "apt-get", "-qq", "-y")
    _runs((*apt, "update"))
    command = (*apt, "install", "--no-install-recommends")
    if not _runs((*command, *packages)):
        for package in packages:  # one that this system does not have keeps none of the others away
            if not _runs((*command, package)):
                say(f"apt-get could not install {package}")
    return all(each.is_there for each in missing)


def _as_root() -> tuple[str, ...] | None:
    """What a command of root begins with, or None if that needs a password."""
    if _is_root():
        return ()
    sudo = ("sudo", "-n")
    return sudo if shutil.which("sudo") and _runs((*sudo, "true")) else None


def _runs(command: Iterable[str]) -> bool:
    quiet = subprocess.DEVNULL
    return subprocess.run([*command], stdin=quiet, stdout=quiet, stderr=quiet, check=False).returncode == 0


def _main() -> int:
    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201

    is_complete = install(missing_programs(), say)
    if is_complete or not is_ci():
        return 0  # pytest names what is missing when it has run the rest
    for each in missing_programs():
        say(f"{each.name} is missing: {each.remedy}")
    return 1


if __name__ == "__main__":
    sys.exit(_main())
