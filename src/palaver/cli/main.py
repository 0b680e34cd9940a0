"""The `palaver` command: its groups, its version, and how it reports errors."""

import errno
import gc
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from copy import copy
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any, Literal, NoReturn, TextIO

import typer
import typer.main
from typer.core import TyperGroup

from palaver import __version__
from palaver.cli.output import FAILED, TEMPORARY, WRONG, discard, print_error
from palaver.db.private_files import NO_ROOM
from palaver.model.errors import BadArgument, InvalidInput, NotFound, PalaverError, StoreInUse, StoreUnavailable


class LazyGroup(TyperGroup):
    """A command group that imports its module on the first call, so that `--help` stays fast.

    Modules with more commands are imported unless the first one has what is called.
    """

    def __init__(self, name: str, module: str, line: str, *others: str) -> None:
        super().__init__(name=name, help=line, rich_markup_mode=None)
        self._module = module
        self._others = others

    def load(self) -> ModuleType:
        return import_module(self._module)

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> Any:  # noqa: ANN401 - the types are not ours
        command: Any = typer.main.get_command(self.app_with(args))
        command.name = self.name
        # Completion is the business of the whole program.
        command.params = [param for param in command.params if not str(param.name).endswith("_completion")]
        return command.make_context(info_name, args, *rest, **extra)

    def app_with(self, args: Sequence[str] = ()) -> typer.Typer:
        """Return the commands of its modules, as far as they are needed for these arguments."""
        app: typer.Typer = self.load().app
        if not self._others or any(each.name in args[:1] for each in app.registered_commands):
            return app
        whole = copy(app)
        for module in self._others:
            whole.registered_commands = whole.registered_commands + import_module(module).app.registered_commands
        return whole


app = typer.Typer(rich_markup_mode=None)
GROUPS = {
    "chat": LazyGroup("chat", "palaver.cli.chat", "Chat with the agent in the terminal."),
    "up": LazyGroup("up", "palaver.cli.up", "Run the gateway in the foreground."),
    "service": LazyGroup("service", "palaver.cli.service", "Run the gateway as a service."),
    "explain": LazyGroup("explain", "palaver.cli.explain", "Explain how Palaver decides."),
    "sessions": LazyGroup(
        "sessions",
        "palaver.cli.sessions",
        "List, search, export and delete conversations.",
        "palaver.cli.search",
        "palaver.cli.export",
        "palaver.cli.delete",
    ),
    "jobs": LazyGroup("jobs", "palaver.cli.jobs", "List and change scheduled jobs."),
    "usage": LazyGroup("usage", "palaver.cli.usage", "Show turns, tokens and cost."),
    "people": LazyGroup("people", "palaver.cli.people", "List, export and delete people."),
    "memory": LazyGroup("memory", "palaver.cli.memory", "List, edit and delete what agents remember."),
    "pair": LazyGroup("pair", "palaver.cli.pair", "Approve or deny strangers who ask for access."),
    "grants": LazyGroup("grants", "palaver.cli.grants", "List and change who has access."),
    "platforms": LazyGroup(
        "platforms", "palaver.cli.platforms", "Show which accounts are connected.", "palaver.cli.check_accounts"
    ),
    "relay": LazyGroup("relay", "palaver.cli.relay", "Serve other gateways, or be served by a connector."),
    "processes": LazyGroup("processes", "palaver.cli.processes", "List, read and kill background processes."),
    "trace": LazyGroup("trace", "palaver.cli.trace", "Trace what happened to a message."),
    "file": LazyGroup("file", "palaver.cli.files", "Save a file from a message or an answer."),
    "web": LazyGroup("web", "palaver.cli.web", "Create login links and API tokens."),
    "mcp": LazyGroup("mcp", "palaver.cli.mcp", "Serve conversations as MCP tools on standard input and output."),
    "retention": LazyGroup("retention", "palaver.cli.retention", "Show and delete what is old."),
    "backup": LazyGroup("backup", "palaver.cli.backup", "Back up everything, also while a gateway runs."),
    "restore": LazyGroup("restore", "palaver.cli.restore", "Restore a backup into an empty place."),
    "encryption": LazyGroup("encryption", "palaver.cli.encryption", "Encrypt what is stored, and change keys."),
    "migrate": LazyGroup("migrate", "palaver.cli.migrate", "Move the store between SQLite and PostgreSQL."),
    "logs": LazyGroup("logs", "palaver.cli.logs", "Show what the gateway logged."),
    "doctor": LazyGroup("doctor", "palaver.cli.doctor", "Find problems and show how to fix them."),
    "config": LazyGroup("config", "palaver.cli.config", "Check and show the configuration."),
    "setup": LazyGroup("setup", "palaver.cli.setup", "Choose the agent, or connect a platform account."),
}


