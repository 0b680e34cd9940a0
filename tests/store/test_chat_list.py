"""The list of the web chat: names, marks, and one line for all versions of a conversation."""

from datetime import timedelta

from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.model.turn import InboxState, Received
from palaver.store.conversations.deletion import delete
from palaver.store.store import Store
from tests.store.world import NOON, World, key_of

PLACE = Source(platform="web", chat_id="ann", user_id="ann")
ANN = Principal(identities=frozenset({"web:ann"}))


async def listed(store: Store, *, archived: bool = False) -> list[tuple[str, bool, bool]]:
    page = await store.read(store.chat_list.list_chats(ANN, "web:ann", archived=archived))
    return [(chat.title, chat.is_pinned, chat.is_unread) for chat in page.chats]


async def test_a_conversation_is_called_by_its_first_words_until_it_has_a_title(store: Store) -> None:
    world = World(store)
    session = (await world.exchange("to the\nsea?", source=PLACE)).turn.session
    await world.exchange("by train", source=PLACE)
    assert await listed(store) == [("to the sea?", False, False)]
    await store.transact(store.titles.rename(session, "Holiday", ANN))
    assert await listed(store) == [("Holiday", False, False)]


async def test_marks_pin_archive_and_say_what_is_unread(store: Store) -> None:
    world, mark = World(store), store.chat_list.mark
    session = (await world.exchange("hello", source=PLACE)).turn.session
    assert await store.transact(mark(session, "web:ann", ANN, NOON, pinned=True, seen=2))
    assert not await store.transact(mark(session, "web:ann", ANN, NOON, seen=2)), "nothing changes"
    assert await listed(store) == [("hello", True, False)]
    await world.exchange("more", source=PLACE)
    assert await listed(store) == [("hello", True, True)]
    await store.transact(mark(session, "web:ann", ANN, NOON, archived=True, pinned=False, seen=99))
    assert (await listed(store), await listed(store, archived=True)) == ([], [("hello", False, False)])
    await world.exchange("news", source=PLACE)
    back = [("hello", False, True)]
    assert (await listed(store), await listed(store, archived=True)) == (back, []), "what is new is not archived"
    found = await store.read(store.transcript.load_visible(session, ANN))
    noted = Entry(seq=0, role=Role.ASSISTANT, at=NOON, text="Reminder")
    for seen in (len(found), len(found) + 1):
        await store.transact(mark(session, "web:ann", ANN, world.now, archived=True, seen=seen))
        await store.transact(store.transcript.append_outside_turn(key_of(PLACE), noted))
        assert await listed(store) == back, "a reminder brings it back"
        await store.transact(mark(session, "web:ann", ANN, world.now, seen=seen + 1))
        assert await listed(store) == [("hello", False, False)], "and it stays once the reminder is read"


async def test_what_is_archived_stays_there_until_something_is_said(store: Store) -> None:
    world, mark = World(store), store.chat_list.mark
    session = (await world.exchange("hello", source=PLACE)).turn.session
    await store.transact(mark(session, "web:ann", ANN, world.now, seen=1))
    before_it_was_said = world.now - timedelta(hours=1)
    await store.transact(mark(session, "web:ann", ANN, before_it_was_said, archived=True))
    archived = [("hello", False, False)]
    assert (await listed(store), await listed(store, archived=True)) == ([], archived), "although it was not read"
    for seen in (1, 2):
        await store.transact(mark(session, "web:ann", ANN, world.now, seen=seen))
        assert (await listed(store), await listed(store, archived=True)) == ([], archived), "a mark that came late"


async def test_pages_of_the_list_and_of_the_archive_are_full(store: Store) -> None:
    world, list_chats = World(store), store.chat_list.list_chats
    for number in range(4):
        place = Source(platform="web", chat_id=str(number), user_id="ann")
        session = (await world.exchange(str(number), source=place)).turn.session
        await store.transact(
            store.chat_list.mark(session, "web:ann", ANN, world.now, archived=number in (0, 3), seen=2)
        )
    for archived, titles in ((True, ["3", "0"]), (False, ["2", "1"])):
        after, seen = None, list[str]()
        for _ in titles:
            page = await store.read(list_chats(ANN, "web:ann", archived=archived, after=after, limit=1))
            seen, after = [*seen, *(chat.title for chat in page.chats)], page.after
        assert (seen, after) == (titles, None)


async def test_versions_are_one_line_keep_marks_and_instructions_and_can_be_paged(store: Store) -> None:
    world = World(store)
    first = (await world.exchange("one", source=PLACE)).turn.session
    await world.exchange("two", source=PLACE)
    await store.transact(store.titles.rename(first, "Counting", ANN))
    await store.transact(store.chat_list.set_instructions(first, " briefly ", ANN))
    await store.transact(store.chat_list.mark(first, "web:ann", ANN, NOON, pinned=True))
    inbound = (await world.exchange("three", source=PLACE)).messages[0].inbound
    command = Received(number=0, key=key_of(PLACE), inbound=inbound, state=InboxState.DONE, received=world.now)
    entries = await store.read(store.transcript.load_visible(first, ANN))
    two = next(entry.seq for entry in entries if entry.text == "two")
    again = store.branches.retry(command, ANN, world.now, seq=two, text="zwei")
    assert await store.transact(again) == ["zwei"]
    assert await listed(store) == [("Counting", True, False)]
    found = await store.read(store.chat_list.list_chats(ANN, "web:ann"))
    session = found.chats[0].session
    assert (session.version_root, session.instructions) != (None, None)
    assert session.instructions == "briefly"
    recent = await store.read(store.session_list.recent_sessions(ANN, 9))
    assert [(each.session.id, each.session.title) for each in recent] == [(session.id, "Counting")]
    assert (await store.read(store.sessions.find("Counting", ANN))).id == session.id
    assert (await store.transact(store.titles.rename(session.id, "Zählen", ANN))).title == "Zählen"
    versions = await store.read(store.chat_list.list_versions(session))
    assert [version.id for version in versions] == [first, session.id]
    assert [entry.text for entry in await store.read(store.transcript.load_visible(session.id, ANN))] == ["one", "yes"]
    branch = store.branches.branch(key_of(PLACE), PLACE, ANN, world.now, by="ann")
    assert (await store.transact(branch)).title == "Zählen #2", "versions take no numbers"
    await store.transact(delete(first, ANN, world.now))
    kept = sorted((title, pinned) for title, pinned, _ in await listed(store))
    assert kept == [("Zählen", True), ("Zählen #2", False)], "the next version inherits title and marks"
