"""The command that has a conversation summarised."""

from palaver.commands.registry import Performance
from palaver.domain.command import Arg, ArgKind, Command, Invocation
from palaver.domain.errors import NothingToCompact
from palaver.engine import words
from palaver.engine.compacting import COMPRESS
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["compressing"]

_COMPRESS = Command(
    name=COMPRESS,
    help="summarise what was said earlier, so that the agent has less to read; /back takes it back",
    example="/compress the budget",
    args=(Arg(name="focus", kind=ArgKind.REST),),
    group="transcripts",
)


def compressing(store: Store) -> list[Performance]:
    @work
    def compress(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        """Only asked for here: the turn that it opens says what came of it."""
        received = spoken.received
        session = yield from store.sessions.open_by_key(received.key)
        if session is None:
            raise NothingToCompact(words.not_compacted("there is no conversation here yet"))
        yield from store.sessions.get_visible(session.id, spoken.principal)
        if (yield from store.turns.occupy(received.key, spoken.now, received)) is None:
            raise NothingToCompact(words.not_compacted("the agent waits for permission, /approve or /deny"))
        return ""

    return [Performance(_COMPRESS, compress)]
