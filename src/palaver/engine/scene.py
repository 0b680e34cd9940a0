"""Scenes: everything an agent is shown of a turn, put together from one consistent state of the store."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from palaver.domain.naming import Naming
from palaver.domain.platform import Platform
from palaver.domain.prompt import HomeChannel, Situation, context_section
from palaver.domain.pseudonym import Pseudonyms
from palaver.domain.session import ModelOverride
from palaver.domain.source import Source
from palaver.domain.transcript import Entry
from palaver.domain.turn import Received, Turn
from palaver.domain.view import view
from palaver.ports.agent import Request, nothing_meanwhile
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, Work, work

__all__ = ["Scene", "Scenes"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    entries: Sequence[Entry]
    homes: Sequence[Source]
    override: ModelOverride | None
    last: Received


@dataclass(frozen=True, kw_only=True)
class Scenes:
    store: Store
    platforms: Mapping[str, Platform]
    """Those that are connected."""
    pseudonyms: Pseudonyms | None = None

    def scene(self, turn: Turn, messages: Sequence[Received]) -> Work[Scene]:
        return _read(self.store, turn, messages[-1])

    def request(
        self, turn: Turn, scene: Scene, meanwhile: Callable[[], Awaitable[tuple[str, ...]]] | None = None
    ) -> Request:
        platform = self._platform(scene.last.inbound.source)
        naming = Naming(platform=platform, pseudonyms=self.pseudonyms)
        return Request(
            session=turn.session,
            turn=turn.number,
            attempt=turn.attempt,
            section=context_section(self._situation(turn, scene, platform), self.pseudonyms),
            messages=view(scene.entries, naming, shared=turn.key.shared),
            override=scene.override,
            meanwhile=meanwhile or nothing_meanwhile,
        )

    def _situation(self, turn: Turn, scene: Scene, platform: Platform) -> Situation:
        inbound = scene.last.inbound
        homes = [(self._platform(home), home.chat) for home in scene.homes]
        return Situation(
            source=inbound.source,
            platform=platform,
            labels=inbound.labels,
            shared=turn.key.shared,
            connected=tuple(self.platforms.values()),
            homes=tuple(HomeChannel(platform=place, chat_id=chat) for place, chat in homes if chat),
        )

    def _platform(self, source: Source) -> Platform:
        """Also a platform that is not connected any more has a name."""
        return self.platforms.get(source.platform) or Platform(name=source.platform, title=source.platform.title())


@work
def _read(store: Store, turn: Turn, last: Received) -> Steps[Scene]:
    entries = yield from store.transcripts.load(turn)
    homes = yield from store.places.homes(turn.key.profile)
    session = yield from store.turns.session_of(turn)
    return Scene(entries=entries, homes=homes, override=session.override, last=last)
