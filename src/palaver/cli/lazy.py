"""Groups of commands whose module is imported only when one of them is called."""

from importlib import import_module
from types import ModuleType
from typing import Any

import typer.main
from typer.core import TyperGroup

__all__ = ["Later"]


class Later(TyperGroup):
    """Stands in the help with a line of its own; at the first call the module's `app` takes its place."""

    def __init__(self, name: str, module: str, line: str) -> None:
        super().__init__(name=name, help=line, rich_markup_mode=None)
        self._module = module

    def load(self) -> ModuleType:
        return import_module(self._module)

    def make_context(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401 - the types are not ours
        command: Any = typer.main.get_command(self.load().app)
        command.name = self.name
        # Completion is the business of the whole program.
        command.params = [param for param in command.params if not str(param.name).endswith("_completion")]
        return command.make_context(*args, **extra)
