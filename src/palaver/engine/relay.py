"""The connector's side of the relay: what it does for one gateway on one account, within that gateway's chats."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from palaver.engine.context import EngineContext, LiveState, Resources
from palaver.engine.intake.receiver import Intake
from palaver.engine.retry import retry_until_stored, wait_any
from palaver.model.attachment import Attachment
from palaver.model.key import choose_tenant
from palaver.model.redact import without_keys
from palaver.model.source import Source
from palaver.model.turn import Delivery, Inbound, Outbound, OutboxState
from palaver.model.value import value
from palaver.protocols.adapter import Adapter, PlatformBusy, SendRefused, SendUnclear, TargetGone
from palaver.protocols.capabilities import (
    Checking,
    Downloading,
    Drafting,
    Editing,
    Threading,
    Typing,
    Uploading,
    supports,
)
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.queue.relayed import relay_topic

CAPABILITIES = {
    "typing": Typing,
    "editing": Editing,
    "drafting": Drafting,
    "threading": Threading,
    "downloading": Downloading,
    "uploading": Uploading,
}
"""What a gateway can use through the relay, by its name on the wire."""
STILL_DUE_SECONDS = 5.0
"""When a gateway asks again for a send that the connector is still trying."""
_LOOK_SECONDS = 1.0
"""How often to look whether another worker has ended a send."""
_FROM_BOTS = "it is from a bot, and trust marks are not relayed"


@value
class RelayedMessage:
    number: int
    inbound: Inbound
    aliases: Sequence[tuple[str, str]] = ()
    """Other ids of its sender, each with the canonical one."""
    earlier_chats: Sequence[str] = ()
    """Ids that its chat had before."""


@dataclass(frozen=True, kw_only=True)
class Relay:
    ctx: EngineContext
    resources: Resources
    live: LiveState
    intake: Intake

    def tenant_of(self, source: Source) -> str | None:
        return choose_tenant(source, self.ctx.settings.tenants)

    async def accept(self, inbound: Inbound, tenant: str, *, is_bot: bool) -> None:
        """Store a message for the tenant's gateway. Without its trust mark a bot would look like a person there."""
        inbound.check_ids()
        inbound = without_keys(inbound)
        refused = _FROM_BOTS if is_bot else None

        async def accept() -> None:
            key, store = await self.intake.place_of(inbound.source), self.ctx.store
            await store.transact(store.relayed.accept(inbound, key, tenant, self.ctx.clock.now(), refused=refused))

        await self.intake.in_order(inbound.source, accept)

    def link(self, tenant: str, platform: str, account: str) -> "RelayLink | None":
        """Return what a tenant can do on an account; None if it has no chats there."""
        adapter = self.ctx.replies.adapter_for(platform, account)
        rules = [rule for rule in self.ctx.settings.tenants if rule.profile == tenant]
        if adapter is None or not any(
            rule.platform in {None, platform} and rule.account in {None, account} for rule in rules
        ):
            return None
        return RelayLink(relay=self, tenant=tenant, adapter=adapter)


