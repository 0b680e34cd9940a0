"""Titles: what a new conversation is about, in the words of its agent. Nobody waits for them."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from palaver.db.transaction import Statements, transaction
from palaver.engine.context import EngineContext
from palaver.engine.retry import contain_cancellation, log_error
from palaver.engine.turns.agent_request import RequestBuilder
from palaver.engine.turns.running import RunningTurn
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Turn
from palaver.protocols.agent import Excerpt, GeneratedText, Titling
from palaver.protocols.capabilities import supports

__all__ = [
    "TitleGenerator",
]

log = logging.getLogger(__name__)

_EXCHANGES = 3
"""After how many a conversation without a title stays so."""
_GLIMPSE, _MOST_ENTRIES = 2_000, 20
"""Characters of each, and how many, are enough to see what it is about."""
_MOMENT = 1.0
"""How many seconds a gateway that shuts down has for titles."""


@dataclass(kw_only=True)
class TitleGenerator:
    ctx: EngineContext
    scenes: RequestBuilder
    _asking: "set[asyncio.Task[None]]" = field(default_factory=set["asyncio.Task[None]"])

    def consider(self, running: RunningTurn) -> None:
        """After a turn was answered: in the background, if there is no title yet."""
        scene, answer = running.shown, running.answer
        if scene is None or answer is None or not self.ctx.options.titles:
            return
        if scene.session.title or scene.session.counters.turns >= _EXCHANGES:
            return
        agent = self.ctx.agents.of(running.turn.key.profile)
        # Where too many are asked for at once, the next exchange asks again.
        if supports(agent, Titling) and len(self._asking) < self.ctx.options.concurrent_turns:
            last = Entry(
                seq=scene.session.counters.entries + len(scene.entries), role=Role.ASSISTANT, at=running.turn.started
            )
            said = _glimpse([*scene.entries, last._replace(text=answer.text)])
            passage = self.scenes.passage(running.turn, scene, said)
            task = asyncio.create_task(self._entitle(agent, passage, running.turn))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def drain(self) -> None:
        """Whoever is about to say one is waited for."""
        if self._asking:
            await asyncio.wait(self._asking, timeout=_MOMENT)

    def abandon(self) -> None:
        """They can do without."""
        for task in self._asking:
            task.cancel()

    async def _entitle(self, agent: Titling, passage: Excerpt, turn: Turn) -> None:
        try:
            async with asyncio.timeout(self.ctx.options.quiet_limit.total_seconds()):
                with contain_cancellation():
                    gist = await agent.title(passage)
            await self.ctx.store.transact(self._note(turn, gist, self.ctx.clock.now()))
        except Exception as error:  # noqa: BLE001 - a conversation can do without a title
            log_error(log, "no title was found", error, {"action": "title.failed", "session": turn.session})

    @transaction
    def _note(self, turn: Turn, gist: GeneratedText, now: datetime) -> Statements[None]:
        """What was spent on it counts, whether it is taken or not."""
        yield from self.ctx.store.sessions.suggest_title(turn.session, gist.text)
        yield from self.ctx.store.turns.spend(turn, gist.usage, now)


def _glimpse(entries: Sequence[Entry]) -> list[Entry]:
    spoken = [entry for entry in entries if entry.role in {Role.USER, Role.ASSISTANT} and entry.text.strip()]
    return [entry._replace(text=entry.text[:_GLIMPSE], calls=()) for entry in spoken[-_MOST_ENTRIES:]]
