"""The `palaver` command: its groups, its version, and how it speaks of mistakes."""

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Literal, NoReturn, TextIO

import typer
import typer.main
from typer.core import TyperGroup

from palaver import __version__
from palaver.cli.output import FAILED, TEMPORARY, WRONG, complain, write_nowhere
from palaver.cli.tour import tour
from palaver.model.errors import BadArgument, InvalidInput, PalaverError, StoreInUse, StoreUnavailable

__all__ = [
    "Later",
    "app",
    "main",
    "palaver",
    "run",
    "take_tour",
]


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


app = typer.Typer(add_completion=False, rich_markup_mode=None)
_GROUPS = {
    "chat": Later("chat", "palaver.cli.chat", "Talk to the agent in the terminal."),
    "up": Later("up", "palaver.cli.up", "Run the gateway in the foreground."),
    "explain": Later("explain", "palaver.cli.explain", "Why Palaver decides as it does."),
    "sessions": Later("sessions", "palaver.cli.sessions", "Look at, find, keep and remove conversations."),
    "usage": Later("usage", "palaver.cli.usage", "What was used: turns, tokens and cost."),
    "people": Later("people", "palaver.cli.people", "Who has talked to the agent."),
    "pair": Later("pair", "palaver.cli.pair", "Strangers who ask to be let in."),
    "grants": Later("grants", "palaver.cli.grants", "Who may talk, as what, and why."),
    "platforms": Later("platforms", "palaver.cli.platforms", "Which accounts are connected."),
    "trace": Later("trace", "palaver.cli.trace", "What became of a message, in or out."),
    "file": Later("file", "palaver.cli.files", "A file that came with a message or went out with an answer."),
    "web": Later("web", "palaver.cli.web", "Login links and tokens for the window."),
    "mcp": Later("mcp", "palaver.cli.mcp", "Conversations as tools for another agent, over standard input and output."),
    "doctor": Later("doctor", "palaver.cli.doctor", "Is everything well, and if not, how to mend it."),
    "config": Later("config", "palaver.cli.config", "Check and show the configuration."),
    "setup": Later("setup", "palaver.cli.setup", "Choose who answers, or have an account on a platform."),
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


@app.command("tour", help="A short tour: how Palaver decides.")
def take_tour() -> None:
    tour(main)


def run() -> None:
    """The process around a command: whatever becomes of its output, there is no traceback."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _fill_gaps()
    sys.stdin = sys.stdin or _gap(_STANDARD_INPUT, "r")
    sys.stdout, sys.stderr = _patient(sys.stdout, _STANDARD_OUTPUT), _patient(sys.stderr, _STANDARD_ERROR)
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        code = FAILED
        if not isinstance(error, BrokenPipeError):
            complain(_refused(error), as_json=False)
        write_nowhere()
    _leave(code)


_STANDARD_INPUT, _STANDARD_OUTPUT, _STANDARD_ERROR = range(3)


def _fill_gaps() -> None:
    """Where we were started without a standard stream, nothing else that we open may get its number.

    There is nothing to read in its place, and complaints go nowhere; but what is said there is refused.
    """
    for number in (_STANDARD_INPUT, _STANDARD_OUTPUT, _STANDARD_ERROR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == _STANDARD_ERROR else os.O_RDONLY)


def _gap(number: int, mode: Literal["r", "w"]) -> TextIO:
    return open(number, mode, encoding="utf-8", closefd=False)


def _refused(error: OSError) -> str:
    if error.errno == errno.EBADF and sys.__stdout__ is None:
        return "standard output is closed, so there was nowhere to write to"
    return f"the system refused: {error.strerror or error}{f': {error.filename}' if error.filename else ''}"


def _leave(code: int) -> NoReturn:
    """Also where a thread, of an agent that does not stop, would keep the process alive for as long as it works."""
    threads = (each for each in threading.enumerate() if each is not threading.main_thread())
    if all(thread.daemon for thread in threads):
        sys.exit(code)
    sys.stderr.flush()
    os._exit(code)


def _patient(stream: TextIO | None, number: int) -> TextIO:
    """A stream that writes as numbers what its encoding does not have; where there is none, one over its gap."""
    if stream is None:
        return _gap(number, "w")
    text: object = stream
    if isinstance(text, io.TextIOWrapper):
        text.reconfigure(errors="backslashreplace")
    return stream


def main(args: Sequence[str]) -> int:
    """Run one command. Wrong input gives exit code 2, what may pass 75, whatever else is wrong 1; one sentence each."""
    as_json = "--json" in args
    try:
        return _command()(list(args) or ["--help"], standalone_mode=False, prog_name="palaver") or 0
    except InvalidInput as error:
        complain(str(error), as_json=as_json)
    except typer.TyperException as error:
        complain(_sentence(error, args), as_json=as_json)
    except PalaverError as error:
        complain(" ".join([str(error), *getattr(error, "__notes__", [])]), as_json=as_json)
        return TEMPORARY if isinstance(error, StoreInUse | StoreUnavailable) else FAILED
    return WRONG


def _command() -> Any:  # noqa: ANN401 - the types are not ours
    group: Any = typer.main.get_command(app)
    group.commands = {**_GROUPS, **group.commands}
    return group


def _sentence(error: typer.TyperException, args: Sequence[str]) -> str:
    """What was found, what is allowed, and an example, like our own errors."""
    refused: Any = error.__cause__
    if hasattr(refused, "errors"):
        param: Any = getattr(error, "param", None)
        found = str(refused.errors()[0]["input"])
        return str(
            BadArgument(f"{param.opts[0]} cannot be", found=found, allowed=_values(param), example=_example(args))
        )
    problem = " ".join(error.format_message().split()).removesuffix(".")
    allowed = _allowed(getattr(error, "ctx", None))
    return f"{problem}. Use {allowed}, for example {_example(args)}"


def _values(param: Any) -> str:  # noqa: ANN401 - the types are not ours
    """What an option takes: its choices, or else numbers."""
    choices = param.type_descriptor.choices
    if choices:
        return ", ".join(choices)
    if param.min is None:
        return "a whole number"
    return f"a whole number from {param.min} {'on' if param.max is None else f'to {param.max}'}"


def _example(args: Sequence[str]) -> str:
    """An example of the command that was called, or else the help of its group."""
    group = next((word for word in args if word in _GROUPS), None)
    if group is None:
        return "palaver --help"
    examples: Mapping[str, str] = _GROUPS[group].load().EXAMPLES
    return next((examples[word] for word in args if word in examples), f"palaver {group} --help")


def _allowed(context: typer.Context | None) -> str:
    """The commands, or else the options and arguments, of the command that was called."""
    if context is None:
        return "what the help of the command shows"
    commands: Mapping[str, object] = getattr(context.command, "commands", {})
    options = [param.opts[0] for param in context.command.params]
    return ", ".join(sorted(commands) or options) or "nothing but --help"