@dataclass(frozen=True, kw_only=True)
class RelayLink:
    relay: Relay
    tenant: str
    adapter: Adapter
    stored_files: set[str] = field(default_factory=set[str])
    """What the gateway uploaded over this connection, and so can send."""

    @property
    def capabilities(self) -> list[str]:
        return [name for name, capability in CAPABILITIES.items() if supports(self.adapter, capability)]

    # Incoming

    def listen(self) -> AbstractContextManager[asyncio.Event]:
        return self._ctx.store.listen(relay_topic(self.tenant))

    async def list_waiting(self, *, after: int, limit: int) -> list[RelayedMessage]:
        store = self._ctx.store
        waiting = store.relayed.list_waiting(self.tenant, *self._account, after=after, limit=limit)
        return [await self._with_names(*found) for found in await store.read(waiting)]

    async def _with_names(self, number: int, inbound: Inbound) -> RelayedMessage:
        aliases, chats = await self.relay.intake.other_ids(inbound.source)
        return RelayedMessage(number=number, inbound=inbound, aliases=aliases, earlier_chats=chats)

    async def acknowledge(self, numbers: Sequence[int]) -> None:
        settle = self._ctx.store.relayed.acknowledge(self.tenant, *self._account, numbers)
        await retry_until_stored(self._ctx.store, settle)

    async def fetch(self, file: Attachment) -> AsyncGenerator[bytes]:
        if not supports(self.adapter, Downloading):
            raise SendRefused("This platform has no files.")
        async for chunk in self.adapter.fetch(file):
            yield chunk

    # Outgoing

    async def send(self, outbound: Outbound, key: str) -> str:
        """Send through the outbox, once for each key, and return the receipt.

        Raise PlatformBusy while the connector is still trying: the gateway asks again under the same key.
        """
        await self._check(outbound)
        ctx, store = self._ctx, self._ctx.store
        delivery = await store.transact(store.relayed.enqueue(self.tenant, outbound, key, ctx.clock.now()))
        if delivery is None:
            raise SendUnclear("The connector cannot read what it was given under this key.")
        find = store.outbox.get_delivery(delivery.number)
        with self.relay.live.ended_sends.waiting(delivery.number) as ended, suppress(TimeoutError):
            async with asyncio.timeout(ctx.settings.limits.send_limit.total_seconds() / 2):
                # Read it again: it may have ended before we waited for that.
                while (delivery := await store.read(find) or delivery).state.is_open:
                    # Another worker that serves the account does not notify us.
                    await wait_any(ended, timeout=_LOOK_SECONDS)
                    ended.clear()
        is_gone = await store.read(store.relayed.is_gone(delivery.number))
        return _receipt_of(delivery, is_gone=is_gone)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await self._check(outbound)
        if not supports(self.adapter, Editing):
            raise SendRefused("This platform has no edits.")
        await self.adapter.edit(receipt, outbound)

    async def draft(self, receipt: str | None, outbound: Outbound) -> str:
        await self._check(outbound)
        if not supports(self.adapter, Drafting):
            raise SendRefused("This platform has no drafts.")
        return await self.adapter.draft(receipt, outbound)

    async def typing(self, outbound: Outbound) -> None:
        await self._check(outbound)
        if supports(self.adapter, Typing):
            await self.adapter.typing(outbound)

    async def check(self) -> str:
        return await self.adapter.check() if supports(self.adapter, Checking) else ""

    async def store_file(self, chunks: AsyncIterator[bytes]) -> str:
        """Store a file that the gateway is about to send."""
        if self.blobs is None:
            raise SendRefused("This connector stores no files.")
        kept = await self.blobs.keep(chunks, self._ctx.settings.limits.file_size)
        self.stored_files.add(kept.sha256)
        return kept.sha256

    async def _check(self, outbound: Outbound) -> None:
        """Refuse a chat that is not the tenant's: it can be another's."""
        place = Source(
            platform=outbound.platform,
            account=outbound.account,
            scope_id=outbound.scope_id,
            chat_id=outbound.chat_id,
            thread_id=outbound.thread_id,
        )
        store = self._ctx.store
        is_known = self.relay.tenant_of(place) == self.tenant or await store.read(
            store.relayed.has_come_from(self.tenant, outbound)
        )
        if not is_known:
            raise SendRefused("This connector does not relay this chat to you.")
        if outbound.file is not None and outbound.file.sha256 not in self.stored_files:
            raise SendRefused("You did not upload this file.")

    @property
    def blobs(self) -> BlobStore | None:
        return self.relay.resources.blob_store

    @property
    def _ctx(self) -> EngineContext:
        return self.relay.ctx

    @property
    def _account(self) -> tuple[str, str | None]:
        return self.adapter.platform.name, self.adapter.account


def _receipt_of(delivery: Delivery, *, is_gone: bool) -> str:
    match delivery.state:
        case OutboxState.DELIVERED:
            return delivery.receipt or ""
        case OutboxState.DEAD:
            error = delivery.error or "The connector gave up."
            raise TargetGone(error) if is_gone else SendRefused(error)
        case OutboxState.UNCLEAR:
            raise SendUnclear(delivery.error or "The connector does not know whether it arrived.")
        case _:
            raise PlatformBusy(STILL_DUE_SECONDS)
