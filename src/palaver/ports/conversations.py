"""What a store does for conversations: sessions, transcripts, the way back, and how they end."""

from datetime import datetime
from typing import Protocol

from palaver.domain.compaction import CompactionPlan
from palaver.domain.key import SessionKey
from palaver.domain.lifecycle import EndReason
from palaver.domain.session import ModelOverride, Principal, Session
from palaver.domain.source import Source
from palaver.domain.transcript import Entry
from palaver.domain.turn import Received, Turn
from palaver.ports.store import (
    Opened,
    ResetRule,
    Undone,
)
from palaver.ports.work import Work

__all__ = ["Endings", "Moves", "Sessions", "Transcripts"]


class Sessions(Protocol):
    """Conversations: at most one open per key. Whoever asks for one names the principal it is for."""

    def open_session(
        self, key: SessionKey, source: Source, now: datetime, rule: ResetRule, *, human: bool = True
    ) -> Work[Opened]:
        """Get or create: reuse the open session, reset it if it is due, reopen the routed one, or create."""
        ...

    def open_by_key(self, key: SessionKey) -> Work[Session | None]: ...

    def get_visible(self, session: str, principal: Principal) -> Work[Session]:
        """Raises NotFound for what is not there and for what is not this principal's, alike."""
        ...

    def find(self, text: str, principal: Principal) -> Work[Session]:
        """By id, by a prefix of the id that fits one session, or by title: the newest of exactly that lineage."""
        ...

    def reset(
        self, key: SessionKey, source: Source, now: datetime, *, by: str, title: str | None = None
    ) -> Work[Session]: ...

    def switch(
        self, key: SessionKey, source: Source, target: str, principal: Principal, now: datetime, *, by: str
    ) -> Work[Session]: ...

    def refuse_busy(self, session: Session) -> Work[None]:
        """Raises SessionBusy in the middle of a turn."""
        ...

    def end(self, number: int, reason: EndReason, now: datetime) -> Work[None]: ...

    def join(self, number: int, source: Source) -> Work[bool]:
        """Whoever speaks in a session may read it. True for somebody who never took part in one before."""
        ...

    def rename(self, session: str, title: str, principal: Principal) -> Work[Session]: ...

    def suggest_title(self, session: str, title: str) -> Work[str | None]:
        """Taken only where the session has none."""
        ...

    def set_override(self, session: str, override: ModelOverride | None, principal: Principal) -> Work[Session]: ...


class Transcripts(Protocol):
    """Entries, written once; hiding and showing are operations that can be taken back."""

    def load(self, turn: Turn) -> Work[list[Entry]]:
        """What the view is made of, for the turn that holds the conversation."""
        ...

    def load_visible(self, session: str, principal: Principal) -> Work[list[Entry]]: ...

    def load_all(self, session: str, principal: Principal) -> Work[list[Entry]]:
        """The audit: hidden entries too, each with the operation that hides it."""
        ...

    def passage(
        self,
        session: str,
        principal: Principal,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 100,
        hidden: bool = False,
    ) -> Work[list[Entry]]:
        """The last entries before a seq, else the first ones after one, else the newest; with hidden ones if wanted."""
        ...

    def add(self, key: SessionKey, entry: Entry) -> Work[bool]: ...

    def undo(self, key: SessionKey, count: int, now: datetime, *, principal: Principal) -> Work[Undone | None]: ...

    def compact(
        self, key: SessionKey, plan: CompactionPlan, summary: str, now: datetime, *, by: str
    ) -> Work[Entry]: ...


class Moves(Protocol):
    """The way back from any operation, and branches."""

    def back(
        self, key: SessionKey, now: datetime, *, principal: Principal, place: SessionKey | None = None
    ) -> Work[Undone | None]:
        """With the place where it was said, if that is attached to the conversation."""
        ...

    def redo(
        self, key: SessionKey, now: datetime, *, principal: Principal, place: SessionKey | None = None
    ) -> Work[Undone | None]: ...

    def branch(
        self,
        key: SessionKey,
        source: Source,
        principal: Principal,
        now: datetime,
        *,
        by: str,
        title: str | None = None,
        from_session: str | None = None,
        at_seq: int | None = None,
    ) -> Work[Session]: ...

    def said_at(self, session: Session, source: Source, message: str) -> Work[int | None]:
        """Where in the session a message of this chat, by a person or by us, and the answer to it end.

        None where it is not part of the session, or not any more.
        """
        ...

    def leaving(self, command: Received, does: Work[str]) -> Work[tuple[str, list[Received]]]:
        """Do what a command says. Gives the answer, and what was said before it and is ended: it led elsewhere."""
        ...

    def retry(self, command: Received, principal: Principal, now: datetime) -> Work[list[str]]:
        """Branch off before the last message, which waits once more. Gives its words; none where nothing was said."""
        ...


class Endings(Protocol):
    """Sessions that end by themselves, and what is owed to them then."""

    def silent(self, since: datetime, until: datetime, after: Session | None, limit: int) -> Work[list[Session]]: ...

    def expire(self, session: Session, rule: ResetRule, now: datetime) -> Work[EndReason | None]: ...

    def to_finalise(self, limit: int) -> Work[list[Session]]: ...

    def try_finalising(self, session: Session, now: datetime, *, tries: int) -> Work[bool]:
        """Before hooks are told. False where they are not to be told."""
        ...

    def finalise(self, session: Session, now: datetime, *, done: bool, tries: int) -> Work[None]: ...

    def unused(self, since: datetime, until: datetime, limit: int) -> Work[list[tuple[SessionKey, datetime]]]: ...

    def drop_route(self, key: SessionKey, before: datetime, now: datetime) -> Work[bool]: ...
