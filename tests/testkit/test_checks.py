"""Each check of the conformance suite catches an adapter that breaks the rule."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from palaver.model.attachment import Attachment
from palaver.model.source import Source, Trust
from palaver.model.split import Unit
from palaver.model.turn import Choice, Inbound, Outbound
from palaver.protocols.adapter import (
    AnswerStatus,
    Limits,
    PlatformBusy,
    PlatformDown,
    Receiver,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.protocols.capabilities import MenuCommand, announced
from palaver.testkit.adapter import FakeAdapter, PlatformClient, UpdateStream
from palaver.testkit.conformance import AdapterConformance
from palaver.testkit.updates import Update
from tests.testkit.fakes import FakePlatformServer, world_for_checks


class Changing:
    """An inlet behind an adapter that hands over something else than it got."""

    def __init__(self, receiver: Receiver, change: Callable[[Inbound], Inbound]) -> None:
        self._receiver = receiver
        self._change = change

    async def connected(self) -> None:
        await self._receiver.connected()

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        await self._receiver.receive(self._change(inbound), trust)

    async def load_position(self) -> str | None:
        return await self._receiver.load_position()

    async def save_position(self, position: str) -> None:
        await self._receiver.save_position(position)

    async def recent_chats(self, limit: int, *, server: str | None = None) -> Sequence[str]:
        return await self._receiver.recent_chats(limit, server=server)

    async def link_alias(self, alias: str, canonical: str) -> None:
        await self._receiver.link_alias(alias, canonical)

    async def person_moved(self, old: str, new: str, at: datetime) -> None:
        await self._receiver.person_moved(old, new, at)

    async def chat_moved(self, old: str, new: str, *, server: str | None = None) -> None:
        await self._receiver.chat_moved(old, new, server=server)

    async def chat_returned(self, chat_id: str) -> None:
        await self._receiver.chat_returned(chat_id)

    async def is_owner(self, user_id: str) -> bool:
        return await self._receiver.is_owner(user_id)

    async def wait_for_answer(self, source: Source, timeout: float) -> AnswerStatus | None:  # noqa: ASYNC109
        return await self._receiver.wait_for_answer(source, timeout)


class ForgetsNames(FakeAdapter):
    def changed(self, inbound: Inbound) -> Inbound:
        return replace(inbound, labels=replace(inbound.labels, user=None))

    async def run(self, receiver: Receiver) -> None:
        await super().run(Changing(receiver, self.changed))


class TakesNamesForIds(ForgetsNames):
    def changed(self, inbound: Inbound) -> Inbound:
        assert inbound.labels.user
        return replace(inbound, source=replace(inbound.source, user_id=inbound.labels.user.stored()))


class NewIdsEachTime(ForgetsNames):
    seen = 0

    def changed(self, inbound: Inbound) -> Inbound:
        NewIdsEachTime.seen += 1
        return replace(inbound, source=replace(inbound.source, message_id=str(self.seen)))


class CutsIds(ForgetsNames):
    def changed(self, inbound: Inbound) -> Inbound:
        return replace(inbound, source=replace(inbound.source, message_id=(inbound.source.message_id or "")[:255]))


class ForgetsThreadsIn(ForgetsNames):
    def changed(self, inbound: Inbound) -> Inbound:
        return replace(inbound, source=replace(inbound.source, thread_id=None))


class StripsTexts(ForgetsNames):
    def changed(self, inbound: Inbound) -> Inbound:
        return replace(inbound, text=inbound.text.replace("\n", " "))


class TakesChangesForMessages(ForgetsNames):
    def changed(self, inbound: Inbound) -> Inbound:
        return replace(inbound, revision=None)


class NamesNoVersions(ForgetsNames):
    def changed(self, inbound: Inbound) -> Inbound:
        return replace(inbound, revision=inbound.revision and replace(inbound.revision, version="edited"))


class AcknowledgesFirst(FakeAdapter):
    async def _hand_over(self, stream: UpdateStream, update: Update, receiver: Receiver) -> None:
        await stream.acknowledge(update.number)
        await receiver.receive(self._inbound(update), Trust())


class Reverses(FakeAdapter):
    async def _hand_over(self, stream: UpdateStream, update: Update, receiver: Receiver) -> None:
        updates = [update, *[await stream.next() for _ in range(4)]]
        for each in reversed(updates):
            await receiver.receive(self._inbound(each), Trust())


class SkipsTheBacklog(FakeAdapter):
    async def run(self, receiver: Receiver) -> None:
        stream = await self._client.open(self.account)
        try:
            async with asyncio.timeout(0.01):
                while True:
                    await stream.acknowledge((await stream.next()).number)
        except TimeoutError:
            await super().run(receiver)
        finally:
            await stream.close()


class GivesUpQuietly(FakeAdapter):
    async def run(self, receiver: Receiver) -> None:
        try:
            await super().run(receiver)
        except PlatformDown:
            return


class LeavesATask(FakeAdapter):
    left: asyncio.Task[Any] | None = None

    async def run(self, receiver: Receiver) -> None:
        LeavesATask.left = asyncio.create_task(asyncio.sleep(1))
        await super().run(receiver)


class Sends(FakeAdapter):
    """Sends something else, or in another way, than it was asked to."""

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await super().send(self.sent(outbound), idempotency_key=idempotency_key)

    def sent(self, outbound: Outbound) -> Outbound:
        return outbound


class ForgetsThreadsOut(Sends):
    def sent(self, outbound: Outbound) -> Outbound:
        return replace(outbound, thread_id=None)


class EscapesTwice(Sends):
    def sent(self, outbound: Outbound) -> Outbound:
        return replace(outbound, text=outbound.text.replace("&", "&amp;"))


class SendsTwice(Sends):
    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        await super().send(outbound, idempotency_key=idempotency_key + "again")
        await asyncio.sleep(self.limits.interval)
        return await super().send(outbound, idempotency_key=idempotency_key)


class NoReceipt(Sends):
    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        await super().send(outbound, idempotency_key=idempotency_key)
        return ""


class NewKeyEachTime(Sends):
    keys = count(1)

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await super().send(outbound, idempotency_key=f"{idempotency_key} {next(self.keys)}")


class PromisesTooMuch(FakeAdapter):
    def __init__(self, link: PlatformClient, *, limits: Limits) -> None:
        del limits
        super().__init__(link, limits=Limits(text=501, interval=0.01))


class Hurries(FakeAdapter):
    def __init__(self, link: PlatformClient, *, limits: Limits) -> None:
        del limits
        super().__init__(link, limits=Limits(text=500, interval=0.0))


class AnnouncesNothing(FakeAdapter):
    def __init__(self, link: PlatformClient, *, limits: Limits) -> None:
        super().__init__(link, limits=replace(limits, announces_requests=True))

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        async def nothing() -> None:
            pass

        with announced(nothing):
            return await super().send(outbound, idempotency_key=idempotency_key)


class RetriesByItself(Sends):
    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        try:
            return await super().send(outbound, idempotency_key=idempotency_key)
        except (SendUnclear, PlatformBusy):
            await asyncio.sleep(self.limits.interval)
            return await super().send(outbound, idempotency_key=idempotency_key + "again")


class CallsEverythingDown(Sends):
    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        try:
            return await super().send(outbound, idempotency_key=idempotency_key)
        except SendUnclear:
            raise PlatformDown("who knows") from None
        except TargetGone:
            raise SendRefused("who knows") from None


class EditsBySending(FakeAdapter):
    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await self.send(outbound, idempotency_key=f"{receipt}{outbound.text}")


class OpensNothing(FakeAdapter):
    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self.send(outbound, idempotency_key=idempotency_key)


class FetchesTheFirst(FakeAdapter):
    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        async for piece in super().fetch(file._replace(handle=(file.handle or "").rpartition("/")[0] + "/0")):
            yield piece


class FetchesFromAnywhere(FakeAdapter):
    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        yield (file.handle or "").encode()


class DescribesFiles(FakeAdapter):
    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        return await self.send(replace(outbound, text=f"a file: {content.name}"), idempotency_key=idempotency_key)


class TypesByShowing(FakeAdapter):
    async def typing(self, outbound: Outbound) -> None:
        await self.send(replace(outbound, text="…"), idempotency_key="typing")


class PressesAsAStranger(ForgetsNames):
    def changed(self, inbound: Inbound) -> Inbound:
        return replace(inbound, source=replace(inbound.source, user_id=None))


class HearsNoMention(ForgetsNames):
    def changed(self, inbound: Inbound) -> Inbound:
        return replace(inbound, mentions_us=False)


class ForgetsWhatWasTakenBack(ForgetsNames):
    def changed(self, inbound: Inbound) -> Inbound:
        return replace(inbound, reaction=inbound.reaction and replace(inbound.reaction, removed=False))


class KeepsButtons(FakeAdapter):
    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await super().edit(receipt, replace(outbound, choices=(Choice("Allow", "/approve"),)))


class StaysInTheOldChat(FakeAdapter):
    async def _hand_over(self, stream: UpdateStream, update: Update, receiver: Receiver) -> None:
        if update.moved_from is None:
            await super()._hand_over(stream, update, receiver)


class ShowsHalfAMenu(FakeAdapter):
    async def show_menu(self, commands: Sequence[MenuCommand]) -> None:
        await super().show_menu(commands[:1])


BROKEN = [
    (ForgetsNames, "a_message_is_handed_over_with_its_ids_and_with_names_as_labels"),
    (TakesNamesForIds, "hostile_names_are_kept_as_labels_and_change_no_id"),
    (ForgetsThreadsIn, "a_message_in_a_thread_knows_its_thread"),
    (Reverses, "messages_come_in_order"),
    (StripsTexts, "hostile_texts_come_in_unharmed"),
    (CutsIds, "a_message_with_an_overlong_id_is_dropped_and_blocks_nothing"),
    (CutsIds, "what_cannot_be_read_is_skipped_and_blocks_nothing"),
    (AcknowledgesFirst, "a_message_that_was_not_stored_comes_again_under_the_same_id"),
    (NewIdsEachTime, "a_message_that_was_not_stored_comes_again_under_the_same_id"),
    (AcknowledgesFirst, "nothing_is_acknowledged_before_it_is_stored"),
    (NewIdsEachTime, "nothing_is_acknowledged_before_it_is_stored"),
    (TakesChangesForMessages, "an_edit_and_a_deletion_are_changes_of_the_message_they_concern"),
    (NamesNoVersions, "every_change_has_a_stable_version"),
    (SkipsTheBacklog, "messages_sent_while_offline_are_handed_over"),
    (SkipsTheBacklog, "a_cut_connection_leaves_no_gap"),
    (GivesUpQuietly, "a_cut_connection_leaves_no_gap"),
    (SendsTwice, "a_message_is_shown_once_where_it_belongs"),
    (NoReceipt, "a_message_is_shown_once_where_it_belongs"),
    (ForgetsThreadsOut, "every_part_keeps_its_thread"),
    (EscapesTwice, "hostile_texts_go_out_unharmed"),
    (PromisesTooMuch, "limits_are_true"),
    (Hurries, "limits_are_true"),
    (NewKeyEachTime, "a_repeated_key_shows_one_message_if_the_adapter_says_so"),
    (RetriesByItself, "a_rate_limit_says_how_long_to_wait"),
    (CallsEverythingDown, "a_gone_chat_raises_target_gone"),
    (CallsEverythingDown, "each_refusal_means_what_the_platform_says"),
    (AnnouncesNothing, "no_request_leaves_before_it_was_announced"),
    (LeavesATask, "cancelling_leaves_nothing_behind"),
    (EditsBySending, "editing_twice_to_the_same_text_does_no_harm"),
    (FetchesTheFirst, "files_are_announced_with_their_message_and_fetched_later"),
    (FetchesFromAnywhere, "files_are_fetched_from_the_platform_only"),
    (DescribesFiles, "a_file_is_shown_once_with_a_receipt_of_its_own"),
    (TypesByShowing, "typing_shows_no_message"),
    (PressesAsAStranger, "a_pressed_button_comes_in_as_a_message"),
    (HearsNoMention, "a_pressed_button_comes_in_as_a_message"),
    (KeepsButtons, "an_edit_adds_and_removes_buttons"),
    (HearsNoMention, "mentions_and_replies_are_addressed_to_us"),
    (ForgetsWhatWasTakenBack, "reactions_to_our_messages_are_reported_and_taken_back"),
    (StaysInTheOldChat, "a_chat_with_a_new_id_is_reported"),
    (ShowsHalfAMenu, "the_menu_shows_what_the_platform_can_show"),
    (OpensNothing, "people_can_answer_in_a_thread_we_open"),
]


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("checks", "recorder", "driver"):
        monkeypatch.setattr(f"palaver.testkit.{module}.TIMEOUT_SECONDS", 0.3)


def fake_of(kind: type[FakeAdapter]) -> FakePlatformServer:
    world = world_for_checks()
    limits = Limits(text=500, interval=0.01, repeats_safely=True)
    return FakePlatformServer(world, world, lambda link: kind(link, limits=limits))


def check(name: str) -> Callable[..., Awaitable[None]]:
    return getattr(AdapterConformance(), f"test_{name}")


# A check says no by an assertion, by pytest.fail, by what it waited for in vain, or by what the adapter raised.
NO = (AssertionError, pytest.fail.Exception, TimeoutError, SendRefused, PlatformBusy, PlatformDown)


@pytest.mark.parametrize(("kind", "name"), BROKEN, ids=[f"{kind.__name__}-{name}" for kind, name in BROKEN])
async def test_a_broken_adapter_is_caught(kind: type[FakeAdapter], name: str) -> None:
    with pytest.raises(NO):
        await check(name)(fake_of(kind))
    if LeavesATask.left:
        LeavesATask.left.cancel()


@pytest.mark.parametrize("counted", Unit)
@pytest.mark.parametrize("said", Unit)
async def test_limits_are_true_only_in_what_the_platform_counts(counted: Unit, said: Unit) -> None:
    world, limits = world_for_checks(counted), Limits(text=500, unit=said, interval=0.01, repeats_safely=True)
    fake = FakePlatformServer(world, world, lambda link: FakeAdapter(link, limits=limits))
    if counted.widest > said.widest:
        with pytest.raises(SendRefused):
            await check("limits_are_true")(fake)
    else:
        await check("limits_are_true")(fake)


@pytest.mark.parametrize("shown", [True, False])
async def test_a_lost_send_that_is_not_said_to_be_lost_is_caught(shown: bool) -> None:
    name = "a_send_cut_off_midway_is_never_reported_as_clear"
    for kind in (RetriesByItself, CallsEverythingDown) if shown else (RetriesByItself,):
        with pytest.raises(NO):
            await check(name)(fake_of(kind), shown)


def test_every_check_has_an_adapter_that_it_catches() -> None:
    names = {name.removeprefix("test_") for name in dir(AdapterConformance) if name.startswith("test_")}
    apart = {"a_send_cut_off_midway_is_never_reported_as_clear"}
    assert names == {name for _, name in BROKEN} | apart