def _print_version(*, wanted: bool) -> None:
    if wanted:
        print(f"palaver {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
]


@app.callback(help="Talk to an AI agent from any chat app.")
def palaver(*, version: Version = False) -> None:
    del version


def run() -> None:
    """Run the process: a broken output stream ends it without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_missing_streams()
    sys.stdin = sys.stdin or _open_stream(_STANDARD_INPUT, "r")
    sys.stdout, sys.stderr = _tolerant(sys.stdout, _STANDARD_OUTPUT), _tolerant(sys.stderr, _STANDARD_ERROR)
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        code = FAILED
        if not isinstance(error, BrokenPipeError):
            print_error(_refused(error), as_json=False)
        discard(sys.stdout)
    _exit(code)


_STANDARD_INPUT, _STANDARD_OUTPUT, _STANDARD_ERROR = range(3)


def _open_missing_streams() -> None:
    """Open /dev/null for each missing standard stream, so that no other file gets its number.

    Reading gives nothing and errors go nowhere, but writing to standard output fails.
    """
    for number in (_STANDARD_INPUT, _STANDARD_OUTPUT, _STANDARD_ERROR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == _STANDARD_ERROR else os.O_RDONLY)


def _open_stream(number: int, mode: Literal["r", "w"]) -> TextIO:
    return open(number, mode, encoding="utf-8", closefd=False)


def _refused(error: OSError) -> str:
    if error.errno == errno.EBADF and sys.__stdout__ is None:
        return "Standard output is closed."
    if error.errno in NO_ROOM:
        return f"{error.strerror}: {error.filename or 'standard output'}. Make room there, and try again."
    return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"


def _exit(code: int) -> NoReturn:
    """Exit even if a thread of an agent is still running, or standard error cannot be written."""
    try:
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)
    threads = (each for each in threading.enumerate() if each is not threading.main_thread())
    if all(thread.daemon for thread in threads):
        gc.freeze()  # the interpreter looks for no cycles in what ends with it
        sys.exit(code)
    os._exit(code)


def _tolerant(stream: TextIO | None, number: int) -> TextIO:
    """Make a stream escape what its encoding does not have; replace a missing one."""
    if stream is None:
        return _open_stream(number, "w")
    text: object = stream
    if isinstance(text, io.TextIOWrapper):
        text.reconfigure(errors="backslashreplace")
    return stream


def main(args: Sequence[str]) -> int:
    """Run one command and return its exit code: 2 for invalid input, 75 to try again later, 1 for other errors."""
    as_json = "--json" in args
    try:
        return _command()(list(args) or ["--help"], standalone_mode=False, prog_name="palaver") or 0
    except InvalidInput as error:
        print_error(str(error), as_json=as_json)
    except typer.TyperException as error:
        print_error(_sentence(error, args), as_json=as_json)
    except PalaverError as error:
        advice = _LISTED.get(error.what, "") if isinstance(error, NotFound) else ""
        print_error(" ".join(filter(None, [str(error), advice, *getattr(error, "__notes__", [])])), as_json=as_json)
        return TEMPORARY if isinstance(error, StoreInUse | StoreUnavailable) else FAILED
    except OSError as error:
        if error.filename is None:  # a stream of the process
            raise
        print_error(_refused(error), as_json=as_json)
        return FAILED
    return WRONG


_LISTED = {
    "file": "Use the id that the agent or the chat shows.",
    "job": "List them with palaver jobs list --all",
    "note": "List them with palaver memory list",
    "person": "Use the id of a person, or an account. List them with palaver people list",
    "process": "List them with palaver processes list",
    "receipt": "List them with palaver people receipts",
    "session": "Use an id, the start of an id, or a title. List them with palaver sessions list",
}
"""How to find what there is, where something is not found."""


def _command() -> Any:  # noqa: ANN401 - the types are not ours
    group: Any = typer.main.get_command(app)
    group.commands = {**GROUPS, **group.commands}
    return group


def _sentence(error: typer.TyperException, args: Sequence[str]) -> str:
    """Describe a usage error like our own errors."""
    refused: Any = error.__cause__
    if hasattr(refused, "errors"):
        param: Any = getattr(error, "param", None)
        found = str(refused.errors()[0]["input"])
        return str(
            BadArgument(f"{param.opts[0]} cannot be", found=found, allowed=_values(param), example=example_for(args))
        )
    problem = " ".join(error.format_message().split()).removesuffix(".")
    for theirs, ours in _PLAIN.items():
        problem = theirs.sub(ours, problem)
    context: typer.Context | None = getattr(error, "ctx", None)
    problem, near = _GUESS.sub("", problem), _near_command(problem, context)
    if near:
        return f"{problem}. Did you mean {near}?"
    allowed = f". Use {_allowed(context)}" if context else ""
    return f"{problem}{allowed}, for example {example_for(args)}"


_LIKENESS = 0.7
_NO_COMMAND = re.compile(r"^No such command '(?P<said>[^']*)'")
_GUESS = re.compile(r"(?<=')\. Did you mean '.*$")
"""What the command line library guesses: it knows of no options."""


def _near_command(problem: str, context: typer.Context | None) -> str:
    """Return the command or the option that an unknown command is nearly; empty if there is none."""
    found = _NO_COMMAND.match(problem)
    if not found or context is None:
        return ""
    commands: Mapping[str, object] = getattr(context.command, "commands", {})
    options = {opt.lstrip("-"): opt for param in context.command.params for opt in param.opts}
    near = get_close_matches(found["said"].lower(), [*commands, *options], n=1, cutoff=_LIKENESS)
    return options.get(near[0], near[0]) if near else ""


_PLAIN = {
    re.compile(r"^Option '(\S+)' requires an argument$"): r"\1 needs a value",
    re.compile(r"^Got unexpected extra arguments?(?:\(s\))? \((.*)\)$"): r"This command does not take \1",
}
"""Sentences of the command line library, in plain English."""


def _values(param: Any) -> str:  # noqa: ANN401 - the types are not ours
    """Describe what an option accepts: its choices, or else numbers."""
    choices = param.type_descriptor.choices
    if choices:
        return ", ".join(choices)
    if param.min is None:
        return "a whole number"
    return f"a whole number from {param.min} {'up' if param.max is None else f'to {param.max}'}"


def example_for(args: Sequence[str]) -> str:
    """Return an example of the called command, or else the help of its group."""
    group = next((word for word in args if word in GROUPS), None)
    if group is None:
        return "palaver --help"
    examples: Mapping[str, str] = GROUPS[group].load().EXAMPLES
    words = (*args[args.index(group) + 1 :], group)  # a group can have an example of its own
    return next((examples[word] for word in words if word in examples), f"palaver {group} --help")


def _allowed(context: typer.Context) -> str:
    """Return the subcommands, or else the options, of the called command."""
    commands: Mapping[str, object] = getattr(context.command, "commands", {})
    options = [param.opts[0] for param in context.command.params]
    return ", ".join(sorted(commands) or options) or "only --help"
