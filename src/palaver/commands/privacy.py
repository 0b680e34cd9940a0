"""Commands about what is kept of whoever speaks."""

from palaver.commands.phrases import counted
from palaver.commands.registry import Performance
from palaver.domain.access import AccessRole
from palaver.domain.command import YES, Command, Invocation
from palaver.domain.errors import BadArgument
from palaver.domain.source import DM
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["about_privacy"]

_FORGET = Command(
    name="forget",
    help="take away for good everything that is kept of you",
    example="/forget",
    args=(YES,),
    role=AccessRole.GUEST,
    group="people",
)


def about_privacy(store: Store) -> list[Performance]:
    @work
    def would(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        _refuse_where_others_read(spoken)
        own, shared = yield from store.erasures.extent(spoken.principal.name)
        accounts = ", ".join(sorted(spoken.principal.identities))
        alone, with_others = counted(own, "conversation"), counted(shared, "conversation")
        return (
            f"Everything of {accounts} would be taken away for good: {alone} of yours alone, what you said in "
            f"{with_others} with others and the answers to it, your links, and what lets you in. "
            "What others said stays. There is no way back."
        )

    @work
    def forget(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        _refuse_where_others_read(spoken)
        answer = f"command:{spoken.received.number}"
        yield from store.erasures.ask_for(spoken.principal.name, spoken.now, by="the person", answer=answer)
        return "Everything of yours is being taken away, this conversation too. This is the last you hear of it."

    return [Performance(_FORGET, forget, would)]


def _refuse_where_others_read(spoken: Spoken) -> None:
    """Where somebody has talked is nobody else's business."""
    kind = spoken.received.inbound.source.chat_kind
    if kind != DM:
        raise BadArgument(
            "/forget is not for a chat of the kind", found=kind, allowed="a direct chat", example="/forget, said there"
        )
