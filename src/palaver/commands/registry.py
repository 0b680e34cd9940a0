"""The registry: every chat command with its help, the role it needs, and its handler."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from palaver.commands.help import allowed, explain, list_commands
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import (
    YES,
    Arg,
    Command,
    Invocation,
    as_said,
    command_table,
    parse_command,
    usable_answer,
    with_roles,
)
from palaver.model.errors import BadArgument, NotAllowed
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.store.store import Store

Handle = Callable[[Invocation, CommandContext], Transaction[str] | Awaitable[Transaction[str]]]
"""Awaiting comes first and changes nothing; the transaction does the work and returns the answer."""
StoreHandle = Callable[[Store, Invocation, CommandContext], Transaction[str] | Awaitable[Transaction[str]]]
HandleType = TypeVar("HandleType", bound=StoreHandle)

_HELP = Command(
    name="help",
    help="List all commands, or explain one",
    example="/help new",
    args=(Arg(name="command"),),
    role=AccessRole.GUEST,
    urgent=True,
    remote=True,
    group="gateway",
)
_MAX_ECHO_CHARS = 200


@value(kw_only=False)
class CommandHandler:
    """A command and the function that runs it."""

    command: Command
    handle: Handle
    preview: Handle | None = None
    """Runs instead if `--yes` is missing: says what would be done and changes nothing."""

    def __post_init__(self) -> None:
        if self.preview is not None and not self.command.confirms:
            raise ValueError(f"/{self.command.name} has a preview, so it needs YES among its arguments")


class CommandGroup:
    """Built-in commands, declared beside their functions. These take the store first."""

    def __init__(self, heading: str) -> None:
        self._heading = heading
        self._declared: list[tuple[Command, StoreHandle, StoreHandle | None]] = []

    def add(
        self,
        name: str,
        summary: str,
        example: str,
        *args: Arg,
        preview: StoreHandle | None = None,
        **options: Any,  # noqa: ANN401 - the other fields of Command
    ) -> Callable[[HandleType], HandleType]:
        options.setdefault("group", self._heading)
        command = Command(name=name, help=summary, example=example, args=args, **options)

        def declare(handle: HandleType) -> HandleType:
            self._declared.append((command, handle, preview))
            return handle

        return declare

    def handlers(self, store: Store) -> Iterator[CommandHandler]:
        for command, handle, preview in self._declared:
            yield CommandHandler(command, partial(handle, store), preview and partial(preview, store))


class Registry:
    """All chat commands, `/help` included. Busy mode commands send a message and have no handler."""

    def __init__(self, handlers: Iterable[CommandHandler], busy_mode_commands: Iterable[Command] = ()) -> None:
        self._handlers, self._busy_mode_commands = tuple(handlers), tuple(busy_mode_commands)
        everything = (*self._handlers, CommandHandler(_HELP, self._help))
        self.table = command_table(*(each.command for each in everything), *self._busy_mode_commands)
        self._by_name = {each.command.name: each for each in everything}

    def plus(self, handlers: Iterable[CommandHandler]) -> "Registry":
        """Add commands; raise ValueError if a name is taken."""
        return Registry((*self._handlers, *handlers), self._busy_mode_commands)

    @property
    def names(self) -> frozenset[str]:
        """Return the names of commands with a handler, without aliases."""
        return frozenset(self._by_name)

    def listed(self, role: AccessRole, roles: Mapping[str, AccessRole]) -> Sequence[Command]:
        groups = allowed(with_roles(self.table, roles), role)
        return [command for commands in groups.values() for command in commands]

    def parse(self, text: str) -> Invocation | None:
        return parse_command(text, self.table)

    async def perform(self, invocation: Invocation, context: CommandContext) -> Transaction[str]:
        command = invocation.command
        needed = context.roles.get(command.name, command.role)
        if _role(context) < needed and not invocation.is_for_all:
            raise NotAllowed(f"/{command.name}", needed.text)
        handler = self._by_name[command.name]
        if handler.preview is None or YES.name in invocation.flags:
            work = await _start(handler.handle, invocation, context)
        else:
            work = _with_confirmation(await _start(handler.preview, invocation, context), context)
        return work if command is _HELP else self._for_reader(work, context)

    @transaction
    def _for_reader(self, work: Transaction[str], context: CommandContext) -> Statements[str]:
        return usable_answer((yield from work), _role(context), with_roles(self.table, context.roles))

    def _help(self, invocation: Invocation, context: CommandContext) -> Transaction[str]:
        name, table = invocation.words.get("command"), with_roles(self.table, context.roles)
        if name:
            return reply(explain(table, name, _role(context)))
        return reply(usable_answer(list_commands(table, _role(context)), _role(context), table))


@transaction
def reply(text: str) -> Statements[str]:
    """Answer without doing anything."""
    yield from ()
    return text


async def _start(handle: Handle, invocation: Invocation, context: CommandContext) -> Transaction[str]:
    begun = handle(invocation, context)
    return begun if isinstance(begun, Transaction) else await begun


@transaction
def _with_confirmation(preview: Transaction[str], context: CommandContext) -> Statements[str]:
    text = yield from preview
    name, space, rest = one_line(context.received.inbound.text, _MAX_ECHO_CHARS).partition(" ")
    return f"{text}\nNothing has changed yet. To confirm, send: {name}{space}{rest and as_said(rest)} --yes"


def _role(context: CommandContext) -> AccessRole:
    return context.received.role or AccessRole.GUEST


def is_owner(context: CommandContext) -> bool:
    return _role(context) is AccessRole.OWNER


def is_admin(context: CommandContext) -> bool:
    return _role(context) >= AccessRole.ADMIN


def direct_chat_only(name: str, found: str) -> BadArgument:
    problem = f"{name} works only in a direct chat."
    return BadArgument(problem, found=found, allowed="a direct chat", example=name, fix="")
