"""Commands in Docker containers, a new one for each command, over the HTTP API of the engine."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from palaver.agents.process import safe_environment
from palaver.model.value import value
from palaver.processes.backends.base import INSIDE, Order
from palaver.processes.launcher import Launch, program

_CLIENT = program("palaver.processes.backends.docker_client")


@value
class DockerBackend:
    """Runs commands without network, capabilities and new privileges, unless the configuration says otherwise.

    Containers share only the working directory with this machine, and with each other.
    """

    image: str
    folder: Path
    """On this machine."""
    socket: Path = Path("/var/run/docker.sock")
    network: str = "none"
    user: str = ""
    """The user in the container; by default the one of the gateway, who owns the working directory."""
    memory: int = 1 << 30
    """In bytes."""
    cpus: float = 2.0
    processes: int = 512
    """How many processes and threads a container can have."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    name: str = "docker"

    @property
    def files(self) -> Path:
        return self.folder

    def place(self, order: Order) -> str:
        return order.below(INSIDE)

    def launch(self, order: Order) -> Launch:
        request = json.dumps({"socket": str(self.socket), "name": _name(order), "body": self._container(order)})
        remove = json.dumps({"socket": str(self.socket), "name": _name(order)})
        python = (sys.executable, "-I", "-S", "-c", _CLIENT)
        return Launch(
            argv=(*python, "run"),
            # In a variable, because everybody on this machine can read the arguments of a program.
            env={**safe_environment(os.environ), "PALAVER_CONTAINER": request},
            folder="/",
            cleanup=(*python, "remove", remove),
            has_terminal=order.has_terminal,
            is_raw=True,
            takes_input=order.takes_input,
        )

    def _container(self, order: Order) -> dict[str, object]:
        return {
            "Image": self.image,
            "Cmd": ["sh", "-c", order.command],
            "Entrypoint": [],
            "Env": [f"{name}={text}" for name, text in {**self.environment, **order.marks}.items()],
            "WorkingDir": self.place(order),
            "User": self.user or f"{os.getuid()}:{os.getgid()}",
            "Tty": order.has_terminal,
            "OpenStdin": order.takes_input,
            "StdinOnce": order.takes_input,
            "AttachStdin": order.takes_input,
            "AttachStdout": True,
            "AttachStderr": True,
            "Labels": {"palaver.process": order.process, "palaver.session": order.session},
            "HostConfig": {
                "Binds": [f"{self.folder}:{INSIDE}"],
                "NetworkMode": self.network,
                "Memory": self.memory,
                "NanoCpus": int(self.cpus * 1_000_000_000),
                "PidsLimit": self.processes,
                "CapDrop": ["ALL"],
                "SecurityOpt": ["no-new-privileges"],
                "Init": True,
            },
        }


def _name(order: Order) -> str:
    return f"palaver-{order.process}"
