"""The registry: every command declared once, with its help, who may use it, and the work it stands for."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from palaver.commands.help import allowed, explain, list_commands
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import YES, Arg, Command, Invocation, command_table, parse_command, with_roles
from palaver.model.errors import NotAllowed
from palaver.model.text import one_line
from palaver.model.value import value

__all__ = [
    "Performance",
    "Registry",
    "say",
]

Does = Callable[[Invocation, CommandContext], Transaction[str] | Awaitable[Transaction[str]]]
"""What a command awaits comes first and leaves no trace; its work and its answer are one step."""

_HELP = Command(
    name="help",
    help="list the commands, or explain one",
    example="/help new",
    args=(Arg(name="command"),),
    role=AccessRole.GUEST,
    urgent=True,
    beside=True,
    group="gateway",
)
_LONGEST_ECHO = 200


@value(kw_only=False)
class Performance:
    """A command and what it does."""

    command: Command
    does: Does
    would: Does | None = None
    """Said instead where `--yes` is missing: what exactly would be done. It changes nothing."""

    def __post_init__(self) -> None:
        if self.would is not None and not self.command.confirms:
            raise ValueError(f"/{self.command.name} says what it would do, so it needs YES among its arguments")


class Registry:
    """It brings `/help` along. Sayings are commands that only say how a message is meant; nobody performs them."""

    def __init__(self, performances: Iterable[Performance], sayings: Iterable[Command] = ()) -> None:
        self._performances, self._sayings = tuple(performances), tuple(sayings)
        everything = (*self._performances, Performance(_HELP, self._help))
        self.table = command_table(*(each.command for each in everything), *self._sayings)
        self._by_name = {each.command.name: each for each in everything}

    def plus(self, performances: Iterable[Performance]) -> "Registry":
        """With more commands; raises ValueError, saying so, where a name is taken."""
        return Registry((*self._performances, *performances), self._sayings)

    @property
    def names(self) -> frozenset[str]:
        """Of whatever is performed, without other spellings."""
        return frozenset(self._by_name)

    def listed(self, role: AccessRole, roles: Mapping[str, AccessRole]) -> Sequence[Command]:
        groups = allowed(with_roles(self.table, roles), role)
        return [command for commands in groups.values() for command in commands]

    def parse(self, text: str) -> Invocation | None:
        return parse_command(text, self.table)

    async def perform(self, invocation: Invocation, spoken: CommandContext) -> Transaction[str]:
        command = invocation.command
        needed = spoken.roles.get(command.name, command.role)
        if _role(spoken) < needed:
            raise NotAllowed(f"/{command.name}", needed.text)
        performance = self._by_name[command.name]
        if performance.would is None or YES.name in invocation.flags:
            return await _begun(performance.does, invocation, spoken)
        return _unconfirmed(await _begun(performance.would, invocation, spoken), spoken)

    def _help(self, invocation: Invocation, spoken: CommandContext) -> Transaction[str]:
        name, table = invocation.words.get("command"), with_roles(self.table, spoken.roles)
        return say(explain(table, name) if name else list_commands(table, _role(spoken)))


@transaction
def say(text: str) -> Statements[str]:
    """Nothing is done; only the answer is owed."""
    yield from ()
    return text


async def _begun(does: Does, invocation: Invocation, spoken: CommandContext) -> Transaction[str]:
    begun = does(invocation, spoken)
    return begun if isinstance(begun, Transaction) else await begun


@transaction
def _unconfirmed(would: Transaction[str], spoken: CommandContext) -> Statements[str]:
    text = yield from would
    again = one_line(spoken.received.inbound.text, _LONGEST_ECHO)
    return f"{text}\nNothing is done yet. To do it, say the same with --yes at its end: {again} --yes"


def _role(spoken: CommandContext) -> AccessRole:
    return spoken.received.role or AccessRole.GUEST
