"""Back ends: where commands run. Each turns a command into a program that the supervisor runs on this machine."""

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path, PurePosixPath
from typing import Protocol

from palaver.agents.process import safe_environment
from palaver.model.errors import BadArgument
from palaver.model.value import value
from palaver.processes.launcher import Launch

SHELL = "/bin/sh"
TERMINAL_TYPE = "xterm"
INSIDE = "/workspace"
"""Where a container has the working directory."""


@value
class Order:
    """A command to run for a conversation."""

    command: str
    process: str
    """The id of the process."""
    session: str
    folder: str | None = None
    """The working directory, relative to that of the back end."""
    has_terminal: bool = False
    takes_input: bool = True

    def below(self, folder: str) -> str:
        """Return the working directory inside a folder. Raises BadArgument if it is outside."""
        inner = PurePosixPath(self.folder or ".")
        if inner.is_absolute() or ".." in inner.parts:
            raise BadArgument(
                "The folder cannot be", found=str(inner), allowed="a folder below the working directory", example="src"
            )
        return str(PurePosixPath(folder) / inner)

    @property
    def marks(self) -> dict[str, str]:
        """Variables that name the process and its session, in every back end."""
        terminal = {"TERM": TERMINAL_TYPE} if self.has_terminal else {}
        return {"PALAVER_SESSION": self.session, "PALAVER_PROCESS": self.process, **terminal}


class Backend(Protocol):
    """Runs commands somewhere. A back end that isolates commands never runs one on this machine itself."""

    @property
    def name(self) -> str: ...

    @property
    def files(self) -> Path | None:
        """The working directory on this machine, for the file tools; None if it is on another one."""
        ...

    def place(self, order: Order) -> str:
        """Return the working directory where the command runs. Raises BadArgument if it is not below the folder."""
        ...

    def launch(self, order: Order) -> Launch:
        """Return what the supervisor runs. It does not depend on anything but the order and the configuration."""
        ...


@value
class LocalBackend:
    """Runs commands on this machine, as the user of the gateway, without its environment."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Variables of the configuration; the gateway's own are not passed on, except a few safe ones."""
    name: str = "local"

    @property
    def files(self) -> Path:
        return self.folder

    def place(self, order: Order) -> str:
        return order.below(str(self.folder))

    def launch(self, order: Order) -> Launch:
        return Launch(
            argv=(SHELL, "-c", order.command),
            env={**safe_environment(os.environ), **self.environment, **order.marks},
            folder=self.place(order),
            has_terminal=order.has_terminal,
            takes_input=order.takes_input,
        )
