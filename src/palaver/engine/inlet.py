"""Inlets: what an adapter hands over to, while it serves its account, or when it is called in any worker."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from palaver.domain.errors import MalformedSource, NotServed
from palaver.domain.ids import check_ids
from palaver.domain.lifecycle import InboxState
from palaver.domain.source import Source, Trust
from palaver.domain.transcript import Role
from palaver.domain.turn import Inbound, account_text
from palaver.engine.ground import Ground
from palaver.engine.intake import Intake
from palaver.ports.adapter import Answer
from palaver.ports.answers import Reply
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["Health", "HeldInlet", "OpenInlet"]

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class Health:
    served_since: datetime | None = None
    """None while another worker serves the account, or nobody can."""
    connected_since: datetime | None = None
    last_error: str | None = None


@dataclass(frozen=True, kw_only=True)
class OpenInlet:
    """For what comes to an account over HTTP: it may come to any worker, whoever serves the account."""

    on: Ground
    intake: Intake
    platform: str
    account: str | None
    returned: Callable[[], None]

    async def connected(self) -> None:
        """Whoever is called has no connection of its own."""

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        try:
            with self.on.meter.step("accept"):
                await self.intake.receive(inbound, trust)
        except MalformedSource as error:
            self._leave_out(error)

    def _leave_out(self, unfit: MalformedSource) -> None:
        """What could not be kept however often it came is left out, so that whatever comes after it is heard."""
        self.on.meter.count("messages_refused")
        told = {"action": "ids.unfit", "account": account_text(self.platform, self.account)}
        log.warning("something was left out: %s", unfit, extra=told)

    async def position(self) -> str | None:
        return await self.on.store.read(self.on.store.accounts.position(self.platform, self.account))

    async def keep_position(self, position: str) -> None:  # noqa: ARG002
        raise NotServed(account_text(self.platform, self.account))

    async def knows_as(self, alias: str, canonical: str) -> None:
        try:
            check_ids("person", alias, canonical)
            await self.intake.learn(self.platform, alias, canonical)
        except MalformedSource as error:
            self._leave_out(error)

    async def chat_moved(self, old: str, new: str) -> None:
        try:
            check_ids("chat", old, new)
            await self.intake.move_chat(self.platform, self.account, old, new)
        except MalformedSource as error:
            self._leave_out(error)

    async def is_back(self, chat_id: str) -> None:
        self.returned()
        now = self.on.clock.now()
        await self.on.store.transact(self.on.store.outbox.hasten(self.platform, self.account, chat_id, now))

    async def answer(self, source: Source, within: float) -> Answer | None:
        mine = replace(source, platform=self.platform, account=self.account)
        mine = replace(mine, profile=(await self.intake.key_of(mine)).profile)
        found = await self.on.store.read(_reply(self.on.store, mine))
        if found is not None and within and not _answer(found).is_settled:
            with self.on.waiting.waiting(found.received.number) as waiter:
                await waiter.until_settled(within)
            found = await self.on.store.read(_reply(self.on.store, mine))
        return found and _answer(found)


@work
def _reply(store: Store, source: Source) -> Steps[Reply | None]:
    """For whoever said it, and nobody else."""
    principal = yield from store.people.speaking(source)
    received = yield from store.answers.said([source], principal)
    return (yield from store.answers.reply(received.number, principal)) if received else None


_OPEN = frozenset({InboxState.WAITING, InboxState.IN_TURN})


def _answer(reply: Reply) -> Answer:
    received = reply.received
    said = [entry.text for entry in reply.entries if entry.role is Role.ASSISTANT and not entry.calls]
    return Answer(
        id=f"in:{received.number}",
        is_settled=received.state not in _OPEN or reply.is_parked,
        text=said[-1] if said and reply.ended else "\n".join(reply.notices),
        refused=received.reason if received.state is InboxState.REFUSED else None,
        has_failed=received.state is InboxState.FAILED,
    )


@dataclass(frozen=True, kw_only=True)
class HeldInlet(OpenInlet):
    """What an adapter is handed while this worker serves its account."""

    fence: int
    health: Health
    greet: Callable[[], None]
    """What is done beside, each time that the connection was made."""

    async def connected(self) -> None:
        self.greet()
        self.health.connected_since = now = self.on.clock.now()
        await self.on.surely(self.on.store.accounts.connected(self.platform, self.account, self.fence, now))

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        if self.health.connected_since is None:  # whoever hands something over is connected, said or not
            await self.connected()
        await super().receive(inbound, trust)

    async def keep_position(self, position: str) -> None:
        keep = self.on.store.accounts.keep_position(self.platform, self.account, self.fence, position)
        await self.on.store.transact(keep)
