"""Commands on another machine, over the ssh program of this one."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from palaver.agents.process import safe_environment
from palaver.model.value import value
from palaver.processes.backends.base import Order
from palaver.processes.launcher import Launch

_OPTIONS = (
    "BatchMode=yes",
    "ClearAllForwardings=yes",
    "ConnectTimeout=15",
    "ControlMaster=no",
    "ControlPath=none",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "ServerAliveCountMax=4",
    "ServerAliveInterval=15",
)
"""Ask for no password, keep one connection for each command, and run nothing on this machine."""
_KILL = """
found=" "
field() {
  while read -r name text _; do
    [ "$name" = "$2:" ] && echo "$text" && return
  done 2>/dev/null <"/proc/$1/status"
}
find_marked() {
  for place in /proc/[0-9]*; do
    if tr '\\0' '\\n' 2>/dev/null <"$place/environ" | grep -qx "PALAVER_PROCESS=$1"; then
      found="$found${place#/proc/} "
    fi
  done
}
find_children() {
  before=
  while [ "$found" != "$before" ]; do
    before=$found
    for place in /proc/[0-9]*; do
      pid=${place#/proc/}
      case $found in *" $pid "*) continue ;; esac
      case $found in *" $(field "$pid" PPid) "*) found="$found$pid " ;; esac
    done
  done
}
are_gone() {
  for pid in $found; do
    case $(field "$pid" State) in "" | Z) ;; *) return 1 ;; esac
  done
}
find_marked "$1"
find_children
[ "$found" = " " ] && exit
kill -TERM $found 2>/dev/null
for _ in 1 2 3; do are_gone && exit; sleep 1; done
find_marked "$1"
find_children
kill -KILL $found 2>/dev/null
"""
"""Ends everything that has the variable of a process or descends from what has it, even if it has left its session."""


@value
class SshBackend:
    """Runs commands as the user and in the folder that it was given, with the shell of that user."""

    host: str
    """As ssh takes it: a name, user@name, or a name of its configuration. It does not begin with a hyphen."""
    folder: str
    port: int | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    name: str = "ssh"

    @property
    def files(self) -> None:
        return None

    def place(self, order: Order) -> str:
        return order.below(self.folder)

    def launch(self, order: Order) -> Launch:
        variables = {**self.environment, **order.marks}
        given = " ".join(f"{name}={shlex.quote(text)}" for name, text in variables.items())
        folder = shlex.quote(self.place(order))
        line = f"cd {folder} && exec env {given} sh -c {shlex.quote(order.command)}"
        kill = f"sh -c {shlex.quote(_KILL)} sh {shlex.quote(order.process)}"
        return Launch(
            argv=self._ssh(line, has_terminal=order.has_terminal),
            env=_environment(),
            folder="/",
            cleanup=self._ssh(kill),
            has_terminal=order.has_terminal,
            takes_input=order.takes_input,
        )

    def _ssh(self, line: str, *, has_terminal: bool = False) -> tuple[str, ...]:
        options = [*_OPTIONS, *([f"UserKnownHostsFile={self.known_hosts}"] if self.known_hosts else [])]
        return (
            *("ssh", "-tt" if has_terminal else "-T"),
            *(word for option in options for word in ("-o", option)),
            *(("-p", str(self.port)) if self.port else ()),
            *(("-i", str(self.key), "-o", "IdentitiesOnly=yes") if self.key else ()),
            *("--", self.host, line),
        )


def _environment() -> dict[str, str]:
    """Return what ssh itself needs. The command gets none of it."""
    agent = {"SSH_AUTH_SOCK": found} if (found := os.environ.get("SSH_AUTH_SOCK")) else {}
    return {**safe_environment(os.environ), **agent}
