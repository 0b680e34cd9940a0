"""Commands in the cloud of Modal, a new sandbox for each command, over its Python library."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import field

from palaver.agents.process import safe_environment
from palaver.model.value import value
from palaver.processes.backends.base import INSIDE, Order
from palaver.processes.launcher import Launch, program

_CLIENT = program("palaver.processes.backends.modal_client")


@value
class ModalBackend:
    """Runs commands in sandboxes that share a volume as their working directory, by default without network."""

    image: str
    """The name of an image in a registry."""
    app: str = "palaver"
    volume: str = "palaver-work"
    has_network: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    python: tuple[str, ...] = (sys.executable, "-I")
    """Has the library. It is imported there, not in the gateway."""
    name: str = "modal"

    @property
    def files(self) -> None:
        return None

    def place(self, order: Order) -> str:
        return order.below(INSIDE)

    def launch(self, order: Order) -> Launch:
        sandbox = {
            "app": self.app,
            "name": f"palaver-{order.process}",
            "image": self.image,
            "volume": self.volume,
            "mounted": INSIDE,
            "network": self.has_network,
            "workdir": self.place(order),
            "env": {**self.environment, **order.marks},
            "command": order.command,
            "terminal": order.has_terminal,
        }
        login = {name: text for name, text in os.environ.items() if name.startswith("MODAL_")}
        return Launch(
            argv=(*self.python, "-c", _CLIENT, "run"),
            # In a variable, because everybody on this machine can read the arguments of a program.
            env={**safe_environment(os.environ), **login, "PALAVER_SANDBOX": json.dumps(sandbox)},
            folder="/",
            cleanup=(*self.python, "-c", _CLIENT, "remove", json.dumps({"app": self.app, "name": sandbox["name"]})),
            has_terminal=order.has_terminal,
            is_raw=True,
            takes_input=order.takes_input,
        )
