"""Commands about what was used."""

from palaver.commands.phrases import counted
from palaver.commands.registry import Performance
from palaver.domain.caps import Measure, Spent, beginning
from palaver.domain.command import Command, Invocation
from palaver.domain.session import Counters
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
        used = here.counters if here else Counters()
        lines = {
            "This conversation": Spent(
                turns=used.turns,
                input_tokens=used.input_tokens,
                output_tokens=used.output_tokens,
                cost_micros=used.cost_micros,
            ),
            "You today": (yield from store.uses.spent(today, mine)),
            "You this month": (yield from store.uses.spent(month, mine)),
        }
        return "\n".join(f"{name}: {_told(spent)}" for name, spent in lines.items())

    return [Performance(_USAGE, usage)]


def _told(spent: Spent) -> str:
    tokens = f"{spent.input_tokens} tokens in, {spent.output_tokens} out"
    cost = f", at a cost of {spent.cost_micros / 1_000_000:.4f}" if spent.cost_micros else ""
    return f"{counted(spent.turns, 'turn')}, {tokens}{cost}."
