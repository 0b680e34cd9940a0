"""Edited and deleted messages: accept them by the chat's policy, and go back when one was already answered."""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import TypeVar

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.commands import Commands
from palaver.engine.context import EngineContext
from palaver.model.access import Access, Verdict
from palaver.model.command import parse_command
from palaver.model.errors import InvalidInput
from palaver.model.key import SessionKey
from palaver.model.revision import RevisionPolicy
from palaver.model.turn import Inbound, Received
from palaver.model.value import value
from palaver.store.results import Withdraw

log = logging.getLogger(__name__)

T = TypeVar("T")


@value(kw_only=False)
class Revisions:
    ctx: EngineContext
    commands: Commands

    def accept(
        self,
        message: Inbound,
        key: SessionKey,
        access: Access,
        now: datetime,
        *,
        expected: bool,
        withdraw_question: Withdraw | None = None,
    ) -> Transaction[int | None]:
        """Accept an edit or deletion. If it is for us (`expected`), keep it for its message, which may still arrive.

        A deletion does not show whether the message that it overtook is for us.
        """
        # Some platforms do not say who deleted a message: then there is nobody to refuse.
        is_anonymous = message.source.participant is None
        refused = None if is_anonymous or access.verdict is Verdict.ALLOW else access.reason
        is_deletion = message.revision is not None and message.revision.deleted
        return self.ctx.store.revisions.accept_revision(
            message,
            key,
            now,
            self._policy(message),
            role=access.role,
            basis=access.basis,
            refused=refused,
            expected=expected or (is_deletion and refused is None),
            withdraw_question=withdraw_question,
        )

    def _policy(self, message: Inbound) -> RevisionPolicy:
        """Return the chat's policy. An edit never runs a command; it becomes a note to the agent instead."""
        policy = self.ctx.settings.revisions.find(message.source)
        return RevisionPolicy.NOTE if policy is RevisionPolicy.RERUN and self._is_command(message) else policy

    def _is_command(self, message: Inbound) -> bool:
        try:
            return parse_command(message.text, self.commands.table) is not None
        except InvalidInput:
            return True

    async def go_back(self, received: Received, check: Transaction[object]) -> None:
        """Take the conversation back to before a message that was deleted or edited after its answer.

        `check` raises if the sender can do nothing any more. A deletion that does not say who made it has no sender.
        """
        checks = [check] if received.inbound.source.participant is not None else []
        store, done = self.ctx.store, None
        while done is None:
            hides = await store.read(store.revisions.count_rewound(received))
            text = self.ctx.settings.for_reader(texts.went_back(hides), received.role)
            notices = self.ctx.replies.routes.notices(received.inbound.source, text)
            now = self.ctx.clock.now()
            rewind = store.revisions.rewind_to(received, now, notices, hides=hides)
            done = await store.transact(_run_checked(checks, rewind))
        if done:
            log.info("went back to a changed message", extra={"action": "message.revised", "inbox": received.number})


@transaction
def _run_checked(checks: Sequence[Transaction[object]], step: Transaction[T]) -> Statements[T]:
    for check in checks:
        yield from check
    return (yield from step)
