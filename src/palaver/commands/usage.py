"""Commands about what was used."""

from palaver.commands.registry import Performance
from palaver.domain.caps import Measure, Spent, beginning
from palaver.domain.command import Command, Invocation
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["about_usage"]

_USAGE = Command(
    name="usage",
    help="say what this conversation has used, and what you have used today and this month",
    example="/usage",
    urgent=True,
    group="people",
)


def about_usage(store: Store) -> list[Performance]:
    @work
    def usage(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        here = (yield from store.steering.status(spoken.received.key, spoken.principal)).session
        mine = spoken.principal.identities
        today = beginning(Measure.PERSON_DAY, spoken.now, spoken.zone)
        month = beginning(Measure.PERSON_MONTH, spoken.now, spoken.zone)
        counted = here.counters if here else None
        lines = {
            "This conversation": Spent(
                turns=counted.turns if counted else 0,
                input_tokens=counted.input_tokens if counted else 0,
                output_tokens=counted.output_tokens if counted else 0,
                cost_micros=counted.cost_micros if counted else 0,
            ),
            "You today": (yield from store.uses.spent(today, mine)),
            "You this month": (yield from store.uses.spent(month, mine)),
        }
        return "\n".join(f"{name}: {_told(spent)}" for name, spent in lines.items())

    return [Performance(_USAGE, usage)]


def _told(spent: Spent) -> str:
    turns = f"{spent.turns} {'turn' if spent.turns == 1 else 'turns'}"
    tokens = f"{spent.input_tokens} tokens in, {spent.output_tokens} out"
    cost = f", at a cost of {spent.cost_micros / 1_000_000:.4f}" if spent.cost_micros else ""
    return f"{turns}, {tokens}{cost}."
