"""The `palaver` command: its groups, its version, and how it speaks of mistakes."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
import typer.main

from palaver import __version__
from palaver.cli.lazy import Later
from palaver.cli.output import complain
from palaver.cli.tour import tour
from palaver.domain.errors import InvalidInput, PalaverError

__all__ = ["app", "main", "palaver", "run", "take_tour"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_GROUPS = {
    "explain": Later("explain", "palaver.cli.explain", "Why Palaver decides as it does."),
    "sessions": Later("sessions", "palaver.cli.sessions", "Look at, find, keep and remove conversations."),
    "doctor": Later("doctor", "palaver.cli.doctor", "Is everything well, and if not, how to mend it."),
}


def _print_version(*, wanted: bool) -> None:
    if wanted:
        print(f"palaver {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and leave.")
]


@app.callback(help="Talk to an AI agent from any chat app. Nothing lost, nothing done twice, nothing leaked.")
def palaver(*, version: Version = False) -> None:
    del version


@app.command("tour", help="A short tour of what works today.")
def take_tour() -> None:
    tour(main)


def run() -> None:
    sys.exit(main(sys.argv[1:]))


def main(args: Sequence[str]) -> int:
    """Run one command. Wrong input gives exit code 2, whatever else went wrong 1, each with one sentence."""
    as_json = "--json" in args
    try:
        return _command()(list(args) or ["--help"], standalone_mode=False, prog_name="palaver") or 0
    except InvalidInput as error:
        complain(str(error), as_json=as_json)
    except typer.TyperException as error:
        complain(_sentence(error, args), as_json=as_json)
    except PalaverError as error:
        complain(str(error), as_json=as_json)
        return 1
    return 2


def _command() -> Any:  # noqa: ANN401 - the types are not ours
    group: Any = typer.main.get_command(app)
    group.commands = {**_GROUPS, **group.commands}
    return group


def _sentence(error: typer.TyperException, args: Sequence[str]) -> str:
    """What was found, what is allowed, and an example, like our own errors."""
    found = " ".join(error.format_message().split()).removesuffix(".")
    allowed = ", ".join(_allowed(getattr(error, "ctx", None)))
    return f"{found}; allowed: {allowed}; for example: {_example(args)}"


def _example(args: Sequence[str]) -> str:
    """An example of the command that was called, or else the help of its group."""
    group = next((word for word in args if word in _GROUPS), None)
    if group is None:
        return "palaver explain --help"
    examples: Mapping[str, str] = _GROUPS[group].load().EXAMPLES
    return next((examples[word] for word in args if word in examples), f"palaver {group} --help")


def _allowed(context: typer.Context | None) -> list[str]:
    """The commands, or else the options and arguments, of the command that was called."""
    if context is None:
        return ["see palaver --help"]
    commands: Mapping[str, object] = getattr(context.command, "commands", {})
    return sorted(commands) or [param.opts[0] for param in context.command.params]
