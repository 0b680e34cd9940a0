"""Who has which file is known, content is found only for those who may read it, and what nobody has is let go."""

import io

import pytest

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.model.access import Basis
from palaver.model.attachment import Attachment
from palaver.model.errors import NotFound
from palaver.model.label import Label
from palaver.model.session import Principal
from palaver.model.turn import Inbound, Outbound, OutboxState
from palaver.store.archive import exporter
from palaver.store.archive.exporter import ExportFormat
from palaver.store.archive.importer import import_sessions
from palaver.store.conversations import attachments, branches, deletion, transcript
from palaver.store.queue import inbox, outbox, turns
from palaver.store.store import Store
from tests.store.world import OPERATOR, World, answer, begin_sends, cause, dm, key_of

ANN = Principal(identities=frozenset({"telegram:7"}))
BEN = Principal(identities=frozenset({"telegram:8"}))
SHA = "ab" * 32
COMING = Attachment(Label("cat.png"), "image/png", 5, handle="h1")
HERE = COMING._replace(sha256=SHA)


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def sent(world: World, *attached: Attachment, text: str = "look") -> int:
    source = dm(message_id="photo")
    inbound = Inbound(source=source, text=text, at=world.now, files=attached)
    number = await world.store.transact(inbox.accept(inbound, key_of(source), world.now))
    assert number
    return number


async def held(store: Store) -> list[str]:
    await store.transact(attachments.drop_sent())
    return await store.read(attachments.list_referenced("", 10))


async def test_a_message_waits_for_its_files_and_takes_them_into_the_transcript(world: World) -> None:
    number = await sent(world, COMING)
    (waiting,) = await world.store.read(attachments.awaiting_files(key_of(dm())))
    assert waiting.number == number
    await world.store.transact(attachments.set_files(waiting, [HERE]))
    assert await world.store.read(attachments.awaiting_files(key_of(dm()))) == []
    assert await held(world.store) == [SHA]
    begun = await world.begin()
    assert begun
    (entry,) = await world.store.read(transcript.load_shown(begun.turn.session_number))
    assert entry.files == (HERE,)


async def test_what_it_says_by_then_is_kept(world: World) -> None:
    await sent(world, COMING, text="old words")
    (waiting,) = await world.store.read(attachments.awaiting_files(key_of(dm())))
    await world.store.transact(_renamed(waiting.number, waiting.inbound))
    await world.store.transact(attachments.set_files(waiting, [HERE]))
    begun = await world.begin()
    assert begun
    assert (begun.messages[0].inbound.text, begun.messages[0].inbound.files) == ("new words", (HERE,))


@transaction
def _sessions() -> Statements[list[str]]:
    return [row[0] for row in (yield "SELECT id FROM sessions", ())]


def _renamed(number: int, inbound: Inbound) -> Transaction[None]:
    return inbox.replace_text(number, inbound, "new words", None, Basis.IDENTITY)


async def test_only_those_who_can_read_the_conversation_find_its_files(world: World) -> None:
    await sent(world, HERE)
    begun = await world.begin()
    assert begun
    assert await world.store.read(attachments.find(SHA[:16], ANN)) == HERE
    assert await world.store.read(attachments.find_in_turn(begun.turn, SHA[:16])) == HERE
    for name, principal in ((SHA[:16], BEN), ("ab", ANN), ("cd" * 8, ANN), ("", OPERATOR), ("%", OPERATOR)):
        with pytest.raises(NotFound):
            await world.store.read(attachments.find(name, principal))
    await world.exchange("other", source=dm("8"))
    await world.say("mine", dm("8"))
    other = await world.begin(dm("8"))
    assert other
    with pytest.raises(NotFound):
        await world.store.read(attachments.find_in_turn(other.turn, SHA[:16]))


async def test_a_file_that_was_taken_back_is_found_by_who_sees_everything_alone(world: World) -> None:
    await sent(world, HERE)
    begun = await world.begin()
    assert begun
    await world.store.transact(turns.settle(begun.turn, [answer()], [], world.now))
    await world.store.transact(transcript.undo(key_of(dm()), 1, world.now, principal=ANN))
    with pytest.raises(NotFound):
        await world.store.read(attachments.find(SHA[:16], ANN))
    assert await world.store.read(attachments.find(SHA[:16], OPERATOR)) == HERE


async def test_a_copy_keeps_a_file_that_the_original_does_not_need_any_more(world: World) -> None:
    await sent(world, HERE)
    begun = await world.begin()
    assert begun
    await world.store.transact(turns.settle(begun.turn, [answer()], [], world.now))
    await world.store.transact(branches.branch(key_of(dm()), dm(), ANN, world.now, by="ann"))
    await world.store.transact(deletion.delete(begun.turn.session, OPERATOR, world.now))
    assert await held(world.store) == [SHA]
    (child,) = await world.store.read(_sessions())
    await world.store.transact(deletion.delete(child, OPERATOR, world.now))
    assert await held(world.store) == []


async def test_a_file_that_is_owed_is_held_until_it_is_sent(world: World) -> None:
    owed = Outbound(platform="telegram", chat_id="7", text="", file=HERE)
    await world.store.transact(outbox.enqueue(owed, cause("export"), world.now))
    (delivery,) = await world.store.transact(begin_sends("w1", world.now))
    assert delivery.outbound == owed
    assert await held(world.store) == [SHA]
    await world.store.transact(outbox.settle_send(delivery, "w1", OutboxState.DELIVERED, receipt="r1"))
    assert await held(world.store) == []


async def test_an_archive_knows_the_files_and_leaves_out_what_was_taken_back(world: World) -> None:
    await sent(world, HERE)
    begun = await world.begin()
    assert begun
    await world.store.transact(turns.settle(begun.turn, [answer("kept")], [], world.now))
    await world.exchange("canary")
    await world.store.transact(transcript.undo(key_of(dm()), 1, world.now, principal=ANN))
    whole = (await world.store.read(exporter.export_session(begun.turn.session, ExportFormat.JSONL, ANN))).content
    assert b"canary" not in whole
    with pytest.raises(NotFound):
        await world.store.read(exporter.export_session(begun.turn.session, ExportFormat.JSONL, BEN))
    for form in (ExportFormat.MARKDOWN, ExportFormat.HTML):
        shown = await world.store.read(exporter.export_session(begun.turn.session, form, ANN))
        assert b"cat" in shown.content
    await world.store.transact(deletion.delete(begun.turn.session, OPERATOR, world.now))
    async for imported in import_sessions(world.store.database, io.BytesIO(whole)):
        entries = await world.store.read(transcript.load_visible(imported.id or "", OPERATOR))
        # The hash alone proves nothing: it could be that of somebody else's file.
        assert [(file.name, file.sha256) for file in entries[0].files] == [(HERE.name, None)]
    assert await held(world.store) == []


async def test_a_short_id_of_two_files_is_ambiguous_however_often_one_of_them_was_sent(world: World) -> None:
    other = HERE._replace(sha256=SHA[:8] + "cd" * 28)
    for number, file in enumerate((HERE, HERE, other)):
        inbound = Inbound(source=dm(message_id=f"photo {number}"), text="look", at=world.now, files=(file,))
        await world.store.transact(inbox.accept(inbound, key_of(dm()), world.now))
        begun = await world.begin()
        assert begun
        await world.store.transact(turns.settle(begun.turn, [answer("yes")], [], world.now))
    for name, found in ((SHA[:10], HERE), (other.sha256 or "", other)):
        assert await world.store.read(attachments.find(name, ANN)) == found
    with pytest.raises(NotFound):
        await world.store.read(attachments.find(SHA[:8], ANN))
