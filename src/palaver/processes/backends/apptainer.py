"""Commands in Apptainer (formerly Singularity) containers, over its command line."""

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from palaver.agents.process import safe_environment
from palaver.model.value import value
from palaver.processes.backends.base import INSIDE, Order
from palaver.processes.launcher import Launch


@value
class ApptainerBackend:
    """Runs commands in a container that shares only the working directory with this machine."""

    image: str
    folder: Path
    """On this machine."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    name: str = "apptainer"

    @property
    def files(self) -> Path:
        return self.folder

    def place(self, order: Order) -> str:
        return order.below(INSIDE)

    def launch(self, order: Order) -> Launch:
        # Variables with this prefix are those of the container; nothing else of ours gets into it.
        inner = {f"APPTAINERENV_{name}": text for name, text in {**self.environment, **order.marks}.items()}
        isolated = ("--containall", "--cleanenv", "--no-home", "--no-privs")
        mounts = ("--bind", f"{self.folder}:{INSIDE}", "--pwd", self.place(order))
        return Launch(
            argv=("apptainer", "exec", *isolated, *mounts, self.image, "sh", "-c", order.command),
            env={**safe_environment(os.environ), **inner},
            folder="/",
            has_terminal=order.has_terminal,
            takes_input=order.takes_input,
        )
