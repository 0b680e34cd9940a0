"""A gateway with something going on, for tests in the browser and for pictures: people, answers, questions, trouble."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.model.addressing import ConversationRules
from palaver.model.key import Scope, derive_key
from palaver.model.label import Label
from palaver.model.session import Principal
from palaver.model.source import GROUP, Labels, Source
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import Inbound, Outbound, Turn, TurnState, Usage
from palaver.store.opening import open_store
from palaver.store.results import Begun
from palaver.store.store import Store

__all__ = ["HOSTILE", "OPERATOR", "Stage", "dm", "entry", "furnish", "team"]

OPERATOR = Principal.operator()
HOSTILE = (
    "<script>window.ran = 1</script>",
    '"><img src=x onerror="window.ran = 1">',
    "javascript:window.ran=1",
    "</li></ol></main><h1 id='planted'>planted</h1>",
    "{{ 7 * 7 }} {% raw %} ${7*7}",
    "\u202egnp.evil\u202c \u2066hidden\u2069 \x1b[31mred\x07 a\x00b \ud800",
    "Z" + "\u0335\u0310\u0321" * 400,
    "nobreak" * 3000,
    "&lt;b&gt; <b>bold</b> <style>*{display:none}</style>",
    "x" * 1_000_000,
)
_LEASE = timedelta(minutes=10)


class Stage:
    """People who write and are answered, at times that the script says."""

    def __init__(self, store: Store, now: datetime) -> None:
        self.store = store
        self.now = now
        self._messages = 0

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)

    async def begin(self, source: Source, text: str, name: str = "") -> Turn:
        """Somebody says something and a turn begins, in one step: a gateway that runs does not take it first."""
        return await self.store.transact(self._begin(source, text, name))

    @transaction
    def _begin(self, source: Source, text: str, name: str) -> Statements[Turn]:
        self._messages += 1
        spoken = Source(**{**source.to_json(), "message_id": f"m{self._messages}"})
        inbound = Inbound(source=spoken, text=text, at=self.now, labels=Labels(user=Label(name) if name else None))
        key = derive_key(spoken, Scope())
        yield from self.store.inbox.accept(inbound, key, self.now)
        found = yield from self.store.turns.begin(key, "w1", self.now, _LEASE, ConversationRules())
        assert isinstance(found, Begun)
        return found.turn

    async def answer(self, turn: Turn, source: Source, *entries: Entry, tokens: int = 400) -> None:
        await self.store.transact(self._answer(turn, source, entries, tokens))

    def _answer(self, turn: Turn, source: Source, entries: Sequence[Entry], tokens: int) -> Transaction[int]:
        said = next((entry.text for entry in reversed(entries) if entry.role is Role.ASSISTANT), "")
        reply = Outbound(platform=source.platform, chat_id=source.chat or "", text=said)
        usage = Usage(model="sonnet", input_tokens=tokens * 3, output_tokens=tokens, cost_micros=tokens * 9)
        return self.store.turns.settle(turn, entries, [reply], self.now, usage=usage)

    async def exchange(self, source: Source, text: str, *answers: str, name: str = "", tokens: int = 400) -> str:
        """A message and what the agent wrote, in one step: a gateway that starts recovers turns of others."""

        @transaction
        def exchanged() -> Statements[str]:
            turn = yield from self._begin(source, text, name)
            self.later(seconds=4)
            yield from self._answer(turn, source, [entry(each, self.now) for each in answers], tokens)
            return turn.session

        return await self.store.transact(exchanged())


def entry(text: str, at: datetime, role: Role = Role.ASSISTANT, **more: object) -> Entry:
    return Entry(seq=0, role=role, at=at, text=text)._replace(**more)


def dm(user: str, platform: str = "telegram") -> Source:
    return Source(platform=platform, chat_id=user, user_id=user)


def team(user: str) -> Source:
    return Source(platform="slack", chat_kind=GROUP, chat_id="C01", scope_id="T9", user_id=user)


async def furnish(url: str | Path, now: datetime) -> None:
    """Two weeks of talk."""
    async with await open_store(str(url)) as store:
        stage = Stage(store, now - timedelta(days=13, hours=2))
        for day in range(13):
            tokens = 200 + (day * 7919) % 900
            await stage.exchange(
                dm("1009", "signal"),
                f"What is on for day {day + 1}?",
                "Two meetings, and the dentist at four.",
                name="Bea",
                tokens=tokens,
            )
            stage.later(hours=24)
        await _holiday(stage)
        await _release(stage)
        stage.now = now - timedelta(minutes=6)
        await _payment(stage)
        stage.now = now - timedelta(minutes=4)
        await _chat(stage)


async def _holiday(stage: Stage) -> None:
    ann = dm("7")
    session = await stage.exchange(
        ann,
        "Can we get to Lisbon by train in May?",
        "Yes: two nights on the way, or one long day by Paris and Hendaye.",
        name="Ann",
    )
    await stage.store.transact(stage.store.titles.rename(session, "Lisbon by train", OPERATOR))
    stage.later(minutes=2)
    turn = await stage.begin(ann, "What would the tickets cost for two?", "Ann")
    stage.later(seconds=5)
    call = ToolCall("c1", "search_fares", '{"from": "Berlin", "to": "Lisboa", "people": 2, "month": "2026-05"}')
    found = "Berlin–Paris 2 × 79.00\nParis–Hendaye 2 × 45.00\nHendaye–Lisboa 2 × 69.00"
    words = (
        "About 386 € for two if you book now:\n\n- Berlin to Paris, 79 € each\n- Paris to Hendaye, 45 € each\n"
        "- the night train to Lisbon, 69 € each\n\nSleeping berths are extra."
    )
    await stage.answer(
        turn,
        ann,
        entry("", stage.now, calls=(call,), reasoning="They want a price for two. Look it up first."),
        entry(found, stage.now, Role.TOOL, answers="c1"),
        entry(words, stage.now),
        tokens=900,
    )
    stage.later(minutes=3)
    await stage.exchange(ann, "Lovely. Remind me on Friday.", "I will write to you on Friday at nine.", name="Ann")


async def _release(stage: Stage) -> None:
    session = await stage.exchange(
        team("U1"), "Is the release blocked?", "By one failing test: test_takeover.", name="Chris"
    )
    await stage.store.transact(stage.store.titles.rename(session, "Release week", OPERATOR))
    stage.later(minutes=9)


async def _payment(stage: Stage) -> None:
    dora = dm("dora", "matrix")
    turn = await stage.begin(dora, "Pay the hosting invoice, please.", "Dora")
    await stage.store.transact(stage.store.titles.rename(turn.session, "Hosting invoice", OPERATOR))
    call = ToolCall("c9", "pay_invoice", '{"to": "Example Hosting", "amount": "24.00 EUR"}')
    asks = entry("This invoice is due tomorrow.", stage.now, calls=(call,))
    await stage.store.transact(stage.store.turns.append_to_turn(turn, [asks]))
    await stage.store.transact(stage.store.turns.halt(turn, TurnState.PARKED, stage.now, asked="c9"))


_FARES = """The sleeper is the calm way. For two people:

