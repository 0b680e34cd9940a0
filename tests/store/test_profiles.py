"""A profile is a name space: nobody sees out of one what was said in another."""

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import NotFound
from palaver.model.session import Principal
from palaver.model.source import MAIN
from palaver.store.conversations import history, sessions, titles, transcript
from palaver.store.people import memory
from palaver.store.status.session_list import list_sessions, recent_sessions
from palaver.store.store import Store
from tests.store.world import OPERATOR, World, dm, key_of

HOME, WORK = dm("7"), dm("7", profile="work")
AT_HOME, AT_WORK = Principal.speaking(HOME), Principal.speaking(WORK)


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


async def test_the_same_chat_in_two_profiles_is_two_conversations(world: World) -> None:
    home = await world.exchange("a walk", source=HOME)
    work = await world.exchange("a report", source=WORK)
    assert key_of(HOME) != key_of(WORK)
    assert await world.texts(home.turn.session, AT_HOME) == ["a walk", "yes"]
    assert await world.texts(work.turn.session, AT_WORK) == ["a report", "yes"]
    assert (home.opened.is_first_contact, work.opened.is_first_contact) == (True, True)


async def test_what_was_said_in_one_profile_is_not_found_in_another(world: World) -> None:
    begun = await world.exchange("the canary sings", source=HOME)
    session = begun.turn.session
    await world.store.transact(titles.rename(session, "Birds", AT_HOME))
    for text in (session, session[:20], "Birds"):
        assert (await world.store.read(sessions.find(text, AT_HOME))).id == session
        with pytest.raises(NotFound):
            await world.store.read(sessions.find(text, AT_WORK))
        switch = sessions.switch(key_of(WORK), WORK, text, AT_WORK, world.now, by="7")
        with pytest.raises(NotFound):
            await world.store.transact(switch)
    with pytest.raises(NotFound):
        await world.store.read(transcript.load_all(session, AT_WORK))
    for principal, found in ((AT_HOME, [session]), (AT_WORK, [])):
        assert [each.session.id for each in await world.store.read(recent_sessions(principal, 10))] == found
        page = await world.store.read(list_sessions(principal, limit=10))
        assert [preview.session.id for preview in page.previews] == found
        hits = await world.store.search.find("canary", principal, limit=5)
        assert [hit.session.id for hit in hits] == found


@transaction
def _note(profile: str, text: str) -> Statements[None]:
    yield (
        "INSERT INTO memory_notes (profile, identity, text, created) VALUES (?, 'telegram:7', ?, 1)",
        (profile, text),
    )


async def test_what_an_agent_noted_in_one_profile_is_not_read_in_another(world: World) -> None:
    for profile in (MAIN, "work"):
        await world.store.transact(_note(profile, f"of {profile}"))
    for principal, found in ((AT_HOME, ["of main"]), (AT_WORK, ["of work"]), (OPERATOR, ["of main", "of work"])):
        assert [note.text for note in await world.store.read(memory.list_visible(principal))] == found
    assert await world.store.read(memory.list_visible(Principal.speaking(dm("8")))) == []


async def test_someone_who_can_see_all_carries_a_conversation_into_another_profile_and_back(world: World) -> None:
    session = (await world.exchange("a walk", source=HOME)).turn.session
    await world.exchange("a report", source=WORK)
    await world.store.transact(sessions.switch(key_of(WORK), WORK, session, OPERATOR, world.now, by="operator"))
    assert await world.texts(session, AT_WORK) == ["a walk", "yes"]
    with pytest.raises(NotFound):
        await world.texts(session, AT_HOME)
    await world.store.transact(history.back(key_of(WORK), world.now, principal=AT_WORK))
    assert await world.texts(session, AT_HOME) == ["a walk", "yes"]
    with pytest.raises(NotFound):
        await world.texts(session, AT_WORK)


def test_who_speaks_sees_the_profile_in_which_they_speak() -> None:
    assert (AT_HOME.profile, AT_WORK.profile, OPERATOR.profile) == (MAIN, "work", None)
