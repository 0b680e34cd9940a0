"""`palaver service`: run the gateway for good, as a service of systemd or launchd."""

import getpass
import os
import plistlib
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from palaver.agents.plugins import agent_options
from palaver.cli.output import FAILED, print_note
from palaver.cli.prompts import agrees, is_interactive
from palaver.cli.service_environment import (
    FILE,
    carried_settings,
    launched,
    read_variables_file,
    write_variables_file,
)
from palaver.config.loader import Loaded, is_setting, load_with_sources
from palaver.config.model import Config
from palaver.config.paths import DATABASE, configuration_files, exists
from palaver.config.reader import named_variables
from palaver.model.errors import BadArgument
from palaver.platforms.plugins import known_platforms, load_factory
from palaver.store.opening import check_url, sqlite_path

EXAMPLES = {
    "install": "palaver service install",
    "uninstall": "palaver service uninstall",
    "status": "palaver service status",
}
NAME = "palaver"
_LABEL = "palaver.gateway"
_SYSTEM_DATA, _SYSTEM_CONFIG = Path("/var/lib/palaver"), Path("/etc/palaver/palaver.yaml")
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
    environment: Mapping[str, str]
    """What everybody can read."""
    variables: Path
    """The file for secrets."""
    writable: Sequence[Path] = ()


class Wish(NamedTuple):
    """A service, the secrets that it needs from here, and what it does not get."""

    place: Place
    secrets: Mapping[str, str]
    notes: Sequence[str]


System = Annotated[bool, typer.Option("--system", help="For the whole machine, started at boot. Needs root.")]
User = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="With --system: run as this user. Default: palaver.")
]
Consent = Annotated[
    bool, typer.Option("--yes", "-y", help=f"Write the secrets that it needs into {FILE}, without asking.")
]
Print = Annotated[bool, typer.Option("--print", help="Print the file and change nothing.")]


@app.command(help=f"Install the service, start it now and at each boot or login.\n\n{EXAMPLES['install']}")
def install(*, system: System = False, user: User = None, print_only: Print = False, yes: Consent = False) -> None:
    place, secrets, notes = _wish(is_system=system, user=user)
    for note in notes:
        print_note(note)
    if print_only:
        print(_file(place), end="")
        return
    path = _path(is_system=system)
    if system:
        _make_files(place)
    _hand_over(place, secrets, is_wanted=yes)
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


def _wish(*, is_system: bool, user: str | None) -> Wish:
    user = _user(is_system=is_system, name=user)
    cwd, carried = Path.cwd(), carried_settings(Path.cwd(), os.environ, is_system=is_system)
    folder = _SYSTEM_DATA if is_system else Path.home()
    config = _SYSTEM_CONFIG if is_system else configuration_files(cwd).user.absolute()
    variables = config.parent / FILE
    settings = {**carried.plain, **carried.secret} | ({"PALAVER_CONFIG": str(config)} if is_system else {})
    others = {name: text for name, text in os.environ.items() if name != "PALAVER_CONFIG" and not is_setting(name)}
    kept = read_variables_file(variables)
    # As the service will read it: in its folder, with what it gets.
    loaded = load_with_sources(
        folder,
        {**kept, **others, **settings},
        known_platforms(),
        load_factory,
        agent_options,
        draft="" if is_system and not exists(config) else None,
    )
    check_url(loaded.config.store)
    named = named_variables(loaded.sources)
    secrets = {**carried.secret, **{name: os.environ[name] for name in named if name in os.environ}}
    environment = {**carried.plain, **({"PALAVER_CONFIG": str(config)} if is_system else {})}
    if _is_decided_by_default(loaded, is_system=is_system):
        environment["PALAVER_HOME"] = str(folder if is_system else loaded.config.data_dir)
    data = Path(environment.get("PALAVER_HOME") or loaded.config.data_dir).absolute()
    place = Place(
        program=[*_program(), "up"],
        folder=folder,
        data=data,
        config=config,
        user=user,
        stop_seconds=int(loaded.config.limits.drain_limit.total_seconds()) + _CLOSING_SECONDS,
        is_system=is_system,
        environment=environment,
        variables=variables,
        writable=_writable(loaded.config, data),
    )
    unset = sorted(named - {*secrets, *kept})
    return Wish(place=place, secrets=secrets, notes=[*_unread(place), *_missing(place, unset)])


