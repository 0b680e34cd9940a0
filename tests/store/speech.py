"""Things said so that they can be searched for."""

from typing import Any

from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.store.queue import turns
from palaver.store.results import Begun
from palaver.store.search.search import Hit
from palaver.store.store import Store
from tests.store.world import OPERATOR, World, group


def topic(user: str) -> Source:
    """A place that several people share."""
    return Source(**{**group(user).to_json(), "thread_id": "5"})


async def tell(world: World, text: str, *replies: str | Entry, source: Source | None = None) -> Begun:
    """Somebody says something, and is answered, a second later each time."""
    world.later(seconds=1)
    await world.say(text, source)
    begun = await world.begin(source)
    assert begun
    entries: list[Entry] = []
    for reply in replies:
        world.later(seconds=1)
        entry = Entry(seq=0, role=Role.ASSISTANT, at=world.now, text=reply) if isinstance(reply, str) else reply
        entries.append(entry._replace(at=world.now))
    await world.store.transact(turns.settle(begun.turn, entries, [], world.now))
    return begun


async def texts(store: Store, query: str, principal: Principal = OPERATOR, **more: Any) -> list[str]:
    return [hit.entry.text for hit in await store.search.find(query, principal, **more) if hit.entry]


def marked(hit: Hit) -> list[str]:
    return [hit.snippet[start:end] for start, end in hit.marks]
