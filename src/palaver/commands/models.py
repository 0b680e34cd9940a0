"""`/model`: which model answers in this conversation."""

from collections.abc import Sequence

from palaver.commands.formatting import counted, listed
from palaver.commands.registry import Performance
from palaver.db.transaction import Statements, transaction
from palaver.engine.commands import CommandContext
from palaver.model.command import Arg, Command, Invocation
from palaver.model.errors import BadArgument
from palaver.model.quotas import QuotaKind, UsageTotal, period_start
from palaver.model.session import Counters, ModelOverride, Principal, Session
from palaver.model.text import one_line
from palaver.protocols.agent import Choosing
from palaver.store.store import Store

__all__ = [
    "about_models",
    "about_usage",
]

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
    @transaction
    def model(invocation: Invocation, spoken: CommandContext) -> Statements[str]:
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


def _open(store: Store, spoken: CommandContext) -> Statements[Session]:
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


_USAGE = Command(
    name="usage",
    help="say what this conversation has used, and what you have used today and this month",
    example="/usage",
    urgent=True,
    group="people",
)


def about_usage(store: Store) -> list[Performance]:
    @transaction
    def usage(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        here = (yield from store.turn_control.get_status(spoken.received.key, spoken.principal)).session
        mine = spoken.principal.identities
        today = period_start(QuotaKind.PERSON_DAY, spoken.now, spoken.zone)
        month = period_start(QuotaKind.PERSON_MONTH, spoken.now, spoken.zone)
        used = here.counters if here else Counters()
        lines = {
            "This conversation": UsageTotal(
                turns=used.turns,
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cost_micros=used.cost_micros,
            ),
            "You today": (yield from store.usage.total(today, mine)),
            "You this month": (yield from store.usage.total(month, mine)),
        }
        return "\n".join(f"{name}: {_told(spent)}" for name, spent in lines.items())

    return [Performance(_USAGE, usage)]


def _told(spent: UsageTotal) -> str:
    tokens = f"{spent.input_tokens} tokens in, {spent.output_tokens} out"
    cost = f", at a cost of {spent.cost_micros / 1_000_000:.4f}" if spent.cost_micros else ""
    return f"{counted(spent.turns, 'turn')}, {tokens}{cost}."