def _is_decided_by_default(loaded: Loaded, *, is_system: bool) -> bool:
    """Return whether nothing says where the data is, and the service would look elsewhere than this process."""
    node = loaded.sources.at(("data_dir",))
    if node is None or str(node.position) != "default":
        return False
    return is_system or (Path.home() != Path(pwd.getpwuid(os.getuid()).pw_dir) and not os.environ.get("XDG_DATA_HOME"))


def _writable(config: Config, data: Path) -> list[Path]:
    """Return the folders that the gateway writes, besides the one of its configuration."""
    file = sqlite_path(config.store)
    is_default = file is not None and file.name == DATABASE and file.parent == config.data_dir
    others = [None if is_default or file is None else file.absolute().parent, config.backup.folder]
    return list(dict.fromkeys([data, *(folder for folder in others if folder)]))


def _unread(place: Place) -> Iterator[str]:
    """Say which files count here and not for the service."""
    project = configuration_files(Path.cwd()).project
    if project.exists() and project.absolute() not in {place.config, place.folder / project.name}:
        yield f"The service does not read {project}. Put its settings into {place.config}."
    named = os.environ.get("PALAVER_CONFIG")
    if place.is_system and named and Path(named).absolute() != place.config:
        yield f"The service of the machine reads {place.config}, not {named}. Copy what it needs."


def _missing(place: Place, names: Sequence[str]) -> Iterator[str]:
    if names:
        lines = ", ".join(f"{name}=…" for name in names)
        yield (
            f"The configuration needs {', '.join(names)}, not set here: the service will not start. Write {lines} into"
            f" {place.variables}, a line each, then run: {_restart(place)}"
        )


def _restart(place: Place) -> str:
    if _is_mac():
        return f"launchctl kickstart -k gui/{os.getuid()}/{_LABEL}"
    return f"systemctl {'' if place.is_system else '--user '}restart {NAME}"


def _hand_over(place: Place, secrets: Mapping[str, str], *, is_wanted: bool) -> None:
    """Write the variables that the service needs into a file of its own, with consent."""
    kept = read_variables_file(place.variables)
    wanted = {name: text for name, text in kept.items() if name not in place.environment}
    if new := {name: text for name, text in secrets.items() if kept.get(name) != text}:
        names = ", ".join(sorted(new))
        reader = "root" if place.is_system else place.user  # who makes the file
        question = f"The service needs {names}. Write this into {place.variables}, which only {reader} can read?"
        if is_wanted or (is_interactive() and agrees(question, usual=True)):
            wanted |= new
            print_note(f"Wrote {names} to {place.variables}")
        else:
            print_note(
                f"Not carried over: {names}. Run this again with --yes, or write them into {place.variables},"
                f" a line NAME=VALUE each, then run: {_restart(place)}"
            )
    if wanted != kept:
        write_variables_file(place.variables, wanted)


def _user(*, is_system: bool, name: str | None) -> str:
    if is_system and _is_mac():
        raise BadArgument(
            "A Mac has no", found="--system", allowed="the service of a user", example=EXAMPLES["install"]
        )
    if name and not is_system:
        raise BadArgument(
            "--user needs --system:", found=name, allowed="no name", example=f"{EXAMPLES['install']} --system"
        )
    name = (name or NAME) if is_system else getpass.getuser()
    if is_system and not _has_user(name):
        raise BadArgument(
            "This machine has no user", found=name, allowed="an existing one", example=f"useradd --system {NAME}"
        )
    return name


def _program() -> list[str]:
    program = Path(sys.executable).parent / NAME
    return [str(program)] if program.exists() else [sys.executable, "-m", "palaver"]


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _make_files(place: Place) -> None:
    """Make what only root can make, for the user who runs the service. A folder that you named keeps its owner."""
    for folder in (*place.writable, place.config.parent):
        if not folder.exists() or folder in {_SYSTEM_DATA, _SYSTEM_CONFIG.parent}:
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
    environment = [f"{name}={value}" for name, value in place.environment.items()]
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
EnvironmentFile=-{_plain(str(place.variables))}
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


def _system_hardening(place: Place) -> str:
    return f"""\
User={place.user}
CapabilityBoundingSet=
ProtectSystem=strict
ReadWritePaths={_quote([str(each) for each in (*place.writable, place.config.parent)])}
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
        "ProgramArguments": launched(place.program, place.variables),
        "EnvironmentVariables": dict(place.environment),
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
