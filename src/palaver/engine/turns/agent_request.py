"""Scenes: everything an agent is shown of a turn, put together from one consistent state of the store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from operator import attrgetter

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.model.access import AccessRole
from palaver.model.naming import Naming, Pseudonyms
from palaver.model.platform import Platform
from palaver.model.prompt import HomeChannel, Situation, context_section
from palaver.model.session import Session
from palaver.model.source import Labels, Source
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Received, Turn
from palaver.model.value import value
from palaver.model.view import Message, open_calls, open_calls_of_turn, render, view, visible_entries
from palaver.protocols.agent import Excerpt, Request, no_file, no_new_messages
from palaver.store.results import Begun, Held, Opened, Opening, Welcome
from palaver.store.store import Store

__all__ = [
    "RequestBuilder",
    "TurnSnapshot",
    "Welcomes",
]

_LASTING = attrgetter(*(field.name for field in fields(Source) if field.name != "message_id"))
_MOST_SECTIONS = 128


@value
class TurnSnapshot:
    entries: Sequence[Entry]
    homes: Sequence[Source]
    session: Session
    """As it was before the turn."""
    last: Received
    approvals: Mapping[str, bool] = field(default_factory=dict[str, bool])
    goes_on: bool = False
    """A person was asked and has answered: what was called and not used yet may still be used."""
    shared: bool = False
    """Several people may speak in the conversation, where it is at home or attached, or several take part in it."""


@dataclass(frozen=True, kw_only=True)
class RequestBuilder:
    store: Store
    platforms: Mapping[str, Platform]
    """Those that are connected."""
    pseudonyms: Pseudonyms | None = None
    _sections: dict[object, str] = field(default_factory=dict[object, str], init=False, compare=False)
    """By all the facts that they are made of."""

    def after(
        self, begin: Transaction[Begun | Held | None]
    ) -> Transaction[tuple[Begun | Held | None, TurnSnapshot | None]]:
        """The scene of a turn that begins, in the same step."""
        return _enter(self.store, begin)

    def scene(self, turn: Turn, messages: Sequence[Received]) -> Transaction[TurnSnapshot]:
        """The scene as it is now."""
        return _look(self.store, turn, messages[-1])

    def request(
        self,
        turn: Turn,
        scene: TurnSnapshot,
        *,
        new_messages: Callable[[], Awaitable[tuple[str, ...]]] = no_new_messages,
        read_file: Callable[[str], Awaitable[bytes]] = no_file,
    ) -> Request:
        platform = self._platform(scene.last.inbound.source)
        messages = self._view(scene, scene.entries, str(turn.number) if scene.goes_on else None)
        return Request(
            session=turn.session,
            turn=turn.number,
            attempt=turn.attempt,
            section=self._section(scene, platform),
            messages=messages,
            override=scene.session.override,
            approvals=_answers(turn, scene, messages) if scene.goes_on else {},
            new_messages=new_messages,
            read_file=read_file,
        )

    def since(self, before: TurnSnapshot, now: TurnSnapshot) -> tuple[str, ...]:
        """What was said to the agent since it was shown a scene, and last, as it is shown from now on."""
        entries = visible_entries(now.entries)
        known = max((entry.seq for entry in before.entries), default=0)
        latest = max((entry.seq for entry in entries if entry.role in {Role.ASSISTANT, Role.TOOL}), default=0)
        earlier = [entry for entry in entries if entry.seq <= max(known, latest)]
        naming = Naming(platform=self._platform(now.last.inbound.source), pseudonyms=self.pseudonyms)
        as_shown = partial(render, naming=naming, shared=now.shared, message_ids=False)
        return tuple(message.text for message in as_shown(entries)[len(as_shown(earlier)) :])

    def passage(self, turn: Turn, scene: TurnSnapshot, entries: Sequence[Entry], focus: str = "") -> Excerpt:
        """A part of what the agent is shown, to be put into fewer words."""
        messages = self._view(scene, entries)
        return Excerpt(session=turn.session, messages=messages, override=scene.session.override, focus=focus)

    def _view(self, scene: TurnSnapshot, entries: Sequence[Entry], goes_on: str | None = None) -> tuple[Message, ...]:
        naming = Naming(platform=self._platform(scene.last.inbound.source), pseudonyms=self.pseudonyms)
        return view(entries, naming, shared=scene.shared, goes_on=goes_on)

    def _section(self, scene: TurnSnapshot, platform: Platform) -> str:
        """Turn after turn the facts are the same, and so is the section."""
        facts = _LASTING(scene.last.inbound.source), _labels(scene, platform), scene.shared, tuple(scene.homes)
        section = self._sections.get(facts)
        if section is None:
            if len(self._sections) >= _MOST_SECTIONS:
                del self._sections[next(iter(self._sections))]
            section = self._sections[facts] = context_section(self._situation(scene, platform), self.pseudonyms)
        return section

    def _situation(self, scene: TurnSnapshot, platform: Platform) -> Situation:
        inbound = scene.last.inbound
        homes = [(self._platform(home), home.chat) for home in scene.homes]
        return Situation(
            source=inbound.source,
            platform=platform,
            labels=_labels(scene, platform),
            shared=scene.shared,
            connected=tuple(self.platforms.values()),
            homes=tuple(HomeChannel(platform=place, chat_id=chat) for place, chat in homes if chat),
        )

    def _platform(self, source: Source) -> Platform:
        """Also a platform that is not connected any more has a name."""
        return self.platforms.get(source.platform) or Platform(name=source.platform, title=source.platform.title())


def _labels(scene: TurnSnapshot, platform: Platform) -> Labels:
    """What lasts of the names: those who speak by an account that is a chat are named with what they say."""
    labels = scene.last.inbound.labels
    return replace(labels, user=None) if platform.accounts_are_chats else labels


def _answers(turn: Turn, scene: TurnSnapshot, messages: Sequence[Message]) -> dict[str, bool]:
    """What a person said to the calls that are open, by the ids under which they are shown: those may be repaired.

    An id that was used before does not count again: what was allowed once was allowed once.
    """
    pairs = zip(open_calls_of_turn(scene.entries, str(turn.number)), open_calls(messages), strict=True)
    said = {call.id: scene.approvals.get(call.id, scene.approvals.get(written.id)) for written, call in pairs}
    return {name: allowed for name, allowed in said.items() if allowed is not None}


@transaction
def _enter(
    store: Store, begin: Transaction[Begun | Held | None]
) -> Statements[tuple[Begun | Held | None, TurnSnapshot | None]]:
    begun = yield from begin
    if not isinstance(begun, Begun):
        return begun, None
    is_alone = begun.opened.is_alone and len(begun.messages) == 1
    scene = yield from _scene(store, begun.turn, begun.messages[-1], begun.opened.session, is_alone=is_alone)
    return begun, scene


@transaction
def _look(store: Store, turn: Turn, last: Received) -> Statements[TurnSnapshot]:
    session = yield from store.turns.session_of(turn)
    scene = yield from _scene(store, turn, last, session)
    approvals = yield from store.steering.approvals(turn)
    # Taken up a second time, it may have used what was allowed: then nobody knows what came of it.
    return replace(scene, approvals=approvals, goes_on=bool(approvals) and turn.attempt == 1)


def _scene(
    store: Store, turn: Turn, last: Received, session: Session, *, is_alone: bool = False
) -> Statements[TurnSnapshot]:
    entries = yield from store.transcript.load(turn)
    homes = yield from store.accounts.homes(turn.key.profile)
    shared = turn.key.shared or (last.place or turn.key).shared
    if not shared and not is_alone:
        shared = yield from store.attach.is_shared(session)
    return TurnSnapshot(entries=entries, homes=homes, session=session, last=last, shared=shared)


@value(kw_only=False)
class Welcomes:
    ctx: EngineContext

    def welcome(self, opened: Opened, last: Received) -> Welcome:
        source = last.inbound.source
        notes: list[str] = []
        notices: list[str] = []
        if opened.opening is Opening.RESET and opened.reason is not None:
            notes.append(texts.reset_note(opened.reason))
            # Where nothing had been said, nothing was lost that somebody could miss.
            if opened.before_had_words and self.ctx.options.reset_notices.find(source).value:
                notices.append(texts.reset_notice(opened.reason))
        if opened.is_first_contact:
            notes.append(texts.FIRST_CONTACT_NOTE)
        if opened.lacks_home and self.ctx.replies.has_places(source):
            notes.append(texts.NO_HOME_NOTE)
            # Whoever may set it is told as well.
            if (last.role or AccessRole.GUEST) >= AccessRole.ADMIN:
                notices.append(texts.NO_HOME)
        if not self.ctx.replies.reaches_people(source):
            notices = []
        outbound = tuple(message for text in notices for message in self.ctx.replies.to(source, text))
        return Welcome(notes=tuple(notes), notices=outbound)
