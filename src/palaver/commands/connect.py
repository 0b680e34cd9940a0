"""`/connect`: choose the model that answers instead of the guide."""

from collections.abc import Awaitable, Callable, Iterator

from palaver.commands.registry import CommandHandler, reply
from palaver.db.transaction import Transaction
from palaver.engine.commands import CommandContext
from palaver.engine.intake.pasted_keys import CONNECT
from palaver.model.access import AccessRole
from palaver.model.command import Arg, ArgKind, Command, Invocation

Connect = Callable[[str, CommandContext], Awaitable[Transaction[str]]]
"""Connect what is named and return the answer."""
_ELSEWHERE = "This gateway cannot change its configuration here. Run palaver setup where it is installed."
_COMMAND = Command(
    name=CONNECT,
    help="Connect a model: paste its key, or name what was found here",
    example="/connect OPENAI_API_KEY",
    args=(Arg(name="name", kind=ArgKind.REST),),
    role=AccessRole.OWNER,
    group="gateway",
)


def connect_handlers(connect: Connect | None) -> Iterator[CommandHandler]:
    async def handle(invocation: Invocation, context: CommandContext) -> Transaction[str]:
        if connect is None:
            return reply(_ELSEWHERE)
        return await connect(invocation.words.get("name", ""), context)

    yield CommandHandler(_COMMAND, handle)