| leg | price | time |
|---|---|---|
| Berlin – Paris | 158 € | 8 h 10 |
| Paris – Irún | 90 € | 4 h 40 |
| Irún – Porto | 138 € | 11 h 30 |

That is **386 €**, if you book now. Berths are extra:

```python
def fare(people: int, berths: bool = False) -> float:
    # in euros
    return people * (193.0 + (35.0 if berths else 0.0))
```

- [x] seats are free on 14 May
- [ ] reserve the berths
"""


async def _chat(stage: Stage) -> None:
    """The owner in the web chat."""
    for name, said in (("plants", "Which plants like shade?"), ("release", "Draft a note about the release")):
        place = Source(platform="web", chat_id=f"owner/{name}", user_id="owner")
        await stage.exchange(place, said, "Ferns, hostas and ivy do well.")
    owner = Source(platform="web", chat_id="owner", user_id="owner")
    turn = await stage.begin(owner, "What does the way to Porto cost for two, with a berth?")
    stage.later(seconds=5)
    call = ToolCall("c3", "search_fares", '{"from": "Berlin", "to": "Porto", "people": 2}')
    await stage.answer(
        turn,
        owner,
        entry("", stage.now, calls=(call,), reasoning="They ask what it costs. Look it up first."),
        entry("Berlin–Paris 158.00", stage.now, Role.TOOL, answers="c3"),
        entry(_FARES, stage.now),
        tokens=310,
    )
    await stage.store.transact(stage.store.titles.rename(turn.session, "Porto for two", OPERATOR))
