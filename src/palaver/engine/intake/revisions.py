"""Messages that were changed or deleted: what is done about them, by the policy of the chat."""

import logging
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Transaction
from palaver.engine import texts
from palaver.engine.commands import Commands
from palaver.engine.context import EngineContext
from palaver.model.access import Access, Verdict
from palaver.model.errors import InvalidInput
from palaver.model.key import SessionKey
from palaver.model.revision import RevisionPolicy
from palaver.model.turn import Inbound, Received
from palaver.model.value import value

__all__ = [
    "Revisions",
]

log = logging.getLogger(__name__)


@value(kw_only=False)
class Revisions:
    ctx: EngineContext
    commands: Commands

    def accept(
        self, message: Inbound, key: SessionKey, access: Access, now: datetime, *, expected: bool
    ) -> Transaction[int | None]:
        """Where a platform does not say who deleted a message, there is nobody to be let in or refused."""
        is_nameless = message.source.participant is None
        refused = None if is_nameless or access.verdict is Verdict.ALLOW else access.reason
        return self.ctx.store.revisions.accept_revision(
            replace(message, text="") if refused else message,
            key,
            now,
            self._policy(message),
            role=access.role,
            refused=refused,
            expected=expected,
        )

    def _policy(self, message: Inbound) -> RevisionPolicy:
        policy = self.ctx.options.revisions.find(message.source).value
        return RevisionPolicy.NOTE if policy is RevisionPolicy.RERUN and self._commands(message) else policy

    def _commands(self, message: Inbound) -> bool:
        """A change gives no command: what would be one is only told to the agent."""
        try:
            return self.commands.parse(message.text) is not None
        except InvalidInput:
            return True

    async def go_back(self, received: Received) -> None:
        """To before a message that was changed after it was answered."""
        store, done = self.ctx.store, None
        while done is None:
            hides = await store.read(store.revisions.hidden_by_going_back(received))
            notices = self.ctx.replies.to(received.inbound.source, texts.went_back(hides))
            now = self.ctx.clock.now()
            done = await store.transact(store.revisions.go_back_to(received, now, notices, hides=hides))
        if done:
            log.info("went back to a changed message", extra={"action": "message.revised", "inbox": received.number})
