"""The checks of what an adapter may have besides: each runs where the adapter, and its rig, have it."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from palaver.model.attachment import Attachment, NewFile
from palaver.model.label import Label
from palaver.model.turn import Choice
from palaver.protocols.adapter import SendRefused
from palaver.protocols.capabilities import CommandMenu, Downloading, Editing, MenuCommand, Threading, Typing, Uploading
from palaver.testkit.notebook import Notebook, running
from palaver.testkit.rig import FilingRig, MentioningRig, MenuRig, MovingRig, PressingRig, Rig
from palaver.testkit.trial import keys, paced, patiently, send, to_chat

__all__ = [
    "CapabilityChecks",
]

# ruff: noqa: S101 - these are tests


_FILES = (
    NewFile("notes.txt", "grüße\n".encode(), "text/plain"),
    NewFile("../../etc/passwd", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "image/png"),
)
_CHOICES = (Choice("Allow", "/approve 7-1"), Choice("Deny", "/deny 7-1"))
_LINES = (MenuCommand(name="new", help="start a new conversation"), MenuCommand(name="help", help="list the commands"))


class CapabilityChecks:
    async def test_an_edit_changes_the_message_and_the_same_edit_again_does_no_harm(self, rig: Rig) -> None:
        adapter = rig.adapter()
        if not isinstance(adapter, Editing):
            pytest.skip("the adapter has no Editing")
        async with running(adapter, Notebook()):
            receipt = await send(adapter, rig, "draft")
            for text in ("grown", "grown", "whole"):
                await paced(adapter, adapter.edit(receipt, to_chat(adapter, rig, text)))
            with pytest.raises(SendRefused):
                await adapter.edit("no such receipt", to_chat(adapter, rig, "x"))
        assert [shown.text for shown in await rig.shown()] == ["whole"]

    async def test_a_thread_that_is_begun_is_where_people_answer(self, rig: Rig) -> None:
        adapter, notebook = rig.adapter(), Notebook()
        if not isinstance(adapter, Threading):
            pytest.skip("the adapter has no Threading")
        async with running(adapter, notebook):
            opening = replace(to_chat(adapter, rig, "it begins"), opens="Plans")
            key = f"check-{next(keys)}"
            thread = await patiently(lambda: paced(adapter, adapter.open_thread(opening, idempotency_key=key)))
            await rig.say("I am here", thread_id=thread)
            await notebook.has(1)
        assert [(shown.text, shown.thread_id) for shown in await rig.shown()] == [("it begins", thread)]
        assert notebook.received[0].source.thread_id == thread

    async def test_files_are_told_with_their_message_and_fetched_afterwards(self, rig: Rig) -> None:
        adapter, notebook = rig.adapter(), Notebook()
        if not (isinstance(adapter, Downloading) and isinstance(rig, FilingRig)):
            pytest.skip("the adapter has no Fetching, or its rig no files")
        async with running(adapter, notebook):
            source = await rig.say_with("look", _FILES)
            files = await notebook.has_files(len(_FILES))
            contents = [b"".join([piece async for piece in adapter.fetch(file)]) for file in files]
        assert notebook.received[0].source == source
        assert [text for text in notebook.texts if text] == ["look"], "the words are said once"
        assert contents == [file.content for file in _FILES]
        told = [(file.name, file.media_type) for file in files]
        assert told == [(Label(file.name), file.media_type) for file in _FILES]
        for file, told_file in zip(_FILES, files, strict=True):
            assert told_file.size in {None, len(file.content)}, "a size that is told is true"
            assert told_file.sha256 is None, "what a file is kept under is not for an adapter to say"

    async def test_a_file_is_shown_once_with_a_receipt_of_its_own(self, rig: Rig) -> None:
        adapter = rig.adapter()
        if not (isinstance(adapter, Uploading) and isinstance(rig, FilingRig)):
            pytest.skip("the adapter has no Files, or its rig no files")
        receipts: list[str] = []
        with TemporaryDirectory() as folder:
            async with running(adapter, Notebook()):
                receipts.append(await send(adapter, rig, "here they are"))
                for file in _FILES:
                    content = Path(folder) / str(len(receipts))
                    content.write_bytes(file.content)
                    attached = Attachment(Label(file.name), file.media_type, len(file.content), "0" * 64)
                    outbound = replace(to_chat(adapter, rig, ""), file=attached)
                    sent = adapter.send_file(outbound, content, idempotency_key=f"file-{next(keys)}")
                    receipts.append(await paced(adapter, sent))
        assert len(set(receipts)) == len(receipts), "two messages have two receipts"
        assert [file.content for file in await rig.shown_files()] == [file.content for file in _FILES]
        assert [file.name for file in await rig.shown_files()] == [file.name for file in _FILES]

    async def test_typing_shows_no_message(self, rig: Rig) -> None:
        adapter = rig.adapter()
        if not isinstance(adapter, Typing):
            pytest.skip("the adapter has no Typing")
        async with running(adapter, Notebook()):
            await send(adapter, rig, "before")
            await adapter.typing(to_chat(adapter, rig, ""))
        assert [shown.text for shown in await rig.shown()] == ["before"]

    async def test_an_answer_that_is_chosen_comes_in_as_if_it_was_said(self, rig: Rig) -> None:
        adapter, notebook = rig.adapter(), Notebook()
        if not isinstance(rig, PressingRig):
            pytest.skip("the rig has no buttons")
        async with running(adapter, notebook):
            question = replace(to_chat(adapter, rig, "May I?"), choices=_CHOICES)
            key = f"check-{next(keys)}"
            await patiently(lambda: paced(adapter, adapter.send(question, idempotency_key=key)))
            offered = list(await rig.choices())
            who = await rig.press("Allow")
            await notebook.has(1)
        assert offered == [choice.label for choice in _CHOICES]
        (inbound,) = notebook.received
        assert (inbound.text, inbound.mentions_us) == ("/approve 7-1", True)
        assert replace(inbound.source, message_id=None) == replace(who, message_id=None)
        assert inbound.source.message_id, "without an id of its own a redelivery cannot be known again"

    async def test_an_edit_takes_buttons_away_and_brings_them(self, rig: Rig) -> None:
        adapter = rig.adapter()
        if not (isinstance(rig, PressingRig) and isinstance(adapter, Editing)):
            pytest.skip("the rig has no buttons, or the adapter no Editing")
        offered: list[list[str]] = []
        async with running(adapter, Notebook()):
            receipt = await send(adapter, rig, "growing")
            for text, choices in (("May I?", _CHOICES), ("Allowed.", ())):
                changed = replace(to_chat(adapter, rig, text), choices=choices)
                await paced(adapter, adapter.edit(receipt, changed))
                offered.append(list(await rig.choices()))
        assert offered == [["Allow", "Deny"], []]

    async def test_who_mentions_us_or_answers_us_means_us(self, rig: Rig) -> None:
        adapter, notebook = rig.adapter(), Notebook()
        if not isinstance(rig, MentioningRig):
            pytest.skip("the rig has no mentions")
        async with running(adapter, notebook):
            sources = [await rig.say("hello all")]
            receipt = await send(adapter, rig, "hello")
            sources += [await rig.mention("what time is it?"), await rig.answer(receipt, "and why?")]
            await notebook.has(3)
        assert [each.source for each in notebook.received] == sources
        assert [each.mentions_us for each in notebook.received] == [False, True, True]
        assert notebook.texts == ["hello all", "what time is it?", "and why?"]
        assert notebook.received[2].reply_to == receipt

    async def test_a_chat_that_gets_another_id_is_told_of(self, rig: Rig) -> None:
        adapter, notebook = rig.adapter(), Notebook()
        if not isinstance(rig, MovingRig):
            pytest.skip("the rig has no chats that move")
        old = rig.chat_id
        async with running(adapter, notebook):
            await rig.say("before")
            await notebook.has(1)
            new = await rig.move_chat()
            await notebook.has_moves(1)
            await rig.say("after")
            await notebook.has(2)
            await send(adapter, rig, "here, too")
        assert set(notebook.moves) == {(old, new)}
        assert [each.source.chat_id for each in notebook.received] == [old, new]
        assert [shown.chat_id for shown in await rig.shown()] == [new]

    async def test_the_menu_is_shown_and_what_cannot_be_shown_is_left_out(self, rig: Rig) -> None:
        adapter = rig.adapter()
        if not (isinstance(adapter, CommandMenu) and isinstance(rig, MenuRig)):
            pytest.skip("the adapter has no Menu, or its rig none")
        odd = MenuCommand(name="ünusual-" * 10, help="a name that hardly any platform takes")
        async with running(adapter, Notebook()):
            for _ in range(2):
                await patiently(lambda: adapter.show_menu((*_LINES, odd)))
        shown = [line for line in await rig.menu() if line.name != odd.name]
        assert shown == list(_LINES)
