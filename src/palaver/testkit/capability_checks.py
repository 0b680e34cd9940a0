"""The checks of capabilities; each runs if the adapter and its fake server have the capability."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from palaver.model.feedback import rating_of
from palaver.protocols import (
    Attachment,
    Choice,
    CommandMenu,
    Downloading,
    Editing,
    Label,
    MenuCommand,
    NewFile,
    PlatformBusy,
    PlatformError,
    SendRefused,
    Threading,
    Typing,
    Uploading,
)
from palaver.testkit.driver import (
    keep_pace,
    new_key,
    retry_until_connected,
    run_adapter,
    send,
    skip_unless_possible,
    to_chat,
)
from palaver.testkit.fake_server import (
    FakeServer,
    WithButtons,
    WithFiles,
    WithForeignFiles,
    WithMentions,
    WithMenu,
    WithMoves,
    WithNonsense,
    WithReactions,
    WithRefusals,
)
from palaver.testkit.recorder import Recorder, running

__all__ = ["CapabilityChecks"]

# ruff: noqa: S101 - these are tests

_FILES = (
    NewFile("notes.txt", "grüße\n".encode(), "text/plain"),
    NewFile("../../etc/passwd", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "image/png"),
)
_CHOICES = (Choice("Allow", "/approve 7-1"), Choice("Deny", "/deny 7-1"))
_COMMANDS = (
    MenuCommand(name="new", help="start a new conversation"),
    MenuCommand(name="help", help="list the commands"),
)


class CapabilityChecks:
    async def test_editing_twice_to_the_same_text_does_no_harm(self, fake: FakeServer) -> None:
        adapter = fake.adapter()
        if not isinstance(adapter, Editing):
            pytest.skip("the adapter has no Editing")
        async with running(adapter, Recorder()):
            receipt = await send(adapter, fake, "draft")
            for text in ("grown", "grown", "whole"):
                await keep_pace(adapter, adapter.edit(receipt, to_chat(adapter, fake, text)))
            with pytest.raises(SendRefused):
                await adapter.edit("no such receipt", to_chat(adapter, fake, "x"))
        assert [shown.text for shown in await fake.shown()] == ["whole"]

    async def test_people_can_answer_in_a_thread_we_open(self, fake: FakeServer) -> None:
        adapter = fake.adapter()
        recorder = Recorder()
        if not isinstance(adapter, Threading):
            pytest.skip("the adapter has no Threading")
        async with running(adapter, recorder):
            opening = replace(to_chat(adapter, fake, "it begins"), opens="Plans")
            key = new_key()
            thread = await retry_until_connected(
                lambda: keep_pace(adapter, adapter.open_thread(opening, idempotency_key=key))
            )
            await fake.say("I am here", thread_id=thread)
            await recorder.has(1)
        assert [(shown.text, shown.thread_id) for shown in await fake.shown()] == [("it begins", thread)]
        assert recorder.received[0].source.thread_id == thread

    async def test_files_are_announced_with_their_message_and_fetched_later(self, fake: FakeServer) -> None:
        adapter = fake.adapter()
        recorder = Recorder()
        if not (isinstance(adapter, Downloading) and isinstance(fake, WithFiles)):
            pytest.skip("the adapter has no Downloading, or the fake server no WithFiles")
        async with running(adapter, recorder):
            source = await fake.say_with("look", _FILES)
            files = await recorder.has_files(len(_FILES))
            contents = [b"".join([piece async for piece in adapter.fetch(file)]) for file in files]
        assert recorder.received[0].source == source
        assert [text for text in recorder.texts if text] == ["look"], "the text comes once"
        assert contents == [file.content for file in _FILES]
        announced = [(file.name, file.media_type) for file in files]
        assert announced == [(Label(file.name), file.media_type) for file in _FILES]
        for file, attachment in zip(_FILES, files, strict=True):
            assert attachment.size in {None, len(file.content)}, "a stated size is correct"
            assert attachment.sha256 is None, "the gateway computes the hash, not the adapter"

    async def test_files_are_fetched_from_the_platform_only(self, fake: FakeServer) -> None:
        adapter = fake.adapter()
        if not (isinstance(adapter, Downloading) and isinstance(fake, WithForeignFiles) and fake.foreign_files()):
            pytest.skip("the adapter has no Downloading, or the fake server no WithForeignFiles")
        for handle in fake.foreign_files():
            with pytest.raises(SendRefused):
                _ = [piece async for piece in adapter.fetch(Attachment(Label("x"), handle=handle))]

    async def test_a_file_is_shown_once_with_a_receipt_of_its_own(self, fake: FakeServer) -> None:
        adapter = fake.adapter()
        if not (isinstance(adapter, Uploading) and isinstance(fake, WithFiles)):
            pytest.skip("the adapter has no Uploading, or the fake server no WithFiles")
        receipts: list[str] = []
        with TemporaryDirectory() as folder:
            async with running(adapter, Recorder()):
                receipts.append(await send(adapter, fake, "here they are"))
                for file in _FILES:
                    content = Path(folder) / str(len(receipts))
                    content.write_bytes(file.content)
                    attached = Attachment(Label(file.name), file.media_type, len(file.content), "0" * 64)
                    outbound = replace(to_chat(adapter, fake, ""), file=attached)
                    sent = adapter.send_file(outbound, content, idempotency_key=new_key())
                    receipts.append(await keep_pace(adapter, sent))
        assert len(set(receipts)) == len(receipts), "two messages have two receipts"
        assert [file.content for file in await fake.shown_files()] == [file.content for file in _FILES]
        assert [file.name for file in await fake.shown_files()] == [file.name for file in _FILES]

    async def test_each_refusal_means_what_the_platform_says(self, fake: FakeServer) -> None:
        if not (isinstance(fake, WithRefusals) and fake.refusals()):
            pytest.skip("the fake server has no WithRefusals")
        async with run_adapter(fake) as (adapter, _):
            await send(adapter, fake, "before")
            for refusal in fake.refusals():
                await fake.refuse(refusal)
                with pytest.raises(PlatformError) as raised:
                    await adapter.send(to_chat(adapter, fake, "refused"), idempotency_key=new_key())
                assert type(raised.value) is refusal.means, refusal
                waits = raised.value.after if isinstance(raised.value, PlatformBusy) else None
                assert refusal.after in {None, waits}, refusal
            await send(adapter, fake, "after")
        assert [shown.text for shown in await fake.shown()] == ["before", "after"]

    async def test_what_cannot_be_read_is_skipped_and_blocks_nothing(self, fake: FakeServer) -> None:
        if not isinstance(fake, WithNonsense):
            pytest.skip("the fake server has no WithNonsense")
        async with run_adapter(fake) as (_, recorder):
            await fake.say("before")
            await recorder.has(1)
            await skip_unless_possible(fake.say_nonsense())
            await fake.say("after")
            await recorder.has(2)
        assert recorder.texts == ["before", "after"]

    async def test_typing_shows_no_message(self, fake: FakeServer) -> None:
        adapter = fake.adapter()
        if not isinstance(adapter, Typing):
            pytest.skip("the adapter has no Typing")
        async with running(adapter, Recorder()):
            await send(adapter, fake, "before")
            await adapter.typing(to_chat(adapter, fake, ""))
        assert [shown.text for shown in await fake.shown()] == ["before"]

    async def test_a_pressed_button_comes_in_as_a_message(self, fake: FakeServer) -> None:
        if not isinstance(fake, WithButtons):
            pytest.skip("the fake server has no WithButtons")
        async with run_adapter(fake) as (adapter, recorder):
            question = replace(to_chat(adapter, fake, "May I?"), choices=_CHOICES)
            key = new_key()
            await retry_until_connected(lambda: keep_pace(adapter, adapter.send(question, idempotency_key=key)))
            offered = list(await fake.choices())
            who = await fake.press("Allow")
            await recorder.has(1)
        assert offered == [choice.label for choice in _CHOICES]
        (inbound,) = recorder.received
        assert (inbound.text, inbound.mentions_us) == ("/approve 7-1", True)
        assert replace(inbound.source, message_id=None) == replace(who, message_id=None)
        assert inbound.source.message_id, "without its own id a redelivery cannot be recognised"

    async def test_an_edit_adds_and_removes_buttons(self, fake: FakeServer) -> None:
        adapter = fake.adapter()
        if not (isinstance(fake, WithButtons) and isinstance(adapter, Editing)):
            pytest.skip("the fake server has no WithButtons, or the adapter no Editing")
        offered: list[list[str]] = []
        async with running(adapter, Recorder()):
            receipt = await send(adapter, fake, "growing")
            for text, choices in (("May I?", _CHOICES), ("Allowed.", ())):
                changed = replace(to_chat(adapter, fake, text), choices=choices)
                await keep_pace(adapter, adapter.edit(receipt, changed))
                offered.append(list(await fake.choices()))
        assert offered == [["Allow", "Deny"], []]

    async def test_mentions_and_replies_are_addressed_to_us(self, fake: FakeServer) -> None:
        if not isinstance(fake, WithMentions):
            pytest.skip("the fake server has no WithMentions")
        async with run_adapter(fake) as (adapter, recorder):
            sources = [await fake.say("hello all")]
            receipt = await send(adapter, fake, "hello")
            sources += [await fake.mention("what time is it?"), await fake.answer(receipt, "and why?")]
            await recorder.has(3)
        assert [inbound.source for inbound in recorder.received] == sources
        assert [inbound.mentions_us for inbound in recorder.received] == [False, True, True]
        assert recorder.texts == ["hello all", "what time is it?", "and why?"]
        assert recorder.received[2].reply_to == receipt

    async def test_reactions_to_our_messages_are_reported_and_taken_back(self, fake: FakeServer) -> None:
        if not isinstance(fake, WithReactions):
            pytest.skip("the fake server has no WithReactions")
        async with run_adapter(fake) as (adapter, recorder):
            receipt = await send(adapter, fake, "hello")
            for number, (sign, removed) in enumerate((("👍", False), ("👎", False), ("👎", True)), 1):
                who = await fake.react(receipt, sign, removed=removed)
                await recorder.has(number)
                inbound = recorder.received[-1]
                assert inbound.reaction is not None
                assert rating_of(inbound.reaction.emoji) in {rating_of(sign), rating_of("") if removed else None}
                assert (inbound.reaction.removed, inbound.reply_to, inbound.text) == (removed, receipt, "")
                given = inbound.source
                meant = who
                assert (given.chat, given.scope_id, given.participant) == (
                    meant.chat,
                    meant.scope_id,
                    meant.participant,
                )

    async def test_a_chat_with_a_new_id_is_reported(self, fake: FakeServer) -> None:
        if not isinstance(fake, WithMoves):
            pytest.skip("the fake server has no WithMoves")
        old = fake.chat_id
        async with run_adapter(fake) as (adapter, recorder):
            await fake.say("before")
            await recorder.has(1)
            new = await fake.move_chat()
            await recorder.has_moves(1)
            await fake.say("after")
            await recorder.has(2)
            await send(adapter, fake, "here, too")
        assert set(recorder.moves) == {(old, new)}
        assert [inbound.source.chat_id for inbound in recorder.received] == [old, new]
        assert [shown.chat_id for shown in await fake.shown()] == [new]

    async def test_the_menu_shows_what_the_platform_can_show(self, fake: FakeServer) -> None:
        adapter = fake.adapter()
        if not (isinstance(adapter, CommandMenu) and isinstance(fake, WithMenu)):
            pytest.skip("the adapter has no CommandMenu, or the fake server no WithMenu")
        odd = MenuCommand(name="ünusual-" * 10, help="a name that hardly any platform accepts")
        async with running(adapter, Recorder()):
            for _ in range(2):
                await retry_until_connected(lambda: adapter.show_menu((*_COMMANDS, odd)))
        shown = [line for line in await fake.menu() if line.name != odd.name]
        assert shown == list(_COMMANDS)
