"""`/model`: which model answers in this conversation."""

from collections.abc import Sequence

from palaver.commands.phrases import listed
from palaver.commands.registry import Performance
from palaver.domain.command import Arg, Command, Invocation
from palaver.domain.errors import BadArgument
from palaver.domain.session import ModelOverride, Principal, Session
from palaver.domain.text import one_line
from palaver.ports.agent import Choosing
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["about_models"]

_DEFAULT = "default"
_MODEL = Command(
    name="model",
    help="say which model answers in this conversation, or choose one until /new",
    example="/model default",
    args=(Arg(name="name"),),
    beside=True,
    group="answers",
)
_LONGEST = 100


def about_models(store: Store) -> list[Performance]:
    @work
    def model(invocation: Invocation, spoken: Spoken) -> Steps[str]:
        offered = spoken.agent.models() if isinstance(spoken.agent, Choosing) else ()
        name = invocation.words.get("name")
        if name is None:
            session = yield from store.sessions.open_by_key(spoken.received.key)
            return f"{_answering(session and session.override)} {_choices(offered)}"
        chosen = None if name.lower() == _DEFAULT else _chosen(name, offered)
        session = yield from _open(store, spoken)
        # Whoever speaks in a conversation may choose: the key is that of the place where they speak.
        yield from store.sessions.set_override(session.id, chosen, Principal.operator())
        return f"{_answering(chosen)} It counts from the next message on, until /new."

    return [Performance(_MODEL, model)]


def _open(store: Store, spoken: Spoken) -> Steps[Session]:
    """The open conversation; where there is none, a fresh one."""
    received = spoken.received
    session = yield from store.sessions.open_by_key(received.key)
    if session is None:
        source, by = received.inbound.source, spoken.principal.name
        session = yield from store.sessions.reset(received.key, source, spoken.now, by=by)
    return session


def _chosen(name: str, offered: Sequence[ModelOverride]) -> ModelOverride:
    found = [model for model in offered if name in {model.model, _name(model)}]
    if len(found) != 1:
        problem = "Several models are called" if found else "This agent has no model called"
        example = _name(found[0]) if found else _DEFAULT
        raise BadArgument(problem, found=name, allowed=_names(offered), example=f"/model {example}")
    return found[0]


def _answering(override: ModelOverride | None) -> str:
    model = "the agent's usual model" if override is None else _name(override)
    return f"This conversation is answered with {model}."


def _choices(offered: Sequence[ModelOverride]) -> str:
    if not offered:
        return "The agent has no other to choose."
    return f"To choose: {_names(offered)}; /model {_DEFAULT} returns to the usual one."


def _names(offered: Sequence[ModelOverride]) -> str:
    return listed((_DEFAULT, *map(_name, offered)))


def _name(model: ModelOverride) -> str:
    """`provider/model`, where it says who provides it."""
    return one_line("/".join(part for part in (model.provider, model.model) if part), _LONGEST)
