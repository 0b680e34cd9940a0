"""A small world around a store: a clock, people who write, a worker who answers."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count

from palaver.db.transaction import Statements, transaction
from palaver.model.addressing import ConversationRules
from palaver.model.key import Scope, ScopedSetting, SessionKey, derive_key
from palaver.model.label import Label
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.session import Principal
from palaver.model.source import GROUP, Labels, Source, account_text
from palaver.model.split import ReplyAccount, ReplyRoutes
from palaver.model.transcript import Entry, Role
from palaver.model.turn import BusyMode, Cause, Delivery, Inbound, Outbound, Usage
from palaver.store.conversations import transcript
from palaver.store.queue import inbox, outbox, turns
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.results import Begun, Held
from palaver.store.store import Store

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=60)
OPERATOR = Principal.operator()


def rules(policy: ResetPolicy | None = None) -> ConversationRules:
    return ConversationRules(resets=ScopedSetting(default=policy or ResetPolicy()))


NEVER = rules()
IDLE_HOUR = rules(ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60))


SHORT_MESSAGES = ReplyRoutes(accounts={account_text(name, None): ReplyAccount(room=4) for name in ("telegram", "api")})
"""Every answer is cut into messages of four characters."""


def dm(user: str = "7", platform: str = "telegram", **more: str) -> Source:
    return Source(platform=platform, chat_id=user, user_id=user, **more)


def group(user: str, chat: str = "-100") -> Source:
    return Source(platform="telegram", chat_kind=GROUP, chat_id=chat, user_id=user)


def key_of(source: Source, scope: Scope | None = None) -> SessionKey:
    return derive_key(source, scope or Scope())


def answer(text: str = "yes", role: Role = Role.ASSISTANT, **more: object) -> Entry:
    return Entry(seq=0, role=role, at=NOON, text=text)._replace(**more)


@dataclass
class World:
    store: Store
    now: datetime = NOON
    worker: str = "w1"
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    def later(self, **span: float) -> None:
        self.now += timedelta(**span)

    async def say(
        self, text: str, source: Source | None = None, *, cause: Cause = Cause.HUMAN, id_: str = ""
    ) -> int | None:
        """Somebody writes; gives the number of the inbox row, None for a duplicate."""
        spoken = _with_id(source or dm(), id_ or f"m{next(self._ids)}")
        labels = Labels(user=Label(f"name of {spoken.user_id}"))
        inbound = Inbound(source=spoken, text=text, at=self.now, labels=labels, cause=cause)
        return await self.store.transact(inbox.accept(inbound, key_of(spoken), self.now))

    async def begin(
        self, source: Source | None = None, rules: ConversationRules = NEVER, *, collects: bool = False
    ) -> Begun | None:
        key = key_of(source or dm())
        begin = turns.begin(key, self.worker, self.now, LEASE, collecting(rules) if collects else rules)
        return only_begun(await self.store.transact(begin))

    async def exchange(
        self, text: str, reply: str = "yes", source: Source | None = None, rules: ConversationRules = NEVER
    ) -> Begun:
        """A whole turn: a message, its answer, the reply owed."""
        await self.say(text, source)
        begun = await self.begin(source, rules)
        assert begun
        outbound = Outbound(platform="telegram", chat_id="7", text=reply)
        usage = Usage(input_tokens=10, output_tokens=5, cost_micros=3)
        await self.store.transact(turns.settle(begun.turn, [answer(reply)], [outbound], self.now, usage=usage))
        return begun

    async def texts(self, session: str, principal: Principal = OPERATOR) -> list[str]:
        return [entry.text for entry in await self.store.read(transcript.load_visible(session, principal))]


def collecting(rules: ConversationRules) -> ConversationRules:
    """The same rules, but a turn answers everything that waits."""
    return replace(rules, busy=ScopedSetting(default=BusyMode.COLLECT))


def only_begun(found: Begun | Held | None) -> Begun | None:
    if isinstance(found, Held):
        assert found.head is None, "held"
        return None  # somebody else has the conversation in hand
    return found


def _with_id(source: Source, message_id: str) -> Source:
    return Source(**{**source.to_json(), "message_id": message_id})


@transaction
def begin_sends(
    worker: str, now: datetime, *, accounts: Collection[str] | None = None, limit: int = 32
) -> Statements[list[Delivery]]:
    """Claim what is due and begin to send it."""
    claimed = yield from outbox.claim(worker, now, LEASE, accounts=accounts, limit=limit)
    for place, each in enumerate(claimed):
        claimed[place] = yield from outbox.begin_send(each, worker, now + LEASE)
    return claimed


def cause(name: str) -> SendCause:
    """Any cause will do: kind, id, detail and part, with colons between them, or only an id."""
    if ":" not in name:
        return SendCause(CauseKind.UNCLEAR, name)
    kind, id_, *rest = name.split(":")
    part = int(rest.pop()) if rest and rest[-1].isdecimal() else 0
    return SendCause(CauseKind(kind), id_, ":".join(rest), part)
