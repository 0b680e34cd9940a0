"""What a store can do, group by group. Every call describes work; `Database.transact` or `read` does it.

`transact` takes any work, alone or joined with other work by `yield from`; `read` takes what only looks.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from palaver.domain.access import AccessRole
from palaver.domain.key import SessionKey
from palaver.domain.lifecycle import EndReason, OutboxState, TurnState
from palaver.domain.session import Principal, Session
from palaver.domain.source import Source
from palaver.domain.transcript import Entry
from palaver.domain.turn import Delivery, Inbound, Outbound, Received, Turn, Usage
from palaver.ports.access import Grants, Pairing
from palaver.ports.answers import Answers
from palaver.ports.archives import Archives
from palaver.ports.attaching import Attaching
from palaver.ports.conversations import Endings, Moves, Sessions, Transcripts
from palaver.ports.erasure import Erasures
from palaver.ports.fates import Fates, Overview
from palaver.ports.files import Attachments
from palaver.ports.handing import Handing
from palaver.ports.lists import Lists
from palaver.ports.people import Aliases, Links, People
from palaver.ports.places import Accounts, Chats, Places
from palaver.ports.revisions import Revisions
from palaver.ports.search import Search
from palaver.ports.store import (
    Begun,
    Choose,
    Database,
    Decision,
    Greet,
    Held,
    Offer,
    ResetRules,
    Signals,
    Status,
)
from palaver.ports.talks import Talks
from palaver.ports.usage import Uses
from palaver.ports.window import Changes, Keys
from palaver.ports.work import Work

__all__ = [
    "Inbox",
    "Outbox",
    "Parts",
    "Steering",
    "Store",
    "Turns",
]


class Inbox(Protocol):
    """Messages: each accepted once, each ending in a named state."""

    def accept(
        self,
        inbound: Inbound,
        key: SessionKey,
        now: datetime,
        *,
        role: AccessRole | None = None,
        refused: str | None = None,
        while_busy: Callable[[bool], Outbound | None] | None = None,
        dedup: str | None = None,
    ) -> Work[int | None]:
        """The number of the inbox row; None for a message that is there already: by its id, or as `dedup` says."""
        ...

    def inbox_row(self, number: int, principal: Principal) -> Work[Received | None]: ...

    def refuse(self, number: int, reason: str) -> Work[bool]: ...

    def claimable(self, limit: int) -> Work[list[SessionKey]]: ...

    def behind_turns(self) -> Work[set[tuple[int, int | None]]]:
        """The numbers of what waits behind an open turn; with the fence of one that waits for a person."""
        ...

    def depth(self) -> Work[int]: ...

    def obey(
        self,
        received: Received,
        does: Work[str],
        answers: Callable[[str], Sequence[Outbound]],
        now: datetime,
        *,
        urgent: bool = False,
        failed: str | None = None,
    ) -> Work[bool]: ...

    def mention(self, number: int, sessions: Iterable[Session]) -> Work[None]:
        """The answer to a command has words of these sessions: it goes when one of them is removed."""
        ...


class Turns(Protocol):
    """Turns: claimed by one, written under a fence, settled whole.

    Every write of a turn raises StaleFence, and writes nothing, once somebody else has taken the turn over.
    """

    def begin(
        self,
        key: SessionKey,
        worker: str,
        now: datetime,
        lease: timedelta,
        rules: ResetRules,
        *,
        choose: Choose = ...,
        welcome: Greet = ...,
    ) -> Work[Begun | Held | None]: ...

    def occupy(self, key: SessionKey, now: datetime, received: Received | None = None) -> Work[int | None]:
        """A turn that answers a command, or nobody; None where no session is open, or a turn is, or somebody waits."""
        ...

    def messages(self, turn: Turn) -> Work[list[Received]]: ...

    def session_of(self, turn: Turn) -> Work[Session]: ...

    def append_to_turn(self, turn: Turn, entries: Sequence[Entry]) -> Work[int]: ...

    def extend(self, held: Sequence[Turn], now: datetime, lease: timedelta) -> Work[frozenset[int]]: ...

    def settle(
        self,
        turn: Turn,
        entries: Sequence[Entry],
        replies: Sequence[Outbound],
        now: datetime,
        *,
        usage: Usage | None = None,
        error: str | None = None,
        ends: EndReason | None = None,
    ) -> Work[int]: ...

    def spend(self, turn: Turn, spent: Usage, now: datetime) -> Work[None]:
        """What was used on behalf of a turn that has ended counts for its person and its session."""
        ...

    def halt(
        self,
        turn: Turn,
        state: TurnState,
        now: datetime,
        *,
        error: str | None = None,
        asked: str | None = None,
        asks_anew: bool = False,
        notices: Sequence[Outbound] = (),
        usage: Usage | None = None,
    ) -> Work[None]: ...

    def resume(self, number: int, worker: str, now: datetime, lease: timedelta) -> Work[Turn | None]: ...

    def reclaim(
        self,
        worker: str,
        now: datetime,
        lease: timedelta,
        *,
        alone: bool = False,
        limit: int = 100,
        besides: Collection[SessionKey] = (),
    ) -> Work[list[Turn]]: ...

    def state_of(self, turn: Turn) -> Work[TurnState | None]: ...


class Parts(Protocol):
    """What was sent as one, and whether it was said to us."""

    def decide(self, received: Received) -> Work[None]: ...


class Steering(Protocol):
    """What is said to a turn while it runs, on whatever worker."""

    def request_stop(self, key: SessionKey, now: datetime, *, by: str) -> Work[bool]: ...

    def is_parked(self, key: SessionKey) -> Work[bool]: ...

    def decide(
        self,
        key: SessionKey,
        now: datetime,
        principal: Principal,
        *,
        allowed: bool,
        question: str | None = None,
        said: datetime | None = None,
        place: Source | None = None,
    ) -> Work[Decision]:
        """Answer what a parked turn asks: what has that name, or else was asked before that was said.

        What has that name may be asked by another conversation, where this place was shown it.
        """
        ...

    def drop_parked(self, key: SessionKey, now: datetime, *, note: str, error: str) -> Work[bool]: ...

    def approvals(self, turn: Turn) -> Work[Mapping[str, bool]]: ...

    def signals(self, turn: Turn) -> Work[Signals]: ...

    def steer(self, turn: Turn, offers: Offer, now: datetime) -> Work[list[Received]]:
        """Take what waits into a running turn; gives everything that it answers then."""
        ...

    def status(self, key: SessionKey, principal: Principal) -> Work[Status]: ...

    def keep_draft(self, turn: Turn, receipt: str) -> Work[None]: ...


class Outbox(Protocol):
    """Everything owed: sent one after the other within a chat, claimed once, settled with a receipt."""

    def owe(self, outbound: Outbound, dedup: str, now: datetime) -> Work[int | None]: ...

    def claim(
        self, worker: str, now: datetime, lease: timedelta, *, accounts: Collection[str] | None = None, limit: int = 32
    ) -> Work[list[Delivery]]: ...

    def hasten(self, platform: str, account: str | None, chat: str, now: datetime) -> Work[None]: ...

    def settle_send(
        self,
        delivery: Delivery,
        worker: str,
        state: OutboxState,
        *,
        receipt: str | None = None,
        error: str | None = None,
        due: datetime | None = None,
    ) -> Work[OutboxState]:
        """Gives what became of it: not dead, but due there, where the chat has another id by now."""
        ...

    def get_delivery(self, number: int) -> Work[Delivery | None]: ...

    def is_owed(self, outbound: Outbound) -> Work[bool]: ...

    def prolong(self, delivery: Delivery, worker: str, until: datetime) -> Work[None]: ...

    def detach(self, delivery: Delivery, worker: str, now: datetime, *, error: str) -> Work[None]: ...

    def unclear(
        self, delivery: Delivery, worker: str, due: datetime, *, safe: bool, error: str
    ) -> Work[OutboxState]: ...

    def reclaim_sends(
        self, worker: str, now: datetime, *, safe: Callable[[Outbound], bool], alone: bool = False
    ) -> Work[list[Delivery]]: ...

    def depth(self) -> Work[int]: ...

    def resolve(self, number: int, state: OutboxState, now: datetime, *, receipt: str | None = None) -> Work[bool]: ...


class Store(Database, Protocol):
    """A database, its search index, and everything that can be done with them."""

    @property
    def has_refused(self) -> bool:
        """Whether something could not be written a moment ago, as on a full disk."""
        ...

    @property
    def sessions(self) -> Sessions: ...
    @property
    def lists(self) -> Lists: ...
    @property
    def transcripts(self) -> Transcripts: ...
    @property
    def moves(self) -> Moves: ...
    @property
    def attaching(self) -> Attaching: ...
    @property
    def handing(self) -> Handing: ...
    @property
    def inbox(self) -> Inbox: ...
    @property
    def parts(self) -> Parts: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def steering(self) -> Steering: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def endings(self) -> Endings: ...
    @property
    def revisions(self) -> Revisions: ...
    @property
    def files(self) -> Attachments: ...
    @property
    def archives(self) -> Archives: ...
    @property
    def places(self) -> Places: ...
    @property
    def chats(self) -> Chats: ...
    @property
    def accounts(self) -> Accounts: ...
    @property
    def people(self) -> People: ...
    @property
    def aliases(self) -> Aliases: ...
    @property
    def links(self) -> Links: ...
    @property
    def grants(self) -> Grants: ...
    @property
    def pairing(self) -> Pairing: ...
    @property
    def uses(self) -> Uses: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def changes(self) -> Changes: ...
    @property
    def talks(self) -> Talks: ...
    @property
    def fates(self) -> Fates: ...
    @property
    def answers(self) -> Answers: ...
    @property
    def overview(self) -> Overview: ...
    @property
    def erasures(self) -> Erasures: ...
    @property
    def search(self) -> Search: ...
