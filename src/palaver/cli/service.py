"""`palaver service`: run the gateway for good, as a service of systemd or launchd."""

import getpass
import os
import plistlib
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from palaver.cli.output import FAILED, print_note
from palaver.cli.up import configuration
from palaver.config.paths import configuration_files, data_directory
from palaver.model.errors import BadArgument

EXAMPLES = {
    "install": "palaver service install",
    "uninstall": "palaver service uninstall",
    "status": "palaver service status",
}
NAME = "palaver"
_LABEL = "palaver.gateway"
_WRONG_CONFIGURATION = 2
_CLOSING_SECONDS = 30
"""How long the gateway takes to stop at most, once running turns have had their time."""

app = typer.Typer(help="Run the gateway as a service.", rich_markup_mode=None)


class Place(NamedTuple):
    """What a service runs, as whom, and on which files."""

    program: Sequence[str]
    folder: Path
    data: Path
    config: Path
    user: str
    stop_seconds: int
    is_system: bool


System = Annotated[bool, typer.Option("--system", help="For the whole machine, started at boot. Needs root.")]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="With --system: run as this user. Default: palaver.")
]
Print = Annotated[bool, typer.Option("--print", help="Print the file and change nothing.")]


@app.command(help=f"Install the service, start it now and at each boot or login.\n\n{EXAMPLES['install']}")
def install(*, system: System = False, user: User = None, print_only: Print = False) -> None:
    place = _place(is_system=system, user=user)
    if print_only:
        print(_file(place), end="")
        return
    path = _path(is_system=system)
    if system:
        _make_files(place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_file(place))
    print_note(f"Wrote {path}")
    if _is_mac():
        _run("launchctl", "bootstrap", f"gui/{os.getuid()}", str(path))
        return
    _systemctl("daemon-reload", is_system=system)
    _systemctl("enable", "--now", NAME, is_system=system)
    if not system:
        print_note(f"To keep it running while you are logged out: loginctl enable-linger {place.user}")
    print_note(f"Its log: journalctl {'' if system else '--user '}-u {NAME} -f")


@app.command(help=f"Stop the service and remove its file. Conversations stay.\n\n{EXAMPLES['uninstall']}")
def uninstall(*, system: System = False) -> None:
    path = _path(is_system=system)
    if not path.exists():
        raise BadArgument(
            "There is no service at", found=str(path), allowed="an installed service", example=EXAMPLES["install"]
        )
    if _is_mac():
        _run("launchctl", "bootout", f"gui/{os.getuid()}/{_LABEL}")
        path.unlink()
        return
    _systemctl("disable", "--now", NAME, is_system=system)
    path.unlink()
    _systemctl("daemon-reload", is_system=system)
    print_note(f"Removed {path}")


@app.command(help=f"Show whether the service runs.\n\n{EXAMPLES['status']}")
def status(*, system: System = False) -> None:
    if _is_mac():
        _run("launchctl", "print", f"gui/{os.getuid()}/{_LABEL}")
    else:
        _systemctl("status", "--no-pager", NAME, is_system=system)


def _place(*, is_system: bool, user: str | None) -> Place:
    if is_system and _is_mac():
        raise BadArgument(
            "A Mac has no", found="--system", allowed="the service of a user", example=EXAMPLES["install"]
        )
    if user and not is_system:
        raise BadArgument(
            "--user needs --system:", found=user, allowed="no name", example=f"{EXAMPLES['install']} --system"
        )
    user = (user or NAME) if is_system else getpass.getuser()
    if is_system and not _has_user(user):
        raise BadArgument(
            "This machine has no user", found=user, allowed="an existing one", example=f"useradd --system {NAME}"
        )
    program = [str(Path(sys.executable).parent / NAME)]
    if not Path(program[0]).exists():
        program = [sys.executable, "-m", "palaver"]
    if is_system:
        data, config = Path("/var/lib/palaver"), Path("/etc/palaver/palaver.yaml")
    else:
        data, config = data_directory().absolute(), configuration_files(Path.home()).user.absolute()
    return Place(
        program=[*program, "up"],
        folder=data if is_system else Path.home(),
        data=data,
        config=config,
        user=user,
        stop_seconds=int(configuration(None).options().drain_limit.total_seconds()) + _CLOSING_SECONDS,
        is_system=is_system,
    )


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _make_files(place: Place) -> None:
    """Make what only root can make, for the user who runs the service."""
    for folder in (place.data, place.config.parent):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.chown(folder, place.user)
    if not place.config.exists():
        place.config.touch(mode=0o600)
        shutil.chown(place.config, place.user)


