"""`/model` and `/usage`: which model answers, and what was used."""

from collections.abc import Sequence

from palaver.commands.registry import CommandGroup
from palaver.db.transaction import Statements, transaction
from palaver.engine.commands import CommandContext
from palaver.model.command import Arg, Invocation
from palaver.model.errors import BadArgument
from palaver.model.quotas import QuotaKind, period_start
from palaver.model.session import Counters, ModelOverride, Principal, Session, UsageTotal, find_models, model_name
from palaver.model.text import counted, listed
from palaver.protocols.agent import Choosing
from palaver.store.store import Store

commands = CommandGroup("answers")

_DEFAULT = "default"


@commands.add(
    "model",
    "Show which model answers this conversation, or choose one until /new",
    "/model default",
    Arg(name="name"),
    remote=True,
)
@transaction
def model(store: Store, invocation: Invocation, context: CommandContext) -> Statements[str]:
    offered = context.agent.models() if isinstance(context.agent, Choosing) else ()
    name = invocation.words.get("name")
    if name is None:
        session = yield from store.sessions.open_by_key(context.received.key)
        return f"{_describe_model(session and session.override)} {_choices(offered)}"
    chosen = None if name.lower() == _DEFAULT else _chosen(name, offered)
    session = yield from open_session(store, context)
    # Everybody in a conversation can choose its model: the key is that of their own chat.
    yield from store.sessions.set_override(session.id, chosen, Principal.operator())
    until = ", until /new" if chosen else ""
    return f"{_describe_model(chosen)} It applies from your next message{until}."


@transaction
def open_session(store: Store, context: CommandContext) -> Statements[Session]:
    """Return the open session, or start one."""
    received = context.received
    session = yield from store.sessions.open_by_key(received.key)
    if session is None:
        source, by = received.inbound.source, context.principal.name
        session = yield from store.sessions.reset(received.key, source, context.now, by=by)
    return session


def _chosen(name: str, offered: Sequence[ModelOverride]) -> ModelOverride:
    found = find_models(name, offered)
    if len(found) != 1:
        problem = "Several models are called" if found else "This agent has no model called"
        example = model_name(found[0]) if found else _DEFAULT
        raise BadArgument(problem, found=name, allowed=_names(offered), example=f"/model {example}")
    return found[0]


def _describe_model(override: ModelOverride | None) -> str:
    model = "the agent's default model" if override is None else model_name(override)
    return f"This conversation uses {model}."


def _choices(offered: Sequence[ModelOverride]) -> str:
    if not offered:
        return "The agent offers no other model."
    return f"You can choose {_names(offered)}. /model {_DEFAULT} returns to the agent's default."


def _names(offered: Sequence[ModelOverride]) -> str:
    return listed((_DEFAULT, *map(model_name, offered)))


@commands.add(
    "usage",
    "Show what this conversation has used, and what you have used today and this month",
    "/usage",
    urgent=True,
    group="people",
)
@transaction
def usage(store: Store, _invocation: Invocation, context: CommandContext) -> Statements[str]:
    here = (yield from store.turn_control.get_status(context.received.key, context.principal)).session
    mine = context.principal.identities
    today = period_start(QuotaKind.PERSON_DAY, context.now, context.zone)
    month = period_start(QuotaKind.PERSON_MONTH, context.now, context.zone)
    lines = {
        "This conversation": here.counters if here else Counters(),
        "You today": (yield from store.usage.total(today, mine)),
        "You this month": (yield from store.usage.total(month, mine)),
    }
    return "\n".join(f"{name}: {_describe(spent)}" for name, spent in lines.items())


def _describe(spent: UsageTotal) -> str:
    tokens = f"{spent.input_tokens} tokens in, {spent.output_tokens} out"
    cached = f" ({spent.cached_tokens} from the cache)" if spent.cached_tokens else ""
    price = f"a cost of {spent.cost}" if spent.cost_micros else "an unknown cost"
    cost = f", at {price}" if spent.cost_micros or spent.unpriced_tokens else ""
    return f"{counted(spent.turns, 'turn')}, {tokens}{cached}{cost}."
