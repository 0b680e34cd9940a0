"""The verdict: what became of every message of people and programs, and what the gateways used meanwhile."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from palaver.cli.output import TEMPORARY
from palaver.db.transaction import Row, Statements, transaction
from palaver.store.opening import open_store
from tests.crash.verdict import Room, judge
from tests.soak.agent import WORDS
from tests.soak.measure import Latency, lines, whole
from tests.soak.soak import Soak

__all__ = ["Verdict", "conclude"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    summary: str
    details: Sequence[str]
    complaints: Sequence[str]
    """Everything that should not be."""


@transaction
def _api_messages() -> Statements[list[Row]]:
    return (yield "SELECT message_id, count(*) FROM inbox WHERE platform = 'api' GROUP BY message_id", ())


async def conclude(soak: Soak) -> Verdict:
    """Judge while the gateways still run, then end them as a service manager does."""
    site = soak.site
    still = await site.api.ask_again()
    rooms = await site.square.look()
    async with await open_store(site.store) as store:
        found = await judge(rooms, store)
        rows = dict(await store.read(_api_messages()))
    for place in site.places:
        if place.process:
            await place.process.stop()
    api = _ApiVerdict(answered=site.api.answered, still=still, rows=rows)
    twice = list(_ran_twice(site.runs))
    hung = [process.name for process in site.lives if process.hung]
    lives = [[process.generation for process in place.lives] for place in site.places]
    together = [whole(place.name, each) for place, each in zip(site.places, lives, strict=True)]
    waited = [*_latencies(rooms), *site.api.latencies]
    measured, flat = lines([*together, *chain.from_iterable(lives)], waited, site.control.latencies)
    figures = {
        "engine": site.name,
        "seconds": f"{soak.seconds:.0f}",
        "ended": soak.kills,
        "ended_alone": len(soak.ended_alone),
        "full_disk": soak.full,
        "messages": found.messages + len(site.api.accepted),
        "lost": len(found.lost) + len(api.lost),
        "doubled": len(found.duplicate_turns) + len(found.duplicate_sends) + len(api.doubled) + len(twice),
        "out_of_order": len(found.out_of_order),
        "leaked": len(found.leaked),
        "vanished": len(api.vanished),
        "failed": found.failed,
        "unclear": found.unclear,
        "hung": len(hung),
        "flat": "yes" if flat else "no",
    }
    details = [
        *measured,
        f"refused for now: {dict(site.api.refused)}",
        f"slow clients: {dict(sorted(site.slow.kept_out.items()))}",
    ]
    return Verdict(
        summary=" ".join(f"{name}={figure}" for name, figure in figures.items()),
        details=details,
        complaints=[
            *found.complaints,
            *api.complaints,
            *twice,
            *(f"hung: {name} did not end after SIGTERM" for name in hung),
            *(words for words in soak.ended_alone if not words.endswith(f" {TEMPORARY}")),
            *([] if flat else ["not flat"]),
        ],
    )


@dataclass(frozen=True, kw_only=True)
class _ApiVerdict:
    answered: dict[str, str | None]
    still: dict[str, str | None]
    """What the gateway says at the end."""
    rows: dict[str, int]

    @property
    def lost(self) -> list[str]:
        return [word for word, answer in self.answered.items() if not answer or word not in answer]

    @property
    def doubled(self) -> list[str]:
        return [word for word, times in self.rows.items() if times > 1]

    @property
    def vanished(self) -> list[str]:
        """Answered once, and then no more."""
        return [word for word, answer in self.answered.items() if answer and self.still.get(word) != answer]

    @property
    def complaints(self) -> list[str]:
        kinds = {"lost": self.lost, "doubled": self.doubled, "vanished": self.vanished}
        return [f"{kind} in the API: {word}" for kind, words in kinds.items() for word in words]


def _ran_twice(runs: Sequence[tuple[float, str, int, int]]) -> Iterator[str]:
    """Turns that two processes of the agent worked on at the same time, both to the end."""
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    begun: dict[tuple[int, int], float] = {}
    for at, what, turn, pid in runs:
        if what == "begins":
            begun[turn, pid] = at
        elif (turn, pid) in begun:
            spans[turn].append((begun.pop((turn, pid)), at))
    for turn, each in spans.items():
        each.sort()
        if any(later[0] < earlier[1] for earlier, later in pairwise(each)):
            yield f"ran twice at once: turn {turn}"


def _latencies(rooms: Sequence[Room]) -> Iterator[Latency]:
    """From what people saw: from each message to its answer."""
    for room in rooms:
        said: dict[str, float] = {}
        for message in room.messages:
            for word in WORDS.findall(message.text):
                if message.key is None:
                    said[word] = message.at.timestamp()
                elif word in said:
                    began = said.pop(word)
                    yield Latency(began, message.at.timestamp() - began)