def _path(*, is_system: bool) -> Path:
    if _is_mac():
        return Path.home() / "Library/LaunchAgents" / f"{_LABEL}.plist"
    if is_system:
        return Path("/etc/systemd/system") / f"{NAME}.service"
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "systemd/user" / f"{NAME}.service"


def _file(place: Place) -> str:
    return launchd_file(place) if _is_mac() else systemd_unit(place)


def _is_mac() -> bool:
    return sys.platform == "darwin"


def systemd_unit(place: Place) -> str:
    environment = [f"{name}={value}" for name, value in _environment(place).items()]
    return f"""\
[Unit]
Description=Palaver, an agent gateway
Wants=network-online.target
After=network-online.target postgresql.service

[Service]
Type=notify
ExecStart={_quote(place.program)}
# By the shell: a small Debian has no /bin/kill.
ExecReload=/bin/sh -c "kill -HUP ${{MAINPID}}"
WorkingDirectory={_plain(str(place.folder))}
{"".join(f"Environment={_quote([each])}{chr(10)}" for each in environment)}\
Restart=always
RestartSec=2
# A wrong configuration stays wrong: do not restart for it.
RestartPreventExitStatus={_WRONG_CONFIGURATION}
WatchdogSec=60
TimeoutStartSec=infinity
TimeoutStopSec={place.stop_seconds}
# Background processes of the agent outlive a restart; tools.terminal.on_stop decides.
KillMode=process
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
{_system_hardening(place) if place.is_system else ""}\

[Install]
WantedBy={"multi-user.target" if place.is_system else "default.target"}
"""


def _environment(place: Place) -> dict[str, str]:
    has_config = place.is_system or place.config.exists()
    return {"PALAVER_HOME": str(place.data)} | ({"PALAVER_CONFIG": str(place.config)} if has_config else {})


def _system_hardening(place: Place) -> str:
    return f"""\
User={place.user}
CapabilityBoundingSet=
ProtectSystem=strict
ReadWritePaths={_quote([str(place.data), str(place.config.parent)])}
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""


def _quote(words: Sequence[str]) -> str:
    """Quote words of a unit. systemd replaces % and splits at spaces; it refuses a program with a quote in its path."""
    return " ".join('"{}"'.format(_plain(word).replace("\\", "\\\\").replace('"', '\\"')) for word in words)


def _plain(text: str) -> str:
    return text.replace("%", "%%")


def launchd_file(place: Place) -> str:
    entries = {
        "Label": _LABEL,
        "ProgramArguments": list(place.program),
        "EnvironmentVariables": _environment(place),
        "WorkingDirectory": str(place.folder),
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 2,
        "ExitTimeOut": place.stop_seconds,
        "Umask": 0o077,
        # Not gateway.log, which the gateway writes and replaces when it is full.
        "StandardOutPath": str(place.data / "service.log"),
        "StandardErrorPath": str(place.data / "service.log"),
    }
    return plistlib.dumps(entries).decode()


def _systemctl(*words: str, is_system: bool) -> None:
    _run("systemctl", *([] if is_system else ["--user"]), *words)


def _run(*command: str) -> None:
    """Run a command of the service manager; what it says goes to the person."""
    program = shutil.which(command[0])
    if program is None:
        raise BadArgument(
            "This machine does not have", found=command[0], allowed="systemd or launchd", example="palaver up"
        )
    done = subprocess.run([program, *command[1:]], check=False)  # noqa: S603 - words of ours
    if done.returncode:
        print_note(f"{shlex.join(command)} failed with {done.returncode}.")
        raise typer.Exit(FAILED)
